//! Who is alive, and whose samples count.

use super::nanoseconds;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How a publisher shows that it is alive (DDS LIVELINESS). Offered must be at least the kind that is requested:
/// automatic < by-node < by-port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LivelinessKind {
    /// Its node does it.
    #[default]
    Automatic,
    /// The program does, for all such ports of the node at once: by publishing at one of them, or by saying so
    /// (MANUAL_BY_PARTICIPANT).
    ByNode,
    /// The program does, for each port: by publishing there, or by saying so (MANUAL_BY_TOPIC).
    ByPort,
}

/// How and how often a publisher shows that it is alive. The offered lease must be at most the requested one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Liveliness {
    /// How.
    pub kind: LivelinessKind,
    /// Longest time between two signs of life; `None`: no end, it lives as long as its channel.
    #[serde(with = "nanoseconds")]
    pub lease: Option<Duration>,
}

/// Whether several publishers may update one instance (DDS OWNERSHIP). Both ends must say the same. Without a key a topic is
/// one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ownership {
    /// All may.
    #[default]
    Shared,
    /// Only the living publisher with the highest strength, of equal ones that with the lowest id.
    Exclusive,
}
