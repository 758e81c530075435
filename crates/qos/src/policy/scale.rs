//! How much of a stream a subscriber wants, and where it is thinned out.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Temporal scaling (P-02, U-34): which samples a subscriber wants, by their sequence numbers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Every n-th: those with `seq mod n = 0`; n ≥ 1. The default, with n = 1: all.
    Every(u32),
    /// `p` of every `q`, evenly: those with `⌊seq·p/q⌋ ≠ ⌊(seq−1)·p/q⌋`; 1 ≤ p ≤ q.
    Rate {
        /// Wanted samples …
        p: u32,
        /// … of so many published ones.
        q: u32,
    },
    /// So many in 1000 seconds, in the long run: becomes `Rate` when the publisher's own rate is known.
    Millihertz(u64),
}

impl Default for Scale {
    fn default() -> Self {
        Scale::Every(1)
    }
}

/// Where a proxy or a pull buffer is (P-07, P-09).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In the publisher's process: saves most.
    #[default]
    Publisher,
    /// In the subscriber's process.
    Subscriber,
    /// At the relay of this host or node; of several names, separated by commas, at the first that is there and takes it.
    Relay(String),
}

impl Place {
    /// The names of relays, the one that is preferred first; none if it is at either end.
    pub fn relays(&self) -> impl Iterator<Item = &str> {
        let names = if let Place::Relay(names) = self { names.as_str() } else { "" };
        names.split(',').filter(|name| !name.is_empty())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Publisher => f.write_str("publisher"),
            Place::Subscriber => f.write_str("subscriber"),
            Place::Relay(name) => write!(f, "relay:{name}"),
        }
    }
}

/// Text that is no [`Place`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceError(pub String);

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: allowed is publisher, subscriber or relay:NAME (of a host or node)", self.0)
    }
}

impl std::error::Error for PlaceError {}

impl FromStr for Place {
    type Err = PlaceError;
    fn from_str(text: &str) -> Result<Self, PlaceError> {
        match (text, text.strip_prefix("relay:")) {
            ("publisher", _) => Ok(Place::Publisher),
            ("subscriber", _) => Ok(Place::Subscriber),
            (_, Some(name)) if !name.is_empty() => Ok(Place::Relay(name.to_owned())),
            _ => Err(PlaceError(text.chars().take(64).collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_shown() {
        for place in [Place::Publisher, Place::Subscriber, Place::Relay("gate".into())] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for wrong in ["", "relay:", "relay", "gate"] {
            assert!(wrong.parse::<Place>().unwrap_err().to_string().contains("relay:NAME"));
        }
    }
}
