//! Classes: the marks of topics on the wire, and topics that change their class while samples flow.

use super::capture::Capture;
use super::peers::{COUNT, Peer};
use super::{HEADER, Text, domain, open, settings, topic, until, written};
use crate::running::Running;
use crate::world::{LONG, node, realm};
use qos::{Class, Durability, Ownership, Qos, Queue};
use std::sync::mpsc::{Receiver, channel};
use thalweg::Node;
use thalweg::codec::{Definitions, TypeDescription, from_cdr, to_cdr};
use thalweg::control::Direction;
use thalweg_engines::bridge::Rules;
use thalweg_engines::dds::{Dds, Settings};
use thalweg_engines::{Deliver, Engine, Topic};

const CRITICAL: u8 = Class::Critical.dscp() << 2;
const LOW: u8 = Class::Low.dscp() << 2;

/// A bridge with rules, and its node.
fn bridge(realm: &str, domain: u32, rules: &str) -> (Node, Running) {
    let own = node("bridge", realm);
    let engine = Dds::open(settings(domain), Some(Rules::default().identity(own.id()))).unwrap();
    (own.clone(), Running::with(own, Box::new(engine), rules))
}

fn named(name: &str, number: u32) -> Text {
    Text { number, data: format!("{name}#{number};") }
}

fn deliver() -> (Deliver, Receiver<Vec<u8>>) {
    let (tell, told) = channel();
    (Box::new(move |sample| drop(tell.send(sample.message.to_vec()))), told)
}

fn writers(engine: &Dds) -> usize {
    engine.endpoints().iter().filter(|end| end.direction == Direction::Publisher).count()
}

/// Two topics of two classes leave with two marks. `thalweg set` on the channel to the bridge moves one: the next packets show it, and a
/// program of DDS gets all samples in order.
#[test]
fn a_topic_has_the_mark_of_its_class_and_then_of_the_one_that_is_set() {
    let (domain, realm) = (domain(), realm("dds-marks"));
    let Some(capture) = Capture::start(domain) else { return };
    let here = node("here", &realm);
    let open_at =
        |name: &str, port: &str| here.publisher::<Text>(name).named(port).queue(Queue::KeepAll(1024)).open().unwrap();
    let (mut moved, mut other) = (open_at("/robot/moved", "/talker"), open_at("/robot/other", "/other"));
    let rules = ["moved\"\nclass = \"critical\"", "other\"\nclass = \"low\""];
    let rules = rules.map(|rule| format!("[[rule]]\ntopic = \"/robot/{rule}\n")).concat();
    let (own, bridge) = bridge(&realm, domain, &rules);
    let there = open(domain);
    let _subscriber = there.subscriber(&topic("/robot/other"), &Qos::default(), Box::new(|_| {})).unwrap();
    let Some(mut peer) = Peer::start("listen", domain, "robot/moved") else { return };
    let mut lines = peer.lines();
    assert_eq!(lines.next().unwrap(), "ready");
    assert!(moved.wait_connected(1, LONG) && other.wait_connected(1, LONG), "{:?}", bridge.notices());
    let to = moved.channels()[0].subscriber.clone();
    let mut number = 0;
    let mut publish = || {
        until("there is room", || moved.publish(&named("moved", number)).unwrap().refused == 0);
        until("there is room", || other.publish(&named("other", number)).unwrap().refused == 0);
        number += 1;
        number
    };
    while publish() < COUNT / 2 {}
    let last = || capture.samples("moved").last().copied();
    until("half of it is captured", || last() == Some((COUNT / 2 - 1, CRITICAL)));
    own.set_priority(&to, "/talker", &"class=low".parse().unwrap()).unwrap();
    let mut looks = 0;
    until("packets have the new mark", || {
        looks += 1;
        assert!(looks % 4 != 0 || publish() < COUNT, "{:?}", bridge.notices());
        last().is_some_and(|(_, mark)| mark == LOW)
    });
    while publish() < COUNT {}
    let expected: Vec<String> = (0..COUNT).map(|number| format!("{number} moved#{number};")).collect();
    assert_eq!(lines.collect::<Vec<_>>(), expected);
    peer.end();
    let (moved, other) = (capture.samples("moved"), capture.samples("other"));
    let first = moved.iter().position(|(_, mark)| *mark == LOW).unwrap();
    let (before, after) = moved.split_at(first);
    assert!(before.len() >= COUNT as usize / 2 && before.iter().all(|(_, mark)| *mark == CRITICAL), "{before:?}");
    assert!(after.iter().all(|(number, mark)| *mark == LOW && *number >= COUNT / 2), "{after:?}");
    assert!(!other.is_empty() && other.iter().all(|(_, mark)| *mark == LOW), "{other:?}");
}

