//! Limits on the statements of other nodes that are believed, and the room for them in the directory.
//!
//! This host's nodes have a share of the room, and each address of the rest. One address, or Zenoh, which gives none, takes at most half
//! of what the others leave, like a peer's share of a node's memory ([`crate::channel::memory`]). A host that invents nodes thus leaves
//! room for nodes from elsewhere. News that found no room is asked for again when there is some: its node would not repeat it by itself.

use super::directory::{WAYS, rank};
use super::matching::{LONGEST_NAME, check_name, check_pattern};
use super::{
    Direction, Document, Foreign, MOST_PASSED, NodeId, NotKept, Origin, Peer, PortInfo, Ports, RelayLoad, limits,
};
use crate::codec::TypeDescription;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Most nodes a directory knows.
pub const MOST_NODES: usize = 4096;
/// Most ports of one node.
pub const MOST_PORTS: usize = 4096;
/// Most ports of all nodes together.
pub const MOST_PORTS_IN_ALL: usize = 65_536;
/// Most addresses of one node.
pub const MOST_ADDRESSES: usize = 64;
/// Most addresses of one node that are connected to.
pub const MOST_ADDRESSES_TRIED: usize = 8;
/// Most bytes for the knowledge of one node, approximately: 4,096 plain ports take 5 MiB.
pub const MOST_BYTES_OF_NODE: usize = 6 << 20;
/// Most bytes for the knowledge of all nodes together, approximately: 19,000 plain ports, or 2,700 nodes of three.
/// Including data being read, a flood of documents by all ways took up to 69 MiB where this was 40 MiB, up to 61 MiB
/// where it was 32 MiB.
pub const MOST_BYTES: usize = 24 << 20;
/// The same for nodes that are not on this host: strangers leave room for its own.
pub const MOST_BYTES_ELSEWHERE: usize = 16 << 20;
/// Most carriers a port may name.
pub const MOST_CARRIERS: usize = 16;

/// Largest number of refusals in a relay's document.
pub const MOST_NOT_KEPT: usize = 16;

/// News that goes beyond a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the limit; refusals are counted by it.
    pub limit: &'static str,
    /// The value and the limit.
    pub because: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.limit, self.because)
    }
}

pub(super) fn check_document(document: &Document) -> Result<(), Refusal> {
    for text in [&document.name, &document.realm, &document.host, &document.host_name, &document.clock] {
        check_text(text)?;
    }
    at_most("addresses", document.addresses.len(), MOST_ADDRESSES)?;
    if let Some(path) = &document.socket {
        at_most("socket path", path.as_os_str().len(), LONGEST_NAME)?;
    }
    check_relay(document.relay.as_ref())?;
    check_ports(&document.ports, document.ports.len())
}

/// Checks a relay's entries, if the node is one.
pub(super) fn check_relay(relay: Option<&RelayLoad>) -> Result<(), Refusal> {
    let Some(relay) = relay else { return Ok(()) };
    at_most("what a relay does not keep", relay.not_kept.len(), MOST_NOT_KEPT)?;
    relay.not_kept.iter().try_for_each(|NotKept { topic, publisher, because }| {
        [topic, because].into_iter().chain(publisher).try_for_each(|text| check_text(text))
    })
}

/// Checks new ports of a node that then has `in_all`.
pub(super) fn check_ports(ports: &Ports, in_all: usize) -> Result<(), Refusal> {
    at_most("ports of a node", in_all, MOST_PORTS)?;
    ports.values().try_for_each(check_port)?;
    let mut names = BTreeSet::new();
    let twice = ports.values().find(|port| !names.insert(port.name.as_str()));
    twice.map_or(Ok(()), |port| Err(has_twice(&port.name)))
}

/// A node with one name for two ports. A search for the winner of a name looks at all that hold it: one name for 4096 ports
/// took the control thread 16.8 million looks.
pub(super) fn has_twice(name: &str) -> Refusal {
    Refusal { limit: "names", because: format!("two ports of the node are named {name}") }
}

/// Checks the size of a node's document.
pub(super) fn check_weight(bytes: usize) -> Result<(), Refusal> {
    at_most("bytes of a node's document", bytes, MOST_BYTES_OF_NODE)
}

/// Checks the room of several nodes together: those of other hosts, or of one address.
fn check_room(whose: LimitHolder, most: Held, held: Held) -> Result<(), Refusal> {
    let [nodes, ports, bytes] = match whose {
        LimitHolder::All => ["nodes", "ports of all nodes", "bytes of all documents"],
        LimitHolder::Elsewhere => {
            ["nodes of other hosts", "ports of other hosts", "bytes of all documents of other hosts"]
        }
        LimitHolder::Address => {
            ["nodes of one address", "ports of one address", "bytes of the documents of one address"]
        }
    };
    at_most(nodes, held.nodes, most.nodes)?;
    at_most(ports, held.ports, most.ports)?;
    at_most(bytes, held.bytes, most.bytes)
}

