//! A bridge with many foreign endpoints: its memory, and the time until all have their channels.
//! `bridge_scale [ENDPOINTS [zenoh|ros2]]`, by default 1,000 and both; exit 1 if a target is missed.
//!
//! Half of the endpoints publish, and somebody subscribes to all of them here; half subscribe to what is published here. The bridge is a
//! process of its own, from whose start the time counts: its sessions, its ports there, and a channel for each endpoint.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a measurement: it reads the clock, and ends where something is missing

#[path = "../../broker/examples/targets/mod.rs"]
mod targets;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use targets::{Limit, Targets};
use thalweg::codec::{Definitions, TypeDescription, Untyped};
use thalweg::{Node, Publisher};
use thalweg_engines::bridge::{Bridge, Rules};
use thalweg_engines::ros2::{self, Ros2};
use thalweg_engines::zenoh::{self, Zenoh};
use thalweg_engines::{Engine, Identity, Topic};

const LONG: Duration = Duration::from_secs(120);
/// The targets of issue 16, of 1,000 endpoints.
const MOST_MIB: f64 = 64.0;
const MOST_S: f64 = 3.0;

fn node(name: &str, realm: &str) -> Node {
    let settings = thalweg::Settings { name: name.to_owned(), realm: realm.to_owned(), ..thalweg::Settings::default() };
    Node::with_settings(settings).unwrap()
}

fn string() -> TypeDescription {
    let mut definitions = Definitions::new();
    definitions.add("std_msgs/msg/String", "string data\n").unwrap();
    definitions.describe("std_msgs/msg/String").unwrap()
}

fn open(engine: &str, way: &str, address: &str, bridge: Option<Identity>) -> Box<dyn Engine> {
    let (connect, listen) = match way {
        "connect" => (vec![address.to_owned()], Vec::new()),
        _ => (Vec::new(), vec![address.to_owned()]),
    };
    if engine == "zenoh" {
        return Box::new(Zenoh::open(zenoh::Settings { connect, listen, ..Default::default() }, bridge).unwrap());
    }
    let describe: ros2::Describe = std::sync::Arc::new(|_| Some(string()));
    let node = if bridge.is_some() { "bridge" } else { "program" }.to_owned();
    let listen = if listen.is_empty() { ros2::Settings::default().listen } else { listen };
    let settings = ros2::Settings { connect, listen, node, describe, ..Default::default() };
    Box::new(Ros2::open(settings, bridge).unwrap())
}

/// The bridge's process: it tells its peak memory for each line that it reads.
fn serve(engine: &str, address: &str, realm: &str) {
    let (own, rules) = (node("bridge", realm), Rules::default());
    let engine = open(engine, "connect", address, Some(rules.identity(own.id())));
    let mut bridge = Bridge::new(own, engine, rules);
    std::thread::spawn(move || {
        loop {
            bridge.turn(Duration::from_millis(50)).iter().for_each(|notice| eprintln!("{notice}"));
        }
    });
    for _ in std::io::stdin().lines() {
        println!("{}", linux::thread::peak_rss_kib());
    }
}

/// A running bridge, which ends with its input.
struct Process(Child);

impl Process {
    fn start(engine: &str, address: &str, realm: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["bridge", engine, address, realm]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn peak_mib(&mut self) -> f64 {
        writeln!(self.0.stdin.as_mut().unwrap()).unwrap();
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().parse::<f64>().unwrap() / 1024.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Peak memory of the bridge in MiB, and the time until all is matched in s.
fn measure(engine: &str, endpoints: usize) -> (f64, f64) {
    let realm = format!("bridge-scale-{engine}-{}", std::process::id());
    let address = format!("tcp/{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let (program, here, each) = (open(engine, "listen", &address, None), node("here", &realm), endpoints / 2);
    let topic = |way: &str, number: usize| Topic { name: format!("/{way}/t{number}"), message: string() };
    let subscribe = |number| program.subscriber(&topic("out", number), &qos::Qos::default(), Box::new(|_| {}));
    let _there: Vec<_> = (0..each).map(|number| subscribe(number).unwrap()).collect();
    let publish = |number| program.publisher(&topic("in", number), &qos::Qos::default());
    let foreign: Vec<_> = (0..each).map(|number| publish(number).unwrap()).collect();
    let own = |number| here.publisher::<Untyped>(&topic("out", number).name).described(string()).open();
    let publishers: Vec<Publisher<Untyped>> = (0..each).map(|number| own(number).unwrap()).collect();
    let own = |number| here.subscriber::<Untyped>(&topic("in", number).name).described(string()).callback(|_| {});
    let subscribers: Vec<_> = (0..each).map(|number| own(number).unwrap()).collect();
    let begun = Instant::now();
    let mut bridge = Process::start(engine, &address, &realm);
    let is_matched = || {
        publishers.iter().all(|publisher| publisher.connected() == 1)
            && subscribers.iter().all(|subscriber| subscriber.connected() == 1)
            && foreign.iter().all(|publisher| publisher.is_wanted())
    };
    while !is_matched() {
        assert!(begun.elapsed() < LONG, "not all of {endpoints} endpoints matched");
        std::thread::sleep(Duration::from_millis(5)); // between two looks
    }
    let matched = begun.elapsed().as_secs_f64();
    (bridge.peak_mib(), matched)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let ["bridge", engine, address, realm] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        serve(engine, address, realm);
        return ExitCode::SUCCESS;
    }
    let endpoints = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let engines = arguments.get(1).map_or(vec!["zenoh", "ros2"], |engine| vec![&engine[..]]);
    let mut targets = Targets::default();
    for engine in engines {
        let (mib, seconds) = measure(engine, endpoints);
        targets.judge(
            &format!("{engine}: memory of a bridge with {endpoints} endpoints there"),
            mib,
            "MiB",
            Limit::AtMost(MOST_MIB),
        );
        targets.judge(
            &format!("{engine}: all {endpoints} matched after its start"),
            seconds,
            "s",
            Limit::AtMost(MOST_S),
        );
    }
    targets.exit()
}
