//! A node: the documents it knows, the channels it wants, and those it granted.

use super::ports::Drawn;
use crate::channel::PortRef;
use crate::control::directory::Directory;
use crate::control::{Direction, Document, NodeId, Origin, PortId};
use crate::driver::matching::grant::{check_greeting, check_node, check_port};
use crate::driver::matching::room::{self, Elsewhere};
use crate::driver::matching::{Known, Matching, Names, OwnPorts, Pair};
use crate::handshake::{Refused, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Instant;

/// Nodes of one host.
pub(super) const PER_HOST: usize = 4;
/// Most channels of a port to other hosts: a node's default.
const MOST_CHANNELS: u32 = 64;

/// A channel at its publisher's end.
pub(super) struct Served {
    pub pair: Pair,
    pub token: Option<u64>,
    /// The subscriber's peer; `None`: of this host.
    pub from: Option<Elsewhere>,
}

/// A running node; a crash leaves nothing.
pub(super) struct Node {
    pub document: Document,
    pub directory: Directory,
    pub matching: Matching,
    pub drawn: BTreeMap<PortId, Drawn>,
    /// Handshakes under way, and open channels, by the number of their connection.
    pub handshakes: BTreeMap<Pair, u64>,
    pub open: BTreeMap<Pair, u64>,
    pub served: BTreeMap<u64, Served>,
    /// The time at which the machine is called next.
    pub timer: Option<Instant>,
    /// Pairs of ports that its administrator keeps apart, or connected by name.
    pub apart: BTreeSet<Names>,
    pub by_name: BTreeSet<Names>,
    pub next_port: u32,
}

pub(super) fn host_of(slot: usize) -> usize {
    slot / PER_HOST
}

pub(super) fn address_of(slot: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host_of(slot) as u8 + 1)
}

impl Node {
    pub fn new(slot: usize, id: NodeId, realm: String, bridge: bool, incarnation: u64) -> Self {
        let port = 7000 + (slot % PER_HOST) as u16;
        let own = (std::net::IpAddr::from(address_of(slot)), port).into();
        // This address is the same on every host, where it leads to another node, as those of container engines do.
        let bridge = bridge.then(|| ([172, 17, 0, 1], port).into());
        let document = Document {
            realm,
            host: format!("host-{}", host_of(slot)),
            host_name: format!("host-{}", host_of(slot)),
            clock: format!("clock-{}", host_of(slot)),
            pid: slot as u32,
            incarnation,
            addresses: bridge.into_iter().chain([own]).collect(),
            socket: Some(format!("/run/{slot}").into()),
            ..crate::testing::discovery::document(id.0)
        };
        let mut directory = Directory::new();
        let own = crate::control::Event::Document(Box::new(document.clone()));
        directory.apply(Origin::Own, own);
        Self {
            matching: Matching::new(id, Vec::new(), false),
            document,
            directory,
            drawn: BTreeMap::new(),
            handshakes: BTreeMap::new(),
            open: BTreeMap::new(),
            served: BTreeMap::new(),
            timer: None,
            apart: BTreeSet::new(),
            by_name: BTreeSet::new(),
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

    /// This node's answer to a request from this peer: a granted channel, and the older one that gives way to it.
    pub fn grant(&self, request: &Request, from: Option<Elsewhere>) -> Result<Option<u64>, Refused> {
        check_greeting(request, &self.document.realm)?;
        check_node(request, self.id())?;
        check_port(request, self.document.ports.get(&request.to_port)).map_err(|granted| granted.refused)?;
        let pair = pair_of(request);
        let its = |served: &Served| served.pair == pair && served.token == request.token;
        let before = self.served.iter().find(|(_, served)| its(served)).map(|(conn, _)| *conn);
        if let Some(from) = from {
            let of_port = self.served.iter().filter(|(conn, other)| other.pair.0 == pair.0 && Some(**conn) != before);
            let others = of_port.filter_map(|(_, served)| served.from);
            room::check(&self.document.name, MOST_CHANNELS, from, others)?;
        }
        Ok(before)
    }
}

/// The ports that a request names.
pub(super) fn pair_of(request: &Request) -> Pair {
    let publisher = PortRef { node: request.to_node, port: request.to_port };
    (publisher, PortRef { node: request.node, port: request.port })
}
