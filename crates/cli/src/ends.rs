//! The two ports of a channel, and the nodes that have them.

use crate::failure::{Failure, Result};
use crate::session::Session;
use clap::ValueEnum;
use std::time::Duration;
use thalweg::admin::{EndReport, Reply, Request};
use thalweg::control::{Direction, NodeId, PortInfo};

/// How long a node may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Which end of a channel is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Which {
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
pub struct End {
    /// The node that has the port.
    pub node: NodeId,
    /// The port.
    pub port: String,
    /// The port at the other end; the port itself where its process is meant.
    pub other: String,
}

/// A port by its name, with its node.
pub fn find(session: &Session, name: &str) -> Result<(NodeId, PortInfo)> {
    let unknown = || Failure::No(format!("no port {name} is known; see `thalweg list ports`"));
    session.node.holder(name).ok_or_else(unknown)
}

/// A port that has to be a publisher or a subscriber.
pub fn find_as(session: &Session, name: &str, wanted: Direction) -> Result<NodeId> {
    let (node, port) = find(session, name)?;
    if port.direction == wanted {
        return Ok(node);
    }
    let is = if port.direction == Direction::Publisher { "publisher" } else { "subscriber" };
    Err(Failure::No(format!("{name} is a {is}; say the publishing port first, then the subscribing one")))
}

/// The ends of the channel from `publisher` to `subscriber` that are meant. The other end's port need not be there.
pub fn of(session: &Session, publisher: &str, subscriber: &str, which: Which) -> Result<Vec<End>> {
    let mut ends = Vec::new();
    let end = |node, port: &str, other: &str| End { node, port: port.to_owned(), other: other.to_owned() };
    if which != Which::Subscriber {
        ends.push(end(find_as(session, publisher, Direction::Publisher)?, publisher, subscriber));
    }
    if which != Which::Publisher {
        ends.push(end(find_as(session, subscriber, Direction::Subscriber)?, subscriber, publisher));
    }
    Ok(ends)
}

impl End {
    /// Its priority, as the kernel has it now.
    pub fn get(&self, session: &Session) -> Result<Vec<EndReport>> {
        let request = Request::Get { port: self.port.clone(), other: Some(self.other.clone()) };
        settings(session, self.node, &request)
    }
}

/// Asks a node about priorities.
pub fn settings(session: &Session, node: NodeId, request: &Request) -> Result<Vec<EndReport>> {
    match session.node.ask(node, request, PATIENCE)? {
        Reply::Settings(reports) => Ok(reports),
        other => Err(Failure::No(format!("an answer that does not fit: {other:?}"))),
    }
}
