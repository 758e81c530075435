//! The uncertainty of a difference between two runs, by drawing their blocks again (Künsch 1989; Efron 1979). The seed is fixed: the same
//! files give the same verdict.

use super::figures::{Histogram, quantile, whole};

/// Draws numbers: SplitMix64 (Steele, Lea, Flood 2014).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0 … count − 1`.
    fn below(&mut self, count: usize) -> usize {
        (self.next() % (count as u64).max(1)) as usize
    }
}

/// A change between two runs, and the least that it is with 99 % confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Change {
    pub(super) before_ns: f64,
    pub(super) after_ns: f64,
    /// The lower end of the interval of `after − before`.
    pub(super) least_ns: f64,
}

/// The change of a quantile from these blocks to those.
pub(super) fn change(before: &[&Histogram], after: &[&Histogram], share: f64) -> Change {
    let of = |blocks: &[&Histogram]| whole(blocks.iter().copied()).quantile(share);
    let (mut first, mut second) = (Drawn::of(before), Drawn::of(after));
    let mut dice = Dice::new(SEED);
    let mut differences: Vec<f64> =
        (0..DRAWS).map(|_| second.draw(&mut dice, share) - first.draw(&mut dice, share)).collect();
    differences.sort_by(f64::total_cmp);
    let least_ns = differences.get(DRAWS / 100).copied().unwrap_or_default();
    Change { before_ns: of(before), after_ns: of(after), least_ns }
}

/// Blocks to draw from, and the counts of a draw.
struct Drawn<'a> {
    blocks: &'a [&'a Histogram],
    first: u16,
    counts: Vec<u64>,
}

impl<'a> Drawn<'a> {
    fn of(blocks: &'a [&'a Histogram]) -> Self {
        let bins = || blocks.iter().flat_map(|block| block.bins().map(|(bin, _)| bin));
        let (first, last) = (bins().min().unwrap_or(0), bins().max().unwrap_or(0));
        Self { blocks, first, counts: vec![0; usize::from(last - first) + 1] }
    }

    /// The quantile of as many blocks as there are, drawn with repetition.
    fn draw(&mut self, dice: &mut Dice, share: f64) -> f64 {
        self.counts.fill(0);
        let mut total = 0;
        for _ in 0..self.blocks.len() {
            let Some(block) = self.blocks.get(dice.below(self.blocks.len())) else { continue };
            total += block.total();
            for (bin, count) in block.bins() {
                if let Some(held) = self.counts.get_mut(usize::from(bin - self.first)) {
                    *held += u64::from(count);
                }
            }
        }
        let bins = self.counts.iter().enumerate().map(|(index, count)| (self.first + index as u16, *count));
        quantile(bins, total, share)
    }
}

/// Draws of a bootstrap.
const DRAWS: usize = 400;
/// The seed of all draws.
const SEED: u64 = 17;

#[cfg(test)]
mod tests {
    use super::super::figures::Figures;
    use super::*;

    fn run(seed: u64, shift_us: u64) -> Figures {
        let (mut dice, mut figures) = (Dice::new(seed), Figures::default());
        (0..2000).for_each(|_| figures.record((300 + shift_us + dice.next() % 200) * 1000));
        figures
    }

    fn between(before: &Figures, after: &Figures, share: f64) -> Change {
        let refs = |figures: &Figures| figures.blocks().to_vec();
        let (before, after) = (refs(before), refs(after));
        change(&before.iter().collect::<Vec<_>>(), &after.iter().collect::<Vec<_>>(), share)
    }

    #[test]
    fn a_change_is_found_with_its_size_and_equal_runs_have_none() {
        let before = run(1, 0);
        let changed = between(&before, &run(2, 100), 0.5);
        assert!((changed.after_ns - changed.before_ns - 100e3).abs() < 15e3, "{changed:?}");
        assert!((60e3..=changed.after_ns - changed.before_ns).contains(&changed.least_ns), "{changed:?}");
        assert!(between(&before, &run(3, 0), 0.5).least_ns < 5e3);
        assert!(between(&before, &before, 0.99).least_ns <= 0.0);
        assert_eq!(between(&before, &run(2, 100), 0.5), changed, "the same files, the same verdict");
    }

    #[test]
    fn what_differs_between_blocks_is_uncertain() {
        let (mut dice, mut bursty) = (Dice::new(4), Figures::default());
        (0..2000u64).for_each(|number| bursty.record((300 + dice.next() % 200 + (number / 500) * 300) * 1000));
        let (steady, other) = (run(1, 0), run(2, 50));
        let surely = |after: &Figures| {
            let change = between(&steady, after, 0.5);
            (change.after_ns - change.before_ns) - change.least_ns
        };
        assert!(surely(&bursty) > 5.0 * surely(&other));
    }
}
