//! The resources of a run: a link's queue with its order of service, and a processor with threads by rank.

use crate::Class;
use crate::analysis::BILLION;
use crate::analysis::link::{lag, quanta};
use crate::analysis::stages::{Egress, Stages, Step};
use crate::system::Scheduler;
use std::collections::{BTreeMap, VecDeque};

/// Packets of one sample that are sent without anything in between.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketTrain {
    pub stage: usize,
    pub bytes: u64,
    pub sample: usize,
    pub packets: u64,
    /// Time on the wire of each, ns; of the sample's last one `last`.
    pub packet: u64,
    pub last: u64,
    /// The sample's last packet is among them.
    pub ends: bool,
}

/// A parcel, or background traffic that takes this many ns.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sending {
    Declared(PacketTrain),
    Background(u64),
}

impl Sending {
    pub(super) fn work(&self) -> u64 {
        match self {
            Sending::Background(work) => *work,
            Sending::Declared(parcel) if parcel.ends => parcel.packet * (parcel.packets - 1) + parcel.last,
            Sending::Declared(parcel) => parcel.packet * parcel.packets,
        }
    }
}

/// Shares' state of one class.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// `htb`: tokens, in billionths of a ns of work, and when they were counted.
    tokens: i128,
    counted: u64,
    deficit: u64,
    /// `hfsc`: time at which its share has served everything given by share; and the total given by share.
    clock: u64,
    virtual_time: u128,
}

/// A queue.
#[derive(Debug)]
pub(super) struct Queue {
    egress: Egress,
    waiting: [VecDeque<Sending>; 4],
    /// Bytes of samples that wait.
    pub bytes: u64,
    busy: bool,
    unit: u64,
    accounts: [Account; 4],
    /// `htb`: whose turn it is.
    turn: usize,
}

/// The queues of all egresses, empty.
pub(super) fn queues(stages: &Stages) -> Vec<Queue> {
    let mut units: Vec<u64> =
        stages.egresses.iter().map(|o| o.background.map_or(0, |background| background.work)).collect();
    for stage in &stages.stages {
        if let Step::Cross { queue, packets, .. } = stage.step {
            units[queue] = units[queue].max(packets.unit);
        }
    }
    let queue = |(egress, unit): (&Egress, u64)| Queue {
        egress: egress.clone(),
        waiting: Default::default(),
        bytes: 0,
        busy: false,
        unit,
        accounts: Class::ALL.map(|class| Account { tokens: depth(egress, class, unit), ..Account::default() }),
        turn: 0,
    };
    stages.egresses.iter().zip(units).map(queue).collect()
}

/// Depth of a class's bucket: it does not overflow while the class waits for its turn.
fn depth(egress: &Egress, class: Class, unit: u64) -> i128 {
    i128::from(lag(&egress.shares, class, unit).saturating_add(unit)) * BILLION as i128
}

impl Queue {
    pub(super) fn push(&mut self, now: u64, class: Class, parcel: PacketTrain) {
        self.bytes += parcel.bytes;
        self.enqueue(now, class, Sending::Declared(parcel));
    }

    /// One unit of background traffic arrives.
    pub(super) fn background(&mut self, now: u64) {
        if let Some(background) = self.egress.background {
            self.enqueue(now, Class::Normal, Sending::Background(background.work));
        }
    }

    fn enqueue(&mut self, now: u64, class: Class, what: Sending) {
        let class = if self.egress.scheduler == Scheduler::Fifo { 0 } else { class as usize };
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
        let class = match self.egress.scheduler {
            Scheduler::Fifo | Scheduler::Strict => (0..4).rev().find(|class| !self.waiting[*class].is_empty())?,
            Scheduler::Htb => self.by_bucket(now)?,
            Scheduler::Hfsc => self.by_curve(now)?,
        };
        self.busy = true;
        let first = self.waiting[class].pop_front();
        if self.waiting[class].is_empty() {
            self.accounts[class].deficit = 0;
        }
        if let Some(Sending::Declared(parcel)) = first {
            self.bytes -= parcel.bytes;
        }
        first
    }

