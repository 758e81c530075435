//! Who says on a control link that it is a node which is somebody else gets nothing of what that node may and is told.
#![allow(clippy::unwrap_used)] // all of this is test

mod world;

use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thalweg::codec::Raw;

use thalweg::{Event, Node, Settings};
use world::stranger_link::Link;

const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn the_part() {
    world::roles::play();
}

fn node(name: &str, realm: &str) -> Node {
    Node::with_settings(Settings { name: name.into(), realm: realm.into(), ..Settings::default() }).unwrap()
}

fn address_of(node: &Node) -> SocketAddr {
    node.addresses().into_iter().find(SocketAddr::is_ipv4).unwrap()
}

/// What a request is refused with.
fn refusal(answer: &Value) -> &str {
    answer["no"].as_str().unwrap_or_else(|| panic!("not refused: {answer}"))
}

/// A publisher's node may have its channel opened anew, and say that it is alive: 250 times a second, if it likes.
#[test]
fn nobody_opens_a_channel_anew_in_the_name_of_its_publisher() {
    let realm = format!("impostor-{}", std::process::id());
    let (publishing, subscribing) = (node("publishing", &realm), node("subscribing", &realm));
    let _publisher = publishing.publisher::<Raw>("/t").named("/out").open().unwrap();
    let subscriber = subscribing.subscriber::<Raw>("/t").named("/in").open().unwrap();
    assert!(subscribing.wait_until(world::LONG, || subscriber.connected() == 1));
    let mut link = Link::new(address_of(&subscribing), ELSEWHERE, &realm, publishing.id().0);
    let anew = link.call(&json!({"verb": "connect", "publisher": "/out", "subscriber": "/in", "carrier": "tcp"}));
    assert!(refusal(&anew).contains("takes administration only from its own host"), "{anew}");
    let alive = link.call(&json!({"verb": "alive", "publisher": "/out"}));
    assert!(refusal(&alive).contains("/out is no port of the node that says it is alive"), "{alive}");
    let mut events = subscribing.events();
    let unmatched =
        std::iter::from_fn(|| events.wait(Duration::ZERO)).filter(|event| matches!(event, Event::Unmatched { .. }));
    assert_eq!(unmatched.count(), 0);
}
