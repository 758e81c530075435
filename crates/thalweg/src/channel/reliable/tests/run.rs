//! Both ends of a flow with a network between them, in virtual time.

use crate::carrier::sim::{SimNetwork, SimSettings};
use crate::channel::bucket::Limit;
use crate::channel::buffer::Pool;
use crate::channel::congestion::{CongestionSettings, Wait};
use crate::channel::fragment::{Reassembly, piece};
use crate::channel::memory::Account;
use crate::channel::outgoing::Outgoing;
use crate::channel::queue::Entry;
use crate::channel::reliable::*;
use crate::wire::feedback::{Acknowledgement, Datagram};
use crate::wire::{FRAGMENT_HEADER, Fragment, HEADER, Header, Kind, datagram};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub(super) const FLOW: u32 = 7;
pub(super) const MTU: usize = 1472;
pub(super) const MOST: usize = MTU - HEADER - FRAGMENT_HEADER;
pub(super) const MS: u64 = 1_000_000;
pub(super) const MAX_MESSAGE: usize = 1 << 20;
pub(super) const BUDGET: usize = 16 << 20;
const DATA: u32 = 0;
const BACK: u32 = 1;

#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) count: u64,
    pub(super) size: usize,
    pub(super) period_ns: u64,
    pub(super) window: usize,
    pub(super) drops_oldest: bool,
    pub(super) deadline_ns: Option<u64>,
    pub(super) lifespan_ns: Option<u64>,
    pub(super) controlled: bool,
}

impl Default for Plan {
    fn default() -> Self {
        let (window, drops_oldest, deadline_ns, lifespan_ns) = (64, false, None, None);
        let controlled = false;
        Self { count: 300, size: 64, period_ns: 10 * MS, window, drops_oldest, deadline_ns, lifespan_ns, controlled }
    }
}

/// One flow with its network.
pub(super) struct Run {
    pub(super) plan: Plan,
    pub(super) network: SimNetwork,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) reassembly: Reassembly,
    pub(super) budget: Arc<Account>,
    pub(super) waiting: VecDeque<Entry>,
    pub(super) pool: Pool,
    pub(super) sequence: u32,
    pub(super) leaving: Option<(Entry, u32, usize)>, // a message, its number, and its bytes that left
    pub(super) paused_until: Option<u64>,
    pub(super) delivered: Vec<(u64, u64, u64)>, // sample, when, when published
    pub(super) most: usize,                     // bytes of a datagram
    pub(super) hole: usize,                     // longer ones vanish
    pub(super) frames: u64,
}

impl Run {
    pub(super) fn new(plan: Plan, seed: u64, network: SimSettings) -> Self {
        let first = u32::MAX - 50; // the sequence wraps early
        let budget = Account::new(BUDGET);
        let mut sender = Sender::new(SenderSettings {
            window: plan.window,
            bytes: usize::MAX,
            drops_oldest: plan.drops_oldest,
            useful_ns: plan.deadline_ns.into_iter().chain(plan.lifespan_ns).min(),
            hurries: plan.deadline_ns.is_some(),
            largest: MOST,
            repairs: Limit { rate: 10_000_000, burst: 100_000 },
        });
        sender.starts_at(first);
        sender.join(1);
        if plan.controlled {
            let congestion = CongestionSettings { datagram: MTU, buffer: 4 << 20, reserved: None };
            sender.control(congestion, BUDGET as u64 / 2);
        }
        let settings = ReceiverSettings {
            flow: FLOW,
            first,
            every: acknowledges_every(plan.window),
            deadline_ns: plan.deadline_ns,
            budget: budget.clone(),
        };
        let mut receiver = Receiver::new(settings);
        if plan.controlled {
            receiver.tells(2 * MTU as u32);
        }
        Self {
            plan,
            network: SimNetwork::new(seed, SimSettings { mtu: MTU, ..network }),
            sender,
            receiver,
            reassembly: Reassembly::with_slots(IN_PROGRESS, MAX_MESSAGE, u64::MAX, budget.clone()),
            budget,
            waiting: VecDeque::new(),
            pool: Pool::default(),
            sequence: first,
            leaving: None,
            paused_until: None,
            delivered: Vec::new(),
            most: MTU,
            hole: MTU,
            frames: 0,
        }
    }

    /// Publishes, receives and retransmits until all is done, always at the next deadline.
    pub(super) fn all(&mut self) -> &mut Self {
        self.resume_at(0)
    }

    /// As [`Run::all`], after `published` messages.
    pub(super) fn resume_at(&mut self, published: u64) -> &mut Self {
        self.resume_until(published, u64::MAX)
    }

