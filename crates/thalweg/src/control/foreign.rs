//! Ends in other systems, for which bridges have ports, and where their samples have been.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Most places that the samples of a port have passed: eight networks, and a node between each two.
pub const MOST_PASSED: usize = 16;

/// An end in another system, for which a bridge has a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foreign {
    /// The system, such as `ros2`.
    pub engine: String,
    /// The end's name there, such as `/talker/chatter`.
    pub name: String,
    /// Of a publisher: another port of the bridge has the same samples under another type, and subscribers to any type take them from that
    /// one. Default: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
    /// The name of the system's network, which tells it from others of the same system. Default: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub network: String,
    /// Of a publisher: where its samples have been before they came to that network, the first place first. These are networks as
    /// [`Foreign::place`] names them, and nodes as `@` and their id. Default: nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
}

impl Foreign {
    /// The system and its network: `dds/left`, or `dds` if that has no name.
    pub fn place(&self) -> String {
        match &self.network[..] {
            "" => self.engine.clone(),
            network => format!("{}/{network}", self.engine),
        }
    }

    /// `true` if the samples of a port for this end come from this network or have been there. One without a name may be any of its system.
    pub fn has_passed(&self, place: &str) -> bool {
        may_be_one(&self.place(), place) || self.passed.iter().any(|passed| may_be_one(passed, place))
    }

    /// All its texts.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let own = [&self.engine, &self.name, &self.network];
        own.into_iter().chain(&self.passed).map(String::as_str)
    }
}

/// `true` unless the names of both tell them apart.
fn may_be_one(one: &str, other: &str) -> bool {
    let ((engine, network), (other_engine, other_network)) = (parts(one), parts(other));
    engine == other_engine && (network.is_none() || other_network.is_none() || network == other_network)
}

/// The engine of a place, and the name of its network if it has one.
fn parts(place: &str) -> (&str, Option<&str>) {
    place.split_once('/').map_or((place, None), |(engine, network)| (engine, Some(network)))
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.place(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(engine: &str, network: &str, passed: &[&str]) -> Foreign {
        let passed = passed.iter().map(ToString::to_string).collect();
        Foreign { engine: engine.to_owned(), name: "/a".to_owned(), network: network.to_owned(), passed, beside: false }
    }

    #[test]
    fn networks_are_told_apart_by_names_that_both_have() {
        let left = of("dds", "left", &[]);
        assert!(left.has_passed("dds/left") && left.has_passed("dds"));
        assert!(!left.has_passed("dds/right") && !left.has_passed("zenoh"));
        let unnamed = of("dds", "", &[]);
        assert!(unnamed.has_passed("dds/left") && unnamed.has_passed("dds") && !unnamed.has_passed("ros2"));
        let third = of("zenoh", "", &["dds/left", "@00000000000000a7"]);
        assert!(third.has_passed("dds/left") && third.has_passed("zenoh") && !third.has_passed("dds/right"));
        assert_eq!([left, unnamed].map(|end| end.to_string()), ["dds/left /a", "dds /a"]);
    }

    #[test]
    fn what_is_not_stated_takes_no_room_in_a_document() {
        let text = serde_json::to_string(&of("dds", "", &[])).unwrap();
        assert_eq!(text, r#"{"engine":"dds","name":"/a"}"#);
        let stated = of("dds", "left", &["dds/right"]);
        assert_eq!(serde_json::from_str::<Foreign>(&serde_json::to_string(&stated).unwrap()).unwrap(), stated);
    }
}
