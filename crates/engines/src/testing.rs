//! Promises of every engine, as tests that each engine instantiates in one line.
//!
//! ```ignore
//! thalweg_engines::engine_conformance!(my_engine, make());  // one #[test] per property
//! ```
//!
//! `make` gives two fresh engines in one data space, as two programs would have them. The [`Abilities`](crate::Abilities) decide what is
//! tested. There are no fixed waits: each wait ends with its event, or fails after [`PATIENCE`].

#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test

mod manual;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "zenoh")]
mod names;
#[cfg(feature = "yarp")]
mod yarp;

pub use manual::Manual;
#[cfg(feature = "mqtt")]
pub use mqtt::{mqtt, mqtt_examples};
#[cfg(feature = "zenoh")]
pub use names::{examples, names};
#[cfg(feature = "yarp")]
pub use yarp::{yarp, yarp_examples};

use crate::engine::{Deliver, Engine, Publisher, Sample, Subscriber, Support, Topic};
use qos::{Class, Durability, Qos, Queue, Reliability};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use thalweg::Change;
use thalweg::codec::Definitions;
use thalweg::control::Direction;

/// Time that a property waits for something that must happen before it fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Two engines in one data space.
pub type Made = (Box<dyn Engine>, Box<dyn Engine>);

/// A property and its name.
pub type Property = (&'static str, fn(Made));

/// All properties, in the order in which they build on each other.
pub const ALL: [Property; 12] = [
    ("messages_arrive_unchanged", messages_arrive_unchanged),
    ("a_burst_arrives_whole_and_in_order", a_burst_arrives_whole_and_in_order),
    ("keep_last_keeps_the_newest", keep_last_keeps_the_newest),
    ("a_publisher_knows_whether_it_is_wanted", a_publisher_knows_whether_it_is_wanted),
    ("a_pattern_names_its_topics", a_pattern_names_its_topics),
    ("own_samples_do_not_come", own_samples_do_not_come),
    ("a_late_joiner_gets_the_history_of_each_publisher", a_late_joiner_gets_the_history_of_each_publisher),
    ("the_end_of_an_instance_comes", the_end_of_an_instance_comes),
    ("policies_that_do_not_match_are_named", policies_that_do_not_match_are_named),
    ("others_ends_are_told", others_ends_are_told),
    ("a_dropped_subscriber_is_not_called", a_dropped_subscriber_is_not_called),
    ("an_engine_that_ends_leaves_the_other_whole", an_engine_that_ends_leaves_the_other_whole),
];

/// One `#[test]` for each property of an engine: `engine_conformance!(name, make())`.
#[macro_export]
macro_rules! engine_conformance {
    ($name:ident, $make:expr) => {
        $crate::engine_conformance!(@each $name, $make,
            messages_arrive_unchanged a_burst_arrives_whole_and_in_order keep_last_keeps_the_newest
            a_publisher_knows_whether_it_is_wanted
            a_pattern_names_its_topics own_samples_do_not_come a_late_joiner_gets_the_history_of_each_publisher
            the_end_of_an_instance_comes policies_that_do_not_match_are_named others_ends_are_told
            a_dropped_subscriber_is_not_called an_engine_that_ends_leaves_the_other_whole);
    };
    (@each $name:ident, $make:expr, $($property:ident)*) => {
        mod $name {
            use super::*;
            #[test]
            fn every_property_is_a_test() {
                assert_eq!([$(stringify!($property)),*], $crate::testing::ALL.map(|(name, _)| name));
            }
            $(#[test]
            fn $property() {
                $crate::testing::$property($make);
            })*
        }
    };
}

/// A sample that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    topic: String,
    message: Vec<u8>,
    change: Change,
    historical: bool,
}

/// A topic of a type that every engine has. No engine looks into the messages, which are any bytes here.
fn topic(name: &str) -> Topic {
    let mut definitions = Definitions::new();
    definitions.add("std_msgs/msg/String", "string data\n").unwrap();
    Topic { name: name.to_owned(), message: definitions.describe("std_msgs/msg/String").unwrap() }
}

