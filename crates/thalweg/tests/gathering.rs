//! Latency budgets that are set while channels are in use: small samples gather, or leave one by one again.
#![allow(clippy::unwrap_used)] // all of this is test

use qos::priority::Changes;
use qos::{Queue, Reliability};
use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{Node, Publisher, Settings, Subscriber};

const LONG: Duration = Duration::from_secs(30);

struct Pair {
    near: Node,
    _far: Node,
    publisher: Publisher<Raw>,
    subscriber: Subscriber<Raw>,
}

/// A publisher with this latency budget, and a subscriber over this carrier.
fn pair(carrier: &str, budget: Option<Duration>) -> Pair {
    let realm = format!("gathering-{carrier}-{}-{}", budget.is_some(), std::process::id());
    let node = |name: &str| {
        Node::with_settings(Settings { realm: realm.clone(), name: name.into(), ..Settings::default() }).unwrap()
    };
    let (near, far) = (node("near"), node("far"));
    let mut builder =
        near.publisher::<Raw>("/t").named("/out").queue(Queue::KeepAll(100)).reliability(Reliability::BestEffort);
    if let Some(budget) = budget {
        builder = builder.latency_budget(budget);
    }
    let publisher = builder.open().unwrap();
    let subscriber = far.subscriber::<Raw>("/t").named("/in").carriers([carrier]);
    let subscriber = subscriber.reliability(Reliability::BestEffort).latency_budget(LONG).open().unwrap();
    assert!(publisher.wait_connected(1, LONG), "{carrier}");
    Pair { near, _far: far, publisher, subscriber }
}

impl Pair {
    /// Sets the publisher's end. Gives the report's note.
    fn set(&self, words: &str) -> String {
        let changes: Changes = words.parse().unwrap();
        self.near.set_priority("/out", "/in", &changes).unwrap();
        self.near.priority_report("/out", Some("/in")).unwrap()[0].note.clone()
    }

    /// Publishes five samples, and takes them. `true`: some waited for others.
    fn gathers(&mut self) -> bool {
        (0..5_u8).for_each(|number| assert_eq!(self.publisher.publish(&[number; 64]).unwrap().refused, 0));
        let waits = self.publisher.channels()[0].waiting > 0;
        for number in 0..5_u8 {
            assert_eq!(self.subscriber.wait(LONG).unwrap()[0], number);
        }
        waits
    }

    /// Samples gather at last: on a busy machine a batch may have left before anybody looked.
    fn gathers_at_last(&mut self) {
        let until = Instant::now() + LONG;
        while !self.gathers() {
            assert!(Instant::now() < until, "nothing waits for others");
        }
    }

    /// Samples leave one by one: a hundred times in a row none waits. On a busy machine a thread that falls behind sends some together all the same.
    fn leaves_one_by_one(&mut self) {
        let until = Instant::now() + LONG;
        while !(0..100).all(|_| !self.gathers()) {
            assert!(Instant::now() < until, "samples wait for others");
        }
    }
}

#[test]
fn a_running_publisher_gathers_when_its_budget_is_set() {
    let mut pair = pair("tcp", None);
    pair.leaves_one_by_one();
    let note = pair.set("latency-budget=2ms");
    assert!(!note.contains("no effect"), "{note}");
    pair.gathers_at_last();
    assert_eq!(pair.near.priority_report("/out", Some("/in")).unwrap()[0].asked.latency_budget_ns, Some(2_000_000));
    pair.set("latency-budget=default");
    pair.leaves_one_by_one();
}

#[test]
fn a_budget_of_none_ends_the_gathering_of_a_program() {
    let mut pair = pair("tcp", Some(Duration::from_millis(2)));
    pair.gathers_at_last();
    pair.set("latency-budget=0us");
    pair.leaves_one_by_one();
    pair.set("latency-budget=default");
    pair.gathers_at_last();
}

#[test]
fn where_nothing_gathers_it_is_said() {
    let shared = pair("shm", None);
    let note = shared.set("latency-budget=2ms");
    assert!(note.contains("latency-budget has no effect here"), "{note}");
    let end = shared._far.set_priority("/in", "/out", &"latency-budget=2ms".parse().unwrap());
    assert!(end.is_ok(), "{end:?}");
    let note = shared._far.priority_report("/in", Some("/out")).unwrap()[0].note.clone();
    assert!(note.contains("set it at the publisher's"), "{note}");
}
