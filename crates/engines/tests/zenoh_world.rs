//! Engines over Zenoh.

use super::running::Running;
use engines::ros2::{self, Ros2};
use engines::zenoh::{Settings, Zenoh};
use thalweg::Node;
use thalweg::codec::Definitions;
use thalweg_engines as engines;
use thalweg_engines::bridge::Rules;

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

/// A bridge to Zenoh.
pub fn bridge(node: Node, settings: Settings, rules: &str) -> Running {
    let identity = Rules::parse(rules).unwrap().identity(node.id());
    let engine = Zenoh::open(settings, Some(identity)).unwrap();
    Running::with(node, Box::new(engine), rules)
}