    /// As [`Run::resume_at`], up to this moment.
    pub(super) fn resume_until(&mut self, mut published: u64, end: u64) -> &mut Self {
        let mut now = published * self.plan.period_ns;
        for _ in 0..400_000 {
            let publish = (published < self.plan.count).then_some((published + 1) * self.plan.period_ns);
            let ends = [self.sender.next_deadline(), self.receiver.next_deadline()];
            let due = [publish, self.network.next_deadline(), self.paused_until].into_iter().chain(ends);
            let Some(at) = due.flatten().min().filter(|at| *at <= end) else { return self };
            now = at.max(now);
            self.paused_until = self.paused_until.filter(|at| *at > now);
            if publish == Some(now) {
                published += 1;
                let entry = self.message(now, published);
                self.waiting.push_back(entry);
            }
            while let Some(bytes) = self.network.receive(now, BACK) {
                self.acknowledged(now, &bytes);
            }
            self.send_waiting(now);
            while let Some(action) = self.sender.poll(now) {
                self.act(now, action);
            }
            while let Some(bytes) = self.network.receive(now, DATA) {
                self.receive(now, &bytes);
            }
            self.deliver_ready(now);
            self.answer(now);
        }
        panic!(
            "it never ends: {:?}, {:?}, {} here: {:?}",
            self.sender.counters(),
            self.receiver.counters(),
            self.delivered.len(),
            self.plan
        );
    }

    pub(super) fn message(&mut self, now: u64, sample: u64) -> Entry {
        let bytes = content(sample, self.plan.size);
        Outgoing::external(sample, now, &bytes, &mut self.pool).keep()
    }

    pub(super) fn send_waiting(&mut self, now: u64) {
        loop {
            if self.leaving.is_none() {
                if let Err(wait) = self.sender.usual_room(now) {
                    self.paused_until = (!self.waiting.is_empty()).then_some(until(now, wait));
                }
                if self.sender.is_full(now) {
                    return;
                }
                let Some(entry) = self.waiting.pop_front() else { return };
                self.leaving = Some((entry, self.sequence, 0));
                self.sequence = self.sequence.wrapping_add(1);
            }
            if !self.send_parts(now) {
                return;
            }
        }
    }

    /// `true` if the message has left.
    fn send_parts(&mut self, now: u64) -> bool {
        let Some((entry, sequence, mut at)) = self.leaving.take() else { return true };
        let length = entry.buffer.payload().len();
        loop {
            let most = piece(self.most);
            let end = length.min(at + most);
            if length > most {
                let bytes = HEADER + FRAGMENT_HEADER + end - at;
                if let Err(wait) = self.sender.room(now, bytes) {
                    self.paused_until = Some(until(now, wait));
                    self.leaving = Some((entry, sequence, at));
                    return false;
                }
                let mark = Kind::Fragment as u32;
                self.sender.leaves(now, Datagram { sequence, offset: at as u32, mark }, bytes);
            }
            self.send(now, &entry, sequence, at..end, self.sender.flags());
            at = end;
            if at >= length {
                break;
            }
        }
        self.sender.sent(now, sequence, entry);
        true
    }

    fn send(&mut self, now: u64, entry: &Entry, sequence: u32, bytes: Range<usize>, flags: u16) {
        let payload = entry.buffer.payload();
        let whole = bytes.len() == payload.len();
        let (kind, extra) = if whole { (Kind::Message, 0) } else { (Kind::Fragment, FRAGMENT_HEADER) };
        let length = (bytes.len() + extra) as u32;
        let header = Header { length, kind, flags, flow: FLOW, sequence, sample: entry.seq, stamp_ns: entry.stamp };
        let mut frame = vec![0; HEADER + extra];
        header.emit(frame.first_chunk_mut().unwrap());
        if !whole {
            let at = Fragment { offset: bytes.start as u32, total: payload.len() as u32 };
            at.emit(frame[HEADER..].first_chunk_mut().unwrap());
        }
        frame.extend_from_slice(&payload[bytes]);
        self.frames += 1;
        if frame.len() <= self.hole {
            self.network.send(now, DATA, &frame).unwrap();
        }
    }

