//! The role `attacker`: a process that attacks, bounded in time and in attempts, and reports its attempts.

use super::client::{FROM, HANDSHAKE, Link, Listener, kind, opening, read_document};
use super::effect::Listens;
use super::recorded::Recording;
use crate::error::{Error, Result};
use crate::part::Orders;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use socket2::Socket;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thalweg::carrier::Dice;

/// An order to an attacker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Task {
    /// Name of the attack, see [`super::ATTACKS`].
    pub attack: String,
    /// Realm of the attacked nodes.
    pub realm: String,
    /// Unix sockets of the nodes by their role, as any process of the host sees them in the run directory.
    pub sockets: BTreeMap<String, PathBuf>,
    /// Recorded data.
    pub recording: Recording,
    /// Seed of every choice.
    pub seed: u64,
    /// Longest duration, in milliseconds.
    pub ms: u64,
    /// Largest number of attempts.
    pub attempts: u64,
    /// Largest number of attempts per second; 0: no limit.
    pub per_second: f64,
    /// Address at which a node listens to Zenoh, if it does.
    pub zenoh: Option<SocketAddr>,
    /// The bystander's listeners in the nodes' places; the nodes themselves are then asked only for their documents.
    pub bystander: BTreeMap<String, Listens>,
}

/// The report of an attacker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tried {
    /// Attempts by kind.
    pub tried: BTreeMap<String, u64>,
    /// Answers by kind.
    pub answers: BTreeMap<String, u64>,
    /// Duration in milliseconds.
    pub ms: u64,
}

impl Tried {
    /// Attempts per second.
    pub fn per_second(&self) -> f64 {
        self.tried.values().sum::<u64>() as f64 * 1000.0 / self.ms.max(1) as f64
    }

    /// Adds another report.
    pub fn add(&mut self, other: Self) {
        for (what, count) in other.tried {
            *self.tried.entry(what).or_default() += count;
        }
        self.answers.extend(other.answers);
        self.ms += other.ms;
    }
}

/// An attacked node, with its public information.
pub struct Victim {
    /// Its unix socket.
    pub unix: Listener,
    /// Its first TCP address.
    pub tcp: Listener,
    /// Its document.
    pub document: Value,
}

/// An attacker.
pub struct Attacker {
    /// Its order.
    pub task: Task,
    /// Its random choices.
    pub dice: Dice,
    /// The nodes by their role: `publisher`, `subscriber`, `relay`.
    pub victims: BTreeMap<String, Victim>,
    /// Its own node's id.
    pub node: String,
    began: Instant,
    until: Instant,
    report: Tried,
    attempts: u64,
    /// Connections that are held open to the end.
    pub held: Vec<Socket>,
}

/// The role.
pub(crate) fn play(mut orders: Orders) -> Result {
    let task: Task = orders.settings()?;
    raise_open_files();
    let attack = super::ATTACKS.iter().find(|attack| attack.name == task.attack);
    let attack = attack.ok_or_else(|| Error::Usage(format!("no attack is called {:?}", task.attack)))?;
    let mut attacker = Attacker::meet(task)?;
    orders.say(&json!({"ready": true}))?;
    let _go: Option<Value> = orders.wait()?;
    attacker.began = Instant::now();
    attacker.until = attacker.began + Duration::from_millis(attacker.task.ms);
    let ended = (attack.run)(&mut attacker);
    attacker.report.ms = attacker.began.elapsed().as_millis() as u64;
    if let Err(error) = ended {
        attacker.answer(&format!("gave up: {error}"));
    }
    attacker.wait_to_the_end();
    orders.say(&attacker.report)?;
    orders.wait::<Value>()?;
    Ok(())
}

fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

impl Attacker {
    /// Learns the public information of the nodes.
    fn meet(task: Task) -> Result<Self> {
        let mut dice = Dice::new(task.seed);
        let node = format!("{:016x}", dice.bits());
        let mut victims = BTreeMap::new();
        for (role, socket) in &task.sockets {
            victims.insert(role.clone(), Victim::meet(Listener::Unix(socket.clone()), &task.realm, &node)?);
        }
        for (role, listens) in &task.bystander {
            if let Some(victim) = victims.get_mut(role) {
                (victim.tcp, victim.unix) = listens.listeners();
            }
        }
        let (began, until) = (Instant::now(), Instant::now());
        Ok(Self { task, dice, victims, node, began, until, report: Tried::default(), attempts: 0, held: Vec::new() })
    }

    /// `true` if there is time and permission for another attempt.
    pub fn goes_on(&self) -> bool {
        if self.task.per_second > 0.0 {
            let due = Duration::from_secs_f64(self.attempts as f64 / self.task.per_second);
            self.pause(due.saturating_sub(self.began.elapsed()).as_millis() as u64);
        }
        self.attempts < self.task.attempts && Instant::now() < self.until
    }

    /// Counts an attempt.
    pub fn tried(&mut self, what: &str) {
        self.attempts += 1;
        *self.report.tried.entry(what.to_owned()).or_default() += 1;
    }

    /// Counts many attempts at once.
    pub fn tried_many(&mut self, what: &str, count: u64) {
        self.attempts += count;
        *self.report.tried.entry(what.to_owned()).or_default() += count;
    }

