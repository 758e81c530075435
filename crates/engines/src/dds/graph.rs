//! The endpoints of other programs, as discovery tells of them; in `own` those of ours that are compared with them.
//!
//! A node of ROS 2 has its endpoints first, and names them then. So they are held back until they are named, at most [`UNNAMED`].

mod nodes;
mod own;

pub(super) use own::Own;

use super::keys::Key;
use super::policies::thalweg_qos;
use super::ros;
use super::services;
use super::types::{Naming, Stated, Types};
use super::way;
use crate::engine::{Endpoint, Mismatches, Refused, Topic};
use crate::lock;
use cyclone::{Complaints, Found, FoundEnd, Guid, Policies};
use nodes::Nodes;
use own::OwnEnds;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use thalweg::codec::TypeDescription;
use thalweg::control::{Direction, NodeId};

/// Most endpoints of others that are known, most participants, and most endpoints that nodes name; further ones are counted as refused.
pub(super) const MOST_ENDPOINTS: usize = 10_000;
/// In ROS 2: endpoints that no node has named are told after this time. Most are named within milliseconds; those of other programs never.
const UNNAMED: Duration = Duration::from_millis(500);

pub(super) struct Graph {
    types: Arc<Types>,
    /// What the user data of a bridge that stands in for ours begin with.
    bridge: String,
    others: Mutex<Others>,
    own: Arc<Mutex<OwnEnds>>,
    told: Mutex<Mismatches>,
    changes: Mutex<u64>,
    changed: Condvar,
    /// And the number of complaints of each participant that are among them.
    refused: Mutex<(Refused, Vec<u64>)>,
}

#[derive(Default)]
struct Others {
    ends: BTreeMap<Guid, Known>,
    participants: BTreeMap<Guid, Participant>,
    nodes: Nodes,
    /// Ends that are not told yet, in the order in which they came, and some that have been named since; each once, and none that is gone.
    held: VecDeque<(Guid, Instant)>,
}

impl Others {
    fn end_gone(&mut self, guid: Guid) -> bool {
        let known = self.ends.remove(&guid).is_some();
        if known {
            self.held.retain(|(end, _)| *end != guid);
        }
        known
    }

    fn participant_gone(&mut self, guid: Guid) -> bool {
        self.ends.retain(|end, _| !end.is_beside(guid));
        self.held.retain(|(end, _)| !end.is_beside(guid));
        self.nodes.remove(guid.participant());
        self.participants.remove(&guid).is_some()
    }
}

struct Participant {
    program: Option<String>,
    bridge: Option<NodeId>,
}

/// An endpoint of another program.
pub(super) struct Known {
    stated: Stated,
    policies: Policies,
    endpoint: Endpoint,
    held: bool,
}

impl Graph {
    /// `bridge` is what the user data of a bridge that stands in for ours begin with.
    pub(super) fn new(types: Arc<Types>, bridge: String) -> Self {
        Self {
            types,
            bridge,
            others: Mutex::default(),
            own: Arc::default(),
            told: Mutex::default(),
            changes: Mutex::default(),
            changed: Condvar::new(),
            refused: Mutex::default(),
        }
    }

    /// Takes what discovery tells.
    pub(super) fn take(&self, found: Found, now: Instant) {
        let changed = match found {
            Found::End(end) => self.came(*end, now),
            Found::EndGone(guid) => lock(&self.others).end_gone(guid),
            Found::Participant(guid, program, data) => self.joined(guid, program, &data),
            Found::ParticipantGone(guid) => lock(&self.others).participant_gone(guid),
        };
        if changed {
            self.change();
        }
    }

    fn change(&self) {
        *lock(&self.changes) += 1;
        self.changed.notify_all();
    }

