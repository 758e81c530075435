//! Nodes in Rust and in Python: each reads what the other writes, byte for byte.

use crate::support::{Package, Program, Python, root};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::process::Stdio;
use std::time::Duration;
use thalweg::codec::{Raw, TypeDescription, Untyped, to_cdr};
use thalweg::{Node, Settings};

const LONG: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Mode {
    Idle,
    Run,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Time {
    sec: i32,
    nanosec: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Everything {
    flag: bool,
    small: (u8, i8, i16),
    letter: char,
    wide: Option<u64>,
    text: String,
    raw: Vec<u8>,
    stamps: [Time; 2],
    names: Vec<String>,
    numbers: Vec<f32>,
    by_name: BTreeMap<String, Option<i64>>,
    mode: Mode,
    last: u8,
}

#[derive(Debug, Serialize, Deserialize)]
struct Sum {
    left: i64,
    right: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Total {
    total: i64,
}

fn everything() -> [Everything; 2] {
    let full = Everything {
        flag: true,
        small: (255, -128, -300),
        letter: 'ä',
        wide: Some(u64::MAX),
        text: "héllo".to_owned(),
        raw: vec![0, 255, 7],
        stamps: [Time { sec: -1, nanosec: 1 }, Time { sec: 2, nanosec: 3 }],
        names: vec![String::new(), "a".to_owned()],
        numbers: vec![0.5, -1.25, f32::INFINITY],
        by_name: [("a".to_owned(), Some(-1)), ("b".to_owned(), None)].into(),
        mode: Mode::Run,
        last: 9,
    };
    let empty = Everything {
        wide: None,
        names: vec![],
        numbers: vec![],
        raw: vec![],
        mode: Mode::Idle,
        by_name: BTreeMap::new(),
        ..full.clone()
    };
    [full, empty]
}

/// A peer in Python, and a node for this end.
struct Peers {
    node: Node,
    peer: Program,
    _package: Package,
}

impl Peers {
    fn new(name: &str) -> Option<Self> {
        let (python, package) = (Python::find(&[])?, Package::new());
        let realm = format!("peers-{name}-{}", std::process::id());
        let mut command = python.command(&package);
        command.arg(root().join("tests/peer.py")).arg(&realm).stdin(Stdio::piped());
        let mut peer = Program::start(command);
        assert_eq!(peer.line(), "ready");
        let node = Node::with_settings(Settings { realm, ..Settings::default() }).unwrap();
        Some(Self { node, peer, _package: package })
    }

    /// What comes back from Python has the same value and the same bytes.
    fn returns<T: Serialize + DeserializeOwned + Debug + Send + 'static>(&self, topic: &str, values: &[T]) {
        let back = self.node.subscriber::<Untyped>(&format!("{topic}/back")).described(TypeDescription::of::<T>());
        let mut back = back.open().unwrap();
        let mut publisher = self.node.publisher::<T>(topic).open().unwrap();
        assert!(publisher.wait_connected(1, LONG) && back.wait_connected(1, LONG), "{topic}");
        for value in values {
            publisher.publish(value).unwrap();
            let found = back.wait(LONG).unwrap_or_else(|| panic!("{value:?} does not come back"));
            assert_eq!(found.bytes(), to_cdr(value).unwrap(), "{value:?}");
        }
    }
}

#[test]
fn messages_come_back_byte_for_byte() {
    let Some(peers) = Peers::new("messages") else { return };
    peers.returns("/text", &["hello".to_owned(), String::new(), "ä".repeat(100_000)]);
    peers.returns("/number", &[0.5, f64::NEG_INFINITY]);
    peers.returns("/everything", &everything());
}

#[test]
fn images_come_back_in_loans() {
    let Some(peers) = Peers::new("images") else { return };
    let mut back = peers.node.subscriber::<Raw>("/image/back").carriers(["shm"]).open().unwrap();
    let mut publisher = peers.node.publisher::<Raw>("/image").carriers(["shm"]).open().unwrap();
    assert!(publisher.wait_connected(1, LONG) && back.wait_connected(1, LONG));
    for number in 0..10u8 {
        let mut loan = publisher.loan(1 << 20).unwrap();
        loan.bytes_mut().fill(number);
        loan.publish().unwrap();
        let image = back.wait(LONG).unwrap();
        assert!(image.len() == 1 << 20 && image.iter().all(|byte| *byte == number));
    }
}

#[test]
fn services_answer_both_ways() {
    let Some(mut peers) = Peers::new("services") else { return };
    let mut client = peers.node.client::<Sum, Total>("/python/add").unwrap();
    assert_eq!(client.call(Sum { left: 2, right: 3 }, LONG).unwrap().total, 5);
    assert_eq!(client.call(Sum { left: -2, right: i64::MAX }, LONG).unwrap().total, i64::MAX - 2);
    let _server = peers.node.server::<Sum, Total>("/rust/add", |sum| Total { total: sum.left * sum.right }).unwrap();
    let mut ask = peers.node.publisher::<Sum>("/ask").open().unwrap();
    assert!(ask.wait_connected(1, LONG));
    ask.publish(&Sum { left: 6, right: 7 }).unwrap();
    assert_eq!(peers.peer.line(), "42");
}