/// Keeps all: a burst waits.
fn reliable() -> Qos {
    Qos { queue: Queue::Block { limit: 1024, up_to_us: 10_000_000 }, ..Qos::default() }
}

fn written(message: &[u8]) -> Sample<'_> {
    Sample { topic: "", message, publisher: 0, origin: None, change: Change::Written, age_ns: 0, historical: false }
}

fn listen(engine: &dyn Engine, name: &str, request: &Qos) -> (Box<dyn Subscriber>, Receiver<Kept>) {
    let (tell, told) = channel();
    let deliver: Deliver = Box::new(move |sample| {
        let (topic, message) = (sample.topic.to_owned(), sample.message.to_vec());
        let _ = tell.send(Kept { topic, message, change: sample.change, historical: sample.historical });
    });
    (engine.subscriber(&topic(name), request, deliver).unwrap(), told)
}

/// A publisher and a subscriber that have found each other.
fn pair(made: &Made, name: &str, qos: &Qos) -> (Box<dyn Publisher>, Box<dyn Subscriber>, Receiver<Kept>) {
    let publisher = made.0.publisher(&topic(name), qos).unwrap();
    let (subscriber, told) = listen(&*made.1, name, qos);
    until("the publisher is wanted", || publisher.is_wanted());
    (publisher, subscriber, told)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2)); // between two looks
    }
}

fn next(told: &Receiver<Kept>) -> Kept {
    told.recv_timeout(PATIENCE).expect("a sample")
}

/// Messages of 0 B to 8 MiB arrive, with the name of their topic.
pub fn messages_arrive_unchanged(made: Made) {
    let (publisher, _subscriber, told) = pair(&made, "/sizes", &reliable());
    for size in [0, 1, 64, 1400, 65_536, 1 << 20, 8 << 20] {
        let message: Vec<u8> = (0..size).map(|at: usize| (at * 7 + size) as u8).collect();
        publisher.publish(&written(&message)).unwrap();
        let got = next(&told);
        assert_eq!((&got.topic[..], got.change, got.historical), ("/sizes", Change::Written, false));
        assert!(got.message == message, "{size} bytes arrived as {} other ones", got.message.len());
    }
}

/// 1,000 samples of a reliable publisher arrive all, in order, and each once.
pub fn a_burst_arrives_whole_and_in_order(made: Made) {
    let (publisher, _subscriber, told) = pair(&made, "/burst", &reliable());
    (0..1000_u32).for_each(|number| publisher.publish(&written(&number.to_le_bytes())).unwrap());
    publisher.publish(&written(b"last")).unwrap();
    let got: Vec<Vec<u8>> =
        std::iter::from_fn(|| Some(next(&told).message)).take_while(|message| message != b"last").collect();
    assert!(
        got == (0..1000_u32).map(|number| number.to_le_bytes().to_vec()).collect::<Vec<_>>(),
        "{} samples",
        got.len()
    );
}

/// A subscriber that is slower than its publisher, where both keep the last sample only, gets at least the newest of those that the
/// publisher took, and none after a newer one.
pub fn keep_last_keeps_the_newest(made: Made) {
    let qos = Qos { queue: Queue::KeepLast(1), ..Qos::default() };
    let publisher = made.0.publisher(&topic("/last"), &qos).unwrap();
    let ((tell, told), (go_on, may_go_on)) = (channel(), channel::<()>());
    let deliver: Deliver = Box::new(move |sample| {
        let _ = tell.send(sample.message.try_into().map_or(u32::MAX, u32::from_le_bytes));
        let _ = may_go_on.recv(); // until the other end is gone
    });
    let subscriber = made.1.subscriber(&topic("/last"), &qos, deliver).unwrap();
    let held_up = go_on; // goes before the subscriber, which waits for its callback
    until("the publisher is wanted", || publisher.is_wanted());
    let take = |number: u32| publisher.publish(&written(&number.to_le_bytes())).is_ok();
    let next = |after| told.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no sample after {after:?}"));
    assert!(take(0));
    assert_eq!(next(None), 0);
    let newest = (1..=1000).fold(None, |newest, number| if take(number) { Some(number) } else { newest });
    drop(held_up);
    let mut got = 0;
    while newest.is_some_and(|newest| got < newest) {
        let came = next(Some((got, newest)));
        assert!(came > got, "{came} after {got}");
        got = came;
    }
    assert!(take(1001));
    assert_eq!((Some(got), next(None)), (newest, 1001), "the newest, and then what comes after it");
    drop(subscriber);
}

