//! The resources of a run: a link's queue with its order of service, and a processor with threads by rank.

use super::work::{Packet, background};
use crate::Class;
use crate::analysis::cpu::reservation::Reservation;
use crate::analysis::stages::{Leaf, Stages, Step, htb_burst};
use crate::network::Direction;
use crate::system::{OWN_HEADERS, Scheduler, System};
use std::collections::{BTreeMap, VecDeque};

/// A whole, in parts of which shares are counted.
const BILLION: u128 = 1_000_000_000;

/// Packets of one sample that are sent without anything in between.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketTrain {
    pub stage: usize,
    pub sample: usize,
    pub packets: u64,
    /// Each packet; of the sample's last one `last`.
    pub packet: Packet,
    pub last: Packet,
    /// The sample's last packet is among them.
    pub ends: bool,
}

impl PacketTrain {
    fn sum(&self, of: fn(&Packet) -> u64) -> u64 {
        let last = if self.ends { of(&self.last) } else { of(&self.packet) };
        of(&self.packet).saturating_mul(self.packets - 1).saturating_add(last)
    }

    fn bytes(&self) -> u64 {
        self.sum(|packet| packet.bytes)
    }
}

/// A parcel, or background or control traffic that takes this many ns.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sending {
    Declared(PacketTrain),
    Background(u64),
}

impl Sending {
    pub(super) fn work(&self) -> u64 {
        match self {
            Sending::Background(work) => *work,
            Sending::Declared(parcel) => parcel.sum(|packet| packet.time),
        }
    }

    fn packets(&self) -> u64 {
        match self {
            Sending::Background(_) => 1,
            Sending::Declared(parcel) => parcel.packets,
        }
    }
}

/// Shares' state of one class.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// `htb`: tokens, in ns at the class's rate, when they were counted, and the most that there can be.
    tokens: i128,
    counted: u64,
    depth: i128,
    /// `hfsc`: time at which its share has served everything given by share; and the total given by share.
    clock: u64,
    virtual_time: u128,
}

/// A queue of a channel's own, or, without a stage, of control traffic.
#[derive(Debug)]
struct Own {
    stage: Option<usize>,
    leaf: Leaf,
    waiting: VecDeque<Sending>,
    account: Account,
    /// The order of its last turn.
    served: u64,
}

/// The queue whose turn it is: a class's, or one of a channel's own.
enum Turned {
    Class(usize),
    Own(usize),
}

/// A queue.
#[derive(Debug)]
pub(super) struct Queue {
    scheduler: Scheduler,
    /// Share of each class, in parts per billion.
    shares: [u64; 4],
    /// Time on the wire of one unit of background traffic, ns.
    unit: u64,
    waiting: [VecDeque<Sending>; 4],
    own: Vec<Own>,
    turns: u64,
    /// Bytes of samples that wait in classes' queues.
    pub bytes: u64,
    busy: bool,
    accounts: [Account; 4],
}

/// The queues of all links, two for each, empty.
pub(super) fn queues(system: &System, stages: &Stages) -> Vec<Queue> {
    let queue = |index: usize| {
        let link = &system.links[Direction::at(index).link];
        let stated = |shares: [f64; 4]| shares.map(|share| (share.clamp(0.0, 1.0) * BILLION as f64).round() as u64);
        let shares = link.shares.map_or(stages.egresses[index].shares, stated);
        let account = |class: Class| {
            let rate = u128::from(link.rate) * u128::from(shares[class as usize]) / BILLION;
            let burst = u128::from(htb_burst(u64::try_from(rate).unwrap_or(u64::MAX))) * 8 * BILLION;
            let depth = i128::try_from(burst.checked_div(rate).unwrap_or(0)).unwrap_or(i128::MAX);
            Account { tokens: depth, depth, ..Account::default() }
        };
        Queue {
            scheduler: link.scheduler,
            shares,
            unit: background(system, index).map_or(0, |(unit, _)| unit.time),
            waiting: Default::default(),
            own: own(stages, index),
            turns: 0,
            bytes: 0,
            busy: false,
            accounts: Class::ALL.map(account),
        }
    };
    (0..2 * system.links.len()).map(queue).collect()
}

