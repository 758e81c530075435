//! Documents and lines from other nodes: handshakes, control links, pull, announcements, administration.

use super::codec::Everything;
use super::frames::emitted;
use super::{FLOW, MAX_MESSAGE};
use crate::admin;
use crate::admin::grammar::Command;
use crate::bottle::{Bottle, DEEPEST, LONGEST, MOST_ITEMS, Value};
use crate::channel::history::{History, Query};
use crate::channel::queue::Entry;
use crate::codec::{self, TypeDescription};
use crate::control::directory::{Applied, Directory, Surroundings};
use crate::control::links::frame;
use crate::control::{Change, Direction, Document, Event, NodeId, Origin, PortId, PortInfo, limits};
use crate::handshake::{self, Answer, Checked, Request, Watching};
use crate::pull::{self, Identity, Question};
use crate::wire::{Header, Kind};
use qos::priority::Changes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::IpAddr;
use std::sync::Arc;

/// Handshake documents of any content: refused, incomplete, or read; a document that is read is written and read back
/// unchanged.
pub fn handshake(bytes: &[u8]) {
    document::<Request>(bytes);
    document::<Answer>(bytes);
    document::<Watching>(bytes);
}

fn document<T: Serialize + DeserializeOwned + Checked + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(Some((document, length))) = handshake::unpack::<T>(bytes) {
        assert!(length <= bytes.len().min(4 + handshake::LARGEST));
        if let Ok(again) = handshake::pack(&document) {
            let read = handshake::unpack::<T>(&again);
            assert_eq!(read, Ok(Some((document, again.len()))), "a document survives the way");
        }
    }
}

