//! The ROS graph: the endpoints of other nodes, by their tokens, and those of ours that are compared with them.

use super::rmw::{Entity, Gid, Kind};
use super::types::{Types, WireType, thalweg_qos};
use crate::engine::ends::{self, Side};
use crate::engine::{Endpoint, Incompatible, Mismatches, Refusals, Refused, Topic};
use crate::lock;
use qos::Qos;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use thalweg::control::Direction;

/// Most endpoints of others that are known; further ones are counted.
pub(super) const MOST_ENDPOINTS: usize = 10_000;

pub(super) struct Graph {
    /// The identity of our own session: its tokens come back.
    session: String,
    types: Arc<Types>,
    others: Mutex<Others>,
    own: Arc<Mutex<OwnEnds>>,
    told: Mutex<Mismatches>,
    changes: AtomicU64,
    /// Tokens and samples that could not be read, or for which there was no room.
    refused: Refusals,
}

#[derive(Default)]
struct Others {
    by_token: BTreeMap<String, Known>,
    /// Their subscribers, by topic and type.
    subscribers: HashMap<(String, String), usize>,
}

/// An endpoint of another node.
struct Known {
    wire: WireType,
    endpoint: Endpoint,
}

#[derive(Default)]
struct OwnEnds {
    next: u64,
    ends: BTreeMap<u64, OwnEnd>,
    gids: HashSet<Gid>,
}

struct OwnEnd {
    gid: Gid,
    topic: String,
    type_name: String,
    direction: Direction,
    qos: Qos,
}

/// An end of ours, until this is dropped.
pub(super) struct Own {
    ends: Arc<Mutex<OwnEnds>>,
    number: u64,
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut own = lock(&self.ends);
        if let Some(end) = own.ends.remove(&self.number) {
            own.gids.remove(&end.gid);
        }
    }
}

impl Graph {
    pub(super) fn new(session: String, types: Arc<Types>) -> Self {
        Self {
            session,
            types,
            others: Mutex::default(),
            own: Arc::default(),
            told: Mutex::default(),
            changes: AtomicU64::new(0),
            refused: Refusals::default(),
        }
    }

