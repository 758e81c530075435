//! A queue of a channel's own, from the contract to the packets: hosts a – g – b (network namespaces), two channels of one class over a link of 1 Mbit/s.
#![allow(clippy::unwrap_used)]

use crate::support;
use std::process::Command;
use std::time::Instant;
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
        for (name, contract) in [("own", CONTRACT.to_owned()), ("shared", CONTRACT.replace("own_queue = true\n", ""))] {
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

    fn queues(&self) -> String {
        let show = |what: &str| {
            let done = self.row.command(0, "tc").args([what, "show", "dev", "eth"]).output();
            String::from_utf8(done.unwrap().stdout).unwrap()
        };
        [show("qdisc"), show("class"), show("filter")].concat()
    }
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
    bulk.lines_so_far();
    assert_eq!(missing(&state, 200), 0, "{}", world.queues());
    assert!(missing(&bulk, 50) > 50, "of 600 Hz 120 and a few come");
    let why = world.administer("why /bulk-out /bulk-in");
    assert!(why.lines.concat().contains("own-queue"), "{:?} {}", why.lines, why.errors);

    let restored = world.administer("restore");
    assert_eq!((restored.code(), world.queues()), (0, before), "{:?} {}", restored.lines, restored.errors);
    let ends = world.administer("get /bulk-out /bulk-in --json");
    assert!(!ends.lines.concat().contains("socket_priority\":128"), "{:?}", ends.lines);
    let patience = until();
    while missing(&bulk, 100) + missing(&state, 20) > 0 {
        assert!(Instant::now() < patience, "as before");
    }
}
