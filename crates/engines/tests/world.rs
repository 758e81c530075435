//! Engines and nodes of a test, apart from those of all other tests.

use engines::ros2::{self, Ros2};
use engines::zenoh::{Settings, Zenoh};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use thalweg::Node;
use thalweg::codec::Definitions;
use thalweg_engines as engines;

pub const LONG: Duration = Duration::from_secs(20);

/// A realm that no other test has.
pub fn realm(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("engines-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn node(name: &str, realm: &str) -> Node {
    let settings = thalweg::Settings { name: name.to_owned(), realm: realm.to_owned(), ..thalweg::Settings::default() };
    Node::with_settings(settings).unwrap()
}

/// An address of loopback that no other test has.
pub fn address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("tcp/127.{}.{}.{}:7447", 1 + std::process::id() % 250, number / 250, 1 + number % 250)
}

pub fn listening(address: &str) -> Settings {
    Settings { listen: vec![address.to_owned()], ..Settings::default() }
}

pub fn connecting(address: &str) -> Settings {
    Settings { connect: vec![address.to_owned()], ..Settings::default() }
}

/// A node of ROS 2 that knows `std_msgs/msg/String`.
pub fn ros_node(name: &str, connect: &[&String], listen: &[&String]) -> Ros2 {
    Ros2::open(ros_settings(name, connect, listen), None).unwrap()
}

pub fn ros_settings(name: &str, connect: &[&String], listen: &[&String]) -> ros2::Settings {
    let texts = |all: &[&String]| all.iter().map(|text| (*text).clone()).collect::<Vec<_>>();
    let default = ros2::Settings::default();
    let listen = if listen.is_empty() { default.listen } else { texts(listen) };
    let mut definitions = Definitions::new();
    definitions.add("std_msgs/msg/String", "string data\n").unwrap();
    let describe: ros2::Describe = std::sync::Arc::new(move |name| definitions.describe(name).ok());
    ros2::Settings { connect: texts(connect), listen, node: name.to_owned(), describe, ..ros2::Settings::default() }
}

pub fn open(settings: Settings) -> Zenoh {
    Zenoh::open(settings, None).unwrap()
}