    /// Takes the token of a new endpoint. Nodes and services have no topic of samples.
    pub(super) fn came(&self, token: &str) {
        let entity = match Entity::parse(token) {
            Ok(entity) if entity.session == self.session => return,
            Ok(entity) => entity,
            Err(wrong) => return self.refuse(&format!("a token: {wrong}")),
        };
        let Some(known) = self.known(token, entity) else { return };
        let mut others = lock(&self.others);
        if others.by_token.contains_key(token) {
            return;
        }
        if others.by_token.len() == MOST_ENDPOINTS {
            drop(others);
            return self.refuse(&format!("an endpoint beyond {MOST_ENDPOINTS}, which are known"));
        }
        if known.endpoint.direction == Direction::Subscriber {
            *others.subscribers.entry(known.topic()).or_default() += 1;
        }
        others.by_token.insert(token.to_owned(), known);
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn known(&self, token: &str, entity: Entity) -> Option<Known> {
        let direction = match entity.kind {
            Kind::Publisher => Direction::Publisher,
            Kind::Subscription => Direction::Subscriber,
            Kind::Node | Kind::Service | Kind::Client => return None,
        };
        let Entity { namespace, node, topic, .. } = entity;
        let topic = topic?;
        let wire = WireType { wire: topic.type_name, hash: topic.hash };
        let message = self.types.description(&wire).ok()?; // of services and actions
        let name = format!("{}/{node}", namespace.trim_end_matches('/'));
        let id = u128::from_le_bytes(Gid::of(token).0);
        let (qos, topic) = (thalweg_qos(&topic.qos), Topic { name: topic.name, message });
        let endpoint = Endpoint { id, direction, topic, qos, name, way: Vec::new() };
        Some(Known { wire, endpoint })
    }

    pub(super) fn gone(&self, token: &str) {
        let mut others = lock(&self.others);
        let Some(known) = others.by_token.remove(token) else { return };
        if known.endpoint.direction == Direction::Subscriber {
            let topic = known.topic();
            let left = others.subscribers.get(&topic).map_or(0, |count| count.saturating_sub(1));
            match left {
                0 => drop(others.subscribers.remove(&topic)),
                left => drop(others.subscribers.insert(topic, left)),
            }
        }
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// `true` if another node subscribes to this topic of this type.
    pub(super) fn has_subscriber(&self, topic: &(String, String)) -> bool {
        lock(&self.others).subscribers.contains_key(topic)
    }

    /// `true` if it is the identity of an end of ours.
    pub(super) fn is_own(&self, gid: Gid) -> bool {
        lock(&self.own).gids.contains(&gid)
    }

    /// Counts what could not be used.
    pub(super) fn refuse(&self, what: &str) {
        self.refused.add(what);
    }

    pub(super) fn refused(&self) -> Refused {
        self.refused.so_far()
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        lock(&self.others).by_token.values().map(|known| known.endpoint.clone()).collect()
    }

    /// The types that others state of a topic.
    pub(super) fn types_of(&self, topic: &str) -> Vec<WireType> {
        let others = lock(&self.others);
        let mut types: Vec<_> = others
            .by_token
            .values()
            .filter(|known| known.endpoint.topic.name == topic)
            .map(|known| known.wire.clone())
            .collect();
        types.sort();
        types.dedup();
        types
    }

    /// Notes an end of ours.
    pub(super) fn enter(&self, gid: Gid, topic: &str, type_name: &str, direction: Direction, qos: Qos) -> Own {
        let mut own = lock(&self.own);
        own.next += 1;
        let number = own.next;
        own.gids.insert(gid);
        own.ends
            .insert(number, OwnEnd { gid, topic: topic.to_owned(), type_name: type_name.to_owned(), direction, qos });
        Own { ends: self.own.clone(), number }
    }

    /// Ends of others that do not match one of ours, each once. Nothing is compared while nobody comes or goes.
    pub(super) fn incompatible(&self) -> Vec<Incompatible> {
        let (others, own, mut told) = (lock(&self.others), lock(&self.own), lock(&self.told));
        if !told.are_due((self.changes(), own.next)) {
            return Vec::new();
        }
        let ours = own.ends.values().map(|end| (end.topic.as_str(), end));
        let theirs = others.by_token.values().map(|other| (other.endpoint.topic.name.as_str(), other));
        told.untold(ends::compared(ours, theirs, between))
    }
}

impl Known {
    fn topic(&self) -> (String, String) {
        (self.endpoint.topic.name.clone(), self.wire.wire.clone())
    }
}

/// What stands between an end of ours and one of another node.
fn between(own: &OwnEnd, Known { wire, endpoint }: &Known) -> Vec<Incompatible> {
    let ours = Side { direction: own.direction, type_name: &own.type_name, qos: &own.qos };
    let theirs = Side { direction: endpoint.direction, type_name: &wire.wire, qos: &endpoint.qos };
    ends::between(&own.topic, ours, theirs)
}

#[cfg(test)]
mod tests {
    use super::super::types;
    use super::*;

    const OWN: &str = "aac3178e146ba6f1fc6e6a4085e77f21";
    const HASH: &str = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";

    fn graph() -> Graph {
        Graph::new(OWN.to_owned(), Arc::new(Types::new(types::known())))
    }

    fn token(kind: &str, number: u32, qos: &str) -> String {
        format!(
            "@ros2_lv/0/8b20917502ee955ac4476e0266340d5c/0/{number}/{kind}/%/%ns/talker/%chatter/std_msgs::msg::dds_::String_/{HASH}/{qos}"
        )
    }

    #[test]
    fn endpoints_come_and_go_with_their_tokens() {
        let graph = graph();
        let talker = token("MP", 10, "2::,7:,:,:,,");
        graph.came(&talker);
        graph.came(&talker);
        graph.came(&talker.replace("8b20917502ee955ac4476e0266340d5c", OWN));
        graph.came("@ros2_lv/0/8b20917502ee955ac4476e0266340d5c/0/0/NN/%/%/talker");
        graph.came("@ros2_lv/0/no/token");
        let ends = graph.endpoints();
        assert_eq!(ends.len(), 1);
        assert_eq!(
            (&ends[0].name[..], &ends[0].topic.name[..], ends[0].direction),
            ("/ns/talker", "/chatter", Direction::Publisher)
        );
        assert_eq!(ends[0].qos.reliability, qos::Reliability::BestEffort);
        assert_eq!((graph.changes(), graph.refused().count), (1, 1));
        assert_eq!(graph.types_of("/chatter").len(), 1);
        graph.gone(&talker);
        assert_eq!((graph.endpoints(), graph.changes()), (Vec::new(), 2));
        let topic = ("/chatter".to_owned(), "std_msgs::msg::dds_::String_".to_owned());
        let listeners = [11, 12].map(|number| token("MS", number, "::,7:,:,:,,"));
        listeners.iter().for_each(|listener| graph.came(listener));
        graph.gone(&listeners[0]);
        assert!(graph.has_subscriber(&topic));
        graph.gone(&listeners[1]);
        assert!(!graph.has_subscriber(&topic));
    }

    #[test]
    fn a_mismatch_is_told_once_with_both_values() {
        let graph = graph();
        graph.came(&token("MP", 10, "2::,7:,:,:,,"));
        let own = graph.enter(
            Gid([1; 16]),
            "/chatter",
            "std_msgs::msg::dds_::String_",
            Direction::Subscriber,
            Qos::default(),
        );
        let told: Vec<String> = graph.incompatible().iter().map(ToString::to_string).collect();
        assert_eq!(told, ["/chatter: reliability offered best-effort, requested reliable"]);
        assert_eq!(graph.incompatible(), []);
        drop(own);
        let _typed =
            graph.enter(Gid([1; 16]), "/chatter", "std_msgs::msg::dds_::Int8_", Direction::Subscriber, Qos::default());
        assert_eq!(graph.incompatible()[0].policy, "type");
    }

    #[test]
    fn a_flood_of_endpoints_is_bounded() {
        let graph = graph();
        (0..MOST_ENDPOINTS as u32 + 5).for_each(|number| graph.came(&token("MS", number, "::,:,:,:,,")));
        assert_eq!((graph.endpoints().len(), graph.refused().count), (MOST_ENDPOINTS, 5));
    }
}
