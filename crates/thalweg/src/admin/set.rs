//! Changes of live channels by the names of their ports: at both ends, or at none. The command, C and Python set priorities by it.

use super::{EndReport, Reply, Request};
use crate::channel::proxy::ProxyChanges;
use crate::control::{Direction, NodeId};
use crate::error::{Error, Result};
use qos::Place;
use qos::priority::Changes;
use std::fmt;
use std::time::Duration;

/// Time that a node may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Nodes that can be asked: those that a [`Node`](crate::Node) knows.
pub trait Nodes {
    /// The node that has the port of this name, and the port's direction.
    fn holder_of(&self, port: &str) -> Option<(NodeId, Direction)>;

    /// The answer of a node, within [`PATIENCE`].
    ///
    /// # Errors
    /// As [`Node::ask`](crate::Node::ask).
    fn answer(&self, node: NodeId, request: &Request) -> Result<Reply>;
}

/// What is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Priorities.
    pub changes: Changes,
    /// How much of the stream, and where the rest is left out.
    pub proxy: ProxyChanges,
}

impl Wish {
    /// Reads words such as `class=high`, `sched=fifo:30` and `every=10`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a word that is none of them, with the allowed ones.
    pub fn read<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut wish = Self::default();
        for word in words {
            if !wish.proxy.add(word).map_err(|wrong| Error::Usage(wrong.to_string()))? {
                wish.changes.add(word).map_err(|wrong| Error::Usage(wrong.to_string()))?;
            }
        }
        Ok(wish)
    }

    /// `true` if it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.proxy.is_empty()
    }

    /// Checks that it can be set for the process of one port: only threads are all of a process.
    ///
    /// # Errors
    /// [`Error::Usage`] if it has something for one channel.
    pub fn check_process(&self) -> Result<()> {
        let wrong = || Error::Usage("every, rate, picture and proxy are for one channel: name both ports".to_owned());
        if self.proxy.is_empty() { Ok(()) } else { Err(wrong()) }
    }
}

/// Ends of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// The publisher's: samples, and the thread that sends them.
    Publisher,
    /// The subscriber's: acknowledgements, and the thread that receives.
    Subscriber,
    /// Both.
    #[default]
    Both,
}

/// One end of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The node that has the port.
    pub node: NodeId,
    /// The port.
    pub port: String,
    /// The port at the other end, or the port itself to address its process.
    pub other: String,
}

/// The reason why nothing was set.
#[derive(Debug)]
pub enum Unset {
    /// No port of this name is known.
    Unknown(String),
    /// The port of this name has this direction, and the other one is needed.
    Direction(String, Direction),
    /// The node of an end refused, or did not answer.
    Refused {
        /// The end's port.
        port: String,
        /// The reason.
        because: Error,
        /// Ports whose ends were changed before, and could not be set back, with the reasons.
        stuck: Vec<(String, Error)>,
    },
    /// Anything else.
    Failed(Error),
}

impl fmt::Display for Unset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(port) => write!(f, "no port {port} is known; see `thalweg list ports`"),
            Self::Direction(port, direction) => {
                let is = if *direction == Direction::Publisher { "publisher" } else { "subscriber" };
                write!(f, "{port} is a {is}; say the publishing port first, then the subscribing one")
            }
            Self::Refused { port, because, stuck } => {
                write!(f, "at {port}: {because}")?;
                stuck.iter().try_for_each(|(port, why)| write!(f, "; {port} could not be set back: {why}"))
            }
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Unset {}

impl From<Error> for Unset {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl End {
    /// Its settings, as the kernel has them now.
    ///
    /// # Errors
    /// As [`Node::ask`](crate::Node::ask).
    pub fn get(&self, nodes: &impl Nodes) -> Result<Vec<EndReport>> {
        let request = Request::Get { port: self.port.clone(), other: Some(self.other.clone()) };
        settings(nodes, self.node, &request)
    }

