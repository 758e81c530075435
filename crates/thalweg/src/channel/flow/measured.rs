//! The stages `queue` and `send` of a message that waited.

use super::super::queue::Entry;
use super::Flow;
use crate::trace::stages::{Stage, Stages};
use linux::clock::monotonic_ns;

/// The stages to note, and the time at which sending began; `None`: they are not measured. A partly sent message counts
/// from its last part on.
pub(super) struct Measured<'a>(Option<(&'a Stages, u64)>);

impl<'a> Measured<'a> {
    pub(super) fn begin(flow: &'a Flow, entry: &Entry) -> Self {
        let measured = (entry.offered != 0).then(|| flow.stages.get()).flatten();
        Self(measured.map(|stages| (stages.as_ref(), monotonic_ns())))
    }

    pub(super) fn end(self, offered: u64) {
        if let Some((stages, begun)) = self.0 {
            let now = monotonic_ns();
            let took = [(Stage::Queue, begun.saturating_sub(offered)), (Stage::Send, now.saturating_sub(begun))];
            stages.note(now, &took);
        }
    }
}