fn own(stages: &Stages, index: usize) -> Vec<Own> {
    let of = |(stage, one): (usize, &crate::analysis::stages::Stage)| match one.step {
        Step::Cross { queue, leaf: Some(leaf), .. } if queue == index => Some(Own::new(Some(stage), leaf)),
        _ => None,
    };
    let control = stages.egresses[index].control.map(|leaf| Own::new(None, leaf));
    stages.stages.iter().enumerate().filter_map(of).chain(control).collect()
}

impl Own {
    fn new(stage: Option<usize>, leaf: Leaf) -> Self {
        // Bytes at once as time at its own rate.
        let depth = i128::from(leaf.burst) * 8_000_000_000 / i128::from(leaf.rate.max(1));
        let account = Account { tokens: depth, depth, ..Account::default() };
        Self { stage, leaf, waiting: VecDeque::new(), account, served: 0 }
    }
}

impl Queue {
    pub(super) fn push(&mut self, now: u64, class: Class, parcel: PacketTrain) {
        if let Some(own) = self.own.iter_mut().find(|own| own.stage == Some(parcel.stage)) {
            return own.waiting.push_back(Sending::Declared(parcel));
        }
        self.bytes += parcel.bytes();
        self.enqueue(now, class, Sending::Declared(parcel));
    }

    /// The largest unit of control traffic arrives.
    pub(super) fn control(&mut self) {
        if let Some(own) = self.own.iter_mut().find(|own| own.stage.is_none()) {
            own.waiting.push_back(Sending::Background(own.leaf.unit));
        }
    }

    /// One unit of background traffic arrives.
    pub(super) fn background(&mut self, now: u64) {
        self.enqueue(now, Class::Normal, Sending::Background(self.unit));
    }

    fn enqueue(&mut self, now: u64, class: Class, what: Sending) {
        let class = if self.scheduler == Scheduler::Fifo { 0 } else { class as usize };
        if self.waiting[class].is_empty() {
            let least = (0..4).filter(|c| !self.waiting[*c].is_empty()).map(|c| self.accounts[c].virtual_time).min();
            let account = &mut self.accounts[class];
            account.clock = account.clock.max(now);
            account.virtual_time = account.virtual_time.max(least.unwrap_or(0));
        }
        self.waiting[class].push_back(what);
    }

    /// The link is free again.
    pub(super) fn free(&mut self) {
        self.busy = false;
    }

    /// The packets sent next, if the link is free and packets wait.
    pub(super) fn next(&mut self, now: u64) -> Option<Sending> {
        if self.busy {
            return None;
        }
        let class = match self.scheduler {
            Scheduler::Fifo | Scheduler::Strict => (0..4).rev().find(|class| !self.waiting[*class].is_empty())?,
            Scheduler::Htb => match self.by_bucket(now)? {
                Turned::Class(class) => class,
                Turned::Own(at) => {
                    self.busy = true;
                    return self.own[at].waiting.pop_front();
                }
            },
            Scheduler::Hfsc => self.by_curve(now)?,
        };
        self.busy = true;
        let first = self.waiting[class].pop_front();
        if let Some(Sending::Declared(parcel)) = first {
            self.bytes -= parcel.bytes();
        }
        first
    }

