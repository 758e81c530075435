//! DDS: the suite that every engine passes, and programs of others (`cyclonedds` from PyPI; `dds_peer.py`).
//!
//! All of it is on loopback, without multicast, in a domain of this process.

use super::running::{Running, until};
use super::world::{LONG, node, realm};
use qos::{Durability, Qos, Queue, Reliability};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use thalweg::codec::{Definitions, TypeDescription, from_cdr, to_cdr};
use thalweg::{Change, Event};
use thalweg_engines::bridge::Rules;
use thalweg_engines::dds::{Dds, Describe, Settings};
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
fn a_sample_without_its_header_is_refused_and_so_is_a_topic_with_a_key() {
    let engine = open(domain());
    let publisher = engine.publisher(&topic("/a"), &Qos::default()).unwrap();
    for wrong in [&b""[..], b"abc", b"text without a header"] {
        assert!(publisher.publish(&written(wrong)).unwrap_err().to_string().contains("encapsulation header"));
    }
    let keyed = Qos { key: vec!["number".to_owned()], ..Qos::default() };
    assert!(engine.publisher(&topic("/a"), &keyed).err().unwrap().to_string().contains("keys"));
    assert!(matches!(Dds::open(settings(233), None), Err(Error::Usage(_))));
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
    // The second subscriber is late to the bridge's ports as well.
    for _ in 0..2 {
        let (tell, told) = channel();
        let late = here.subscriber::<Text>("/map").qos(durable.clone());
        let _late = late.callback(move |sample| tell.send(sample.number).unwrap()).unwrap();
        let mut got: Vec<u32> = (0..6).map(|_| told.recv_timeout(LONG).unwrap()).collect();
        got.sort_unstable();
        assert_eq!(got, [12, 13, 22, 23, 32, 33]);
    }
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

/// Packets of nobody (DDSI-RTPS 2.5 §8.3): a header, and submessages that are cut off, or lie about their lengths.
#[test]
fn malformed_packets_are_counted_and_do_no_harm() {
    let domain = domain();
    let (first, second) = (open(domain), open(domain));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let header = [&b"RTPS\x02\x03\x01\x10"[..], &[7; 12]].concat();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..400_usize {
        let mut packet = header[..header.len().min(8 + round)].to_vec();
        // DATA, DATA_FRAG, HEARTBEAT, GAP and what else there is; flags, length, content.
        packet.extend([[0x15, 0x16, 0x07, 0x08, 0x06][round % 5], round as u8]);
        packet.extend((0..round % 90).map(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as u8
        }));
        // The ports of the first participants of a host (§9.6.2.3): discovery, and data.
        for port in (0..8).map(|number| 7410 + 250 * domain + number) {
            let _ = socket.send_to(&packet, ("127.0.0.1", u16::try_from(port).unwrap()));
        }
    }
    until("they are told", || first.refused().last.contains("malformed packet"));
    let publisher = first.publisher(&topic("/after"), &Qos::default()).unwrap();
    let (tell, told) = channel();
    let deliver: Deliver = Box::new(move |sample| tell.send(sample.message.to_vec()).unwrap());
    let _subscriber = second.subscriber(&topic("/after"), &Qos::default(), deliver).unwrap();
    until("they find each other", || publisher.is_wanted());
    publisher.publish(&written(&HEADER)).unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), HEADER);
}

#[test]
fn a_message_beyond_the_limit_is_refused_on_both_sides() {
    let domain = domain();
    let (small, large) = (Settings { max_message: 4096, ..settings(domain) }, open(domain));
    let small = Dds::open(small, None).unwrap();
    let publisher = large.publisher(&topic("/large"), &Qos::default()).unwrap();
    let (tell, told) = channel();
    let deliver: Deliver = Box::new(move |sample| tell.send(sample.message.len()).unwrap());
    let _subscriber = small.subscriber(&topic("/large"), &Qos::default(), deliver).unwrap();
    until("they find each other", || publisher.is_wanted());
    let mut message = HEADER.to_vec();
    for length in [4100, 4096] {
        message.resize(length, 0);
        publisher.publish(&written(&message)).unwrap();
    }
    assert_eq!(told.recv_timeout(LONG).unwrap(), 4096);
    until("it is told", || small.refused().last.contains("oversize"));
    message.push(0);
    let own = small.publisher(&topic("/own"), &Qos::default()).unwrap();
    assert!(own.publish(&written(&message)).unwrap_err().to_string().contains("at most 4096"));
}

