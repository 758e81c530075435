//! Programs that others have written: `eclipse-zenoh`, and `zenoh-ros2-sdk` as nodes of ROS 2 (both from PyPI; `peer.py`).
//!
//! `THALWEG_PYTHON` names an interpreter that has them.

use super::running::{Running, until};
use super::world::{LONG, node, realm};
use super::zenoh_world::{bridge, listening, ros_settings};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use thalweg::codec::Raw;
use thalweg_engines::bridge::Rules;
use thalweg_engines::ros2::Ros2;

const COUNT: u32 = 1000;

/// `std_msgs/msg/String`, by its structure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "String")]
struct Text {
    data: String,
}

/// A program; it ends when its input does.
struct Peer(Child);

impl Peer {
    fn start(engine: &str, what: &str, port: u16) -> Self {
        let python = std::env::var("THALWEG_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peer.py");
        let mut command = Command::new(&python);
        command.args([script, engine, what, &port.to_string(), &COUNT.to_string()]);
        command.env("ROS_DOMAIN_ID", "0").stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap_or_else(|error| panic!("{python}: {error}")))
    }

    /// The lines that it prints until its end.
    fn lines(&mut self) -> BufReader<std::process::ChildStdout> {
        BufReader::new(self.0.stdout.take().unwrap())
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

/// `None`, with the reason printed, if the programs are not there.
fn port() -> Option<u16> {
    let python = std::env::var("THALWEG_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python).args(["-c", "import zenoh, zenoh_ros2_sdk"]).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        println!(
            "skipped: because {python} has no eclipse-zenoh 1.10.2 and zenoh-ros2-sdk 0.1.8 (THALWEG_PYTHON names another)"
        );
        return None;
    }
    Some(TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port())
}

fn expected() -> Vec<String> {
    (0..COUNT).map(|number| format!("sample {number}")).collect()
}

fn to_ros(realm: &str, port: u16) -> Running {
    let own = node("bridge", realm);
    let settings = ros_settings("bridge", &[], &[&format!("tcp/127.0.0.1:{port}")]);
    let engine = Ros2::open(settings, Some(Rules::default().identity(own.id()))).unwrap();
    Running::with(own, Box::new(engine), "")
}

#[test]
fn samples_of_a_zenoh_program_come() {
    let Some(port) = port() else { return };
    let realm = realm("peer-zenoh-in");
    let here = node("here", &realm);
    let (tell, told) = channel();
    let subscriber = here.subscriber::<Raw>("/robot/pose");
    let _subscriber =
        subscriber.callback(move |sample| tell.send(String::from_utf8_lossy(&sample).into_owned()).unwrap());
    let _bridge = bridge(node("bridge", &realm), listening(&format!("tcp/127.0.0.1:{port}")), "");
    let peer = Peer::start("zenoh", "talk", port);
    let got: Vec<String> = (0..COUNT).map(|_| told.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(got, expected());
    peer.end();
}

#[test]
fn a_zenoh_program_gets_samples() {
    let Some(port) = port() else { return };
    let realm = realm("peer-zenoh-out");
    let here = node("here", &realm);
    let mut publisher = here.publisher::<Raw>("/robot/pose").queue(qos::Queue::KeepAll(1024)).open().unwrap();
    let _bridge = bridge(node("bridge", &realm), listening(&format!("tcp/127.0.0.1:{port}")), "");
    let mut peer = Peer::start("zenoh", "listen", port);
    let mut lines = peer.lines().lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "ready");
    assert!(publisher.wait_connected(1, LONG));
    for text in expected() {
        until("there is room", || publisher.publish(text.as_bytes()).unwrap().refused == 0);
    }
    assert_eq!(lines.collect::<Vec<_>>(), expected());
    peer.end();
}

#[test]
fn samples_of_a_ros_talker_come() {
    let Some(port) = port() else { return };
    let realm = realm("peer-ros-in");
    let here = node("here", &realm);
    let (tell, told) = channel();
    let subscriber =
        here.subscriber::<Text>("/chatter").callback(move |sample| tell.send(sample.data.clone()).unwrap());
    let subscriber = subscriber.unwrap();
    let _bridge = to_ros(&realm, port);
    let peer = Peer::start("ros2", "talk", port);
    let got: Vec<String> = (0..COUNT).map(|_| told.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(got, expected());
    let nodes = here.nodes();
    let foreign =
        nodes.iter().flat_map(|document| document.ports.values()).find_map(|port| port.foreign.as_ref()).unwrap();
    assert_eq!(foreign.to_string(), "ros2 /talker /chatter");
    peer.end();
    until("the talker's port is gone", || subscriber.connected() == 0);
}

#[test]
fn a_ros_listener_gets_samples() {
    let Some(port) = port() else { return };
    let realm = realm("peer-ros-out");
    let here = node("here", &realm);
    let mut publisher = here.publisher::<Text>("/chatter").queue(qos::Queue::KeepAll(1024)).open().unwrap();
    let _bridge = to_ros(&realm, port);
    let mut peer = Peer::start("ros2", "listen", port);
    let mut lines = peer.lines().lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "ready");
    assert!(publisher.wait_connected(1, LONG));
    for data in expected() {
        until("there is room", || publisher.publish(&Text { data: data.clone() }).unwrap().refused == 0);
    }
    assert_eq!(lines.collect::<Vec<_>>(), expected());
    peer.end();
}
