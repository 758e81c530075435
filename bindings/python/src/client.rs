//! Nodes as Python holds them.

use crate::error::{KernelError, PeerError, UsageError, raised};
use crate::handle::{Handle, check_may_open, lock};
use crate::options::{NodeOptions, changes, timeout};
use crate::process::away;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::EventReader;
use thalweg::admin::{EndReport, Reply, Request};
use thalweg::control::{Direction, NodeId};
use thalweg::qos::priority::Changes;

/// Time that a node may take to answer.
const ANSWER: Duration = Duration::from_secs(3);

/// The interval at which a wait for events looks whether the node was closed, or a signal came.
const LOOK: Duration = Duration::from_millis(50);

/// A node; `thalweg.Node` in Python adds the words of its arguments.
#[pyclass(frozen, subclass, module = "thalweg._thalweg")]
pub(crate) struct Node {
    handle: Arc<Handle>,
    name: String,
    id: NodeId,
    events: Mutex<EventReader>,
}

/// A port that is known to a node.
#[pyclass(frozen, get_all, module = "thalweg")]
pub(crate) struct Port {
    name: String,
    /// `publisher` or `subscriber`.
    direction: &'static str,
    topic: String,
    /// The name of its type, `*` for any.
    r#type: String,
    /// The name of its node.
    node: String,
    host: String,
    pid: u32,
}

#[pymethods]
impl Port {
    fn __repr__(&self) -> String {
        let Self { name, direction, topic, r#type, node, .. } = self;
        format!("<{direction} {name} of {topic} ({}) at node {node}>", r#type)
    }
}

impl Node {
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }
}

#[pymethods]
impl Node {
    #[new]
    fn open(py: Python<'_>, options: NodeOptions) -> PyResult<Self> {
        check_may_open()?;
        let settings = options.settings()?;
        let node = away(py, || thalweg::Node::with_settings(settings))?.map_err(|error| raised(py, error))?;
        let (name, id, events) = (node.name().to_owned(), node.id(), Mutex::new(node.events()));
        Ok(Self { name, id, events, handle: Handle::new(node) })
    }

    /// The node's name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The node's id, a number of 64 bit.
    #[getter]
    fn id(&self) -> u64 {
        self.id.0
    }

    /// All ports that are known now, of this node and others.
    fn list(&self, py: Python<'_>) -> PyResult<Vec<Port>> {
        let node = self.handle.node()?;
        let documents = away(py, || node.nodes())?;
        let ports = documents.into_iter().flat_map(|document| {
            let (node, host, pid) = (document.name, document.host_name, document.pid);
            document.ports.into_values().map(move |port| Port {
                name: port.name,
                direction: match port.direction {
                    Direction::Publisher => "publisher",
                    Direction::Subscriber => "subscriber",
                },
                topic: port.topic,
                r#type: port.message.name,
                node: node.clone(),
                host: host.clone(),
                pid,
            })
        });
        Ok(ports.collect())
    }

    /// The node's next event as a text: a match, a mismatch with its reason, losses, warnings. `None`: the time has passed.
    #[pyo3(signature = (timeout=None))]
    #[allow(clippy::disallowed_methods)] // a user waits
    fn wait_event(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        let until = Instant::now() + self::timeout(timeout)?;
        loop {
            self.handle.node()?; // an error if it was closed meanwhile
            let left = until.saturating_duration_since(Instant::now());
            if let Some(event) = away(py, || lock(&self.events).wait(left.min(LOOK)))? {
                return Ok(Some(event.to_string()));
            }
            if left.is_zero() {
                return Ok(None);
            }
            py.check_signals()?;
        }
    }

    /// Changes the priority of the channel between two ports, at both ends or at none. The text says what it is now, and its effect.
    fn change(&self, py: Python<'_>, publisher: String, subscriber: String, words: Vec<String>) -> PyResult<String> {
        let changes = changes(&words)?;
        if changes.is_empty() {
            return Err(UsageError::new_err("nothing is set: add class_=\"high\", sched=\"fifo:30\" or the like"));
        }
        let node = self.handle.node()?;
        let reports =
            away(py, || set(&node, [&publisher, &subscriber], &changes))?.map_err(|failed| failed.raised(py))?;
        Ok(reports.iter().map(effect).collect::<Vec<_>>().join("\n"))
    }

