//! Port monitors on live channels (Y-09, YS-37): attached and detached without loss, in order, over every carrier.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thalweg::admin::{Reply, Request};
use thalweg::bottle::Value;
use thalweg::codec::Raw;
use thalweg::monitor::{Delay, Monitor, ParameterError, Seen, Statistics, Throttle, Verdict};
use thalweg::{Event, Node, Publisher, Settings, Subscriber};
use world::LONG;

fn node(name: &str) -> Node {
    let realm = format!("monitors-{}-{name}", std::process::id());
    Node::with_settings(Settings { realm, name: name.into(), ..Settings::default() }).unwrap()
}

fn command(node: &Node, port: &str, text: &str) -> (bool, String) {
    let request = Request::Command { port: port.into(), text: text.into() };
    match node.ask(node.id(), &request, LONG).unwrap() {
        Reply::Text { ok, text } => (ok, text),
        other => panic!("{text}: {other:?}"),
    }
}

fn done(node: &Node, port: &str, text: &str) -> String {
    let (ok, said) = command(node, port, text);
    assert!(ok, "{text}: {said}");
    said
}

type Got = Arc<Mutex<Vec<u64>>>;

/// A reliable channel over `carrier` whose samples are collected by number.
fn channel(node: &Node, carrier: &str, on_publisher: bool) -> (Publisher<Raw>, Subscriber<Raw>, Got) {
    let got: Got = Arc::default();
    let seen = got.clone();
    let queue = qos::Queue::Block { limit: 64, up_to_us: 5_000_000 };
    let builder = node.subscriber::<Raw>("/a").named("/in").queue(qos::Queue::KeepAll(10_000)).carriers([carrier]);
    let builder = if on_publisher { builder.on_publisher_thread() } else { builder };
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let subscriber = builder.callback(move |sample| seen.lock().unwrap().push(number(&sample))).unwrap();
    let publisher = node.publisher::<Raw>("/a").named("/out").queue(queue).open().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    (publisher, subscriber, got)
}

fn wait_for(got: &Got, count: usize) {
    let reached = world::eventually(LONG, || (got.lock().unwrap().len() >= count).then_some(()));
    assert!(reached.is_some(), "{} of {count} came", got.lock().unwrap().len());
}

const WAYS: [(&str, bool); 4] = [("tcp", false), ("shm", false), ("local", false), ("local", true)];

#[test]
fn monitors_come_and_go_without_loss_and_in_order() {
    let _beside = world::beside();
    for (carrier, on_publisher) in WAYS {
        let node = node("live");
        let (mut publisher, _subscriber, got) = channel(&node, carrier, on_publisher);
        for number in 0..2000u64 {
            publisher.publish(&number.to_le_bytes()).unwrap();
            match number % 200 {
                20 => drop(done(&node, "/in", "atch in (type statistics)")),
                40 => drop(done(&node, "/out", "atch out (type delay) (delay_ms 3)")),
                60 => drop(done(&node, "/in", "atch in (type delay) (delay_ms 2)")),
                100 => drop(done(&node, "/out", "atch out (type statistics)")),
                120 => drop(done(&node, "/in", "set in /in (delay_ms 0)")),
                140 => drop(done(&node, "/in", "dtch in")),
                160 => drop(done(&node, "/out", "dtch out")),
                _ => {}
            }
        }
        wait_for(&got, 2000);
        let got = got.lock().unwrap();
        assert!(got.iter().copied().eq(0..2000), "{carrier}, on the publisher's thread {on_publisher}: {got:?}");
    }
}

/// Lets even numbers pass, makes 3 into 1003, drops other odd ones.
struct Picky;

