//! Programs in C: what the interface does at its limits (`behaviour.c`), and that they understand nodes in Rust (`peer.c`).

use crate::support::{Bench, has, home};
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};
use std::time::Duration;
use thalweg::Node;
use thalweg::codec::{Plain, Raw};

const LONG: Duration = Duration::from_secs(20);

/// Runs one check of `behaviour.c`.
fn holds(check: &str) {
    if has("cc") {
        let bench = Bench::new();
        let done = bench.run(&bench.compile(&home().join("tests/behaviour.c")), [check]);
        assert!(done.status.success(), "{check}: {}{}", done.status, String::from_utf8_lossy(&done.stderr));
    }
}

macro_rules! checks {
    ($($check:ident: $name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            holds(stringify!($check));
        }
    )*};
}

checks! {
    nulls: null_pointers_are_errors,
    options: options_have_a_size_and_wrong_ones_are_named,
    closed: calls_on_what_is_closed_say_so,
    types: structs_are_encoded_and_what_is_no_struct_is_refused,
    loans: a_loan_stays_on_its_thread_and_others_wait_for_it,
    callbacks: a_callback_ends_with_its_subscriber_and_is_released_once,
    descriptors: a_descriptor_is_readable_when_a_sample_waits,
    waiters: closing_ends_the_waits_of_other_threads,
    forks: a_child_cannot_use_the_handles_of_its_parent,
    forwards: a_forwarded_sample_keeps_its_stamp,
    services: a_service_answers_or_says_why_not,
    graph: ports_and_channels_are_shown_and_set,
    mismatches: ports_of_other_types_do_not_meet_and_the_node_says_so,
    threads: threads_share_a_publisher,
    carriers: samples_come_as_they_went_over_each_carrier,
}

/// Every check is a test.
#[test]
fn no_check_is_left_out() {
    let program = std::fs::read_to_string(home().join("tests/behaviour.c")).unwrap();
    let (_, table) = program.split_once("checks[] = {").unwrap();
    let named = table.split("};").next().unwrap().matches("{\"").count();
    let own = include_str!("behaviour.rs")
        .split_once("\nchecks! {")
        .unwrap()
        .1
        .split('}')
        .next()
        .unwrap()
        .matches(": ")
        .count();
    assert_eq!(named, own);
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[repr(C)]
struct Position {
    x: f64,
    y: f64,
}

// SAFETY: zero is a number in both fields.
unsafe impl bytemuck::Zeroable for Position {}
// SAFETY: two numbers as C lays them out, without padding.
unsafe impl bytemuck::Pod for Position {}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Reading {
    on: bool,
    mode: u8,
    gains: [f32; 3],
    at: Position,
    name: String,
    stamp: i64,
}

/// `std_msgs/msg/String`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "String")]
struct Text {
    data: String,
}

fn reading() -> Reading {
    let at = Position { x: 4.0, y: 5.0 };
    Reading { on: true, mode: 7, gains: [1.0, 2.0, 3.0], at, name: "left".to_owned(), stamp: -6 }
}

/// This program again, in the world of a bench, in one of the roles below.
fn rust(bench: &Bench, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "behaviour::role", "--ignored", "--nocapture"]).env("THALWEG_TEST_ROLE", role);
    command.env("THALWEG_RUN_DIR", bench.folder.join("run"));
    command
}

#[test]
#[ignore = "a role in other tests"]
fn role() {
    let node = Node::open("rust").unwrap();
    match std::env::var("THALWEG_TEST_ROLE").unwrap_or_default().as_str() {
        "publish" => {
            let mut text = node.publisher::<Text>("/text").open().unwrap();
            let mut plain = node.publisher::<Plain<Position>>("/plain").open().unwrap();
            let mut values = node.publisher::<Reading>("/reading").open().unwrap();
            let mut raw = node.publisher::<Raw>("/raw").open().unwrap();
            assert!(text.wait_connected(1, LONG) && plain.wait_connected(1, LONG));
            assert!(values.wait_connected(1, LONG) && raw.wait_connected(1, LONG));
            text.publish(&Text { data: "hello".to_owned() }).unwrap();
            plain.publish(&reading().at).unwrap();
            values.publish(&reading()).unwrap();
            raw.publish(&[9; 100_000]).unwrap();
            assert!(text.close(LONG) && plain.close(LONG) && values.close(LONG) && raw.close(LONG));
        }
        "subscribe" => {
            let mut text = node.subscriber::<Text>("/text").open().unwrap();
            let mut plain = node.subscriber::<Plain<Position>>("/plain").open().unwrap();
            let mut values = node.subscriber::<Reading>("/reading").open().unwrap();
            let mut raw = node.subscriber::<Raw>("/raw").open().unwrap();
            assert_eq!(text.wait(LONG).unwrap().data, "hello");
            assert_eq!(*plain.wait(LONG).unwrap(), reading().at);
            assert_eq!(*values.wait(LONG).unwrap(), reading());
            assert_eq!(*raw.wait(LONG).unwrap(), [9; 100_000]);
        }
        "ask" => {
            let mut client = node.client::<Position, Position>("/swap").unwrap();
            assert_eq!(client.call(Position { x: 1.0, y: 2.0 }, LONG).unwrap(), Position { x: 2.0, y: 1.0 });
        }
        "serve" => {
            let swap = |asked: &Position| Position { x: asked.y, y: asked.x };
            let _server = node.server::<Position, Position>("/swap", swap).unwrap();
            let _ = std::io::stdin().read_line(&mut String::new()); // until the test ends
        }
        other => panic!("no role {other:?}"),
    }
}

/// Runs two programs beside each other; the first ends when its input does. Gives what the second printed.
fn together(first: &mut Command, second: &mut Command) -> String {
    let mut waiting = first.stdin(Stdio::piped()).spawn().unwrap();
    let done = second.output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    drop(waiting.stdin.take());
    let ended = waiting.wait().unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success() && ended.success(), "{}, {ended}: {errors}{said}", done.status);
    said
}

#[test]
fn rust_hears_c_and_c_hears_rust() {
    if !has("cc") {
        return;
    }
    let bench = Bench::new();
    let peer = bench.compile(&home().join("tests/peer.c"));
    together(bench.command(&peer).arg("publish"), &mut rust(&bench, "subscribe"));
    let said = together(&mut rust(&bench, "publish"), bench.command(&peer).arg("subscribe"));
    assert_eq!(said, "hello\n4 5\n1 7 3 5 left -6\n100000 9\n");
}

#[test]
fn rust_asks_c_and_c_asks_rust() {
    if !has("cc") {
        return;
    }
    let bench = Bench::new();
    let peer = bench.compile(&home().join("tests/peer.c"));
    together(bench.command(&peer).arg("serve"), &mut rust(&bench, "ask"));
    assert_eq!(together(&mut rust(&bench, "serve"), bench.command(&peer).arg("ask")), "2 1\n");
}
