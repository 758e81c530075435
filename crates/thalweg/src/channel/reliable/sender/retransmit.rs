//! Retransmits, their receivers and times: on request, or before a request if there is a deadline; and datagrams that do not come
//! through because they are too long, without an error.

use super::controlled::Controlled;
use super::{FEW, GATHER_NS, MOST_COPIES, Sender, Sent};
use crate::channel::fragment::piece;
use crate::channel::queue::Entry;
use crate::channel::reliable::widen;
use crate::wire::feedback::{Datagram, Gap, REPEATS};
use crate::wire::{FRAGMENT_HEADER, HEADER};
use std::ops::Range;

/// A datagram that is due.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A retransmit of a message or a part of it.
    Retransmit {
        /// The message.
        entry: Entry,
        /// Its number in the flow.
        sequence: u32,
        /// The range of bytes; if it is all of the message, it leaves whole and not as a fragment.
        bytes: Range<usize>,
        /// Flags of its frame.
        flags: u16,
        /// The receiver.
        to: To,
    },
    /// Datagrams of this length do not come through, without an error: from now on they have to be shorter, see
    /// [`Sender::shrink`](super::Sender::shrink).
    Shorten,
    /// Progress of the flow: the next number, and the oldest that can be retransmitted.
    KeepAlive {
        /// The next message's number.
        next: u32,
        /// The oldest that can be retransmitted.
        oldest: u32,
        /// The round trip in nanoseconds.
        trip_ns: u64,
        /// The receiver.
        to: To,
    },
}

/// The addressee of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// All members.
    All,
    /// The member with this number.
    One(usize),
}

impl Sender {
    /// Notes a gap of a member, perhaps in the message that is leaving: the first part of a large one may have arrived while the
    /// last part waits for room in the socket.
    pub(super) fn want_now_or_then(&mut self, now_ns: u64, bit: u64, gap: Gap) {
        let leaving = widen(gap.first, self.next()) == self.next() && gap.count == 1;
        match leaving {
            true if self.early.len() < MOST_EARLY => self.early.push((bit, gap)),
            true => {}
            false => self.want(now_ns, bit, gap),
        }
    }

    /// Notes that the message has left: parts of it that were missed before are retransmitted.
    #[cold]
    pub(super) fn want_early(&mut self, now_ns: u64) {
        for (bit, gap) in std::mem::take(&mut self.early) {
            self.want(now_ns, bit, gap);
        }
    }

    fn want(&mut self, now_ns: u64, bit: u64, gap: Gap) {
        let (first, next) = (self.first, self.next());
        let from = widen(gap.first, next);
        // A repeated request while the answer is in flight: it is not sent twice.
        let patience = self.round_trip.smoothed_ns();
        let alone = self.members.len() == 1;
        let piece = if self.cut_anew { self.settings.largest as u32 } else { 1 };
        for at in from.max(first)..(from + u64::from(gap.count)).min(next) {
            let sent = &mut self.sent[(at - first) as usize];
            let length = (sent.entry.buffer.payload().len() as u32).max(1);
            let bytes = if gap.to == 0 { 0..length } else { aligned(gap.from..gap.to.min(length), piece, length) };
            let under_way =
                if now_ns.saturating_sub(sent.retransmitted_at) < patience { sent.retransmitted_to as u32 } else { 0 };
            let bytes = bytes.start.max(under_way)..bytes.end;
            if bytes.is_empty() {
                continue;
            }
            if self.wanted == 0 {
                self.asks_from = if alone { now_ns } else { now_ns + GATHER_NS };
            }
            self.wanted += usize::from(sent.wanted.is_empty());
            sent.by |= bit;
            add(&mut sent.wanted, bytes);
        }
    }