/// Checks a peer's port, in a document or in a handshake.
pub(crate) fn check_port(port: &PortInfo) -> Result<(), Refusal> {
    let topic = match port.direction {
        Direction::Publisher => check_name(&port.topic),
        Direction::Subscriber => check_pattern(&port.topic),
    };
    check_name(&port.name).and(topic).map_err(|e| Refusal { limit: "names", because: e.to_string() })?;
    check_type(&port.message)?;
    port.foreign.iter().try_for_each(check_foreign)?;
    port.qos.check_texts().map_err(|wrong| {
        let because = format!("{}, allowed is {}", wrong.policy, wrong.against);
        Refusal { limit: "policies", because }
    })?;
    at_most("carriers of a port", port.carriers.len(), MOST_CARRIERS)?;
    port.carriers.iter().try_for_each(|carrier| check_text(carrier.as_str()))
}

/// Checks the end in another system for which a port is.
pub(crate) fn check_foreign(end: &Foreign) -> Result<(), Refusal> {
    at_most("places that samples have passed", end.passed.len(), MOST_PASSED)?;
    end.texts().try_for_each(check_text)
}

/// Checks a peer's type: readers by it, for a key, a filter or a person, read no further than its limits.
pub(crate) fn check_type(message: &TypeDescription) -> Result<(), Refusal> {
    check_text(&message.name)?;
    message.check().map_err(|because| Refusal { limit: "types", because: because.to_string() })
}

/// Checks a name or another short text of a peer.
pub(crate) fn check_text(text: &str) -> Result<(), Refusal> {
    at_most("length of a name", text.len(), LONGEST_NAME)?;
    match text.chars().find(|c| c.is_control()) {
        None => Ok(()),
        Some(c) => Err(Refusal { limit: "names", because: format!("{text:?} has the control character {c:?}") }),
    }
}

fn at_most(limit: &'static str, count: usize, most: usize) -> Result<(), Refusal> {
    if count <= most {
        return Ok(());
    }
    Err(Refusal { limit, because: format!("{count}, allowed are {most}") })
}

/// The room that nodes take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub nodes: usize,
    pub ports: usize,
    /// About.
    pub bytes: usize,
}

impl Held {
    /// The room that one node takes.
    pub(crate) fn by(document: &Document, bytes: usize) -> Self {
        Self { nodes: 1, ports: document.ports.len(), bytes }
    }

    fn with(self, other: Self, count: impl Fn(usize, usize) -> usize) -> Self {
        Self {
            nodes: count(self.nodes, other.nodes),
            ports: count(self.ports, other.ports),
            bytes: count(self.bytes, other.bytes),
        }
    }
    fn plus(self, other: Self) -> Self {
        self.with(other, usize::saturating_add)
    }
    fn minus(self, other: Self) -> Self {
        self.with(other, usize::saturating_sub)
    }
    fn half(self) -> Self {
        self.with(self, |count, _| count / 2)
    }
}

/// The holder of a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LimitHolder {
    All,
    Elsewhere,
    Address,
}

/// The room taken, by holder.
#[derive(Default)]
pub(super) struct Room {
    pub all: Held,
    pub elsewhere: Held,
    by: BTreeMap<Peer, Held>,
    /// Nodes whose news found no room by a way of this rank, and the room that they need.
    unheard: BTreeMap<(NodeId, usize), (Origin, Held)>,
    /// Number of times that news found no room.
    pub turned_away: u64,
    /// Room was freed since the refused nodes were last checked.
    freed: bool,
}

impl Room {
    /// Records a change of the room that a node takes by this way.
    pub(super) fn changed(&mut self, before: Option<(Origin, Held)>, after: Option<(Origin, Held)>) {
        self.freed |= frees(before, after);
        if let Some((origin, held)) = before {
            self.give_back(origin, held);
        }
        if let Some((origin, held)) = after {
            self.take(origin, held);
        }
    }

    fn take(&mut self, origin: Origin, held: Held) {
        self.all = self.all.plus(held);
        if let Some(source) = Peer::beyond(origin) {
            self.elsewhere = self.elsewhere.plus(held);
            let of = self.by.entry(source).or_default();
            *of = of.plus(held);
        }
    }

