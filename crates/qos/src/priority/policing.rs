//! Policing: the samples that a contract allows on a channel. What comes beyond is refused at the publisher (RFC 2475 §2.3.3.4).

use super::{PriorityError, refuse};
use crate::quantity::{parse_bytes, parse_rate};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The samples that may be sent: those of the virtual scheduling of ITU-T I.371, annex A. Written `RATE/SAMPLES/BYTES`, such as `100Hz/2/1000B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policing {
    /// Time between two samples, ns.
    pub period_ns: u64,
    /// Time by which one may come early, ns: of a burst, or behind a late one.
    pub tolerance_ns: u64,
    /// Bytes of the largest sample.
    pub largest: u64,
}

const ALLOWED: &str = "RATE/SAMPLES/BYTES, such as 100Hz/2/1000B: a rate, the samples that may come at once (1 to 1000000, such as 1.5), and the largest";
/// Longest period, ns: a day.
const LONGEST: u64 = 86_400_000_000_000;
/// Largest sample, bytes.
const LARGEST: u64 = 1 << 30;
/// Most samples at once.
const MOST: f64 = 1e6;

impl Policing {
    /// So many samples per second, of which so many may come at once, of at most so many bytes; `None`: out of range.
    pub fn new(rate: f64, at_once: f64, largest: u64) -> Option<Self> {
        let period = (1e9 / rate).round();
        let fits = (1.0..=LONGEST as f64).contains(&period) && (1.0..=MOST).contains(&at_once);
        let tolerance_ns = ((at_once - 1.0) * period).round() as u64;
        (fits && (1..=LARGEST).contains(&largest)).then_some(Self { period_ns: period as u64, tolerance_ns, largest })
    }

    /// Checks that all values are within their ranges.
    pub(super) fn check(&self) -> Result<(), PriorityError> {
        let Self { period_ns, tolerance_ns, largest } = *self;
        let most = period_ns.saturating_mul(MOST as u64);
        let fits = (1..=LONGEST).contains(&period_ns) && tolerance_ns <= most && (1..=LARGEST).contains(&largest);
        if fits { Ok(()) } else { refuse("police", &format!("{period_ns}ns/{tolerance_ns}ns/{largest}B"), ALLOWED) }
    }
}

impl fmt::Display for Policing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = self.period_ns.max(1) as f64;
        write!(f, "{}Hz/{}/{}B", 1e9 / period, 1.0 + self.tolerance_ns as f64 / period, self.largest)
    }
}

impl FromStr for Policing {
    type Err = PriorityError;

    fn from_str(text: &str) -> Result<Self, PriorityError> {
        let read = || {
            let [rate, at_once, largest] = text.split('/').collect::<Vec<_>>().try_into().ok()?;
            Self::new(parse_rate(rate).ok()?, at_once.trim().parse().ok()?, parse_bytes(largest).ok()?)
        };
        read().map_or_else(|| refuse("police", text, ALLOWED), Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_is_read_and_written() {
        let policing: Policing = "100Hz/2.5/1000B".parse().unwrap();
        assert_eq!(policing, Policing { period_ns: 10_000_000, tolerance_ns: 15_000_000, largest: 1000 });
        assert_eq!(policing.to_string(), "100Hz/2.5/1000B");
        for wrong in [
            "",
            "100Hz",
            "100Hz/2",
            "100/2/1000B",
            "0Hz/2/1B",
            "1Hz/0.5/1B",
            "1Hz/NaN/1B",
            "1Hz/1e7/1B",
            "1Hz/1/0B",
            "1Hz/1/2GiB",
        ] {
            let said = wrong.parse::<Policing>().unwrap_err().to_string();
            assert!(said.contains("100Hz/2/1000B"), "{wrong}: {said}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(period in 1u64..10_000_000_000, tolerance in 0u64..100_000_000_000, largest in 1u64..1 << 30) {
            let policing = Policing { period_ns: period, tolerance_ns: tolerance.min(period * 1000), largest };
            prop_assert!(policing.check().is_ok());
            let again: Policing = policing.to_string().parse().unwrap();
            prop_assert_eq!(again.period_ns, policing.period_ns);
            prop_assert!(again.tolerance_ns.abs_diff(policing.tolerance_ns) <= 1, "{} {}", again, policing);
        }
    }
}