/// The subscriber does not take its first sample before the publisher waits for room, or is through.
#[test]
fn a_slow_subscriber_loses_nothing() {
    const LARGE: usize = 60_000;
    const SAMPLES: u32 = 100;
    let domain = domain();
    let (first, second) = (open(domain), open(domain));
    let sent = Arc::new(AtomicU32::new(0));
    let (progress, (tell, told)) = (sent.clone(), channel());
    let mut is_first = true;
    let deliver: Deliver = Box::new(move |sample| {
        let mut seen = None;
        while is_first && seen != Some(progress.load(Ordering::Acquire)) {
            seen = Some(progress.load(Ordering::Acquire));
            std::thread::sleep(Duration::from_millis(300)); // between two looks whether it waits
        }
        is_first = false;
        let _ = tell.send(sample.message.last().copied());
    });
    let publisher = first.publisher(&topic("/large"), &Qos::default()).unwrap();
    let _subscriber = second.subscriber(&topic("/large"), &Qos::default(), deliver).unwrap();
    until("they have found each other", || publisher.is_wanted());
    for number in 0..SAMPLES {
        let mut message = HEADER.to_vec();
        message.resize(LARGE, number as u8);
        publisher.publish(&written(&message)).unwrap();
        sent.fetch_add(1, Ordering::Release);
    }
    let got: Vec<_> = (0..SAMPLES).map(|_| told.recv_timeout(LONG).unwrap().unwrap()).collect();
    assert_eq!(got, (0..SAMPLES as u8).collect::<Vec<_>>());
}

const COUNT: u32 = 1000;

/// A program; it ends when its input does.
struct Peer(Child);

