//! The bytes that a node holds, as tools show them.

use crate::control::Peer;
use serde::{Deserialize, Serialize};

/// The bytes that a node's channels hold: messages in queues and mailboxes, unacknowledged and incomplete messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryReport {
    /// Held now.
    pub used: u64,
    /// Held at most ([`Settings::memory`](crate::Settings::memory)).
    pub limit: u64,
    /// Number of refusals by this limit.
    pub refused: u64,
    /// The peers that hold bytes or were refused some; those that hold most come first, 64 at most.
    pub peers: Vec<PeerMemory>,
    /// Bytes held by histories.
    #[serde(default)]
    pub histories: HistoryMemory,
    /// Bytes held by nodes' documents, besides.
    #[serde(default)]
    pub documents: DocumentMemory,
}

/// Memory that a node holds for the documents of all nodes that it sees, this one included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentMemory {
    /// Held now, about.
    pub used: u64,
    /// Held at most: 24 MiB.
    pub limit: u64,
    /// Number of documents refused: for their bytes, or for one more node or port.
    pub refused: u64,
}

/// Memory for the samples that the ports of a node keep for pulls and late joiners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryMemory {
    /// Held now.
    pub used: u64,
    /// The most that they may hold, given the bytes of the channels.
    pub limit: u64,
    /// Number of times that this was too little and the oldest samples were dropped.
    pub refused: u64,
}

/// Memory for the channels with one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMemory {
    /// The peer.
    #[serde(flatten)]
    pub peer: Peer,
    /// Held now.
    pub used: u64,
    /// The most that it may hold, given the bytes of the others.
    pub limit: u64,
    /// Number of refusals by this limit.
    pub refused: u64,
}
