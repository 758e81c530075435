//! Administration: what nodes may ask of each other over the control plane.

pub mod bottle;
pub mod grammar;
pub mod priority;

use crate::error::{Error, Result};
use crate::port::ChannelReport;
use serde::{Deserialize, Serialize};

/// A request to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase")]
pub enum Request {
    /// The node's channels with their counters.
    Channels,
    /// To the subscriber's node: connect two ports by name, whatever their topics, and keep them connected (Y-08).
    Connect {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
        /// The carrier; `None`: as `auto` picks.
        carrier: Option<String>,
    },
    /// To the subscriber's node: disconnect two ports by name, and keep them apart until they are connected again.
    Disconnect {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
    },
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// Done.
    Done,
    /// The node's channels.
    Channels(Vec<ChannelReport>),
    /// It could not be done, and why.
    No(String),
}

pub(crate) fn pack<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

pub(crate) fn unpack(bytes: &[u8]) -> Result<Reply> {
    match serde_json::from_slice(bytes) {
        Ok(Reply::No(why)) => Err(Error::Peer(why)),
        Ok(reply) => Ok(reply),
        Err(problem) => Err(Error::Peer(format!("an answer that cannot be read: {problem}"))),
    }
}
