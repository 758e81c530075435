//! A peer that claims on a control link to be another node gets none of that node's rights and information.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thalweg::admin::{Reply, Request};
use thalweg::codec::Raw;
use thalweg::control::NodeId;
use thalweg::{Event, Node, Settings};
use world::stranger_link::{self, Link};

const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn node(name: &str, realm: &str) -> Node {
    Node::with_settings(Settings { name: name.into(), realm: realm.into(), ..Settings::default() }).unwrap()
}

fn address_of(node: &Node) -> SocketAddr {
    node.addresses().into_iter().find(SocketAddr::is_ipv4).unwrap()
}

/// The reason of a refusal.
fn refusal(answer: &Value) -> &str {
    answer["no"].as_str().unwrap_or_else(|| panic!("not refused: {answer}"))
}

/// The node of a publisher may reopen the publisher's channel, and assert its liveliness, 250 times a second.
#[test]
fn a_stranger_cannot_reopen_a_channel_in_the_name_of_its_publisher() {
    let _beside = world::beside();
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

/// Only the node that was asked can answer, although others may know the number of the call.
#[test]
fn a_node_cannot_answer_for_another_node() {
    let _beside = world::beside();
    let realm = format!("impostor-{}", std::process::id());
    let node = node("asking", &realm);
    let mut asked = Link::new(address_of(&node), ELSEWHERE, &realm, 10);
    assert!(asked.say(2, stranger_link::document(&realm, 10, 1).to_string().as_bytes()));
    let mut other = Link::new(address_of(&node), ELSEWHERE, &realm, 11);
    asked.call(&json!({"verb": "clock"})); // its link stands
    let got = std::thread::scope(|scope| {
        let asking = scope.spawn(|| node.ask(NodeId(10), &Request::Clock, world::LONG));
        let (number, _) = asked.hear(5);
        let answer = |clock: u64| [&number.to_le_bytes()[..], json!({"clock": clock}).to_string().as_bytes()].concat();
        assert!(other.say(6, &answer(11)));
        other.call(&json!({"verb": "clock"})); // it was heard
        assert!(asked.say(6, &answer(10)));
        asking.join().unwrap()
    });
    assert!(matches!(got, Ok(Reply::Clock(10))), "{got:?}");
}

/// Each answer goes to its caller, although callers of one name use one number.
#[test]
fn answers_go_only_to_the_node_that_asked() {
    let _beside = world::beside();
    let realm = format!("impostor-{}", std::process::id());
    let node = node("asked", &realm);
    let mut links = [1, 2].map(|_| Link::new(address_of(&node), ELSEWHERE, &realm, 10));
    for link in &mut links {
        link.ask(7, &json!({"verb": "clock"}));
    }
    for link in &mut links {
        assert_eq!(link.hear(6).0, 7);
    }
    let mut gone = Link::new(address_of(&node), ELSEWHERE, &realm, 10);
    gone.ask(8, &json!({"verb": "clock"}));
    drop(gone);
    links[0].ask(9, &json!({"verb": "clock"}));
    assert_eq!(links[0].hear(6).0, 9, "the answer to a caller that has gone");
}