impl Peer {
    /// `None`, with the reason printed, if it is not there.
    fn start(what: &str, domain: u32, topic: &str) -> Option<Self> {
        let python = std::env::var("THALWEG_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let found = Command::new(&python).args(["-c", "import cyclonedds"]).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            println!("skipped: because {python} has no cyclonedds 11.0.1 (THALWEG_PYTHON names another)");
            return None;
        }
        let mut command = Command::new(&python);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dds_peer.py");
        command.args([script, what, &domain.to_string(), topic, &COUNT.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Some(Self(command.spawn().unwrap_or_else(|error| panic!("{python}: {error}"))))
    }

    /// The lines that it prints until its end.
    fn lines(&mut self) -> impl Iterator<Item = String> {
        BufReader::new(self.0.stdout.take().unwrap()).lines().map(std::result::Result::unwrap)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        let mut said = String::new();
        if let Some(mut stdout) = self.0.stdout.take() {
            stdout.read_to_string(&mut said).unwrap();
        }
        assert!(self.0.wait().unwrap().success(), "{said}");
    }
}

#[test]
fn a_thousand_samples_of_a_program_of_dds_reach_a_rust_struct() {
    let (domain, realm) = (domain(), realm("dds-in"));
    let here = node("here", &realm);
    let (tell, told) = channel();
    let subscriber = here.subscriber::<Text>("/robot/text").callback(move |sample| tell.send(sample.clone()).unwrap());
    let subscriber = subscriber.unwrap();
    let _bridge = bridge(&realm, domain);
    let Some(peer) = Peer::start("talk", domain, "robot/text") else { return };
    for number in 0..COUNT {
        assert_eq!(told.recv_timeout(LONG).unwrap(), text(number));
    }
    let nodes = here.nodes();
    let foreign = nodes.iter().flat_map(|document| document.ports.values()).find_map(|port| port.foreign.as_ref());
    assert!(foreign.unwrap().to_string().contains("python"), "{}", foreign.unwrap());
    peer.end();
    until("the writer's port is gone", || subscriber.connected() == 0);
}

#[test]
fn a_program_of_dds_gets_a_thousand_samples_of_a_rust_struct() {
    let (domain, realm) = (domain(), realm("dds-out"));
    let here = node("here", &realm);
    let mut publisher = here.publisher::<Text>("/robot/text").queue(Queue::KeepAll(1024)).open().unwrap();
    let bridge = bridge(&realm, domain);
    let Some(mut peer) = Peer::start("listen", domain, "robot/text") else { return };
    let mut lines = peer.lines();
    assert_eq!(lines.next().unwrap(), "ready");
    assert!(publisher.wait_connected(1, LONG), "{:?}", bridge.notices());
    for number in 0..COUNT {
        until("there is room", || publisher.publish(&text(number)).unwrap().refused == 0);
    }
    let expected: Vec<String> = (0..COUNT).map(|number| format!("{number} sample {number}")).collect();
    assert_eq!(lines.collect::<Vec<_>>(), expected);
    peer.end();
}

/// Three writers of another program, each of which keeps two samples for late joiners.
#[test]
fn a_late_subscriber_gets_the_histories_of_a_program_of_dds() {
    let (domain, realm) = (domain(), realm("dds-kept"));
    let here = node("here", &realm);
    let _bridge = bridge(&realm, domain);
    let Some(mut peer) = Peer::start("keep", domain, "robot/map") else { return };
    assert_eq!(peer.lines().next().unwrap(), "ready");
    let durable = Qos { durability: Durability::TransientLocal, history: 2, ..Qos::default() };
    for _ in 0..2 {
        let (tell, told) = channel();
        let late = here.subscriber::<Text>("/robot/map").qos(durable.clone());
        let _late = late.callback(move |sample| tell.send(sample.number).unwrap()).unwrap();
        let mut got: Vec<u32> = (0..6).map(|_| told.recv_timeout(LONG).unwrap()).collect();
        got.sort_unstable();
        assert_eq!(got, [12, 13, 22, 23, 32, 33]);
    }
    peer.end();
}

/// A topic with a key is told, and nothing of it comes.
#[test]
fn a_topic_with_a_key_is_told() {
    let domain = domain();
    let engine = open(domain);
    let Some(mut peer) = Peer::start("keyed", domain, "robot/keyed") else { return };
    assert_eq!(peer.lines().next().unwrap(), "ready");
    until("it is told", || engine.refused().last.contains("topic robot/keyed of type Keyed: it has a key"));
    assert_eq!(engine.endpoints(), []);
    peer.end();
}

/// `std_msgs/msg/String`, by its structure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "String")]
struct RosText {
    data: String,
}

/// A bridge that is a node of ROS 2.
fn ros_bridge(realm: &str, domain: u32) -> Running {
    let mut definitions = Definitions::new();
    definitions.add("std_msgs/msg/String", "string data\n").unwrap();
    let string = definitions.describe("std_msgs/msg/String").unwrap();
    let describe: Describe = Arc::new(move |name| (name == "std_msgs::msg::dds_::String_").then(|| string.clone()));
    let own = node("bridge", realm);
    let settings = Settings { node: Some("gate".to_owned()), describe, ..settings(domain) };
    let engine = Dds::open(settings, Some(Rules::default().identity(own.id()))).unwrap();
    Running::with(own, Box::new(engine), "")
}

#[test]
fn a_thousand_samples_of_a_talker_of_ros_reach_a_rust_struct() {
    let (domain, realm) = (domain(), realm("dds-ros-in"));
    let here = node("here", &realm);
    let (tell, told) = channel();
    let subscriber = here.subscriber::<RosText>("/chatter");
    let _subscriber = subscriber.callback(move |sample| tell.send(sample.data.clone()).unwrap()).unwrap();
    let _bridge = ros_bridge(&realm, domain);
    let Some(peer) = Peer::start("ros-talk", domain, "chatter") else { return };
    for number in 0..COUNT {
        assert_eq!(told.recv_timeout(LONG).unwrap(), format!("sample {number}"));
    }
    let foreign = || {
        let nodes = here.nodes();
        let ports = nodes.iter().flat_map(|document| document.ports.values());
        ports.filter(|port| port.topic == "/chatter").find_map(|port| port.foreign.clone())
    };
    assert_eq!(foreign().unwrap().to_string(), "dds /talker /chatter");
    peer.end();
}

#[test]
fn a_listener_of_ros_gets_a_thousand_samples_of_a_node_that_it_knows() {
    let (domain, realm) = (domain(), realm("dds-ros-out"));
    let here = node("here", &realm);
    let mut publisher = here.publisher::<RosText>("/chatter").queue(Queue::KeepAll(1024)).open().unwrap();
    let bridge = ros_bridge(&realm, domain);
    let Some(mut peer) = Peer::start("ros-listen", domain, "chatter") else { return };
    let mut lines = peer.lines();
    assert_eq!(lines.next().unwrap(), "ready");
    assert!(publisher.wait_connected(1, LONG), "{:?}", bridge.notices());
    for number in 0..COUNT {
        let text = RosText { data: format!("sample {number}") };
        until("there is room", || publisher.publish(&text).unwrap().refused == 0);
    }
    let told = (0..COUNT).map(|number| format!("sample {number}"));
    let expected: Vec<String> = told.chain(["node / gate True".to_owned()]).collect();
    assert_eq!(lines.collect::<Vec<_>>(), expected);
    peer.end();
}

#[test]
fn texts_of_a_peer_are_those_of_the_engine() {
    assert_eq!(from_cdr::<Text>(&to_cdr(&text(7)).unwrap()).unwrap(), text(7));
}