    /// The next requested datagram.
    pub(super) fn retransmit_wanted(&mut self, now_ns: u64) -> Option<Action> {
        if self.wanted == 0 || now_ns < self.asks_from {
            return None;
        }
        let index = self.sent.iter().position(|sent| !sent.wanted.is_empty())?;
        let (most, patience) = (self.settings.largest, self.round_trip.smoothed_ns());
        let sent = &self.sent[index];
        let length = sent.entry.buffer.payload().len();
        let first = sent.wanted.first()?;
        let whole = length <= most;
        let bytes =
            if whole { 0..length } else { first.start as usize..(first.end as usize).min(first.start as usize + most) };
        if !self.may_repeat(now_ns, bytes.len()) {
            return None;
        }
        self.note_retransmitted(now_ns, index, &bytes);
        self.note_round(index, &bytes);
        let sent = &mut self.sent[index];
        let first = sent.wanted.first_mut()?;
        first.start = if whole { first.end } else { bytes.end as u32 };
        if first.start >= first.end {
            sent.wanted.remove(0);
        }
        let to = if sent.by.count_ones() <= FEW && self.members.len() > 1 {
            To::One(sent.by.trailing_zeros() as usize)
        } else {
            To::All
        };
        sent.note_retransmitted(now_ns, bytes.end.max(1), patience);
        let (entry, done) = (sent.entry.clone(), sent.wanted.is_empty());
        if done {
            self.wanted -= 1;
            self.next_loser(index, to);
        }
        Some(Action::Retransmit { entry, sequence: (self.first + index as u64) as u32, bytes, flags: self.flags(), to })
    }

    /// The next of few members that miss the message: it gets the retransmit as well.
    fn next_loser(&mut self, index: usize, to: To) {
        let sent = &mut self.sent[index];
        let To::One(member) = to else {
            sent.by = 0;
            return;
        };
        sent.by &= !(1 << member);
        if sent.by != 0 {
            let length = (sent.entry.buffer.payload().len() as u32).max(1);
            add(&mut sent.wanted, 0..length);
            self.wanted += 1;
        }
    }

    /// The next retransmit without a request, of a message with a deadline on a lossy path.
    pub(super) fn retransmit_unasked(&mut self, now_ns: u64) -> Option<Action> {
        if !self.settings.hurries {
            return None;
        }
        let interval = self.members.worst().interval_ns(self.round_trip.smoothed_ns());
        let due = |sent: &Sent| sent.copy_at.is_some_and(|at| at <= now_ns);
        let index = self.sent.iter().position(due)?;
        let length = self.sent[index].entry.buffer.payload().len();
        if !self.may_repeat(now_ns, length) {
            return None;
        }
        self.note_retransmitted(now_ns, index, &(0..length));
        let sent = &mut self.sent[index];
        sent.copies += 1;
        sent.note_retransmitted(now_ns, length.max(1), interval);
        sent.copy_at = (sent.copies < MOST_COPIES).then_some(now_ns + interval);
        let (entry, sequence) = (sent.entry.clone(), (self.first + index as u64) as u32);
        Some(Action::Retransmit { entry, sequence, bytes: 0..length, flags: self.flags(), to: To::All })
    }

    /// From now on datagrams have at most `most` bytes. Missing messages are cut into shorter ones.
    pub(crate) fn shrink(&mut self, most: usize) {
        if piece(most) >= self.settings.largest {
            return; // two threads found a shorter length at once, and the one with the longer of the two comes last
        }
        self.settings.largest = piece(most);
        (self.cut_anew, self.in_vain) = (true, false);
        if let Some(controlled) = &mut self.controlled {
            controlled.shrink(most);
        }
        let piece = self.settings.largest as u32;
        for Sent { entry, wanted, retransmitted_to, rounds, .. } in &mut self.sent {
            let length = (entry.buffer.payload().len() as u32).max(1);
            wanted.iter_mut().for_each(|bytes| *bytes = aligned(bytes.clone(), piece, length));
            wanted.dedup_by(|next, bytes| {
                let meet = next.start <= bytes.end;
                bytes.end = if meet { bytes.end.max(next.end) } else { bytes.end };
                meet
            });
            (*retransmitted_to, *rounds) = (0, Rounds::default());
        }
    }

    /// Notes a requested retransmit of these bytes of a message. Only flows with one subscriber that sends receipts do this: losses
    /// of one member of a group must not slow the others.
    fn note_round(&mut self, index: usize, bytes: &Range<usize>) {
        let Some(lost) = self.controlled.as_ref().map(Controlled::lost) else { return };
        let Sent { entry, rounds, .. } = &mut self.sent[index];
        let whole = bytes.len() == entry.buffer.payload().len();
        let length = HEADER + if whole { 0 } else { FRAGMENT_HEADER } + bytes.len();
        let count = rounds.repeated(bytes.start as u32, length, lost);
        self.in_vain |= count >= IN_VAIN && EXPECTED.iter().any(|most| *most < length);
    }

