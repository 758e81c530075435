//! Disciplines and classes with their parameters: read from the kernel's structures, written to them, and in `tc`'s notation.

use crate::netlink::{attribute, put, u16_at, u32_at, u64_at, words};
use std::fmt;

/// The parameters of a discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// `noqueue`: packets do not wait.
    NoQueue,
    /// `pfifo`: one queue, limited in packets.
    Pfifo {
        /// Most packets that wait.
        limit: u32,
    },
    /// `bfifo`: one queue, limited in bytes.
    Bfifo {
        /// Most bytes that wait.
        limit: u32,
    },
    /// `pfifo_fast`: three bands chosen by socket priority, the first is sent first. As long as the device's queue.
    PfifoFast {
        /// The band of each socket priority 0…15.
        map: [u8; 16],
    },
    /// `prio`: bands, the first is sent first, chosen by filters or socket priority.
    Prio {
        /// Number of bands, 2…16.
        bands: u8,
        /// The band of each socket priority 0…15.
        map: [u8; 16],
    },
    /// `tbf`: limits the rate; the child decides which packets wait.
    Tbf {
        /// Bits per second.
        rate: u64,
        /// Bytes that may go at once.
        burst: u32,
        /// Most bytes that wait, where there is no child.
        limit: u32,
    },
    /// `htb`: classes with a guaranteed and a highest rate, and strict priority for the spare rate.
    Htb {
        /// Minor number of the class for packets that no filter chose.
        default: u32,
    },
    /// `hfsc`: classes with service curves.
    Hfsc {
        /// Minor number of the class for packets that no filter chose.
        default: u16,
    },
    /// `netem`: a worse network, for tests.
    Netem {
        /// Nanoseconds.
        delay: u64,
        /// Nanoseconds.
        jitter: u64,
        /// Most packets that wait.
        limit: u32,
        /// Share lost, in 1/2³².
        loss: u32,
    },
    /// One that Thalweg doesn't know, or doesn't look into.
    Other(String),
}

/// The default map of `pfifo_fast` and `prio`.
pub const DEFAULT_MAP: [u8; 16] = qos::priority::PRIORITY_BANDS;

impl Discipline {
    /// The kernel's name of it.
    pub fn name(&self) -> &str {
        match self {
            Discipline::NoQueue => "noqueue",
            Discipline::Pfifo { .. } => "pfifo",
            Discipline::Bfifo { .. } => "bfifo",
            Discipline::PfifoFast { .. } => "pfifo_fast",
            Discipline::Prio { .. } => "prio",
            Discipline::Tbf { .. } => "tbf",
            Discipline::Htb { .. } => "htb",
            Discipline::Hfsc { .. } => "hfsc",
            Discipline::Netem { .. } => "netem",
            Discipline::Other(name) => name,
        }
    }

    /// Reads the kernel's options. Unreadable options make it [`Discipline::Other`].
    pub fn read(name: &str, options: &[u8]) -> Self {
        let known = match name {
            "noqueue" => Some(Discipline::NoQueue),
            "pfifo" | "pfifo_head_drop" => u32_at(options, 0).map(|limit| Discipline::Pfifo { limit }),
            "bfifo" => u32_at(options, 0).map(|limit| Discipline::Bfifo { limit }),
            "pfifo_fast" => bands(options).map(|(_, map)| Discipline::PfifoFast { map }),
            "prio" => bands(options).map(|(bands, map)| Discipline::Prio { bands, map }),
            "tbf" => token_bucket(options),
            "htb" => attribute(options, 2).and_then(|init| u32_at(init, 8)).map(|default| Discipline::Htb { default }),
            "hfsc" => u16_at(options, 0).map(|default| Discipline::Hfsc { default }),
            "netem" => emulation(options),
            _ => None,
        };
        known.unwrap_or_else(|| Discipline::Other(name.to_owned()))
    }

