//! Two brokers of one domain, which share an etcd of three members: one leads, the other one waits.
#![allow(clippy::unwrap_used)]

#[path = "../../broker/tests/members.rs"]
pub(crate) mod members;

use crate::support;
use agent::client::Client;
use agent::identity::Kind;
use agent::keys::Keys;
use agent::message::{Actual, Desired, State};
use members::Members;
use rustix::process::Signal;
use serde_json::Value;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::{Done, LONG, Running, Testbed};

const CONTRACT: &str = r#"
[[node]]
name = "cam"
[[node]]
name = "desk"
[[link]]
between = ["cam", "desk"]
rate = "10 Mbit/s"
devices = { cam = "eth0" }
"#;

struct Brokers {
    house: Testbed,
    members: Members,
    ports: [u16; 2],
}

impl Brokers {
    fn new(test: &str) -> Option<Self> {
        let (members, house) = (Members::start(test)?, Testbed::new());
        std::fs::write(house.path("contract.toml"), CONTRACT).unwrap();
        let keys = house.path("keys").display().to_string();
        let issue = |party: &str| format!("keys issue {party} --dir {keys}");
        for line in [format!("keys init world {keys}"), issue("broker base"), issue("user ann"), issue("host cam")] {
            assert_eq!(house.run(&line).code(), 0, "{line}");
        }
        let held = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = held.each_ref().map(|port| port.local_addr().unwrap().port());
        Some(Self { house, members, ports })
    }

    fn start(&self, broker: usize) -> Running {
        let (keys, contract) = (self.house.path("keys"), self.house.path("contract.toml"));
        self.house.start(&format!(
            "broker --name base --keys {} --listen 127.0.0.1:{} --contract {} --etcd {} --json",
            keys.display(),
            self.ports[broker],
            contract.display(),
            self.members.urls().join(",")
        ))
    }

    fn addresses(&self, brokers: &[usize]) -> String {
        brokers.iter().map(|broker| format!("127.0.0.1:{}", self.ports[*broker])).collect::<Vec<_>>().join(",")
    }

    /// The agent of the one host, which says that it has each plan that it hears of, until this is dropped.
    fn agent(&self) -> Agent {
        let keys = Keys::read(&self.house.path("keys"), Kind::Host, "cam").unwrap();
        let (client, ended) = (Client::new(&self.addresses(&[0, 1]), &keys), Arc::new(AtomicBool::new(false)));
        let seen = ended.clone();
        let obey = move || {
            let mut known = (0, 0);
            while !seen.load(Ordering::Relaxed) {
                let Ok(Some(Desired { epoch, revision, .. })) = client.desired("cam", known, Duration::from_secs(1))
                else {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                };
                if client.report("cam", &Actual::new(epoch, revision, State::Applied)).is_ok() {
                    known = (epoch, revision);
                }
            }
        };
        Agent { ended, thread: Some(std::thread::spawn(obey)) }
    }

    /// A command of the user at these brokers.
    fn ask_at(&self, brokers: &[usize], arguments: &str) -> Done {
        let (at, keys) = (self.addresses(brokers), self.house.path("keys"));
        self.house.run(&format!("{arguments} --user ann --broker {at} --keys {} --json", keys.display()))
    }

    fn ask(&self, arguments: &str) -> Done {
        self.ask_at(&[0, 1], arguments)
    }

    fn file(&self, name: &str) -> String {
        let file = self.house.path(&format!("{name}.toml"));
        let text = format!(
            "[[session]]\nname = {name:?}\n[[topic]]\nname = {name:?}\nsize = \"100 B\"\nrate = \"50 Hz\"\npublisher = \"cam\"\n\
             [[subscriber]]\ntopic = {name:?}\nnode = \"desk\"\ndeadline = \"60 ms\"\n"
        );
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    fn request(&self, name: &str) -> Done {
        self.ask(&format!("session request {}", self.file(name)))
    }

    /// The names of all sessions, once somebody leads.
    fn sessions(&self) -> Vec<String> {
        let until = Instant::now() + LONG;
        loop {
            let done = self.ask("session list");
            if done.code() == 0 {
                let all = done.json();
                return all.as_array().unwrap().iter().map(|one| one["session"].as_str().unwrap().to_owned()).collect();
            }
            assert!(Instant::now() < until, "{}", done.errors);
        }
    }
}

/// An agent on a thread of its own.
struct Agent {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(std::thread::panicking() || ended.is_ok(), "the agent");
    }
}

