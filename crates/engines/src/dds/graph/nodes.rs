//! The nodes of ROS 2 that ends of others belong to.

use super::MOST_ENDPOINTS;
use cyclone::Guid;
use std::collections::{BTreeMap, HashMap};

/// The names that participants state, each of ends of its own. A participant without names is not kept, so that the limit of the names is one
/// of the participants, too.
#[derive(Default)]
pub(super) struct Nodes {
    of: BTreeMap<Guid, HashMap<Guid, String>>,
    names: usize,
}

impl Nodes {
    /// Takes the names that a participant states now, instead of those before. `false`: there would be more than [`MOST_ENDPOINTS`].
    pub(super) fn set(&mut self, participant: Guid, names: HashMap<Guid, String>) -> bool {
        let before = self.of.get(&participant).map_or(0, HashMap::len);
        if self.names - before + names.len() > MOST_ENDPOINTS {
            return false;
        }
        self.remove(participant);
        self.names += names.len();
        if !names.is_empty() {
            self.of.insert(participant, names);
        }
        true
    }

    pub(super) fn remove(&mut self, participant: Guid) {
        self.names -= self.of.remove(&participant).map_or(0, |names| names.len());
    }

    /// The node of an end.
    pub(super) fn of(&self, end: Guid) -> Option<&String> {
        self.of.get(&end.participant())?.get(&end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn participant(number: u32) -> Guid {
        Guid((u128::from(number) << 32).to_be_bytes()).participant()
    }

    fn names(of: Guid, count: usize) -> HashMap<Guid, String> {
        let end = |number: u128| Guid(((of.number() >> 32 << 32) + number).to_be_bytes());
        (1..=count as u128).map(|number| (end(number), "/node".to_owned())).collect()
    }

    #[test]
    fn names_are_limited_and_those_before_make_room() {
        let (mut nodes, [first, second]) = (Nodes::default(), [1, 2].map(participant));
        for _ in 0..2 {
            assert!(nodes.set(first, names(first, MOST_ENDPOINTS)));
            assert!(!nodes.set(second, names(second, 1)));
        }
        assert!(nodes.set(first, names(first, MOST_ENDPOINTS - 1)) && nodes.set(second, names(second, 1)));
        let end = *names(second, 1).keys().next().unwrap();
        assert_eq!(nodes.of(end).unwrap(), "/node");
        nodes.remove(second);
        assert_eq!((nodes.of(end), nodes.names), (None, MOST_ENDPOINTS - 1));
    }

    #[test]
    fn participants_without_names_take_no_room() {
        let mut nodes = Nodes::default();
        for number in 0..1000 {
            assert!(nodes.set(participant(number), HashMap::new()));
        }
        assert!(nodes.set(participant(1), names(participant(1), 2)) && nodes.set(participant(1), HashMap::new()));
        assert_eq!((nodes.of.len(), nodes.names), (0, 0));
    }
}