    /// The options in the kernel's form; `None` if it takes none.
    pub fn options(&self) -> Option<Vec<u8>> {
        match self {
            Discipline::NoQueue | Discipline::PfifoFast { .. } | Discipline::Other(_) => None,
            Discipline::Pfifo { limit } | Discipline::Bfifo { limit } => Some(words([*limit])),
            Discipline::Prio { bands, map } => Some([&words([u32::from(*bands)])[..], map].concat()),
            Discipline::Tbf { rate, burst, limit } => {
                let mut options = Vec::new();
                let parameters = [&rate_specification(*rate)[..], &[0; 12], &words([*limit, ticks(*burst, *rate), 0])];
                put(&mut options, 1, &parameters.concat());
                put_wide_rate(&mut options, 4, *rate);
                Some(options)
            }
            Discipline::Htb { default } => {
                let mut options = Vec::new();
                put(&mut options, 2, &words([HTB_VERSION, 10, *default, 0, 0]));
                Some(options)
            }
            Discipline::Hfsc { default } => Some(default.to_ne_bytes().to_vec()),
            Discipline::Netem { delay, jitter, limit, loss } => {
                let parameters = [tick(*delay), *limit, *loss, 0, 0, tick(*jitter)];
                Some(words(parameters))
            }
        }
    }
}

impl fmt::Display for Discipline {
    /// As `tc qdisc add` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Discipline::Pfifo { limit } | Discipline::Bfifo { limit } => write!(f, " limit {limit}"),
            Discipline::Prio { bands, map } => {
                let map: Vec<String> = map.iter().map(u8::to_string).collect();
                write!(f, " bands {bands} priomap {}", map.join(" "))
            }
            Discipline::Tbf { rate, burst, limit } => write!(f, " rate {rate}bit burst {burst} limit {limit}"),
            Discipline::Htb { default } => write!(f, " default {default:x}"),
            Discipline::Hfsc { default } => write!(f, " default {default:x}"),
            Discipline::Netem { delay, jitter, limit, loss } => {
                let percent = f64::from(*loss) * 100.0 / f64::from(u32::MAX);
                write!(f, " limit {limit} delay {}us {}us loss {percent:.3}%", delay / 1000, jitter / 1000)
            }
            Discipline::NoQueue | Discipline::PfifoFast { .. } | Discipline::Other(_) => Ok(()),
        }
    }
}

/// The parameters of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// An HTB class.
    Htb(Shares),
    /// An HFSC class. Without a real-time curve it has no guarantee; without a link share it has only its guarantee.
    Hfsc {
        /// The guarantee.
        real_time: Option<Curve>,
        /// The share of the spare rate.
        link_share: Option<Curve>,
        /// The upper limit.
        upper_limit: Option<Curve>,
    },
    /// A class of another discipline, without parameters that Thalweg sets.
    Other(String),
}

/// An HTB class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Guaranteed, in bits per second.
    pub rate: u64,
    /// Highest rate when others leave some, in bits per second.
    pub ceil: u64,
    /// Bytes that may go at once.
    pub burst: u32,
    /// Priority for the spare rate: 0 first, … 7.
    pub priority: u32,
    /// Bytes taken in one turn among equals.
    pub quantum: u32,
}

/// A service curve: slope `m1` for the first `d`, then slope `m2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Curve {
    /// Bits per second in the first `d_us`.
    pub m1: u64,
    /// Microseconds.
    pub d_us: u32,
    /// Bits per second afterwards.
    pub m2: u64,
}

impl Class {
    /// Reads the kernel's options.
    pub fn read(name: &str, options: &[u8]) -> Self {
        let known = match name {
            "htb" => shares(options).map(Class::Htb),
            "hfsc" => Some(Class::Hfsc {
                real_time: attribute(options, 1).and_then(Curve::read),
                link_share: attribute(options, 2).and_then(Curve::read),
                upper_limit: attribute(options, 3).and_then(Curve::read),
            }),
            _ => None,
        };
        known.unwrap_or_else(|| Class::Other(name.to_owned()))
    }

    /// Name of its discipline.
    pub fn name(&self) -> &str {
        match self {
            Class::Htb(_) => "htb",
            Class::Hfsc { .. } => "hfsc",
            Class::Other(name) => name,
        }
    }

