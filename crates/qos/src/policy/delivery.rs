//! What is delivered: losses, queues and their limits, order.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Whether samples may be lost on the way (DDS RELIABILITY). What a full queue does is [`Queue`]'s business. Offered must be
/// at least what is requested: best-effort < reliable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reliability {
    /// A lost sample stays lost.
    BestEffort,
    /// The carrier loses nothing while the connection stands.
    #[default]
    Reliable,
}

/// What waits when a channel or a subscriber is slower than its publisher (DDS HISTORY, and `max_blocking_time`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// The last `n` samples wait (at a subscriber that states a key: of each instance); the oldest is dropped for a new one.
    /// The default, with n = 16.
    KeepLast(u32),
    /// At most this many samples wait; further ones are refused (`publish` says so), none is dropped.
    KeepAll(u32),
    /// As `KeepAll`, but `publish` first waits for room, at most `up_to_us` microseconds. At a subscriber its channels do: a full
    /// one holds up its publishers' queues, whose policies say what happens then.
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
    /// How long `publish`, or a sample that arrived, may wait for room.
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
    /// Samples of all instances together, at least 1. What comes beyond is rejected, and counted.
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

/// Bytes that wait in one queue where a port states none: 64 MiB hold 4 messages of the default `max_message`, 10 pictures of
/// 1080p in colour, or 0.6 s of a link of 1 Gbit/s. What waits longer than that is better dropped, by most policies.
pub const QUEUE_BYTES: u64 = 64 << 20;

/// What a waiting sample is reckoned to take besides its message: its place in the queue, its buffer's header and what the
/// allocator adds (some 200 bytes on a 64-bit host).
pub const SAMPLE_BYTES: u64 = 256;

/// One of the [`ResourceLimits`]: what a sample was rejected by (DDS SAMPLE_REJECTED).
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
    /// What the node's memory leaves to one peer.
    PeerMemory,
    /// What the node may hold in all.
    NodeMemory,
    /// The largest message that both ends take.
    MaxMessage,
}

/// Which order of samples of several publishers counts (DDS DESTINATION_ORDER). Offered must be at least what is requested:
/// by-reception < by-source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DestinationOrder {
    /// The order in which they arrive.
    #[default]
    ByReception,
    /// The order of their source time stamps: what is older than the last one delivered is dropped, and counted.
    BySource,
}
