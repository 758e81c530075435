//! Announcements of nodes, and the directory that keeps them.

use crate::codec::TypeDescription;
use crate::control::directory::{Applied, Directory, Surroundings};
use crate::control::{Change, Direction, Document, Event, NodeId, Origin, PortId, PortInfo, limits};
use std::net::IpAddr;

/// Lines of documents, changes and ids of nodes that are gone, each by the way that its first byte selects. The
/// directory stays within its limits, look-ups by name and topic find what is there, no address of another host is
/// accepted, and with the last node all is gone.
pub fn directory(bytes: &[u8]) {
    let mut own = document(1);
    own.socket = Some("/run/thalweg/host.lab.0000000000000001.sock".into());
    let mut directory = Directory::within(Surroundings::of(&own));
    directory.apply(Origin::Own, Event::Document(Box::new(own.clone())));
    for line in bytes.split(|byte| *byte == b'\n').take(64) {
        let Some((&way, told)) = line.split_first() else { continue };
        let (origin, Some(event)) = (origin(way), event(way, told)) else { continue };
        if let Event::Document(document) = &event {
            survives(document);
        }
        match directory.apply(origin, event) {
            Applied::Refused { refusal, .. } => assert!(!refusal.because.is_empty()),
            Applied::Changed(delta) => assert!(delta.added.iter().all(|key| directory.port(*key).is_some())),
            Applied::Nothing | Applied::RefreshNeeded(_) => {}
        }
        holds(&directory, &own);
    }
    let nodes: Vec<NodeId> = directory.nodes().map(|document| document.node).collect();
    for (node, way) in nodes.into_iter().flat_map(|node| (0..4).map(move |way| (node, way))) {
        let origin = if way == 3 { Origin::Own } else { origin(way) };
        directory.apply(origin, Event::Gone(node));
    }
    assert_eq!((directory.nodes().count(), directory.port_count(), directory.weight()), (0, 0, 0), "somebody is left");
}

fn origin(way: u8) -> Origin {
    match way & 3 {
        0 => Origin::this_user(),
        1 => Origin::Tcp { from: IpAddr::from([10, 0, 0, 7]), here: false, user: None },
        2 => Origin::Zenoh,
        _ => Origin::Tcp { from: IpAddr::from([127, 0, 0, 1]), here: true, user: None },
    }
}

fn event(way: u8, told: &[u8]) -> Option<Event> {
    match way >> 2 & 3 {
        0 => serde_json::from_slice(told).ok().map(|document| Event::Document(Box::new(document))),
        1 => {
            let (&node, change) = told.split_first()?;
            serde_json::from_slice(change).ok().map(|change: Change| Event::Change(NodeId((node & 7).into()), change))
        }
        _ => told.first().map(|node| Event::Gone(NodeId((node & 7).into()))),
    }
}

fn survives(document: &Document) {
    let written = serde_json::to_vec(document).unwrap_or_else(|e| panic!("a document that was read: {e}"));
    let again: Result<Document, _> = serde_json::from_slice(&written);
    assert_eq!(again.ok().as_ref(), Some(document), "a document survives the way");
}

fn holds(directory: &Directory, own: &Document) {
    assert!(directory.weight() <= limits::MOST_BYTES && directory.port_count() <= limits::MOST_PORTS_IN_ALL);
    let is_elsewhere = |told: &&Document| directory.origin(told.node).is_some_and(|origin| !origin.is_here());
    let elsewhere: usize = directory.nodes().filter(is_elsewhere).map(Document::weight).sum();
    assert_eq!(directory.weight_elsewhere(), elsewhere, "bytes of other hosts");
    let beside = own.socket.as_ref().and_then(|socket| socket.parent());
    for document in directory.nodes() {
        assert!(document.ports.len() <= limits::MOST_PORTS);
        assert!(document.socket.as_ref().is_none_or(|socket| socket.parent() == beside), "a socket elsewhere");
        assert!(document.node == own.node || document.addresses.len() <= limits::MOST_ADDRESSES_TRIED);
        for (id, info) in &document.ports {
            let found = directory.port_named(&info.name);
            assert!(found.is_some_and(|(_, port)| port.name == info.name), "{} is found by its name", info.name);
            let found = match info.direction {
                Direction::Publisher => directory.ports_within(&info.topic),
                Direction::Subscriber => directory.ports_on(&info.topic),
            };
            let is_it = |key: &crate::control::directory::PortKey| (key.node, key.port) == (document.node, *id);
            assert!(found.iter().any(|(key, _)| is_it(key)), "{} is found by its topic {}", info.name, info.topic);
        }
    }
}

fn document(node: u64) -> Document {
    let [name, realm, host] = ["node", "lab", "host"].map(str::to_owned);
    let (host_name, clock) = (host.clone(), host.clone());
    Document {
        node: NodeId(node),
        name,
        realm,
        host,
        host_name,
        clock,
        pid: 1,
        incarnation: node,
        revision: 1,
        addresses: Vec::new(),
        socket: None,
        ports: Default::default(),
        relay: None,
    }
}

fn port(direction: Direction, name: &str, topic: &str) -> PortInfo {
    let (name, topic, message) = (name.to_owned(), topic.to_owned(), TypeDescription::opaque("bytes"));
    let carriers = vec!["tcp".into()];
    PortInfo {
        name,
        direction,
        topic,
        message,
        qos: Default::default(),
        carriers,
        answers: None,
        pull: Default::default(),
    }
}

/// Two nodes that come, change and go.
pub(super) fn news() -> Vec<Vec<u8>> {
    let mut one = document(2);
    one.ports.insert(PortId(1), port(Direction::Publisher, "/out", "/topic"));
    one.addresses = vec![([127, 0, 0, 1], 7).into(), ([10, 0, 0, 7], 9).into()];
    one.socket = Some("/run/thalweg/host.lab.0000000000000002.sock".into());
    let mut two = document(3);
    two.ports.insert(PortId(1), port(Direction::Subscriber, "/in", "/**"));
    two.relay = Some(Default::default());
    let mut change = Change { base: 1, revision: 2, ..Change::default() };
    change.added.insert(PortId(2), port(Direction::Subscriber, "/other", "/topic"));
    change.removed.push(PortId(1));
    let json = |document: &Document| serde_json::to_vec(document).unwrap_or_default();
    let changed = serde_json::to_vec(&change).unwrap_or_default();
    let lines = |first: u8| {
        let (came, gone): (&[u8], &[u8]) = (&[first], &[b'\n', first | 8, b'2']);
        [came, &json(&one), b"\n", came, &json(&two), b"\n", &[first | 4, b'2'], &changed, gone].concat()
    };
    let by_two_ways = [b"1", &json(&one)[..], b"\n0", &json(&one), b"\n82\n1", &json(&two), b"\n:3"].concat();
    (0x30..0x34).map(lines).chain([by_two_ways]).collect()
}
