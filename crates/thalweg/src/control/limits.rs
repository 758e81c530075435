//! Limits on the statements of other nodes that are believed.

use super::directory::{Held, Whose};
use super::matching::{LONGEST_NAME, check_name, check_pattern};
use super::{Direction, Document, NotKept, PortId, PortInfo, RelayLoad};
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
/// Limits on all nodes together …
pub(super) const IN_ALL: Held = Held { nodes: MOST_NODES, ports: MOST_PORTS_IN_ALL, bytes: MOST_BYTES };
/// … and the part of it for nodes of other hosts.
pub(super) const ELSEWHERE: Held =
    Held { nodes: MOST_NODES / 4 * 3, ports: MOST_PORTS_IN_ALL / 4 * 3, bytes: MOST_BYTES_ELSEWHERE };
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
pub(super) fn check_ports(ports: &BTreeMap<PortId, PortInfo>, in_all: usize) -> Result<(), Refusal> {
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
pub(super) fn check_room(whose: Whose, most: Held, held: Held) -> Result<(), Refusal> {
    let [nodes, ports, bytes] = match whose {
        Whose::All => ["nodes", "ports of all nodes", "bytes of all documents"],
        Whose::Elsewhere => ["nodes of other hosts", "ports of other hosts", "bytes of all documents of other hosts"],
        Whose::Address => ["nodes of one address", "ports of one address", "bytes of the documents of one address"],
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
    port.qos.check_texts().map_err(|wrong| {
        let because = format!("{}, allowed is {}", wrong.policy, wrong.against);
        Refusal { limit: "policies", because }
    })?;
    at_most("carriers of a port", port.carriers.len(), MOST_CARRIERS)?;
    port.carriers.iter().try_for_each(|carrier| check_text(carrier.as_str()))
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
