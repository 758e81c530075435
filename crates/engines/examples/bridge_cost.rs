//! The cost of a bridge: one-way latency and processor time of 64 B samples at 1 kHz from a Thalweg publisher to a Zenoh subscriber over a
//! bridge, beside those of its two legs alone, in turns. `bridge_cost [ROUNDS]`; exit 1 if one is more than 1.3 times both legs together.
//!
//! All ends are in one process, whose processor time is that of all of them. A fourth run without any leg measures what the loop of the
//! measurement, the clock and the idle threads take, which is no leg's: it is subtracted from each. Thalweg's legs are over shared memory, as
//! between processes.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a measurement: it reads the clock, and ends where something is missing

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use thalweg::codec::{Message, Raw};
use thalweg::{Change, Node, Publisher};
use thalweg_engines::bridge::{Bridge, Rules};
use thalweg_engines::zenoh::{Settings, Zenoh};
use thalweg_engines::{Engine, Sample, Subscriber, Topic};

#[path = "../../broker/examples/targets/mod.rs"]
mod targets;

use targets::{Limit, Targets};

const SAMPLES: u32 = 1000;
const PERIOD: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(20);
/// The target: so many times both legs together.
const MOST: f64 = 1.3;

fn node(name: &str) -> Node {
    let realm = format!("bridge-cost-{}", std::process::id());
    Node::with_settings(thalweg::Settings { name: name.to_owned(), realm, ..thalweg::Settings::default() }).unwrap()
}

fn topic(name: &str) -> Topic {
    Topic { name: name.to_owned(), message: Raw::description().as_ref().clone() }
}

/// The sender's time of each sample is in its first 8 bytes.
fn latency_us(message: &[u8], epoch: Instant) -> f64 {
    let sent = u64::from_le_bytes(message[..8].try_into().unwrap());
    (epoch.elapsed().as_nanos() as u64 - sent) as f64 / 1e3
}

/// One run.
struct Run {
    /// Latencies in µs, sorted.
    latencies: Vec<f64>,
    /// Processor time of a sample in µs.
    cpu_us: f64,
}

impl Run {
    /// The latency that this share of the samples has at most, in µs.
    fn at(&self, share: f64) -> f64 {
        self.latencies[((self.latencies.len() - 1) as f64 * share) as usize]
    }
}

fn run(mut publish: impl FnMut(&[u8]), told: &Receiver<f64>, epoch: Instant) -> Run {
    let mut found = Vec::new();
    let (mut at, before) = (Instant::now(), linux::clock::process_cpu_ns());
    for _ in 0..SAMPLES {
        at += PERIOD;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let mut message = [0_u8; 64];
        message[..8].copy_from_slice(&(epoch.elapsed().as_nanos() as u64).to_le_bytes());
        publish(&message);
        found.push(told.recv_timeout(LONG).expect("a sample"));
    }
    let cpu_us = (linux::clock::process_cpu_ns() - before) as f64 / 1e3 / f64::from(SAMPLES);
    found.sort_by(f64::total_cmp);
    Run { latencies: found, cpu_us }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn listen(zenoh: &Zenoh, name: &str, epoch: Instant) -> (Box<dyn Subscriber>, Receiver<f64>) {
    let (tell, told) = channel();
    let deliver = Box::new(move |sample: &Sample<'_>| tell.send(latency_us(sample.message, epoch)).unwrap_or_default());
    (zenoh.subscriber(&topic(name), &qos::Qos::default(), deliver).unwrap(), told)
}

fn written(message: &[u8]) -> Sample<'_> {
    Sample { topic: "", message, publisher: 0, origin: None, change: Change::Written, age_ns: 0, historical: false }
}

fn publisher(node: &Node, name: &str) -> Publisher<Raw> {
    node.publisher::<Raw>(name).carriers(["shm"]).open().unwrap()
}

fn main() -> ExitCode {
    let rounds: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let epoch = Instant::now();
    let address = format!("tcp/{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let (here, there, gate) = (node("here"), node("there"), node("gate"));
    let zenoh = Zenoh::open(Settings { listen: vec![address.clone()], ..Settings::default() }, None).unwrap();
    let connecting = || Zenoh::open(Settings { connect: vec![address.clone()], ..Settings::default() }, None).unwrap();
    let mut bridge = Bridge::new(
        gate,
        Box::new(connecting()),
        Rules::parse("").unwrap().within(&["/both".to_owned()], &[]).unwrap(),
    );
    std::thread::spawn(move || {
        loop {
            bridge.turn(Duration::from_millis(50));
        }
    });

    let mut own = publisher(&here, "/own");
    let (tell, told_own) = channel();
    let _taking = there
        .subscriber::<Raw>("/own")
        .callback(move |sample| tell.send(latency_us(&sample, epoch)).unwrap_or_default())
        .unwrap();
    let other = connecting();
    let foreign = other.publisher(&topic("/foreign"), &qos::Qos::default()).unwrap();
    let (_hearing, told_foreign) = listen(&zenoh, "/foreign", epoch);
    let mut both = publisher(&here, "/both");
    let (_over, told_both) = listen(&zenoh, "/both", epoch);
    assert!(own.wait_connected(1, LONG) && both.wait_connected(1, LONG));
    while !foreign.is_wanted() {
        std::thread::sleep(PERIOD);
    }

    let (tell_nothing, told_nothing) = channel();
    let (mut latencies, mut times) = (Vec::new(), Vec::new());
    println!("round   thalweg p50 p99 cpu     zenoh p50 p99 cpu    bridge p50 p99 cpu   p50, cpu / both legs   (µs)");
    for round in 1..=rounds {
        let none = run(|_| tell_nothing.send(0.0).unwrap(), &told_nothing, epoch);
        let one = run(|message| assert_eq!(own.publish(message).unwrap().refused, 0), &told_own, epoch);
        let two = run(|message| foreign.publish(&written(message)).unwrap(), &told_foreign, epoch);
        let over = run(|message| assert_eq!(both.publish(message).unwrap().refused, 0), &told_both, epoch);
        let cpu = |run: &Run| run.cpu_us - none.cpu_us;
        print!("{round:>5} ");
        for run in [&one, &two, &over] {
            print!("  {:>8.1} {:>7.1} {:>5.1}", run.at(0.5), run.at(0.99), cpu(run));
        }
        let (latency, time) = (over.at(0.5) / (one.at(0.5) + two.at(0.5)), cpu(&over) / (cpu(&one) + cpu(&two)));
        latencies.push(latency);
        times.push(time);
        println!("   {latency:.2} {time:.2}");
    }
    println!("medians of {rounds} rounds with {SAMPLES} samples of 64 B at 1 kHz for each figure, all in one process");
    let mut targets = Targets::default();
    targets.judge("median latency", median(latencies), "times both legs", Limit::AtMost(MOST));
    targets.judge("processor time", median(times), "times both legs", Limit::AtMost(MOST));
    targets.exit()
}
