//! Datagrams that were received together, one behind the other.

use crate::wire;
use std::ops::Range;

/// The length of each datagram, from the first one's header: all have one length, and the last may be shorter. If the buffer was
/// too small for a single datagram, this length exceeds the received bytes.
#[inline]
pub(super) fn segment(buffer: &[u8], count: usize) -> usize {
    buffer.get(..count).and_then(wire::frame_length).unwrap_or(count)
}

/// The place of each datagram in `count` bytes. There is at least one, which may be empty.
#[inline]
pub(super) fn datagrams(count: usize, segment: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (0..count.max(1)).step_by(segment.max(1));
    starts.map(move |at| at..at.saturating_add(segment).min(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::HEADER;

    /// Start and end of each datagram in a buffer of 1000 bytes whose first header announces `says` bytes behind it.
    fn all(count: usize, says: u32) -> Vec<(usize, usize)> {
        let mut buffer = vec![0; 1000];
        buffer[..4].copy_from_slice(&says.to_le_bytes());
        let segment = segment(&buffer, count);
        datagrams(count, segment).map(|at| (at.start, at.end)).collect()
    }

    #[test]
    fn each_is_where_it_is() {
        assert_eq!(all(120, 8), [(0, 40), (40, 80), (80, 120)]);
        assert_eq!(all(100, 8), [(0, 40), (40, 80), (80, 100)]);
        assert_eq!((all(40, 8), all(64, 0)), (vec![(0, 40)], vec![(0, 32), (32, 64)]));
    }

    #[test]
    fn any_announced_length_gives_datagrams_within_the_received_bytes() {
        assert_eq!((all(0, 0), all(0, u32::MAX), all(1, 0)), (vec![(0, 0)], vec![(0, 0)], vec![(0, 1)]));
        assert_eq!((all(31, 0), all(40, 9), all(40, u32::MAX)), (vec![(0, 31)], vec![(0, 40)], vec![(0, 40)]));
        assert_eq!((all(1001, 8), all(usize::MAX, 0)), (vec![(0, 1001)], vec![(0, usize::MAX)]));
        for (count, says) in (0..200).flat_map(|count| (0..220).map(move |says| (count, says))) {
            let ends = all(count, says);
            assert!(ends.windows(2).all(|two| two[0].1 == two[1].0 && two[0].1 - two[0].0 >= HEADER));
            assert_eq!((ends[0].0, ends[ends.len() - 1].1), (0, count));
        }
    }
}
