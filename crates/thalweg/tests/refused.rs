//! Refusals name the reason, the cause and the remedy: names that are taken, ports in use, messages that are too
//! large.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use std::net::TcpListener;
use thalweg::codec::Raw;
use thalweg::{Error, Node, Settings};
use world::agent::{Agent, number};
use world::{World, figure};

fn node(name: &str, test: &str) -> Node {
    let realm = format!("refused-{test}-{}", std::process::id());
    Node::with_settings(Settings { name: name.into(), realm, ..Settings::default() }).unwrap()
}

#[test]
fn a_name_that_is_taken_is_refused_naming_its_holder() {
    let _beside = world::beside();
    let (first, second) = (node("first", "name"), node("second", "name"));
    let held = first.publisher::<Raw>("/a").named("/mine").open().unwrap();
    let refused = |node: &Node| match node.subscriber::<Raw>("/b").named("/mine").open() {
        Err(error @ Error::NameTaken { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => String::new(),
    };
    let same = refused(&first);
    assert!(same.contains("/mine") && same.contains("node first (process"), "{same}");
    // The other node learns of the port a moment later.
    let other = world::eventually(world::LONG, || Some(refused(&second)).filter(|text| !text.is_empty())).unwrap();
    assert!(other.contains("/mine") && other.contains("node first (process"), "{other}");
    figure("refused", &other);
    drop(held);
    let free = world::eventually(world::LONG, || refused(&second).is_empty().then_some(()));
    assert!(free.is_some(), "the name is not given back: {}", refused(&second));
}

#[test]
fn a_port_in_use_is_a_system_error_with_a_remedy() {
    let _beside = world::beside();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = vec![held.local_addr().unwrap()];
    let settings = Settings { listen: listen.clone(), realm: "refused".into(), ..Settings::default() };
    match Node::with_settings(settings).err() {
        Some(error @ Error::System { .. }) => {
            let text = error.to_string();
            assert!(text.contains(&listen[0].to_string()) && text.contains("choose another port"), "{text}");
            assert_eq!(error.exit_code(), 3);
            figure("refused", &text);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_above_the_publishers_limit_is_an_error_of_the_caller() {
    let _beside = world::beside();
    let node = node("limits", "limit");
    let mut publisher = node.publisher::<Raw>("/a").max_message(100).open().unwrap();
    let _subscriber = node.subscriber::<Raw>("/a").open().unwrap();
    assert!(publisher.wait_connected(1, world::LONG));
    publisher.publish(&[0; 100]).unwrap();
    let error = publisher.publish(&[0; 101]).unwrap_err();
    assert!(matches!(error, Error::Message(_)) && error.to_string().contains("101 bytes"), "{error}");
    assert!(publisher.loan(101).is_err());
}

/// Only messages too large for a subscriber are refused and counted; its channel and the others continue.
#[test]
fn a_message_above_a_subscribers_limit_is_refused_for_it_alone() {
    for carrier in ["tcp", "udp", "shm", "mcast"] {
        let world = World::new();
        let mut publisher = Agent::start(&world, "publisher topic=/a max=100000");
        let part = |max: u32| format!("subscriber topic=/a name=/s{max} carriers={carrier} max={max}");
        let (mut small, mut large) = (Agent::start(&world, &part(1000)), Agent::start(&world, &part(100_000)));
        publisher.connected(2);
        publisher.ask("publish count=20 size=1000");
        let published = publisher.ask("publish count=20 hz=200 size=50000");
        let last = number(&publisher.ask("publish count=20 hz=200 size=1000"), "last");
        for subscriber in [&mut small, &mut large] {
            let reached = subscriber.ask(&format!("until last={last} ms=3000"));
            assert!(reached["ok"] == true, "{carrier}: {reached} {}", subscriber.ask("status"));
        }
        let (small, large) = (small.ask("report"), large.ask("report"));
        figure(
            "refused",
            format!(
                "{carrier}: who takes 1000 B got {} of 60, the other {}; publish said {published}",
                small["received"], large["received"]
            ),
        );
        assert_eq!(number(&small, "received"), 40.0, "{carrier}: {small}");
        assert_eq!(number(&large, "received"), 60.0, "{carrier}: {large}");
        if carrier != "mcast" {
            assert_eq!(number(&published, "dropped"), 20.0, "{carrier}: {published}");
        }
    }
}
