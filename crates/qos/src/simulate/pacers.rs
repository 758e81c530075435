//! Publishers with a pace: the packets of a sample come to the link one after the other, as fast as the pace allows.
//!
//! Whether a pace counts headers, and how many packets a socket hands on in one piece, depends on the carrier; a run has one of each, by its seed.

use std::collections::HashMap;

use super::work::Crossing;

/// Most bytes that a socket hands on in one piece: a super-packet.
const PIECE: u64 = 65_536;

/// The time at which each stage with a pace may send again.
#[derive(Debug)]
pub(super) struct Pacers {
    free: HashMap<usize, u64>,
    headers: bool,
    pieces: bool,
}

impl Pacers {
    pub(super) fn new(seed: u64) -> Self {
        Self { free: HashMap::new(), headers: seed.is_multiple_of(2), pieces: (seed / 2).is_multiple_of(2) }
    }

    /// A sample is to be sent at a stage: the times at which packets leave, their numbers, and which are the last.
    pub(super) fn comes(&mut self, now: u64, stage: usize, crossing: &Crossing) -> Vec<(u64, u64, bool)> {
        let free = self.free.entry(stage).or_default();
        let (mut at, mut left, mut all) = (now.max(*free), crossing.count, Vec::new());
        // After a pause the kernel takes half of a piece's time off.
        let mut part = if self.pieces && now > *free { 2 } else { 1 };
        let largest = if self.pieces { crossing.most_in_a_piece(PIECE) } else { 1 };
        while left > 0 {
            let packets = left.min(largest);
            left -= packets;
            all.push((at, packets, left == 0));
            let last = u64::from(left == 0);
            let bytes = crossing.bytes(packets - last, self.headers) + crossing.last_bytes(self.headers) * last;
            let time = (u128::from(bytes) * 8_000_000_000).div_ceil(crossing.pace.into()) as u64;
            at = at.saturating_add(time / part);
            part = 1;
        }
        *free = at;
        all
    }
}
