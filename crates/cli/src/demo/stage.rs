//! The load against the robot, and the priorities that are set on its live channels: on a narrow link where one can
//! be built, else on busy processors.
//!
//! The narrow link is between two network namespaces, with a file transfer beside the robot's channels. It is built with
//! the lab's tools, and removed when dropped.

use super::robot::{BESIDE, BUSY, LINES, URGENT, parts};
use super::{PART_OF_LAB, Place};
use crate::failure::{Failure, Result};
use crate::participant::Reach;
use lab::load::{Generator, Load, Pattern, Protocol, Sink, Traffic};
use lab::part::Place as At;
use lab::topology::{DEVICE, Queue, Topology, Wire};
use lab::{Lab, Options, Program};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg::admin::{EndReport, Reply, Request};
use thalweg::control::NodeId;
use thalweg::{Network, Node};

/// The place of the robot.
pub(super) enum Stage {
    /// Two hosts and a narrow link, which a file transfer fills.
    Link(Box<Link>),
    /// This host, whose processors one of the robot's processes fills, with the reach of its nodes.
    Processors(Reach),
}

/// A change of priority that was attempted while the robot ran.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    /// The command, as a person would type it.
    pub command: String,
    /// `true` if it succeeded.
    pub done: bool,
    /// The reason of a failure, and the remedy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// Reports of both ends.
    pub ends: Vec<EndReport>,
}

impl Stage {
    /// The link if it can be built; else the processors, and the reason.
    pub(super) fn build(without_root: bool, reach: &Reach) -> Result<(Self, Option<String>)> {
        let processors = |why: &str| Ok((Stage::Processors(reach.clone()), Some(why.to_owned())));
        if without_root {
            return processors("--without-root was given");
        }
        if reach.beyond() {
            return processors("the robot is to reach other hosts by this one's addresses");
        }
        match Link::build() {
            Ok(link) => Ok((Stage::Link(Box::new(link)), None)),
            Err(lab::Error::System(why)) => processors(&why),
            Err(error) => Err(error.into()),
        }
    }

    /// The name in results.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Stage::Link(_) => "link",
            Stage::Processors(_) => "processors",
        }
    }

    /// A description of the load.
    pub(super) fn about(&self) -> String {
        match self {
            Stage::Link(_) => {
                format!("{BESIDE} commands the robot over {} Mbit/s; a file transfer fills the link", RATE / 1_000_000)
            }
            Stage::Processors(_) => format!("{BUSY} computes on twice as many threads as there are processors"),
        }
    }

    /// The command that shows the robot in another terminal.
    pub(super) fn watch(&self, realm: &str) -> String {
        let place = self.near(realm);
        let enter = place.namespace.iter().map(|name| format!("ip netns exec {name} ")).collect::<String>();
        let reach = place.reach.arguments().into_iter().map(|word| format!(" {word}")).collect::<String>();
        format!("{enter}thalweg top --realm {realm}{reach}")
    }

    /// The place of an administrator.
    fn near(&self, realm: &str) -> Place {
        match self {
            Stage::Link(link) => link.near(BESIDE, realm),
            Stage::Processors(_) => self.place(BESIDE, realm),
        }
    }

    /// The place of a process of the robot.
    pub(super) fn place(&self, part: &str, realm: &str) -> Place {
        match self {
            Stage::Link(link) => link.place(part, realm),
            Stage::Processors(reach) => Place { realm: realm.to_owned(), namespace: None, reach: reach.clone() },
        }
    }

    /// Starts the load that is not one of the robot's processes.
    pub(super) fn begin(&mut self) -> Result {
        let Stage::Link(link) = self else { return Ok(()) };
        Ok(link.begin()?)
    }

    /// Ends it, and returns the transfer's Mbit/s.
    pub(super) fn end(&mut self) -> Result<Option<f64>> {
        let Stage::Link(link) = self else { return Ok(None) };
        Ok(Some(link.end()?))
    }

    /// Sets priorities on the live channels: the first setting that is allowed. `thalweg set` does the same from any
    /// shell.
    pub(super) fn help(&self, realm: &str) -> Result<Vec<Step>> {
        let busy = LINES.iter().find(|line| line.from == BUSY).map_or(URGENT[0], |line| line.publisher);
        let attempts = match self {
            Stage::Link(_) => [(URGENT, "class=high sched=fifo:30"), (URGENT, "class=high")],
            // A process is addressed by its port's name, twice.
            Stage::Processors(_) => [(URGENT, "sched=fifo:30"), ([busy, busy], "sched=other:19")],
        };
        let place = self.near(realm);
        // On a thread of its own, which may have to enter another namespace.
        let attempt = || {
            place.enter()?;
            let node = place.open("administrator")?;
            let mut steps = Vec::new();
            for (ends, words) in attempts {
                steps.push(set(&node, ends, words)?);
                if steps.last().is_some_and(|step| step.done) {
                    break;
                }
            }
            Ok(steps)
        };
        std::thread::scope(|scope| scope.spawn(attempt).join())
            .unwrap_or_else(|_| Err(Failure::No("the administrator's thread failed".to_owned())))
    }
}

