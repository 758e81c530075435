//! Both ends of a reliable flow over datagrams, with any messages from the other end.

use super::{FLOW, MAX_MESSAGE};
use crate::channel::accept::Accept;
use crate::channel::bucket::Limit;
use crate::channel::buffer::Pool;
use crate::channel::congestion::CongestionSettings;
use crate::channel::fragment::Reassembly;
use crate::channel::memory::Account;
use crate::channel::outgoing::Outgoing;
use crate::channel::reliable::{
    Action, Arrived, EXPECTED, IN_PROGRESS, Receiver, ReceiverSettings, Sender, SenderSettings, WINDOW,
    acknowledges_every,
};
use crate::wire::feedback::{Acknowledgement, Datagram, Gap, Receipt, Writer};
use crate::wire::{Fragment, Header, Kind, datagram};
use std::sync::Arc;

const BUDGET: usize = 1 << 20;
/// The longest run of operations.
const MOST: usize = 400;

/// Frames and acknowledgements with numbers and stamps at their extremes, in any order, to both ends of a flow with
/// or without a deadline, and with or without congestion control. There is no panic; held messages are bounded and
/// released; nothing is delivered twice.
pub fn reliable(bytes: &[u8]) {
    let Some((&setting, operations)) = bytes.split_first() else { return };
    let budget = Account::new(BUDGET);
    {
        let mut ends = Ends::new(setting, &budget);
        for operation in operations.chunks(4).take(MOST) {
            ends.operate(operation);
        }
    }
    assert_eq!(budget.used(), 0, "what was held is given back");
}

struct Ends {
    now: u64,
    sequence: u32,
    /// The subscriber sends receipts.
    controlled: bool,
    sender: Sender,
    receiver: Receiver,
    reassembly: Reassembly,
    accept: Accept,
    pool: Pool,
}

impl Ends {
    fn new(setting: u8, budget: &Arc<Account>) -> Self {
        let (first, window) = (u32::MAX - 2, 1 << (setting >> 4).min(10));
        let deadline_ns = (setting & 1 != 0).then_some(50_000_000);
        let mut sender = Sender::new(SenderSettings {
            window,
            bytes: usize::MAX,
            drops_oldest: setting & 2 != 0,
            useful_ns: deadline_ns,
            hurries: deadline_ns.is_some(),
            largest: 256,
            repairs: Limit { rate: 4_000_000, burst: 256 << 10 },
        });
        sender.starts_at(first);
        (0..1 + u64::from(setting & 4 != 0)).for_each(|id| {
            sender.join(id);
        });
        let controlled = setting & 8 != 0;
        if controlled {
            let reserved = (setting & 16 != 0).then_some(1_000_000);
            sender.control(CongestionSettings { datagram: 256, buffer: 1 << 16, reserved }, 1 << 16);
        }
        let settings = ReceiverSettings {
            flow: FLOW,
            first,
            every: acknowledges_every(window),
            deadline_ns,
            budget: budget.clone(),
        };
        let mut receiver = Receiver::new(settings);
        if controlled {
            receiver.tells(1000);
        }
        Self {
            now: 1_000_000_000,
            sequence: first,
            controlled,
            sender,
            receiver,
            reassembly: Reassembly::with_slots(IN_PROGRESS, MAX_MESSAGE, 10_000_000_000, budget.clone()),
            accept: Accept::new(Some(first), true),
            pool: Pool::default(),
        }
    }

    fn operate(&mut self, operation: &[u8]) {
        let at = |index: usize| operation.get(index).copied().unwrap_or(0);
        let (kind, a, b, c) = (at(0), at(1), at(2), at(3));
        match kind & 7 {
            0 => self.now += u64::from(a) << (b % 24),
            1 => self.publish(usize::from(a) * 4),
            2 => self.acknowledge(kind >> 3, a, b, c),
            3 => self.keep_alive(a, b, c),
            4 => self.fragment(a, b, c),
            7 if self.controlled => self.receipt(kind >> 3, a, b, c),
            _ => self.message(kind, a, b, c),
        }
        self.look();
    }

