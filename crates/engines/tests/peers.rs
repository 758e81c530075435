//! Programs that others have written: `eclipse-zenoh`, and `zenoh-ros2-sdk` as nodes of ROS 2 (both from PyPI; `peer.py`), and `hiroz`
//! (crates/engines/peers).

use super::program::{COUNT, Program, built, expected, free_port};
use super::running::{Running, until};
use super::world::{LONG, node, realm};
use super::zenoh_world::{bridge, listening, ros_settings};
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::sync::mpsc::channel;
use thalweg::codec::Raw;
use thalweg_engines::bridge::Rules;
use thalweg_engines::ros2::Ros2;

/// `std_msgs/msg/String`, by its structure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "String")]
struct Text {
    data: String,
}

fn port() -> Option<u16> {
    super::program::port("zenoh, zenoh_ros2_sdk", "eclipse-zenoh 1.10.2 and zenoh-ros2-sdk 0.1.8")
}

fn start(engine: &str, what: &str, port: u16) -> Program {
    Program::start("peer.py", engine, what, port)
}

/// A node of hiroz, which connects to the bridge.
fn hiroz(mut command: std::process::Command, what: &str, port: u16) -> Program {
    command.args([what, &port.to_string(), &COUNT.to_string()]);
    Program::spawn(command)
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
    let peer = start("zenoh", "talk", port);
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
    let mut peer = start("zenoh", "listen", port);
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
    samples_come("peer-ros-in", port, || start("ros2", "talk", port));
}

#[test]
fn samples_of_a_talker_of_hiroz_come() {
    let Some(command) = built("hiroz_peer") else { return };
    let port = free_port();
    samples_come("peer-hiroz-in", port, || hiroz(command, "talk", port));
}

/// Samples of a node of ROS 2, `/talker`, reach a Rust struct.
fn samples_come(name: &str, port: u16, start: impl FnOnce() -> Program) {
    let realm = realm(name);
    let here = node("here", &realm);
    let (tell, told) = channel();
    let subscriber =
        here.subscriber::<Text>("/chatter").callback(move |sample| tell.send(sample.data.clone()).unwrap());
    let subscriber = subscriber.unwrap();
    let _bridge = to_ros(&realm, port);
    let peer = start();
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
    samples_leave("peer-ros-out", port, || start("ros2", "listen", port));
}

#[test]
fn a_listener_of_hiroz_gets_samples() {
    let Some(command) = built("hiroz_peer") else { return };
    let port = free_port();
    samples_leave("peer-hiroz-out", port, || hiroz(command, "listen", port));
}

/// Samples of a Rust struct reach a node of ROS 2.
fn samples_leave(name: &str, port: u16, start: impl FnOnce() -> Program) {
    let realm = realm(name);
    let here = node("here", &realm);
    let mut publisher = here.publisher::<Text>("/chatter").queue(qos::Queue::KeepAll(1024)).open().unwrap();
    let _bridge = to_ros(&realm, port);
    let mut peer = start();
    let mut lines = peer.lines().lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "ready");
    assert!(publisher.wait_connected(1, LONG));
    for data in expected() {
        until("there is room", || publisher.publish(&Text { data: data.clone() }).unwrap().refused == 0);
    }
    assert_eq!(lines.collect::<Vec<_>>(), expected());
    peer.end();
}
