//! A bridge to a network where somebody states more, and longer, than a node's document has room for.

use super::running::{Running, until};
use super::world::{LONG, node, realm};
use qos::Qos;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};
use thalweg::Node;
use thalweg::admin::{Reply, Request};
use thalweg::codec::TypeDescription;
use thalweg::control::matching::LONGEST_NAME;
use thalweg::control::{Direction, Document, MOST_PASSED};
use thalweg_engines::testing::Manual;
use thalweg_engines::{Abilities, Deliver, Endpoint, Engine, Publisher, Result, Subscriber, Topic};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    x: f64,
}

/// An engine in the test's hands that tells of others' ends.
#[derive(Clone, Default)]
struct Crowded {
    engine: Manual,
    ends: Arc<Mutex<Vec<Endpoint>>>,
}

impl Engine for Crowded {
    fn name(&self) -> &'static str {
        "crowded"
    }
    fn abilities(&self) -> Abilities {
        Abilities { endpoints: true, ..self.engine.abilities() }
    }
    fn publisher(&self, topic: &Topic, offer: &Qos) -> Result<Box<dyn Publisher>> {
        self.engine.publisher(topic, offer)
    }
    fn subscriber(&self, topic: &Topic, request: &Qos, deliver: Deliver) -> Result<Box<dyn Subscriber>> {
        self.engine.subscriber(topic, request, deliver)
    }
    fn changes(&self) -> u64 {
        self.ends.lock().unwrap().len() as u64
    }
    fn endpoints(&self) -> Vec<Endpoint> {
        self.ends.lock().unwrap().clone()
    }
}

/// A publisher there whose texts have the longest length or more. Its type is none that a subscriber here has: nobody has to take it.
fn forged(number: u128) -> Endpoint {
    let topic = Topic { name: "/a".to_owned(), message: TypeDescription::opaque(&"t".repeat(LONGEST_NAME)) };
    let (name, way) = ("n".repeat(4 * LONGEST_NAME), vec!["p".repeat(LONGEST_NAME); MOST_PASSED]);
    Endpoint { id: 1 + number, direction: Direction::Publisher, topic, qos: Qos::default(), name, way }
}

fn bridge_of(node: &Node) -> Option<Document> {
    node.others().into_iter().find(|document| document.name == "bridge")
}

/// What the bridge's node says of ends that have no port at it.
fn told(node: &Node) -> Option<u64> {
    match node.ask(bridge_of(node)?.node, &Request::Memory, LONG) {
        Ok(Reply::Memory(report)) => Some(report.documents.left_out),
        _ => None,
    }
}

#[test]
fn forged_ends_beyond_a_documents_size_are_left_out_and_counted() {
    const ENDS: usize = 1000;
    let (realm, engine) = (realm("crowded"), Crowded::default());
    let bridge = Running::with(node("bridge", &realm), Box::new(engine.clone()), "");
    let here = node("here", &realm);
    let _taking = here.subscriber::<Point>("/a").callback(|_| {}).unwrap();
    *engine.ends.lock().unwrap() = (0..ENDS as u128).map(forged).collect();
    until("some are left out", || bridge.status().left_out > 0);
    let left_out = bridge.status().left_out;
    assert!(left_out < ENDS, "the first ones have ports");
    // Peers take the document with all ports that are in it.
    let late = node("late", &realm);
    let ports = |node: &Node| bridge_of(node).map_or(0, |bridge| bridge.ports.len());
    until("the bridge's ports are known", || [&here, &late].map(ports) == [ENDS - left_out; 2]);
    assert_eq!(told(&late), Some(left_out as u64));
    let notices = bridge.notices();
    let full = notices.iter().filter(|notice| notice.contains("has no room for one more port")).count();
    assert_eq!(full, 1, "{notices:?}");
    // When they are gone, there is room for others.
    engine.ends.lock().unwrap().truncate(1);
    let none_is_left_out = || bridge.status().left_out == 0 && told(&late) == Some(0);
    until("one port is left", || ports(&late) == 1 && none_is_left_out());
}
