//! Pipes that give way, in three stages: what is not sold of them harms nobody, then their sessions get fewer samples, then sessions end.
//!
//! The size of a pipe is a number here: with [`PARTS`] it is as large as the contract says, and with `n` it has that rate times [`PARTS`] over `n`.
//! What may come at once goes down with the rate to what its sessions have at each stage: theirs does, too, but for a sample of each (Le Boudec &
//! Thiran 2001, §1.4.1).

use super::Step;
use crate::ledger::Sold;
use crate::planning::{Present, Size};
use qos::admission::Bucket;
use qos::contract::Contract;
use qos::contract::joined::Joined;

/// Parts of a rate: the finest difference is a 65th.
pub(super) const PARTS: u32 = 64;
/// The smallest pipe: a twentieth of the contract's rate. A smaller one is left out.
const SMALLEST: u32 = 20 * PARTS;
/// The lowest rate of a pipe, bit/s, as in a contract.
const SLOWEST: u64 = 1000;

/// The sizes that a pipe may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    rate: u64,
    /// Bytes of its largest sample with headers: no pipe holds less.
    frames: u64,
    /// The number at the end of each stage, and bytes at once there.
    ends: [(u32, u64); 4],
}

/// What is taken from a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Unsold,
    Thinned,
    Displaced,
}

/// A pipe that uses links that carry less.
#[derive(Debug)]
pub(super) struct Concerned {
    pub port: String,
    /// Its subscriber.
    pub index: usize,
    pipe: usize,
    shape: Shape,
}

impl Shape {
    fn new(pipe: &qos::contract::pipe::Pipe, sold: Sold) -> Self {
        let frames = pipe.frames();
        let number = |needed: Bucket| {
            let most = (u128::from(pipe.rate) * u128::from(PARTS)).checked_div(needed.rate.ceil() as u128);
            most.map_or(SMALLEST, |most| u32::try_from(most).unwrap_or(SMALLEST)).clamp(PARTS, SMALLEST)
        };
        let bytes = |needed: Bucket| needed.burst.clamp(frames, pipe.burst);
        let sold_out = number(sold.whole);
        let thinned = number(sold.least).max(sold_out);
        let ends = [
            (PARTS, pipe.burst),
            (sold_out, bytes(sold.whole)),
            (thinned, bytes(sold.least).min(bytes(sold.whole))),
            (SMALLEST, frames),
        ];
        Self { rate: pipe.rate, frames, ends }
    }

    /// The size with this number.
    pub fn at(&self, number: u32) -> Size {
        let number = number.clamp(PARTS, SMALLEST);
        let rate = self.rate(number);
        Size { rate, burst: self.burst(number).max(self.frames), less: self.rate - rate }
    }

    fn rate(&self, number: u32) -> u64 {
        let rate = u128::from(self.rate) * u128::from(PARTS) / u128::from(number.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX).max(SLOWEST).min(self.rate)
    }

    fn burst(&self, number: u32) -> u64 {
        let stage = self.ends.windows(2).find(|ends| number <= ends[1].0);
        let Some(&[(from, most), (to, least)]) = stage else { return self.frames };
        let [above, below, rate] = [from, to, number].map(|number| u128::from(self.rate(number)));
        let part = u128::from(most.saturating_sub(least)) * (rate - below);
        let more = part.checked_div(above - below).and_then(|more| u64::try_from(more).ok());
        more.map_or(most, |more| least + more)
    }
}

impl Size {
    /// The smaller one, part by part.
    pub(super) fn min(self, other: Self) -> Self {
        let (rate, burst) = (self.rate.min(other.rate), self.burst.min(other.burst));
        Self { rate, burst, less: self.less.max(other.less) }
    }
}

/// The pipes that use links that carry less, the lowest class first.
pub(super) fn concerned(
    present: Present<'_>,
    contract: &Contract,
    whole: &Joined,
    is_concerned: &dyn Fn(usize) -> bool,
) -> Vec<Concerned> {
    let first = whole.contract.system.subscribers.len() - contract.pipes.len();
    let mut pipes: Vec<_> = contract.pipes.iter().enumerate().filter(|(at, _)| is_concerned(first + at)).collect();
    pipes.sort_by_key(|(_, pipe)| (pipe.class, pipe.price));
    let nothing = Bucket { burst: 0, rate: 0.0 };
    let of = |(at, pipe): (usize, &qos::contract::pipe::Pipe)| {
        let sold = present.sold.get(&pipe.name).copied().unwrap_or(Sold { whole: nothing, least: nothing });
        Concerned { port: pipe.port(), index: first + at, pipe: at, shape: Shape::new(pipe, sold) }
    };
    pipes.into_iter().map(of).collect()
}

/// The steps of a stage.
pub(super) fn shrink(pipes: &[Concerned], stage: Stage) -> Vec<Step> {
    let at = match stage {
        Stage::Unsold => 0,
        Stage::Thinned => 1,
        Stage::Displaced => 2,
    };
    let of = |Concerned { port, index, pipe, shape }: &Concerned| {
        let [(own, _), (most, _)] = [shape.ends[at], shape.ends[at + 1]];
        let (pipe, index, shape) = (*pipe, *index, *shape);
        let step = || Step::Shrink { port: port.clone(), pipe, index, shape, stage, own, most };
        (most > own).then(step)
    };
    pipes.iter().filter_map(of).collect()
}