    /// Deficit round robin among the classes with tokens, else among all, for the spare rate.
    fn by_bucket(&mut self, now: u64) -> Option<usize> {
        for class in Class::ALL {
            let (share, depth) = (self.egress.shares[class as usize], depth(&self.egress, class, self.unit));
            let account = &mut self.accounts[class as usize];
            account.tokens = (account.tokens + i128::from(now - account.counted) * i128::from(share)).min(depth);
            account.counted = now;
        }
        let waits = |class: usize| !self.waiting[class].is_empty();
        let green = (0..4).any(|class| waits(class) && self.accounts[class].tokens > 0);
        let quanta = quanta(&self.egress.shares, self.unit);
        let takes_part: Vec<bool> = (0..4).map(|c| waits(c) && (!green || self.accounts[c].tokens > 0)).collect();
        takes_part.iter().any(|yes| *yes).then_some(())?;
        loop {
            let class = self.turn;
            let work = self.waiting[class].front().map_or(0, Sending::work);
            if takes_part[class] && self.accounts[class].deficit >= work {
                self.accounts[class].deficit -= work;
                if green {
                    self.accounts[class].tokens -= i128::from(work) * BILLION as i128;
                }
                return Some(class);
            }
            self.turn = (self.turn + 1) % 4;
            if takes_part[self.turn] {
                let quantum = quanta[self.turn].max(1);
                self.accounts[self.turn].deficit = self.accounts[self.turn].deficit.saturating_add(quantum);
            }
        }
    }

    /// The class with the earliest deadline among those behind their shares; else the one that got least by share.
    fn by_curve(&mut self, now: u64) -> Option<usize> {
        let waits: Vec<usize> = (0..4).filter(|class| !self.waiting[*class].is_empty()).collect();
        let due = |class: usize| {
            let work = self.waiting[class].front().map_or(0, Sending::work);
            let time = (u128::from(work) * BILLION)
                .checked_div(u128::from(self.egress.shares[class]))
                .unwrap_or(u128::from(u64::MAX));
            self.accounts[class].clock.saturating_add(u64::try_from(time).unwrap_or(u64::MAX))
        };
        let behind =
            waits.iter().copied().filter(|class| self.accounts[*class].clock <= now && self.egress.shares[*class] > 0);
        let first = behind.min_by_key(|class| due(*class));
        let class = first.or_else(|| waits.iter().copied().min_by_key(|class| self.accounts[*class].virtual_time))?;
        let work = self.waiting[class].front().map_or(0, Sending::work);
        if first.is_some() {
            self.accounts[class].clock = due(class);
        }
        let share = u128::from(self.egress.shares[class].max(1));
        self.accounts[class].virtual_time += u128::from(work) * BILLION / share;
        Some(class)
    }
}

/// Order of ready threads: rank, then order of arrival.
type Turn = (u32, u64);

#[derive(Clone, Copy, Debug)]
struct Job {
    stage: usize,
    sample: usize,
    left: u64,
}

/// One processor: the highest rank runs, pre-emptively; threads of a rank run in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Processor {
    ready: BTreeMap<Turn, Job>,
    order: u64,
    /// The running thread, and the time since when it runs.
    running: Option<(Turn, u64)>,
    token: u64,
}

impl Processor {
    /// A sample is at a thread.
    pub(super) fn ready(&mut self, now: u64, rank: u32, stage: usize, sample: usize, execution: u64) {
        self.stop(now);
        self.order += 1;
        self.ready.insert((rank, self.order), Job { stage, sample, left: execution });
    }

    /// Runs the first thread. Returns the time of its end, if it is not interrupted.
    pub(super) fn run(&mut self, now: u64) -> Option<(u64, u64)> {
        let (turn, job) = self.ready.first_key_value()?;
        self.running = Some((*turn, now));
        self.token += 1;
        Some((now.saturating_add(job.left), self.token))
    }

    /// The finished work, if that `token` still holds.
    pub(super) fn done(&mut self, now: u64, token: u64) -> Option<(usize, usize)> {
        if token != self.token {
            return None;
        }
        let (turn, _) = self.running?;
        self.stop(now);
        self.ready.remove(&turn).map(|job| (job.stage, job.sample))
    }

    fn stop(&mut self, now: u64) {
        if let Some((turn, since)) = self.running.take()
            && let Some(job) = self.ready.get_mut(&turn)
        {
            job.left = job.left.saturating_sub(now - since);
        }
    }
}
