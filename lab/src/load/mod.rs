//! Load: competing traffic on the link. A generator offers packets at a rate and reports the rate it reached; a sink counts
//! what arrived.
//!
//! | module | contents |
//! |---|---|
//! | [`generator`] | the role that sends |
//! | [`sink`] | the role that counts |

pub mod generator;
pub mod sink;

use crate::topology::wire::FULL_PACKET;
pub use generator::{Generator, Offered};
use serde::{Deserialize, Serialize};
pub use sink::{Sink, Traffic};
use thalweg::carrier::Dice;

/// The protocol of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Datagrams, offered at the rate whether or not they get through.
    Udp,
    /// One stream, which gives way.
    Tcp,
}

impl Protocol {
    /// `udp` or `tcp`.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Udp => "udp",
            Protocol::Tcp => "tcp",
        }
    }

    /// Bytes of payload that fill a packet of [`FULL_PACKET`] bytes (IPv4; TCP with time stamps).
    const fn payload(self) -> usize {
        let headers = match self {
            Protocol::Udp => 14 + 20 + 8,
            Protocol::Tcp => 14 + 20 + 32,
        };
        FULL_PACKET as usize - headers
    }
}

/// The spacing of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One by one at even distances: below the link's rate they never meet.
    Even,
    /// A number at once at random (exponential) distances: messages of many independent senders.
    Random(u32),
    /// A number at once, at even distances.
    Bursts(u32),
    /// A number of streams, each at full speed (TCP). One alone cannot fill its own host's queue: Linux limits a
    /// stream's data there (TCP small queues).
    Greedy(u32),
}

impl Pattern {
    /// Packets that leave at once.
    pub const fn burst(self) -> u32 {
        match self {
            Pattern::Random(n) | Pattern::Bursts(n) if n > 0 => n,
            _ => 1,
        }
    }

    /// `true` for a pattern that takes all the bandwidth there is and has no rate.
    pub const fn is_greedy(self) -> bool {
        matches!(self, Pattern::Greedy(_))
    }

    /// For people and factors.
    pub fn name(self) -> String {
        match self {
            Pattern::Even => "even".into(),
            Pattern::Random(n) => format!("random, {n} at once"),
            Pattern::Bursts(n) => format!("bursts of {n}"),
            Pattern::Greedy(streams) => format!("{streams} greedy streams"),
        }
    }
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The protocol.
    pub protocol: Protocol,
    /// Bits per second, Ethernet headers included; a greedy one has no rate of its own.
    pub rate: u64,
    /// The spacing of its packets.
    pub pattern: Pattern,
    /// A burst leaves as one large datagram that the kernel cuts (UDP GSO): less work for the sender.
    pub gso: bool,
    /// Seed of random distances.
    pub seed: u64,
}

/// The distances of a load's packets.
#[derive(Clone, Debug)]
pub struct Schedule {
    dice: Dice,
    random: bool,
    burst: u32,
    gap_ns: f64,
}

impl Schedule {
    /// The schedule of a load with a rate above 0.
    pub fn of(load: &Load) -> Self {
        let burst = load.pattern.burst();
        let gap_ns = f64::from(burst) * FULL_PACKET as f64 * 8e9 / load.rate.max(1) as f64;
        Self { dice: Dice::new(load.seed), random: matches!(load.pattern, Pattern::Random(_)), burst, gap_ns }
    }

    /// Packets that are due at once.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Nanoseconds until the next packets are due.
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
        // A part of 1 − 1/e of an exponential distribution is below the mean.
        let mean = FULL_PACKET as f64 * 8e9 / 70e6;
        let below = gaps(1).iter().filter(|gap| (**gap as f64) < mean).count();
        assert!((62_500..63_900).contains(&below), "{below}");
    }
}
