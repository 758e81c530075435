//! A node: its machines, the documents it knows, and the channels that it serves.

use super::moving::{Crossing, Leaver};
use super::ports::Drawn;
use super::publisher::PublisherPort;
use crate::channel::proxy::Proxy;
use crate::channel::{Channel, PortRef};
use crate::control::directory::Directory;
use crate::control::{Direction, Document, NodeId, Origin, PortId, PortInfo};
use crate::driver::attachments::Attachments;
use crate::driver::heartbeat::Heartbeat;
use crate::driver::matching::room::Elsewhere;
use crate::driver::matching::{Known, Matching, Names, OwnPorts, Pair};
use crate::driver::moves::Moves;
use crate::driver::relay::{self, Hosting, Relay};
use crate::driver::succession::CutOffs;
use crate::handshake::Request;
use crate::settings::RelayLimits;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nodes of one host.
pub(super) const PER_HOST: usize = 4;
/// Most channels of a port to other hosts: a node's default.
pub(super) const MOST_CHANNELS: u32 = 64;
/// Limits of a relay that are not met here.
const LIMITS: RelayLimits = RelayLimits {
    proxies: 100_000,
    per_peer: 100_000,
    samples_per_s: u64::MAX,
    bytes_per_s: u64::MAX,
    kept_bytes: 0,
    unwanted: Duration::from_secs(60),
};

/// A channel at its publisher's end, with an open stream.
pub(super) struct Served {
    pub channel: Arc<Channel>,
    /// The subscriber's peer; `None`: of this host.
    pub from: Option<Elsewhere>,
    pub tcp: bool,
}

/// A request that arrived on this connection from this peer.
pub(super) struct Asked {
    pub conn: u64,
    pub request: Box<Request>,
    pub from: Option<Elsewhere>,
}

/// A stream that a relay hosts.
pub(super) struct Hosted {
    pub publisher_port: Rc<PublisherPort>,
    pub offered: PortInfo,
    /// The name and number of the port that receives it.
    pub name: String,
    pub port: PortId,
    pub source: Cell<bool>,
}

