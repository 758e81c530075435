//! Outages in virtual time: a publisher whose link, or that of some of its subscribers, is cut for a while.

use super::{BUDGET, FLOW, MAX_MESSAGE, MS, MTU};
use crate::carrier::sim::{SimNetwork, SimSettings};
use crate::channel::accept::Accept;
use crate::channel::bucket::Limit;
use crate::channel::buffer::Pool;
use crate::channel::fragment::Reassembly;
use crate::channel::memory::Account;
use crate::channel::outgoing::Outgoing;
use crate::channel::queue::Entry;
use crate::channel::reliable::*;
use crate::wire::feedback::Acknowledgement;
use crate::wire::{ASK, HEADER, Header, Kind, REPAIR, datagram};
use std::collections::VecDeque;
use std::time::Duration;

mod matrix;
mod wrong;

/// A flow's sender, and the demands on it.
#[derive(Clone, Copy, Debug)]
struct Flow {
    hz: u64,
    members: usize,
    /// Members whose link is cut, from the first on.
    cut: usize,
    reliable: bool,
    deadline_ns: Option<u64>,
    window: usize,
    drops_oldest: bool,
}

impl Flow {
    fn period(&self) -> u64 {
        1_000_000_000 / self.hz
    }
}

/// One way through the network. A round trip takes 2 ms.
const DELAY_NS: u64 = MS;
/// After an outage samples come again within this time.
const BACK_NS: u64 = 100 * MS;

struct Subscriber {
    receiver: Receiver,
    reassembly: Reassembly,
    accept: Accept,
    due: Option<u64>,
    is_cut: bool,
    delivered: Vec<(u64, u64)>, // sample, when
}

/// A flow with its subscribers, driven as by the node: its timers are looked at when they are due.
struct Field {
    flow: Flow,
    network: SimNetwork,
    sender: Sender,
    subscribers: Vec<Subscriber>,
    waiting: VecDeque<Entry>,
    pool: Pool,
    sequence: u32,
    now: u64,
    look_at: Option<u64>,
    published: u64,
    refused: u64,
    retransmitting_ns: u64, // time of the publisher's thread for a retransmit
    flips: Option<usize>,   // this bit of each 50th frame
    frames: u64,
}

impl Field {
    fn new(flow: Flow) -> Self {
        let first = u32::MAX - 50; // the sequence wraps early
        let mut sender = Sender::new(SenderSettings {
            window: flow.window,
            bytes: usize::MAX,
            drops_oldest: flow.drops_oldest,
            useful_ns: flow.deadline_ns,
            hurries: flow.deadline_ns.is_some(),
            largest: MTU - HEADER,
            repairs: Limit { rate: 4_000_000, burst: 256 << 10 },
        });
        sender.starts_at(first);
        let settings = SimSettings { mtu: MTU, delay: Duration::from_nanos(DELAY_NS), ..SimSettings::default() };
        let subscriber = |id| {
            sender.join(id as u64);
            let budget = Account::new(BUDGET);
            let every = acknowledges_every(flow.window);
            let settings =
                ReceiverSettings { flow: FLOW, first, every, deadline_ns: flow.deadline_ns, budget: budget.clone() };
            Subscriber {
                receiver: Receiver::new(settings),
                reassembly: Reassembly::with_slots(IN_PROGRESS, MAX_MESSAGE, u64::MAX, budget),
                accept: Accept::new(Some(first), true),
                due: None,
                is_cut: false,
                delivered: Vec::new(),
            }
        };
        Self {
            flow,
            network: SimNetwork::new(1, settings),
            subscribers: (0..flow.members).map(subscriber).collect(),
            sender,
            waiting: VecDeque::new(),
            pool: Pool::default(),
            sequence: first,
            now: 0,
            look_at: None,
            published: 0,
            refused: 0,
            retransmitting_ns: 0,
            flips: None,
            frames: 0,
        }
    }

    fn cut(&mut self, cut: bool) {
        let count = self.flow.cut;
        self.subscribers[..count].iter_mut().for_each(|subscriber| subscriber.is_cut = cut);
    }

    /// Runs the simulation up to this moment; `publishes`: with regular samples.
    fn until(&mut self, end: u64, publishes: bool) {
        loop {
            let publish = publishes.then_some((self.published + 1) * self.flow.period());
            let due = [publish, self.network.next_deadline(), self.look_at];
            let due = due.into_iter().chain(self.subscribers.iter().map(|s| s.due)).flatten().min();
            let Some(at) = due.filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = at.max(self.now);
            if publish.is_some_and(|at| at <= self.now) {
                self.publish();
            }
            self.receive_feedback();
            self.repeat();
            (0..self.subscribers.len()).for_each(|index| self.receive(index));
        }
    }