    /// The options in the kernel's form.
    pub fn options(&self) -> Option<Vec<u8>> {
        let mut options = Vec::new();
        match self {
            Class::Htb(Shares { rate, ceil, burst, priority, quantum }) => {
                let numbers = words([ticks(*burst, *rate), ticks(*burst, *ceil), *quantum, 0, *priority]);
                put(&mut options, 1, &[&rate_specification(*rate)[..], &rate_specification(*ceil), &numbers].concat());
                put_wide_rate(&mut options, 6, *rate);
                put_wide_rate(&mut options, 7, *ceil);
            }
            Class::Hfsc { real_time, link_share, upper_limit } => {
                for (kind, curve) in [(1, real_time), (2, link_share), (3, upper_limit)] {
                    curve.iter().for_each(|curve| put(&mut options, kind, &curve.words()));
                }
            }
            Class::Other(_) => return None,
        }
        Some(options)
    }
}

fn shares(options: &[u8]) -> Option<Shares> {
    let parameters = attribute(options, 1)?;
    let number = |offset| u32_at(parameters, offset);
    let rate = wide_rate(attribute(options, 6), parameters, 0)?;
    let ceil = wide_rate(attribute(options, 7), parameters, 12)?;
    Some(Shares { rate, ceil, burst: bytes(number(24)?, rate), priority: number(40)?, quantum: number(32)? })
}

impl Curve {
    /// The same slope always.
    pub fn linear(rate: u64) -> Self {
        Self { m1: 0, d_us: 0, m2: rate }
    }

    fn read(curve: &[u8]) -> Option<Self> {
        let slope = |offset| u32_at(curve, offset).map(|bytes| u64::from(bytes) * 8);
        Some(Self { m1: slope(0)?, d_us: u32_at(curve, 4)?, m2: slope(8)? })
    }

    fn words(self) -> Vec<u8> {
        let slope = |rate: u64| u32::try_from(rate / 8).unwrap_or(u32::MAX);
        words([slope(self.m1), self.d_us, slope(self.m2)])
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m1 {}bit d {}us m2 {}bit", self.m1, self.d_us, self.m2)
    }
}

impl fmt::Display for Class {
    /// As `tc class add` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Class::Htb(Shares { rate, ceil, burst, priority, quantum }) => write!(
                f,
                " rate {rate}bit ceil {ceil}bit burst {burst} cburst {burst} prio {priority} quantum {quantum}"
            ),
            Class::Hfsc { real_time, link_share, upper_limit } => {
                for (word, curve) in [("rt", real_time), ("ls", link_share), ("ul", upper_limit)] {
                    curve.iter().try_for_each(|curve| write!(f, " {word} {curve}"))?;
                }
                Ok(())
            }
            Class::Other(_) => Ok(()),
        }
    }
}

/// The version that HTB expects; it answers with a longer number.
pub(super) const HTB_VERSION: u32 = 3;

fn bands(options: &[u8]) -> Option<(u8, [u8; 16])> {
    Some((u8::try_from(u32_at(options, 0)?).ok()?, options.get(4..20)?.try_into().ok()?))
}

fn token_bucket(options: &[u8]) -> Option<Discipline> {
    let parameters = attribute(options, 1)?;
    let rate = wide_rate(attribute(options, 4), parameters, 0)?;
    Some(Discipline::Tbf { rate, burst: bytes(u32_at(parameters, 28)?, rate), limit: u32_at(parameters, 24)? })
}

fn emulation(options: &[u8]) -> Option<Discipline> {
    let rest = options.get(24..)?;
    let precise = |kind, offset| {
        let short = u32_at(options, offset).map(|ticks| u64::from(ticks) * TICK_NS);
        attribute(rest, kind).and_then(|a| u64_at(a, 0)).or(short)
    };
    let (delay, jitter) = (precise(10, 0)?, precise(11, 20)?);
    Some(Discipline::Netem { delay, jitter, limit: u32_at(options, 4)?, loss: u32_at(options, 8)? })
}

/// The kernel's scheduling clock ticks (`/proc/net/psched`, fixed since 2009).
const TICK_NS: u64 = 64;
const LINKLAYER_ETHERNET: u8 = 1;

