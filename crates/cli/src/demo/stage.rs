//! What makes it hard for the robot, and what is set on its live channels to help: the link where that can be had, else
//! the processors.

use super::link::{Link, RATE};
use super::place::Place;
use super::robot::{BESIDE, BUSY, LINES, URGENT};
use crate::failure::{Failure, Result};
use crate::session::Reach;
use serde::Serialize;
use std::time::{Duration, Instant};
use thalweg::Node;
use thalweg::admin::{EndReport, Reply, Request};
use thalweg::control::NodeId;

/// Where the robot runs.
pub enum Stage {
    /// Two hosts and a narrow link, which a file transfer fills.
    Link(Box<Link>),
    /// This host, whose processors one of the robot's own processes fills; how nodes reach others.
    Processors(Reach),
}

/// A change of priority that was attempted while the robot ran.
#[derive(Debug, Serialize)]
pub struct Step {
    /// As a person would type it.
    pub command: String,
    /// It was done.
    pub done: bool,
    /// Why not, and the remedy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// What both ends say of it.
    pub ends: Vec<EndReport>,
}

impl Stage {
    /// The link if it can be had; else the processors, and why.
    pub fn build(without_root: bool, reach: &Reach) -> Result<(Self, Option<String>)> {
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

    /// As results name it.
    pub const fn name(&self) -> &'static str {
        match self {
            Stage::Link(_) => "link",
            Stage::Processors(_) => "processors",
        }
    }

    /// What makes it hard.
    pub fn about(&self) -> String {
        match self {
            Stage::Link(_) => {
                format!("{BESIDE} commands the robot over {} Mbit/s; a file transfer fills the link", RATE / 1_000_000)
            }
            Stage::Processors(_) => format!("{BUSY} computes on twice as many threads as there are processors"),
        }
    }

    /// What shows the robot at work in another terminal.
    pub fn watch(&self, realm: &str) -> String {
        let place = self.near(realm);
        let enter = place.namespace.iter().map(|name| format!("ip netns exec {name} ")).collect::<String>();
        let reach = place.reach.arguments().into_iter().map(|word| format!(" {word}")).collect::<String>();
        format!("{enter}thalweg top --realm {realm}{reach}")
    }

    /// Where an administrator is.
    fn near(&self, realm: &str) -> Place {
        match self {
            Stage::Link(link) => link.near(BESIDE, realm),
            Stage::Processors(_) => self.place(BESIDE, realm),
        }
    }

    /// Where a process of the robot runs.
    pub fn place(&self, part: &str, realm: &str) -> Place {
        match self {
            Stage::Link(link) => link.place(part, realm),
            Stage::Processors(reach) => Place { realm: realm.to_owned(), namespace: None, reach: reach.clone() },
        }
    }

    /// What is not the robot's own begins.
    pub fn begin(&mut self) -> Result {
        let Stage::Link(link) = self else { return Ok(()) };
        Ok(link.begin()?)
    }

    /// It ends; Mbit/s of the transfer.
    pub fn end(&mut self) -> Result<Option<f64>> {
        let Stage::Link(link) = self else { return Ok(None) };
        Ok(Some(link.end()?))
    }

    /// Sets priorities on the live channels: the first that is allowed. `thalweg set` does the same from any shell.
    pub fn help(&self, realm: &str) -> Result<Vec<Step>> {
        let busy = LINES.iter().find(|line| line.from == BUSY).map_or(URGENT[0], |line| line.publisher);
        let attempts = match self {
            Stage::Link(_) => [(URGENT, "class=high sched=fifo:30"), (URGENT, "class=high")],
            // The process of a port: its own name twice.
            Stage::Processors(_) => [(URGENT, "sched=fifo:30"), ([busy, busy], "sched=other:19")],
        };
        let place = self.near(realm);
        // On a thread of its own: it may have to go to another namespace.
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

/// How long nodes may take to be found, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks both ends.
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