    /// A number near the one that is due, or an extreme one.
    fn number(due: u32, choice: u8) -> u32 {
        match choice >> 6 {
            0 => due.wrapping_add(u32::from(choice & 63)),
            1 => due.wrapping_sub(u32::from(choice & 63)),
            2 => due.wrapping_add(1 << (choice & 31)),
            _ => due.wrapping_sub(1 << (choice & 31)),
        }
    }

    fn stamp(&self, choice: u8) -> u64 {
        let shift = u32::from(choice & 63);
        match choice >> 6 {
            0 => self.now.wrapping_sub(1 << shift),
            1 => self.now.wrapping_add(1 << shift),
            2 => u64::MAX >> shift,
            _ => 1 << shift,
        }
    }

    fn header(&self, kind: Kind, length: usize, a: u8, b: u8, c: u8) -> Header {
        let sequence = Self::number(self.receiver.next(), a);
        let near = u64::from(sequence.wrapping_sub(u32::MAX - 2)) + 1;
        let sample = if b & 1 == 0 { near } else { u64::MAX >> (b >> 2) };
        let flags = u16::from(b & 2 != 0) * crate::wire::ASK;
        Header { length: length as u32, kind, flags, flow: FLOW, sequence, sample, stamp_ns: self.stamp(c) }
    }

    fn message(&mut self, kind: u8, a: u8, b: u8, c: u8) {
        let header = self.header(Kind::Message, 8, a, b, c);
        let header = Header { flags: header.flags | (u16::from(kind & 8 != 0) * crate::wire::REPAIR), ..header };
        self.receiver.arrived(self.now, &header, &[7; 8]);
        if self.receiver.message(self.now, &header, &[7; 8]) == Arrived::InOrder {
            self.deliver(&header);
        }
    }

    fn fragment(&mut self, a: u8, b: u8, c: u8) {
        let header = self.header(Kind::Fragment, 256, a, b, 0);
        if !self.receiver.wants(self.now, &header) {
            return;
        }
        if !self.reassembly.has_room_for(header.sample, self.receiver.settled()) {
            return self.receiver.crowded(&header);
        }
        let at = Fragment { offset: u32::from(c & 3) * 256, total: 1024 };
        match self.reassembly.insert(self.now, header.sample, at, &[7; 256]) {
            Ok(Some(whole)) => {
                if self.receiver.message(self.now, &header, whole) == Arrived::InOrder {
                    self.deliver(&header);
                }
            }
            _ => self.receiver.part(self.now, &header, &self.reassembly),
        }
    }

    fn keep_alive(&mut self, a: u8, b: u8, c: u8) {
        let header = self.header(Kind::KeepAlive, 0, a, b | 2, c);
        let oldest = Self::number(self.receiver.next(), b);
        self.receiver.keep_alive(self.now, &Header { sample: oldest.into(), ..header });
    }