/// A publisher is wanted while somebody subscribes, and no longer.
pub fn a_publisher_knows_whether_it_is_wanted(made: Made) {
    if !made.0.abilities().wanted {
        return println!("not asked of {}: it does not tell", made.0.name());
    }
    let unheard = made.0.publisher(&topic("/unheard"), &Qos::default()).unwrap();
    let (publisher, subscriber, _told) = pair(&made, "/heard", &Qos::default());
    assert!(!unheard.is_wanted());
    drop(subscriber);
    until("the publisher is no longer wanted", || !publisher.is_wanted());
}

/// A subscriber to a pattern gets the samples of each topic under its name, and of no other.
pub fn a_pattern_names_its_topics(made: Made) {
    let names = ["/arm/pose", "/arm/left/joint", "/leg/pose"];
    let publishers = names.map(|name| made.0.publisher(&topic(name), &reliable()).unwrap());
    let (_subscriber, told) = listen(&*made.1, "/arm/**", &Qos::default());
    until("both are wanted", || publishers[..2].iter().all(|publisher| publisher.is_wanted()));
    assert!(!publishers[2].is_wanted() || !made.0.abilities().wanted);
    for (publisher, name) in publishers.iter().zip(names).rev() {
        publisher.publish(&written(name.as_bytes())).unwrap();
    }
    let mut got = [next(&told), next(&told)].map(|kept| (kept.topic, kept.message));
    got.sort();
    assert_eq!(got, [names[1], names[0]].map(|name| (name.to_owned(), name.as_bytes().to_vec())));
    publishers[0].publish(&written(b"last")).unwrap();
    assert_eq!(next(&told).message, b"last", "and nothing of the third");
}

/// A program's own samples are no news to it. Those of another class than NORMAL may come in Zenoh, whose sessions do not know each other.
pub fn own_samples_do_not_come(made: Made) {
    let classes = if made.0.abilities().endpoints { &Class::ALL[..] } else { &[Class::Normal] };
    let (there, _subscriber, told) = pair(&made, "/both", &reliable());
    let (_other, told_there) = listen(&*made.0, "/both", &Qos::default());
    for class in classes {
        let own = made.1.publisher(&topic("/both"), &Qos { class: *class, ..reliable() }).unwrap();
        until("the other one hears", || own.is_wanted());
        for _ in 0..3 {
            own.publish(&written(b"own")).unwrap();
            assert_eq!(next(&told_there).message, b"own", "{class}");
            there.publish(&written(b"there")).unwrap();
            assert_eq!(next(&told).message, b"there", "{class}");
        }
    }
}

/// Each of three publishers keeps its last samples for one that subscribes later.
pub fn a_late_joiner_gets_the_history_of_each_publisher(made: Made) {
    if made.0.abilities().durability != Support::Enforced {
        return println!("not asked of {}: it keeps no histories", made.0.name());
    }
    // While two sessions of Zenoh connect, samples go to the other one unasked.
    let _connected = pair(&made, "/connected", &reliable());
    let durable = Qos { durability: Durability::TransientLocal, history: 2, ..reliable() };
    let publishers = [0, 1, 2].map(|_| made.0.publisher(&topic("/map"), &durable).unwrap());
    for (publisher, name) in publishers.iter().zip(*b"abc") {
        (b'1'..=b'3').for_each(|number| publisher.publish(&written(&[name, number])).unwrap());
    }
    let (_subscriber, told) = listen(&*made.1, "/map", &Qos { history: 2, ..durable });
    let mut got: Vec<Vec<u8>> = (0..6).map(|_| next(&told).message).collect();
    got.sort();
    assert_eq!(got, [b"a2", b"a3", b"b2", b"b3", b"c2", b"c3"]);
    until("the publishers are wanted", || publishers[0].is_wanted());
    publishers[0].publish(&written(b"live")).unwrap();
    assert_eq!(next(&told).message, b"live");
}