impl relay::Stream for Hosted {
    fn has_source(&self) -> bool {
        self.source.get()
    }
    fn takers(&self) -> usize {
        self.publisher_port.channels().len()
    }
    fn carried(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// A channel whose other end is asked for signs of life.
pub(super) struct Watched {
    pub channel: Arc<Channel>,
    pub node: NodeId,
    pub since: Duration,
    /// The silence that its subscriber's policies allow.
    pub limit: Duration,
    /// It said that it has no source.
    pub no_source: bool,
    /// Questions that were lost in a row.
    pub lost: u32,
}

/// A running node; a crash leaves nothing.
pub(super) struct Node {
    pub document: Document,
    pub directory: Directory,
    pub matching: Matching,
    pub drawn: BTreeMap<PortId, Drawn>,
    pub publisher_ports: BTreeMap<PortId, Rc<PublisherPort>>,
    /// Handshakes under way, for channels and for moves, and open channels, by the number of their connection.
    pub handshakes: BTreeMap<Pair, u64>,
    pub move_handshakes: BTreeMap<Pair, u64>,
    pub open: BTreeMap<Pair, u64>,
    pub served: BTreeMap<u64, Served>,
    pub attachments: Attachments<Rc<PublisherPort>>,
    pub cut_off: CutOffs<Rc<PublisherPort>>,
    pub moves: Moves<Rc<Crossing>, Leaver>,
    pub heartbeat: Heartbeat,
    pub watched: BTreeMap<u64, Watched>,
    pub relay: Relay<Hosted, Asked, ()>,
    /// Connections whose subscriber's end was dropped.
    pub dropped: Rc<RefCell<Vec<u64>>>,
    /// The time at which the machines are called next.
    pub timer: Option<Instant>,
    /// Pairs of ports that its administrator keeps apart, connected by name, or gave a proxy.
    pub apart: BTreeSet<Names>,
    pub by_name: BTreeSet<Names>,
    pub proxies: BTreeMap<Names, Proxy>,
    pub next_port: u32,
}

pub(super) fn host_of(slot: usize) -> usize {
    slot / PER_HOST
}

pub(super) fn address_of(slot: usize) -> Ipv4Addr {
    let [.., high, low] = (host_of(slot) as u32 + 1).to_be_bytes();
    Ipv4Addr::new(10, 0, high, low)
}

/// The name of the relay in a slot.
pub(super) fn relay_name(slot: usize) -> String {
    format!("relay-{slot}")
}

impl Node {
    pub fn new(slot: usize, id: NodeId, realm: String, (bridge, relays): (bool, bool), now: Instant) -> Self {
        let port = 7000 + (slot % PER_HOST) as u16;
        let own = (std::net::IpAddr::from(address_of(slot)), port).into();
        // This address is the same on every host, where it leads to another node, as those of container engines do.
        let bridge = bridge.then(|| ([172, 17, 0, 1], port).into());
        let plain = crate::testing::discovery::document(id.0);
        let document = Document {
            realm,
            name: if relays { relay_name(slot) } else { plain.name.clone() },
            host: format!("host-{}", host_of(slot)),
            host_name: format!("host-{}", host_of(slot)),
            clock: format!("clock-{}", host_of(slot)),
            pid: slot as u32,
            addresses: bridge.into_iter().chain([own]).collect(),
            socket: Some(format!("/run/{slot}").into()),
            relay: relays.then(Default::default),
            ..plain
        };
        let mut directory = Directory::new();
        let own = crate::control::Event::Document(Box::new(document.clone()));
        directory.apply(Origin::Own, own);
        Self {
            matching: Matching::new(id, Vec::new(), false),
            document,
            directory,
            drawn: BTreeMap::new(),
            publisher_ports: BTreeMap::new(),
            handshakes: BTreeMap::new(),
            move_handshakes: BTreeMap::new(),
            open: BTreeMap::new(),
            served: BTreeMap::new(),
            attachments: Attachments::default(),
            cut_off: CutOffs::default(),
            moves: Moves::default(),
            heartbeat: Heartbeat::default(),
            watched: BTreeMap::new(),
            relay: Relay::new(relays.then_some(LIMITS), now),
            dropped: Rc::default(),
            timer: None,
            apart: BTreeSet::new(),
            by_name: BTreeSet::new(),
            proxies: BTreeMap::new(),
            next_port: 0,
        }
    }

    pub fn id(&self) -> NodeId {
        self.document.node
    }

    /// Calls the machine with the node's documents and ports.
    pub fn ask<R>(&mut self, ask: impl FnOnce(&mut Matching, Known, &OwnPorts) -> R) -> R {
        let ports = || self.document.ports.iter();
        let of = |direction| ports().filter(move |(_, info)| info.direction == direction);
        let own = OwnPorts {
            publishers: of(Direction::Publisher).map(|(_, info)| info).collect(),
            subscribers: of(Direction::Subscriber).map(|(port, info)| (*port, info)).collect(),
        };
        let known = Known { here: &self.document, directory: &self.directory };
        ask(&mut self.matching, known, &own)
    }

    /// The next time at which a machine has work.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let deadlines = [
            self.matching.next_deadline(),
            self.moves.next_deadline(),
            self.attachments.next_deadline(now),
            self.relay.next_deadline(),
            self.heartbeat.next_deadline(),
            self.cut_off.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// `true` if this port receives a hosted stream.
    pub fn is_hosted_port(&self, port: PortId) -> bool {
        self.relay.streams.iter().any(|(_, hosted)| hosted.port == port)
    }

    /// Notes which hosted streams have a source.
    pub fn look_at_sources(&self) {
        for (key, hosted) in self.relay.streams.iter() {
            let pair = (key.0, PortRef { node: self.id(), port: hosted.port });
            hosted.source.set(self.open.contains_key(&pair));
        }
    }

    /// The publishing end of a channel.
    pub fn publisher_port_of(&self, channel: &Channel) -> Option<Rc<PublisherPort>> {
        let hosted = |(key, hosted): &(&Hosting, &Hosted)| {
            key.0 == channel.publisher && hosted.publisher_port.contains(channel.id)
        };
        let hosted = self.relay.streams.iter().find(hosted).map(|(_, hosted)| hosted.publisher_port.clone());
        let own = || self.publisher_ports.get(&channel.publisher.port).filter(|_| channel.publisher.node == self.id());
        hosted.or_else(|| own().cloned())
    }
}

/// The ports that a request names.
pub(super) fn pair_of(request: &Request) -> Pair {
    let publisher = PortRef { node: request.to_node, port: request.to_port };
    (publisher, PortRef { node: request.node, port: request.port })
}
