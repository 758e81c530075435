//! The subscriber's end: order, gaps, acknowledgements.

mod requests;

use super::{BASE, CONTROLLED_WINDOW, Counters, RoundTrip, WINDOW, widen};
use crate::channel::congestion::Receipts;
use crate::channel::fragment::Reassembly;
use crate::channel::memory::{Account, Charge, size_of};
use crate::wire::feedback::Writer;
use crate::wire::{ASK, Header, Kind, REPAIR};
use requests::{Asking, Slot};
use std::collections::VecDeque;
use std::sync::Arc;

/// The settings by the handshake and the port.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverSettings {
    /// The flow's id.
    pub flow: u32,
    /// The first message's number.
    pub first: u32,
    /// The number of messages after which to acknowledge.
    pub every: u32,
    /// The longest silence in nanoseconds: messages that are missing for longer are skipped.
    pub deadline_ns: Option<u64>,
    /// The publisher's account: held messages are charged to it.
    pub budget: Arc<Account>,
}

/// The place of a message in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The next message: deliver it, then those that [`Receiver::ready`] gives.
    InOrder,
    /// The message is kept until those before it came.
    Held,
    /// The message is not new, or cannot be kept now.
    Dropped,
}

/// A message that waited for one before it.
#[derive(Debug)]
pub(crate) struct Held {
    /// Its header.
    pub header: Header,
    /// Its bytes.
    pub bytes: Vec<u8>,
    arrived: u64,
    /// Given back when it is dropped, also by a callback that panics.
    _charge: Charge,
}

/// The receiving state of a reliable flow.
#[derive(Debug)]
pub(crate) struct Receiver {
    settings: ReceiverSettings,
    next: u64,             // all messages before this one were delivered or skipped
    settled: u64,          // samples up to this one were delivered or skipped
    announced: u64,        // messages before this one exist
    claimed: Option<u64>,  // the position of the last frame that was not believed
    floor: u64,            // messages before this one cannot be retransmitted
    sent: u64,             // all fragments of the messages before this one were sent
    slots: VecDeque<Slot>, // from `next` to the newest known message
    spare: Vec<Vec<u8>>,
    held: usize, // bytes of messages that wait for one before them
    since: u32,  // messages since the last acknowledgement
    fresh: u32,
    newest: (u32, u64), // the newest fresh message, and when it came
    asked: bool,
    asked_ahead_at: u64, // time of the last acknowledgement because of a message beyond the window
    round_trip: RoundTrip,
    told_trip: Option<u64>, // as the publisher measured it
    pace: Pace,
    writer: Writer,
    receipts: Option<Receipts>,
    counters: Counters,
}

impl Receiver {
    /// The state of a flow before its first datagram.
    pub(crate) fn new(settings: ReceiverSettings) -> Self {
        let next = BASE + u64::from(settings.first);
        Self {
            settings,
            next,
            settled: 0,
            announced: next,
            claimed: None,
            floor: next,
            sent: next,
            slots: VecDeque::new(),
            spare: Vec::new(),
            held: 0,
            since: 0,
            fresh: 0,
            newest: (0, 0),
            asked: false,
            asked_ahead_at: 0,
            round_trip: RoundTrip::default(),
            told_trip: None,
            pace: Pace::default(),
            writer: Writer::default(),
            receipts: None,
            counters: Counters::default(),
        }
    }

    /// From now on acknowledgements have receipts, and also come after every `every` bytes.
    pub(crate) fn tells(&mut self, every: u32) {
        self.receipts = Some(Receipts::new(every));
    }

    /// Counts a datagram of the flow that came, even if it is dropped later.
    #[inline]
    pub(crate) fn arrived(&mut self, now_ns: u64, header: &Header, payload: &[u8]) {
        if let Some(receipts) = &mut self.receipts {
            receipts.arrived(now_ns, header, payload);
        }
    }

