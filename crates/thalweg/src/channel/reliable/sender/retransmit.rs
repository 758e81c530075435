//! Retransmits, their receivers and times: on request, or before a request if there is a deadline.

use super::{Action, FEW, GATHER_NS, MOST_COPIES, Sender, Sent, To};
use crate::channel::reliable::widen;
use crate::wire::feedback::Gap;
use std::ops::Range;

/// Gaps that are remembered of a message whose end has not left yet.
const MOST_EARLY: usize = 64;

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
        let patience = self.trip.smoothed_ns();
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
        let (most, patience) = (self.settings.largest, self.trip.smoothed_ns());
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
        let interval = self.members.worst().interval_ns(self.trip.smoothed_ns());
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
}

impl Sent {
    /// Bytes before `to` were retransmitted: a member that asks for them within `patience` has not got the answer yet.
    fn note_retransmitted(&mut self, now_ns: u64, to: usize, patience: u64) {
        let still = now_ns.saturating_sub(self.retransmitted_at) < patience;
        self.retransmitted_to = if still { self.retransmitted_to.max(to) } else { to };
        self.retransmitted_at = now_ns;
    }
}

/// The most requested ranges that are remembered of a message: a further one widens the last. Holes of an honest subscriber are whole
/// fragments; requests for single bytes would make each next acknowledgement more work.
const MOST_RANGES: usize = 64;

/// Widens these bytes to whole pieces: a subscriber reassembles only equal pieces, and may miss bytes that were cut otherwise.
pub(super) fn aligned(bytes: Range<u32>, piece: u32, length: u32) -> Range<u32> {
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