    fn act(&mut self, now: u64, action: Action) {
        match action {
            Action::Retransmit { entry, sequence, bytes, flags, .. } => {
                self.send(now, &entry, sequence, bytes, flags | crate::wire::REPAIR);
            }
            Action::Shorten => {
                let most = EXPECTED.into_iter().find(|most| *most < self.most).unwrap();
                self.most = most;
                self.sender.shrink(most);
            }
            Action::KeepAlive { next, oldest, trip_ns, .. } => {
                let header = Header {
                    length: 0,
                    kind: Kind::KeepAlive,
                    flags: crate::wire::ASK,
                    flow: FLOW,
                    sequence: next,
                    sample: u64::from(oldest),
                    stamp_ns: trip_ns,
                };
                let mut frame = [0; HEADER];
                header.emit(&mut frame);
                if frame.len() <= self.hole {
                    self.network.send(now, DATA, &frame).unwrap();
                }
            }
        }
    }

    fn receive(&mut self, now: u64, bytes: &[u8]) {
        let (header, payload) = datagram(bytes, MAX_MESSAGE, Some(FLOW)).unwrap();
        self.receiver.arrived(now, &header, payload);
        match header.kind {
            Kind::Message => self.arrived(now, header, payload),
            Kind::Fragment => {
                let over = self.receiver.settled();
                if !self.receiver.wants(now, &header) {
                    return;
                }
                if !self.reassembly.has_room_for(header.sample, over) {
                    return self.receiver.crowded(&header);
                }
                let (at, piece) = Fragment::parse(payload).unwrap();
                match self.reassembly.insert(now, header.sample, at, piece) {
                    Ok(Some(message)) => {
                        let message = message.to_vec();
                        self.arrived(now, header, &message);
                    }
                    _ => self.receiver.part(now, &header, &self.reassembly),
                }
            }
            _ => self.receiver.keep_alive(now, &header),
        }
    }

    fn arrived(&mut self, now: u64, header: Header, message: &[u8]) {
        if self.receiver.message(now, &header, message) == Arrived::InOrder {
            self.deliver(now, header, message);
        }
        self.deliver_ready(now);
    }

    fn deliver_ready(&mut self, now: u64) {
        while let Some(held) = self.receiver.ready(now) {
            self.deliver(now, held.header, &held.bytes);
            self.receiver.recycle(held);
        }
    }

    fn deliver(&mut self, now: u64, header: Header, message: &[u8]) {
        assert!(message == content(header.sample, self.plan.size), "sample {} came changed", header.sample);
        self.delivered.push((header.sample, now, header.stamp_ns));
    }

    fn answer(&mut self, now: u64) {
        if let Some(bytes) = self.receiver.acknowledgement(now, &self.reassembly) {
            self.network.send(now, BACK, bytes).unwrap();
        }
    }

    fn acknowledged(&mut self, now: u64, bytes: &[u8]) {
        let (header, payload) = datagram(bytes, MAX_MESSAGE, Some(FLOW)).unwrap();
        let said = match self.plan.controlled {
            true => Acknowledgement::parse_with_receipt(payload).unwrap(),
            false => Acknowledgement::parse(payload).unwrap(),
        };
        self.sender.acknowledge(now, 1, self.sequence, &header, &said).unwrap();
    }

    /// Asserts that both ends count each message as delivered or given up.
    pub(super) fn assert_all_are_accounted_for(&self, published: u64) {
        let (sender, receiver) = (self.sender.counters(), self.receiver.counters());
        let what = format!("{:?}: {sender:?} {receiver:?}", self.plan);
        assert_eq!(self.delivered.len() as u64 + receiver.skipped, published, "{what}");
        assert_eq!((sender.skipped, self.sender.unacknowledged()), (receiver.skipped, 0), "{what}");
    }

    pub(super) fn samples(&self) -> Vec<u64> {
        self.delivered.iter().map(|d| d.0).collect()
    }

    /// The longest time between two deliveries.
    pub(super) fn silence(&self) -> u64 {
        self.delivered.windows(2).map(|pair| pair[1].1 - pair[0].1).max().unwrap_or(0)
    }
}

/// The time at which a flow checks whether it may send: even without a receipt, since the question may be lost.
fn until(now: u64, wait: Wait) -> u64 {
    match wait {
        Wait::Until(at) => at,
        Wait::Receipt => now + 5 * MS,
    }
}

fn content(sample: u64, size: usize) -> Vec<u8> {
    (0..size).map(|i| (i as u64 * 31 + sample * 7) as u8).collect()
}

pub(super) fn network(loss: u32, delay_ms: u64) -> SimSettings {
    let (delay, jitter) = (Duration::from_millis(delay_ms), Duration::from_millis(delay_ms / 10));
    let rough = if loss == 0 { 0.0 } else { 0.02 };
    SimSettings {
        loss: f64::from(loss) / 100.0,
        delay,
        jitter,
        reorder: rough,
        duplicate: rough,
        rate_bytes_per_s: Some(12_500_000),
        ..Default::default()
    }
}