/// Topic A leaves with EF, topic B with AF11, as the settings say; A's mark follows `thalweg set`.
#[test]
fn a_class_has_the_mark_that_the_settings_say() {
    const EF: u8 = 46 << 2;
    let (domain, realm) = (domain(), realm("dds-ef"));
    let Some(capture) = Capture::start(domain) else { return };
    let here = node("here", &realm);
    let open_at = |name: &str, port: &str| here.publisher::<Text>(name).named(port).open().unwrap();
    let (mut a, mut b) = (open_at("/a", "/pub/a"), open_at("/b", "/pub/b"));
    let own = node("bridge", &realm);
    let marks = vec![(Class::Critical, "EF".parse().unwrap())];
    let engine = Dds::open(Settings { marks, ..settings(domain) }, Some(Rules::default().identity(own.id()))).unwrap();
    let rules = "[[rule]]\ntopic = \"/a\"\nclass = \"critical\"\n[[rule]]\ntopic = \"/b\"\nclass = \"low\"";
    let bridge = Running::with(own.clone(), Box::new(engine), rules);
    let there = open(domain);
    let subscribe = |name| there.subscriber(&topic(name), &Qos::default(), Box::new(|_| {})).unwrap();
    let _subscribers = ["/a", "/b"].map(subscribe);
    assert!(a.wait_connected(1, LONG) && b.wait_connected(1, LONG), "{:?}", bridge.notices());
    let to = a.channels()[0].subscriber.clone();
    let mut number = 0;
    let mut until_last = |name: &str, mark: u8| {
        until("packets have the mark", || {
            number += 1;
            a.publish(&named("alpha", number)).unwrap();
            b.publish(&named("beta", number)).unwrap();
            capture.samples(name).last().is_some_and(|(_, last)| *last == mark)
        });
    };
    until_last("alpha", EF);
    until_last("beta", LOW);
    let marks = |name: &str| {
        let mut marks: Vec<u8> = capture.samples(name).into_iter().map(|(_, mark)| mark).collect();
        marks.dedup();
        marks
    };
    assert_eq!((marks("alpha"), marks("beta")), (vec![EF], vec![LOW]));
    own.set_priority(&to, "/pub/a", &"class=low".parse().unwrap()).unwrap();
    until_last("alpha", LOW);
    assert_eq!((marks("alpha"), marks("beta")), (vec![EF, LOW], vec![LOW]));
}

/// Subscribers there that have its sample do not get it again, and later ones get the newest alone.
#[test]
fn a_publisher_that_keeps_one_sample_changes_its_class_with_the_next() {
    let (domain, realm) = (domain(), realm("dds-latched"));
    let (here, there) = (node("here", &realm), open(domain));
    let (own, bridge) = bridge(&realm, domain, "");
    let durable = Qos { durability: Durability::TransientLocal, history: 1, ..Qos::default() };
    let mut publisher = here.publisher::<Text>("/map").named("/mapper").qos(durable.clone()).open().unwrap();
    let subscribe = || {
        let (deliver, told) = deliver();
        let number = move || from_cdr::<Text>(&told.recv_timeout(LONG).unwrap()).unwrap().number;
        (there.subscriber(&topic("/map"), &durable, deliver).unwrap(), number)
    };
    let (_early, early) = subscribe();
    assert!(publisher.wait_connected(1, LONG), "{:?}", bridge.notices());
    publisher.publish(&named("map", 0)).unwrap();
    assert_eq!(early(), 0);
    let to = publisher.channels()[0].subscriber.clone();
    own.set_priority(&to, "/mapper", &"class=high".parse().unwrap()).unwrap();
    until("the next writer is there", || writers(&there) == 2);
    let mut last = 0;
    until("the one before is gone", || {
        last += 1;
        publisher.publish(&named("map", last)).unwrap();
        assert_eq!(early(), last);
        writers(&there) == 1
    });
    let (_late, late) = subscribe();
    assert_eq!(late(), last);
    publisher.publish(&named("map", last + 1)).unwrap();
    assert_eq!([early(), late()], [last + 1; 2]);
}