    fn came(&self, end: FoundEnd, now: Instant) -> bool {
        let FoundEnd { guid, writes, topic, type_name, keyed, policies } = end;
        let name = match self.types.naming.here(&topic) {
            Ok(Some(name)) => name,
            Ok(None) => return false,
            Err(wrong) => {
                self.refuse(&format!("a topic: {wrong}"));
                return false;
            }
        };
        let direction = if writes { Direction::Publisher } else { Direction::Subscriber };
        let stated = Stated { name: type_name, hash: ros::type_hash(&policies.user_data), keyed };
        let message = self.types.description(&stated);
        let key = match self.key(&stated, &message, writes, &policies) {
            Ok(key) => key,
            Err(why) => {
                self.refuse(&format!("topic {topic} of type {}: it has a key, and {why}", stated.name));
                return false;
            }
        };
        let is_service = self.types.naming == Naming::Ros && services::here(&topic).is_some();
        if let Some(why) = services::refusal(guid, &message).filter(|_| is_service) {
            self.refuse(&format!("service {topic} of type {}: {why}", stated.name));
            return false;
        }
        let way = match way::of(&policies.user_data) {
            Ok(way) => way,
            Err(wrong) => {
                self.refuse(&format!("topic {topic}: {wrong}"));
                return false;
            }
        };
        let topic = Topic { name, message };
        let (id, mut qos) = (guid.number(), thalweg_qos(&policies));
        qos.key = key;
        let endpoint = Endpoint { id, direction, topic, qos, name: String::new(), way };
        let mut others = lock(&self.others);
        if others.ends.len() >= MOST_ENDPOINTS && !others.ends.contains_key(&guid) {
            drop(others);
            self.refuse(&format!("an endpoint beyond {MOST_ENDPOINTS}, which are known"));
            return false;
        }
        let known = others.ends.get(&guid).map(|known| known.held);
        let held = self.types.naming == Naming::Ros && known != Some(false) && others.nodes.of(guid).is_none();
        if held && known.is_none() {
            others.held.push_back((guid, now));
        }
        others.ends.insert(guid, Known { stated, policies, endpoint, held });
        true
    }

    /// The key of an end's topic; empty if it has none. Of a reader it need not be known: the key is that of the publisher here.
    fn key(
        &self,
        stated: &Stated,
        message: &TypeDescription,
        writes: bool,
        policies: &Policies,
    ) -> Result<Vec<String>, String> {
        if !stated.keyed {
            return Ok(Vec::new());
        }
        let Some(key) = self.types.key(&stated.name) else {
            let unknown = "no definition says of which members: name its definition (--idl)".to_owned();
            return if writes { Err(unknown) } else { Ok(Vec::new()) };
        };
        let Some(schema) = &message.schema else { return Err("the structure of the type is not known".to_owned()) };
        Key::new(schema, &key)?;
        // A reader here takes all instances for one, which would have one owner.
        match writes && policies.exclusive {
            true => Err("each of its instances has an owner (ownership = exclusive), which is not carried".to_owned()),
            false => Ok(key),
        }
    }

    fn joined(&self, guid: Guid, program: Option<String>, data: &[u8]) -> bool {
        let bridge = self.bridge_of(data);
        let mut others = lock(&self.others);
        if others.participants.len() >= MOST_ENDPOINTS && !others.participants.contains_key(&guid) {
            drop(others);
            self.refuse(&format!("a participant beyond {MOST_ENDPOINTS}, which are known"));
            return false;
        }
        others.participants.insert(guid, Participant { program, bridge });
        true
    }

    /// The node of a bridge that stands in for ours, by its participant's user data.
    fn bridge_of(&self, data: &[u8]) -> Option<NodeId> {
        let text = std::str::from_utf8(data).ok().filter(|_| !self.bridge.is_empty())?;
        let node = text.split(';').find_map(|entry| entry.strip_prefix(&self.bridge))?;
        NodeId::try_from(node.to_owned()).ok()
    }

    /// Takes the names of the nodes of a participant's ends, and of no others.
    pub(super) fn named(&self, participant: Guid, names: HashMap<Guid, String>) {
        let mut others = lock(&self.others);
        if !others.participants.contains_key(&participant) {
            return; // it went while the names waited, and would not take them along
        }
        let ends: Vec<Guid> = names.keys().copied().collect();
        if !others.nodes.set(participant, names) {
            drop(others);
            return self.refuse(&format!("nodes of more than {MOST_ENDPOINTS} endpoints"));
        }
        for guid in ends {
            if let Some(known) = others.ends.get_mut(&guid) {
                known.held = false;
            }
        }
        drop(others);
        self.change();
    }

