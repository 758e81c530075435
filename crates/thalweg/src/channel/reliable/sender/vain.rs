//! Datagrams that do not come through because they are too long, and nobody says so.

use super::repeat::aligned;
use super::{Sender, Sent};
use crate::channel::fragment::piece;
use crate::wire::{FRAGMENT_HEADER, HEADER};
use std::ops::Range;

/// A datagram that every path is expected to take (BASE_PLPMTU of RFC 8899 §5.1.2), and one that every host takes: 576 bytes with the
/// headers of IP and UDP (RFC 1122 §3.3.2).
pub const EXPECTED: [usize; 2] = [1200, 548];
/// A longer one that is missed and repeated so often does not come through: at 30 % loss this happens to one in 10⁶. The subscriber
/// asks ever less often, so it takes two seconds. It asks, so what is shorter does come through.
const IN_VAIN: u8 = 12;

/// How often the first missing bytes of a message were repeated.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    lowest: u32, // of the round
    latest: u32,
    count: u8,
}

impl Default for Rounds {
    fn default() -> Self {
        Self { lowest: u32::MAX, latest: u32::MAX, count: 0 }
    }
}

impl Rounds {
    /// Bytes from here on are repeated. Gives how often in vain so far.
    fn repeated(&mut self, from: u32) -> u8 {
        if from <= self.latest {
            // What is repeated in a round goes up.
            self.count = if from == self.lowest { self.count.saturating_add(1) } else { 1 };
            self.lowest = from;
        }
        self.latest = from;
        self.count
    }
}

impl Sender {
    /// From now on datagrams have at most so many bytes. What is missing is cut anew.
    pub fn shrink(&mut self, most: usize) {
        if piece(most) >= self.settings.largest {
            return; // two threads found out at once, and the one that found more comes last
        }
        self.settings.largest = piece(most);
        (self.cut_anew, self.in_vain) = (true, false);
        if let Some(controlled) = &mut self.controlled {
            controlled.shrink(most);
        }
        let piece = self.settings.largest as u32;
        for Sent { entry, wanted, repeated_to, rounds, .. } in &mut self.sent {
            let length = (entry.buffer.payload().len() as u32).max(1);
            wanted.iter_mut().for_each(|bytes| *bytes = aligned(bytes.clone(), piece, length));
            wanted.dedup_by(|next, bytes| {
                let meet = next.start <= bytes.end;
                bytes.end = if meet { bytes.end.max(next.end) } else { bytes.end };
                meet
            });
            (*repeated_to, *rounds) = (0, Rounds::default());
        }
    }

    /// Of a message these bytes are repeated, because somebody asked. Only where one subscriber tells what came: what one member of a
    /// group does not get must not slow the others.
    pub(super) fn note_round(&mut self, index: usize, bytes: &Range<usize>) {
        let count = self.sent[index].rounds.repeated(bytes.start as u32);
        let length = HEADER + FRAGMENT_HEADER + bytes.len();
        self.in_vain |= count > IN_VAIN && self.controlled.is_some() && EXPECTED.iter().any(|most| *most < length);
    }
}
