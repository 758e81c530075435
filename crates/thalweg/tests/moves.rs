//! Streams that move to or from a relay that fails meanwhile: it dies, stops, or lags behind.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use serde_json::Value;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use thalweg::admin::{Reply, Request};
use thalweg::codec::Raw;
use thalweg::proxy::{Proxy, ProxyChanges};
use thalweg::{Around, Node, RelayLimits, Settings};
use world::agent::{Agent, number};
use world::{LONG, World, eventually};

/// A publisher, a relay and a subscriber that takes its stream from the relay.
fn by_a_relay(world: &World, carrier: &str) -> (Agent, Agent, Agent) {
    let mut publisher = Agent::start(world, "publisher topic=/a name=/out late=1 queue=4096");
    let relay = Agent::start(world, "relay node=gate relay=1");
    let part = format!("subscriber topic=/a name=/in carriers={carrier} reliable=1 late=1 proxy=relay:gate");
    let mut subscriber = Agent::start(world, &part);
    publisher.connected(1);
    subscriber.connected(1);
    let by_relay = eventually(LONG, || {
        (subscriber.ask("status")["channels"][0]["proxied"]["place"]["relay"] == "gate").then_some(())
    });
    assert!(by_relay.is_some(), "{}", subscriber.ask("status"));
    (publisher, relay, subscriber)
}

/// Each sample came once, in order, including those that were in the relay.
fn everything_came(subscriber: &mut Agent, last: f64) {
    let came = subscriber.ask(&format!("until last={last}"))["ok"] == true;
    let report = subscriber.ask("report");
    assert!(came, "{report} {}", subscriber.ask("status"));
    let counts = ["received", "missing", "again"].map(|key| number(&report, key));
    assert_eq!(counts, [last, 0.0, 0.0], "{report} {}", subscriber.ask("status"));
}

/// The relay has taken a hundred samples that it does not pass on, and the stream moves away from it.
fn moves_away_from_a_stopped_relay(carrier: &str, publishes_meanwhile: bool, dies: bool) {
    let world = World::new();
    let (mut publisher, relay, mut subscriber) = by_a_relay(&world, carrier);
    publisher.ask("publish count=50");
    assert!(subscriber.ask("until last=50")["ok"] == true);
    relay.stop();
    publisher.ask("publish count=100");
    assert!(subscriber.ask("scale to=/out,proxy=publisher")["ok"] == true);
    publisher.connected(2);
    let mut last = 150.0;
    if publishes_meanwhile {
        last = number(&publisher.ask("publish count=10"), "last");
    }
    if dies {
        relay.kill();
    }
    everything_came(&mut subscriber, last);
    let last = number(&publisher.ask("publish count=50 hz=200"), "last");
    everything_came(&mut subscriber, last);
}

#[test]
fn a_relay_that_dies_during_a_move_loses_nothing_over_tcp() {
    moves_away_from_a_stopped_relay("tcp", false, true);
    moves_away_from_a_stopped_relay("tcp", true, true);
}
#[test]
fn a_relay_that_dies_during_a_move_loses_nothing_over_reliable_udp() {
    moves_away_from_a_stopped_relay("udp", false, true);
    moves_away_from_a_stopped_relay("udp", true, true);
}
#[test]
fn a_relay_that_dies_during_a_move_loses_nothing_over_shm() {
    moves_away_from_a_stopped_relay("shm", false, true);
    moves_away_from_a_stopped_relay("shm", true, true);
}
/// The relay is never killed: samples in it are waited for only briefly.
#[test]
fn a_relay_that_stops_during_a_move_holds_nothing_up() {
    moves_away_from_a_stopped_relay("tcp", true, false);
}