    /// The nodes of bridges that stand in for ours.
    pub(super) fn bridges(&self) -> Vec<NodeId> {
        lock(&self.others).participants.values().filter_map(|participant| participant.bridge).collect()
    }

    /// Counts what could not be used.
    pub(super) fn refuse(&self, what: &str) {
        let (refused, _) = &mut *lock(&self.refused);
        refused.count += 1;
        refused.last = what.to_owned();
    }

    /// What could not be used; `complaints` are Cyclone's, by participant.
    pub(super) fn refused(&self, complaints: &[Complaints]) -> Refused {
        let (refused, seen) = &mut *lock(&self.refused);
        seen.resize(complaints.len().max(seen.len()), 0);
        for (complaints, seen) in complaints.iter().zip(seen) {
            if complaints.count > *seen {
                refused.count += complaints.count - *seen;
                refused.last.clone_from(&complaints.last);
                *seen = complaints.count;
            }
        }
        refused.clone()
    }

    /// A number that is another one after endpoints have come or gone, or have been held back for long enough.
    pub(super) fn changes(&self, now: Instant) -> u64 {
        if self.release(now) {
            self.change();
        }
        *lock(&self.changes)
    }

    fn release(&self, now: Instant) -> bool {
        let mut released = false;
        let Others { ends, held, .. } = &mut *lock(&self.others);
        while held.front().is_some_and(|(_, since)| now.saturating_duration_since(*since) >= UNNAMED) {
            let Some((guid, _)) = held.pop_front() else { break };
            if let Some(known) = ends.get_mut(&guid) {
                released |= std::mem::take(&mut known.held);
            }
        }
        released
    }

    /// Waits until there are other changes than `seen`, at most for `patience`.
    pub(super) fn wait(&self, seen: u64, patience: Duration) {
        let changes = lock(&self.changes);
        drop(
            self.changed
                .wait_timeout_while(changes, patience, |changes| *changes == seen)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let others = lock(&self.others);
        let programs: HashMap<&[u8], &str> = others
            .participants
            .iter()
            .filter_map(|(guid, participant)| Some((&guid.0[..12], participant.program.as_deref()?)))
            .collect();
        let named = |(guid, known): (&Guid, &Known)| {
            let node = others.nodes.of(*guid).cloned();
            let program = || programs.get(&guid.0[..12]).map(|name| (*name).to_owned());
            let name = node.or_else(program).unwrap_or_else(|| format!("{:.24}", guid.to_string()));
            Endpoint { name, ..known.endpoint.clone() }
        };
        others.ends.iter().filter(|(_, known)| !known.held).map(named).collect()
    }

    /// The topics that others write, with the types that they state.
    pub(super) fn written(&self) -> Vec<(String, Stated)> {
        let others = lock(&self.others);
        let writers = others.ends.values().filter(|known| known.endpoint.direction == Direction::Publisher);
        let mut topics: Vec<_> =
            writers.map(|known| (known.endpoint.topic.name.clone(), known.stated.clone())).collect();
        topics.sort();
        topics.dedup();
        topics
    }

    /// `true` if others write a topic of this type with a key.
    pub(super) fn is_keyed(&self, topic: &str, type_name: &str) -> bool {
        let fits = |(of, stated): &(String, Stated)| of == topic && stated.name == type_name && stated.keyed;
        self.written().iter().any(fits)
    }

    /// The types that others state of a topic.
    pub(super) fn types_of(&self, topic: &str) -> Vec<Stated> {
        let others = lock(&self.others);
        let ends = others.ends.values().filter(|known| known.endpoint.topic.name == topic);
        let mut types: Vec<_> = ends.map(|known| known.stated.clone()).collect();
        types.sort();
        types.dedup();
        types
    }
}

#[cfg(test)]
mod tests;