impl Monitor for Picky {
    fn kind(&self) -> &str {
        "picky"
    }
    fn sample(&mut self, sample: &Seen<'_>, changed: &mut Vec<u8>) -> Verdict {
        assert_eq!(sample.from, "/out");
        match u64::from_le_bytes(sample.bytes[..8].try_into().unwrap()) {
            3 => {
                changed.extend_from_slice(&1003u64.to_le_bytes());
                Verdict::Changed
            }
            number if number % 2 == 0 => Verdict::Pass,
            _ => Verdict::Drop,
        }
    }
}

#[test]
fn a_monitor_passes_changes_and_drops_at_either_end() {
    let _beside = world::beside();
    for (carrier, on_publisher) in WAYS {
        for at_output in [true, false] {
            let node = node("picky");
            let got: Got = Arc::default();
            let seen = got.clone();
            let builder = node.subscriber::<Raw>("/a").carriers([carrier]);
            let builder = if on_publisher { builder.on_publisher_thread() } else { builder };
            let builder = if at_output { builder } else { builder.monitor(Picky) };
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let _subscriber = builder.callback(move |s| seen.lock().unwrap().push(number(&s))).unwrap();
            let builder = node.publisher::<Raw>("/a").named("/out");
            let mut publisher = if at_output { builder.monitor(Picky) } else { builder }.open().unwrap();
            assert!(publisher.wait_connected(1, LONG));
            for number in 0..6u64 {
                assert_eq!(publisher.publish(&number.to_le_bytes()).unwrap().seq, number + 1);
            }
            let mut loan = publisher.loan(8).unwrap();
            loan.bytes_mut().copy_from_slice(&3u64.to_le_bytes());
            assert_eq!(loan.publish().unwrap().seq, 7);
            wait_for(&got, 5);
            assert_eq!(*got.lock().unwrap(), [0, 2, 1003, 4, 1003], "{carrier}, output {at_output}");
        }
    }
}

#[test]
fn taken_samples_are_monitored_and_typed_values_are_seen_encoded() {
    let _beside = world::beside();
    let node = node("typed");
    let mut subscriber =
        node.subscriber::<String>("/t").carriers(["tcp"]).monitor(Statistics::default()).open().unwrap();
    let mut publisher = node.publisher::<String>("/t").named("/out").monitor(Throttle::every(LONG)).open().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    let sent: Vec<u32> = (0..3).map(|n| publisher.publish(&n.to_string()).unwrap().channels()).collect();
    assert_eq!(sent, [1, 0, 0], "one per period passes");
    assert_eq!(subscriber.wait(LONG).unwrap().as_str(), "0");
    let found = done(&node, subscriber.name(), &format!("get in {}", subscriber.name()));
    assert!(found.starts_with("((type statistics) (count 1) (bytes 10)"), "{found}");
    assert!(done(&node, "/out", "get out /out").contains("(passed 1) (dropped 2)"));
    done(&node, "/out", "set out /out (period_ms 0)");
    assert_eq!(publisher.publish(&"again".to_owned()).unwrap().channels(), 1);
    assert_eq!(subscriber.wait(LONG).unwrap().as_str(), "again");
}

#[test]
fn a_delayed_sample_comes_later_and_keeps_its_number_and_stamp() {
    let _beside = world::beside();
    let delay = Duration::from_millis(60);
    for at_output in [true, false] {
        let node = node("late");
        let builder = node.subscriber::<Raw>("/a").carriers(["tcp"]);
        let mut subscriber = if at_output { builder } else { builder.monitor(Delay::of(delay)) }.open().unwrap();
        let builder = node.publisher::<Raw>("/a");
        let mut publisher = if at_output { builder.monitor(Delay::of(delay)) } else { builder }.open().unwrap();
        assert!(publisher.wait_connected(1, LONG));
        for n in 0..5u8 {
            publisher.publish(&[n]).unwrap();
        }
        for n in 0..5u8 {
            let sample = subscriber.wait(LONG).unwrap();
            assert_eq!((sample.bytes(), sample.info().seq), (&[n][..], u64::from(n) + 1));
            assert!(sample.info().latency_ns().unwrap() >= 60_000_000, "{:?}", sample.info());
        }
    }
}

