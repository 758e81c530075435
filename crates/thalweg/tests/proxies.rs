//! Proxies between nodes of one process, over every carrier: selection, and moves of a proxy while samples flow.
#![allow(clippy::unwrap_used)] // all of this is test

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::ChannelReport;
use thalweg::admin::{Reply, Request};
use thalweg::codec::Raw;
use thalweg::proxy::{Proxy, ProxyChanges, Selection};
use thalweg::{Node, Publisher, RelayLimits, SampleInfo, Settings, Subscriber};

const LONG: Duration = Duration::from_secs(20);

/// A node in a realm of its own, so that tests do not see each other.
fn node(realm: &str, name: &str) -> Node {
    let realm = format!("{realm}-{}", std::process::id());
    Node::with_settings(Settings { name: name.to_owned(), realm, ..Settings::default() }).unwrap()
}

fn reliability(carrier: &str) -> qos::Reliability {
    if matches!(carrier, "udp" | "mcast") { qos::Reliability::BestEffort } else { qos::Reliability::Reliable }
}

/// A subscriber of `/numbers` with this proxy, and its received samples.
fn subscriber(
    node: &Node,
    carrier: &str,
    scale: qos::Scale,
    place: qos::Place,
) -> (Subscriber<Raw>, Receiver<SampleInfo>) {
    let (tell, told) = channel();
    let qos = qos::Qos {
        scale,
        place,
        reliability: reliability(carrier),
        queue: qos::Queue::KeepAll(256),
        ..Default::default()
    };
    let builder = node.subscriber::<Raw>("/numbers").qos(qos).carriers([carrier]);
    (builder.callback(move |sample| tell.send(*sample.info()).unwrap()).unwrap(), told)
}

fn publish(publisher: &mut Publisher<Raw>, count: usize) {
    for _ in 0..count {
        publisher.publish(&[7; 100]).unwrap();
    }
}

/// The numbers of the samples up to the first that is at least `last`.
fn until(told: &Receiver<SampleInfo>, last: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    while seen.last().is_none_or(|seq| *seq < last) {
        seen.push(told.recv_timeout(LONG).unwrap_or_else(|_| panic!("up to {last}, but only {seen:?}")).seq);
    }
    seen
}

fn multiples(n: u64, last: u64) -> Vec<u64> {
    (1..=last / n).map(|k| k * n).collect()
}

/// Four subscribers of one topic in different modes get what they asked for, and no further sample is sent.
fn each_gets_what_it_asked_for(carrier: &str) {
    use qos::{Place, Scale};
    let (a, b) = (node(carrier, "a"), node(carrier, "b"));
    let (all, all_told) = subscriber(&b, carrier, Scale::Every(1), Place::Publisher);
    let (early, early_told) = subscriber(&b, carrier, Scale::Every(10), Place::Publisher);
    let (late, late_told) = subscriber(&b, carrier, Scale::Every(10), Place::Subscriber);
    let (rate, rate_told) = subscriber(&b, carrier, Scale::Rate { p: 3, q: 4 }, Place::Publisher);
    let queue = qos::Queue::KeepAll(256); // none overflows
    let mut publisher = a.publisher::<Raw>("/numbers").queue(queue).open().unwrap();
    assert!(publisher.wait_connected(4, LONG));
    for port in [&all, &early, &late, &rate] {
        assert!(port.wait_connected(1, LONG));
    }
    publish(&mut publisher, 200);
    assert_eq!(until(&all_told, 200), multiples(1, 200));
    assert_eq!(until(&early_told, 200), multiples(10, 200));
    assert_eq!(until(&late_told, 200), multiples(10, 200));
    let selection = Selection::rate(3, 4).unwrap();
    assert_eq!(until(&rate_told, 200), (1..=200).filter(|seq| selection.takes(*seq)).collect::<Vec<_>>());
    let sent = |port: &Subscriber<Raw>| {
        let reports = publisher.channels();
        reports.into_iter().find(|report| report.subscriber == port.name()).unwrap().samples
    };
    // Samples that the publisher leaves out are not sent; within a process none is sent at all.
    let at_subscriber = if carrier == "local" { 20 } else { 200 };
    assert_eq!([sent(&all), sent(&early), sent(&late), sent(&rate)], [200, 20, at_subscriber, 150], "{carrier}");
    for port in [&all, &early, &late, &rate] {
        assert_eq!(port.channels()[0].lost, 0, "what is not selected is not lost");
    }
    let proxied = early.channels()[0].proxied.clone().unwrap();
    assert_eq!((proxied.to_string().as_str(), proxied.provenance.from), ("every 10 at publisher", 10));
    assert_eq!((all.channels()[0].proxied.clone(), proxied.provenance.node), (None, a.id()));
}

#[test]
fn each_subscriber_gets_its_scale_over_local() {
    each_gets_what_it_asked_for("local");
}
#[test]
fn each_subscriber_gets_its_scale_over_shm() {
    each_gets_what_it_asked_for("shm");
}
#[test]
fn each_subscriber_gets_its_scale_over_tcp() {
    each_gets_what_it_asked_for("tcp");
}
#[test]
fn each_subscriber_gets_its_scale_over_udp() {
    each_gets_what_it_asked_for("udp");
}
#[test]
fn each_subscriber_gets_its_scale_over_mcast() {
    each_gets_what_it_asked_for("mcast");
}

