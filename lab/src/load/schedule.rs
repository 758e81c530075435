//! When the next packets are due.

use super::{Load, Pattern};
use crate::topology::wire::FULL_PACKET;
use thalweg::testing::Dice;

/// The distances of a load's packets.
#[derive(Clone, Debug)]
pub struct Schedule {
    dice: Dice,
    random: bool,
    burst: u32,
    gap_ns: f64,
}

impl Schedule {
    /// Of a load with a rate above 0.
    pub fn of(load: &Load) -> Self {
        let burst = load.pattern.burst();
        let gap_ns = f64::from(burst) * FULL_PACKET as f64 * 8e9 / load.rate.max(1) as f64;
        Self { dice: Dice::new(load.seed), random: matches!(load.pattern, Pattern::Random(_)), burst, gap_ns }
    }

    /// Packets that are due at once.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// How long after the last ones the next are due, in nanoseconds.
    pub fn gap_ns(&mut self) -> u64 {
        if !self.random {
            return self.gap_ns.round() as u64;
        }
        // 1 … 2^53 of 2^53: never 0, whose logarithm there is not.
        let drawn = ((self.dice.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (-drawn.ln() * self.gap_ns).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::Protocol;
    use super::*;

    fn load(pattern: Pattern) -> Load {
        Load { protocol: Protocol::Udp, rate: 70_000_000, pattern, gso: false, seed: 3 }
    }

    #[test]
    fn every_pattern_has_the_asked_rate() {
        for pattern in [Pattern::Even, Pattern::Random(4), Pattern::Bursts(40)] {
            let mut schedule = Schedule::of(&load(pattern));
            let (mut packets, mut ns) = (0u64, 0u64);
            while packets < 40_000 {
                packets += u64::from(schedule.burst());
                ns += schedule.gap_ns();
            }
            let rate = (packets * FULL_PACKET * 8) as f64 / (ns as f64 / 1e9);
            assert!((rate / 70e6 - 1.0).abs() < 0.02, "{pattern:?}: {rate}");
        }
    }

    #[test]
    fn random_distances_are_exponential_and_come_again_with_the_seed() {
        let gaps = |seed| {
            let mut schedule = Schedule::of(&Load { seed, ..load(Pattern::Random(1)) });
            (0..100_000).map(|_| schedule.gap_ns()).collect::<Vec<_>>()
        };
        assert_eq!(gaps(1), gaps(1));
        assert_ne!(gaps(1), gaps(2));
        // Of an exponential distribution, 1 − 1/e are below the mean.
        let mean = FULL_PACKET as f64 * 8e9 / 70e6;
        let below = gaps(1).iter().filter(|gap| (**gap as f64) < mean).count();
        assert!((62_500..63_900).contains(&below), "{below}");
    }
}
