//! Samples that wait until their way is known, within limits: a way that never opens costs no more memory than they say.

use std::collections::VecDeque;

/// At most so many samples of a topic or pattern wait, and so many bytes.
pub(super) const MOST: usize = 1024;
pub(super) const MOST_BYTES: usize = 16 << 20;

/// Samples in their order, each with what is known of it.
pub(super) struct Early<T> {
    samples: VecDeque<(T, Vec<u8>)>,
    bytes: usize,
}

impl<T> Default for Early<T> {
    fn default() -> Self {
        Self { samples: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Early<T> {
    /// Keeps a sample; `false`: beyond the limits the oldest were dropped for it.
    pub(super) fn keep(&mut self, about: T, message: Vec<u8>) -> bool {
        self.bytes += message.len();
        self.samples.push_back((about, message));
        let before = self.samples.len();
        while self.samples.len() > MOST || self.bytes > MOST_BYTES {
            if self.take_first(|_| true).is_none() {
                break;
            }
        }
        self.samples.len() == before
    }

    /// Takes the oldest sample of which this holds.
    pub(super) fn take_first(&mut self, holds: impl Fn(&T) -> bool) -> Option<(T, Vec<u8>)> {
        let at = self.samples.iter().position(|(about, _)| holds(about))?;
        let (about, message) = self.samples.remove(at)?;
        self.bytes -= message.len();
        Some((about, message))
    }

    /// Drops the samples of which this does not hold.
    pub(super) fn retain(&mut self, holds: impl Fn(&T) -> bool) {
        self.samples.retain(|(about, _)| holds(about));
        self.bytes = self.samples.iter().map(|(_, message)| message.len()).sum();
    }

    /// What is known of each, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.samples.iter().map(|(about, _)| about)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(early: &mut Early<usize>) -> Vec<usize> {
        std::iter::from_fn(|| early.take_first(|_| true)).map(|(number, _)| number).collect()
    }

    #[test]
    fn beyond_their_number_the_oldest_are_dropped() {
        let mut early = Early::default();
        assert!((0..MOST).all(|number| early.keep(number, vec![0; 10])));
        assert!(!early.keep(MOST, vec![0; 10]), "it is told");
        assert_eq!(taken(&mut early), (1..=MOST).collect::<Vec<_>>());
        assert!((0..MOST).all(|number| early.keep(number, vec![0; MOST_BYTES / MOST])), "what was taken has left room");
    }

    #[test]
    fn beyond_their_bytes_the_oldest_are_dropped() {
        let mut early = Early::default();
        let quarter = || vec![0; MOST_BYTES / 4];
        assert!((0..4).all(|number| early.keep(number, quarter())));
        assert!(!early.keep(4, vec![0; 1]));
        assert_eq!(taken(&mut early), [1, 2, 3, 4]);
        assert!(!early.keep(5, vec![0; MOST_BYTES + 1]), "one that is larger than all may be");
        assert_eq!(taken(&mut early), [0; 0]);
        assert!(early.keep(6, quarter()) && early.keep(7, quarter()));
        early.retain(|number| *number == 7);
        assert!((8..11).all(|number| early.keep(number, quarter())), "what was dropped has left room");
    }

    #[test]
    fn one_publishers_samples_are_taken_in_their_order() {
        let mut early = Early::default();
        (0..6).for_each(|number| assert!(early.keep(number, vec![0; number])));
        let odd: Vec<usize> =
            std::iter::from_fn(|| early.take_first(|number| number % 2 == 1)).map(|(number, _)| number).collect();
        assert_eq!((odd, early.iter().any(|number| number % 2 == 1)), (vec![1, 3, 5], false));
        assert_eq!(taken(&mut early), [0, 2, 4]);
    }
}
