//! Where a proxy is.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where a stream is scaled (P-07): what is left out there costs nothing further on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Place {
    /// At the publisher, before anything is sent: the cheapest, and the default.
    #[default]
    Publisher,
    /// At the subscriber, when samples arrive: for comparison, and where the publisher's processor is the scarce one.
    Subscriber,
    /// At the relay (a node) of this name.
    Relay(String),
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

impl FromStr for Place {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("relay:")) {
            ("publisher", _) => Ok(Place::Publisher),
            ("subscriber", _) => Ok(Place::Subscriber),
            (_, Some(name)) if !name.is_empty() && name.len() <= 64 => Ok(Place::Relay(name.to_owned())),
            _ => Err(format!(
                "proxy {:?}: allowed are publisher, subscriber and relay:NAME (the node name of a relay)",
                text.chars().take(64).collect::<String>()
            )),
        }
    }
}

impl From<Place> for String {
    fn from(place: Place) -> String {
        place.to_string()
    }
}

impl TryFrom<String> for Place {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive_as_text_and_others_are_refused() {
        for place in [Place::Publisher, Place::Subscriber, Place::Relay("gate-1".into())] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for wrong in ["relay", "relay:", "router:x", ""] {
            assert!(wrong.parse::<Place>().unwrap_err().contains("relay:NAME"), "{wrong}");
        }
    }
}
