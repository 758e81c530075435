//! Ports and documents for tests of routes.

use qos::Qos;
use std::net::SocketAddr;
use thalweg::codec::TypeDescription;
use thalweg::control::{Direction, Document, NodeId, PortId, PortInfo, PullRole};

/// The bridge's node.
pub(in super::super) const OWN: NodeId = NodeId(1);

/// A port of a node, with default policies.
pub(in super::super) fn port(direction: Direction, topic: &str, message: TypeDescription) -> PortInfo {
    PortInfo {
        name: format!("/of{topic}"),
        direction,
        topic: topic.to_owned(),
        message,
        qos: Qos::default(),
        carriers: Vec::new(),
        answers: None,
        pull: PullRole::Push,
        foreign: None,
    }
}

pub(in super::super) fn document(node: u64, ports: Vec<PortInfo>) -> Document {
    Document {
        node: NodeId(node),
        name: "n".to_owned(),
        realm: "r".to_owned(),
        host: "h".to_owned(),
        host_name: "h".to_owned(),
        clock: "c".to_owned(),
        pid: 1,
        incarnation: 1,
        revision: 1,
        addresses: Vec::<SocketAddr>::new(),
        socket: None,
        ports: ports.into_iter().zip(1..).map(|(info, number)| (PortId(number), info)).collect(),
        relay: None,
    }
}
