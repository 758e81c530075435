//! The document in which a node describes itself. JSON on the wire; unknown fields are ignored.

use super::matching::topic_matches;
use super::{Foreign, Ports};
use crate::carrier;
use crate::codec::TypeDescription;
use qos::{Durability, Place, PullBuffer, Qos};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// One participating node: 64 random bits, new at every start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NodeId(pub u64);

/// A port within its node, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortId(pub u32);

impl From<NodeId> for String {
    fn from(id: NodeId) -> String {
        format!("{:016x}", id.0)
    }
}
impl TryFrom<String> for NodeId {
    type Error = NodeIdError;
    fn try_from(text: String) -> Result<Self, NodeIdError> {
        u64::from_str_radix(&text, 16).map(NodeId).map_err(|_| NodeIdError(text))
    }
}

/// Text that is no node id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdError(String);

impl fmt::Display for NodeIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a node id is 16 hexadecimal digits, not {:?}", self.0)
    }
}
impl std::error::Error for NodeIdError {}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

/// The direction of a port: it sends or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Sends.
    Publisher,
    /// Receives.
    Subscriber,
}

/// A port as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// Its name, such as `/publisher1`: unique in the realm.
    pub name: String,
    /// Sends or receives.
    pub direction: Direction,
    /// The topic it publishes, or the topic or pattern it subscribes to.
    pub topic: String,
    /// Type name, hash and, where known, structure.
    #[serde(rename = "type")]
    pub message: TypeDescription,
    /// Its QoS.
    pub qos: qos::Qos,
    /// Names of the carriers it can use, best first.
    pub carriers: Vec<carrier::Name>,
    /// The port of the same node where answers to this one's samples arrive (of a publisher) or from which they are
    /// sent (of a subscriber). Over TCP they go back on the connection of the samples (YARP's replies, Y-08).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<PortId>,
    /// A subscriber's role for histories.
    #[serde(default, skip_serializing_if = "PullRole::is_push")]
    pub pull: PullRole,
    /// Of a bridge's port: the end in the other system for which it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Foreign>,
}

/// A subscriber's role for histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PullRole {
    /// It receives samples, and may pull besides.
    #[default]
    Push,
    /// It only pulls, and has no channels.
    Only,
    /// It keeps arriving samples for others to pull: a relay's.
    Keeps,
}

impl PullRole {
    fn is_push(&self) -> bool {
        *self == PullRole::Push
    }
}

impl PortInfo {
    /// `true` if other nodes may ask this port for samples that it keeps.
    pub fn can_be_asked(&self) -> bool {
        match self.direction {
            Direction::Publisher => kept_at_publisher(&self.qos).is_some(),
            Direction::Subscriber => self.pull == PullRole::Keeps,
        }
    }

    /// Its approximate size in memory, in bytes: `tests/directory.rs` compares.
    pub(crate) fn weight(&self) -> usize {
        let Self { name, direction: _, topic, message, qos, carriers, answers: _, pull: _, foreign } = self;
        let of_end = |end: &Foreign| end.engine.len() + end.name.len() + end.network.len() + 3 * PIECE;
        let foreign = foreign.as_ref().map_or(0, |end| of_end(end) + listed(&end.passed));
        let texts = 2 * (name.len() + topic.len()) + 3 * PIECE + foreign;
        let itself = ENTRY + PIECE + COUNTS + size_of::<Self>();
        itself + texts + named(carriers) + policies(qos) + message.weight() + INDEXED
    }
}

/// A node's full state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The node.
    pub node: NodeId,
    /// The node's name, such as `camera-driver`; need not be unique.
    pub name: String,
    /// Nodes of different realms do not see each other.
    pub realm: String,
    /// Host identity ([`linux::clock::host_id`]).
    pub host: String,
    /// The host's name, for people.
    pub host_name: String,
    /// Clock identity ([`linux::clock::clock_id`]).
    pub clock: String,
    /// Process id, for people.
    pub pid: u32,
    /// Grows with each start: wall-clock nanoseconds when the node opened.
    pub incarnation: u64,
    /// Grows by one with each change of this document.
    pub revision: u64,
    /// TCP addresses where it takes handshakes and control links.
    pub addresses: Vec<SocketAddr>,
    /// Path of its unix socket, for nodes of the same host.
    pub socket: Option<PathBuf>,
    /// Its ports.
    pub ports: Ports,
    /// Its load for others, if it is a relay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayLoad>,
}

/// The load that a relay carries for others, within the last second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayLoad {
    /// Proxies: one for each channel that leads from it.
    pub proxies: u32,
    /// Samples per second that come from their sources.
    pub samples_per_s: u64,
    /// Payload bytes of these per second.
    pub bytes_per_s: u64,
    /// Publishers whose samples it keeps for others to ask.
    #[serde(default)]
    pub keeps: u32,
    /// Samples that it is asked to keep and does not, at most 16 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_kept: Vec<NotKept>,
}

/// Samples that a relay does not keep, though a port wants them kept there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NotKept {
    /// The topic or pattern of topics …
    pub topic: String,
    /// … and this publisher; `None`: of any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// The limit, and the excess.
    pub because: String,
}

impl NotKept {
    /// `true` if samples of this topic, or of one that this pattern takes, are among them.
    pub fn is_of(&self, topic: &str) -> bool {
        topic_matches(topic, &self.topic) || topic_matches(&self.topic, topic)
    }
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, publisher, because } = self;
        match publisher {
            Some(publisher) => write!(f, "samples of {publisher} are not kept for others: {because}"),
            None => write!(f, "samples of {topic} are not kept for others: {because}"),
        }
    }
}

