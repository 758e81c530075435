//! The subscriber's end: order, gaps, acknowledgements.

use super::{BASE, Counters, LONGEST_PAUSE_NS, RoundTrip, WINDOW, widen};
use crate::channel::fragment::Reassembly;
use crate::wire::feedback::{Gap, Writer};
use crate::wire::{ASK, Header, Kind, REPAIR};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the handshake and the port say.
#[derive(Clone, Debug)]
pub struct ReceiverSettings {
    /// The flow's id.
    pub flow: u32,
    /// The first message's number.
    pub first: u32,
    /// Acknowledge after so many messages.
    pub every: u32,
    /// The longest silence in nanoseconds: what is missing longer is skipped.
    pub deadline_ns: Option<u64>,
    /// Bytes left for held messages of all channels of the node.
    pub budget: Arc<AtomicUsize>,
}

/// What a message is to the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The one that is due: deliver it, then what [`Receiver::ready`] gives.
    InOrder,
    /// Kept until those before it came.
    Held,
    /// Nothing new, or nothing that can be kept now.
    Dropped,
}

/// A message that waited for one before it.
#[derive(Debug)]
pub struct Held {
    /// Its header.
    pub header: Header,
    /// Its bytes.
    pub bytes: Vec<u8>,
    arrived: u64,
}

/// The receiving state of a reliable flow.
#[derive(Debug)]
pub struct Receiver {
    settings: ReceiverSettings,
    next: u64,             // all before were delivered or skipped
    last_sample: u64,      // the newest delivered
    floor: u64,            // nobody can repeat those before
    slots: VecDeque<Slot>, // from `next` to the newest message of which anything is known
    spare: Vec<Vec<u8>>,
    since: u32, // messages since the last acknowledgement
    fresh: u32,
    newest: (u32, u64), // the newest fresh message, and when it came
    asked: bool,
    trip: RoundTrip,
    told_trip: Option<u64>, // as the publisher measured it
    pace: Pace,
    writer: Writer,
    counters: Counters,
}

#[derive(Debug)]
enum Slot {
    Missing(Asking),
    /// Some fragments of this sample are in the reassembly.
    Part(u64, Asking),
    Whole(Held),
}

/// When something is asked for, and how often it was.
#[derive(Clone, Copy, Debug, Default)]
struct Asking {
    due: Option<u64>,
    times: u32,
    last: u64,
    crowded: bool, // of a long message, for which there was no room
}

/// How samples follow each other, for the longest silence (U-26).
#[derive(Debug, Default)]
struct Pace {
    delivered_at: u64,
    last: Option<(u64, u64)>, // number and stamp of the last one
    period: u64,
    transit: Option<i64>, // the shortest, the difference of the two clocks included
}

/// The shortest transit follows a drifting clock: by this part of the difference, with every message.
const DRIFT: i64 = 1024;

impl Pace {
    fn delivered(&mut self, now_ns: u64, at: u64, stamp: u64) {
        self.delivered_at = now_ns;
        if let Some((number, last)) = self.last.filter(|(number, _)| at > *number) {
            let each = stamp.saturating_sub(last) / (at - number);
            self.period = if self.period == 0 { each } else { (7 * self.period + each) / 8 };
        }
        self.last = Some((at, stamp));
    }

    /// How much longer than the shortest transit this one took: the message's age beyond what is inevitable.
    fn late_by(&mut self, now_ns: u64, stamp: u64) -> u64 {
        let transit = now_ns.wrapping_sub(stamp) as i64;
        let shortest = self.transit.map_or(transit, |shortest| transit.min(shortest + (transit - shortest) / DRIFT));
        self.transit = Some(shortest);
        transit.abs_diff(shortest)
    }
}

/// Messages that a reassembly puts together at a time: see [`Reassembly::with_slots`].
pub const IN_PROGRESS: usize = 8;
/// Buffers of held messages that are kept for further ones.
const SPARE: usize = 32;

impl Receiver {
    /// A flow of which nothing came yet.
    pub fn new(settings: ReceiverSettings) -> Self {
        let next = BASE + u64::from(settings.first);
        Self {
            settings,
            next,
            last_sample: 0,
            floor: next,
            slots: VecDeque::new(),
            spare: Vec::new(),
            since: 0,
            fresh: 0,
            newest: (0, 0),
            asked: false,
            trip: RoundTrip::default(),
            told_trip: None,
            pace: Pace::default(),
            writer: Writer::default(),
            counters: Counters::default(),
        }
    }