    fn set(&self, nodes: &impl Nodes, changes: Changes) -> Result<Vec<EndReport>> {
        let request = Request::Set { port: self.port.clone(), other: self.other.clone(), changes };
        settings(nodes, self.node, &request)
    }
}

/// The answer to a request about priorities.
///
/// # Errors
/// As [`Node::ask`](crate::Node::ask); [`Error::Peer`] for an answer to something else.
pub fn settings(nodes: &impl Nodes, node: NodeId, request: &Request) -> Result<Vec<EndReport>> {
    match nodes.answer(node, request)? {
        Reply::Settings(reports) => Ok(reports),
        other => Err(Error::Peer(format!("an answer that does not fit: {other:?}"))),
    }
}

/// The node of a port, if the port has the `wanted` direction; `None`: either.
///
/// # Errors
/// [`Unset::Unknown`], [`Unset::Direction`].
pub fn find(nodes: &impl Nodes, port: &str, wanted: Option<Direction>) -> std::result::Result<NodeId, Unset> {
    let (node, direction) = nodes.holder_of(port).ok_or_else(|| Unset::Unknown(port.to_owned()))?;
    match wanted {
        Some(wanted) if wanted != direction => Err(Unset::Direction(port.to_owned(), direction)),
        _ => Ok(node),
    }
}

/// The chosen ends of a channel; without a subscriber the process of the port. The port of an end that was not chosen need not exist.
///
/// # Errors
/// As [`find`].
pub fn ends(
    nodes: &impl Nodes,
    publisher: &str,
    subscriber: Option<&str>,
    chosen: Ends,
) -> std::result::Result<Vec<End>, Unset> {
    let end = |node, port: &str, other: &str| End { node, port: port.to_owned(), other: other.to_owned() };
    let Some(subscriber) = subscriber else {
        return Ok(vec![end(find(nodes, publisher, None)?, publisher, publisher)]);
    };
    let mut ends = Vec::new();
    if chosen != Ends::Subscriber {
        ends.push(end(find(nodes, publisher, Some(Direction::Publisher))?, publisher, subscriber));
    }
    if chosen != Ends::Publisher {
        ends.push(end(find(nodes, subscriber, Some(Direction::Subscriber))?, subscriber, publisher));
    }
    Ok(ends)
}

/// Sets a live channel; without a subscriber all threads of the port's process. Gives the ends afterwards.
///
/// # Errors
/// [`Unset`]; then no priority has changed, but for those of ends that it names as stuck.
pub fn set(
    nodes: &impl Nodes,
    publisher: &str,
    subscriber: Option<&str>,
    chosen: Ends,
    wish: &Wish,
) -> std::result::Result<Vec<EndReport>, Unset> {
    let Some(subscriber) = subscriber.filter(|_| !wish.proxy.is_empty()) else {
        wish.check_process()?;
        return change(nodes, &ends(nodes, publisher, subscriber, chosen)?, &wish.changes);
    };
    // All are known before anything is set.
    let all = ends(nodes, publisher, Some(subscriber), chosen)?;
    let node = find(nodes, subscriber, Some(Direction::Subscriber))?;
    let (from, to, changes) = (publisher.to_owned(), subscriber.to_owned(), wish.proxy.clone());
    nodes.answer(node, &Request::Scale { publisher: from, subscriber: to, changes })?;
    if wish.changes.is_empty() {
        return get(nodes, publisher, Some(subscriber));
    }
    change(nodes, &all, &wish.changes)
}

/// Both ends of a channel as they are; without a subscriber the process of the port.
///
/// # Errors
/// As [`find`] and [`End::get`].
pub fn get(
    nodes: &impl Nodes,
    publisher: &str,
    subscriber: Option<&str>,
) -> std::result::Result<Vec<EndReport>, Unset> {
    let (mut reports, mut failed) = (Vec::new(), None);
    for end in ends(nodes, publisher, subscriber, Ends::Both)? {
        match end.get(nodes) {
            Ok(found) => reports.extend(found),
            Err(error) => failed = Some(error),
        }
    }
    // If a relay serves the subscriber, the publisher has no channel with it.
    let at_relay = |report: &EndReport| report.proxied.as_ref().is_some_and(|p| matches!(p.place, Place::Relay(_)));
    let failed = failed.filter(|_| !reports.iter().any(at_relay));
    failed.map_or(Ok(reports), |error| Err(Unset::Failed(error)))
}

/// Changes all ends or none: after a refusal those that were changed get back what they had.
///
/// # Errors
/// [`Unset::Refused`].
pub fn change(nodes: &impl Nodes, all: &[End], changes: &Changes) -> std::result::Result<Vec<EndReport>, Unset> {
    let (mut reports, mut undo) = (Vec::new(), Vec::<(&End, Changes)>::new());
    for end in all {
        // An end without a channel and settings has no former state.
        let before = end.get(nodes).ok().and_then(|found| found.into_iter().next()).map(|report| report.asked);
        match end.set(nodes, changes.clone()) {
            Ok(found) => reports.extend(found),
            Err(because) => {
                let back = |(end, back): (&End, Changes)| Some((end.port.clone(), end.set(nodes, back).err()?));
                let stuck = undo.into_iter().filter_map(back).collect();
                return Err(Unset::Refused { port: end.port.clone(), because, stuck });
            }
        }
        undo.push((end, changes.undone(&before.unwrap_or_default())));
    }
    Ok(reports)
}

#[cfg(test)]
mod tests;