    fn give_back(&mut self, origin: Origin, held: Held) {
        self.all = self.all.minus(held);
        if let Some(source) = Peer::beyond(origin) {
            self.elsewhere = self.elsewhere.minus(held);
            let left = self.by.get(&source).map_or(Held::default(), |of| of.minus(held));
            if left == Held::default() {
                self.by.remove(&source);
            } else {
                self.by.insert(source, left);
            }
        }
    }

    /// Checks that there is room for a node's statement by this way; `before`: the room it has by now, and by which way. This
    /// node always has room for itself.
    ///
    /// # Errors
    /// The limit.
    pub(super) fn check(&self, origin: Origin, before: Option<(Origin, Held)>, wanted: Held) -> Result<(), Refusal> {
        if origin == Origin::Own {
            return Ok(());
        }
        let had = before.map_or(Held::default(), |(_, held)| held);
        limits::check_room(LimitHolder::All, IN_ALL, self.all.minus(had).plus(wanted))?;
        let Some(source) = Peer::beyond(origin) else { return Ok(()) };
        let from = before.and_then(|(origin, _)| Peer::beyond(origin));
        let had_there = if from.is_some() { had } else { Held::default() };
        let elsewhere = self.elsewhere.minus(had_there);
        limits::check_room(LimitHolder::Elsewhere, ELSEWHERE, elsewhere.plus(wanted))?;
        let had_by_it = if from == Some(source) { had } else { Held::default() };
        let its = self.by.get(&source).map_or(Held::default(), |of| of.minus(had_by_it));
        let most = ELSEWHERE.minus(elsewhere.minus(its)).half();
        // A holder above its share, because others came, keeps its room and may change its document.
        limits::check_room(LimitHolder::Address, most.with(had_by_it.plus(its), usize::max), its.plus(wanted))
    }

    /// There was no room for this: the node is asked for it later.
    pub(super) fn turn_away(&mut self, node: NodeId, origin: Origin, wanted: Held) {
        self.turned_away += 1;
        let key = (node, rank(origin));
        let of_source = self.unheard.values().filter(|(other, _)| Peer::beyond(*other) == Peer::beyond(origin)).count();
        let known = self.unheard.contains_key(&key);
        if known || (self.unheard.len() < MOST_UNHEARD && of_source < MOST_UNHEARD_OF_SOURCE) {
            self.unheard.insert(key, (origin, wanted));
        }
    }

    /// Records accepted news by this way: its statement by a worse one no longer counts.
    pub(super) fn heard(&mut self, node: NodeId, origin: Origin) {
        for way in rank(origin)..WAYS {
            self.unheard.remove(&(node, way));
        }
    }

    /// Records the end of a node, reported by this way.
    pub(super) fn forget(&mut self, node: NodeId, origin: Origin) {
        self.unheard.remove(&(node, rank(origin)));
    }

    /// Refused nodes for which there is room now; each is returned once. `known`: a node's present room.
    pub(super) fn fitting(&mut self, known: impl Fn(NodeId) -> Option<(Origin, Held)>) -> Vec<NodeId> {
        if !std::mem::take(&mut self.freed) || self.unheard.is_empty() {
            return Vec::new();
        }
        let fits = |(node, _): &(NodeId, usize), (origin, wanted): &(Origin, Held)| {
            self.check(*origin, known(*node), *wanted).is_ok()
        };
        let keys: Vec<_> = self.unheard.iter().filter(|(key, held)| fits(key, held)).map(|(key, _)| *key).collect();
        for key in &keys {
            self.unheard.remove(key);
        }
        let mut fitting: Vec<NodeId> = keys.into_iter().map(|(node, _)| node).collect();
        fitting.dedup(); // in order, by the map's
        fitting
    }
}

/// `true` if any source has more room afterwards.
fn frees(before: Option<(Origin, Held)>, after: Option<(Origin, Held)>) -> bool {
    let Some((from, had)) = before else { return false };
    let Some((to, has)) = after else { return true };
    let (from, to) = (Peer::beyond(from), Peer::beyond(to));
    had.minus(has) != Held::default() || (from.is_some() && from != to)
}

/// Limits on all nodes together …
const IN_ALL: Held = Held { nodes: MOST_NODES, ports: MOST_PORTS_IN_ALL, bytes: MOST_BYTES };
/// … and the part of it for nodes of other hosts.
const ELSEWHERE: Held =
    Held { nodes: MOST_NODES / 4 * 3, ports: MOST_PORTS_IN_ALL / 4 * 3, bytes: MOST_BYTES_ELSEWHERE };
/// Nodes that are asked again, of each source and of all.
const MOST_UNHEARD: usize = 1024;
const MOST_UNHEARD_OF_SOURCE: usize = 64;
