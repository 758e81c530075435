//! Bridges to ROS 2 over Zenoh. The nodes of ROS 2 are engines here; programs of others are in `peers.rs`.

use super::running::{Running, until};
use super::world::{LONG, address, node, realm};
use super::zenoh_world::{ros_node, ros_settings};
use qos::{Durability, Queue, Reliability};
use serde::{Deserialize, Serialize};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use thalweg::codec::{Definitions, TypeDescription, from_cdr, to_cdr};
use thalweg::control::Direction;
use thalweg::{Change, Event, Node};
use thalweg_engines::bridge::Rules;
use thalweg_engines::ros2::Ros2;
use thalweg_engines::{Engine, Sample, Subscriber, Topic};

/// `std_msgs/msg/String`, by its structure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "String")]
struct Text {
    data: String,
}

fn text(data: &str) -> Text {
    Text { data: data.to_owned() }
}

fn string() -> TypeDescription {
    let mut definitions = Definitions::new();
    definitions.add("std_msgs/msg/String", "string data\n").unwrap();
    definitions.describe("std_msgs/msg/String").unwrap()
}

fn chatter(name: &str) -> Topic {
    Topic { name: name.to_owned(), message: string() }
}

fn written(message: &[u8]) -> Sample<'_> {
    Sample { topic: "", message, publisher: 0, origin: None, change: Change::Written, age_ns: 0, historical: false }
}

fn listen(ros: &Ros2, topic: &str, request: &qos::Qos) -> (Box<dyn Subscriber>, Receiver<String>) {
    let (tell, told) = channel();
    let deliver = Box::new(move |sample: &Sample<'_>| {
        let _ = tell.send(from_cdr::<Text>(sample.message).unwrap().data);
    });
    (ros.subscriber(&chatter(topic), request, deliver).unwrap(), told)
}

/// A node of Thalweg, a node of ROS 2, and a bridge between them.
fn world(name: &str) -> (Node, Ros2, Running) {
    let (realm, address) = (realm(name), address());
    let (here, ros) = (node("here", &realm), ros_node("talker", &[], &[&address]));
    let own = node("bridge", &realm);
    let bridge =
        Ros2::open(ros_settings("bridge", &[&address], &[]), Some(Rules::default().identity(own.id()))).unwrap();
    (here, ros, Running::with(own, Box::new(bridge), ""))
}

#[test]
fn a_thousand_samples_of_a_talker_reach_a_rust_struct() {
    let (here, ros, _bridge) = world("ros-in");
    let (tell, told) = channel();
    let subscriber =
        here.subscriber::<Text>("/chatter").callback(move |sample| tell.send(sample.data.clone()).unwrap());
    let subscriber = subscriber.unwrap();
    let talker = ros.publisher(&chatter("/chatter"), &qos::Qos::default()).unwrap();
    until("the talker is wanted", || talker.is_wanted());
    for number in 0..1000 {
        talker.publish(&written(&to_cdr(&text(&format!("hello {number}"))).unwrap())).unwrap();
    }
    for number in 0..1000 {
        assert_eq!(told.recv_timeout(LONG).unwrap(), format!("hello {number}"));
    }
    let nodes = here.nodes();
    let port = nodes.iter().flat_map(|document| document.ports.values()).find(|port| port.foreign.is_some()).unwrap();
    assert_eq!(port.foreign.as_ref().unwrap().to_string(), "ros2 /talker /chatter");
    assert_eq!(port.message.ros.as_ref().unwrap().name, "std_msgs/msg/String");
    drop(talker);
    until("the talker's port is gone", || subscriber.connected() == 0);
}

#[test]
fn a_node_without_a_router_knows_that_it_is_alone() {
    let address = address();
    let first = ros_node("first", &[], &[&address]);
    assert!(first.is_alone());
    let second = ros_node("second", &[&address], &[]);
    until("both are connected", || !first.is_alone() && !second.is_alone());
}

