//! Parity of large messages over datagrams: with m parity pieces, any m lost fragments of a message are restored without a
//! retransmit (F-14). Reed–Solomon over GF(2¹⁶) by Lin, Han and Chung's transform (crate `reed-solomon-simd`). Pure.

use reed_solomon_simd::{Error, ReedSolomonDecoder, ReedSolomonEncoder};
use std::fmt;

/// The number of parity pieces of a large message, in percent of its fragments: 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redundancy(u8);

impl Redundancy {
    /// A redundancy in percent; `None`: not within 1 to 100.
    pub fn percent(percent: u8) -> Option<Self> {
        (1..=100).contains(&percent).then_some(Self(percent))
    }

    /// Makes the tables of the code, once for the process, on this thread: 16 MB, and more stack than sending threads have.
    pub(crate) fn prepare(self) -> Self {
        let _ = Encoder::default().encode(&[0; 4], 2, 1, &mut Vec::new()); // its result is not needed
        self
    }

    /// The number of parity pieces for this many fragments; 0: none are possible (one fragment is sent whole, above 32,768 there
    /// are too many).
    pub(crate) fn pieces(self, fragments: usize) -> usize {
        let count = (fragments * usize::from(self.0)).div_ceil(100);
        if fragments > 1 && can_be(fragments, count) { count } else { 0 }
    }
}

/// `true` if `count` parity pieces of this many fragments are possible.
pub(crate) fn can_be(fragments: usize, count: usize) -> bool {
    fragments > 0 && count > 0 && ReedSolomonEncoder::supports(fragments, count)
}

/// Makes parity pieces. Its memory is reused.
#[derive(Default)]
pub(crate) struct Encoder {
    inner: Option<ReedSolomonEncoder>,
    padded: Vec<u8>,
}

impl Encoder {
    /// Writes `count` pieces of `step` bytes (an even number) for a message, one after the other.
    ///
    /// # Errors
    /// Such pieces are not possible.
    pub(crate) fn encode(
        &mut self,
        message: &[u8],
        step: usize,
        count: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let fragments = message.len().div_ceil(step.max(1));
        let encoder = match &mut self.inner {
            Some(encoder) => {
                encoder.reset(fragments, count, step)?;
                encoder
            }
            none => none.insert(ReedSolomonEncoder::new(fragments, count, step)?),
        };
        for piece in message.chunks(step) {
            encoder.add_original_shard(padded(piece, step, &mut self.padded))?;
        }
        into.clear();
        encoder.encode()?.recovery_iter().for_each(|piece| into.extend_from_slice(piece));
        Ok(())
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

/// Restores the missing fragments of a message from `parity`: pieces with their numbers, of `count` that were made. The
/// fragment at `n * step` is here if `has(n)`.
///
/// # Errors
/// There are too few pieces, or they do not fit.
pub(crate) fn restore<'p>(
    message: &mut [u8],
    step: usize,
    has: impl Fn(usize) -> bool,
    count: usize,
    parity: impl Iterator<Item = (usize, &'p [u8])>,
) -> Result<(), Error> {
    let fragments = message.len().div_ceil(step.max(1));
    let mut decoder = ReedSolomonDecoder::new(fragments, count, step)?;
    let mut whole = Vec::new();
    for (index, piece) in message.chunks(step).enumerate().filter(|(index, _)| has(*index)) {
        decoder.add_original_shard(index, padded(piece, step, &mut whole))?;
    }
    for (index, piece) in parity {
        decoder.add_recovery_shard(index, piece)?;
    }
    let restored = decoder.decode()?;
    for (index, piece) in restored.restored_original_iter() {
        if let Some(place) = message.chunks_mut(step).nth(index) {
            place.copy_from_slice(&piece[..place.len()]);
        }
    }
    Ok(())
}

/// The piece with zeros behind it: the last one of a message is shorter.
fn padded<'a>(piece: &'a [u8], step: usize, memory: &'a mut Vec<u8>) -> &'a [u8] {
    if piece.len() == step {
        return piece;
    }
    memory.clear();
    memory.extend_from_slice(piece);
    memory.resize(step, 0);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_are_a_share_of_the_fragments() {
        let of = |percent| Redundancy::percent(percent).unwrap();
        assert_eq!([2, 5, 10, 11].map(|n| of(20).pieces(n)), [1, 1, 2, 3]);
        assert_eq!((of(20).pieces(1), of(100).pieces(7), of(1).pieces(40_000)), (0, 7, 400));
        assert_eq!((of(100).pieces(1 << 20), Redundancy::percent(0), Redundancy::percent(101)), (0, None, None));
    }

    proptest! {
        /// Any fragments may be lost, as long as they are no more than the parity pieces.
        #[test]
        fn as_many_fragments_as_there_is_parity_may_be_lost(
            length in 1_usize..4000, half in 1_usize..50, percent in 1_u8..=100, seed: u64,
        ) {
            let step = 2 * half;
            let fragments = length.div_ceil(step);
            let count = Redundancy::percent(percent).unwrap().pieces(fragments);
            prop_assume!(count > 0);
            let message: Vec<u8> = (0..length).map(|i| (i as u64 * 31 + seed) as u8).collect();
            let (mut encoder, mut pieces) = (Encoder::default(), Vec::new());
            encoder.encode(&message, step, count, &mut pieces).unwrap();
            prop_assert_eq!(pieces.len(), count * step);
            // Loses `count` of all pieces, fragments and parity.
            let mut order: Vec<usize> = (0..fragments + count).collect();
            order.sort_by_key(|n| (*n as u64 + 1).wrapping_mul(seed | 1).rotate_left(17));
            let lost = &order[..count];
            let mut came = message.clone();
            for n in lost.iter().filter(|n| **n < fragments) {
                came.chunks_mut(step).nth(*n).unwrap().fill(0);
            }
            let has = |n: usize| !lost.contains(&n);
            let parity = pieces.chunks(step).enumerate().filter(|(n, _)| has(fragments + n));
            restore(&mut came, step, has, count, parity).unwrap();
            prop_assert!(came == message);
        }
    }
}
