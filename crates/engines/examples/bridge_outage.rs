//! `kill -9` of a bridge, of its Zenoh router and of the program behind it, while 1,000 samples of 64 B pass each second: the time until samples
//! pass again, and the latency of a channel that has nothing to do with it. `bridge_outage [ROUNDS]`; exit 1 if a target is missed.
//!
//! Each is a process of its own, which is started again at once: as soon as the killed one is gone.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a measurement: it reads the clock, and ends where something is missing

#[path = "../../broker/examples/targets/mod.rs"]
mod targets;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use targets::{Limit, Targets};
use thalweg::codec::{Message, Raw};
use thalweg::{Node, Publisher};
use thalweg_engines::bridge::{Bridge, Rules};
use thalweg_engines::zenoh::{Settings, Zenoh};
use thalweg_engines::{Engine, Identity, Topic};

const PERIOD: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);
/// Time before each kill, and after it, in which the other channel is measured.
const MEASURED: Duration = Duration::from_secs(2);
/// The targets of issue 16.
const MOST_BACK_S: f64 = 2.0;
const MOST_OTHERS: f64 = 1.1;

fn node(name: &str, realm: &str) -> Node {
    let settings = thalweg::Settings { name: name.to_owned(), realm: realm.to_owned(), ..thalweg::Settings::default() };
    Node::with_settings(settings).unwrap()
}

/// Opens once the router is there.
fn zenoh(address: &str, bridge: Option<&Identity>) -> Zenoh {
    let settings = Settings { connect: vec![address.to_owned()], ..Settings::default() };
    loop {
        match Zenoh::open(settings.clone(), bridge.cloned()) {
            Ok(zenoh) => return zenoh,
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The process of a role, which ends only when it is killed.
fn serve(role: &str, address: &str, realm: &str) -> ! {
    match role {
        "router" => {
            let _router = thalweg::control::zenoh::router(&[address.to_owned()], &[], |_| {}).unwrap();
            loop {
                std::thread::park();
            }
        }
        "bridge" => {
            let (own, rules) = (node("bridge", realm), Rules::default());
            let rules = rules.within(&["/a".to_owned()], &[]).unwrap();
            let engine = zenoh(address, Some(&rules.identity(own.id())));
            let mut bridge = Bridge::new(own, Box::new(engine), rules);
            loop {
                bridge.turn(Duration::from_millis(50));
            }
        }
        _ => {
            let zenoh = zenoh(address, None);
            let topic = Topic { name: "/a".to_owned(), message: Raw::description().as_ref().clone() };
            let tell = |sample: &thalweg_engines::Sample<'_>| println!("{}", number(sample.message));
            let _subscriber = zenoh.subscriber(&topic, &qos::Qos::default(), Box::new(tell)).unwrap();
            loop {
                std::thread::park();
            }
        }
    }
}

fn number(message: &[u8]) -> u64 {
    u64::from_le_bytes(message[..8].try_into().unwrap())
}

/// A running role; killed when dropped.
struct Process(Child);

impl Process {
    fn start(role: &str, address: &str, realm: &str, tell: &Sender<(Instant, u64)>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.args([role, address, realm]).stdout(Stdio::piped()).spawn().unwrap();
        let (lines, tell) = (BufReader::new(child.stdout.take().unwrap()).lines(), tell.clone());
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = tell.send((Instant::now(), line.parse().unwrap()));
            }
        });
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Latencies in µs of the channel that has nothing to do with it, each with the time of its arrival.
type Others = Arc<Mutex<Vec<(Instant, f64)>>>;

fn p99(others: &Others, from: Instant, to: Instant) -> f64 {
    let all = others.lock().unwrap();
    let mut found: Vec<f64> = all.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, us)| *us).collect();
    found.sort_by(f64::total_cmp);
    found.get(found.len().saturating_sub(1) * 99 / 100).copied().unwrap_or(f64::NAN)
}

/// Publishes both topics each millisecond until `stop`. The number of the last sample is in `sent`.
fn publish(here: &Node, epoch: Instant, sent: &AtomicU64, stop: &AtomicBool) {
    let mut carried: Publisher<Raw> = here.publisher("/a").open().unwrap();
    let mut own: Publisher<Raw> = here.publisher("/own").carriers(["shm"]).open().unwrap();
    let mut at = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        at += PERIOD;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let mut message = [0_u8; 64];
        message[..8].copy_from_slice(&(sent.load(Ordering::Relaxed) + 1).to_le_bytes());
        carried.publish(&message).unwrap();
        sent.fetch_add(1, Ordering::Release);
        message[..8].copy_from_slice(&(epoch.elapsed().as_nanos() as u64).to_le_bytes());
        own.publish(&message).unwrap();
    }
}

/// The first sample that comes and was published after the one of this number.
fn first_after(told: &Receiver<(Instant, u64)>, last: u64) -> Instant {
    loop {
        let (at, number) = told.recv_timeout(LONG).expect("samples pass again");
        if number > last {
            return at;
        }
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, address, realm] = &arguments[..] {
        serve(role, address, realm);
    }
    let rounds: usize = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(5);
    let (epoch, realm) = (Instant::now(), format!("bridge-outage-{}", std::process::id()));
    let address = format!("tcp/{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let (here, there, others) = (node("here", &realm), node("there", &realm), Others::default());
    let kept = others.clone();
    let own = there.subscriber::<Raw>("/own").callback(move |sample| {
        let latency = epoch.elapsed().as_nanos() as u64 - number(&sample);
        kept.lock().unwrap().push((Instant::now(), latency as f64 / 1e3));
    });
    let _own = own.unwrap();
    let (sent, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counting, stopping) = (sent.clone(), stop.clone());
    let publishing = std::thread::spawn(move || publish(&here, epoch, &counting, &stopping));
    let (tell, told) = channel();
    let roles = ["router", "bridge", "peer"];
    let mut running = roles.map(|role| Some(Process::start(role, &address, &realm, &tell)));
    first_after(&told, 0);
    let mut targets = Targets::default();
    for (index, role) in roles.into_iter().enumerate() {
        let (mut back, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let before = Instant::now();
            std::thread::sleep(MEASURED);
            let killed = Instant::now();
            running[index] = None;
            let last = sent.load(Ordering::Acquire) + 1; // which may be with a process that lives
            running[index] = Some(Process::start(role, &address, &realm, &tell));
            let again = first_after(&told, last);
            back.push((again - killed).as_secs_f64());
            let end = killed + MEASURED.max(again - killed);
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
            let (quiet, outage) = (p99(&others, before, killed), p99(&others, killed, end));
            ratios.push(outage / quiet);
            println!(
                "{role}: back after {:.2} s; others' p99 {outage:.0} µs, before {quiet:.0} µs",
                back[back.len() - 1]
            );
        }
        let longest = back.iter().copied().fold(0.0, f64::max);
        targets.judge(
            &format!("kill -9 of the {role}: longest of {rounds} until samples pass again"),
            longest,
            "s",
            Limit::AtMost(MOST_BACK_S),
        );
        targets.judge(
            &format!("kill -9 of the {role}: others' p99 after it, median of {rounds}"),
            median(ratios),
            "times that before",
            Limit::AtMost(MOST_OTHERS),
        );
    }
    stop.store(true, Ordering::Relaxed);
    publishing.join().unwrap();
    targets.exit()
}
