//! The bytes that a node holds, as tools show them.

use crate::control::Peer;
use serde::{Deserialize, Serialize};

/// The bytes that a node's channels hold: what waits in queues and mailboxes, what is not acknowledged, and messages that are not whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryReport {
    /// Held now.
    pub used: u64,
    /// Held at most ([`Settings::memory`](crate::Settings::memory)).
    pub limit: u64,
    /// How often that was too little for something.
    pub refused: u64,
    /// The peers that hold something, or were refused something; those that hold most first, 64 at most.
    pub peers: Vec<PeerMemory>,
    /// What histories hold of it.
    #[serde(default)]
    pub histories: HistoryMemory,
    /// What is held besides of nodes' documents.
    #[serde(default)]
    pub documents: DocumentMemory,
}

/// What a node holds of the documents of all nodes that it sees, this one included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentMemory {
    /// Held now, about.
    pub used: u64,
    /// Held at most: 24 MiB.
    pub limit: u64,
    /// How often there was no room for one: for its bytes, or for one more node or port.
    pub refused: u64,
}

/// What is held of the samples that the ports of a node keep for who asks and for late joiners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryMemory {
    /// Held now.
    pub used: u64,
    /// What they may hold as long as channels hold what they do.
    pub limit: u64,
    /// How often that was too little: the oldest samples went.
    pub refused: u64,
}

/// What is held of the channels with one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMemory {
    /// Which.
    #[serde(flatten)]
    pub peer: Peer,
    /// Held now.
    pub used: u64,
    /// What it may hold as long as the others hold what they do.
    pub limit: u64,
    /// How often something was refused because of that.
    pub refused: u64,
}
