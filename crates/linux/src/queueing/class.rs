//! Classes of HTB and HFSC.

use super::discipline::{bytes, put_wide_rate, rate_specification, ticks, wide_rate};
use crate::netlink::{attribute, put, u32_at, words};
use std::fmt;

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_come_back_as_they_were_written() {
        let shares = Shares { rate: 30_000_000, ceil: 1_000_000_000, burst: 3200, priority: 1, quantum: 1514 };
        let curve = Curve { m1: 20_000_000, d_us: 5000, m2: 5_000_000 };
        let limited = Class::Hfsc { real_time: Some(curve), link_share: None, upper_limit: Some(Curve::linear(8000)) };
        for class in [Class::Htb(shares), limited] {
            assert_eq!(Class::read(class.name(), &class.options().unwrap()), class);
        }
    }

    proptest! {
        #[test]
        fn any_options_are_read(options in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = (Class::read("htb", &options).to_string(), Class::read("hfsc", &options).to_string());
        }
    }
}
