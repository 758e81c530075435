//! Samples, as a channel hands them over: publisher, number and time stamps, bytes, the statement about their instance (DDS 1.4,
//! §2.2.2.5.1.3), and the port that takes them.

use super::buffer::Buffer;
use super::memory::Account;
use super::proxy::Provenance;
use crate::control::{NodeId, PortId};
use crate::trace::stages::Published;
use crate::wire::{DISPOSED, UNREGISTERED};
use linux::memory::Borrowed;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A sample's publisher, number and time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleInfo {
    /// The publishing node.
    pub node: NodeId,
    /// The publishing port.
    pub port: PortId,
    /// Incarnation of the publishing node: grows with each start.
    pub incarnation: u64,
    /// Sequence number, given once by `publish`, counted from 1.
    pub seq: u64,
    /// Time of publication: CLOCK_MONOTONIC nanoseconds of the publisher's host.
    pub source_ns: u64,
    /// Time of reception by this process: CLOCK_MONOTONIC nanoseconds of this host.
    pub received_ns: u64,
    /// `true` if both stamps come from the same clock, so that their difference is the latency.
    pub same_clock: bool,
    /// `true` if it was pulled, or if its port joined late and already has samples that were published later.
    pub historical: bool,
    /// The sample's effect on its instance: a value, or the end.
    pub change: Change,
    /// Scaling by a proxy on the way, the sample since which it applies, and the node; `None`: the stream is not scaled.
    pub scaled: Option<Provenance>,
}

impl SampleInfo {
    /// Its number and time of publication, for its stages.
    pub(crate) fn stamp(&self) -> Published {
        Published { seq: self.seq, at_ns: self.source_ns }
    }

    /// Nanoseconds from `publish` to reception; `None` when the two clocks differ and the offset is not known.
    pub fn latency_ns(&self) -> Option<u64> {
        self.same_clock.then(|| self.received_ns.saturating_sub(self.source_ns))
    }
}

/// A port as its channels see it.
pub(crate) trait Deliver: Send + Sync {
    /// Delivers a sample from a network or shared-memory channel on the receiving thread.
    fn deliver(&self, delivery: Delivery<'_>);
    /// Delivers a sample on another thread: a polled port's owner finds it in the mailbox.
    fn deliver_elsewhere(&self, delivery: Delivery<'_>);
    /// `true` if delivered samples are kept for later, and not shown to a callback at once.
    fn keeps(&self) -> bool;
    /// `true` if a full queue holds up the thread that delivers.
    fn blocks(&self) -> bool;
}

/// A sample as a channel hands it over.
pub(crate) struct Delivery<'a> {
    pub info: SampleInfo,
    pub payload: Payload<'a>,
    /// The account of the peer at the other end of the channel: waiting samples are charged to it.
    pub account: &'a Arc<Account>,
}

/// The place of a delivered sample's bytes.
pub(crate) enum Payload<'a> {
    /// Bytes in the receiving thread's buffer, valid until the delivery returns.
    Bytes(&'a [u8]),
    /// A buffer of the publishing port in this process.
    Pooled(&'a Arc<Buffer>),
    /// A place in the publisher's shared memory.
    Shared(Borrowed),
}

impl Payload<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Payload::Bytes(bytes) => bytes,
            Payload::Pooled(buffer) => buffer.payload(),
            Payload::Shared(borrowed) => borrowed,
        }
    }
}

/// The statement of a sample about its instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// It has this value.
    #[default]
    Written,
    /// The instance is disposed of. Only the key of the sample counts.
    Disposed,
    /// The publisher has unregistered the instance. Only the key of the sample counts.
    Unregistered,
}

impl Change {
    pub(crate) fn flags(self) -> u16 {
        match self {
            Change::Written => 0,
            Change::Disposed => DISPOSED,
            Change::Unregistered => UNREGISTERED,
        }
    }

    /// The change in a frame's flags, which may come from any sender.
    pub(crate) fn of(flags: u16) -> Self {
        match flags & (DISPOSED | UNREGISTERED) {
            0 => Change::Written,
            UNREGISTERED => Change::Unregistered,
            _ => Change::Disposed,
        }
    }
}

/// An instance as a subscriber sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceState {
    /// Somebody publishes it.
    #[default]
    Alive,
    /// A publisher disposed of the instance, and none has written it since.
    Disposed,
    /// All its publishers unregistered it, left or gave no sign of life.
    NoPublishers,
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InstanceState::Alive => "is alive again",
            InstanceState::Disposed => "was disposed of",
            InstanceState::NoPublishers => "has no publishers any more",
        })
    }
}

/// An instance that a subscriber knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceReport {
    /// Its key, such as `name = left, joint = 3`.
    pub key: String,
    /// Its state.
    pub state: InstanceState,
    /// The number of its publishers.
    pub publishers: usize,
    /// Deadlines that passed without a sample of it.
    #[serde(default)]
    pub deadlines_missed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_its_flags_and_flags_are_some_change() {
        for change in [Change::Written, Change::Disposed, Change::Unregistered] {
            assert_eq!(Change::of(change.flags() | 7), change);
        }
        assert_eq!(Change::of(u16::MAX), Change::Disposed);
    }
}
