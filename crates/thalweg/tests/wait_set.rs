//! Waiting for samples of several subscribers and for events at once.
#![allow(clippy::unwrap_used)] // all of this is test

use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{Node, Settings, WaitSet};

const LONG: Duration = Duration::from_secs(20);

fn node(name: &str) -> Node {
    let realm = format!("wait-set-{}", std::process::id());
    Node::with_settings(Settings { name: name.into(), realm, ..Settings::default() }).unwrap()
}

#[test]
fn a_wait_names_the_ready_sources() {
    let (out, into) = (node("out"), node("in"));
    let mut raw = into.subscriber::<Raw>("/raw").carriers(["tcp"]).open().unwrap();
    let mut text = into.subscriber::<String>("/text").carriers(["shm"]).open().unwrap();
    let mut events = into.events();
    let mut publish_raw = out.publisher::<Raw>("/raw").open().unwrap();
    let mut publish_text = out.publisher::<String>("/text").open().unwrap();
    assert!(publish_raw.wait_connected(1, LONG) && publish_text.wait_connected(1, LONG));
    let mut waits = WaitSet::new();
    // The events of two matches, and all others.
    assert_eq!(waits.wait(&[&raw, &text, &events], LONG), [false, false, true]);
    while events.wait(Duration::from_millis(100)).is_some() {}
    let started = Instant::now();
    assert_eq!(waits.wait(&[&raw, &text, &events], Duration::from_millis(20)), [false; 3]);
    assert!(started.elapsed() >= Duration::from_millis(20));
    // Samples are published while it waits.
    let publishing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        publish_text.publish(&"hello".to_owned()).unwrap();
        publish_text
    });
    assert_eq!(waits.wait(&[&raw, &text, &events], LONG), [false, true, false]);
    let mut publish_text = publishing.join().unwrap();
    assert_eq!(*text.take().unwrap(), "hello");
    publish_raw.publish(&[1]).unwrap();
    assert_eq!(waits.wait(&[&raw, &text], LONG), [true, false]);
    publish_text.publish(&"again".to_owned()).unwrap();
    while waits.wait(&[&raw, &text], LONG) != [true, true] {}
    assert!(raw.take().is_some() && raw.take().is_none() && text.take().is_some());
    // The end of a publisher is an event.
    drop(publish_raw);
    assert_eq!(waits.wait(&[&events, &raw], LONG), [true, false]);
}