    /// A whole message came.
    #[inline]
    pub(crate) fn message(&mut self, now_ns: u64, header: &Header, bytes: &[u8]) -> Arrived {
        if self.slots.is_empty() && header.sequence == self.next as u32 {
            self.claimed = None;
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

    /// Takes the message that is due: it is delivered, unless it is too old.
    #[inline]
    fn due(&mut self, now_ns: u64, header: &Header) -> Arrived {
        if self.settings.deadline_ns.is_some() && self.is_stale(now_ns, header) {
            self.skip(1);
            return Arrived::Dropped;
        }
        self.delivered(now_ns, header);
        Arrived::InOrder
    }

    /// `true` for a message that was retransmitted, or waited for another, and is older than the deadline: it would only be part
    /// of a burst of old samples (U-26).
    fn is_stale(&mut self, now_ns: u64, header: &Header) -> bool {
        let Some(deadline) = self.settings.deadline_ns else { return false };
        self.pace.late_by(now_ns, header.stamp_ns, deadline) > deadline
    }

    /// A fragment came: `true` if it is wanted. The reassembly's result then goes to [`Receiver::part`], or is a message.
    pub(crate) fn wants(&mut self, now_ns: u64, header: &Header) -> bool {
        self.place(now_ns, header).is_some_and(|index| !matches!(self.slots[index], Slot::Whole(_)))
    }

    /// Takes a keep-alive: the publisher's position, and the oldest message that it can retransmit. A single keep-alive that is
    /// far ahead does not give messages up: missing ones are requested, and the second keep-alive is believed.
    pub(crate) fn keep_alive(&mut self, now_ns: u64, header: &Header) {
        self.asked |= header.flags & ASK != 0;
        if header.stamp_ns > 0 {
            self.told_trip = Some(header.stamp_ns.min(LONGEST_TOLD_NS));
        }
        let next = widen(header.sequence, self.next);
        let oldest = widen(header.sample as u32, self.next).min(next);
        if self.believes(next, true) {
            self.floor = self.floor.max(oldest);
            self.sent = self.sent.max(next);
        }
        let known = next.saturating_sub(self.next).min(self.window()) as usize;
        self.open(now_ns, known);
        self.ask_parts(now_ns, known);
    }

    /// `true` if there are messages up to this position (RFC 3550 A.1). A jump of more than [`MAX_JUMP`] is believed when a
    /// second frame has nearly the same number; the first is only remembered. `again`: an idle publisher repeats the number.
    fn believes(&mut self, upto: u64, again: bool) -> bool {
        let known = self.announced.max(self.next);
        let near = upto <= known.saturating_add(MAX_JUMP);
        let claimed = std::mem::replace(&mut self.claimed, (!near).then_some(upto));
        let agrees =
            |before: u64| upto.checked_sub(before).is_some_and(|more| more <= WINDOW as u64 && (again || more > 0));
        let believed = near || claimed.is_some_and(agrees);
        if believed {
            self.announced = known.max(upto);
        }
        believed
    }

    /// The next message that is due, if it is there. Give it to [`Receiver::recycle`] after its delivery.
    #[inline]
    pub(crate) fn ready(&mut self, now_ns: u64) -> Option<Held> {
        if self.slots.is_empty() && self.next >= self.floor {
            return None;
        }
        self.ready_or_skipped(now_ns)
    }

    #[cold]
    fn ready_or_skipped(&mut self, now_ns: u64) -> Option<Held> {
        loop {
            let given_up = self.next < self.floor || (self.next < self.announced && self.is_overdue(now_ns));
            match self.slots.front() {
                Some(Slot::Whole(_)) => {}
                Some(slot) if given_up => {
                    if let Slot::Part(sample, _) = slot {
                        self.settled = *sample; // its parts here give way to others
                    }
                    self.slots.pop_front();
                    self.skip(1);
                    continue;
                }
                None if self.next < self.floor => {
                    self.skip(self.floor - self.next);
                    self.open(now_ns, self.sent.saturating_sub(self.next).min(self.window()) as usize);
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
    pub(crate) fn recycle(&mut self, held: Held) {
        self.held = self.held.saturating_sub(held.bytes.len());
        let room: usize = self.spare.iter().map(Vec::capacity).sum();
        if self.spare.len() < SPARE && room + held.bytes.capacity() <= SPARE_BYTES {
            self.spare.push(held.bytes);
        }
    }

    /// The last sample that is not waited for any more: all up to it were delivered or given up.
    pub(crate) fn settled(&self) -> u64 {
        self.settled
    }

    /// The next number to be delivered.
    pub(crate) fn next(&self) -> u32 {
        self.next as u32
    }

    /// The time at which [`Receiver::ready`] or [`Receiver::acknowledgement`] next has something to do, unless a datagram comes.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        if self.slots.is_empty() {
            return None;
        }
        let asks = self.slots.iter().filter_map(Slot::due).min();
        [asks, self.gives_up_at()].into_iter().flatten().min()
    }

    /// `true` if there are messages to acknowledge or to request.
    #[inline]
    pub(crate) fn has_news(&self, now_ns: u64) -> bool {
        let tells = self.receipts.as_ref().is_some_and(Receipts::is_due);
        tells || self.asked || self.since >= self.settings.every || (!self.slots.is_empty() && self.asks_now(now_ns))
    }

    /// The datagram that acknowledges messages and requests missing ones. `None`: there are none.
    pub(crate) fn acknowledgement(&mut self, now_ns: u64, reassembly: &Reassembly) -> Option<&[u8]> {
        if !self.has_news(now_ns) {
            return None;
        }
        self.writer.clear();
        let complete = self.write_gaps(now_ns, reassembly) && self.asked;
        let tells = self.receipts.as_ref().is_some_and(Receipts::is_due);
        if self.writer.is_empty() && !tells && !self.asked && self.since < self.settings.every {
            return None; // the holes were filled meanwhile
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
            sample: (self.counters.skipped << 32) | u64::from(newest),
            stamp_ns: now_ns.saturating_sub(arrived),
        };
        let seen = (self.next + self.slots.len() as u64) as u32;
        let room = self.settings.budget.left() + reassembly.charged() + self.held;
        let receipt = self.receipts.as_mut().map(|receipts| receipts.tell(now_ns, room as u64 / 2));
        Some(self.writer.finish_with(header, seen, self.fresh, receipt.as_ref()))
    }

    /// The counters so far.
    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// The place of a frame, with slots for the gap before it; `None`: it is behind, or too far ahead.
    fn place(&mut self, now_ns: u64, header: &Header) -> Option<usize> {
        let Some(index) = widen(header.sequence, self.next).checked_sub(self.next) else {
            // The publisher retransmits a message that is here, so an acknowledgement was lost.
            self.asked |= header.flags & REPAIR != 0;
            return None;
        };
        self.believes(self.next + index + 1, false);
        if index >= self.window() {
            self.ask_ahead(now_ns);
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

    /// The number of messages, from the next on, for which there is room.
    fn window(&self) -> u64 {
        (if self.receipts.is_some() { CONTROLLED_WINDOW } else { WINDOW }) as u64
    }

    fn keep(&mut self, now_ns: u64, header: &Header, bytes: &[u8]) -> Option<Held> {
        let _charge = Charge::new(&self.settings.budget, size_of(bytes.len()), false).ok()?;
        self.held += bytes.len();
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(bytes);
        Some(Held { header: *header, bytes: kept, arrived: now_ns, _charge })
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

    #[inline]
    fn delivered(&mut self, now_ns: u64, header: &Header) {
        if self.settings.deadline_ns.is_some() {
            self.pace.delivered(now_ns, self.next, header.stamp_ns);
        }
        self.settled = header.sample;
        self.next += 1;
    }

    fn skip(&mut self, count: u64) {
        self.next += count;
        self.counters.skipped += count;
    }

    /// The time to give up missing messages, if there is a deadline. The silence is no longer than the deadline, nor than a
    /// period and two round trips. A message that is here waits no longer than two round trips for a missing one (F-14, U-26).
    fn gives_up_at(&self) -> Option<u64> {
        let deadline = self.settings.deadline_ns.filter(|_| self.next < self.announced)?;
        let waits =
            self.slots.iter().find_map(|slot| if let Slot::Whole(held) = slot { Some(held.arrived) } else { None });
        let Pace { delivered_at, period, last, .. } = self.pace;
        let round_trips = 2 * self.told_trip.unwrap_or_else(|| self.round_trip.smoothed_ns());
        let silent = if period == 0 { deadline } else { deadline.min(period.saturating_add(round_trips)) };
        let (held, silent) = (waits?.saturating_add(round_trips), last.map(|_| delivered_at.saturating_add(silent)));
        Some(silent.map_or(held, |silent| silent.min(held)))
    }

    fn is_overdue(&self, now_ns: u64) -> bool {
        self.gives_up_at().is_some_and(|at| at <= now_ns)
    }
}

/// The pace of samples, for the longest silence (U-26).
#[derive(Debug, Default)]
struct Pace {
    delivered_at: u64,
    last: Option<(u64, u64)>, // number and stamp of the last sample
    period: u64,
    transit: Option<i64>, // the shortest transit, including the difference of the two clocks
    begun_by_one: bool,   // the transit comes from one message, whose stamp may be wrong
    claimed: Option<i64>, // a transit too short to be believed
}

impl Pace {
    /// The message with this number, published at `stamp`, is delivered.
    fn delivered(&mut self, now_ns: u64, at: u64, stamp: u64) {
        self.delivered_at = now_ns;
        if let Some((number, last)) = self.last.filter(|(number, _)| at > *number) {
            let each = stamp.saturating_sub(last) / (at - number);
            self.period = if self.period == 0 { each } else { self.period - self.period / 8 + each / 8 };
        }
        self.last = Some((at, stamp));
    }

    /// The excess of this transit over the shortest: the message's age beyond the inevitable delay.
    fn late_by(&mut self, now_ns: u64, stamp: u64, deadline_ns: u64) -> u64 {
        let transit = now_ns.wrapping_sub(stamp) as i64;
        let before = self.transit.unwrap_or(transit);
        let shorter = before.saturating_sub(transit);
        let restarts = self.begun_by_one && before.abs_diff(transit) > deadline_ns;
        let believed = deadline_ns / BELIEVED;
        let is_jump = u64::try_from(shorter).is_ok_and(|shorter| shorter > believed);
        if is_jump && !restarts && !self.is_claimed_again(transit, believed) {
            return 0;
        }
        self.claimed = None;
        let shortest = if restarts { transit } else { transit.min(before.saturating_sub(shorter / DRIFT)) };
        self.begun_by_one = self.transit.is_none() || restarts;
        self.transit = Some(shortest);
        transit.abs_diff(shortest)
    }

    #[cold]
    fn is_claimed_again(&mut self, transit: i64, believed: u64) -> bool {
        self.claimed.replace(transit).is_some_and(|claimed| claimed.abs_diff(transit) <= believed)
    }
}

/// Messages that a reassembly puts together at a time: see [`Reassembly::with_slots`]. On a path of 100 Mbit/s and 50 ms that loses one
/// datagram in ten, messages of 64 KiB need five round trips, and ten of them leave in each.
pub(crate) const IN_PROGRESS: usize = 128;
/// The largest jump that is believed at once, because losses come in bursts; a wrong jump costs the messages that it skips.
const MAX_JUMP: u64 = 64;
/// No publisher measures a longer round trip.
const LONGEST_TOLD_NS: u64 = 10_000_000_000;
/// Spare buffers for held messages, and their bytes together: more are given back.
const SPARE: usize = 32;
const SPARE_BYTES: usize = 4 << 20;

/// The shortest transit follows a drifting clock, by the difference divided by this, with every message.
const DRIFT: i64 = 1024;
/// A transit that is shorter by more than the deadline divided by this is believed only when the next one is, too: otherwise one
/// wrong stamp would make all later messages late.
const BELIEVED: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn by_one_wrong_stamp_nothing_else_is_late() {
        for wrong in [0, 1, 60 * MS, 400 * MS, u64::MAX, 1 << 63, (1 << 63) - 1, u64::MAX - 100 * MS, 90_000 * MS] {
            for first in [true, false] {
                let mut pace = Pace::default();
                let good = |pace: &mut Pace, n: u64| pace.late_by((1000 + n) * MS, n * MS, 100 * MS);
                if !first {
                    (0..5).for_each(|n| assert_eq!(good(&mut pace, n), 0));
                }
                pace.late_by(1005 * MS, wrong, 100 * MS);
                pace.delivered(1005 * MS, 7, wrong);
                (6..50).for_each(|n| assert!(good(&mut pace, n) < 100 * MS, "{wrong}, {first}, {n}"));
                pace.delivered(1006 * MS, 8, 6 * MS);
            }
        }
    }

    #[test]
    fn a_changed_clock_is_believed_with_the_second_message() {
        let mut pace = Pace::default();
        (0..5).for_each(|n| assert_eq!(pace.late_by((1000 + n) * MS, n * MS, 100 * MS), 0));
        assert_eq!([5, 6].map(|n| pace.late_by((1000 + n) * MS, (10_000 + n) * MS, 100 * MS)), [0, 0]);
        assert!(pace.late_by(1007 * MS, 9_907 * MS, 100 * MS) > 99 * MS);
    }
}