    /// The highest class that has tokens, else the highest, which borrows: as Linux does it with one priority for each class, below a
    /// class that is faster than the wire. What is borrowed costs no tokens (`htb_charge_class`).
    ///
    /// A channel's own queue goes just before its class's, in turn with others of that class, and never borrows.
    fn by_bucket(&mut self, now: u64) -> Option<Turned> {
        for account in self.accounts.iter_mut().chain(self.own.iter_mut().map(|own| &mut own.account)) {
            account.tokens = (account.tokens + i128::from(now - account.counted)).min(account.depth);
            account.counted = now;
        }
        let own = |class: usize| {
            let is_next = |own: &Own| own.leaf.class as usize == class && own.account.tokens >= 0;
            let ready = self.own.iter().enumerate().filter(|(_, own)| !own.waiting.is_empty() && is_next(own));
            ready.min_by_key(|(_, own)| own.served).map(|(at, _)| at)
        };
        let waits = |class: &usize| !self.waiting[*class].is_empty();
        let green = |class: &usize| self.shares[*class] > 0 && self.accounts[*class].tokens >= 0;
        let in_own_right = (0..4).rev().find_map(|class| {
            let own = own(class).map(Turned::Own);
            own.or_else(|| (waits(&class) && green(&class)).then_some(Turned::Class(class)))
        });
        let class = match in_own_right {
            None => return (0..4).rev().find(waits).map(Turned::Class),
            Some(Turned::Own(at)) => return Some(self.charge_own(at)),
            Some(Turned::Class(class)) => class,
        };
        let work = self.waiting[class].front().map_or(0, Sending::work);
        let cost = u128::from(work) * BILLION / u128::from(self.shares[class]);
        self.accounts[class].tokens -= i128::try_from(cost).unwrap_or(i128::MAX);
        Some(Turned::Class(class))
    }

    /// The time at which a queue of a channel's own is out of debt, if packets wait for nothing else.
    pub(super) fn wakes(&self, now: u64) -> Option<u64> {
        let debts = self.own.iter().filter(|own| !self.busy && !own.waiting.is_empty()).map(|own| -own.account.tokens);
        debts.min().and_then(|debt| now.checked_add(u64::try_from(debt).ok()?))
    }

    fn charge_own(&mut self, at: usize) -> Turned {
        self.turns += 1;
        let own = &mut self.own[at];
        let (work, packets) = own.waiting.front().map_or((0, 0), |front| (front.work(), front.packets()));
        // The kernel counts Thalweg's own headers, too.
        let headers = u128::from(packets) * u128::from(OWN_HEADERS) * 8 * BILLION / u128::from(own.leaf.rate.max(1));
        let cost = u128::from(work) * BILLION / u128::from(own.leaf.share.max(1)) + headers;
        own.account.tokens -= i128::try_from(cost).unwrap_or(i128::MAX);
        own.served = self.turns;
        Turned::Own(at)
    }

    /// The class with the earliest deadline among those behind their shares; else the one that got least by share.
    fn by_curve(&mut self, now: u64) -> Option<usize> {
        let waits: Vec<usize> = (0..4).filter(|class| !self.waiting[*class].is_empty()).collect();
        let due = |class: usize| {
            let work = self.waiting[class].front().map_or(0, Sending::work);
            let time = (u128::from(work) * BILLION)
                .checked_div(u128::from(self.shares[class]))
                .unwrap_or(u128::from(u64::MAX));
            self.accounts[class].clock.saturating_add(u64::try_from(time).unwrap_or(u64::MAX))
        };
        let behind =
            waits.iter().copied().filter(|class| self.accounts[*class].clock <= now && self.shares[*class] > 0);
        let first = behind.min_by_key(|class| due(*class));
        let class = first.or_else(|| waits.iter().copied().min_by_key(|class| self.accounts[*class].virtual_time))?;
        let work = self.waiting[class].front().map_or(0, Sending::work);
        if first.is_some() {
            self.accounts[class].clock = due(class);
        }
        let share = u128::from(self.shares[class].max(1));
        self.accounts[class].virtual_time += u128::from(work) * BILLION / share;
        Some(class)
    }
}

/// Order of ready threads: those with a reservation by their deadline, then the others by rank; equal ones in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    rank: Option<u32>,
    due: u64,
    order: u64,
}