/// A relay dies while its samples wait in the subscriber's socket, or ring, behind one that is in the callback. The next channel, whose
/// history has them, begins before they are read.
fn a_relay_dies_before_its_samples_are_read(carrier: &str) {
    let world = World::new();
    let go_on = world.dir().join("go_on");
    std::fs::write(&go_on, "").unwrap();
    let carrier = format!("{carrier} stuck={}", go_on.display());
    let (mut publisher, mut relay, mut subscriber) = by_a_relay(&world, &carrier);
    publisher.ask("publish count=50");
    assert!(subscriber.ask("until last=50")["ok"] == true);
    std::fs::remove_file(&go_on).unwrap();
    publisher.ask("publish count=100");
    let node = relay.ask("status")["id"].as_str().unwrap().to_owned();
    let asking = format!("ask node={node} request={}", serde_json::to_string(&Request::Channels).unwrap());
    let passed_on = eventually(LONG, || {
        let channels = relay.ask(&asking)["reply"]["channels"].as_array().unwrap().clone();
        let passed_on = |channel: &Value| channel["subscriber"] == "/in" && number(channel, "samples") >= 150.0;
        channels.iter().any(passed_on).then_some(())
    });
    assert!(passed_on.is_some(), "{}", relay.ask(&asking));
    relay.kill();
    let falls_back = eventually(LONG, || {
        let channels = subscriber.ask("status")["channels"].as_array().unwrap().clone();
        (channels.len() == 1 && channels[0]["proxied"]["place"]["relay"] != "gate").then_some(())
    });
    assert!(falls_back.is_some(), "{}", subscriber.ask("status"));
    std::fs::write(&go_on, "").unwrap();
    everything_came(&mut subscriber, 150.0);
    let last = number(&publisher.ask("publish count=50 hz=200"), "last");
    everything_came(&mut subscriber, last);
}

#[test]
fn samples_that_are_read_after_their_relay_died_come_once_over_reliable_udp() {
    a_relay_dies_before_its_samples_are_read("udp");
}
#[test]
fn samples_that_are_read_after_their_relay_died_come_once_over_shm() {
    a_relay_dies_before_its_samples_are_read("shm");
}

/// The relay's samples are a second late: the stream stays in place, and in time.
#[test]
fn a_stream_does_not_move_to_a_relay_that_lags() {
    let _beside = world::beside();
    let realm = format!("lags-{}", std::process::id());
    let settings = |name: &str| Settings { name: name.to_owned(), realm: realm.clone(), ..Settings::default() };
    let around = Around { fault: Some("delay=1s".parse().unwrap()), record: None };
    let gate = Settings { relay: Some(RelayLimits::default()), around, ..settings("gate") };
    let _gate = Node::with_settings(gate).unwrap();
    let (a, b) = (Node::with_settings(settings("a")).unwrap(), Node::with_settings(settings("b")).unwrap());
    let mut events = b.events();
    let (tell, told) = channel();
    let port = b.subscriber::<Raw>("/numbers").named("/in").carriers(["tcp"]);
    let port = port.callback(move |sample| tell.send(sample.info().seq).unwrap()).unwrap();
    let publisher = a.publisher::<Raw>("/numbers").named("/out").queue(qos::Queue::KeepAll(4096));
    let mut publisher = publisher.open().unwrap();
    assert!(publisher.wait_connected(1, LONG) && port.wait_connected(1, LONG));
    let (publisher_name, subscriber) = ("/out".to_owned(), "/in".to_owned());
    let proxy = Proxy { place: "relay:gate".parse().unwrap(), ..Proxy::default() };
    let request = Request::Scale { publisher: publisher_name, subscriber, changes: ProxyChanges::to(&proxy) };
    assert_eq!(b.ask(b.id(), &request, LONG).unwrap(), Reply::Done);
    let (until, mut seen) = (Instant::now() + LONG, Vec::new());
    let lags = |event: thalweg::Event| event.to_string().contains("what comes by it lags");
    while !std::iter::from_fn(|| events.wait(Duration::ZERO)).any(lags) {
        assert!(Instant::now() < until, "it moved: {:?}", port.channels());
        let last = publisher.publish(&[7; 100]).unwrap().seq;
        // The next sample is published after this one arrived: none waits for the relay.
        while seen.last() != Some(&last) {
            seen.push(told.recv_timeout(LONG).unwrap());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>());
    assert!(matches!(&port.channels()[..], [channel] if channel.proxied.is_none()), "{:?}", port.channels());
}
