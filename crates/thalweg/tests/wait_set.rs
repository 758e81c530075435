//! Waiting for samples of several subscribers and for events at once.
#![allow(clippy::unwrap_used)] // all of this is test

use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{Descriptor, Node, Settings, WaitSet};

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

/// An event loop of somebody else's, with a descriptor of its own beside: each sample is taken, and what nobody waits for wakes nobody.
#[test]
fn an_event_loop_waits_for_a_descriptor() {
    const SAMPLES: usize = 200;
    let realm = format!("descriptor-{}", std::process::id());
    let open =
        |name: &str| Node::with_settings(Settings { name: name.into(), realm: realm.clone(), ..Settings::default() });
    let (out, into) = (open("out").unwrap(), open("in").unwrap());
    let queue = qos::Queue::KeepAll(SAMPLES as u32 / 2 + 10); // all that may wait, if this thread is late
    let mut one = into.subscriber::<Raw>("/one").carriers(["tcp"]).queue(queue).open().unwrap();
    let mut other = into.subscriber::<Raw>("/other").carriers(["shm"]).queue(queue).open().unwrap();
    let mut publishers = ["/one", "/other"].map(|topic| out.publisher::<Raw>(topic).queue(queue).open().unwrap());
    assert!(publishers.iter().all(|publisher| publisher.wait_connected(1, LONG)));
    let (descriptor, stop) = (Descriptor::new().unwrap(), linux::poll::Waker::new().unwrap());
    let poller = linux::poll::Poller::new().unwrap();
    let readable = linux::poll::Readiness::IN;
    poller.add(&descriptor, 1, readable).unwrap();
    poller.add(&stop, 2, readable).unwrap();
    let mut ready = Vec::with_capacity(4);
    let is_readable = |ready: &mut Vec<linux::poll::Ready>, wait| {
        poller.wait(ready, Some(wait)).unwrap();
        ready.iter().any(|one| one.token == 1)
    };
    // Before it is armed nothing wakes it; then what is there already is told at once.
    publishers[0].publish(&[1]).unwrap();
    assert!(!is_readable(&mut ready, Duration::from_millis(50)));
    assert!(WaitSet::new().wait(&[&one], LONG)[0] && descriptor.arm(&one));
    assert!(one.take().is_some() && !descriptor.arm_all(&[&one, &other]));
    let publishing = std::thread::spawn(move || {
        for number in 0..SAMPLES {
            publishers[number % 2].publish(&[1]).unwrap();
            std::thread::sleep(Duration::from_micros(300));
        }
        publishers
    });
    let (mut taken, mut waits, started) = (0, 0, Instant::now());
    while taken < SAMPLES && started.elapsed() < LONG {
        taken += std::iter::from_fn(|| one.take()).count() + std::iter::from_fn(|| other.take()).count();
        if taken < SAMPLES && !descriptor.arm_all(&[&one, &other]) {
            assert!(is_readable(&mut ready, LONG), "{taken} samples taken");
            waits += 1;
        }
    }
    assert_eq!(taken, SAMPLES);
    assert!((1..=SAMPLES + 2).contains(&waits), "{waits} wake-ups");
    drop(publishing.join().unwrap());
    stop.wake();
    poller.wait(&mut ready, Some(LONG)).unwrap();
    assert!(ready.iter().any(|one| one.token == 2), "beside another descriptor");
}
