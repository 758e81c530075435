//! The numbers of one publisher's samples. A publisher counts its samples without gaps, so a number that does not come is a loss: from the one on
//! that follows the publisher's last sample when the recorder's channel joined it.

use std::collections::VecDeque;
use thalweg::SampleInfo;

/// Some sequence numbers: the lowest, the highest, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) count: u64,
}

impl Span {
    /// Adds a number.
    pub(super) fn add(&mut self, seq: u64) {
        self.join(Span { first: seq, last: seq, count: 1 });
    }

    /// Adds others, which are not in it.
    pub(super) fn join(&mut self, other: Span) {
        if other.count == 0 {
            return;
        }
        let first = if self.count == 0 { other.first } else { self.first.min(other.first) };
        *self = Span { first, last: self.last.max(other.last), count: self.count.saturating_add(other.count) };
    }
}

/// Gaps that may still close: the oldest becomes a loss when there are more.
const MOST_GAPS: usize = 1024;

/// The samples of one publisher that came, and those that did not.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    incarnation: u64,
    /// The lowest number that counts. It is the first one that the publisher sent here if `is_joined`, and the first one that came otherwise.
    first: u64,
    is_joined: bool,
    /// The number after the highest one that came, or `first`; 0: neither is known.
    next: u64,
    /// Numbers that did not come, and whether they were missing a second ago.
    gaps: VecDeque<(u64, u64, bool)>,
    lost: Span,
    dropped: Span,
}

impl Arrivals {
    /// Notes a sample that came. `joined_after` gives the number of the publisher's last sample when the recorder's channel joined it, as soon as
    /// that is known. Samples up to it are no loss.
    pub(super) fn note(&mut self, info: &SampleInfo, joined_after: impl FnOnce() -> Option<u64>) {
        if info.incarnation != self.incarnation {
            self.settle_gaps(true); // another start of the publisher, which counts anew
            (self.incarnation, self.first, self.is_joined, self.next) = (info.incarnation, 0, false, 0);
        }
        if !self.is_joined
            && let Some(after) = joined_after()
        {
            self.join_at(after.saturating_add(1));
        }
        if info.seq < self.next {
            return self.close_gap(info.seq);
        }
        if info.historical && !self.is_joined {
            return; // of a history, which need not be without gaps
        }
        if self.next > 0 && info.seq > self.next {
            self.gaps.push_back((self.next, info.seq - 1, false));
            if self.gaps.len() > MOST_GAPS {
                self.lose_oldest();
            }
        }
        if self.next == 0 {
            self.first = info.seq;
        }
        self.next = info.seq.saturating_add(1);
    }

    /// Numbers from `first` on count.
    fn join_at(&mut self, first: u64) {
        self.is_joined = true;
        if self.next == 0 {
            self.next = first;
        } else if first < self.first {
            self.gaps.push_front((first, self.first - 1, false)); // samples came before this was known
        }
        self.first = first;
    }

    /// Notes that the recorder drops a sample.
    pub(super) fn drop_sample(&mut self, seq: u64) {
        self.dropped.add(seq);
    }

    /// What was lost before it arrived here and what was dropped here, since the last call. Gaps of the last second may still close,
    /// unless this is the `end`.
    pub(super) fn take(&mut self, end: bool) -> (Span, Span) {
        self.settle_gaps(end);
        (std::mem::take(&mut self.lost), std::mem::take(&mut self.dropped))
    }

