//! The network that a bridge leads to, and the ways by which samples would come back to where they have been.
//!
//! A publisher's way is the list of places that its samples have passed: networks ([`Foreign::place`]), and the nodes that published them
//! here (`@` and the id). It is in the bridge's ports, and behind the bridge where the engine states it ([`Engine::states_ways`]).

use super::rules::Rules;
use crate::engine::Engine;
use std::collections::HashSet;
use thalweg::PortRef;
use thalweg::control::matching::LONGEST_NAME;
use thalweg::control::{Foreign, MOST_PASSED, NodeId, PortInfo};

/// The engine of a bridge, and the name of its network if it has one.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    engine: String,
    network: String,
    /// Both, as ways name them.
    name: String,
}

impl Place {
    /// The network of an engine, by the name that the rules give it. Where publishers do not state their way, networks have no names.
    pub(super) fn of(engine: &dyn Engine, rules: &Rules) -> Self {
        Self::named(engine.name(), if engine.states_ways() { rules.network() } else { "" })
    }

    pub(super) fn named(engine: &str, network: &str) -> Self {
        let place = Self { engine: engine.to_owned(), network: network.to_owned(), name: String::new() };
        Self { name: place.end(String::new()).place(), ..place }
    }

    /// The end of this name there, as far as documents have room for names: anybody may state one.
    pub(super) fn end(&self, name: String) -> Foreign {
        let (engine, network) = (self.engine.clone(), self.network.clone());
        Foreign { engine, name: shown(name), network, ..Foreign::default() }
    }

    /// `true` if it is joined with other networks of its engine.
    pub(super) fn is_joined(&self) -> bool {
        !self.network.is_empty()
    }

    /// `true` if a port is not carried there: its samples come from there or have been there, or it is one of a bridge to another engine.
    pub(super) fn skips(&self, port: &PortInfo, transit: bool) -> bool {
        let skipped = |end: &Foreign| end.has_passed(&self.name) || (end.engine != self.engine && !transit);
        port.foreign.as_ref().is_some_and(skipped)
    }

    /// `true` if what has come by this way has been in this network before, or in the realm of these nodes.
    pub(super) fn leads_back(&self, way: &[String], known: &HashSet<NodeId>) -> bool {
        way.iter().any(|place| match place.strip_prefix('@') {
            Some(node) => NodeId::try_from(node.to_owned()).is_ok_and(|node| known.contains(&node)),
            None => *place == self.name,
        })
    }
}

/// A name without what documents refuse: control characters, and more than [`LONGEST_NAME`] bytes.
fn shown(name: String) -> String {
    if name.len() <= LONGEST_NAME && !name.contains(char::is_control) {
        return name;
    }
    let mut shown: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    while shown.len() > LONGEST_NAME {
        shown.pop();
    }
    shown
}

/// The way of a publisher's samples when they leave this realm; `None` if it is longer than ways may be.
pub(super) fn way(at: PortRef, publisher: &PortInfo) -> Option<Vec<String>> {
    let before = publisher.foreign.iter().flat_map(|end| end.passed.iter().cloned().chain([end.place()]));
    let way: Vec<String> = before.chain([format!("@{}", at.node)]).collect();
    (way.len() <= MOST_PASSED).then_some(way)
}

#[cfg(test)]
mod tests {
    use super::super::routes::testing::port;
    use super::*;
    use thalweg::codec::TypeDescription;
    use thalweg::control::{Direction, PortId};

    fn at(node: u64) -> PortRef {
        PortRef { node: NodeId(node), port: PortId(1) }
    }

    fn publisher(foreign: Option<Foreign>) -> PortInfo {
        PortInfo { foreign, ..port(Direction::Publisher, "/a", TypeDescription::any()) }
    }

    /// Three networks in a ring, with a bridge at both ends of each of three realms: what goes round is not carried where it has been.
    #[test]
    fn a_ring_ends_where_it_began() {
        let [left, middle, right] = ["left", "middle", "right"].map(|network| Place::named("dds", network));
        let none = HashSet::new();
        let first = publisher(Some(left.end("/a".to_owned())));
        assert!(left.skips(&first, false) && !middle.skips(&first, false));
        let way_to_middle = way(at(1), &first).unwrap();
        assert!(!middle.leads_back(&way_to_middle, &none));
        let second = publisher(Some(Foreign { passed: way_to_middle, ..middle.end("/a".to_owned()) }));
        let way_to_right = way(at(2), &second).unwrap();
        assert_eq!(way_to_right, ["dds/left", "@0000000000000001", "dds/middle", "@0000000000000002"]);
        let third = publisher(Some(Foreign { passed: way_to_right.clone(), ..right.end("/a".to_owned()) }));
        assert!([&left, &middle, &right].iter().all(|place| place.skips(&third, true)), "it has been everywhere");
        assert!(left.leads_back(&way_to_right, &none));
    }

    #[test]
    fn what_a_node_of_the_realm_has_published_does_not_come_back() {
        let (left, own) = (Place::named("dds", ""), publisher(None));
        let out = way(at(7), &own).unwrap();
        assert!(
            left.leads_back(&out, &HashSet::from([NodeId(7)])) && !left.leads_back(&out, &HashSet::from([NodeId(8)]))
        );
    }

    #[test]
    fn a_forged_name_is_shown_as_far_as_documents_take_it() {
        let shown = |name: &str| Place::named("dds", "").end(name.to_owned()).name;
        assert_eq!(shown("/talker /chatter"), "/talker /chatter");
        assert_eq!(shown("a\u{1b}[2J\n"), "a?[2J?");
        assert_eq!(shown(&"ä".repeat(LONGEST_NAME)), "ä".repeat(LONGEST_NAME / 2), "whole characters");
        assert_eq!(shown(&"n".repeat(1 << 20)).len(), LONGEST_NAME);
    }

    #[test]
    fn a_way_is_bounded() {
        let passed = |count: usize| Foreign {
            passed: vec!["dds/x".to_owned(); count],
            ..Place::named("dds", "left").end("/a".to_owned())
        };
        assert!(way(at(1), &publisher(Some(passed(MOST_PASSED - 2)))).is_some());
        assert!(way(at(1), &publisher(Some(passed(MOST_PASSED - 1)))).is_none());
    }
}
