//! The policies' names and values as people read them.

use super::{DestinationOrder, Durability, Liveliness, LivelinessKind, Ownership, Reliability, ResourceLimit};
use std::fmt;
use std::time::Duration;

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

pub(super) fn one_of<T: Copy + fmt::Display>(text: &str, all: &[T]) -> Result<T, PolicyError> {
    let names: Vec<String> = all.iter().map(T::to_string).collect();
    let found = names.iter().position(|name| name == text).and_then(|at| all.get(at)).copied();
    found.ok_or_else(|| PolicyError { value: text.chars().take(64).collect(), allowed: names.join(", ") })
}

/// Words for the values of an enumeration: those that are shown are those that are read.
macro_rules! words {
    ($($kind:ident: $($value:ident = $word:literal),+;)+) => {$(
        impl $kind {
            /// All values, in the order of the policy if it has one.
            pub const ALL: [Self; [$($word),+].len()] = [$($kind::$value),+];

            /// As in documents and on the command line.
            pub const fn name(self) -> &'static str {
                match self { $($kind::$value => $word),+ }
            }
        }
        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
        impl std::str::FromStr for $kind {
            type Err = $crate::PolicyError;
            fn from_str(text: &str) -> Result<Self, $crate::PolicyError> {
                $crate::policy::names::one_of(text, &Self::ALL)
            }
        }
    )+};
}
pub(super) use words;

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
