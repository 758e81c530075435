//! Bridges to an engine in the test's hands.

use super::running::{Running, until};
use super::world::{LONG, node, realm};
use qos::{Durability, Qos};
use serde::{Deserialize, Serialize};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use thalweg::Node;
use thalweg::codec::{Raw, TypeDescription, Untyped, to_cdr};
use thalweg::control::Foreign;
use thalweg_engines::bridge::{Bridge, Rules};
use thalweg_engines::testing::Manual;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    x: f64,
}

/// A question or an answer of a service.
#[derive(Serialize, Deserialize)]
struct Numbered {
    asker: u64,
    number: u64,
    body: Point,
}

/// A node of Thalweg, an engine, and a bridge between them.
fn world(name: &str, rules: &str) -> (Node, Manual, Running) {
    let (realm, engine) = (realm(name), Manual::default());
    let bridge = Running::with(node("bridge", &realm), Box::new(engine.clone()), rules);
    (node("here", &realm), engine, bridge)
}

fn in_partition(name: &str) -> Qos {
    Qos { partition: vec![name.to_owned()], ..Qos::default() }
}

/// A topic whose samples the engine holds up, until this is dropped: also where the test fails, so that the bridge ends.
struct Held<'a>(&'a Manual, &'static str);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release(self.1);
    }
}

#[test]
fn a_slow_engine_holds_up_its_topic_alone() {
    let (here, engine, bridge) = world("slow", "");
    let [mut slow, mut other] = ["/slow", "/other"].map(|topic| here.publisher::<Point>(topic).open().unwrap());
    engine.want("/slow");
    assert!(slow.wait_connected(1, LONG));
    engine.hold("/slow");
    let held = Held(&engine, "/slow");
    slow.publish(&Point { x: 1.0 }).unwrap();
    until("the engine holds a sample up", || engine.waiting() == 1);
    engine.unwant("/slow");
    until("the route closes", || bridge.status().out == 0);
    engine.want("/other");
    assert!(other.wait_connected(1, LONG), "the bridge looks after other topics");
    other.publish(&Point { x: 2.0 }).unwrap();
    until("the other topic's sample leaves", || engine.left().iter().any(|(topic, _)| topic == "/other"));
    drop(slow);
    until("its publisher there closes", || bridge.status().publishers == 1);
    assert_eq!(engine.waiting(), 1);
    drop(held);
    until("the sample leaves", || engine.left().iter().any(|(topic, _)| topic == "/slow"));
}

#[test]
fn partitions_with_wildcards_meet_the_bridges_ports() {
    let (here, engine, _bridge) = world("partition", "");
    let (tell, told) = channel();
    let taking = here.subscriber::<Raw>("/in").qos(in_partition("arm*"));
    let _taking = taking.callback(move |sample| tell.send(sample.to_vec()).unwrap()).unwrap();
    let mut publisher = here.publisher::<Raw>("/out").qos(in_partition("leg?")).open().unwrap();
    engine.want("/out");
    assert!(publisher.wait_connected(1, LONG), "the bridge's subscriber has its partition");
    publisher.publish(b"leaves").unwrap();
    until("it leaves", || engine.left() == [("/out".to_owned(), b"leaves".to_vec())]);
    until("the bridge's publisher has its partition", || engine.subscribers("/in") == 1);
    engine.deliver("/in", b"comes");
    assert_eq!(told.recv_timeout(LONG), Ok(b"comes".to_vec()));
}

