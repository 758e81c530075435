//! DDS: the suite that every engine passes, bridges, and in modules classes with their marks, bad input, programs of others
//! (Cyclone DDS, Fast DDS), joined networks, topics with a key and services of ROS 2.
//!
//! All of it is on loopback, without multicast, in a domain of this process.

mod capture;
mod classes;
mod fastdds;
mod hostile;
mod joined;
mod keyed;
mod peers;
mod services;

use super::running::{Running, until};
use super::world::{LONG, node, realm};
use qos::priority::Dscp;
use qos::{Class, Durability, Qos, Reliability};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use thalweg::codec::{Definitions, TypeDescription, to_cdr};
use thalweg::{Change, Event};
use thalweg_engines::bridge::Rules;
use thalweg_engines::dds::{Dds, Settings};
use thalweg_engines::testing::Made;
use thalweg_engines::{
    Abilities, Deliver, Endpoint, Engine, Error, Identity, Incompatible, Publisher, Refused, Result, Sample,
    Subscriber, Topic,
};

/// A domain that no other test of this process has, and seldom one of another process.
fn domain() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    (std::process::id() * 7 + NEXT.fetch_add(1, Ordering::Relaxed)) % 200
}

fn settings(domain: u32) -> Settings {
    let loopback = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    Settings { domain, interfaces: loopback.clone(), peers: loopback, multicast: false, ..Settings::default() }
}

fn open(domain: u32) -> Dds {
    Dds::open(settings(domain), None).unwrap()
}

/// The encapsulation header of CDR, version 1, little-endian.
const HEADER: [u8; 4] = [0, 1, 0, 0];

/// DDS carries messages of CDR. The suite's are any bytes, so these get a header on their way.
struct Encapsulated(Dds);

struct EncapsulatedPublisher(Box<dyn Publisher>);

impl Publisher for EncapsulatedPublisher {
    fn publish(&self, sample: &Sample<'_>) -> Result<()> {
        self.0.publish(&Sample { message: &[&HEADER, sample.message].concat(), ..*sample })
    }
    fn is_wanted(&self) -> bool {
        self.0.is_wanted()
    }
}

impl Engine for Encapsulated {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }
    fn publisher(&self, topic: &Topic, offer: &Qos) -> Result<Box<dyn Publisher>> {
        Ok(Box::new(EncapsulatedPublisher(self.0.publisher(topic, offer)?)))
    }
    fn subscriber(&self, topic: &Topic, request: &Qos, mut deliver: Deliver) -> Result<Box<dyn Subscriber>> {
        let bare = move |sample: &Sample<'_>| {
            let message = sample.message.strip_prefix(&HEADER).expect("the header as it was written");
            deliver(&Sample { message, ..*sample });
        };
        self.0.subscriber(topic, request, Box::new(bare))
    }
    fn changes(&self) -> u64 {
        self.0.changes()
    }
    fn endpoints(&self) -> Vec<Endpoint> {
        self.0.endpoints()
    }
    fn bridges(&self) -> Vec<thalweg::control::NodeId> {
        self.0.bridges()
    }
    fn refused(&self) -> Refused {
        self.0.refused()
    }
    fn incompatible(&self) -> Vec<Incompatible> {
        self.0.incompatible()
    }
}

fn two() -> Made {
    let domain = domain();
    (Box::new(Encapsulated(open(domain))), Box::new(Encapsulated(open(domain))))
}

thalweg_engines::engine_conformance!(of_dds, two());

/// The type of `dds_peer.py`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Text {
    number: u32,
    data: String,
}

fn text(number: u32) -> Text {
    Text { number, data: format!("sample {number}") }
}

fn topic(name: &str) -> Topic {
    Topic { name: name.to_owned(), message: TypeDescription::of::<Text>() }
}

fn written(message: &[u8]) -> Sample<'_> {
    Sample { topic: "", message, publisher: 0, origin: None, change: Change::Written, age_ns: 0, historical: false }
}

/// A bridge to a domain.
fn bridge(realm: &str, domain: u32) -> Running {
    let own = node("bridge", realm);
    let engine = Dds::open(settings(domain), Some(Rules::default().identity(own.id()))).unwrap();
    Running::with(own, Box::new(engine), "")
}

#[test]
fn a_sample_without_its_header_is_refused_and_so_is_a_key_of_no_member() {
    let engine = open(domain());
    let publisher = engine.publisher(&topic("/a"), &Qos::default()).unwrap();
    for wrong in [&b""[..], b"abc", b"text without a header"] {
        assert!(publisher.publish(&written(wrong)).unwrap_err().to_string().contains("encapsulation header"));
    }
    let keyed = Qos { key: vec!["colour".to_owned()], ..Qos::default() };
    assert!(engine.publisher(&topic("/a"), &keyed).err().unwrap().to_string().contains("colour is none"));
    assert!(matches!(Dds::open(settings(233), None), Err(Error::Usage(_))));
    let normal = Settings { marks: vec![(Class::Normal, Dscp::default())], ..settings(domain()) };
    assert!(matches!(Dds::open(normal, None), Err(Error::Usage(why)) if why.contains("low, high and critical")));
    let wrong = Settings { configuration: "<CycloneDDS><Nonsense/></CycloneDDS>".to_owned(), ..settings(domain()) };
    assert!(matches!(Dds::open(wrong, None), Err(Error::Usage(why)) if why.contains("Nonsense")));
}