/// A callback that panics on the thread of late samples, once: the channel ends with that reason, returns, and
/// continues.
#[test]
fn a_callback_that_panics_on_a_late_sample_ends_its_channel_only() {
    let _beside = world::beside();
    for at_output in [true, false] {
        let node = node("panics");
        let got: Got = Arc::default();
        let seen = got.clone();
        let delay = || Delay::of(Duration::from_millis(5));
        let builder = node.subscriber::<Raw>("/a").carriers([if at_output { "local" } else { "tcp" }]);
        let builder = if at_output { builder.on_publisher_thread() } else { builder.monitor(delay()) };
        let mut panics = true;
        let show = move |sample: thalweg::Sample<'_, Raw>| {
            assert!(!std::mem::take(&mut panics), "too late for me");
            seen.lock().unwrap().push(sample.info().seq);
        };
        let _subscriber = builder.callback(show).unwrap();
        let builder = node.publisher::<Raw>("/a");
        let mut publisher = if at_output { builder.monitor(delay()) } else { builder }.open().unwrap();
        assert!(publisher.wait_connected(1, LONG));
        let mut events = node.events();
        publisher.publish(&[1]).unwrap();
        let reason = std::iter::from_fn(|| events.wait(LONG)).find_map(|event| match event {
            Event::Unmatched { reason, .. } if reason.contains("panicked") => Some(reason), // the publisher's end tells its own
            _ => None,
        });
        assert_eq!(reason.as_deref(), Some("its callback panicked: too late for me"), "at the output: {at_output}");
        assert!(publisher.wait_connected(1, LONG));
        let goes_on = world::eventually(LONG, || {
            publisher.publish(&[2]).unwrap();
            (!got.lock().unwrap().is_empty()).then_some(())
        });
        assert!(goes_on.is_some(), "at the output: {at_output}");
    }
}

/// Panics on anything but a sample.
struct Touchy;

impl Monitor for Touchy {
    fn kind(&self) -> &str {
        "touchy"
    }
    fn sample(&mut self, _: &Seen<'_>, _: &mut Vec<u8>) -> Verdict {
        Verdict::Pass
    }
    fn set(&mut self, key: &str, _: &Value) -> Result<(), ParameterError> {
        panic!("do not touch {key}")
    }
    fn parameters(&self) -> Vec<(String, Value)> {
        panic!("do not look")
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("do not leave");
        }
    }
}

#[test]
fn a_monitor_that_panics_is_told_and_the_node_goes_on() {
    let _beside = world::beside();
    let node = node("touchy");
    let _subscriber = node.subscriber::<Raw>("/a").named("/in").monitor(Touchy).open().unwrap();
    for (text, says) in [
        ("set in /in (period_ms 3)", "the monitor panicked: do not touch period_ms"),
        ("get in /in", "the monitor panicked: do not look"),
    ] {
        let (ok, said) = command(&node, "/in", text);
        assert!(!ok && said.contains(says), "{text}: {said}");
    }
    done(&node, "/in", "dtch in");
    done(&node, "/in", "ver");
}

#[test]
fn a_missing_side_or_monitor_is_answered() {
    let _beside = world::beside();
    let node = node("sides");
    let _subscriber = node.subscriber::<Raw>("/a").named("/in").open().unwrap();
    for (text, says) in [
        ("atch out (type statistics)", "/in is a subscriber: it has in only"),
        ("atch in (type encrypt)", "there are (type throttle)"),
        ("dtch in", "no monitor is attached to the input of /in"),
        ("get in /in", "no monitor is attached here"),
        ("set in /in (period_ms 3)", "no monitor is attached here"),
        ("set in /out (period_ms 3)", "/out is not this port"),
    ] {
        let (ok, said) = command(&node, "/in", text);
        assert!(!ok && said.starts_with("fail \"") && said.contains(says), "{text}: {said}");
    }
}
