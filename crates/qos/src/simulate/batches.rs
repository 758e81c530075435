//! Samples that leave together: a publisher with a latency budget lets its samples wait for others.
//!
//! A sample that comes after a pause leaves at once. Those that come soon after it wait, until the first of them has waited as long as it may;
//! then all leave as one piece. So does `channel/flow/batch.rs` of the crate `thalweg`; what is full before its time, which only makes samples
//! earlier, is left out here.

use std::collections::HashMap;

/// The samples that wait where a stage sends, by stage, and the pieces that are on their way.
#[derive(Debug, Default)]
pub(super) struct Batches {
    waiting: HashMap<usize, Waiting>,
    pieces: HashMap<usize, Vec<usize>>,
}

#[derive(Debug, Default)]
struct Waiting {
    samples: Vec<usize>,
    left: Option<u64>,
}

/// What becomes of a sample that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It leaves.
    Leaves,
    /// It waits, and is the first: all leave at this time.
    First(u64),
    /// It waits with others.
    Waits,
}

impl Batches {
    /// A sample is to be sent at a stage, where samples wait this long at most.
    pub(super) fn comes(&mut self, now: u64, stage: usize, sample: usize, longest: u64) -> Turn {
        let waiting = self.waiting.entry(stage).or_default();
        let first = waiting.samples.is_empty();
        if first && waiting.left.is_none_or(|left| now.saturating_sub(left) >= longest) {
            waiting.left = Some(now);
            return Turn::Leaves;
        }
        waiting.samples.push(sample);
        if first { Turn::First(now.saturating_add(longest)) } else { Turn::Waits }
    }

    /// The samples whose time is up.
    pub(super) fn leave(&mut self, now: u64, stage: usize) -> Vec<usize> {
        let waiting = self.waiting.entry(stage).or_default();
        waiting.left = Some(now);
        std::mem::take(&mut waiting.samples)
    }

    /// These samples are one piece, with a number of its own.
    pub(super) fn join(&mut self, piece: usize, samples: Vec<usize>) {
        self.pieces.insert(piece, samples);
    }

    /// The samples of a piece; none: it is a sample.
    pub(super) fn of(&self, piece: usize) -> Option<&[usize]> {
        self.pieces.get(&piece).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_after_a_pause_leaves_and_those_behind_it_wait_together() {
        let mut all = Batches::default();
        let came: Vec<Turn> = [0, 0, 4, 10].into_iter().zip(0..).map(|(at, n)| all.comes(at, 7, n, 10)).collect();
        assert_eq!(came, [Turn::Leaves, Turn::First(10), Turn::Waits, Turn::Waits]);
        assert_eq!((all.leave(10, 7), all.leave(10, 7)), (vec![1, 2, 3], Vec::new()));
        assert_eq!(
            [all.comes(19, 7, 4, 10), all.comes(19, 8, 4, 10)],
            [Turn::First(29), Turn::Leaves],
            "each stage for itself"
        );
        assert_eq!((all.leave(29, 7), all.comes(39, 7, 5, 10)), (vec![4], Turn::Leaves));
        all.join(6, vec![1, 2]);
        assert_eq!((all.of(6), all.of(1)), (Some(&[1, 2][..]), None));
    }
}