    /// A whole message came.
    #[inline]
    pub fn message(&mut self, now_ns: u64, header: &Header, bytes: &[u8]) -> Arrived {
        if self.slots.is_empty() && header.sequence == self.next as u32 {
            self.note_fresh(now_ns, header);
            return self.due(now_ns, header);
        }
        self.message_out_of_order(now_ns, header, bytes)
    }

    #[cold]
    fn message_out_of_order(&mut self, now_ns: u64, header: &Header, bytes: &[u8]) -> Arrived {
        let Some(index) = self.place(now_ns, header) else { return Arrived::Dropped };
        if matches!(self.slots[index], Slot::Whole(_)) {
            return Arrived::Dropped;
        }
        if index > 0 {
            let Some(held) = self.keep(now_ns, header, bytes) else { return Arrived::Dropped };
            self.note_repair(now_ns, header, index);
            self.note_fresh(now_ns, header);
            self.slots[index] = Slot::Whole(held);
            return Arrived::Held;
        }
        self.note_repair(now_ns, header, index);
        self.note_fresh(now_ns, header);
        self.slots.pop_front();
        self.due(now_ns, header)
    }

    /// The message that is due is here: delivered, unless it is of no use any more.
    #[inline]
    fn due(&mut self, now_ns: u64, header: &Header) -> Arrived {
        if self.settings.deadline_ns.is_some() && self.is_stale(now_ns, header) {
            self.skip(1);
            return Arrived::Dropped;
        }
        self.delivered(now_ns, header);
        Arrived::InOrder
    }

    /// What was repeated or waited for another and is older than the deadline is no news but a burst of the past (U-26).
    fn is_stale(&mut self, now_ns: u64, header: &Header) -> bool {
        let late = self.pace.late_by(now_ns, header.stamp_ns);
        self.settings.deadline_ns.is_some_and(|deadline| late > deadline)
    }

    /// A fragment came: whether it is wanted. What the reassembly makes of it is told to [`Receiver::part`], or is a
    /// message.
    pub fn wants(&mut self, now_ns: u64, header: &Header) -> bool {
        self.place(now_ns, header).is_some_and(|index| !matches!(self.slots[index], Slot::Whole(_)))
    }

    /// A fragment of this message was kept, and it is not whole.
    pub fn part(&mut self, now_ns: u64, header: &Header, reassembly: &Reassembly) {
        let Some(index) = widen(header.sequence, self.next).checked_sub(self.next).map(|i| i as usize) else { return };
        let overtaken = index + 1 < self.slots.len() || reassembly.has_hole(header.sample);
        let wait = now_ns + self.trip.reorder_ns();
        if let Some(slot @ (Slot::Missing(_) | Slot::Part(..))) = self.slots.get_mut(index) {
            let mut asking = slot.asking().unwrap_or_default();
            if !matches!(slot, Slot::Part(..)) {
                asking.due = None; // its first fragment: the others follow
            }
            asking.due = asking.due.or(overtaken.then_some(wait));
            *slot = Slot::Part(header.sample, asking);
        }
    }

    /// There is no room for this fragment: its message is asked for when there is.
    pub fn crowded(&mut self, header: &Header) {
        let index = widen(header.sequence, self.next).wrapping_sub(self.next);
        if let Some(Slot::Missing(asking)) = self.slots.get_mut(index as usize) {
            asking.crowded = true;
        }
    }

    /// The publisher says how far it is, and which messages it can still repeat.
    pub fn keep_alive(&mut self, now_ns: u64, header: &Header) {
        self.asked |= header.flags & ASK != 0;
        if header.stamp_ns > 0 {
            self.told_trip = Some(header.stamp_ns);
        }
        let next = widen(header.sequence, self.next);
        let oldest = widen(header.sample as u32, self.next).min(next);
        self.floor = self.floor.max(oldest);
        let known = next.saturating_sub(self.next).min(WINDOW as u64) as usize;
        self.open(now_ns, known);
        self.ask_parts(now_ns, known);
    }

    /// The next message that is due, if it is there. Give it to [`Receiver::recycle`] after its delivery.
    #[inline]
    pub fn ready(&mut self, now_ns: u64) -> Option<Held> {
        if self.slots.is_empty() && self.next >= self.floor {
            return None;
        }
        self.ready_or_skipped(now_ns)
    }