#[test]
fn bridges_of_one_realm_and_the_same_rules_find_each_other() {
    let domain = domain();
    let of = |number, rules: &str| {
        let identity = Identity { node: thalweg::control::NodeId(number), rules: rules.to_owned() };
        Dds::open(settings(domain), Some(identity)).unwrap()
    };
    let (first, second, _other) = (of(1, "same"), of(2, "same"), of(3, "other"));
    until("both are known", || first.bridges().len() == 2 && second.bridges().len() == 2);
    drop(second);
    until("one is gone", || first.bridges() == [thalweg::control::NodeId(1)]);
}

#[test]
fn a_late_subscriber_gets_the_history_of_each_writer() {
    let (domain, realm) = (domain(), realm("dds-late"));
    let (here, there) = (node("here", &realm), open(domain));
    let _bridge = bridge(&realm, domain);
    let durable = Qos { durability: Durability::TransientLocal, history: 2, ..Qos::default() };
    let writers = [10, 20, 30].map(|first| (there.publisher(&topic("/map"), &durable).unwrap(), first));
    for (writer, first) in &writers {
        (1..=3).for_each(|number| writer.publish(&written(&to_cdr(&text(first + number)).unwrap())).unwrap());
    }
    // The second subscriber is late to the bridge's ports as well. The first one stays, or the ports might be opened anew meanwhile.
    let mut subscribers = Vec::new();
    for _ in 0..2 {
        let (tell, told) = channel();
        let late = here.subscriber::<Text>("/map").qos(durable.clone());
        subscribers.push(late.callback(move |sample| tell.send(sample.number).unwrap()).unwrap());
        let mut got: Vec<u32> = (0..6).map(|_| told.recv_timeout(LONG).unwrap()).collect();
        got.sort_unstable();
        assert_eq!(got, [12, 13, 22, 23, 32, 33]);
    }
}

/// A reader states another name of the type, after more was kept than is written at once. What is published then comes after it.
#[test]
fn what_was_kept_under_a_guessed_type_reaches_a_reader_of_the_stated_one() {
    const SAMPLES: u32 = 40;
    let domain = domain();
    let (here, there) = (open(domain), open(domain));
    let durable = Qos { durability: Durability::TransientLocal, history: SAMPLES, ..Qos::default() };
    let publisher = here.publisher(&topic("/map"), &durable).unwrap();
    let sample = |number| to_cdr(&Text { number, data: "x".repeat(4096) }).unwrap();
    (0..SAMPLES).for_each(|number| publisher.publish(&written(&sample(number))).unwrap());
    let (tell, told) = channel();
    let deliver: Deliver = Box::new(move |sample| tell.send(sample.message.to_vec()).unwrap());
    let message = TypeDescription { name: "robot::Text".to_owned(), ..TypeDescription::of::<Text>() };
    let _subscriber = there.subscriber(&Topic { message, ..topic("/map") }, &durable, deliver).unwrap();
    until("it is wanted", || publisher.is_wanted());
    publisher.publish(&written(&sample(SAMPLES))).unwrap();
    for number in 0..=SAMPLES {
        assert_eq!(told.recv_timeout(LONG).unwrap(), sample(number), "{number}");
    }
}

#[test]
fn an_end_of_ros_has_the_name_of_its_node() {
    let domain = domain();
    let open = |node: &str| Dds::open(Settings { node: Some(node.to_owned()), ..settings(domain) }, None).unwrap();
    let (first, second) = (open("first"), open("second"));
    let mut definitions = Definitions::new();
    definitions.add("std_msgs/msg/String", "string data\n").unwrap();
    let message = definitions.describe("std_msgs/msg/String").unwrap();
    let publisher = first.publisher(&Topic { message, ..topic("/chatter") }, &Qos::default()).unwrap();
    until("it is known", || second.endpoints().iter().any(|end| end.name == "/first"));
    drop(publisher);
    until("it is gone", || second.endpoints().is_empty());
}

/// A best-effort writer and a reliable reader: both sides are told.
#[test]
fn policies_that_do_not_match_are_told_on_both_sides() {
    let (domain, realm) = (domain(), realm("dds-qos"));
    let (here, there) = (node("here", &realm), open(domain));
    let bridge = bridge(&realm, domain);
    let lossy = Qos { reliability: Reliability::BestEffort, ..Qos::default() };
    let mut events = here.events();
    let _writer = there.publisher(&topic("/sensor"), &lossy).unwrap();
    let _reliable = here.subscriber::<Text>("/sensor").open().unwrap();
    until("the subscriber here is told", || {
        let told = events.wait(Duration::from_millis(20));
        matches!(told, Some(Event::Incompatible { policy, offered, .. }) if policy == "reliability" && offered == "best-effort")
    });
    let _lossy = here.publisher::<Text>("/fast").qos(lossy).open().unwrap();
    let _reader = there.subscriber(&topic("/fast"), &Qos::default(), Box::new(|_| {})).unwrap();
    let mismatch = "/fast: reliability offered best-effort, requested reliable";
    until("the bridge tells", || bridge.notices().iter().any(|notice| notice == mismatch));
    until("the reader is told", || there.incompatible().iter().any(|one| one.to_string() == mismatch));
}
