//! Systems whose links are busy.

use super::{Sketch, sketch};
use crate::analysis::BILLION;
use crate::analysis::stages::{Egress, Stages, Step};
use crate::network::Network;
use crate::simulate::Chance;

/// A link is busy from this percentage of its rate on, background included.
pub(super) const BUSY: u64 = 60;
/// Percentage from which on every other link is made busy; overloaded ones always are. And the highest to which one is.
const SLACK: u64 = 30;
const FULL: u64 = 98;

/// The sketch of a seed with rates by load: a link that would be overloaded is 60 to 98 % busy, and so is every other one of 30 to 60 %.
/// (As drawn, 7 % of the links' directions in use are, and 15 % are overloaded, so that every fourth pair has no bound.) Every eighth
/// system stays as drawn.
pub fn busy(seed: u64) -> Sketch {
    let mut sketch = sketch(seed);
    if seed % 8 == 7 {
        return sketch;
    }
    let Sketch { system, classes, places } = &mut sketch;
    let loads = loads(&Stages::new(system, &Network::new(system), places, classes));
    let mut chance = Chance(seed ^ 0x6275_7379);
    for (index, link) in system.links.iter_mut().enumerate() {
        let (wanted, every_other) = (BUSY + chance.below(1 + FULL - BUSY), chance.below(2) == 0);
        let load = loads[2 * index].max(loads[2 * index + 1]);
        if load > BILLION || every_other && (percent(SLACK)..percent(BUSY)).contains(&load) {
            let rate = u128::from(link.rate) * load / percent(wanted) + 1;
            link.rate = u64::try_from(rate).unwrap_or(u64::MAX);
        }
    }
    sketch
}

/// Parts per billion.
pub(super) fn percent(part: u64) -> u128 {
    BILLION / 100 * u128::from(part)
}

/// The declared load of each queue, background included, in parts per billion of the link.
pub(super) fn loads(stages: &Stages) -> Vec<u128> {
    let background = |egress: &Egress| egress.background.map_or(0, |all| all.arrivals.load(all.work));
    let mut loads: Vec<u128> = stages.egresses.iter().map(background).collect();
    for stage in &stages.stages {
        if let Step::Cross { queue, packets, .. } = stage.step {
            loads[queue] += stages.arrivals(stage).load(packets.work());
        }
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a model of the generator 23 % are busy, 1 % overloaded, and a third carries less than 10 %.
    #[test]
    fn a_fifth_of_the_links_in_use_is_busy() {
        let [mut used, mut busy_ones, mut idle] = [0; 3];
        for seed in 0..400 {
            let Sketch { system, classes, places } = busy(seed);
            let stages = Stages::new(&system, &Network::new(&system), &places, &classes);
            let loads = loads(&stages);
            let crossed = |queue: &usize| {
                stages.stages.iter().any(|stage| matches!(stage.step, Step::Cross { queue: at, .. } if at == *queue))
            };
            for load in (0..loads.len()).filter(crossed).map(|queue| loads[queue]) {
                used += 1;
                busy_ones += usize::from((percent(BUSY)..=BILLION).contains(&load));
                idle += usize::from(load < percent(10));
            }
        }
        println!("of {used} directions in use {busy_ones} are busy, {idle} idle");
        assert!(busy_ones * 5 >= used && idle * 5 >= used, "{busy_ones}, {idle} of {used}");
    }
}
