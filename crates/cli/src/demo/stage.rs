//! The load against the robot, and the priorities that are set on its live channels: on a narrow link where one can
//! be built, else on busy processors.

use super::Place;
use super::link::{Link, RATE};
use super::robot::{BESIDE, BUSY, LINES, URGENT};
use crate::failure::{Failure, Result};
use crate::session::Reach;
use serde::Serialize;
use std::time::{Duration, Instant};
use thalweg::Node;
use thalweg::admin::{EndReport, Reply, Request};
use thalweg::control::NodeId;

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

/// Time in which nodes have to be found, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

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