/// Sets the words at both ends.
fn set(node: &Node, [publisher, subscriber]: [&str; 2], words: &str) -> Result<Step> {
    let changes: qos::priority::Changes = words.parse().map_err(|e| Failure::Usage(format!("{words}: {e}")))?;
    let command = format!("thalweg set {publisher} {subscriber} {words}");
    let mut step = Step { command, done: true, because: String::new(), ends: Vec::new() };
    let both = [(publisher, subscriber), (subscriber, publisher)];
    for (port, other) in &both[..if publisher == subscriber { 1 } else { 2 }] {
        let request = Request::Set { port: (*port).into(), other: (*other).into(), changes: changes.clone() };
        match node.ask(owner(node, port)?, &request, PATIENCE) {
            Ok(Reply::Settings(ends)) => step.ends.extend(ends),
            Ok(other) => (step.done, step.because) = (false, format!("{other:?}")),
            Err(error) => (step.done, step.because) = (false, error.to_string()),
        }
        if !step.done {
            break;
        }
    }
    Ok(step)
}

/// The node that has a port.
fn owner(node: &Node, port: &str) -> Result<NodeId> {
    let until = Instant::now() + PATIENCE;
    loop {
        let nodes = node.nodes();
        let found = nodes.iter().find(|document| document.ports.values().any(|info| info.name == port));
        if let Some(document) = found {
            return Ok(document.node);
        }
        if Instant::now() > until {
            return Err(Failure::No(format!("no port {port} was found within {} s", PATIENCE.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The two hosts, and the transfer from the first to the second.
pub(super) struct Link {
    generator: Generator,
    sink: Sink,
    since: Traffic,
    addresses: PathBuf,
    topology: Topology,
    lab: Lab,
}

impl Link {
    /// Builds the link, without a transfer.
    ///
    /// # Errors
    /// The reason why it cannot be built here: no root, no iproute2.
    pub(super) fn build() -> lab::Result<Self> {
        let program = Program::this(&[PART_OF_LAB])?;
        // A request to end is checked between phases; until then every call succeeds.
        let lab = Lab::open(Options::default(), lab::Stop::default(), program, |_| {})?;
        let topology = Topology::link(&lab, &[])?;
        let wire = Wire { rate: RATE, limit: QUEUE, queue: Queue::Classes };
        HOSTS.into_iter().try_for_each(|host| wire.install(topology.host(host), DEVICE))?;
        let addresses = lab.folder().join("robot.toml");
        let all = parts().into_iter().map(|part| format!("[[node]]\naddress = \"{}\"\n", address(part)));
        std::fs::write(&addresses, all.collect::<String>())?;
        let [beside, robot] = HOSTS.map(|host| At::at(topology.host(host), &[]));
        let mut sink = Sink::new(&lab, robot, Topology::address_of(HOSTS[1]))?;
        let generator = Generator::new(&lab, beside, sink.target)?;
        let since = sink.count(&lab)?;
        Ok(Self { generator, sink, since, addresses, topology, lab })
    }

    /// The place of a process of the robot.
    pub(super) fn place(&self, part: &str, realm: &str) -> Place {
        let mut place = self.near(part, realm);
        place.reach.listen.push(address(part));
        place.reach.admin_from.push(Network::around(address(part).ip())); // the robot's two hosts are one administration's
        place
    }

    /// The host of a process of the robot, without an address of its own.
    pub(super) fn near(&self, part: &str, realm: &str) -> Place {
        let namespace = Some(self.topology.host(host(part)).name().to_owned());
        let reach = Reach { discovery: Some(self.addresses.clone()), ..Reach::default() };
        Place { realm: realm.to_owned(), namespace, reach }
    }

    /// Starts the transfer at full speed.
    ///
    /// # Errors
    /// A process of the transfer failed.
    pub(super) fn begin(&mut self) -> lab::Result {
        self.since = self.sink.count(&self.lab)?;
        let load = Load { protocol: Protocol::Tcp, rate: 0, pattern: Pattern::Greedy(STREAMS), gso: false, seed: 1 };
        self.generator.start(&self.lab, &load)
    }

    /// Ends the transfer, and returns its Mbit/s.
    ///
    /// # Errors
    /// As [`Link::begin`].
    pub(super) fn end(&mut self) -> lab::Result<f64> {
        let rate = self.sink.count(&self.lab)?.mbit_since(&self.since);
        self.generator.stop(&self.lab)?;
        Ok(rate)
    }
}

fn host(part: &str) -> u8 {
    HOSTS[usize::from(part != BESIDE)]
}

/// Address of a process's node: any port, but each its own.
fn address(part: &str) -> SocketAddr {
    let number = parts().iter().position(|name| *name == part).unwrap_or(0) as u16;
    SocketAddr::new(Topology::address_of(host(part)), 7400 + number)
}

/// The load of a busy process: a thread that computes until it is dropped.
pub(super) struct Work {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Work {
    /// Two threads per processor.
    pub(super) fn start() -> Result<Vec<Self>> {
        let count = std::thread::available_parallelism().map_or(1, usize::from) * 2;
        (0..count).map(|_| Self::one()).collect()
    }

    fn one() -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let compute = move || {
            while !asked.load(Relaxed) {
                std::hint::spin_loop();
            }
        };
        Ok(Self { stop, thread: Some(linux::thread::spawn(linux::thread::Settings::named("compute"), compute)?) })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Time in which nodes have to be found, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rate of the link in each direction, in bit/s.
const RATE: u64 = 20_000_000;
/// Queue length in packets, as in many routers: 60 ms.
const QUEUE: u32 = 100;
/// Connections of the transfer: one alone cannot fill the queue of its host.
const STREAMS: u32 = 8;
/// Numbers of the hosts: the one beside the robot, and the robot's.
const HOSTS: [u8; 2] = [1, 2];