    fn publish(&mut self) {
        self.published += 1;
        let full = self.flow.reliable && self.sender.is_full(self.now);
        if full && self.waiting.len() >= self.flow.window {
            self.refused += 1;
            return;
        }
        self.waiting.push_back(Outgoing::external(self.published, self.now, &[1; 64], &mut self.pool).keep());
        self.send_waiting();
    }

    fn send_waiting(&mut self) {
        while !(self.flow.reliable && self.sender.is_full(self.now)) {
            let Some(entry) = self.waiting.pop_front() else { return };
            let sequence = self.sequence;
            self.sequence = sequence.wrapping_add(1);
            self.send_message(&entry, sequence, self.sender.flags(), To::All);
            if self.flow.reliable {
                let due = self.sender.sent(self.now, sequence, entry);
                self.look_at = self.look_at.into_iter().chain(due).min();
            }
        }
    }

    fn send_message(&mut self, entry: &Entry, sequence: u32, flags: u16, to: To) {
        let payload = entry.buffer.payload();
        let (kind, length) = (Kind::Message, payload.len() as u32);
        let header = Header { length, kind, flags, flow: FLOW, sequence, sample: entry.seq, stamp_ns: entry.stamp };
        self.send(header, payload, to);
    }

    fn send(&mut self, header: Header, payload: &[u8], to: To) {
        let mut frame = vec![0; HEADER];
        header.emit(frame.first_chunk_mut().unwrap());
        frame.extend_from_slice(payload);
        self.frames += 1;
        if let Some(bit) = self.flips.filter(|_| self.frames.is_multiple_of(50)) {
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        for (index, subscriber) in self.subscribers.iter().enumerate() {
            if !subscriber.is_cut && (to == To::All || to == To::One(index)) {
                self.network.send(self.now, 2 * index as u32, &frame).unwrap();
            }
        }
    }

    fn receive_feedback(&mut self) {
        for index in 0..self.subscribers.len() {
            while let Some(bytes) = self.network.receive(self.now, 2 * index as u32 + 1) {
                let (header, payload) = datagram(&bytes, MAX_MESSAGE, Some(FLOW)).unwrap();
                let said = Acknowledgement::parse(payload).unwrap();
                // The driver counts a refused acknowledgement as malformed.
                let _ = self.sender.acknowledge(self.now, index as u64, self.sequence, &header, &said);
                self.look_at = Some(self.now);
            }
        }
    }

    fn repeat(&mut self) {
        if self.look_at.is_none_or(|at| at > self.now) {
            return;
        }
        self.send_waiting();
        while let Some(action) = self.sender.poll(self.now) {
            match action {
                Action::Retransmit { entry, sequence, flags, to, .. } => {
                    self.send_message(&entry, sequence, flags | REPAIR, to);
                    if self.retransmitting_ns > 0 {
                        self.look_at = Some(self.now + self.retransmitting_ns);
                        return;
                    }
                }
                Action::Shorten => unreachable!("all lengths come through"),
                Action::KeepAlive { next, oldest, trip_ns, to } => {
                    let (kind, sample) = (Kind::KeepAlive, oldest.into());
                    let (flow, sequence, stamp_ns) = (FLOW, next, trip_ns);
                    self.send(Header { length: 0, kind, flags: ASK, flow, sequence, sample, stamp_ns }, &[], to);
                }
            }
        }
        self.look_at = self.sender.next_deadline();
    }

    fn receive(&mut self, index: usize) {
        let (now, link) = (self.now, 2 * index as u32);
        let (subscriber, network) = (&mut self.subscribers[index], &mut self.network);
        let mut came = subscriber.due.is_some_and(|due| due <= now);
        while let Some(bytes) = network.receive(now, link) {
            came = true;
            let (header, payload) = datagram(&bytes, MAX_MESSAGE, Some(FLOW)).unwrap();
            match (self.flow.reliable, header.kind) {
                (true, Kind::KeepAlive) => subscriber.receiver.keep_alive(now, &header),
                (true, _) if subscriber.receiver.message(now, &header, payload) != Arrived::InOrder => {}
                _ => subscriber.deliver(now, &header),
            }
            subscriber.deliver_ready(now);
        }
        if !came {
            return;
        }
        subscriber.deliver_ready(now);
        if subscriber.receiver.has_news(now) {
            subscriber.accept.announced(subscriber.receiver.next());
        }
        let said = subscriber.receiver.acknowledgement(now, &subscriber.reassembly);
        if let Some(said) = said.filter(|_| !subscriber.is_cut) {
            network.send(now, link + 1, said).unwrap();
        }
        subscriber.due = subscriber.receiver.next_deadline();
    }
}

impl Subscriber {
    fn deliver(&mut self, now: u64, header: &Header) {
        if self.accept.frame(header.sequence).is_new() && self.accept.sample(header.sample) {
            self.delivered.push((header.sample, now));
        }
    }

