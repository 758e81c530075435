//! `thalweg bridge` in processes of its own: two realms over Zenoh, and over a graph of ROS 2.
#![allow(clippy::unwrap_used)]

use crate::support;
use std::net::TcpListener;
use support::{Running, Testbed};

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits for the line with this text.
fn line_with(process: &Running, text: &str) -> String {
    let line = std::iter::from_fn(|| process.try_line()).find(|line| line.contains(text));
    line.unwrap_or_else(|| panic!("no line with {text:?}"))
}

#[test]
fn two_realms_meet_over_zenoh() {
    let house = Testbed::new();
    let port = port();
    let left = house.start(&format!("bridge zenoh --realm left --name gate --accept 127.0.0.1:{port} --deny /secret"));
    let right = house.start(&format!("bridge zenoh --realm right --name gate --connect 127.0.0.1:{port}"));
    line_with(&left, "bridge to zenoh: gate");
    line_with(&right, "bridge to zenoh: gate");
    let listener = house.start("sub /word --realm right --json");
    let secret = house.start("sub /secret --realm right --json");
    line_with(&right, "in: 2");
    let mut talker = house.start("pub /word --realm left --stdin");
    let mut other = house.start("pub /secret --realm left --stdin --wait 0");
    line_with(&left, "out: 1");
    talker.write("hello\n");
    other.write("no\n");
    let sample = listener.json_line();
    assert!(sample["hex"].as_str().unwrap().contains("68656c6c6f"), "{sample}");
    let ports = house.run("list ports --realm right --json").json();
    let found =
        ports["ports"].as_array().unwrap().iter().find(|port| port["topic"] == "/word" && !port["foreign"].is_null());
    assert_eq!(found.unwrap()["foreign"], serde_json::json!({"engine": "zenoh", "name": "/word"}));
    assert!(secret.lines_so_far().is_empty());
    left.signal(rustix::process::Signal::TERM);
    let done = left.finish();
    assert_eq!(done.code(), 0, "{}", done.errors);
    assert!(done.lines.last().unwrap().ends_with("samples out: 1, in: 0"), "{:?}", done.lines);
}

#[test]
fn two_realms_meet_in_a_graph_of_ros() {
    let house = Testbed::new();
    let port = port();
    let definitions = house.path("share/std_msgs/msg");
    std::fs::create_dir_all(&definitions).unwrap();
    std::fs::write(definitions.join("String.msg"), "string data\n").unwrap();
    let share = house.path("share").display().to_string();
    let of = |realm: &str, way: &str| {
        format!(
            "bridge ros2 --realm {realm} --domain 7 --ros-node {realm} {way} 127.0.0.1:{port} --definitions {share}"
        )
    };
    let left = house.start(&format!("{} --connect 127.0.0.1:1", of("left", "--accept")));
    let right = house.start(&of("right", "--connect"));
    let listener = house.start("sub /chatter --realm right --json");
    let mut talker =
        house.start(&format!("pub /chatter --realm left --type std_msgs/msg/String --definitions {share}"));
    line_with(&left, "out: 1");
    line_with(&right, "in: 1");
    talker.write("{\"data\": \"hello\"}\n");
    assert_eq!(listener.json_line()["data"]["data"], "hello");
}

#[test]
fn a_bridge_says_what_it_cannot_use() {
    let house = Testbed::new();
    std::fs::write(house.path("rules.toml"), "[[rule]]\ntopic = \"/a\"\ncolour = \"red\"\n").unwrap();
    let rules = house.path("rules.toml").display().to_string();
    for (arguments, says) in [
        (format!("bridge zenoh --config {rules}"), "rules.toml: rule 1: colour = \"red\""),
        ("bridge zenoh --config /does/not/exist".to_owned(), "/does/not/exist"),
        ("bridge zenoh --allow a//b".to_owned(), "empty segment"),
        ("bridge zenoh --connect nobody".to_owned(), "10.0.0.1:7447"),
        ("bridge zenoh --prefix a//b --accept 127.0.0.1:0".to_owned(), "127.0.0.1:0"),
        ("bridge ros2 --domain moon".to_owned(), "moon"),
        ("bridge".to_owned(), "zenoh"),
        ("bridge dds".to_owned(), "dds"),
    ] {
        let done = house.run(&arguments);
        assert_eq!(done.code(), 2, "{arguments}: {}", done.errors);
        assert!(done.errors.contains(says), "{arguments}: {}", done.errors);
    }
    let mut domain = house.command("bridge ros2");
    domain.env("ROS_DOMAIN_ID", "moon");
    let done = Running::start(domain).finish();
    assert!(done.code() == 2 && done.errors.contains("ROS_DOMAIN_ID is \"moon\""), "{}", done.errors);
}

/// A bridge that starts before its router waits for it, and can be told to end meanwhile.
#[test]
fn a_bridge_waits_for_its_router() {
    let house = Testbed::new();
    let port = port();
    let bridge = house.start(&format!("bridge zenoh --connect 127.0.0.1:{port}"));
    let waits =
        std::iter::from_fn(|| bridge.error_line()).find(|line| line.contains("waiting for a router, peer or broker"));
    assert!(waits.unwrap().contains(&port.to_string()));
    let router = house.start(&format!("router --listen 127.0.0.1:{port}"));
    line_with(&bridge, "bridge to zenoh");
    drop(router);
    bridge.signal(rustix::process::Signal::TERM);
    assert_eq!(bridge.finish().code(), 0);
}
