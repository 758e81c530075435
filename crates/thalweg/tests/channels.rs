//! Publishers and subscribers over every built-in carrier, in one process, through the real control plane.

use std::sync::mpsc;
use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::{Node, Settings};

const LONG: Duration = Duration::from_secs(20);

/// A node in a realm of its own, so that tests do not see each other.
fn node(realm: &str, name: &str) -> Node {
    let realm = format!("{realm}-{}", std::process::id());
    Node::with_settings(Settings { name: name.to_owned(), realm, ..Settings::default() }).unwrap()
}

/// What `carrier` needs of QoS.
fn reliability(carrier: &str) -> qos::Reliability {
    if matches!(carrier, "udp" | "mcast") { qos::Reliability::BestEffort } else { qos::Reliability::Reliable }
}

fn arrives_over(carrier: &str) {
    let (a, b) = (node(carrier, "a"), node(carrier, "b"));
    let (tell, told) = mpsc::channel();
    let subscriber = b
        .subscriber::<Raw>("/numbers")
        .reliability(reliability(carrier))
        .carriers([carrier])
        .callback(move |sample| tell.send((sample.info().seq, sample.to_vec())).unwrap())
        .unwrap();
    let mut publisher = a.publisher::<Raw>("/numbers").open().unwrap();
    assert!(publisher.wait_connected(1, LONG), "{:?}", b.events().wait(Duration::ZERO));
    assert!(subscriber.wait_connected(1, LONG));
    for (index, size) in [0usize, 1, 64, 1400, 9000, 70_000, 300_000].into_iter().enumerate() {
        let message: Vec<u8> = (0..size).map(|i| (i * 7 + index) as u8).collect();
        let published = publisher.publish(&message).unwrap();
        assert_eq!(published.sent + published.queued, 1, "{published:?}");
        let (seq, got) =
            told.recv_timeout(LONG).unwrap_or_else(|_| panic!("{size} bytes over {carrier} did not arrive"));
        assert_eq!(seq, published.seq);
        assert!(got == message, "{size} bytes over {carrier} changed on the way");
    }
    assert_eq!(subscriber.channels()[0].carrier, carrier);
}

#[test]
fn samples_arrive_over_local() {
    arrives_over("local");
}
#[test]
fn samples_arrive_over_tcp() {
    arrives_over("tcp");
}
#[test]
fn samples_arrive_over_udp() {
    arrives_over("udp");
}
#[test]
fn samples_arrive_over_mcast() {
    arrives_over("mcast");
}
#[test]
fn samples_arrive_over_shm() {
    arrives_over("shm");
}