/// A control link of any content, from a stranger and from a known peer.
pub fn control(bytes: &[u8]) {
    let Some((&piece, bytes)) = bytes.split_first() else { return };
    let mut reader = frame::Reader::new();
    if piece & 1 == 1 {
        reader.trust();
    }
    for part in bytes.chunks(usize::from(piece) + 1) {
        reader.feed(part);
        loop {
            match reader.next() {
                Ok(Some(frame::Message::Call(_, body) | frame::Message::Answer(_, body))) => {
                    assert!(body.len() <= bytes.len().min(frame::MESSAGE_LIMIT));
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// A request, and an answer at the end that asked: nothing is read beyond an error, no sample is larger than allowed.
pub fn pull(bytes: &[u8]) {
    if let Ok(Some((question, used))) = handshake::unpack::<Question>(bytes) {
        assert!(used <= bytes.len());
        let limits = qos::PullBuffer { samples: 4, ..qos::PullBuffer::default() };
        let mut history = History::new(7, limits);
        assert!((1..=9).all(|seq| {
            history.keep(
                Entry {
                    buffer: Arc::default(),
                    seq,
                    stamp: seq,
                    now: seq,
                    change: Default::default(),
                    historical: false,
                    offered: 0,
                    batch: false,
                    charge: Default::default(),
                },
                seq,
            )
        }));
        let (mut reading, mut found) = (history.ask(&question.query, 10), Vec::new());
        while !reading.is_over() {
            history.read(&mut reading, 4, 100, &mut found);
            assert!(found.drain(..).all(|entry| (6..=9).contains(&entry.seq)));
        }
        reading.absent.iter().for_each(|absent| drop(absent.to_string()));
    }
    crate::driver::read_answer(bytes, MAX_MESSAGE);
}

/// A request and an answer.
pub(super) fn handshakes() -> Vec<Vec<u8>> {
    let node = crate::control::NodeId(1);
    let port = crate::control::PortId(1);
    let request = Request {
        proxy: None,
        moves: false,
        token: Some(1 << 63),
        version: handshake::VERSION,
        realm: "default".to_owned(),
        node,
        port,
        subscriber: crate::control::PortInfo {
            name: "/in".to_owned(),
            direction: crate::control::Direction::Subscriber,
            topic: "/topic".to_owned(),
            message: codec::TypeDescription::of::<Everything>(),
            qos: qos::Qos::default(),
            carriers: vec!["udp".into()],
            answers: None,
            pull: Default::default(),
            foreign: None,
        },
        to_node: node,
        to_port: port,
        carrier: "udp".into(),
        clock: "boot".to_owned(),
        by_name: false,
        parameters: crate::carrier::Parameters { udp_port: Some(9), ..Default::default() },
        answers: None,
    };
    let accepted = Answer::Accepted(handshake::Accepted {
        scaled: None,
        flow: FLOW,
        incarnation: 1,
        last_seq: 0,
        max_message: MAX_MESSAGE as u32,
        clock: "boot".to_owned(),
        parameters: Default::default(),
        answers: None,
    });
    vec![handshake::pack(&request).unwrap_or_default(), handshake::pack(&accepted).unwrap_or_default()]
}

/// A control link from its beginning to its end.
pub(super) fn controls() -> Vec<Vec<u8>> {
    let mut bytes = vec![33];
    let hello = br#"{"version":1,"realm":"default","node":"0000000000000001"}"#;
    frame::write(frame::Kind::Hello, &[hello], &mut bytes);
    frame::write(frame::Kind::Refresh, &[], &mut bytes);
    frame::write(frame::Kind::Call, &[&1u64.to_le_bytes(), b"question"], &mut bytes);
    frame::write(frame::Kind::Bye, &[b"closed"], &mut bytes);
    vec![bytes]
}

/// A question and its answer.
pub(super) fn questions() -> Vec<Vec<u8>> {
    let (node, port) = (crate::control::NodeId(1), crate::control::PortId(1));
    let message = codec::TypeDescription::opaque("bytes");
    let question = Question {
        version: crate::pull::VERSION,
        realm: "default".to_owned(),
        to_node: node,
        to_port: port,
        topic: "/topic".to_owned(),
        message: message.clone(),
        max_message: MAX_MESSAGE as u32,
        publisher: None,
        except: Vec::new(),
        query: Query::Range { incarnation: Some(7), first: 2, last: 12 },
    };
    let (name, topic, clock) = ("/p".to_owned(), "/topic".to_owned(), "boot".to_owned());
    let publisher = Identity { node, port, incarnation: 7 };
    let run = pull::Run { publisher, name, topic, message, clock, flow: FLOW };
    let mut answer = handshake::pack(&pull::Answer::Run(run)).unwrap_or_default();
    for (kind, length) in [(Kind::Message, 5), (Kind::End, 0)] {
        let header = Header { length, kind, flags: 0, flow: FLOW, sequence: 0, sample: 2, stamp_ns: 3 };
        answer.extend(emitted(&header, &vec![5; length as usize]));
    }
    answer.extend(handshake::pack(&pull::Answer::Ended(pull::Ended::default())).unwrap_or_default());
    answer.extend(handshake::pack(&pull::Answer::Over).unwrap_or_default());
    vec![handshake::pack(&question).unwrap_or_default(), answer]
}

/// Lines of documents, changes and ids of nodes that are gone, each by the way that its first byte selects. The
/// directory stays within its limits, look-ups by name and topic find what is there, no address of another host is
/// accepted, and with the last node all is gone.
pub fn directory(bytes: &[u8]) {
    let mut own = node(1);
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
        for (id, info) in document.ports.iter() {
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

fn node(node: u64) -> Document {
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
        foreign: None,
    }
}

/// Two nodes that come, change and go.
pub(super) fn news() -> Vec<Vec<u8>> {
    let mut one = node(2);
    one.ports.insert(PortId(1), port(Direction::Publisher, "/out", "/topic"));
    one.addresses = vec![([127, 0, 0, 1], 7).into(), ([10, 0, 0, 7], 9).into()];
    one.socket = Some("/run/thalweg/host.lab.0000000000000002.sock".into());
    let mut two = node(3);
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

/// Initial lines.
pub(super) fn lines() -> Vec<Vec<u8>> {
    let lines = [
        "prop set /subscriber1 (sched ((policy SCHED_FIFO) (priority 30))) (qos ((priority HIGH)))",
        "prop set /self (process ((priority -1) (policy 2))) (qos ((dscp AF42) (tos 144)))",
        "[atch] [in] (type arbitrate) (input (from /a) (level 15) (tc 0.5) (ex (/b -10)))",
        "add udp://in, list [out] /x (((((((((((((((a \"b\\\"\" -0x1f 1e3",
        "class=high sched=deadline:1ms/10ms affinity=0-3,5 priority=6",
        "level:high; priority:10; policy:1; tos:144",
        r#"{"verb":"command","port":"/a","text":"prop get"}"#,
    ];
    lines.map(|line| line.as_bytes().to_vec()).into()
}

/// Any text. A list that is read is within its limits, and is written and read back unchanged; so is a command. A
/// refusal names the position and the reason.
pub fn administration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Bottle::parse(&text) {
        Ok(bottle) => {
            let written = bottle.to_string();
            assert!(text.len() <= LONGEST && depth(&bottle.0) <= DEEPEST && items(&bottle.0) <= MOST_ITEMS);
            if written.len() <= LONGEST {
                assert_eq!(Bottle::parse(&written).as_ref(), Ok(&bottle), "a list survives being written");
                assert_eq!(Command::parse(&text), Command::parse(&written), "so does a command");
            }
        }
        Err(error) => {
            assert!(error.at >= 1 && error.at <= text.len().max(1) + 1 && !error.reason.is_empty());
            assert!(Command::parse(&text).is_err_and(|why| !why.is_empty()));
        }
    }
    for read in [text.parse::<Changes>(), Changes::from_yarp(&text)].into_iter().flatten() {
        let mut settings = Default::default();
        read.apply(&mut settings);
        let again: Result<Changes, _> = serde_json::from_str(&serde_json::to_string(&read).unwrap_or_default());
        assert_eq!(again.ok(), Some(read), "changes survive the way to another node");
    }
    if let Ok(admin::Request::Command { text, .. }) = serde_json::from_slice(bytes) {
        let _ = Command::parse(&text);
    }
}

fn depth(values: &[Value]) -> usize {
    values.iter().filter_map(|v| v.list().map(|inner| 1 + depth(inner))).max().unwrap_or(0)
}

fn items(values: &[Value]) -> usize {
    values.iter().map(|v| 1 + v.list().map_or(0, items)).sum()
}
