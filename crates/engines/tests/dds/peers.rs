//! Programs that others have written: `cyclonedds` from PyPI (`dds_peer.py`), as programs of DDS and as nodes of ROS 2, and `ros2-client`, which
//! is ROS 2 over RustDDS (crates/engines/peers).
//!
//! `THALWEG_PYTHON` names an interpreter that has it.

use super::{Text, bridge, domain, open, settings, text, until};
use crate::program::built;
use crate::running::Running;
use crate::world::{LONG, node, realm};
use qos::{Durability, Qos, Queue};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use thalweg::codec::{Definitions, TypeDescription};
use thalweg_engines::bridge::Rules;
use thalweg_engines::dds::{Dds, Describe, Settings};
use thalweg_engines::{Engine, Topic};

pub(super) const COUNT: u32 = 1000;

/// A program; it ends when its input does.
pub(super) struct Peer(Child);

impl Peer {
    /// `None`, with the reason printed, if it is not there.
    pub(super) fn start(what: &str, domain: u32, topic: &str) -> Option<Self> {
        let python = std::env::var("THALWEG_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let found = Command::new(&python).args(["-c", "import cyclonedds"]).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            println!("skipped: because {python} has no cyclonedds 11.0.1 (THALWEG_PYTHON names another)");
            return None;
        }
        let mut command = Command::new(&python);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dds_peer.py");
        command.args([script, what, &domain.to_string(), topic, &COUNT.to_string()]);
        Some(Self::spawn(command))
    }

    /// A node of ros2-client on /chatter.
    fn of_ros2_client(what: &str, domain: u32) -> Option<Self> {
        let mut command = built("ros2_client_peer")?;
        command.args([what, &domain.to_string(), &COUNT.to_string()]);
        Some(Self::spawn(command))
    }

    pub(super) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// The lines that it prints until its end.
    pub(super) fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.0.stdout.take().unwrap()).lines().map(std::result::Result::unwrap)
    }

    pub(super) fn end(mut self) {
        drop(self.0.stdin.take());
        let mut said = String::new();
        if let Some(mut stdout) = self.0.stdout.take() {
            stdout.read_to_string(&mut said).unwrap();
        }
        assert!(self.0.wait().unwrap().success(), "{said}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill(); // of a test that failed: it ends by itself otherwise
        let _ = self.0.wait();
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

/// The type of `dds_peer.py`, which has a key there.
#[derive(Serialize, Deserialize)]
struct Keyed {
    number: u32,
}

/// Without a definition: a writer of a topic with a key is told, and a reader does not match a publisher without one.
#[test]
fn a_topic_with_a_key_is_told() {
    let domain = domain();
    let engine = open(domain);
    let Some(mut peer) = Peer::start("keyed", domain, "robot/keyed") else { return };
    assert_eq!(peer.lines().next().unwrap(), "ready");
    let message = TypeDescription::of::<Keyed>();
    let own = Topic { name: "/robot/keyed".to_owned(), message };
    let publisher = engine.publisher(&own, &Qos::default()).unwrap();
    until("the writer is told", || engine.refused().last.contains("topic robot/keyed of type Keyed: it has a key"));
    let mut told = Vec::new();
    until("the reader is told", || {
        told.extend(engine.incompatible());
        told.iter().any(|one| one.to_string() == "/robot/keyed: key offered none, requested some")
    });
    assert_eq!((engine.endpoints().len(), publisher.wanted_by()), (1, 0));
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
    samples_come("dds-ros-in", |domain| Peer::start("ros-talk", domain, "chatter"));
}

#[test]
fn a_thousand_samples_of_a_talker_of_ros2_client_reach_a_rust_struct() {
    samples_come("dds-ros2-client-in", |domain| Peer::of_ros2_client("talk", domain));
}

/// Samples of a node of ROS 2, `/talker`, reach a Rust struct.
fn samples_come(name: &str, start: impl FnOnce(u32) -> Option<Peer>) {
    let (domain, realm) = (domain(), realm(name));
    let here = node("here", &realm);
    let (tell, told) = channel();
    let subscriber = here.subscriber::<RosText>("/chatter");
    let _subscriber = subscriber.callback(move |sample| tell.send(sample.data.clone()).unwrap()).unwrap();
    let _bridge = ros_bridge(&realm, domain);
    let Some(peer) = start(domain) else { return };
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
    let start = |domain| Peer::start("ros-listen", domain, "chatter");
    samples_leave("dds-ros-out", start, Some("node / gate True"));
}

#[test]
fn a_listener_of_ros2_client_gets_a_thousand_samples() {
    samples_leave("dds-ros2-client-out", |domain| Peer::of_ros2_client("listen", domain), None);
}

/// Samples of a Rust struct reach a node of ROS 2, which prints them, and this last line.
fn samples_leave(name: &str, start: impl FnOnce(u32) -> Option<Peer>, last: Option<&str>) {
    let (domain, realm) = (domain(), realm(name));
    let here = node("here", &realm);
    let mut publisher = here.publisher::<RosText>("/chatter").queue(Queue::KeepAll(1024)).open().unwrap();
    let bridge = ros_bridge(&realm, domain);
    let Some(mut peer) = start(domain) else { return };
    let mut lines = peer.lines();
    assert_eq!(lines.next().unwrap(), "ready");
    assert!(publisher.wait_connected(1, LONG), "{:?}", bridge.notices());
    for number in 0..COUNT {
        let text = RosText { data: format!("sample {number}") };
        until("there is room", || publisher.publish(&text).unwrap().refused == 0);
    }
    let told = (0..COUNT).map(|number| format!("sample {number}"));
    let expected: Vec<String> = told.chain(last.map(str::to_owned)).collect();
    assert_eq!(lines.collect::<Vec<_>>(), expected);
    peer.end();
}