/// Part of a thread's work for a sample: all of it, or what one period of a reservation has left for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    turn: Turn,
    /// It may run from then on.
    pub start: u64,
    execution: u64,
    /// The sample is done with at its end.
    ends: bool,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    stage: usize,
    sample: usize,
    left: u64,
    ends: bool,
}

/// One processor: threads with a reservation run first, the earliest deadline before others; then the highest rank. All that are ready may be
/// interrupted.
#[derive(Debug, Default)]
pub(super) struct Processor {
    ready: BTreeMap<Turn, Job>,
    /// The present deadline of each stage with a reservation, and the runtime that is left until then.
    budgets: BTreeMap<usize, (u64, u64)>,
    order: u64,
    /// The running thread, and the time since when it runs.
    running: Option<(Turn, u64)>,
    token: u64,
}

impl Processor {
    /// A part of a sample's work may run.
    pub(super) fn ready(&mut self, now: u64, part: &Part, (stage, sample): (usize, usize)) {
        self.stop(now);
        self.ready.insert(part.turn, Job { stage, sample, left: part.execution, ends: part.ends });
    }

    /// The work for a sample that comes to a thread now. With a reservation it has several parts if one runtime is not enough, or the samples
    /// before used it up; each begins with its period.
    pub(super) fn parts(
        &mut self,
        now: u64,
        rank: u32,
        reserved: Option<Reservation>,
        (stage, execution): (usize, u64),
    ) -> Vec<Part> {
        self.order += 1;
        let order = self.order;
        let Some(Reservation { runtime, deadline, period }) = reserved else {
            return vec![Part { turn: Turn { rank: Some(rank), due: 0, order }, start: now, execution, ends: true }];
        };
        let (mut due, mut left) = self.current(now, stage, runtime, deadline, period);
        let mut parts = Vec::new();
        let mut rest = execution;
        while parts.is_empty() || rest > 0 {
            if left == 0 {
                (due, left) = (due.saturating_add(period), runtime.max(1));
            }
            let execution = rest.min(left);
            (rest, left) = (rest - execution, left - execution);
            let turn = Turn { rank: None, due, order };
            parts.push(Part { turn, start: (due - deadline).max(now), execution, ends: rest == 0 });
        }
        self.budgets.insert(stage, (due, left));
        parts
    }

    /// The deadline and the rest of the runtime for a sample that comes now (constant bandwidth server: Abeni & Buttazzo 1998). What is left of
    /// the present runtime serves it, unless that would be more than the reserved part until the deadline: then it gets a fresh one.
    fn current(&self, now: u64, stage: usize, runtime: u64, deadline: u64, period: u64) -> (u64, u64) {
        let fresh = (now.saturating_add(deadline), runtime);
        let Some((due, left)) = self.budgets.get(&stage).copied() else { return fresh };
        let next = (due - deadline).saturating_add(period);
        let part = |time: u64, of: u64| u128::from(time) * u128::from(of);
        let too_much = deadline == period && part(left, period) > part(runtime, due.saturating_sub(now));
        if now >= next || too_much { fresh } else { (due, left) }
    }

    /// Runs the first thread. Returns the time of its end, if it is not interrupted.
    pub(super) fn run(&mut self, now: u64) -> Option<(u64, u64)> {
        let (turn, job) = self.ready.first_key_value()?;
        self.running = Some((*turn, now));
        self.token += 1;
        Some((now.saturating_add(job.left), self.token))
    }

    /// Ends the running part, if that `token` still holds: the sample that is done with, if it was its last part.
    pub(super) fn done(&mut self, now: u64, token: u64) -> Option<Option<(usize, usize)>> {
        if token != self.token {
            return None;
        }
        let (turn, _) = self.running?;
        self.stop(now);
        self.ready.remove(&turn).map(|job| job.ends.then_some((job.stage, job.sample)))
    }

    fn stop(&mut self, now: u64) {
        if let Some((turn, since)) = self.running.take()
            && let Some(job) = self.ready.get_mut(&turn)
        {
            job.left = job.left.saturating_sub(now - since);
        }
    }
}
