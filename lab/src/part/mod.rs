//! Processes of an experiment: the program itself, started again in a host's namespace, controlled by lines of JSON.
//!
//! The first line says which role it plays, where and on which processors; the rest is between the experiment and the
//! role. Standard input is its life line: when that ends, so does the part. To add a role: a function that takes
//! [`Orders`], and its line in [`crate::run::ROLES`].
//!
//! | module | roles |
//! |---|---|
//! | [`stream`] | `publisher` and `subscriber`: a flow under test |
//! | [`member`] | `member`: some streams out, others in |
//! | [`threads`], `picture` | a member's threads as the kernel has them; its pictures, and their scaler |
//! | [`pull`] | `keeper` and `puller` of a history |
//!
//! The roles `hog`, `relay` (only a node) and `echo` are here.

pub mod member;
pub(crate) mod picture;
mod process;
pub mod pull;
pub mod stream;
pub mod threads;

pub use process::{Orders, Part, Place};

use crate::error::{Error, Result};
use crate::lab::{Feature, Lab};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use thalweg::admin::{Reply, Request};
use thalweg::stages::{End, Figures, StagesReport};
use thalweg::{DiscoverySource, Network, Node, RelayLimits, Settings};

/// Longest wait of an experiment for a part.
pub const LONG: Duration = Duration::from_secs(40);
/// Ratio of a proxy that costs as much as any but drops almost no samples: it passes all but one of this many. (A proxy that
/// passes all samples is never made at the publisher or the subscriber.)
pub(crate) const ALL_BUT_ONE_OF: u32 = 1 << 24;

/// A role: takes its settings and orders, and ends when they do.
pub type Role = fn(Orders) -> Result;

/// The roles of this room.
pub const ROLES: &[(&str, Role)] = &[
    ("hog", hog),
    ("relay", relay),
    ("member", member::member),
    ("publisher", stream::publisher),
    ("subscriber", stream::subscriber),
    ("keeper", pull::keeper),
    ("puller", pull::puller),
    ("echo", echo),
];

/// Plays the part that standard input asks for, one of these roles.
///
/// # Errors
/// As [`crate::run::play`].
pub fn play(roles: &[&[(&str, Role)]]) -> Result {
    let (place, role, orders) = process::listen()?;
    let played = enter(&place).and_then(|()| find(roles, &role)?(orders));
    if let Err(error) = &played {
        process::say_failed(error);
    }
    played
}

/// Prints an error of a thread that is not waited for.
pub(crate) fn tell(error: &Error) {
    let _ = writeln!(std::io::stderr().lock(), "{error}");
}

fn find(roles: &[&[(&str, Role)]], name: &str) -> Result<Role> {
    let found = roles.iter().copied().flatten().find(|(role, _)| *role == name).map(|(_, play)| *play);
    found.ok_or_else(|| Error::Usage(format!("role {name:?} is none of the lab's")))
}

/// Before any other thread is started, so that all are where the first one is.
fn enter(place: &Place) -> Result {
    if let Some(namespace) = &place.namespace {
        linux::namespace::Namespace::named(namespace)
            .and_then(|namespace| namespace.enter())
            .map_err(|e| Error::system(&format!("namespace {namespace}"), &e, "run it as root"))?;
    }
    if !place.processors.is_empty() {
        linux::thread::pin(&place.processors)
            .map_err(|e| Error::system(&format!("processors {:?}", place.processors), &e, "name others"))?;
    }
    if place.nice != 0 {
        rustix::process::setpriority_process(None, place.nice)
            .map_err(|e| Error::system(&format!("nice {}", place.nice), &e.into(), "run it as root"))?;
    }
    Ok(())
}

/// The smallest role: repeats its settings and orders.
fn echo(mut orders: Orders) -> Result {
    orders.say(&orders.settings::<serde_json::Value>()?)?;
    while let Some(order) = orders.wait::<serde_json::Value>()? {
        orders.say(&order)?;
    }
    Ok(())
}

/// Settings of a part's node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSettings {
    /// Its name.
    pub name: String,
    /// Nodes of different realms do not see each other.
    pub realm: String,
    /// Addresses it listens on besides loopback.
    pub listen: Vec<SocketAddr>,
    /// File with the addresses of all nodes; `None`: all are on one host.
    pub addresses: Option<PathBuf>,
    /// Hosts proxies for others.
    pub relay: bool,
    /// A node that must be known before it has ports: a proxy that is asked for before its relay is known begins at the
    /// publisher, and is moved only when samples flow.
    pub after: Option<String>,
    /// Publishers of the role `member` name the carrier of each stream: relays then take the stream by that, too.
    pub names_carriers: bool,
    /// A feature that is left out.
    pub without: Option<Feature>,
}

impl NodeSettings {
    /// A node of this name that sees the nodes of its own host.
    pub fn local(name: &str, realm: &str) -> Self {
        Self { name: name.to_owned(), realm: realm.to_owned(), ..Self::default() }
    }

