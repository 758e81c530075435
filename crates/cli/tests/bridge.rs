//! `thalweg bridge` in processes of its own: two realms over Zenoh, over a graph of ROS 2, and over YARP.
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
fn a_bridge_without_a_router_says_so() {
    let house = Testbed::new();
    let bridge = house.start(&format!("bridge ros2 --realm alone --domain 9 --connect 127.0.0.1:{}", port()));
    let mut errors = std::iter::from_fn(|| bridge.error_line());
    assert!(errors.any(|line| line.starts_with("nobody of ros2 is connected yet")));
}

/// A broker of MQTT, mosquitto, which ends with this program at the latest.
#[cfg(feature = "mqtt")]
struct Broker {
    shell: std::process::Child,
    port: u16,
}

#[cfg(feature = "mqtt")]
impl Broker {
    /// `None`, with the reason printed, if it is not installed.
    fn start(house: &Testbed) -> Option<Self> {
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let run = |program: &str| {
            let mut command = std::process::Command::new(program);
            command.env("PATH", &path).stdin(std::process::Stdio::piped());
            command
        };
        if run("mosquitto").arg("-h").output().is_err() {
            println!("skipped: because mosquitto is not installed (Debian's package)");
            return None;
        }
        let (port, file) = (port(), house.path("mosquitto.conf"));
        std::fs::write(&file, format!("listener {port} 127.0.0.1\nallow_anonymous true\nlog_dest none\n")).unwrap();
        let script = "mosquitto -c \"$0\" & broker=$!; cat >/dev/null; kill -9 $broker; wait";
        let shell = run("sh").args(["-c", script]).arg(file).spawn().unwrap();
        Some(Self { shell, port })
    }
}

#[cfg(feature = "mqtt")]
impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Two realms at one broker, which starts after their bridges.
#[test]
#[cfg(feature = "mqtt")]
fn two_realms_meet_at_a_broker() {
    let house = Testbed::new();
    let Some(broker) = Broker::start(&house) else { return };
    let of = |realm: &str| {
        format!(
            "bridge mqtt --realm {realm} --name gate --broker 127.0.0.1:{} --prefix fleet --deny /secret",
            broker.port
        )
    };
    let (left, right) = (house.start(&of("left")), house.start(&of("right")));
    line_with(&left, "bridge to mqtt: gate");
    line_with(&right, "bridge to mqtt: gate");
    let mut talker = house.start("pub /word --realm left --stdin --policy durability=transient-local");
    talker.write("hello\n");
    line_with(&left, "out: 1");
    let listener = house.start("sub /word --realm right --policy durability=transient-local --json");
    let sample = listener.json_line();
    assert_eq!(sample["topic"], "/word", "{sample}");
    let port = house.run("list ports --realm right");
    assert!(port.lines.iter().any(|line| line.contains("mqtt /word")), "{:?}", port.lines);
    left.signal(rustix::process::Signal::TERM);
    assert_eq!(left.finish().code(), 0);
}

#[test]
#[cfg(feature = "mqtt")]
fn a_bridge_to_mqtt_says_what_it_cannot_use() {
    let house = Testbed::new();
    for (arguments, says) in [
        ("bridge mqtt --broker a:b", "HOST:PORT"),
        ("bridge mqtt --prefix a/#", "wildcards"),
        ("bridge mqtt --password-file /does/not/exist", "--user"),
        ("bridge mqtt --user robot --password-file /does/not/exist", "/does/not/exist"),
    ] {
        let done = house.run(arguments);
        assert_eq!(done.code(), 2, "{arguments}: {}", done.errors);
        assert!(done.errors.contains(says), "{arguments}: {}", done.errors);
    }
    let bridge = house.start(&format!("bridge mqtt --broker 127.0.0.1:{}", port()));
    let waits =
        std::iter::from_fn(|| bridge.error_line()).find(|line| line.contains("waiting for a router, peer or broker"));
    assert!(waits.unwrap().contains("MQTT broker 127.0.0.1"));
    bridge.signal(rustix::process::Signal::TERM);
    assert_eq!(bridge.finish().code(), 0);
}

#[test]
fn two_realms_meet_over_yarp() {
    let house = Testbed::new();
    let port = port();
    let left = house.start(&format!("bridge yarp --realm left --serve 127.0.0.1:{port} --prefix /left --from /right"));
    let right =
        house.start(&format!("bridge yarp --realm right --server 127.0.0.1:{port} --prefix /right --from /left"));
    line_with(&left, "bridge to yarp");
    line_with(&right, "bridge to yarp");
    let listener = house.start("sub /word --realm right --json");
    let mut talker = house.start("pub /word --realm left --stdin");
    line_with(&left, "out: 1");
    talker.write("hello\n");
    let sample = listener.json_line();
    assert!(sample["hex"].as_str().unwrap().contains("68656c6c6f"), "{sample}");
    left.signal(rustix::process::Signal::TERM);
    let done = left.finish();
    assert_eq!(done.code(), 0, "{}", done.errors);
    assert!(done.lines.last().unwrap().ends_with("samples out: 1, in: 0"), "{:?}", done.lines);
}