    /// The highest number that came.
    #[cfg(test)]
    pub(super) fn highest(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    fn settle_gaps(&mut self, all: bool) {
        while self.gaps.front().is_some_and(|(_, _, before)| *before || all) {
            self.lose_oldest();
        }
        self.gaps.iter_mut().for_each(|(_, _, before)| *before = true);
    }

    fn lose_oldest(&mut self) {
        if let Some((first, last, _)) = self.gaps.pop_front() {
            self.lost.join(Span { first, last, count: last - first + 1 });
        }
    }

    /// A late sample closes its gap, or a part of it.
    fn close_gap(&mut self, seq: u64) {
        let Some(at) = self.gaps.iter().position(|(first, last, _)| (*first..=*last).contains(&seq)) else { return };
        let Some((first, last, before)) = self.gaps.remove(at) else { return };
        if seq < last {
            self.gaps.insert(at, (seq + 1, last, before));
        }
        if seq > first {
            self.gaps.insert(at, (first, seq - 1, before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use thalweg::Change;
    use thalweg::control::{NodeId, PortId};

    fn sample(incarnation: u64, seq: u64) -> SampleInfo {
        SampleInfo {
            node: NodeId(1),
            port: PortId(1),
            incarnation,
            seq,
            source_ns: 0,
            received_ns: 0,
            same_clock: true,
            historical: false,
            change: Change::Written,
            scaled: None,
        }
    }

    fn unknown() -> Option<u64> {
        None
    }

    fn span(first: u64, last: u64, count: u64) -> Span {
        Span { first, last, count }
    }

    #[test]
    fn a_gap_is_a_loss_after_a_second_unless_it_closes() {
        let mut arrivals = Arrivals::default();
        [7, 8, 12, 15].iter().for_each(|seq| arrivals.note(&sample(1, *seq), unknown));
        assert_eq!(arrivals.take(false), (Span::default(), Span::default()), "9 to 11, 13 and 14 may come");
        arrivals.note(&sample(1, 10), unknown);
        arrivals.note(&sample(1, 18), unknown);
        arrivals.drop_sample(18);
        assert_eq!(arrivals.take(false), (span(9, 14, 4), span(18, 18, 1)), "16 and 17 may come");
        assert_eq!(arrivals.take(true), (span(16, 17, 2), Span::default()));
    }

    #[test]
    fn another_start_of_the_publisher_counts_anew_and_history_has_gaps() {
        let mut arrivals = Arrivals::default();
        arrivals.note(&SampleInfo { historical: true, ..sample(1, 2) }, unknown);
        [1, 3].iter().for_each(|seq| arrivals.note(&sample(1, 10 * seq), unknown));
        [1, 2].iter().for_each(|seq| arrivals.note(&sample(2, *seq), unknown));
        assert_eq!(arrivals.take(true), (span(11, 29, 19), Span::default()));
    }

    #[test]
    fn what_is_lost_before_the_first_sample_counts_from_the_join_on() {
        let mut arrivals = Arrivals::default();
        arrivals.note(&sample(1, 9), || Some(10)); // of another member's group: it was published before
        arrivals.note(&sample(1, 13), || panic!("it is known"));
        assert_eq!(arrivals.take(false), Default::default(), "11 and 12 may come");
        arrivals.note(&sample(1, 12), unknown);
        assert_eq!(arrivals.take(true).0, span(11, 11, 1));
        arrivals.note(&sample(2, 3), || Some(0));
        assert_eq!(arrivals.take(true).0, span(1, 2, 2), "another start, and another join");
        arrivals.note(&sample(3, 1), || Some(0));
        assert_eq!(arrivals.take(true).0, span(0, 0, 0));
    }

    #[test]
    fn a_join_that_is_known_late_counts_the_same() {
        let mut arrivals = Arrivals::default();
        arrivals.note(&sample(1, 5), unknown);
        arrivals.note(&sample(1, 7), || Some(2));
        assert_eq!(arrivals.take(true).0, span(3, 6, 3));
    }

    #[test]
    fn a_history_fills_gaps_behind_the_join_and_makes_none_before_it() {
        let historical = |seq| SampleInfo { historical: true, ..sample(1, seq) };
        let mut arrivals = Arrivals::default();
        [2, 9].iter().for_each(|seq| arrivals.note(&historical(*seq), || Some(10)));
        [11, 12].iter().for_each(|seq| arrivals.note(&historical(*seq), unknown));
        arrivals.note(&sample(1, 15), unknown);
        arrivals.note(&historical(13), unknown);
        assert_eq!(arrivals.take(true).0, span(14, 14, 1));
    }

    #[test]
    fn gaps_are_bounded() {
        let mut arrivals = Arrivals::default();
        (0..=2 * MOST_GAPS as u64 + 1).for_each(|n| arrivals.note(&sample(1, 1 + 2 * n), unknown));
        assert_eq!(arrivals.gaps.len(), MOST_GAPS);
        assert_eq!(arrivals.take(true).0.count, 2 * MOST_GAPS as u64 + 1);
    }

    proptest! {
        /// Any order, any losses, any number of looks: what is lost at the end is what did not come after the first.
        #[test]
        fn every_number_that_does_not_come_is_lost(order in prop::collection::vec(1u64..200, 1..100)) {
            let (mut arrivals, mut came, mut highest) = (Arrivals::default(), BTreeSet::new(), 0);
            order.iter().for_each(|seq| arrivals.note(&sample(1, *seq), unknown));
            for seq in order.iter().filter(|seq| **seq >= order[0]) {
                came.insert(*seq);
                highest = highest.max(*seq);
            }
            let missing = (order[0]..=highest).filter(|seq| !came.contains(seq)).count() as u64;
            prop_assert_eq!(arrivals.take(true).0.count, missing);
        }
    }
}