#[test]
fn samples_carry_their_scale() {
    let (a, b) = (node("provenance", "a"), node("provenance", "b"));
    let (port, told) = subscriber(&b, "tcp", qos::Scale::Every(4), qos::Place::Subscriber);
    let mut publisher = a.publisher::<Raw>("/numbers").open().unwrap();
    assert!(publisher.wait_connected(1, LONG) && port.wait_connected(1, LONG));
    publish(&mut publisher, 4);
    let scaled = told.recv_timeout(LONG).unwrap().scaled.unwrap();
    assert_eq!((scaled.selection.to_string().as_str(), scaled.from, scaled.node), ("4", 4, b.id()));
}

/// Asks the subscriber's node for another proxy.
fn scale(node: &Node, publisher: &str, subscriber: &str, proxy: &Proxy) {
    let (publisher, subscriber, changes) = (publisher.to_owned(), subscriber.to_owned(), ProxyChanges::to(proxy));
    let request = Request::Scale { publisher, subscriber, changes };
    assert_eq!(node.ask(node.id(), &request, LONG).unwrap(), Reply::Done);
}

/// Moves the proxy of a channel to and fro at 1 kHz. No sample is missing except those left out anyway, and none
/// comes twice.
fn moves_without_gap(carrier: &str, moves: u64) {
    moves_at(carrier, moves, true, [qos::Place::Subscriber, qos::Place::Publisher]);
}

/// Moves as [`moves_without_gap`] does; unless `waits`, a move is given up for the next one at any point.
fn moves_at(carrier: &str, moves: u64, waits: bool, places: [qos::Place; 2]) {
    const N: u64 = 3;
    let realm = format!("move-{carrier}-{waits}-{}", places[0].relays().count());
    let (a, b) = (node(&realm, "a"), node(&realm, "b"));
    let name = format!("{realm}-{}", std::process::id());
    let relay = Some(RelayLimits::default());
    let _gate =
        Node::with_settings(Settings { name: "gate".into(), realm: name, relay, ..Settings::default() }).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tell = seen.clone();
    let builder = b.subscriber::<Raw>("/numbers").named("/in").every(N as u32).carriers([carrier]);
    let builder = builder.reliability(reliability(carrier)).queue(qos::Queue::KeepAll(4096));
    let port = builder.callback(move |sample| tell.lock().unwrap().push(sample.info().seq)).unwrap();
    let publisher = a.publisher::<Raw>("/numbers").named("/out").queue(qos::Queue::KeepAll(4096)).open();
    let mut publisher = publisher.unwrap();
    assert!(publisher.wait_connected(1, LONG) && port.wait_connected(1, LONG));
    let (stop, stopped) = channel::<()>();
    let publishing = std::thread::spawn(move || {
        let mut last = 0;
        while stopped.recv_timeout(Duration::from_millis(1)).is_err() {
            last = publisher.publish(&[7; 100]).unwrap().seq;
        }
        (publisher, last)
    });
    let selection = Selection::every(N as u32).unwrap();
    for number in 0..moves {
        let place = places[number as usize % 2].clone();
        scale(&b, "/out", "/in", &Proxy { selection, picture: None, place: place.clone() });
        let until = Instant::now() + LONG;
        let is_there = |report: &ChannelReport| report.proxied.as_ref().is_some_and(|proxied| proxied.place == place);
        let there = || matches!(&port.channels()[..], [report] if is_there(report));
        while waits && !there() {
            assert!(Instant::now() < until, "move {number} of {carrier} does not end: {:?}", port.channels());
            std::thread::sleep(Duration::from_millis(1));
        }
        if !waits {
            std::thread::sleep(Duration::from_micros(number * 97 % 5000));
        }
    }
    stop.send(()).unwrap();
    let (_publisher, last) = publishing.join().unwrap();
    let expected = multiples(N, last);
    let until = Instant::now() + LONG;
    while seen.lock().unwrap().last() != expected.last() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let seen = seen.lock().unwrap().clone();
    assert!(seen == expected, "{carrier}: {:?}", seen.iter().zip(&expected).find(|(got, wanted)| got != wanted));
}

#[test]
fn abandoned_moves_leave_no_gap() {
    ["tcp", "shm"]
        .iter()
        .for_each(|carrier| moves_at(carrier, 200, false, [qos::Place::Subscriber, qos::Place::Publisher]));
}
#[test]
fn a_proxy_moves_to_a_relay_and_back_without_gap() {
    ["tcp", "shm"]
        .iter()
        .for_each(|carrier| moves_at(carrier, 100, true, [qos::Place::Relay("gate".into()), qos::Place::Publisher]));
}
#[test]
fn a_proxy_moves_without_gap_over_tcp() {
    moves_without_gap("tcp", 100);
}
#[test]
fn a_proxy_moves_without_gap_over_udp() {
    moves_without_gap("udp", 20);
}
#[test]
fn a_proxy_moves_without_gap_over_shm() {
    moves_without_gap("shm", 100);
}
#[test]
fn a_proxy_moves_without_gap_over_local() {
    moves_without_gap("local", 100);
}
