//! A sample's publisher, number and time stamps.

use super::instance::Change;
use super::proxy::Provenance;
use crate::control::{NodeId, PortId};
use crate::trace::stages::Published;

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