/// The end of a topic's only instance is a sample.
pub fn the_end_of_an_instance_comes(made: Made) {
    if made.0.abilities().instances != Support::Enforced {
        return println!("not asked of {}: it has no instances", made.0.name());
    }
    let (publisher, _subscriber, told) = pair(&made, "/ends", &reliable());
    publisher.publish(&written(b"value")).unwrap();
    publisher.publish(&Sample { change: Change::Disposed, ..written(b"value") }).unwrap();
    assert_eq!([next(&told), next(&told)].map(|kept| kept.change), [Change::Written, Change::Disposed]);
}

/// A best-effort publisher and a reliable subscriber do not match: both values are told.
pub fn policies_that_do_not_match_are_named(made: Made) {
    if made.1.abilities().matching == Support::None {
        return println!("not asked of {}: it matches no policies", made.1.name());
    }
    let offer = Qos { reliability: Reliability::BestEffort, ..Qos::default() };
    let publisher = made.0.publisher(&topic("/lossy"), &offer).unwrap();
    let (_subscriber, _told) = listen(&*made.1, "/lossy", &Qos::default());
    let mut found = Vec::new();
    until("the policy is named", || {
        found.extend(made.1.incompatible());
        !found.is_empty()
    });
    let one = &found[0];
    assert_eq!(
        (&one.topic[..], &one.policy[..], &one.offered[..], &one.requested[..]),
        ("/lossy", "reliability", "best-effort", "reliable")
    );
    assert!(made.1.abilities().matching == Support::Announced || !publisher.is_wanted());
}

/// Publishers and subscribers of the other program are told with topic and direction, and gone when they close.
pub fn others_ends_are_told(made: Made) {
    if !made.1.abilities().endpoints {
        return assert_eq!(made.1.endpoints(), []);
    }
    let publisher = made.0.publisher(&topic("/told"), &Qos::default()).unwrap();
    let (subscriber, _told) = listen(&*made.0, "/told/too", &Qos::default());
    let there = || {
        let mut ends: Vec<_> =
            made.1.endpoints().into_iter().map(|end| (end.topic.name, end.direction == Direction::Publisher)).collect();
        ends.sort();
        ends
    };
    until("both are told", || there() == [("/told".to_owned(), true), ("/told/too".to_owned(), false)]);
    drop((publisher, subscriber));
    until("both are gone", || there().is_empty());
}

/// After a subscriber was dropped, it is not called.
pub fn a_dropped_subscriber_is_not_called(made: Made) {
    let (publisher, subscriber, told) = pair(&made, "/drops", &Qos::default());
    publisher.publish(&written(b"first")).unwrap();
    next(&told);
    drop(subscriber);
    let (_again, told_again) = listen(&*made.1, "/drops", &Qos::default());
    until("the second subscriber gets something", || {
        publisher.publish(&written(b"second")).unwrap();
        told_again.try_recv().is_ok()
    });
    assert!(told.try_recv().is_err(), "the first one got something, too");
}

/// A program that ends takes its subscribers along, and nothing else.
pub fn an_engine_that_ends_leaves_the_other_whole((first, second): Made) {
    let publisher = first.publisher(&topic("/left"), &reliable()).unwrap();
    let (subscriber, _told) = listen(&*second, "/left", &Qos::default());
    until("the publisher is wanted", || publisher.is_wanted());
    drop(subscriber);
    drop(second);
    until("the publisher is no longer wanted", || !publisher.is_wanted() || !first.abilities().wanted);
    publisher.publish(&written(b"to nobody")).unwrap();
}