    #[cold]
    fn ready_or_skipped(&mut self, now_ns: u64) -> Option<Held> {
        loop {
            let given_up = self.next < self.floor || self.is_overdue(now_ns);
            match self.slots.front() {
                Some(Slot::Whole(_)) => {}
                Some(_) if given_up => {
                    self.slots.pop_front();
                    self.skip(1);
                    continue;
                }
                None if self.next < self.floor => {
                    self.skip(self.floor - self.next);
                    continue;
                }
                _ => return None,
            }
            let Some(Slot::Whole(held)) = self.slots.pop_front() else { return None };
            if self.due(now_ns, &held.header) == Arrived::InOrder {
                return Some(held);
            }
            self.recycle(held);
        }
    }

    /// Takes the memory of a delivered message back.
    pub fn recycle(&mut self, held: Held) {
        self.settings.budget.fetch_add(held.bytes.len(), Ordering::Relaxed);
        if self.spare.len() < SPARE {
            self.spare.push(held.bytes);
        }
    }

    /// The newest sample that was delivered.
    pub fn last_sample(&self) -> u64 {
        self.last_sample
    }

    /// The next number to be delivered.
    pub fn next(&self) -> u32 {
        self.next as u32
    }

    /// When [`Receiver::ready`] or [`Receiver::acknowledgement`] has something to do next, unless something comes.
    pub fn next_deadline(&self) -> Option<u64> {
        if self.slots.is_empty() {
            return None;
        }
        let asks = self.slots.iter().filter_map(|slot| slot.asking()?.due).min();
        [asks, self.gives_up_at()].into_iter().flatten().min()
    }

    /// Whether there is something to be acknowledged or asked for.
    #[inline]
    pub fn has_news(&self, now_ns: u64) -> bool {
        self.asked || self.since >= self.settings.every || (!self.slots.is_empty() && self.asks_now(now_ns))
    }

    /// The datagram that says what is here and what is missing. `None` if there is nothing to say.
    pub fn acknowledgement(&mut self, now_ns: u64, reassembly: &Reassembly) -> Option<&[u8]> {
        if !self.has_news(now_ns) {
            return None;
        }
        self.writer.clear();
        let mut complete = self.asked;
        let (known, mut parts) = (self.slots.len(), 0);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(asking) = slot.asking().filter(|a| self.asked || a.due.is_some_and(|due| due <= now_ns)) else {
                continue;
            };
            let first = (self.next + index as u64) as u32;
            parts += usize::from(asking.crowded || matches!(slot, Slot::Part(..)));
            let told = match slot {
                Slot::Missing(_) if asking.crowded && parts > IN_PROGRESS => false,
                Slot::Part(sample, _) => {
                    let overtaken = self.asked || index + 1 < known;
                    let mut missing = reassembly.missing(*sample, overtaken).peekable();
                    match missing.peek() {
                        None => self.writer.push(Gap::messages(first, 1)),
                        Some(_) => missing.all(|(from, to)| {
                            self.writer.push(Gap { first, count: 1, from: from as u32, to: to as u32 })
                        }),
                    }
                }
                _ => self.writer.push(Gap::messages(first, 1)),
            };
            slot.set_asking(asking.again(now_ns, self.trip));
            complete &= told;
        }
        (self.asked, self.since) = (false, 0);
        self.counters.acknowledgements += 1;
        let (newest, arrived) = self.newest;
        let header = Header {
            length: 0,
            kind: Kind::Acknowledgement,
            flags: if complete { ASK } else { 0 },
            flow: self.settings.flow,
            sequence: self.next as u32,
            sample: newest.into(),
            stamp_ns: now_ns.saturating_sub(arrived),
        };
        let seen = (self.next + self.slots.len() as u64) as u32;
        Some(self.writer.finish(header, seen, self.fresh))
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Where a frame belongs, with the gap before it opened; `None`: it is behind, or too far ahead.
    fn place(&mut self, now_ns: u64, header: &Header) -> Option<usize> {
        let Some(index) = widen(header.sequence, self.next).checked_sub(self.next) else {
            // The publisher repeats what is here: it missed an acknowledgement.
            self.asked |= header.flags & REPAIR != 0;
            return None;
        };
        if index >= WINDOW as u64 {
            return None;
        }
        let index = index as usize;
        if index >= self.slots.len() {
            self.open(now_ns, index);
            self.ask_parts(now_ns, index);
            self.slots.push_back(Slot::Missing(Asking::default()));
        }
        self.asked |= header.flags & ASK != 0;
        Some(index)
    }