#[test]
#[cfg(feature = "zeromq")]
fn two_realms_meet_over_zeromq() {
    let house = Testbed::new();
    let [one, two] = [port(), port()];
    let of = |realm: &str, bind: u16, connect: u16| {
        house.start(&format!("bridge zeromq --realm {realm} --bind 127.0.0.1:{bind} --connect 127.0.0.1:{connect}"))
    };
    let (left, right) = (of("left", one, two), of("right", two, one));
    line_with(&left, "bridge to zeromq");
    line_with(&right, "bridge to zeromq");
    let listener = house.start("sub /word --realm right --json");
    let mut talker = house.start("pub /word --realm left --stdin");
    line_with(&left, "out: 1");
    talker.write("hello\n");
    let sample = listener.json_line();
    assert!(sample["hex"].as_str().unwrap().contains("68656c6c6f"), "{sample}");
    let refused = house.run("bridge zeromq --bind nowhere");
    assert_eq!(refused.code(), 2, "{}", refused.errors);
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
        ("bridge yarp --server :x".to_owned(), "robot.local:10000"),
        ("bridge yarp --serve 127.0.0.1:0".to_owned(), "127.0.0.1:10000"),
        ("bridge yarp --serve 127.0.0.1:10000 --server 127.0.0.1".to_owned(), "--serve"),
        ("bridge yarp --serve 192.0.2.1:10000".to_owned(), "cannot listen on 192.0.2.1:10000"),
        ("bridge yarp --prefix /a/".to_owned(), "no name of a YARP port"),
        ("bridge".to_owned(), "zenoh"),
        if cfg!(feature = "rtps") {
            ("bridge dds --domain moon".to_owned(), "moon")
        } else {
            ("bridge dds".to_owned(), "dds")
        },
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

/// `info` and `why` name what is behind a bridge's port: the engine, and the end's name there.
#[test]
fn what_is_behind_a_bridge_is_named() {
    let house = Testbed::new();
    let port = port();
    let left = house.start(&format!("bridge zenoh --realm left --name gate --accept 127.0.0.1:{port}"));
    let right = house.start(&format!("bridge zenoh --realm right --name gate --connect 127.0.0.1:{port}"));
    line_with(&left, "bridge to zenoh");
    let listener = house.start("sub /word --realm right --port /ear --json");
    line_with(&right, "in: 1");
    let _talker = house.start("pub /word --realm left --port /mouth --rate 50 --wait 0");
    listener.json_line();
    let behind = serde_json::json!({"engine": "zenoh", "name": "/word"});
    for (realm, about, ends) in [("left", "subscriber", "/mouth GATE"), ("right", "publisher", "GATE /ear")] {
        let info = house.run(&format!("info /word --realm {realm} --json")).json();
        let bridged = info["ports"].as_array().unwrap().iter().find(|port| port["node"] == "gate").unwrap();
        assert_eq!(
            (&info["kind"], &bridged["foreign"], &bridged["direction"]),
            (&"topic".into(), &behind, &about.into())
        );
        let gate = bridged["name"].as_str().unwrap();
        let shown = house.run(&format!("info {gate} --realm {realm}")).lines.join("\n");
        assert!(shown.contains("foreign end  zenoh /word"), "{shown}");

        let why = house.run(&format!("why {} --realm {realm} --json", ends.replace("GATE", gate)));
        let why: serde_json::Value = serde_json::from_str(&why.lines[0]).unwrap();
        let line = why["evidence"].as_array().unwrap().iter().find(|line| line["about"] == about).unwrap();
        let says = line["says"].as_str().unwrap();
        assert!(
            says.starts_with(gate) && says.contains("of node gate ") && says.ends_with(", for zenoh /word"),
            "{why}"
        );
    }
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

/// The number that a sample of `thalweg pub` begins with.
fn number(sample: &serde_json::Value) -> u64 {
    let digits = &sample["hex"].as_str().unwrap_or_else(|| panic!("{sample}"))[..16];
    u64::from_str_radix(digits, 16).unwrap().swap_bytes()
}

/// Reads until so many samples have come one after the other, and returns how often some between were missing.
fn until_in_a_row(listener: &Running, last: &mut u64, enough: u32) -> u32 {
    let (mut in_a_row, mut gaps) = (0, 0);
    while in_a_row < enough {
        let next = number(&listener.json_line());
        assert!(next > *last, "{next} after {last}");
        (in_a_row, gaps) = if next == *last + 1 { (in_a_row + 1, gaps) } else { (0, gaps + 1) };
        *last = next;
    }
    gaps
}

/// A bridge on either side, and the router between them, may be killed while samples flow: they flow again, and from the first one on none
/// is missing.
#[test]
fn what_is_killed_comes_back_and_loses_nothing_afterwards() {
    let house = Testbed::new();
    let port = port();
    let bridge = |realm: &str| format!("bridge zenoh --realm {realm} --name gate --connect 127.0.0.1:{port}");
    let commands = [bridge("left"), format!("router --listen 127.0.0.1:{port}"), bridge("right")];
    let says = ["out: 1", "listening on", "in: 1"];
    let mut running: Vec<Running> = commands.iter().map(|command| house.start(command)).collect();
    let listener = house.start("sub /count --realm right --json");
    let mut talker = house.command("pub /count --realm left --rate 200 --wait 0");
    talker.args(["--policy", "queue=keep-all 4096"]); // a busy machine costs no sample
    let _talker = Running::start(talker);
    let mut last = number(&listener.json_line());
    assert_eq!(until_in_a_row(&listener, &mut last, 100), 0, "before anything is killed");
    for (index, command) in commands.iter().enumerate() {
        let killed = running.remove(index);
        killed.signal(rustix::process::Signal::KILL);
        killed.finish(); // its address is free
        running.insert(index, house.start(command));
        line_with(&running[index], says[index]);
        let gaps = until_in_a_row(&listener, &mut last, 400);
        assert!(gaps <= 1, "after {command}: some samples were missing {gaps} times");
    }
}

/// The bridge is a callback in the contract: `plan` adds its time and the engine's way, `verify` judges the way to the bridge, and says that it
/// does not see further.
#[test]
fn a_bridge_is_a_hop_of_a_plan() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/bridge.toml");
    let house = Testbed::new();
    let planned = house.run(&format!("plan {example} --json")).json();
    let bound = |entry: &serde_json::Value| entry["bound_us"].as_f64().unwrap();
    let (channels, chain) = (planned["channels"].as_array().unwrap(), &planned["chains"][0]);
    let sum: f64 = channels.iter().map(bound).sum();
    assert!((bound(chain) - sum).abs() < 1e-6 && bound(&channels[0]) >= 120.0 && bound(&channels[1]) > 0.0, "{chain}");

    // As slow as a busy machine is.
    let slow = std::fs::read_to_string(example).unwrap().replace("rate = \"100 Hz\"", "rate = \"20 Hz\"");
    let slow =
        slow.replace("\"20 us\"", "\"20 ms\"").replace("\"100 us\"", "\"20 ms\"").replace("\"120 us\"", "\"40 ms\"");
    let slow = slow
        .replace("deadline = \"10 ms\"", "deadline = \"50 ms\"")
        .replace("deadline = \"20 ms\"", "deadline = \"200 ms\"");
    let (contract, plan) = (house.path("bridge.toml"), house.path("plan.toml").display().to_string());
    std::fs::write(&contract, slow).unwrap();
    let done = house.run(&format!("plan {} -o {plan}", contract.display()));
    assert_eq!(done.code(), 0, "{:?} {}", done.lines, done.errors);
    let port = port();
    let gate = house.start(&format!("bridge zenoh --name gate --accept 127.0.0.1:{port}"));
    line_with(&gate, "bridge to zenoh");
    let there = house.start(&format!("bridge zenoh --realm there --connect 127.0.0.1:{port}"));
    let listener = house.start("sub /pose --realm there --json");
    line_with(&there, "in: 1");
    let _robot = house.start("pub /pose --name robot --rate 20 --wait 0");
    listener.json_line();
    let done = house.run(&format!("verify {plan} --for 2s --json"));
    let found: serde_json::Value = serde_json::from_str(&done.lines[0]).unwrap();
    let of =
        |topic: &str| found["channels"].as_array().unwrap().iter().find(|channel| channel["topic"] == topic).unwrap();
    assert_eq!((&of("pose")["running"], &of("pose-there")["running"]), (&true.into(), &false.into()), "{found}");
    assert!(of("pose")["worst_us"].as_f64().is_some_and(|us| us > 0.0), "{found}");
    assert_eq!(
        (&found["chains"][0]["verdict"], &found["chains"][0]["because"]),
        (&"unknown".into(), &"a part was not measured".into())
    );
}