    fn publish(&mut self, size: usize) {
        let bytes = crate::wire::HEADER + size;
        if self.sender.is_full(self.now) || self.sender.room(self.now, bytes).is_err() {
            return;
        }
        let entry = Outgoing::external(1, self.now, &vec![1; size], &mut self.pool).keep();
        self.sender.sent(self.now, self.sequence, entry);
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// A possible acknowledgement of a subscriber.
    fn acknowledge(&mut self, member: u8, a: u8, b: u8, c: u8) {
        let mut writer = Writer::default();
        writer.push(Gap::messages(Self::number(self.sequence, b), u32::from(c) + 1));
        writer.push(Gap { first: Self::number(self.sequence, c), count: 1, from: b.into(), to: u32::from(b) + 100 });
        let (sequence, stamp_ns) = (Self::number(self.sequence, a | 64), self.stamp(c));
        let (kind, sample) = (Kind::Acknowledgement, (u64::from(b) << 56) | u64::from(sequence));
        let header = Header { length: 0, kind, flags: u16::from(b & 4), flow: FLOW, sequence, sample, stamp_ns };
        let said = writer.finish(header, Self::number(self.sequence, c), u32::from(a));
        self.receive_feedback(u64::from(member & 1), said);
    }

    /// A possible receipt of a subscriber.
    fn receipt(&mut self, choice: u8, a: u8, b: u8, c: u8) {
        let (sequence, mark) = (Self::number(self.sequence, c), Kind::Message as u32 | (u32::from(choice & 1) << 8));
        let newest = Datagram { sequence, offset: u32::from(b) << (b & 24), mark };
        let received = if choice & 2 == 0 { u64::from(a) * 32 } else { u64::MAX >> (a & 63) };
        let window = if choice & 4 == 0 { 1 << 16 } else { u64::MAX >> (b & 63) };
        let receipt = Receipt { received, newest, ago_ns: u32::from(c) << (c & 24), window };
        let (sequence, stamp_ns) = (Self::number(self.sequence, a | 64), self.stamp(c));
        let sample = u64::from(sequence);
        let header =
            Header { length: 0, kind: Kind::Acknowledgement, flags: 0, flow: FLOW, sequence, sample, stamp_ns };
        let mut writer = Writer::default();
        let said = writer.finish_with(header, Self::number(self.sequence, b & 63), u32::from(a), Some(&receipt));
        self.receive_feedback(0, said);
    }

    fn receive_feedback(&mut self, member: u64, bytes: &[u8]) {
        let Ok((header, payload)) = datagram(bytes, MAX_MESSAGE, Some(FLOW)) else { return };
        let said = match self.controlled {
            true => Acknowledgement::parse_with_receipt(payload),
            false => Acknowledgement::parse(payload),
        };
        let Ok(said) = said else { return };
        let _ = self.sender.acknowledge(self.now, member, self.sequence, &header, &said);
    }

    fn deliver(&mut self, header: &Header) {
        if self.accept.frame(header.sequence).is_new() {
            self.accept.sample(header.sample);
        }
    }

    /// The driver's work after each step: due messages are delivered, acknowledged and retransmitted.
    fn look(&mut self) {
        while let Some(held) = self.receiver.ready(self.now) {
            assert_eq!(held.header.sequence.wrapping_add(1), self.receiver.next());
            self.deliver(&held.header);
            self.receiver.recycle(held);
        }
        if self.receiver.has_news(self.now) {
            self.accept.announced(self.receiver.next());
        }
        let said = self.receiver.acknowledgement(self.now, &self.reassembly).map(<[u8]>::to_vec);
        if let Some(said) = said {
            self.receive_feedback(0, &said);
        }
        for _ in 0..2 * WINDOW {
            match self.sender.poll(self.now) {
                Some(Action::Retransmit { entry, bytes, .. }) => assert!(bytes.end <= entry.buffer.payload().len()),
                Some(Action::KeepAlive { .. }) => {}
                Some(Action::Shorten) => self.sender.shrink(EXPECTED[0]),
                None => break,
            }
        }
        let _ = (self.sender.next_look(self.now), self.receiver.next_deadline());
    }
}

/// Initial operations: a normal flow, and one with an outage.
pub(super) fn flows() -> Vec<Vec<u8>> {
    let goes = |setting: u8| {
        let step = |n: u8| [[1, 16, 0, 0], [5, 0, 0, 0], [0, 100, 13, 0], [3, n & 15, 0, 20]].concat();
        std::iter::once(setting).chain((0..30).flat_map(step)).collect()
    };
    let told = |setting: u8| {
        let step = |n: u8| [[1, 16, 0, 0], [5, 0, 0, 0], [7, n, 0, 2], [0, 100, 13, 0]].concat();
        std::iter::once(setting).chain((0..30).flat_map(step)).collect()
    };
    vec![goes(0x43), goes(0x84), told(0x88), told(0x99), vec![1; 200], (0..=250).collect()]
}