    /// Knows of `count` messages from the next on.
    fn open(&mut self, now_ns: u64, count: usize) {
        let due = Some(now_ns + self.trip.reorder_ns());
        while self.slots.len() < count {
            self.slots.push_back(Slot::Missing(Asking { due, ..Asking::default() }));
        }
    }

    /// Of messages before this one everything was sent: what is missing of them is asked for.
    fn ask_parts(&mut self, now_ns: u64, before: usize) {
        let due = now_ns + self.trip.reorder_ns();
        for slot in self.slots.iter_mut().take(before) {
            if let Slot::Part(_, asking) | Slot::Missing(asking) = slot {
                asking.due.get_or_insert(due);
            }
        }
    }

    fn keep(&mut self, now_ns: u64, header: &Header, bytes: &[u8]) -> Option<Held> {
        let budget = &self.settings.budget;
        let pay = |left: usize| left.checked_sub(bytes.len());
        budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).ok()?;
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(bytes);
        Some(Held { header: *header, bytes: kept, arrived: now_ns })
    }

    #[inline]
    fn note_fresh(&mut self, now_ns: u64, header: &Header) {
        self.since += 1;
        self.asked |= header.flags & ASK != 0;
        if header.flags & REPAIR != 0 {
            self.counters.repaired += 1;
        } else {
            self.fresh = self.fresh.wrapping_add(1);
            self.newest = (header.sequence, now_ns);
        }
    }

    /// A message that was asked for once tells the round trip (Karn: of one asked for again nobody knows which answer it is).
    fn note_repair(&mut self, now_ns: u64, header: &Header, index: usize) {
        if let Some(asking) = self.slots[index].asking().filter(|a| a.times == 1 && header.flags & REPAIR != 0) {
            self.trip.measured(now_ns.saturating_sub(asking.last));
        }
    }

    #[inline]
    fn delivered(&mut self, now_ns: u64, header: &Header) {
        if self.settings.deadline_ns.is_some() {
            self.pace.delivered(now_ns, self.next, header.stamp_ns);
        }
        self.last_sample = header.sample;
        self.next += 1;
    }

    fn skip(&mut self, count: u64) {
        self.next += count;
        self.counters.skipped += count;
    }

    /// With a deadline nobody is silent longer than that, nor than a period and two round trips; and nothing that is here
    /// waits longer than two round trips for what is not (F-14, U-26).
    fn gives_up_at(&self) -> Option<u64> {
        let deadline = self.settings.deadline_ns?;
        let waits =
            self.slots.iter().find_map(|slot| if let Slot::Whole(held) = slot { Some(held.arrived) } else { None });
        let Pace { delivered_at, period, last, .. } = self.pace;
        let trips = 2 * self.told_trip.unwrap_or_else(|| self.trip.smoothed_ns());
        let silent = if period == 0 { deadline } else { deadline.min(period + trips) };
        let (held, silent) = (waits?.saturating_add(trips), last.map(|_| delivered_at.saturating_add(silent)));
        Some(silent.map_or(held, |silent| silent.min(held)))
    }

    fn is_overdue(&self, now_ns: u64) -> bool {
        self.gives_up_at().is_some_and(|at| at <= now_ns)
    }

    fn asks_now(&self, now_ns: u64) -> bool {
        self.slots.iter().any(|slot| slot.asking().and_then(|a| a.due).is_some_and(|due| due <= now_ns))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let held = self.slots.iter().map(|slot| if let Slot::Whole(held) = slot { held.bytes.len() } else { 0 });
        self.settings.budget.fetch_add(held.sum(), Ordering::Relaxed);
    }
}

impl Slot {
    fn asking(&self) -> Option<Asking> {
        match self {
            Slot::Missing(asking) | Slot::Part(_, asking) => Some(*asking),
            Slot::Whole(_) => None,
        }
    }

    fn set_asking(&mut self, to: Asking) {
        if let Slot::Missing(asking) | Slot::Part(_, asking) = self {
            *asking = to;
        }
    }
}

impl Asking {
    fn again(self, now_ns: u64, trip: RoundTrip) -> Self {
        let pause = trip.patience_ns().saturating_mul(1 << self.times.min(4)).min(LONGEST_PAUSE_NS);
        Self { due: Some(now_ns + pause), times: self.times + 1, last: now_ns, ..self }
    }
}
