//! The demo: all channels flow, and nothing is left when it ends, however it ends.
#![allow(clippy::unwrap_used)]

mod support;

use rustix::process::{Pid, Signal};
use std::os::unix::process::CommandExt;
use std::time::Instant;
use support::{House, LONG, Running};

/// Starts the demo as leader of a process group of its own.
fn start(house: &House, arguments: &str) -> (Running, Pid) {
    let mut command = house.command(&format!("demo {arguments}"));
    command.process_group(0);
    let running = Running::start(command);
    let group = Pid::from_child(&running.child);
    (running, group)
}

/// Waits until no process of the group is left, and looks for leftovers.
fn assert_gone(house: &House, group: Pid) {
    let until = Instant::now() + LONG;
    while rustix::process::test_kill_process_group(group).is_ok() {
        assert!(Instant::now() < until, "processes are left");
        std::thread::yield_now();
    }
    let run = house.path("run");
    let folders = std::fs::read_dir(run).into_iter().flatten().flatten();
    let left: Vec<_> =
        folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten()).flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn all_channels_flow_and_are_counted() {
    let house = House::new();
    let (running, group) = start(&house, "--seconds 2 --json");
    let done = running.finish();
    // Exit 1 is an honest answer of a busy machine.
    assert!([0, 1].contains(&done.code()), "{}", done.errors);
    let summary: serde_json::Value = serde_json::from_str(&done.lines[0]).unwrap();
    assert_eq!((done.lines.len(), summary["channels"].as_array().map(Vec::len)), (1, Some(4)));
    for channel in summary["channels"].as_array().unwrap() {
        let number = |key: &str| channel[key].as_u64().unwrap();
        assert!(number("received") > 0, "{channel}");
        assert_eq!(number("sent") - number("received"), number("lost"), "{channel}");
        assert!(channel["latency_us"]["p50"].as_f64() <= channel["latency_us"]["max"].as_f64(), "{channel}");
        assert!(channel["rate_hz"].as_f64() > Some(0.0) && channel["carrier"].as_str() != Some(""), "{channel}");
    }
    assert_gone(&house, group);
}

#[test]
fn the_table_has_a_line_per_channel_and_a_verdict() {
    let house = House::new();
    let (running, group) = start(&house, "--seconds 1");
    let done = running.finish();
    let text = done.lines.join("\n");
    for topic in ["/robot/imu", "/robot/camera", "/robot/command", "/robot/map"] {
        assert!(text.contains(topic), "{text}");
    }
    assert!(done.lines.last().is_some_and(|line| line.contains("samples arrived")), "{text}");
    assert_gone(&house, group);
}

#[test]
fn an_interrupt_of_the_whole_group_ends_it_with_a_summary() {
    let house = House::new();
    let (running, group) = start(&house, "--seconds 600");
    assert!(running.line().contains("topic"), "the table");
    rustix::process::kill_process_group(group, Signal::INT).unwrap();
    let done = running.finish();
    assert_eq!(done.code(), 0, "{}", done.errors);
    assert!(done.lines.last().is_some_and(|line| line.contains("interrupted")), "{:?}", done.lines);
    assert_gone(&house, group);
}

#[test]
fn the_robot_ends_with_a_killed_parent() {
    let house = House::new();
    let (running, group) = start(&house, "--seconds 600");
    assert!(running.line().contains("topic"), "the table");
    running.signal(Signal::KILL);
    drop(running);
    assert_gone(&house, group);
}
