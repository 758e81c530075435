//! The values of policies: losses, queues and their limits, order, history, liveliness, ownership, scaling; and their names as people read them.

use super::nanoseconds;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Loss of samples on the way (DDS RELIABILITY). A full queue is handled by [`Queue`]. The offer must be at least the
/// request: best-effort < reliable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reliability {
    /// A lost sample stays lost.
    BestEffort,
    /// The carrier loses no sample while the connection stands.
    #[default]
    Reliable,
}

/// The queue of a channel or a subscriber that is slower than its publisher (DDS HISTORY, and `max_blocking_time`), of 1 sample at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// The last `n` samples wait (at a subscriber that states a key: of each instance); the oldest is dropped for a new one.
    /// The default, with n = 16.
    KeepLast(u32),
    /// At most this many samples wait; further ones are refused (`publish` reports it), none is dropped.
    KeepAll(u32),
    /// As `KeepAll`, but `publish` first waits for room, at most `up_to_us` microseconds. At a subscriber its
    /// channels wait: a full queue holds up its publishers' queues, whose policies then apply.
    Block {
        /// Most samples that wait.
        limit: u32,
        /// The longest `publish`, or a sample that arrived, may wait per channel, in microseconds.
        up_to_us: u64,
    },
}

impl Default for Queue {
    fn default() -> Self {
        Queue::KeepLast(16)
    }
}

impl Queue {
    /// Most samples that wait at once (at least 1).
    pub fn limit(self) -> u32 {
        match self {
            Queue::KeepLast(n) | Queue::KeepAll(n) | Queue::Block { limit: n, .. } => n.max(1),
        }
    }
    /// Longest wait of `publish`, or of a sample that arrived, for room.
    pub fn patience(self) -> Duration {
        match self {
            Queue::Block { up_to_us, .. } => Duration::from_micros(up_to_us),
            _ => Duration::ZERO,
        }
    }
}

/// Most that a port keeps (DDS RESOURCE_LIMITS, besides `bytes`, which DDS has not); `None`: as much as the other policies
/// ask for, of bytes [`QUEUE_BYTES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceLimits {
    /// Samples of all instances together, at least 1. Further samples are rejected, and counted.
    pub samples: Option<u32>,
    /// Instances, at least 1.
    pub instances: Option<u32>,
    /// Samples of one instance, at least 1 and at most `samples`.
    pub samples_per_instance: Option<u32>,
    /// Bytes that wait: in the queue of each channel of a publisher, in a subscriber's own queue; at least 1. A sample counts
    /// with [`SAMPLE_BYTES`] more than its message has. An empty queue takes one sample of any size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Bytes that wait in one queue if a port states none: 64 MiB hold 4 messages of the default `max_message`, 10
/// pictures of 1080p in colour, or 0.6 s of a link of 1 Gbit/s. Samples that wait longer are better dropped, by most
/// policies.
pub const QUEUE_BYTES: u64 = 64 << 20;

/// Memory that a waiting sample is reckoned with besides its message: its place in the queue, its buffer's header and the
/// allocator's overhead (some 200 bytes on a 64-bit host).
pub const SAMPLE_BYTES: u64 = 256;

/// One of the [`ResourceLimits`], by which a sample was rejected (DDS SAMPLE_REJECTED).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceLimit {
    /// [`ResourceLimits::samples`], or as many as a queue that keeps all holds.
    Samples,
    /// [`ResourceLimits::instances`]
    #[default]
    Instances,
    /// [`ResourceLimits::samples_per_instance`]
    SamplesPerInstance,
    /// [`ResourceLimits::bytes`]
    Bytes,
    /// The node's memory left to one peer.
    PeerMemory,
    /// The memory of the node in all.
    NodeMemory,
    /// The largest message that both ends take.
    MaxMessage,
    /// What the contract allows ([`crate::priority::Policing`]).
    Policing,
}

/// The order of samples of several publishers (DDS DESTINATION_ORDER). The offer must be at least the request:
/// by-reception < by-source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DestinationOrder {
    /// The order in which they arrive.
    #[default]
    ByReception,
    /// The order of their source time stamps: samples older than the last one delivered are dropped, and counted.
    BySource,
}

/// History for late joiners (DDS DURABILITY; `transient` and `persistent` need a service and do not exist here). The
/// offer must be at least the request: volatile < transient-local.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// No samples from before.
    #[default]
    Volatile,
    /// The last samples ([`Qos::history`](super::Qos::history)), as long as their publisher lives.
    TransientLocal,
}