    /// Notes that this datagram came. If it is a retransmit as long as the lost ones, these were lost by chance.
    pub(super) fn note_came(&mut self, datagram: Datagram) {
        let at = widen(datagram.sequence, self.next()).checked_sub(self.first);
        let Some(sent) = at.and_then(|index| self.sent.get_mut(index as usize)) else { return };
        let is_long = datagram.offset as usize + self.settings.largest <= sent.entry.buffer.payload().len();
        let repeats = datagram.mark & REPEATS != 0;
        if repeats && (is_long || datagram.offset == sent.rounds.lowest) {
            sent.rounds = Rounds::default();
        }
    }
}

impl Sent {
    /// Bytes before `to` were retransmitted: a member that asks for them within `patience` has not got the answer yet.
    fn note_retransmitted(&mut self, now_ns: u64, to: usize, patience: u64) {
        let still = now_ns.saturating_sub(self.retransmitted_at) < patience;
        self.retransmitted_to = if still { self.retransmitted_to.max(to) } else { to };
        self.retransmitted_at = now_ns;
    }
}

/// Widens these bytes to whole pieces: a subscriber reassembles only equal pieces, and may miss bytes that were cut otherwise.
fn aligned(bytes: Range<u32>, piece: u32, length: u32) -> Range<u32> {
    let piece = piece.max(1);
    let from = bytes.start / piece * piece;
    from..bytes.end.div_ceil(piece).saturating_mul(piece).min(length).max(from)
}

/// Adds bytes to the requested ranges; overlapping or touching ranges become one.
fn add(wanted: &mut Vec<Range<u32>>, mut bytes: Range<u32>) {
    wanted.retain(|other| {
        let apart = other.end < bytes.start || bytes.end < other.start;
        if !apart {
            bytes = bytes.start.min(other.start)..bytes.end.max(other.end);
        }
        apart
    });
    let at = wanted.partition_point(|other| other.start < bytes.start);
    wanted.insert(at, bytes);
    if wanted.len() > MOST_RANGES
        && let Some(last) = wanted.pop()
        && let Some(before) = wanted.last_mut()
    {
        before.end = last.end;
    }
}

/// The number of times that the first missing bytes of a message were retransmitted and lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    lowest: u32, // of the round
    latest: u32,
    count: u8,
    lost: u64, // of all datagrams, when it began
}

impl Default for Rounds {
    fn default() -> Self {
        Self { lowest: u32::MAX, latest: u32::MAX, count: 0, lost: 0 }
    }
}

impl Rounds {
    /// Notes a retransmit of the bytes at `from`, in a datagram of this length; `lost` bytes were lost so far. Gives the number of
    /// retransmits in vain.
    fn repeated(&mut self, from: u32, length: usize, lost: u64) -> u8 {
        if from <= self.latest {
            // Within a round the retransmits go up.
            let in_vain = lost.saturating_sub(self.lost) >= length as u64;
            self.count = if from == self.lowest { self.count.saturating_add(u8::from(in_vain)) } else { 0 };
            (self.lowest, self.lost) = (from, lost);
        }
        self.latest = from;
        self.count
    }
}

/// Gaps that are remembered of a message whose end has not left yet.
const MOST_EARLY: usize = 64;

/// The most requested ranges that are remembered of a message: a further one widens the last. Holes of an honest subscriber are whole
/// fragments; requests for single bytes would make each next acknowledgement more work.
const MOST_RANGES: usize = 64;

/// Lengths of a datagram that every path is expected to take (BASE_PLPMTU of RFC 8899 §5.1.2), and of one that every host takes: 576
/// bytes with the headers of IP and UDP (RFC 1122 §3.3.2).
pub(crate) const EXPECTED: [usize; 2] = [1200, 548];
/// Number of losses after which a longer retransmit counts as too long: at 30 % loss this is wrong for one in 10⁶. The
/// subscriber asks ever less often, so it takes two seconds.
///
/// A repeated request is no sign of a loss: a datagram that came and found no memory is requested again, and so are all messages
/// in an outage. Receipts show it: bytes count as lost only if shorter datagrams that left later are known to have come.
const IN_VAIN: u8 = 12;