/// The bridge has seen that a subscriber is gone when the next one comes. With ports that close at once that one could get the history of a port
/// that is about to close, and again that of the next port.
#[test]
fn who_comes_when_the_last_one_has_left_finds_the_same_port() {
    const STAYS: Duration = Duration::from_secs(1);
    const TURN: Duration = Duration::from_millis(10);
    let (realm, engine) = (realm("left"), Manual::default());
    let (own, here) = (node("bridge", &realm), node("here", &realm));
    let mut bridge = Bridge::new(own.clone(), Box::new(engine.clone()), Rules::default());
    engine.keep("/map", b"kept");
    let (tell, told) = channel();
    let listen = || {
        let (tell, durable) = (tell.clone(), Qos { durability: Durability::TransientLocal, ..Qos::default() });
        let subscriber = here.subscriber::<Raw>("/map").qos(durable);
        subscriber.callback(move |sample| tell.send(sample.to_vec()).unwrap()).unwrap()
    };
    let mut turn_until = |what: &str, holds: &dyn Fn() -> bool| {
        until(what, || {
            bridge.turn(TURN);
            holds()
        });
    };
    let comes = || told.try_recv().is_ok_and(|message| message == b"kept");
    let first = listen();
    turn_until("the first one has the history", &comes);
    let left = Instant::now();
    drop(first);
    let ports =
        || own.nodes().iter().filter(|document| document.name == "here").map(|here| here.ports.len()).sum::<usize>();
    turn_until("the bridge knows that it is gone", &|| ports() == 0);
    let turns = std::cell::Cell::new(0);
    let some = || turns.replace(turns.get() + 1) == 10;
    turn_until("its routes are of that", &some);
    let second = listen();
    turn_until("the second one has the history", &comes);
    turns.set(0);
    turn_until("more could have come", &some);
    let (connected, more) = (second.connected(), told.try_recv());
    // Later the port may have closed just when the second one came.
    if left.elapsed() < STAYS {
        assert!(connected == 1 && more.is_err(), "once");
        assert_eq!(engine.opened("/map"), 1);
    } else {
        println!("skipped: one port for both: because it stays for {STAYS:?}, and this took {:?}", left.elapsed());
    }
    drop(second);
    turn_until("the port closes", &|| engine.subscribers("/map") == 0);
}

/// Another bridge asks for all answers by a port that takes none. They are subscribed to while its clients ask, so that the first one comes.
#[test]
fn answers_are_subscribed_to_before_their_first_channel_while_somebody_asks() {
    let (here, engine, bridge) = world("answers", "[[rule]]\ntransit = \"yes\"");
    let end = Foreign { engine: "other".to_owned(), ..Foreign::default() };
    let message = TypeDescription::of::<Numbered>();
    let asking = here.subscriber::<Untyped>("/add/reply").described(message.clone());
    let _asking = asking.foreign(end.clone()).pull_only().open().unwrap();
    until("there is a route", || bridge.status().into == 1);
    assert_eq!(engine.opened("/add/reply"), 0, "nobody asks");
    let questions = here.publisher::<Untyped>("/add").described(message).foreign(end).open().unwrap();
    until("the answers are subscribed to", || engine.subscribers("/add/reply") == 1);
    drop(questions);
    until("nobody asks any more", || engine.subscribers("/add/reply") == 0);
}

#[test]
fn each_type_of_subscriber_gets_each_sample_once() {
    let (here, engine, bridge) = world("types", "");
    let (tell, told) = channel();
    let [of_any, of_bytes] = [tell.clone(), tell.clone()];
    let any = here.subscriber::<Untyped>("/a").callback(move |_| of_any.send("any").unwrap()).unwrap();
    let bytes = here.subscriber::<Raw>("/a").callback(move |_| of_bytes.send("bytes").unwrap()).unwrap();
    let point = here.subscriber::<Point>("/a").callback(move |_| tell.send("point").unwrap()).unwrap();
    until("both routes are open", || bridge.status().into == 2 && engine.subscribers("/a") == 2);
    until("each has a channel", || any.connected() == 1 && bytes.connected() == 1 && point.connected() == 1);
    let come = |count: usize| {
        let mut come: Vec<&str> = (0..count).map(|_| told.recv_timeout(LONG).unwrap()).collect();
        come.sort_unstable();
        come
    };
    for _ in 0..3 {
        engine.deliver("/a", &to_cdr(&Point { x: 1.0 }).unwrap());
        assert_eq!(come(3), ["any", "bytes", "point"]);
    }
    // Without the typed one, the bytes are what there is.
    drop(point);
    until("the route of bytes is left", || bridge.status().into == 1 && engine.subscribers("/a") == 1);
    until("both have a channel", || any.connected() == 1 && bytes.connected() == 1);
    engine.deliver("/a", b"last");
    assert_eq!(come(2), ["any", "bytes"]);
}

