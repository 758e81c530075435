//! The marks of a topic's packets on their way to programs of Zenoh and ROS 2: `ss` tells the mark of each connection, and what it sent.

use super::running::{Running, until};
use super::world::{LONG, address, node, realm};
use super::zenoh_world::{connecting, listening, open, ros_node, ros_settings};
use qos::{Class, Qos, Queue};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use thalweg::Publisher;
use thalweg::codec::Definitions;
use thalweg_engines::bridge::Rules;
use thalweg_engines::ros2::Ros2;
use thalweg_engines::zenoh::Zenoh;
use thalweg_engines::{Engine, Identity, Sample, Topic};

/// Samples of a burst, and the least bytes of each.
const COUNT: u64 = 100;
const SIZE: u64 = 1000;

/// `std_msgs/msg/String`, by its structure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "String")]
struct Text {
    data: String,
}

/// The bytes that the connections to an address have sent, by their mark (TOS octet). `None`: `ss` is not installed.
fn sent_to(address: &str) -> Option<BTreeMap<u8, u64>> {
    let address = address.trim_start_matches("tcp/");
    let listed = Command::new("ss").args(["-tinHO", "--tos", "dst", address]).output().ok()?;
    assert!(listed.status.success(), "{listed:?}");
    let mut sent = BTreeMap::new();
    for line in String::from_utf8(listed.stdout).unwrap().lines() {
        let field = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name));
        let mark = field("tos:").unwrap_or_else(|| panic!("no mark in {line}")).trim_start_matches("0x");
        let bytes = field("bytes_sent:").map_or(0, |bytes| bytes.parse::<u64>().unwrap()); // none: it has sent nothing
        *sent.entry(u8::from_str_radix(mark, 16).unwrap()).or_default() += bytes;
    }
    Some(sent)
}

/// A topic's samples leave with the mark of its class, before and after it is set live; those of another topic keep theirs.
fn marks_follow_the_class(name: &str, address: &str, there: &dyn Engine, open: impl Fn(Identity) -> Box<dyn Engine>) {
    if sent_to(address).is_none() {
        return println!("skipped: because there is no ss (iproute2)");
    }
    let realm = realm(name);
    let (here, own) = (node("here", &realm), node("bridge", &realm));
    let _bridge = Running::with(own.clone(), open(Rules::default().identity(own.id())), "");
    let mut definitions = Definitions::new();
    definitions.add("std_msgs/msg/String", "string data\n").unwrap();
    let message = definitions.describe("std_msgs/msg/String").unwrap();
    let [mut arm, mut map] = ["/arm", "/map"].map(|name| {
        let (tell, told) = channel();
        let topic = Topic { name: name.to_owned(), message: message.clone() };
        let deliver = Box::new(move |_: &Sample<'_>| {
            let _ = tell.send(());
        });
        let subscriber = there.subscriber(&topic, &Qos::default(), deliver).unwrap();
        let block = Queue::Block { limit: 1024, up_to_us: 10_000_000 };
        let publisher = here.publisher::<Text>(name).named(format!("/talker{name}")).queue(block).open().unwrap();
        assert!(publisher.wait_connected(1, LONG));
        (publisher, told, subscriber)
    });
    let to = arm.0.channels()[0].subscriber.clone();
    let text = Text { data: "x".repeat(SIZE as usize) };
    // The mark with which all samples of a burst left, or none if they left with several.
    let burst = |(publisher, told, _): &mut (Publisher<Text>, Receiver<()>, _)| {
        let before = sent_to(address).unwrap();
        for _ in 0..COUNT {
            publisher.publish(&text).unwrap();
            told.recv_timeout(LONG).unwrap();
        }
        let mut sent = sent_to(address).unwrap();
        sent.retain(|mark, bytes| bytes.saturating_sub(*before.get(mark).unwrap_or(&0)) >= COUNT * SIZE);
        sent.into_keys().collect::<Vec<u8>>()
    };
    let [critical, normal] = [Class::Critical, Class::Normal].map(|class| [class.dscp() << 2]);
    assert_eq!((burst(&mut arm), burst(&mut map)), (normal.to_vec(), normal.to_vec()));
    for (class, mark) in [("critical", critical), ("normal", normal)] {
        own.set_priority(&to, "/talker/arm", &format!("class={class}").parse().unwrap()).unwrap();
        until(&format!("samples leave with the mark of {class}"), || burst(&mut arm) == mark);
        assert_eq!(burst(&mut map), normal, "the other topic has its own");
    }
}

#[test]
fn packets_to_zenoh_have_the_mark_of_their_topics_class() {
    let address = address();
    let there = open(listening(&address));
    let engine = |identity| Box::new(Zenoh::open(connecting(&address), Some(identity)).unwrap()) as Box<dyn Engine>;
    marks_follow_the_class("marks-zenoh", &address, &there, engine);
}

#[test]
fn packets_to_ros_have_the_mark_of_their_topics_class() {
    let address = address();
    let there = ros_node("listener", &[], &[&address]);
    let engine = |identity| {
        let settings = ros_settings("bridge", &[&address], &[]);
        Box::new(Ros2::open(settings, Some(identity)).unwrap()) as Box<dyn Engine>
    };
    marks_follow_the_class("marks-ros", &address, &there, engine);
}
