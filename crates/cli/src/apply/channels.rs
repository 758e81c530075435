//! Priorities of channels, set at both ends through the control plane, with what undoes them on disk first.

use super::host_file::Channel;
use crate::failure::{Failure, Result};
use crate::output::tell;
use crate::session::Session;
use qos::priority::{Change, Changes, PrioritySettings};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thalweg::admin::{EndReport, Reply, Request};
use thalweg::control::{Document, NodeId};

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// What takes one end of a channel back.
#[derive(Debug, Serialize, Deserialize)]
struct Former {
    port: String,
    other: String,
    changes: Changes,
}

/// Priorities that were set; taken back when dropped, unless kept.
pub struct Applied<'a> {
    session: &'a Session,
    file: PathBuf,
    former: Vec<Former>,
    kept: bool,
    /// What each end says afterwards.
    pub ends: Vec<EndReport>,
}

/// Checks that all ports are there.
///
/// # Errors
/// The first that is not.
pub fn check(nodes: &[Document], channels: &[(usize, Channel)]) -> Result {
    let mut ports = channels.iter().flat_map(|(_, channel)| [&channel.publisher, &channel.subscriber]);
    ports.find(|port| node_of(nodes, port).is_none()).map_or(Ok(()), |port| Err(unknown(port)))
}

/// Sets the priorities of all channels, or of none.
///
/// # Errors
/// A port that nobody has, or what a node says; what was set is taken back.
pub fn apply<'a>(session: &'a Session, channels: &[(usize, Channel)], directory: &Path) -> Result<Applied<'a>> {
    let nodes = session.others();
    take_back(session, &nodes, directory)?;
    let mut applied = Applied { session, file: journal(directory), former: Vec::new(), kept: false, ends: Vec::new() };
    for (_, channel) in channels {
        for (port, other) in [(&channel.publisher, &channel.subscriber), (&channel.subscriber, &channel.publisher)] {
            applied.set(&nodes, port, other, &channel.changes)?;
        }
    }
    Ok(applied)
}

impl Applied<'_> {
    fn set(&mut self, nodes: &[Document], port: &str, other: &str, changes: &Changes) -> Result {
        let node = node_of(nodes, port).ok_or_else(|| unknown(port))?;
        let (port, other) = (port.to_owned(), other.to_owned());
        let get = Request::Get { port: port.clone(), other: Some(other.clone()) };
        let before = ends(self.session.node.ask(node, &get, PATIENCE)?).into_iter().next().unwrap_or_default();
        self.former.push(Former { port: port.clone(), other: other.clone(), changes: undo(changes, &before.asked) });
        save(&self.file, &self.former)?;
        let set = Request::Set { port, other, changes: changes.clone() };
        self.ends.extend(ends(self.session.node.ask(node, &set, PATIENCE)?));
        Ok(())
    }

    /// Leaves the priorities until `thalweg restore`.
    pub fn keep(mut self) -> Vec<EndReport> {
        self.kept = true;
        std::mem::take(&mut self.ends)
    }
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        if !self.kept {
            let nodes = self.session.others();
            self.former.drain(..).rev().for_each(|former| say(former.take_back(self.session, &nodes)));
            let _ = std::fs::remove_file(&self.file);
        }
    }
}

/// Takes back what an earlier `apply` set. Gives what became of each end.
///
/// # Errors
/// When the file that says it cannot be read.
pub fn take_back(session: &Session, nodes: &[Document], directory: &Path) -> Result<Vec<String>> {
    let file = journal(directory);
    let former: Vec<Former> = match std::fs::read(&file) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| unusable(&file, &e.into()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unusable(&file, &error)),
    };
    let told = former.into_iter().rev().map(|former| former.take_back(session, nodes)).collect();
    std::fs::remove_file(&file).map_err(|e| unusable(&file, &e))?;
    Ok(told)
}

/// Whether an earlier `apply` set priorities.
pub fn are_applied(directory: &Path) -> bool {
    journal(directory).exists()
}

impl Former {
    fn take_back(self, session: &Session, nodes: &[Document]) -> String {
        let Self { port, other, changes } = self;
        let Some(node) = node_of(nodes, &port) else { return format!("{port}: gone, and its priority with it") };
        let set = Request::Set { port: port.clone(), other: other.clone(), changes };
        match session.node.ask(node, &set, PATIENCE) {
            Ok(_) => format!("{port} with {other}: as before"),
            Err(error) => format!("{port} with {other}: not as before: {error}"),
        }
    }
}

/// What takes `changes` back where `before` was asked for.
fn undo(changes: &Changes, before: &PrioritySettings) -> Changes {
    fn back<T: Clone>(change: &Change<T>, before: &Option<T>) -> Change<T> {
        match (change, before) {
            (Change::Keep, _) => Change::Keep,
            (_, Some(value)) => Change::Set(value.clone()),
            (_, None) => Change::Unset,
        }
    }
    Changes {
        mark: back(&changes.mark, &before.mark),
        socket_priority: back(&changes.socket_priority, &before.socket_priority),
        sched: back(&changes.sched, &before.sched),
        affinity: back(&changes.affinity, &before.affinity),
        pace: back(&changes.pace, &before.pace),
    }
}

fn say(text: String) {
    tell(&format!("taken back: {text}"));
}

fn ends(reply: Reply) -> Vec<EndReport> {
    if let Reply::Settings(ends) = reply { ends } else { Vec::new() }
}

fn node_of(nodes: &[Document], port: &str) -> Option<NodeId> {
    nodes.iter().find(|d| d.ports.values().any(|p| p.name == port)).map(|d| d.node)
}

fn unknown(port: &str) -> Failure {
    Failure::No(format!("no port {port} is known; start its program first, or see `thalweg list ports`"))
}

/// One per network namespace, as for queues: each is a host of its own.
fn journal(directory: &Path) -> PathBuf {
    directory.join(format!("channels-{}.json", linux::namespace::current_id().unwrap_or(0)))
}

fn save(file: &Path, former: &[Former]) -> Result {
    let write = || {
        file.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(file, serde_json::to_vec(former)?)
    };
    write().map_err(|e: io::Error| unusable(file, &e))
}

fn unusable(file: &Path, error: &io::Error) -> Failure {
    Failure::System(format!("{}: {error}; set THALWEG_RUN_DIR to a directory of your own", file.display()))
}