#[test]
fn a_listener_gets_a_thousand_samples_of_a_rust_struct() {
    let (here, ros, bridge) = world("ros-out");
    let block = Queue::Block { limit: 1024, up_to_us: 10_000_000 };
    let mut publisher = here.publisher::<Text>("/chatter").queue(block).open().unwrap();
    let (_listener, told) = listen(&ros, "/chatter", &qos::Qos::default());
    assert!(publisher.wait_connected(1, LONG), "{:?}", bridge.notices());
    for number in 0..1000 {
        publisher.publish(&text(&format!("hello {number}"))).unwrap();
    }
    for number in 0..1000 {
        assert_eq!(told.recv_timeout(LONG).unwrap(), format!("hello {number}"));
    }
    let ends = ros.endpoints();
    let end = ends.iter().find(|end| end.direction == Direction::Publisher).unwrap();
    assert_eq!((&end.name[..], &end.topic.name[..], &end.topic.message), ("/bridge", "/chatter", &string()));
    drop(publisher);
    until("the endpoint is gone", || ros.endpoints().is_empty());
}

#[test]
fn a_late_subscriber_gets_the_history_of_each_talker() {
    let (here, ros, _bridge) = world("ros-late");
    let durable = qos::Qos { durability: Durability::TransientLocal, history: 2, ..qos::Qos::default() };
    let talkers = [0, 1, 2].map(|_| ros.publisher(&chatter("/map"), &durable).unwrap());
    for (talker, name) in talkers.iter().zip(["a", "b", "c"]) {
        (1..=3)
            .for_each(|number| talker.publish(&written(&to_cdr(&text(&format!("{name}{number}"))).unwrap())).unwrap());
    }
    // The second subscriber is late to the bridge's ports as well.
    for _ in 0..2 {
        let (tell, told) = channel();
        let late = here.subscriber::<Text>("/map").qos(durable.clone());
        let _late = late.callback(move |sample| tell.send(sample.data.clone()).unwrap()).unwrap();
        let mut got: Vec<String> = (0..6).map(|_| told.recv_timeout(LONG).unwrap()).collect();
        got.sort();
        assert_eq!(got, ["a2", "a3", "b2", "b3", "c2", "c3"]);
    }
}

/// A best-effort publisher and a reliable subscriber: both sides are told.
#[test]
fn policies_that_do_not_match_are_told_on_both_sides() {
    let (here, ros, bridge) = world("ros-qos");
    let lossy = qos::Qos { reliability: Reliability::BestEffort, ..qos::Qos::default() };
    let mut events = here.events();
    let _talker = ros.publisher(&chatter("/sensor"), &lossy).unwrap();
    let _reliable = here.subscriber::<Text>("/sensor").open().unwrap();
    until("the subscriber here is told", || {
        let told = events.wait(Duration::from_millis(20));
        matches!(told, Some(Event::Incompatible { policy, offered, .. }) if policy == "reliability" && offered == "best-effort")
    });
    let _lossy = here.publisher::<Text>("/fast").qos(lossy).open().unwrap();
    let (_listener, _told) = listen(&ros, "/fast", &qos::Qos::default());
    let mismatch = "/fast: reliability offered best-effort, requested reliable";
    until("the bridge tells", || bridge.notices().iter().any(|notice| notice == mismatch));
    until("the node of ROS 2 is told", || ros.incompatible().iter().any(|one| one.to_string() == mismatch));
}

#[test]
fn a_type_that_is_none_of_ros_is_told_when_somebody_there_wants_the_topic() {
    let (here, ros, bridge) = world("ros-type");
    let _other = here.publisher::<u64>("/number").open().unwrap();
    let _unwanted = here.publisher::<u64>("/unwanted").open().unwrap();
    let (_listener, _told) = listen(&ros, "/number", &qos::Qos::default());
    until("it is told", || {
        bridge.notices().iter().any(|notice| notice.contains("/number: type u64 is not known as one of ROS 2"))
    });
    assert!(bridge.notices().iter().all(|notice| !notice.contains("/unwanted")));
}