/// Limits of what waits in a channel (docs/bridges.md).
const MOST: usize = 1024;
const MOST_BYTES: usize = 64 << 20;

/// A sample after the burst.
const LAST: u32 = u32::MAX;

/// Delivers so many samples of so many bytes while a subscriber's callback is held up, and then a last one until it has come. The numbers of
/// those that come before it, and what the bridge told.
fn after_a_burst(strict: bool, count: u32, size: usize) -> (Vec<u32>, Vec<String>) {
    let (here, engine, bridge) = world("burst", "");
    let (tell, told) = channel();
    let (held, mut first) = (Arc::new(Barrier::new(2)), true);
    let gate = held.clone();
    let taking = here.subscriber::<Raw>("/a").qos(Qos { strict, ..Qos::default() }).carriers(["shm"]);
    let callback = move |sample: thalweg::Sample<'_, Raw>| {
        if std::mem::take(&mut first) {
            held.wait(); // it has come
            held.wait(); // the burst is over
        }
        let _ = tell.send(u32::from_le_bytes(sample[..4].try_into().unwrap()));
    };
    let taking = taking.callback(callback).unwrap();
    until("the route is open", || engine.subscribers("/a") == 1 && taking.connected() == 1);
    let mut message = vec![0; size];
    let mut deliver = |number: u32| {
        message[..4].copy_from_slice(&number.to_le_bytes());
        engine.deliver("/a", &message);
    };
    deliver(0);
    gate.wait();
    (1..count).for_each(&mut deliver);
    gate.wait();
    let mut come = Vec::new();
    until("the burst is over", || {
        come.extend(told.try_iter());
        // Of those that keep the last ones, each further sample would drop one.
        if strict || come.contains(&(count - 1)) {
            deliver(LAST);
        }
        come.contains(&LAST)
    });
    until("the bridge has told what it has to", || !strict || !bridge.notices().is_empty());
    (come.into_iter().take_while(|number| *number != LAST).collect(), bridge.notices())
}

/// What is sent beyond the channel's queue is in shared memory, and comes first.
#[test]
fn of_a_burst_the_oldest_are_dropped_beyond_a_number_and_bytes() {
    for (count, size, most) in [(40_000, 64, MOST), (200, 1 << 20, MOST_BYTES >> 20)] {
        let (come, notices) = after_a_burst(false, count, size);
        assert!(come.is_sorted() && come[0] == 0, "{come:?}");
        assert!(come.len() < count as usize, "some are dropped");
        let waited = come.iter().rev().zip((0..count).rev()).take_while(|(one, other)| **one == *other).count();
        assert!((most - 2..=most).contains(&waited), "{waited} of {count} waited, allowed are {most}");
        assert_eq!(notices, [""; 0], "as for any publisher that keeps the last ones");
    }
}

#[test]
fn for_a_strict_subscriber_the_newest_of_a_burst_are_refused_and_told() {
    for (count, size, most) in [(40_000, 64, MOST), (200, 1 << 20, MOST_BYTES >> 20)] {
        let (come, notices) = after_a_burst(true, count, size);
        assert_eq!(come, (0..come.len() as u32).collect::<Vec<_>>(), "none is lost between others");
        assert!((most - 2..count as usize).contains(&come.len()), "{} of {count} came", come.len());
        assert!(notices[0].contains("1 subscribers of /a had no room for a sample"), "{notices:?}");
    }
}
