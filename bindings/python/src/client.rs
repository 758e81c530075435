//! Nodes as Python holds them.

use crate::error::{KernelError, PeerError, UsageError, raised};
use crate::handle::{Handle, check_may_open, lock};
use crate::options::{NodeOptions, timeout};
use crate::process::away;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::EventReader;
use thalweg::admin::EndReport;
use thalweg::admin::set::{self, Ends, Unset, Wish};
use thalweg::control::{Direction, NodeId};

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
    /// Its name.
    name: String,
    /// `publisher` or `subscriber`.
    direction: &'static str,
    /// Its topic, or pattern of topics.
    topic: String,
    /// The name of its type, `*` for any.
    r#type: String,
    /// The name of its node.
    node: String,
    /// The name of its host.
    host: String,
    /// The number of its process there.
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
        let wish = Wish::read(words.iter().map(String::as_str)).map_err(|wrong| raised(py, wrong))?;
        if wish.is_empty() {
            return Err(UsageError::new_err("nothing is set: add class_=\"high\", sched=\"fifo:30\" or the like"));
        }
        let node = self.handle.node()?;
        let change = || set::set(&node, &publisher, Some(&subscriber), Ends::Both, &wish);
        let reports = away(py, change)?.map_err(|unset| failed(py, unset))?;
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

/// The exception of a channel that was not changed.
fn failed(py: Python<'_>, unset: Unset) -> PyErr {
    let text = unset.to_string();
    match unset {
        Unset::Refused { because: thalweg::Error::Refused(_), .. } => KernelError::new_err(text),
        Unset::Unknown(_) | Unset::Direction(..) | Unset::Refused { because: thalweg::Error::Peer(_), .. } => {
            PeerError::new_err(text)
        }
        Unset::Refused { because, .. } | Unset::Failed(because) => raised(py, because),
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
