//! Who published a sample, which one it is, and when.

use super::instance::Change;
use super::proxy::Provenance;
use crate::control::{NodeId, PortId};
use crate::trace::stages::Published;

/// Who published a sample, which one it is, and when.
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
    /// When it was published: CLOCK_MONOTONIC nanoseconds of the publisher's host.
    pub source_ns: u64,
    /// When this process received it: CLOCK_MONOTONIC nanoseconds of this host.
    pub received_ns: u64,
    /// Both stamps come from the same clock, so that their difference is the latency.
    pub same_clock: bool,
    /// It was pulled; or its port joined late, and has samples already that were published later.
    pub historical: bool,
    /// What it says of its instance: its value, or that it ends.
    pub change: Change,
    /// How a proxy on the way scaled the stream, from which sample on, and at which node; `None`: none did.
    pub scaled: Option<Provenance>,
}

impl SampleInfo {
    /// Its number and when it was published, for its stages.
    pub(crate) fn stamp(&self) -> Published {
        Published { seq: self.seq, at_ns: self.source_ns }
    }

    /// Nanoseconds from `publish` to reception; `None` when the two clocks differ and the offset is not known.
    pub fn latency_ns(&self) -> Option<u64> {
        self.same_clock.then(|| self.received_ns.saturating_sub(self.source_ns))
    }
}
