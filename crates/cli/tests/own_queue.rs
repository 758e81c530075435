//! A queue of a channel's own, from the contract to the packets: hosts a – g – b (network namespaces), two channels of one class over a link of 1 Mbit/s.
#![allow(clippy::unwrap_used)]

use crate::support;
use qos::Class;
use qos::priority::{CONTROL, Mark};
use serde_json::Value;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::{Done, LONG, Row, Running, Testbed};

/// The bulk channel takes less than a third of the link by its contract; the program sends five times as much. Its samples are small, so that the kernel's queue is full
/// before the socket's buffer.
const CONTRACT: &str = r#"
[[node]]
name = "a"
[[node]]
name = "g"
kind = "router"
[[node]]
name = "b"
[[link]]
name = "left"
between = ["a", "g"]
rate = "1 Mbit/s"
scheduler = "htb"
devices = { a = "eth" }
[[link]]
name = "right"
between = ["g", "b"]
rate = "10 Mbit/s"
[[topic]]
name = "bulk"
size = "200 B"
rate = "120 Hz"
publisher = "a"
class = "high"
own_queue = true
[[topic]]
name = "state"
size = "100 B"
rate = "50 Hz"
publisher = "a"
class = "high"
[[subscriber]]
topic = "bulk"
node = "b"
name = "/bulk-in"
deadline = "150 ms"
[[subscriber]]
topic = "state"
node = "b"
name = "/state-in"
deadline = "300 ms"
"#;

struct World {
    row: Row,
    house: Testbed,
}

impl World {
    fn new(test: &str) -> Option<Self> {
        let world = Self { row: Row::new(test)?, house: Testbed::new() };
        let nodes = (0..4).map(|program| format!("[[node]]\naddress = \"{}\"\n", at(program))).collect::<String>();
        std::fs::write(world.house.path("nodes.toml"), nodes).unwrap();
        let shared = CONTRACT.replace("own_queue = true\n", "");
        let control = CONTRACT.replacen("rate = \"1 Mbit/s\"", "rate = \"10 Mbit/s\"\ncontrol = \"500 kbit/s\"", 1);
        for (name, contract) in [("own", CONTRACT.to_owned()), ("shared", shared), ("control", control)] {
            let file = world.house.path(&format!("{name}-contract.toml"));
            std::fs::write(&file, contract).unwrap();
            let plan = world.house.path(&format!("{name}.toml"));
            let done = world.house.run(&format!("plan {} -o {}", file.display(), plan.display()));
            assert_eq!(done.code(), 0, "{:?} {}", done.lines, done.errors);
        }
        Some(world)
    }

    /// `thalweg` on a host, which reaches the programs of both.
    fn command(&self, host: usize, listen: &str, arguments: &str) -> Command {
        let mut command = self.row.command(host, env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments.split_whitespace()).args(["--listen", listen, "--discovery"]);
        command.arg(format!("static:{}", self.house.path("nodes.toml").display()));
        command.env("THALWEG_RUN_DIR", self.house.path(&format!("run{host}")));
        command
    }

    /// Program 0 or 1 of host `a`, 2 or 3 of host `b`.
    fn program(&self, number: usize, arguments: &str) -> Running {
        let (host, name) = if number < 2 { (0, "a") } else { (2, "b") };
        Running::start(self.command(
            host,
            &at(number),
            &format!("{arguments} --carrier udp --name {name} --admin-from 10.96.0.0/16"),
        ))
    }

    /// An administrator's command on host `a`.
    fn administer(&self, arguments: &str) -> Done {
        Running::start(self.command(0, "10.96.1.1:7009", arguments)).finish()
    }

    fn apply(&self, plan: &str) -> Done {
        let done = self.administer(&format!("apply {} --host a", self.house.path(plan).display()));
        assert_eq!(done.code(), 0, "{:?} {}", done.lines, done.errors);
        done
    }

    /// Packets that the channel's own queue has dropped.
    fn dropped(&self) -> u64 {
        let done = self.row.command(0, "tc").args(["-s", "class", "show", "dev", "eth"]).output();
        dropped(&String::from_utf8(done.unwrap().stdout).unwrap())
    }

    /// Four seconds, by 200 samples of the neighbour.
    fn window(&self, bulk: &Running, state: &Running) -> Window {
        let before = self.dropped();
        for running in [bulk, state] {
            running.lines_so_far();
        }
        let state = missing(state, 200);
        let bulk = missing(bulk, 50);
        Window { dropped: self.dropped() - before, bulk, state }
    }

    /// Sends more control traffic by host `a` than its queue lets pass, in small packets, so that the queue is full before the socket's buffer.
    fn flood(&self, goes_on: &AtomicBool) {
        let until = Instant::now() + 4 * LONG;
        self.row.inside(0, || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            linux::marks::set(socket.as_fd(), &Mark::Dscp(CONTROL), Class::High.socket_priority()).unwrap();
            while goes_on.load(Relaxed) && Instant::now() < until {
                (0..300).for_each(|_| drop(socket.send_to(&[0; 50], "10.96.2.1:9")));
                std::thread::sleep(Duration::from_millis(100));
            }
        });
    }

    fn queues(&self) -> String {
        let show = |what: &str| {
            let done = self.row.command(0, "tc").args([what, "show", "dev", "eth"]).output();
            String::from_utf8(done.unwrap().stdout).unwrap()
        };
        [show("qdisc"), show("class"), show("filter")].concat()
    }
}

/// What happened in some seconds.
#[derive(Debug)]
struct Window {
    /// Packets dropped in the channel's own queue.
    dropped: u64,
    /// Samples missing of the channel, of which 600 a second are sent and 120 and a few may come, and of its neighbour.
    bulk: u64,
    state: u64,
}

