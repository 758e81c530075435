//! Datagrams that do not come through because they are too long, without an error.

use super::controlled::{AGAIN, Controlled};
use super::retransmit::aligned;
use super::{Sender, Sent};
use crate::channel::fragment::piece;
use crate::channel::reliable::widen;
use crate::wire::feedback::Datagram;
use crate::wire::{FRAGMENT_HEADER, HEADER};
use std::ops::Range;

/// Lengths of a datagram that every path is expected to take (BASE_PLPMTU of RFC 8899 §5.1.2), and of one that every host takes: 576
/// bytes with the headers of IP and UDP (RFC 1122 §3.3.2).
pub(crate) const EXPECTED: [usize; 2] = [1200, 548];
/// Number of losses after which a longer retransmit counts as too long: at 30 % loss this is wrong for one in 10⁶. The
/// subscriber asks ever less often, so it takes two seconds.
///
/// A repeated request is no sign of a loss: a datagram that came and found no memory is requested again, and so are all messages
/// in an outage. Receipts show it: bytes count as lost only if shorter datagrams that left later are known to have come.
const IN_VAIN: u8 = 12;

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

impl Sender {
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
    pub(super) fn note_round(&mut self, index: usize, bytes: &Range<usize>) {
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
        let repeats = datagram.mark & AGAIN != 0;
        if repeats && (is_long || datagram.offset == sent.rounds.lowest) {
            sent.rounds = Rounds::default();
        }
    }
}
