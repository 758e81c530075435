//! Publishers with a rate limit: it is kept, everything arrives, and `publish` does not wait.
#![allow(clippy::unwrap_used)] // all of this is test

use qos::{Queue, Reliability};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{Batching, Limit, Node, Settings};

const LONG: Duration = Duration::from_secs(30);
const LIMIT: Limit = Limit { rate: 1_000_000, burst: 10_000 };

/// Time of `count` samples of this size; all of them arrive unchanged.
fn takes(name: &str, carrier: &str, size: usize, count: u64, batching: Option<Batching>) -> Duration {
    let realm = format!("limit-{name}-{carrier}-{}", std::process::id());
    let node = |name: &str| {
        Node::with_settings(Settings { realm: realm.clone(), name: name.into(), ..Settings::default() }).unwrap()
    };
    let (near, far) = (node("near"), node("far"));
    let builder =
        near.publisher::<Raw>("/t").queue(Queue::KeepAll(1000)).reliability(Reliability::Reliable).limit(LIMIT);
    let mut publisher = match batching {
        Some(batching) => builder.batching(batching).open().unwrap(),
        None => builder.open().unwrap(),
    };
    let (tell, told) = mpsc::channel();
    let _subscriber = far
        .subscriber::<Raw>("/t")
        .carriers([carrier])
        .callback(move |sample| tell.send(sample.to_vec()).unwrap())
        .unwrap();
    assert!(publisher.wait_connected(1, LONG));
    let (started, content) = (Instant::now(), |number: u64| vec![number as u8; size]);
    for number in 0..count {
        let published = publisher.publish(&content(number)).unwrap();
        assert_eq!((published.sent, published.queued), (0, 1), "{published:?}");
    }
    for number in 0..count {
        assert!(told.recv_timeout(LONG).unwrap() == content(number), "{carrier}: sample {number} changed");
    }
    started.elapsed()
}

#[test]
fn no_more_than_the_limit_leaves() {
    for carrier in ["tcp", "udp"] {
        for (size, count) in [(1000, 300), (100_000, 3)] {
            let took = takes(&size.to_string(), carrier, size, count, None);
            let least = Duration::from_millis((size as u64 * count - 120_000) / 1000);
            assert!(took >= least, "{count} samples of {size} B over {carrier} took {took:?}, not {least:?}");
        }
    }
}

#[test]
fn small_samples_that_wait_leave_together() {
    let batching = Batching { bytes: 8000, within: Duration::from_millis(10) };
    let took = takes("together", "tcp", 100, 900, Some(batching));
    assert!(took >= Duration::from_millis(90), "{took:?}"); // 900 × 132 B
}