    /// Closes the node and its ports. Whoever waits for them is woken.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        away(py, || self.handle.close())
    }

    fn __repr__(&self) -> String {
        let state = if self.handle.node().is_ok() { "" } else { ", closed" };
        format!("<node {}{state}>", self.name)
    }
}

/// Why a channel's priority was not changed.
enum Failure {
    Unknown(String),
    Of(thalweg::Error, String),
}

impl Failure {
    fn raised(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Unknown(text) => PeerError::new_err(text),
            Self::Of(thalweg::Error::Refused(why), port) => KernelError::new_err(format!("at {port}: {why}")),
            Self::Of(thalweg::Error::Peer(why), port) => PeerError::new_err(format!("at {port}: {why}")),
            Self::Of(error, _) => raised(py, error),
        }
    }
}

/// Sets both ends of a channel. After a refusal the first end gets back what it had.
fn set(node: &thalweg::Node, ends: [&str; 2], changes: &Changes) -> Result<Vec<EndReport>, Failure> {
    let holders = [holder(node, ends[0], Direction::Publisher)?, holder(node, ends[1], Direction::Subscriber)?];
    let (mut reports, mut undo) = (Vec::new(), None);
    for (at, (port, other)) in [(ends[0], ends[1]), (ends[1], ends[0])].into_iter().enumerate() {
        let get = Request::Get { port: port.to_owned(), other: Some(other.to_owned()) };
        let before = asked(node, holders[at], &get).ok().and_then(|reports| reports.into_iter().next());
        let request = |changes: &Changes| Request::Set {
            port: port.to_owned(),
            other: other.to_owned(),
            changes: changes.clone(),
        };
        match asked(node, holders[at], &request(changes)) {
            Ok(found) => reports.extend(found),
            Err(error) => {
                // What cannot be set back either is told by `thalweg get`; the first failure is the one to mend.
                undo.map(|(holder, request)| asked(node, holder, &request));
                return Err(Failure::Of(error, port.to_owned()));
            }
        }
        let before = before.map(|report| report.asked).unwrap_or_default();
        undo = Some((holders[at], request(&changes.undone(&before))));
    }
    Ok(reports)
}

/// The node of the port with this name and direction.
fn holder(node: &thalweg::Node, name: &str, wanted: Direction) -> Result<NodeId, Failure> {
    let (holder, port) = node
        .holder(name)
        .ok_or_else(|| Failure::Unknown(format!("no port {name} is known: node.list() names those that are")))?;
    if port.direction == wanted {
        return Ok(holder);
    }
    let is = if wanted == Direction::Publisher { "subscriber" } else { "publisher" };
    Err(Failure::Unknown(format!("{name} is a {is}: say the publishing port first, then the subscribing one")))
}

fn asked(node: &thalweg::Node, holder: NodeId, request: &Request) -> thalweg::Result<Vec<EndReport>> {
    match node.ask(holder, request, ANSWER)? {
        Reply::Settings(reports) => Ok(reports),
        other => Err(thalweg::Error::Peer(format!("an answer that does not fit: {other:?}"))),
    }
}

/// The effect of a priority at one end.
fn effect(report: &EndReport) -> String {
    let answer = if report.effective { "yes" } else { "no" };
    let note = if report.note.is_empty() { String::new() } else { format!("; {}", report.note) };
    let thread = match (report.tid, report.policy.as_str(), report.priority) {
        (None, ..) => "no thread of its own".to_owned(),
        (Some(tid), policy @ ("fifo" | "rr"), priority) => format!("{policy} {priority}, thread {tid}"),
        (Some(tid), policy, _) => format!("{policy}, thread {tid}"),
    };
    format!("{}: {thread}; effective: {answer}, because {}{note}", report.end, report.because)
}