/// Waits until this broker leads.
fn leads(broker: &Running) {
    let said: Value = broker.json_line();
    assert!(said["listening"].is_string(), "{said}");
}

#[test]
fn another_broker_leads_when_one_is_killed_or_stopped() {
    let Some(brokers) = Brokers::new("another broker leads") else { return };
    let _agent = brokers.agent();
    let first = brokers.start(0);
    leads(&first);
    let second = brokers.start(1);
    assert_eq!(brokers.request("teleop").json()["state"], "active");

    let killed = Instant::now();
    first.signal(Signal::KILL);
    drop(first);
    assert_eq!(brokers.sessions(), ["teleop"]);
    println!("served again {:.1} s after the broker was killed", killed.elapsed().as_secs_f64());
    leads(&second);
    assert_eq!(brokers.request("camera").json()["state"], "active");

    // One that is stopped, and wakes up when another one leads, admits nothing more.
    let first = brokers.start(0);
    let stopped = Instant::now();
    second.signal(Signal::STOP);
    leads(&first);
    assert_eq!(brokers.sessions(), ["teleop", "camera"]);
    println!("served again {:.1} s after the broker was stopped", stopped.elapsed().as_secs_f64());
    second.signal(Signal::CONT);
    let late = brokers.ask_at(&[1], &format!("session request {}", brokers.file("late")));
    assert_ne!(late.code(), 0, "{:?}", late.lines);
    assert_eq!(brokers.request("lidar").json()["state"], "active");
    assert_eq!(brokers.sessions(), ["teleop", "camera", "lidar"]);

    // One that is told to end gives its lead away at once.
    assert_eq!(first.interrupt().code(), 0);
    leads(&second);
    assert_eq!(brokers.sessions(), ["teleop", "camera", "lidar"]);
    let done = second.interrupt();
    assert_eq!(done.code(), 0);
    assert!(
        done.errors.contains("broker base waits: the broker on ") && done.errors.contains(" leads"),
        "{}",
        done.errors
    );
    assert!(done.errors.contains("broker base does not lead any more"), "{}", done.errors);
}

#[test]
fn a_session_is_refused_while_too_few_members_are_there() {
    let Some(brokers) = Brokers::new("members of etcd die") else { return };
    let _agent = brokers.agent();
    let first = brokers.start(0);
    leads(&first);
    let leader = brokers.members.leader();
    brokers.members.kill(leader);
    assert_eq!(brokers.request("teleop").json()["state"], "active");
    let other = (leader + 1) % 3;
    brokers.members.kill(other);
    let refused = brokers.request("camera");
    assert_ne!(refused.code(), 0, "{:?}", refused.lines);
    brokers.members.begin(leader);
    brokers.members.begin(other);
    brokers.members.until_served();
    // What was refused may be there: it was sent to members that did not answer.
    let found = brokers.sessions();
    assert!(found == ["teleop"] || found == ["teleop", "camera"], "{found:?}");
    assert_eq!(brokers.request("lidar").json()["state"], "active");
}

#[test]
fn etcd_is_asked_without_tls_only_on_the_own_host() {
    let house = Testbed::new();
    let keys = house.path("keys").display().to_string();
    house.run(&format!("keys init world {keys}"));
    house.run(&format!("keys issue broker base --dir {keys}"));
    let ask = |etcd: &str| house.run(&format!("broker --name base --keys {keys} --etcd {etcd}"));
    assert_eq!(ask("http://127.0.0.1:x@10.0.0.1:2379").code(), 2);
    let plain = ask("http://10.0.0.1:2379");
    assert_eq!(plain.code(), 2);
    assert!(plain.errors.contains("http://10.0.0.1:2379: allowed is https://HOST:PORT"), "{}", plain.errors);
    let without = ask("https://10.0.0.1:2379");
    assert!(without.code() == 2 && without.errors.contains("needs --etcd-tls DIR"), "{}", without.errors);
    let missing = ask("https://10.0.0.1:2379 --etcd-tls /nothing");
    assert!(missing.code() == 2 && missing.errors.contains("/nothing/ca.pem"), "{}", missing.errors);
}
