//! The two ports of a channel, and their nodes.

use crate::failure::{Failure, Result};
use crate::participant::Participant;
use clap::ValueEnum;
use std::time::Duration;
use thalweg::admin::{EndReport, Reply, Request};
use thalweg::control::{Direction, NodeId, PortInfo};

/// Time that a node may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Ends of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// The publisher's: samples and the thread that sends them
    Publisher,
    /// The subscriber's: acknowledgements and the thread that receives
    Subscriber,
    /// Both
    #[default]
    Both,
}

/// One end of a channel.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// The node that has the port.
    pub node: NodeId,
    /// The port.
    pub port: String,
    /// The port at the other end, or the port itself to address its process.
    pub other: String,
}

/// The port with a name, and its node.
pub(crate) fn find(participant: &Participant, name: &str) -> Result<(NodeId, PortInfo)> {
    let unknown = || Failure::No(format!("no port {name} is known; see `thalweg list ports`"));
    participant.node.holder(name).ok_or_else(unknown)
}

/// The port with a name, if it has the wanted direction.
pub(crate) fn find_as(participant: &Participant, name: &str, wanted: Direction) -> Result<NodeId> {
    let (node, port) = find(participant, name)?;
    if port.direction == wanted {
        return Ok(node);
    }
    let is = if port.direction == Direction::Publisher { "publisher" } else { "subscriber" };
    Err(Failure::No(format!("{name} is a {is}; say the publishing port first, then the subscribing one")))
}

/// The chosen ends of the channel from `publisher` to `subscriber`. The port of an end that was not chosen need not
/// exist.
pub(crate) fn of(participant: &Participant, publisher: &str, subscriber: &str, which: Which) -> Result<Vec<End>> {
    let mut ends = Vec::new();
    let end = |node, port: &str, other: &str| End { node, port: port.to_owned(), other: other.to_owned() };
    if which != Which::Subscriber {
        ends.push(end(find_as(participant, publisher, Direction::Publisher)?, publisher, subscriber));
    }
    if which != Which::Publisher {
        ends.push(end(find_as(participant, subscriber, Direction::Subscriber)?, subscriber, publisher));
    }
    Ok(ends)
}

impl End {
    /// The end's priority, as the kernel has it now.
    pub(crate) fn get(&self, participant: &Participant) -> Result<Vec<EndReport>> {
        let request = Request::Get { port: self.port.clone(), other: Some(self.other.clone()) };
        settings(participant, self.node, &request)
    }
}

/// Sends a request about priorities to a node.
pub(crate) fn settings(participant: &Participant, node: NodeId, request: &Request) -> Result<Vec<EndReport>> {
    match participant.node.ask(node, request, PATIENCE)? {
        Reply::Settings(reports) => Ok(reports),
        other => Err(Failure::No(format!("an answer that does not fit: {other:?}"))),
    }
}