    fn deliver_ready(&mut self, now: u64) {
        while let Some(held) = self.receiver.ready(now) {
            self.deliver(now, &held.header);
            self.receiver.recycle(held);
        }
    }

    /// The time of the first sample after this moment.
    fn back_at(&self, up: u64) -> Option<u64> {
        self.delivered.iter().map(|(_, at)| *at).find(|at| *at > up)
    }
}

/// A kilohertz, cut for twice as many messages as a subscriber can hold.
fn two_windows(flow: Flow) -> Field {
    let mut field = Field::new(flow);
    field.until(500 * MS, true);
    field.cut(true);
    let up = 500 * MS + 2 * WINDOW as u64 * flow.period();
    field.until(up, true);
    field.cut(false);
    field.until(up + 2_000 * MS, true);
    field.until(up + 3_000 * MS, false);
    for subscriber in &field.subscribers[..flow.cut] {
        let back = subscriber.back_at(up).unwrap_or_else(|| panic!("it never comes back: {flow:?}"));
        assert!(back - up <= BACK_NS, "back after {} ms: {flow:?}", (back - up) / MS);
        let (skipped, next) = (subscriber.receiver.counters().skipped, subscriber.receiver.next());
        assert_eq!(subscriber.delivered.len() as u64 + skipped, field.published - field.refused, "{flow:?}");
        assert_eq!((subscriber.accept.counters().lost, next), (skipped, field.sequence), "{flow:?}");
    }
    for subscriber in &field.subscribers[flow.cut..] {
        assert_eq!(
            subscriber.delivered.len() as u64,
            field.published - field.refused,
            "one that was not cut: {flow:?}"
        );
    }
    assert_eq!(field.sender.unacknowledged(), 0, "{flow:?}");
    field
}

const KILOHERTZ: Flow =
    Flow { hz: 1000, members: 1, cut: 1, reliable: true, deadline_ns: None, window: 16, drops_oldest: true };

#[test]
fn a_flow_comes_back_after_an_outage_of_more_messages_than_can_be_held() {
    let field = two_windows(KILOHERTZ);
    let kept = field.subscribers[0].delivered.iter().find(|(sample, _)| *sample > 500).unwrap().0;
    assert!(kept <= 500 + 2 * WINDOW as u64 + 10, "the last 16 are repeated: {kept}");
    two_windows(Flow { deadline_ns: Some(50 * MS), ..KILOHERTZ });
    let all = two_windows(Flow { window: WINDOW, drops_oldest: false, ..KILOHERTZ });
    assert_eq!(all.subscribers[0].receiver.counters().skipped, 0, "what was taken is not lost");
}

#[test]
fn members_of_a_group_come_back_after_such_an_outage_and_the_others_miss_nothing() {
    two_windows(Flow { members: 3, ..KILOHERTZ });
    two_windows(Flow { members: 3, cut: 3, ..KILOHERTZ });
    two_windows(Flow { members: 3, window: 256, drops_oldest: false, ..KILOHERTZ });
    two_windows(Flow { members: 3, cut: 2, deadline_ns: Some(50 * MS), ..KILOHERTZ });
}

/// Publishing does not postpone the keep-alive. A member that receives nothing else of the group needs it.
#[test]
fn somebody_silent_is_asked_though_the_publisher_is_never_idle() {
    let mut field = Field::new(KILOHERTZ);
    field.until(500 * MS, true);
    field.cut(true);
    let mut asked = 0;
    while field.now < 2500 * MS {
        field.until(field.now + MS, true);
        asked += u64::from(field.sender.next_deadline().is_some_and(|at| at <= field.now + MS));
    }
    assert!((40..=200).contains(&asked), "{asked} times in 2 s");
}

/// The oldest messages are given up while others are retransmitted. A member that waits for the given-up ones learns of it before
/// the next retransmit, and not behind a thousand of them.
#[test]
fn given_up_samples_are_reported_before_the_rest_is_retransmitted() {
    let mut field = Field::new(Flow { window: 1000, ..KILOHERTZ });
    let settings = SimSettings { mtu: MTU, delay: Duration::from_nanos(10 * MS), ..SimSettings::default() };
    (field.network, field.retransmitting_ns) = (SimNetwork::new(1, settings), MS / 10);
    field.until(500 * MS, true);
    field.cut(true);
    field.until(2000 * MS, true);
    field.cut(false);
    field.until(5000 * MS, true);
    field.until(6000 * MS, false);
    let subscriber = &field.subscribers[0];
    let back = subscriber.back_at(2000 * MS).unwrap() - 2000 * MS;
    assert!(back <= BACK_NS, "back after {} ms", back / MS);
    assert_eq!(subscriber.delivered.len() as u64 + subscriber.receiver.counters().skipped, field.published);
}
