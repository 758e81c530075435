//! The policies' names and values as people read them.

use super::{DestinationOrder, Durability, Liveliness, LivelinessKind, Ownership, Reliability, ResourceLimit};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A policy that is matched: the subscriber's request with the publisher's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// [`Qos::reliability`](super::Qos::reliability)
    Reliability,
    /// [`Qos::durability`](super::Qos::durability)
    Durability,
    /// [`Qos::deadline`](super::Qos::deadline)
    Deadline,
    /// [`Qos::latency_budget`](super::Qos::latency_budget)
    LatencyBudget,
    /// [`Qos::destination_order`](super::Qos::destination_order)
    DestinationOrder,
    /// [`Qos::liveliness`](super::Qos::liveliness)
    Liveliness,
    /// [`Qos::ownership`](super::Qos::ownership)
    Ownership,
    /// [`Qos::partition`](super::Qos::partition)
    Partition,
    /// [`Qos::key`](super::Qos::key)
    Key,
}

impl PolicyName {
    /// All, in the order in which mismatches are reported.
    pub const ALL: [Self; 9] = [
        PolicyName::Reliability,
        PolicyName::Durability,
        PolicyName::Deadline,
        PolicyName::LatencyBudget,
        PolicyName::DestinationOrder,
        PolicyName::Liveliness,
        PolicyName::Ownership,
        PolicyName::Partition,
        PolicyName::Key,
    ];

    /// As in documents and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            PolicyName::Reliability => "reliability",
            PolicyName::Durability => "durability",
            PolicyName::Deadline => "deadline",
            PolicyName::LatencyBudget => "latency-budget",
            PolicyName::DestinationOrder => "destination-order",
            PolicyName::Liveliness => "liveliness",
            PolicyName::Ownership => "ownership",
            PolicyName::Partition => "partition",
            PolicyName::Key => "key",
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Text that is none of the words a policy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// The text (cut to a printable length).
    pub value: String,
    /// The allowed values.
    pub allowed: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: allowed is {}", self.value, self.allowed)
    }
}

impl std::error::Error for PolicyError {}

fn one_of<T: Copy + fmt::Display>(text: &str, all: &[T]) -> Result<T, PolicyError> {
    let names: Vec<String> = all.iter().map(T::to_string).collect();
    let found = names.iter().position(|name| name == text).and_then(|at| all.get(at)).copied();
    found.ok_or_else(|| PolicyError { value: text.chars().take(64).collect(), allowed: names.join(", ") })
}

impl FromStr for PolicyName {
    type Err = PolicyError;
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        one_of(text, &PolicyName::ALL)
    }
}

/// Words for the values of an enumeration: those that are shown are those that are read.
macro_rules! words {
    ($($kind:ident: $($value:ident = $word:literal),+;)+) => {$(
        impl $kind {
            /// All values, in the order of the policy if it has one.
            pub const ALL: [Self; [$($word),+].len()] = [$($kind::$value),+];
        }
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($kind::$value => $word),+ })
            }
        }
        impl FromStr for $kind {
            type Err = PolicyError;
            fn from_str(text: &str) -> Result<Self, PolicyError> {
                one_of(text, &Self::ALL)
            }
        }
    )+};
}

words! {
    Reliability: BestEffort = "best-effort", Reliable = "reliable";
    Durability: Volatile = "volatile", TransientLocal = "transient-local";
    ResourceLimit: Samples = "samples", Instances = "instances", SamplesPerInstance = "samples-per-instance", Bytes = "bytes",
        PeerMemory = "peer-memory", NodeMemory = "node-memory", MaxMessage = "max-message";
    DestinationOrder: ByReception = "by-reception", BySource = "by-source";
    LivelinessKind: Automatic = "automatic", ByNode = "by-node", ByPort = "by-port";
    Ownership: Shared = "shared", Exclusive = "exclusive";
}

impl fmt::Display for Liveliness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        self.lease.map_or(Ok(()), |lease| write!(f, " within {lease:?}"))
    }
}

/// Text of a value that is not stated.
pub(super) const NONE: &str = "none";

/// A duration.
pub(super) fn time(duration: Option<Duration>) -> String {
    duration.map_or_else(|| NONE.to_owned(), |d| format!("{d:?}"))
}

/// Names in a row.
pub(super) fn list(names: &[String]) -> String {
    if names.is_empty() { NONE.to_owned() } else { names.join(", ") }
}