    /// Counts an answer.
    pub fn answer(&mut self, what: &str) {
        if self.report.answers.len() < 64 {
            *self.report.answers.entry(what.to_owned()).or_default() += 1;
        }
    }

    /// A pause within the remaining time.
    pub fn pause(&self, ms: u64) {
        let left = self.until.saturating_duration_since(Instant::now());
        std::thread::sleep(Duration::from_millis(ms).min(left));
    }

    /// Holds its connections as long as ordered, unless all attempts were made.
    fn wait_to_the_end(&self) {
        while self.goes_on() && !self.held.is_empty() {
            self.pause(50);
        }
    }

    /// Remaining milliseconds.
    pub fn left_ms(&self) -> u64 {
        self.until.saturating_duration_since(Instant::now()).as_millis() as u64
    }

    /// An attacked node.
    ///
    /// # Errors
    /// There is none of this role.
    pub fn victim(&self, role: &str) -> io::Result<&Victim> {
        self.victims.get(role).ok_or_else(|| io::Error::other(format!("no {role} is there")))
    }

    /// All listeners of all nodes: over TCP, or their unix sockets.
    pub fn listeners(&self, unix: bool) -> Vec<Listener> {
        self.victims.values().map(|victim| if unix { victim.unix.clone() } else { victim.tcp.clone() }).collect()
    }

    /// A random one of several.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.dice.below(all.len() as u64) as usize)
    }

    /// Connects, sends, and hangs up at once or holds: answers are not read. Returns the connection if it was
    /// accepted.
    pub fn throw(&mut self, listener: &Listener, bytes: &[u8], what: &str) -> Option<Socket> {
        self.tried(what);
        match listener.open() {
            Ok(mut socket) => {
                let _ = socket.write_all(bytes); // it may be closed before all of it is taken
                Some(socket)
            }
            Err(_) => {
                self.answer("connection refused or not taken in time");
                None
            }
        }
    }

    /// A subscriber's request for the measured topic, by docs/wire.md.
    pub fn request(&self, carrier: &str) -> io::Result<Value> {
        let victim = self.victim("publisher")?;
        let (id, port) = victim.port("publisher", super::pair::TOPIC)?;
        Ok(self.request_to(victim, &id, &port, carrier))
    }

    /// A request to a port of a node.
    pub fn request_to(&self, victim: &Victim, id: &str, port: &Value, carrier: &str) -> Value {
        let mut subscriber = port.clone();
        subscriber["direction"] = "subscriber".into();
        subscriber["name"] = format!("/attacker/{}", self.attempts).into();
        subscriber["carriers"] = json!([carrier]);
        json!({
            "version": 1, "realm": self.task.realm, "node": self.node, "port": 1 + self.attempts,
            "subscriber": subscriber, "to_node": victim.document["node"], "to_port": id.parse::<u64>().unwrap_or(1),
            "carrier": carrier, "clock": victim.document["clock"], "by_name": false,
            "parameters": {"buffer": 212_992},
        })
    }

    /// Requests a channel: the connection, and the acceptance.
    ///
    /// # Errors
    /// The connection's error; a refusal, with its words.
    pub fn subscribe(&mut self, listener: &Listener, request: &Value) -> io::Result<(Socket, Value)> {
        self.tried("request");
        let mut socket = listener.open()?;
        socket.write_all(&opening(HANDSHAKE, request))?;
        let answer = read_document(&mut socket)?;
        let accepted = answer["accepted"].clone();
        if accepted.is_object() {
            self.answer("accepted");
            return Ok((socket, accepted));
        }
        let why = format!("refused: {}", answer["refused"]["policy"]);
        self.answer(&why);
        Err(io::Error::other(why))
    }

    /// A document of a node of its own, made from a victim's: without ports.
    pub fn document(&self) -> io::Result<Value> {
        let mut document = self.victim("publisher")?.document.clone();
        document["node"] = self.node.clone().into();
        document["name"] = "attacker".into();
        document["revision"] = 1.into();
        document["addresses"] = json!([SocketAddr::from((FROM, 9))]);
        document["socket"] = Value::Null;
        document["ports"] = json!({});
        Ok(document)
    }
}

impl Victim {
    fn meet(unix: Listener, realm: &str, node: &str) -> io::Result<Self> {
        let mut link = Link::open(&unix, realm, node)?;
        let document: Value = serde_json::from_slice(&link.hear_of(kind::DOCUMENT)?)?;
        let addresses = document["addresses"].as_array().into_iter().flatten();
        let addresses = addresses.filter_map(|a| a.as_str()?.parse::<SocketAddr>().ok());
        let tcp = addresses.filter(SocketAddr::is_ipv4).map(Listener::Tcp).next();
        let tcp = tcp.ok_or_else(|| io::Error::other(format!("no IPv4 address in {document}")))?;
        Ok(Self { unix, tcp, document })
    }

    /// Id and description of a port of a topic.
    ///
    /// # Errors
    /// It has none.
    pub fn port(&self, direction: &str, topic: &str) -> io::Result<(String, Value)> {
        let ports = self.document["ports"].as_object().into_iter().flatten();
        let mut found = ports.filter(|(_, port)| port["direction"] == direction && port["topic"] == topic);
        let found = found.next().map(|(id, port)| (id.clone(), port.clone()));
        found.ok_or_else(|| io::Error::other(format!("no {direction} of {topic}")))
    }
}
