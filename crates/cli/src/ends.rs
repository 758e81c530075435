//! The two ports of a channel, and their nodes.

use crate::failure::{Failure, Result};
use crate::participant::Participant;
use clap::ValueEnum;
use thalweg::admin::set::{self, Ends};
pub(crate) use thalweg::admin::set::{End, PATIENCE};
use thalweg::admin::{EndReport, Request};
use thalweg::control::{Direction, NodeId, PortInfo};

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

impl From<Which> for Ends {
    fn from(which: Which) -> Self {
        match which {
            Which::Publisher => Self::Publisher,
            Which::Subscriber => Self::Subscriber,
            Which::Both => Self::Both,
        }
    }
}

/// The port with a name, and its node.
pub(crate) fn find(participant: &Participant, name: &str) -> Result<(NodeId, PortInfo)> {
    participant.node.holder(name).ok_or_else(|| Failure::from(set::Unset::Unknown(name.to_owned())))
}

/// The port with a name, if it has the wanted direction.
pub(crate) fn find_as(participant: &Participant, name: &str, wanted: Direction) -> Result<NodeId> {
    Ok(set::find(&participant.node, name, Some(wanted))?)
}

/// The chosen ends of the channel from `publisher` to `subscriber`. The port of an end that was not chosen need not
/// exist.
pub(crate) fn of(participant: &Participant, publisher: &str, subscriber: &str, which: Which) -> Result<Vec<End>> {
    Ok(set::ends(&participant.node, publisher, Some(subscriber), which.into())?)
}

/// Sends a request about priorities to a node.
pub(crate) fn settings(participant: &Participant, node: NodeId, request: &Request) -> Result<Vec<EndReport>> {
    Ok(set::settings(&participant.node, node, request)?)
}
