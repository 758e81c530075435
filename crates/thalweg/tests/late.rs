//! Late joiners of durable publishers: the history, then live samples, over every carrier.
#![allow(clippy::unwrap_used)] // all of this is test

use qos::{Queue, Reliability};
use serde::{Deserialize, Serialize};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::{Node, Publisher, Settings, Subscriber};

const LONG: Duration = Duration::from_secs(20);
const DEPTH: u32 = 50;

fn node(realm: &str, name: &str) -> Node {
    let realm = format!("{realm}-{}", std::process::id());
    Node::with_settings(Settings { name: name.to_owned(), realm, ..Settings::default() }).unwrap()
}

fn durable(node: &Node, carrier: &str) -> Publisher<Raw> {
    let port = node.publisher("/a").named("/p").transient_local(DEPTH).carriers([carrier]);
    port.queue(Queue::KeepAll(10_000)).open().unwrap()
}

/// Received samples, each with its mark as historical.
type Seen = Arc<Mutex<Vec<(u64, bool)>>>;

fn joiner(node: &Node, carrier: &str, late: bool) -> (Subscriber<Raw>, Seen) {
    let seen = Seen::default();
    let port = node.subscriber::<Raw>("/a").reliability(Reliability::BestEffort).carriers([carrier]);
    let port = if late { port.transient_local(DEPTH) } else { port };
    let note = seen.clone();
    let port = port.queue(Queue::KeepAll(10_000)).callback(move |sample| {
        assert_eq!(*sample, sample.info().seq.to_le_bytes());
        note.lock().unwrap().push((sample.info().seq, sample.info().historical));
    });
    (port.unwrap(), seen)
}