/// A publisher that cannot change its class without a loss keeps it, and that is told.
#[test]
fn a_publisher_that_keeps_several_samples_or_may_own_its_topic_keeps_its_class() {
    let (domain, realm) = (domain(), realm("dds-stays"));
    let (here, there) = (node("here", &realm), open(domain));
    let (own, bridge) = bridge(&realm, domain, "");
    let durable = Qos { durability: Durability::TransientLocal, history: 5, ..Qos::default() };
    let exclusive = Qos { ownership: Ownership::Exclusive, ..Qos::default() };
    for (name, qos, why) in [
        ("/map", durable, "/p/map keeps class normal as /map behind the bridge: it keeps 5 samples"),
        ("/arm", exclusive, "/p/arm keeps class normal as /arm behind the bridge: it may own the topic"),
    ] {
        let port = format!("/p{name}");
        let mut publisher = here.publisher::<Text>(name).named(&port).qos(qos.clone()).open().unwrap();
        let (deliver, told) = deliver();
        let _subscriber = there.subscriber(&topic(name), &qos, deliver).unwrap();
        assert!(publisher.wait_connected(1, LONG), "{:?}", bridge.notices());
        let to = publisher.channels()[0].subscriber.clone();
        own.set_priority(&to, &port, &"class=critical".parse().unwrap()).unwrap();
        until("it is told", || bridge.notices().iter().any(|notice| notice.contains(why)));
        publisher.publish(&named(name, 0)).unwrap();
        assert_eq!(from_cdr::<Text>(&told.recv_timeout(LONG).unwrap()).unwrap(), named(name, 0));
        assert_eq!(there.endpoints().iter().filter(|end| end.topic.name == name).count(), 1);
    }
}

/// The participant of a class is another one in DDS. To its own engine it is no other program.
#[test]
fn own_ends_of_another_class_are_no_ends_of_others() {
    let domain = domain();
    let (engine, other) = (open(domain), open(domain));
    let (one, told) = deliver();
    let _own = engine.subscriber(&topic("/both"), &Qos::default(), one).unwrap();
    let (all, told_of_all) = deliver();
    let pattern = Topic { message: TypeDescription::any(), ..topic("/**") };
    let _pattern = engine.subscriber(&pattern, &Qos::default(), all).unwrap();
    let publishers = [Class::Critical, Class::Low].map(|class| {
        let publisher = engine.publisher(&topic("/both"), &Qos { class, ..Qos::default() }).unwrap();
        (publisher, [HEADER, [class.dscp(), 0, 0, 0]].concat())
    });
    let (there, told_there) = deliver();
    let _subscriber = other.subscriber(&topic("/both"), &Qos::default(), there).unwrap();
    let there = other.publisher(&topic("/both"), &Qos::default()).unwrap();
    until("all are wanted", || {
        publishers.iter().all(|(publisher, _)| publisher.wanted_by() == 1) && there.wanted_by() == 2
    });
    for (publisher, message) in &publishers {
        publisher.publish(&written(message)).unwrap();
        assert_eq!(told_there.recv_timeout(LONG).as_ref(), Ok(message));
        publisher.settle(); // own readers have it, too
    }
    let message = to_cdr(&named("there", 1)).unwrap();
    there.publish(&written(&message)).unwrap();
    for told in [told, told_of_all] {
        assert_eq!(told.recv_timeout(LONG).as_ref(), Ok(&message), "and none of the own ones before it");
    }
    assert_eq!((engine.endpoints().len(), engine.refused().count, writers(&other)), (2, 0, 2));
}

/// In ROS 2 a participant names its own ends alone, so that of a class is a node with a name of its own.
#[test]
fn an_end_of_ros_in_a_class_has_the_name_of_a_node_of_the_class() {
    let domain = domain();
    let open = |node: &str| Dds::open(Settings { node: Some(node.to_owned()), ..settings(domain) }, None).unwrap();
    let (first, second) = (open("first"), open("second"));
    let mut definitions = Definitions::new();
    definitions.add("std_msgs/msg/String", "string data\n").unwrap();
    let message = definitions.describe("std_msgs/msg/String").unwrap();
    let critical = Qos { class: Class::Critical, ..Qos::default() };
    let _publisher = first.publisher(&Topic { message, ..topic("/chatter") }, &critical).unwrap();
    until("it is known", || second.endpoints().iter().any(|end| end.name == "/first_critical"));
    assert_eq!(first.endpoints(), []);
}
