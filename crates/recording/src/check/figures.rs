//! Durations in the order in which they came, in memory that does not grow: blocks of consecutive ones, each a histogram.
//!
//! Neighbouring samples of a run are alike (one burst delays many), so a bootstrap draws blocks, not samples (Künsch 1989).

use std::collections::BTreeMap;

/// Counts of durations, to 0.8 %.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Histogram {
    counts: BTreeMap<u16, u32>,
    total: u64,
}

impl Histogram {
    fn record(&mut self, ns: u64) {
        self.add(bin(ns), 1);
    }

    fn add(&mut self, bin: u16, count: u32) {
        let held = self.counts.entry(bin).or_default();
        *held = held.saturating_add(count);
        self.total += u64::from(count);
    }

    /// Adds all of another one.
    pub(super) fn merge(&mut self, other: &Self) {
        other.counts.iter().for_each(|(bin, count)| self.add(*bin, *count));
    }

    /// The duration that this share (0 to 1) of all does not exceed, ns; 0 of none.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        quantile(self.counts.iter().map(|(bin, count)| (*bin, u64::from(*count))), self.total, share)
    }

    /// Its bins that are not empty, in order.
    pub(super) fn bins(&self) -> impl DoubleEndedIterator<Item = (u16, u32)> {
        self.counts.iter().map(|(bin, count)| (*bin, *count))
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

/// The duration of the first bin up to which this share of all lies.
pub(super) fn quantile(bins: impl Iterator<Item = (u16, u64)>, total: u64, share: f64) -> f64 {
    let rank = ((total as f64 * share).ceil() as u64).max(1);
    let mut below = 0;
    for (bin, count) in bins {
        below += count;
        if below >= rank {
            return middle(bin);
        }
    }
    0.0
}

/// The bin of a duration: 64 for each power of two, and below 128 ns one for each nanosecond.
fn bin(ns: u64) -> u16 {
    let shift = ns.checked_ilog2().unwrap_or(0).saturating_sub(6);
    (shift * 64) as u16 + (ns >> shift) as u16
}

/// The middle of a bin, ns.
fn middle(bin: u16) -> f64 {
    let shift = u32::from(bin / 64).saturating_sub(1);
    let low = (u64::from(bin) - u64::from(shift) * 64) << shift;
    low as f64 + ((1u64 << shift) as f64 - 1.0) / 2.0
}

/// Durations of one kind in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Figures {
    blocks: Vec<Histogram>,
    /// Durations of a full block.
    full: u64,
    longest: u64,
}

impl Default for Figures {
    fn default() -> Self {
        Self { blocks: Vec::new(), full: SMALLEST, longest: 0 }
    }
}

impl Figures {
    /// Adds the next duration.
    pub(super) fn record(&mut self, ns: u64) {
        if self.blocks.last().is_none_or(|last| last.total >= self.full) {
            self.make_room();
            self.blocks.push(Histogram::default());
        }
        self.blocks.last_mut().into_iter().for_each(|last| last.record(ns));
        self.longest = self.longest.max(ns);
    }

    /// Makes one block of each two neighbours when there are as many as there may be.
    fn make_room(&mut self) {
        if self.blocks.len() < MOST_BLOCKS {
            return;
        }
        let pairs = self.blocks.chunks(2).map(|pair| {
            let mut merged = Histogram::default();
            pair.iter().for_each(|block| merged.merge(block));
            merged
        });
        self.blocks = pairs.collect();
        self.full *= 2;
    }

    /// The blocks, in order.
    pub(super) fn blocks(&self) -> &[Histogram] {
        &self.blocks
    }

    /// The number of durations.
    pub(super) fn count(&self) -> u64 {
        self.blocks.iter().map(Histogram::total).sum()
    }

    /// The longest one, ns.
    pub(super) fn longest(&self) -> u64 {
        self.longest
    }
}

/// The histogram of all these blocks.
pub(super) fn whole<'a>(blocks: impl IntoIterator<Item = &'a Histogram>) -> Histogram {
    let mut all = Histogram::default();
    blocks.into_iter().for_each(|block| all.merge(block));
    all
}

/// Durations of the first blocks.
const SMALLEST: u64 = 8;
/// Blocks of a run: half as many at least, of a run that has them.
const MOST_BLOCKS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_of_known_durations_are_right() {
        let mut figures = Figures::default();
        (1..=10_000u64).for_each(|us| figures.record(us * 1000));
        let all = whole(figures.blocks());
        for (share, expected) in [(0.5, 5e6), (0.99, 9.9e6), (1.0, 10e6)] {
            let found = all.quantile(share);
            assert!((found / expected - 1.0).abs() < 0.01, "{share}: {found}");
        }
        assert_eq!((figures.count(), figures.longest()), (10_000, 10_000_000));
        assert_eq!(Histogram::default().quantile(0.5), 0.0);
    }

    #[test]
    fn blocks_are_of_one_size_and_as_many_as_a_bootstrap_needs() {
        for count in [1, 8, 9, 300, 1000, 100_000] {
            let mut figures = Figures::default();
            (0..count).for_each(|ns| figures.record(ns));
            let blocks = figures.blocks();
            assert!(blocks.len() <= MOST_BLOCKS && (count < 300 || blocks.len() >= MOST_BLOCKS / 2), "{count}");
            assert!(blocks[..blocks.len() - 1].iter().all(|block| block.total == figures.full), "{count}");
            assert_eq!(figures.count(), count);
        }
    }

    proptest! {
        #[test]
        fn a_duration_is_in_its_bin(ns: u64, other: u64) {
            prop_assert!((middle(bin(ns)) / (ns as f64).max(1.0) - 1.0).abs() <= 0.008 || ns == 0);
            prop_assert_eq!(ns <= other, bin(ns) <= bin(other) && (bin(ns) != bin(other) || ns <= other));
        }
    }
}