fn publish(port: &mut Publisher<Raw>, numbers: std::ops::RangeInclusive<u64>) {
    for n in numbers {
        assert_eq!(port.publish(&n.to_le_bytes()).unwrap().seq, n);
        if n % 8 == 0 {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

fn until_last(node: &Node, seen: &Seen, last: u64) -> Vec<(u64, bool)> {
    let there = || seen.lock().unwrap().iter().any(|(seq, _)| *seq == last);
    let came = node.wait_until(LONG, there);
    let seen = seen.lock().unwrap().clone();
    assert!(came, "{last} did not come; the last ones were {:?}", &seen[seen.len().saturating_sub(9)..]);
    seen
}

/// During publishing, one subscriber joins that wants the history, and one that does not.
#[test]
fn the_history_and_the_live_flow_have_no_gap_and_no_duplicate() {
    for carrier in ["local", "shm", "tcp", "udp", "mcast"] {
        let there = node(&format!("late-{carrier}"), "there");
        let here = if carrier == "local" { there.clone() } else { node(&format!("late-{carrier}"), "here") };
        let mut port = durable(&there, carrier);
        publish(&mut port, 1..=200);
        let joining = here.clone();
        let join = std::thread::spawn(move || {
            let (late, volatile) = (joiner(&joining, carrier, true), joiner(&joining, carrier, false));
            assert!(late.0.wait_connected(1, LONG) && volatile.0.wait_connected(1, LONG), "{carrier}");
            (late, volatile)
        });
        let mut last = 200;
        while !join.is_finished() || last < 1000 {
            publish(&mut port, last + 1..=last + 100);
            last += 100;
        }
        let ((_late, history), (_volatile, live)) = join.join().unwrap();
        publish(&mut port, last + 1..=last + 20);
        last += 20;
        let (history, live) = (until_last(&here, &history, last), until_last(&here, &live, last));
        let mut numbers: Vec<u64> = history.iter().map(|(seq, _)| *seq).collect();
        let first = numbers[0];
        assert!(first > 200 - u64::from(DEPTH), "{carrier}: it begins with {first}");
        assert!(history.iter().all(|(_, marked)| !marked), "{carrier}: nothing takes a second here");
        assert_eq!(numbers, (first..=last).collect::<Vec<_>>(), "{carrier}");
        numbers.dedup();
        assert!(live.first().is_some_and(|(seq, _)| *seq > 200), "{carrier}: {:?}", live.first());
    }
}

/// Samples published before any subscriber came, to a port without a callback, and to a polled one with a callback.
#[test]
fn a_late_joiner_gets_the_last_samples() {
    let (there, here) = (node("after", "there"), node("after", "here"));
    let mut port = durable(&there, "tcp");
    publish(&mut port, 1..=200);
    let mut taken = here.subscriber::<Raw>("/a").transient_local(30).carriers(["tcp"]).open().unwrap();
    let numbers: Vec<u64> = (0..30).map(|_| taken.wait(LONG).unwrap().info().seq).collect();
    assert_eq!(numbers, (171..=200).collect::<Vec<_>>());
    let seen = Seen::default();
    let note = seen.clone();
    let polled = here.subscriber::<Raw>("/a").transient_local(3).carriers(["tcp"]).polled();
    let mut polled = polled.callback(move |s| note.lock().unwrap().push((s.info().seq, s.info().historical))).unwrap();
    while seen.lock().unwrap().len() < 3 {
        polled.wait_callback(LONG);
    }
    publish(&mut port, 201..=210);
    while seen.lock().unwrap().len() < 13 {
        polled.wait_callback(LONG);
    }
    assert_eq!(*seen.lock().unwrap(), (198..=210).map(|seq| (seq, false)).collect::<Vec<_>>());
    assert_eq!(taken.wait(LONG).unwrap().info().seq, 201);
}

/// Durability is offered: a request for more than that does not match.
#[test]
fn a_volatile_publisher_has_no_history_for_late_joiners() {
    let (there, here) = (node("volatile", "there"), node("volatile", "here"));
    let mut port = there.publisher::<Raw>("/a").carriers(["tcp"]).open().unwrap();
    let (late, _) = joiner(&here, "tcp", true);
    let (volatile, seen) = joiner(&here, "tcp", false);
    assert!(volatile.wait_connected(1, LONG) && port.wait_connected(1, LONG));
    publish(&mut port, 1..=3);
    assert_eq!(until_last(&here, &seen, 3).len(), 3);
    assert_eq!(late.connected(), 0);
}

/// A node fetches one history after the other: another publisher's, whose sample is stuck in a callback, goes before.
#[test]
fn what_waits_for_a_history_is_dropped_with_its_subscriber() {
    let (there, here) = (node("late-closed", "there"), node("late-closed", "here"));
    let durable = |topic: &str| there.publisher::<Raw>(topic).transient_local(DEPTH).open().unwrap();
    let (mut before, mut publisher) = (durable("/before"), durable("/a"));
    before.publish(&[7]).unwrap();
    let join = |topic: &str| here.subscriber::<Raw>(topic).transient_local(DEPTH).carriers(["tcp"]);
    let ((tell, told), (let_go, may_go)) = (channel(), channel::<()>());
    let stuck = join("/before").callback(move |_| {
        let _ = tell.send(());
        let _ = may_go.recv_timeout(LONG);
    });
    let _stuck = stuck.unwrap();
    told.recv_timeout(LONG).unwrap();
    let (note, seen) = channel();
    let port = join("/a").callback(move |sample| {
        let _ = note.send(sample.info().seq);
    });
    let port = port.unwrap();
    assert!(port.wait_connected(1, LONG) && publisher.wait_connected(1, LONG));
    publisher.publish(&[7]).unwrap();
    let arrived = || port.channels().first().is_some_and(|report| report.samples == 1);
    assert!(here.wait_until(LONG, arrived), "it waits");
    drop(port);
    assert!(there.wait_until(LONG, || publisher.connected() == 0), "its channel is over");
    let_go.send(()).unwrap();
    assert!(seen.recv_timeout(LONG).is_err(), "it came to a subscriber that has closed");
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Arm {
    name: String,
    angle: f64,
}

/// The last samples of each instance of a keyed topic come, however often other instances were published since, with
/// or without a callback and the key at the port; and only samples that match the port's filter.
#[test]
fn the_history_of_a_keyed_topic_is_that_of_each_instance() {
    for carrier in ["local", "shm", "tcp", "udp", "mcast"] {
        let there = node(&format!("keyed-{carrier}"), "there");
        let here = if carrier == "local" { there.clone() } else { node(&format!("keyed-{carrier}"), "here") };
        let port = there.publisher::<Arm>("/a").key(["name"]).transient_local(2).carriers([carrier]);
        let mut port = port.queue(Queue::KeepAll(10_000)).open().unwrap();
        let publish = |port: &mut Publisher<Arm>, name: &str, angle| {
            port.publish(&Arm { name: name.to_owned(), angle }).unwrap();
        };
        publish(&mut port, "rare", 1.0);
        (0..200).for_each(|n| publish(&mut port, "busy", f64::from(n)));
        (0..20).for_each(|n| publish(&mut port, &format!("arm {n}"), 0.0));
        let join = || here.subscriber::<Arm>("/a").reliability(Reliability::BestEffort).carriers([carrier]);
        let named = |name: &str, angle| (name.to_owned(), angle);
        let mut all = vec![named("rare", 1.0), named("busy", 198.0), named("busy", 199.0)];
        all.extend((0..20).map(|n| named(&format!("arm {n}"), 0.0)));

        let mut taken = join().transient_local(2).open().unwrap();
        let mut keyed = join().transient_local(1).key(["name"]).open().unwrap();
        let filter = qos::Filter { expression: "angle > 0.5".into(), parameters: Vec::new() };
        let mut filtered = join().transient_local(2).filter(filter).open().unwrap();
        let seen: Arc<Mutex<Vec<(String, f64)>>> = Arc::default();
        let note = seen.clone();
        let called = join().transient_local(2);
        let called = called.callback(move |s| note.lock().unwrap().push((s.name.clone(), s.angle))).unwrap();
        for port in [&taken, &keyed, &filtered] {
            assert!(port.wait_connected(1, LONG), "{carrier}");
        }
        assert!(called.wait_connected(1, LONG), "{carrier}");
        let waited = |port: &mut Subscriber<Arm>, count| -> Vec<(String, f64)> {
            (0..count).map(|_| port.wait(LONG).expect(carrier)).map(|s| (s.name.clone(), s.angle)).collect()
        };
        assert_eq!(waited(&mut taken, 23), all, "{carrier}");
        assert_eq!(waited(&mut filtered, 3), all[..3], "{carrier}");
        assert!(here.wait_until(LONG, || seen.lock().unwrap().len() == 23), "{carrier}");
        assert_eq!(*seen.lock().unwrap(), all, "{carrier}");
        all.remove(1);
        assert_eq!(waited(&mut keyed, 22), all, "{carrier}");
        publish(&mut port, "rare", 7.0);
        for port in [&mut taken, &mut keyed, &mut filtered] {
            assert_eq!(waited(port, 1), [named("rare", 7.0)], "{carrier}");
        }
    }
}
