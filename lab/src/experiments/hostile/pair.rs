//! The legitimate pair that is measured during an attack: a publisher and a subscriber of 1 kHz over every carrier, a
//! relay, and newcomers; each a process of its own.

use super::attacker::{Task, Tried};
use super::newcomer::{JoinOrder, Joined, id_of};
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::part::stream::{Arrived, Order, Published, Settings};
use crate::part::{NodeSettings, Orders, Part, Place};
use crate::topology::Topology;
use qos::priority::{Change, Changes, Policy};
use qos::{PullBuffer, Qos, Queue, Reliability};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use thalweg::codec::{Raw, Untyped};
use thalweg::{Node, Subscriber};

/// The measured topic.
pub const TOPIC: &str = "/state";
/// Topics that only liars publish: one for each carrier, and one with a scaled subscriber.
pub const LURES: [&str; 7] =
    ["/lure/tcp", "/lure/udp", "/lure/mcast", "/lure/shm", "/lure/keyed", "/lure/relayed", "/lure/pictured"];
/// The measured carriers.
pub const CARRIERS: [&str; 4] = ["tcp", "udp", "mcast", "shm"];
/// The carrier whose subscribers share one send.
const GROUP: &str = "mcast";
/// Samples per second.
pub const HZ: f64 = 1000.0;
/// Bytes of a sample.
pub const PAYLOAD: usize = 64;
/// Priority of the threads of the pair's channels. The node's other threads, and the attacker's, have none.
const FIFO: u8 = 30;
/// Longest duration of anything that works.
pub const LONG: Duration = Duration::from_secs(30);

/// The processes.
pub struct Testbed {
    publisher: Part,
    subscriber: Part,
    relay: Part,
    newcomer: Part,
    /// Unix sockets of the nodes, by their role.
    pub sockets: BTreeMap<String, PathBuf>,
    /// Carriers with an open channel.
    pub carriers: Vec<String>,
    /// Carriers without one.
    pub missing: Vec<String>,
    realm: String,
    place: Place,
    across: Option<Across>,
}

/// Other hosts, with newcomers and attackers, when the publisher's node has a host to itself and listens to Zenoh.
struct Across {
    newcomer: Part,
    topology: Topology,
}

/// Numbers of the hosts in [`Across`]: of the pair, of newcomers and of attackers.
const HOME: u8 = 1;
const VISITOR: u8 = 2;
pub(super) const STRANGER: u8 = 3;
/// Port at which Zenoh finds the only node of a host that listens beyond loopback.
const ZENOH: u16 = 7447;

/// Threads and memory of the victims.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Resident memory of all processes, in KiB, by role.
    pub rss_kib: BTreeMap<&'static str, u64>,
    /// Names of threads by role.
    pub threads: BTreeSet<(&'static str, String)>,
}

