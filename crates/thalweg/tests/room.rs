//! A subscriber whose queue blocks: full, it holds up only its own channels until there is room.
#![allow(clippy::unwrap_used)] // all of this is test

use qos::Queue;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::{Event, Node, Settings, Subscriber};

const LONG: Duration = Duration::from_secs(20);

fn nodes(test: &str) -> [Node; 2] {
    let realm = format!("room-{test}-{}", std::process::id());
    ["out", "in"].map(|name| {
        let settings = Settings { name: name.into(), realm: realm.clone(), ..Settings::default() };
        Node::with_settings(settings).unwrap()
    })
}

fn block(limit: u32, patience: Duration) -> Queue {
    Queue::Block { limit, up_to_us: patience.as_micros() as u64 }
}

fn numbered(number: u32, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Takes `count` samples. Returns their numbers.
fn taken(subscriber: &mut Subscriber<Raw>, count: usize) -> Vec<u32> {
    let next = || subscriber.wait(LONG).map(|sample| u32::from_le_bytes(sample[..4].try_into().unwrap()));
    std::iter::from_fn(next).take(count).collect()
}

/// More samples than the kernel's buffers hold, to a subscriber that keeps four at a time: the publisher waits.
#[test]
fn a_publisher_waits_for_a_queue_that_blocks() {
    const SAMPLES: u32 = 1500;
    for carrier in ["tcp", "udp", "shm"] {
        let [out, into] = nodes(&format!("waits-{carrier}"));
        let mut publisher = out.publisher::<Raw>("/t").queue(block(16, LONG)).open().unwrap();
        let subscriber = into.subscriber::<Raw>("/t").carriers([carrier]).queue(block(4, LONG));
        let mut subscriber = subscriber.open().unwrap();
        assert!(publisher.wait_connected(1, LONG), "{carrier}");
        let publishing = std::thread::spawn(move || {
            let refused = (0..SAMPLES).map(|n| publisher.publish(&numbered(n, 16_000)).unwrap().refused).sum::<u32>();
            (publisher, refused)
        });
        assert_eq!(taken(&mut subscriber, SAMPLES as usize), Vec::from_iter(0..SAMPLES), "{carrier}");
        let (_publisher, refused) = publishing.join().unwrap();
        let lost: u64 = subscriber.channels().iter().map(|channel| channel.lost).sum();
        assert_eq!((refused, lost, subscriber.policy_counts().rejected), (0, 0, 0), "{carrier}");
    }
}

/// More channels than there are threads of their own.
#[test]
fn a_full_queue_that_blocks_holds_up_no_other_channel() {
    const OTHERS: usize = 12;
    const SAMPLES: u32 = 300;
    let [out, into] = nodes("others");
    let heard = Arc::new(AtomicUsize::new(0));
    let others: Vec<_> = (0..OTHERS)
        .map(|_| {
            let heard = heard.clone();
            let hear = move |_: thalweg::Sample<'_, Raw>| {
                heard.fetch_add(1, Ordering::Relaxed);
            };
            into.subscriber::<Raw>("/t").carriers(["tcp"]).callback(hear).unwrap()
        })
        .collect();
    let mut publisher = out.publisher::<Raw>("/t").queue(Queue::KeepAll(4096)).open().unwrap();
    assert!(publisher.wait_connected(OTHERS, LONG));
    let full = into.subscriber::<Raw>("/t").carriers(["tcp"]).queue(block(4, LONG * 100));
    let mut full = full.open().unwrap();
    assert!(publisher.wait_connected(OTHERS + 1, LONG));
    for number in 0..SAMPLES {
        assert_eq!(publisher.publish(&numbered(number, 64)).unwrap().refused, 0);
    }
    assert!(into.wait_until(LONG, || heard.load(Ordering::Relaxed) == OTHERS * SAMPLES as usize), "{heard:?}");
    assert_eq!(taken(&mut full, SAMPLES as usize), Vec::from_iter(0..SAMPLES));
    drop(others);
}

#[test]
fn samples_without_room_in_time_are_rejected_and_reported() {
    let [out, into] = nodes("rejected");
    let mut publisher = out.publisher::<Raw>("/t").open().unwrap();
    let subscriber = into.subscriber::<Raw>("/t").carriers(["tcp"]).queue(block(2, Duration::from_millis(1)));
    let mut subscriber = subscriber.open().unwrap();
    let mut events = into.events();
    assert!(publisher.wait_connected(1, LONG));
    for number in 0..5 {
        publisher.publish(&numbered(number, 64)).unwrap();
    }
    assert!(into.wait_until(LONG, || subscriber.policy_counts().rejected == 3));
    assert_eq!(taken(&mut subscriber, 2), [0, 1]);
    let told =
        std::iter::from_fn(|| events.wait(LONG)).any(|event| matches!(event, Event::SampleRejected { most: 2, .. }));
    assert!(told);
}

/// Neither of them waits for the queue's time-out.
#[test]
fn a_port_or_node_closes_although_its_queue_is_full() {
    for node_first in [false, true] {
        let [out, into] = nodes(&format!("closes-{node_first}"));
        let mut publisher = out.publisher::<Raw>("/t").open().unwrap();
        let subscriber = into.subscriber::<Raw>("/t").carriers(["tcp"]).queue(block(1, LONG * 1000)).open().unwrap();
        assert!(publisher.wait_connected(1, LONG));
        for number in 0..3 {
            publisher.publish(&numbered(number, 64)).unwrap();
        }
        assert!(into.wait_until(LONG, || subscriber.channels().iter().any(|channel| channel.samples > 1)));
        if node_first {
            drop(into);
        }
        drop(subscriber);
        assert!(out.wait_until(LONG, || publisher.connected() == 0));
    }
}
