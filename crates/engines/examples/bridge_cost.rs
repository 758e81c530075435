//! The cost of a bridge: one-way latency of 64 B samples at 1 kHz from a Thalweg publisher to a Zenoh subscriber over a bridge, beside
//! that of its two legs alone, in turns. `bridge_cost [ROUNDS]`; exit 1 if it is more than 1.3 times both legs together.
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

/// Latencies of one run in µs, sorted.
fn run(mut publish: impl FnMut(&[u8]), told: &Receiver<f64>, epoch: Instant) -> Vec<f64> {
    let mut found = Vec::new();
    let mut at = Instant::now();
    for _ in 0..SAMPLES {
        at += PERIOD;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let mut message = [0_u8; 64];
        message[..8].copy_from_slice(&(epoch.elapsed().as_nanos() as u64).to_le_bytes());
        publish(&message);
        found.push(told.recv_timeout(LONG).expect("a sample"));
    }
    found.sort_by(f64::total_cmp);
    found
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
    node.publisher::<Raw>(name).open().unwrap()
}

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
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

    let mut ratios = Vec::new();
    println!("round   thalweg p50 p99    zenoh p50 p99    bridge p50 p99   p50 / both legs");
    for round in 1..=rounds {
        let one = run(|message| assert_eq!(own.publish(message).unwrap().refused, 0), &told_own, epoch);
        let two = run(|message| foreign.publish(&written(message)).unwrap(), &told_foreign, epoch);
        let over = run(|message| assert_eq!(both.publish(message).unwrap().refused, 0), &told_both, epoch);
        let at = |sorted: &[f64], share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
        let [(a, b), (c, d), (e, f)] = [&one, &two, &over].map(|sorted| (at(sorted, 0.5), at(sorted, 0.99)));
        ratios.push(e / (a + c));
        println!("{round:>5}   {a:>8.1} {b:>8.1}  {c:>8.1} {d:>7.1}  {e:>8.1} {f:>8.1}   {:.2}", e / (a + c));
    }
    ratios.sort_by(f64::total_cmp);
    let middle = ratios[ratios.len() / 2];
    println!(
        "median {middle:.2} of at most {MOST}: {SAMPLES} samples of 64 B at 1 kHz in each of {rounds} rounds, all in one process"
    );
    if middle <= MOST { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