/// The result of a phase.
#[derive(Debug, Default)]
pub struct Phase {
    /// Published samples.
    pub published: u64,
    /// Received samples, by carrier.
    pub arrived: BTreeMap<String, Arrived>,
    /// Newcomers: the listener, and the time of each in milliseconds (`None`: it did not connect).
    pub newcomers: Vec<(&'static str, Option<f64>)>,
    /// The largest growth of a process, in KiB, and its name.
    pub growth_kib: (u64, &'static str),
    /// The attacker's attempts, if there was one.
    pub tried: Tried,
}

impl Testbed {
    /// Starts all and waits for the channels.
    ///
    /// # Errors
    /// A process that cannot be started, or no channel at all.
    pub fn start(lab: &Lab, realm: &str, place: &Place) -> Result<Self> {
        Self::with(lab, realm, place, &[])
    }

    /// The same on one of these hosts, with the others reached by Zenoh.
    ///
    /// # Errors
    /// As [`Testbed::start`].
    pub fn between_hosts(lab: &Lab, realm: &str, place: &Place, topology: Topology) -> Result<Self> {
        let at = |host| Place { namespace: Some(topology.host(host).name().to_owned()), ..place.clone() };
        let mut testbed = Self::with(lab, realm, &at(HOME), &[SocketAddr::new(Topology::address_of(HOME), 0)])?;
        let mut newcomer = Part::start(lab, Place { nice: 0, ..at(VISITOR) }, "newcomer", &json!({"realm": realm}))?;
        newcomer.hear::<Value>(lab, LONG)?;
        testbed.across = Some(Across { newcomer, topology });
        Ok(testbed)
    }

    fn with(lab: &Lab, realm: &str, place: &Place, listen: &[SocketAddr]) -> Result<Self> {
        let node = |name: &str| {
            let listen = if name == "publisher" { listen.to_vec() } else { Vec::new() };
            NodeSettings { listen, ..NodeSettings::local(name, realm) }
        };
        // A queue of a second, so that a process that waits for a processor loses no sample.
        let qos = Qos { reliability: Reliability::Reliable, queue: Queue::KeepLast(1024), ..Qos::default() };
        let settings = |name: &str, qos: Qos| Settings {
            node: node(name),
            topic: TOPIC.into(),
            name: format!("/{name}"),
            size: PAYLOAD,
            hz: HZ,
            carriers: CARRIERS.map(String::from).to_vec(),
            qos,
        };
        let kept = Qos { pull: Some(PullBuffer { samples: 1000, ..PullBuffer::default() }), ..qos.clone() };
        let mut sockets = BTreeMap::new();
        let mut start = |role: &str, name: &str, settings: Value| {
            // Newcomers are not attacked: their work must not delay the pair's.
            let nice = if role == "newcomer" { 0 } else { place.nice };
            let mut part = Part::start(lab, Place { nice, ..place.clone() }, role, &settings)?;
            let said: Value = part.hear(lab, LONG)?;
            if let Some(id) = said["node"].as_str() {
                sockets.insert(name.to_owned(), socket_of(lab, id)?);
            }
            Ok::<Part, Error>(part)
        };
        let as_value = |settings: &Settings| serde_json::to_value(settings).map_err(std::io::Error::from);
        let relay = start("relay", "relay", json!(node("relay")))?;
        let publisher = start("publisher", "publisher", as_value(&settings("publisher", kept))?)?;
        let subscriber = start("attacked", "subscriber", as_value(&settings("subscriber", qos))?)?;
        let newcomer = start("newcomer", "newcomer", json!({"realm": realm}))?;
        sockets.remove("newcomer");
        let (carriers, missing, realm) = (Vec::new(), Vec::new(), realm.to_owned());
        let place = place.clone();
        let mut testbed =
            Self { publisher, subscriber, relay, newcomer, sockets, carriers, missing, realm, place, across: None };
        let found: Value = testbed.subscriber.ask(lab, &Order::Connected { count: CARRIERS.len() }, LONG)?;
        let there =
            |carrier: &str| found["carriers"].as_array().is_some_and(|all| all.iter().any(|one| one == carrier));
        testbed.carriers = CARRIERS.iter().filter(|c| there(c)).map(|c| (*c).to_owned()).collect();
        testbed.missing = CARRIERS.iter().filter(|c| !there(c)).map(|c| (*c).to_owned()).collect();
        if testbed.carriers.is_empty() {
            return Err(Error::Failed("the pair has no channel".into()));
        }
        testbed.prioritise(lab)?;
        Ok(testbed)
    }

    /// Gives the thread that publishes, and those of the pair's channels at both ends, a priority, as for any topic with a deadline. A group has
    /// no sending thread of its own.
    fn prioritise(&mut self, lab: &Lab) -> Result {
        let own = i32::try_from(self.publisher.id()).unwrap_or_default(); // its first thread publishes
        linux::sched::set(own, &Policy::Fifo(FIFO).into()).map_err(std::io::Error::from)?;
        for carrier in self.carriers.clone().iter().filter(|carrier| *carrier != GROUP) {
            self.prioritise_sent(lab, carrier)?;
        }
        let order = Order::Set { other: "/publisher".to_owned(), changes: fifo() };
        self.subscriber.ask::<Value>(lab, &order, LONG).map(drop)
    }

    fn prioritise_sent(&mut self, lab: &Lab, carrier: &str) -> Result {
        let order = Order::Set { other: format!("/subscriber/{carrier}"), changes: fifo() };
        self.publisher.ask::<Value>(lab, &order, LONG).map(drop)
    }

    /// Gives the member of the group a priority of its own at the publisher, so that it leaves the group, and waits until it has.
    ///
    /// # Errors
    /// A process that ended, or a member that stays.
    pub fn leave_group(&mut self, lab: &Lab) -> Result {
        self.prioritise_sent(lab, GROUP)?;
        let until = Instant::now() + LONG;
        while Instant::now() < until {
            let found: Value = self.subscriber.ask(lab, &Order::Connected { count: self.carriers.len() }, LONG)?;
            let open = found["carriers"].as_array().map(Vec::as_slice).unwrap_or_default();
            if open.len() == self.carriers.len() && open.iter().all(|one| one != GROUP) {
                return Ok(());
            }
            lab.stop.sleep(Duration::from_millis(10))?;
        }
        Err(Error::Failed(format!("/subscriber/{GROUP} did not leave its group within {LONG:?}")))
    }

    /// An attacker's task, except its attempts.
    pub fn task(&self, attack: &str) -> Task {
        let (attack, realm, sockets) = (attack.to_owned(), self.realm.clone(), self.sockets.clone());
        let zenoh = self.across.as_ref().map(|_| SocketAddr::new(Topology::address_of(HOME), ZENOH));
        Task { attack, realm, sockets, zenoh, seed: 1, ms: 1000, attempts: u64::MAX, ..Task::default() }
    }

    /// `true` if others are on other hosts.
    pub fn is_between_hosts(&self) -> bool {
        self.across.is_some()
    }

    /// The place of an attacker with these processors.
    pub fn outside(&self, place: &Place) -> Place {
        let host = self.across.as_ref().map(|across| across.topology.host(STRANGER).name().to_owned());
        Place { namespace: host, ..place.clone() }
    }

    /// Publishes `count` samples while newcomers start, and an attacker attacks if there is one.
    ///
    /// # Errors
    /// A process that ended or did not answer in time.
    pub fn phase(&mut self, lab: &Lab, count: u64, attack: Option<(Place, Task)>) -> Result<Phase> {
        let mut phase = Phase::default();
        self.subscriber.ask::<Value>(lab, &Order::Report, LONG)?;
        let before = self.state();
        self.publisher.tell(&Order::Publish { count })?;
        let until = Instant::now() + Duration::from_secs_f64(count as f64 / HZ);
        let attacker = attack.map(|(place, task)| {
            let mut part = Part::start(lab, self.outside(&place), "attacker", &task)?;
            part.hear::<Value>(lab, LONG)?;
            part.tell(&json!({"go": true}))?;
            Ok::<_, Error>(part)
        });
        let mut attacker = attacker.transpose()?;
        let mut grown = |testbed: &Self| phase.growth_kib = phase.growth_kib.max(testbed.state().grown_since(&before));
        let mut unix = false;
        while Instant::now() < until {
            phase.newcomers.push(self.newcomer(lab, unix)?);
            unix = !unix;
            grown(self);
            lab.stop.sleep(Duration::from_millis(150))?;
        }
        let published: Published = self.publisher.hear(lab, LONG)?;
        if let Some(mut part) = attacker.take() {
            phase.tried = part.hear(lab, LONG)?;
            grown(self);
        }
        phase.published = published.count;
        self.subscriber.ask::<Value>(lab, &Order::Until { seq: published.last, ms: 3000 }, LONG)?;
        phase.arrived = self.subscriber.ask(lab, &Order::Report, LONG)?;
        Ok(phase)
    }

    /// Publishes `count` samples, and waits until that is done.
    ///
    /// # Errors
    /// The publisher ended.
    pub fn publishes(&mut self, lab: &Lab, count: u64) -> Result {
        self.publisher.ask::<Published>(lab, &Order::Publish { count }, LONG).map(drop)
    }

    /// A node that starts, subscribes over TCP as from another host or as a neighbour, and leaves.
    ///
    /// # Errors
    /// Its process ended.
    pub fn newcomer(&mut self, lab: &Lab, unix: bool) -> Result<(&'static str, Option<f64>)> {
        if let Some(Across { newcomer, .. }) = self.across.as_mut().filter(|_| !unix) {
            let (from, to) = (Topology::address_of(VISITOR), SocketAddr::new(Topology::address_of(HOME), ZENOH));
            let joined: Joined = newcomer.ask(lab, &JoinOrder::Across { from, to }, LONG)?;
            return Ok(("zenoh", joined.ms));
        }
        let socket = self.sockets.get("publisher").cloned();
        let joined: Joined = self.newcomer.ask(lab, &JoinOrder::Join { unix, publisher: socket }, LONG)?;
        Ok((if unix { "unix" } else { "tcp" }, joined.ms))
    }

    /// The nodes that do not answer administrators within a second.
    ///
    /// # Errors
    /// The process that asks ended.
    pub fn silent(&mut self, lab: &Lab) -> Result<Vec<String>> {
        let mut silent = Vec::new();
        for (role, socket) in &self.sockets {
            let node = id_of(socket);
            let joined: Joined = self.newcomer.ask(lab, &JoinOrder::Ask { node }, LONG)?;
            if joined.ms.is_none() {
                silent.push(role.clone());
            }
        }
        Ok(silent)
    }

    /// Memory and threads now.
    pub fn state(&self) -> State {
        let mut state = State::default();
        let all = [("publisher", &self.publisher), ("subscriber", &self.subscriber), ("relay", &self.relay)];
        for (role, part) in all {
            state.rss_kib.insert(role, rss_kib(part.id()));
            state.threads.extend(threads(part.id()).into_iter().map(|name| (role, name)));
        }
        state
    }

    /// The place of its processes.
    pub fn place(&self) -> &Place {
        &self.place
    }
}

impl State {
    /// The largest growth of a process, in KiB, and its name.
    pub fn grown_since(&self, before: &Self) -> (u64, &'static str) {
        let was = |role| before.rss_kib.get(role).copied().unwrap_or(0);
        let grown = self.rss_kib.iter().map(|(role, now)| (now.saturating_sub(was(role)), *role));
        grown.max().unwrap_or_default()
    }

    /// Threads of the node itself that existed before and are gone: those of channels come and go.
    pub fn died_since(&self, before: &Self) -> Vec<String> {
        let gone = before.threads.difference(&self.threads);
        gone.map(|(role, name)| format!("{name} of the {role}")).collect()
    }
}

fn fifo() -> Changes {
    Changes { sched: Change::Set(Policy::Fifo(FIFO).into()), ..Changes::default() }
}

fn socket_of(lab: &Lab, id: &str) -> Result<PathBuf> {
    let folder = lab.folder().join("run");
    let mut all = std::fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
    let found = all.find(|path| path.to_str().is_some_and(|path| path.ends_with(&format!(".{id}.sock"))));
    found.ok_or_else(|| Error::Failed(format!("no socket of node {id} in {}", folder.display())))
}

fn rss_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

fn threads(process: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

/// The role `attacked`: subscribers of the measured topic, one over each carrier, and of the lures.
pub(crate) fn attacked(mut orders: Orders) -> Result {
    let settings: Settings = orders.settings()?;
    let node = settings.node.open()?;
    let mut accounts = BTreeMap::new();
    let mut ports = Vec::new();
    for carrier in &settings.carriers {
        let account = Arc::new(Mutex::new(Arrived::with_room()));
        let (seen, size) = (account.clone(), settings.size);
        let builder = node.subscriber::<Raw>(&settings.topic).named(format!("{}/{carrier}", settings.name));
        let builder = builder.qos(settings.qos.clone()).carriers([carrier.clone()]);
        let note = move |sample: thalweg::Sample<'_, Raw>| {
            seen.lock().unwrap_or_else(PoisonError::into_inner).note(&sample, size);
        };
        ports.push(builder.callback(note)?);
        accounts.insert(carrier.clone(), account);
    }
    let _lures = lures(&node, &settings.qos)?;
    orders.say(&json!({"node": node.id()}))?;
    while let Some(order) = orders.wait::<Order>()? {
        let hold = |account: &Arc<Mutex<Arrived>>| account.lock().unwrap_or_else(PoisonError::into_inner).last;
        match order {
            Order::Connected { count } => {
                node.wait_until(LONG / 3, || ports.iter().filter(|p| p.connected() > 0).count() >= count);
                let carriers = ports.iter().flat_map(|p| p.channels().into_iter().map(|c| c.carrier));
                orders.say(&json!({"carriers": carriers.collect::<Vec<_>>()}))?;
            }
            Order::Until { seq, ms } => {
                let until = Instant::now() + Duration::from_millis(ms);
                while accounts.values().any(|a| hold(a) < seq) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
                orders.say(&json!({"ok": accounts.values().all(|a| hold(a) >= seq)}))?;
            }
            Order::Report => {
                let take = |a: &Arc<Mutex<Arrived>>| a.lock().unwrap_or_else(PoisonError::into_inner).take();
                let all: BTreeMap<_, _> = accounts.iter().map(|(carrier, a)| (carrier, take(a))).collect();
                orders.say(&all)?;
            }
            Order::Set { other, changes } => {
                let open = ports.iter().filter(|port| port.connected() > 0);
                open.map(|port| node.set_priority(port.name(), &other, &changes))
                    .collect::<thalweg::Result<Vec<_>>>()?;
                orders.say(&json!({"ok": true}))?;
            }
            order => return Err(Error::Usage(format!("who is attacked does not {order:?}"))),
        }
    }
    Ok(())
}

/// Subscribers of topics that only a false peer publishes.
fn lures(node: &Node, qos: &Qos) -> Result<Vec<Subscriber<Untyped>>> {
    let open = |topic: &str| {
        let name = topic.rsplit('/').next().unwrap_or_default();
        let carrier = if CARRIERS.contains(&name) { name } else { "tcp" };
        let key = if name == "keyed" { vec!["z".to_owned()] } else { Vec::new() };
        let place = match name {
            "relayed" => qos::Place::Relay("attacker".into()),
            "pictured" => qos::Place::Subscriber,
            _ => qos::Place::Publisher,
        };
        let every = if name == "relayed" { 2 } else { 1 };
        let qos = Qos { key, reliability: Reliability::Reliable, ..qos.clone() };
        let builder = node.subscriber::<Untyped>(topic).named(format!("/lured/{name}")).qos(qos);
        let builder = builder.carriers([carrier]).every(every).proxy(place);
        // Its picture is made smaller here, for any claim of the publisher.
        let builder = if name == "pictured" { builder.picture(320, 240) } else { builder };
        builder.callback(|_| {})
    };
    Ok(LURES.iter().map(|topic| open(topic)).collect::<thalweg::Result<_>>()?)
}