impl Window {
    fn is_clean(&self) -> bool {
        self.state == 0 && self.bulk > 50 && self.dropped > 0
    }
}

/// Packets that classes of channels' own have dropped, by `tc -s class show`. Their numbers have four digits.
fn dropped(shown: &str) -> u64 {
    let (mut is_own, mut sum) = (false, 0);
    for line in shown.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["class", "htb", class, ..] = words.as_slice() {
            is_own = class.starts_with("7a2:1") && class.len() == "7a2:1abc".len();
        }
        let count = words.iter().position(|word| *word == "(dropped").and_then(|at| words.get(at + 1));
        sum += count.filter(|_| is_own).map_or(0, |count| count.trim_end_matches(',').parse::<u64>().unwrap());
    }
    sum
}

/// The address of a program.
fn at(program: usize) -> String {
    format!("10.96.{}.1:{}", 1 + program / 2, 7001 + program)
}

/// Of so many samples in a row, the number of those that were published between them and did not arrive.
fn missing(subscriber: &Running, count: u64) -> u64 {
    let seq = || subscriber.json_line()["seq"].as_u64().unwrap();
    let first = seq();
    let last = (1..count).fold(first, |_, _| seq());
    last + 1 - first - count
}

#[test]
fn a_channel_beyond_its_contract_loses_its_own_samples_only() {
    let Some(world) = World::new("a channel beyond its contract") else { return };
    let before = world.queues();
    let [bulk, state] =
        [world.program(2, "sub /bulk --port /bulk-in --json"), world.program(3, "sub /state --port /state-in --json")];
    let _publishers = [
        world.program(0, "pub /bulk --port /bulk-out --rate 600 --size 200"),
        world.program(1, "pub /state --port /state-out --rate 50 --size 100"),
    ];
    let until = || Instant::now() + LONG;
    let patience = until();
    while missing(&bulk, 100) + missing(&state, 20) > 0 {
        assert!(Instant::now() < patience, "all arrive as long as the link is not limited");
    }

    // In one queue the neighbour of the same class loses samples, too.
    world.apply("shared.toml");
    let patience = until();
    while missing(&state, 50) == 0 {
        assert!(Instant::now() < patience, "the queue of the class overflows: {}", world.queues());
    }

    let told = world.apply("own.toml");
    assert!(told.lines.concat().contains("class 7a2:1"), "{:?}", told.lines);
    // What waited in the class's queue leaves first.
    let patience = until();
    while missing(&state, 50) > 0 {
        assert!(Instant::now() < patience, "the neighbour has its samples: {}", world.queues());
    }
    // A machine that stands still for a while makes sockets overflow: one clean window shows what the queue does.
    let mut windows: Vec<Window> = Vec::new();
    while !windows.last().is_some_and(Window::is_clean) {
        assert!(windows.len() < 5, "no window is clean: {windows:?} {}", world.queues());
        windows.push(world.window(&bulk, &state));
    }
    let why = world.administer("why /bulk-out /bulk-in");
    assert!(why.lines.concat().contains("own-queue"), "{:?} {}", why.lines, why.errors);

    let verified = world.administer(&format!("verify {} --for 3s --json", world.house.path("own.toml").display()));
    let verified: Value = serde_json::from_str(verified.lines.last().unwrap()).unwrap();
    let found = verified["channels"].as_array().unwrap().iter().find(|channel| channel["topic"] == "bulk").unwrap();
    assert!(found["own_queue_dropped"].as_u64().unwrap() > 0 && found["verdict"] != "kept", "{found}");
    assert!(found["because"].as_str().unwrap().contains("its own queue before link left at a"), "{found}");

    let restored = world.administer("restore");
    assert_eq!((restored.code(), world.queues()), (0, before), "{:?} {}", restored.lines, restored.errors);
    let ends = world.administer("get /bulk-out /bulk-in --json");
    assert!(!ends.lines.concat().contains("socket_priority\":128"), "{:?}", ends.lines);
    let patience = until();
    while missing(&bulk, 100) + missing(&state, 20) > 0 {
        assert!(Instant::now() < patience, "as before");
    }
}

#[test]
fn what_the_queue_of_control_traffic_drops_is_told() {
    let Some(world) = World::new("what the queue of control traffic drops") else { return };
    let [bulk, state] =
        [world.program(2, "sub /bulk --port /bulk-in --json"), world.program(3, "sub /state --port /state-in --json")];
    let _publishers = [
        world.program(0, "pub /bulk --port /bulk-out --rate 100 --size 200"),
        world.program(1, "pub /state --port /state-out --rate 50 --size 100"),
    ];
    [&bulk, &state].iter().for_each(|program| drop(program.json_line()));
    world.apply("control.toml");
    let plan = world.house.path("control.toml");
    let goes_on = AtomicBool::new(true);
    let [why, verified] = std::thread::scope(|scope| {
        scope.spawn(|| world.flood(&goes_on));
        let told = ["why /state-out /state-in".to_owned(), format!("verify {} --for 3s --json", plan.display())]
            .map(|arguments| world.administer(&arguments));
        goes_on.store(false, Relaxed);
        told
    });
    assert!(why.lines.concat().contains("control-queue"), "{:?} {}", why.lines, why.errors);
    let verified: Value = serde_json::from_str(verified.lines.last().unwrap()).unwrap();
    let [row] = &verified["control_queues"].as_array().unwrap()[..] else { panic!("{verified}") };
    assert_eq!([&row["link"], &row["from"], &row["device"]], ["left", "a", "eth"], "{row}");
    assert!(row["dropped"].as_u64().unwrap() > 0 && row["packets"].as_u64().unwrap() > 0, "{row}");
    assert_eq!(world.administer("restore").code(), 0);
}