    /// As [`NodeSettings::local`], listening at one of `all` addresses, which it finds in a file of the lab's.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn at(lab: &Lab, name: &str, realm: &str, listen: SocketAddr, all: &[SocketAddr]) -> Result<Self> {
        let file = lab.folder().join(format!("{realm}.toml"));
        let text: String = all.iter().map(|address| format!("[[node]]\naddress = \"{address}\"\n")).collect();
        std::fs::write(&file, text)?;
        Ok(Self {
            listen: vec![listen],
            addresses: Some(file),
            without: lab.options.without,
            ..Self::local(name, realm)
        })
    }

    /// Opens no ports before it knows the node of this name.
    pub fn after(self, other: &str) -> Self {
        Self { after: Some(other.to_owned()), ..self }
    }

    /// Opens it.
    ///
    /// # Errors
    /// The node's; [`Error::Failed`] if the one that must be known before is not.
    pub fn open(&self) -> Result<Node> {
        let discovery = self.addresses.clone().map_or(DiscoverySource::Automatic, DiscoverySource::Static);
        let (name, realm, listen) = (self.name.clone(), self.realm.clone(), self.listen.clone());
        let relay = self.relay.then(RelayLimits::default);
        // The hosts of a lab belong to one administration and are not reachable from outside.
        let admin_from = listen.iter().map(|address| Network::around(address.ip())).collect();
        let scalers = picture::scalers();
        let settings = Settings { name, realm, listen, discovery, relay, admin_from, scalers, ..Settings::default() };
        let node = Node::with_settings(settings)?;
        match &self.after {
            Some(other) if !node.wait_until(PATIENCE, || node.nodes().iter().any(|known| known.name == *other)) => {
                Err(Error::Failed(format!("{} did not hear of {other} within {PATIENCE:?}", self.name)))
            }
            _ => Ok(node),
        }
    }
}

/// The role `relay`: only a node, which hosts proxies for others until it ends.
fn relay(mut orders: Orders) -> Result {
    let settings = NodeSettings { relay: true, ..orders.settings()? };
    let node = settings.open()?;
    orders.say(&json!({"node": node.id()}))?;
    while orders.wait::<Value>()?.is_some() {}
    Ok(())
}

/// The stages of a node's channels of one topic.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Channel by channel.
    pub ends: Vec<StagesReport>,
}

impl Measured {
    /// Takes the times measured since the last call, and starts from zero.
    ///
    /// # Errors
    /// The node does not answer.
    pub fn take(node: &Node, topic: &str) -> Result<Self> {
        let ends = ask(node, &Request::Stages { topic: topic.to_owned() })?;
        ask(node, &Request::Measure { topic: topic.to_owned(), every: EVERY })?;
        Ok(Self { ends })
    }

    /// Mean of a stage at one kind of end, in microseconds; not a number where none was measured.
    pub fn mean_us(&self, end: End, stage: &str) -> f64 {
        self.of(end, stage).map_or(f64::NAN, |figures| figures.mean_us)
    }

    /// Its median.
    pub fn p50_us(&self, end: End, stage: &str) -> f64 {
        self.of(end, stage).map_or(f64::NAN, |figures| figures.p50_us)
    }

    /// Its longest time.
    pub fn max_us(&self, end: End, stage: &str) -> f64 {
        self.of(end, stage).map_or(f64::NAN, |figures| figures.max_us)
    }

    fn of(&self, end: End, stage: &str) -> Option<&Figures> {
        self.ends.iter().filter(|report| report.end == end).find_map(|report| report.stages_us.get(stage))
    }
}

fn ask(node: &Node, request: &Request) -> Result<Vec<StagesReport>> {
    match node.ask(node.id(), request, ANSWER)? {
        Reply::Stages(reports) => Ok(reports),
        other => Err(Error::Failed(format!("asked for stages, and got {other:?}"))),
    }
}

/// The processor of the measured parts, and the one of loads and lines: the same if there is only one.
///
/// # Errors
/// The kernel's.
pub(crate) fn processors() -> Result<(usize, usize)> {
    let all = linux::sched::read(0)?.affinity;
    let first = all.first().ok_or_else(|| Error::System("no processor may be used".into()))?;
    Ok((usize::from(*first), usize::from(*all.get(1).unwrap_or(first))))
}

/// The note on a processor that is kept awake.
pub const AWAKE: &str = "A process of policy SCHED_IDLE keeps the processor awake.";

/// The priority of a hog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hog {
    /// At ordinary priority: competes with others for the processor.
    Ordinary,
    /// At idle priority: keeps the processor awake. A sleeping processor takes longer to react, above all a virtual
    /// one that the machine below gives to others meanwhile.
    Idle,
}

impl Hog {
    /// Starts one on a processor; it ends when the part is dropped.
    ///
    /// # Errors
    /// As [`Part::start`].
    pub fn start(self, lab: &Lab, processor: usize) -> Result<Part> {
        let mut part = Part::start(lab, Place::here(&[processor]), "hog", &self)?;
        part.hear::<Value>(lab, LONG)?;
        Ok(part)
    }
}

/// The role `hog`: uses all of a processor until it ends.
fn hog(mut orders: Orders) -> Result {
    let how: Hog = orders.settings()?;
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let thread = std::thread::Builder::new().name("hog".into()).spawn(move || -> Result {
        if how == Hog::Idle {
            linux::sched::set_idle(0).map_err(|e| Error::system("policy idle", &e, "run it as another user"))?;
        }
        let mut count = 0_u64;
        while !asked.load(Relaxed) {
            // Not `spin_loop`: a virtual processor that seems to wait for a lock is taken off its real one.
            count = std::hint::black_box(count.wrapping_mul(3) + 1);
        }
        Ok(())
    })?;
    orders.say(&json!({"hog": true}))?;
    // Orders come by the thread that reads them; this one looks for the end of the pipe.
    while !thread.is_finished() && !matches!(orders.wait_within::<Value>(Duration::from_secs(1))?, Some(None)) {}
    stop.store(true, Relaxed);
    thread.join().unwrap_or(Ok(()))
}

/// Longest wait of a part. An experiment waits longer ([`LONG`]), so that it hears the part's own error.
const PATIENCE: Duration = Duration::from_secs(30);
/// Every sample is measured: experiments measure little, and want all of it.
const EVERY: u32 = 1;
const ANSWER: Duration = Duration::from_secs(5);