fn tick(nanoseconds: u64) -> u32 {
    u32::try_from(nanoseconds / TICK_NS).unwrap_or(u32::MAX)
}

/// Ticks that `bytes` take at `rate` bits per second (rounded up: a burst of exactly one packet must let it through).
fn ticks(bytes: u32, rate: u64) -> u32 {
    let ns = u128::from(bytes) * 8_000_000_000 / u128::from(rate.max(1));
    u32::try_from(ns.div_ceil(u128::from(TICK_NS))).unwrap_or(u32::MAX)
}

/// Bytes that leave in `ticks` at `rate` bits per second: the kernel's form of a burst.
fn bytes(ticks: u32, rate: u64) -> u32 {
    let bits = u128::from(ticks) * u128::from(TICK_NS) * u128::from(rate);
    u32::try_from(bits / 8_000_000_000).unwrap_or(u32::MAX)
}

/// `struct tc_ratespec` of a rate in bits per second. With the link layer named, the kernel wants no tables of 1 KiB.
fn rate_specification(rate: u64) -> [u8; 12] {
    let mut specification = [0; 12];
    specification[1] = LINKLAYER_ETHERNET;
    specification[8..].copy_from_slice(&u32::try_from(rate / 8).unwrap_or(u32::MAX).to_ne_bytes());
    specification
}

/// Adds a rate in bytes per second as 64 bits, where 32 are too few.
fn put_wide_rate(options: &mut Vec<u8>, kind: u16, rate: u64) {
    if rate / 8 > u64::from(u32::MAX) {
        put(options, kind, &(rate / 8).to_ne_bytes());
    }
}

/// A rate in bits per second: the 64-bit attribute, else the `tc_ratespec` at `offset`.
fn wide_rate(wide: Option<&[u8]>, parameters: &[u8], offset: usize) -> Option<u64> {
    let short = u32_at(parameters, offset + 8).map(u64::from);
    Some(wide.and_then(|w| u64_at(w, 0)).or(short)?.saturating_mul(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_come_back_as_they_were_written() {
        for discipline in [
            Discipline::Pfifo { limit: 100 },
            Discipline::Prio { bands: 4, map: DEFAULT_MAP },
            Discipline::Tbf { rate: 10_000_000, burst: 3200, limit: 10_000_000 },
            Discipline::Tbf { rate: 100_000_000_000, burst: 65_600, limit: 10_000_000 },
            Discipline::Htb { default: 0x30 },
            Discipline::Hfsc { default: 0x30 },
            Discipline::Netem { delay: 9_999_936, jitter: 0, limit: 1000, loss: 5 },
        ] {
            let options = discipline.options().unwrap_or_default();
            assert_eq!(Discipline::read(discipline.name(), &options), discipline);
        }
        assert_eq!(
            Discipline::Prio { bands: 3, map: DEFAULT_MAP }.to_string(),
            "prio bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1"
        );
    }

    proptest! {
        #[test]
        fn any_options_are_read(name in 0usize..9, options in proptest::collection::vec(any::<u8>(), 0..80)) {
            let names = ["noqueue", "pfifo", "bfifo", "pfifo_fast", "prio", "tbf", "htb", "hfsc", "netem"];
            let _ = Discipline::read(names[name], &options).to_string();
        }
    }

    #[test]
    fn parameters_of_classes_come_back_as_they_were_written() {
        let shares = Shares { rate: 30_000_000, ceil: 1_000_000_000, burst: 3200, priority: 1, quantum: 1514 };
        let curve = Curve { m1: 20_000_000, d_us: 5000, m2: 5_000_000 };
        let limited = Class::Hfsc { real_time: Some(curve), link_share: None, upper_limit: Some(Curve::linear(8000)) };
        for class in [Class::Htb(shares), limited] {
            assert_eq!(Class::read(class.name(), &class.options().unwrap()), class);
        }
    }

    proptest! {
        #[test]
        fn any_options_of_classes_are_read(options in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = (Class::read("htb", &options).to_string(), Class::read("hfsc", &options).to_string());
        }
    }
}