/// The change of a document from `base` to `revision`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The revision it applies to.
    pub base: u64,
    /// The revision it leads to.
    pub revision: u64,
    /// New ports.
    #[serde(default)]
    pub added: Ports,
    /// Ports that are gone.
    #[serde(default)]
    pub removed: Vec<PortId>,
    /// A relay's new load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayLoad>,
}

/// Bytes of policies beyond their own size. All fields are named, so that a new one cannot be forgotten.
fn policies(qos: &qos::Qos) -> usize {
    let qos::Qos {
        reliability: _,
        queue: _,
        strict: _,
        class: _,
        max_message: _,
        limits: _,
        durability: _,
        history: _,
        deadline: _,
        latency_budget: _,
        lifespan: _,
        separation: _,
        destination_order: _,
        liveliness: _,
        ownership: _,
        strength: _,
        partition,
        key,
        filter,
        scale: _,
        picture: _,
        place,
        pull,
        fallback,
    } = qos;
    let filter = filter.as_ref().map_or(0, |filter| listed(&filter.parameters) + filter.expression.len() + PIECE);
    let places = [Some(place), pull.as_ref().map(|pull| &pull.place)];
    let places = places.into_iter().flatten().map(|place| match place {
        qos::Place::Relay(names) => names.len() + PIECE,
        qos::Place::Publisher | qos::Place::Subscriber => 0,
    });
    listed(partition) + listed(key) + filter + places.sum::<usize>() + size_of_val(fallback.as_slice())
}

fn named(carriers: &[carrier::Name]) -> usize {
    // As of `listed`; an added name has two counts before its text.
    let added = |name: &carrier::Name| if name.is_built_in() { 0 } else { name.as_str().len() + 16 + PIECE };
    carriers.iter().map(|name| size_of::<carrier::Name>() * 5 / 4 + added(name)).sum::<usize>() + PIECE
}

fn listed(texts: &[String]) -> usize {
    // The list was read one by one, so it has room for more.
    texts.iter().map(|text| text.len() + size_of::<String>() * 5 / 4 + PIECE).sum()
}

impl Document {
    /// Its approximate size in memory, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.weight_besides() + self.ports.values().map(PortInfo::weight).sum::<usize>()
    }

    /// The same without its ports.
    pub(crate) fn weight_besides(&self) -> usize {
        let Self { name, realm, host, host_name, clock, addresses, ports, relay, .. } = self;
        let texts: usize = [name, realm, host, host_name, clock].into_iter().map(|text| text.len() + PIECE).sum();
        let refusals = relay.iter().flat_map(|relay| &relay.not_kept);
        let refusals: usize = refusals.map(|of| size_of::<NotKept>() + of.topic.len() + of.because.len()).sum();
        let free = ports.len().next_multiple_of(LEAF) - ports.len();
        // The map of nodes has leaves that are half empty, too.
        2 * size_of::<Self>() + texts + size_of_val(addresses.as_slice()) + refusals + free * ENTRY
    }

    /// `true` if this is the relay of this name: its own, or its host's.
    pub fn is_relay(&self, name: &str) -> bool {
        self.relay.is_some() && (self.name == name || self.host_name == name)
    }

    /// Applies a change; `false` (and no effect) when it does not start at this document's revision: a gap.
    pub(crate) fn apply(&mut self, change: &Change) -> bool {
        if change.base != self.revision {
            return false;
        }
        for port in &change.removed {
            self.ports.remove(port);
        }
        self.ports.share(&change.added);
        if change.relay.is_some() {
            self.relay.clone_from(&change.relay);
        }
        self.revision = change.revision;
        true
    }

    /// Adds and removes ports, moves to the next revision and returns the change to announce.
    #[cfg(test)]
    pub(crate) fn edit(&mut self, added: Ports, removed: Vec<PortId>) -> Change {
        let change = Change { base: self.revision, revision: self.revision + 1, added, removed, relay: None };
        self.apply(&change);
        change
    }
}

impl Change {
    /// Its approximate size in memory, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let ports: usize = self.added.values().map(PortInfo::weight).sum();
        size_of::<Self>() + ports + size_of_val(self.removed.as_slice())
    }

    /// Merges this change with the next one. A port that came and went in between stays in `removed`, which does no
    /// harm.
    pub(crate) fn merge(&mut self, next: &Change) {
        for port in &next.removed {
            self.added.remove(port);
            if !self.removed.contains(port) {
                self.removed.push(*port);
            }
        }
        self.added.share(&next.added);
        if next.relay.is_some() {
            self.relay.clone_from(&next.relay);
        }
        self.revision = next.revision;
    }
}

/// The samples that a publisher of this QoS keeps: its pull buffer, with room for late joiners' samples.
pub(crate) fn kept_at_publisher(qos: &Qos) -> Option<PullBuffer> {
    let asked = qos.pull.clone().filter(|pull| pull.place == Place::Publisher);
    if qos.durability == Durability::Volatile {
        return asked;
    }
    let largest = u64::from(qos.history) * u64::from(qos.max_message);
    let late = PullBuffer { samples: qos.history, bytes: largest, ..PullBuffer::default() };
    Some(match asked {
        Some(asked) => {
            PullBuffer { samples: asked.samples.max(late.samples), bytes: asked.bytes.max(largest), ..asked }
        }
        None => late,
    })
}

/// Overhead of each piece of memory: malloc(3)'s header, and up to the next multiple of 16.
const PIECE: usize = 16;
/// Memory of a directory's indexes for a port, besides its two texts: their entries in leaves that are not full, and two lists
/// of one.
const INDEXED: usize = 300;
/// A port's entry in a map, and the number of entries in a leaf, which one port takes.
const ENTRY: usize = size_of::<(PortId, Arc<PortInfo>)>();
const LEAF: usize = 11;
/// The counts in front of what is shared.
const COUNTS: usize = 2 * size_of::<usize>();