/// A history that can be asked (P-05, P-09).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PullBuffer {
    /// The keeper.
    pub place: Place,
    /// Most samples, at least 1. Default 64.
    pub samples: u32,
    /// Most payload bytes, at least 1. Default 16 MiB.
    pub bytes: u64,
    /// Samples that are older are gone; `None` (the default): none is too old.
    #[serde(with = "nanoseconds")]
    pub age: Option<Duration>,
}

impl PullBuffer {
    /// Kept by a port itself, unless a relay is to keep it.
    pub fn kept_by(self, itself: Place) -> Self {
        let place = if let Place::Relay(_) = self.place { self.place } else { itself };
        Self { place, ..self }
    }
}

impl Default for PullBuffer {
    fn default() -> Self {
        Self { place: Place::default(), samples: 64, bytes: 16 << 20, age: None }
    }
}

/// The kind of liveliness of a publisher (DDS LIVELINESS). Offered must be at least the kind that is requested:
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

/// Kind and lease of a publisher's liveliness. The offered lease must be at most the requested one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Liveliness {
    /// The kind.
    pub kind: LivelinessKind,
    /// Longest time between two assertions; `None`: no limit, it lives as long as its channel.
    #[serde(with = "nanoseconds")]
    pub lease: Option<Duration>,
}

/// Ownership of an instance that several publishers update (DDS OWNERSHIP). Both ends must say the same. Without a key a topic is
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

/// Temporal scaling (P-02, U-34): which samples a subscriber wants, by their sequence numbers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Every n-th: those with `seq mod n = 0`; n ≥ 1. The default, with n = 1: all.
    Every(u32),
    /// `p` of every `q`, evenly: those with `⌊seq·p/q⌋ ≠ ⌊(seq−1)·p/q⌋`; 1 ≤ p ≤ q.
    Rate {
        /// Wanted samples …
        p: u32,
        /// … of this many published ones.
        q: u32,
    },
    /// Samples in 1000 seconds, in the long run: becomes `Rate` when the publisher's own rate is known.
    Millihertz(u64),
}

impl Default for Scale {
    fn default() -> Self {
        Scale::Every(1)
    }
}

/// The place of a proxy or a pull buffer (P-07, P-09).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In the publisher's process: saves most.
    #[default]
    Publisher,
    /// In the subscriber's process.
    Subscriber,
    /// At the relay of this host or node; of several names, separated by commas, at the first that is there and takes it.
    Relay(String),
}

impl Place {
    /// The names of relays, the one that is preferred first; none if it is at either end.
    pub fn relays(&self) -> impl Iterator<Item = &str> {
        let names = if let Place::Relay(names) = self { names.as_str() } else { "" };
        names.split(',').filter(|name| !name.is_empty())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Publisher => f.write_str("publisher"),
            Place::Subscriber => f.write_str("subscriber"),
            Place::Relay(name) => write!(f, "relay:{name}"),
        }
    }
}

/// Text that is no [`Place`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceError(pub String);

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: allowed is publisher, subscriber or relay:NAME (of a host or node)", self.0)
    }
}

impl std::error::Error for PlaceError {}

impl FromStr for Place {
    type Err = PlaceError;
    fn from_str(text: &str) -> Result<Self, PlaceError> {
        match (text, text.strip_prefix("relay:")) {
            ("publisher", _) => Ok(Place::Publisher),
            ("subscriber", _) => Ok(Place::Subscriber),
            (_, Some(name)) if !name.is_empty() => Ok(Place::Relay(name.to_owned())),
            _ => Err(PlaceError(text.chars().take(64).collect())),
        }
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
                $crate::policy::values::one_of(text, &Self::ALL)
            }
        }
    )+};
}
pub(super) use words;

words! {
    Reliability: BestEffort = "best-effort", Reliable = "reliable";
    Durability: Volatile = "volatile", TransientLocal = "transient-local";
    ResourceLimit: Samples = "samples", Instances = "instances", SamplesPerInstance = "samples-per-instance", Bytes = "bytes",
        PeerMemory = "peer-memory", NodeMemory = "node-memory", MaxMessage = "max-message", Policing = "policing";
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_shown() {
        for place in [Place::Publisher, Place::Subscriber, Place::Relay("gate".into())] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for wrong in ["", "relay:", "relay", "gate"] {
            assert!(wrong.parse::<Place>().unwrap_err().to_string().contains("relay:NAME"));
        }
    }
}
