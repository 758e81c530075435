//! Clocks of other hosts, compared while samples of them arrive.

use crate::session::Session;
use std::collections::HashMap;
use std::time::Duration;
use thalweg::SampleInfo;
use thalweg::clock::ClockOffset;
use thalweg::control::NodeId;

/// Time after which a node without an answer is asked again later.
const PATIENCE: Duration = Duration::from_millis(500);
/// Largest number of publishers whose clocks are compared.
const MOST: usize = 64;

/// Clock offsets by node; `None`: still to be asked.
#[derive(Default)]
pub(super) struct Clocks(HashMap<NodeId, Option<ClockOffset>>);

impl Clocks {
    /// Latency of a sample and its uncertainty, in nanoseconds. `None`: not known (yet).
    pub(super) fn latency(&mut self, info: &SampleInfo) -> Option<(u64, u64)> {
        if let Some(latency) = info.latency_ns() {
            return Some((latency, 0));
        }
        let room = self.0.len() < MOST;
        match self.0.get(&info.node) {
            Some(offset) => offset.as_ref()?.elapsed_ns(info.source_ns, info.received_ns),
            None if room => {
                self.0.insert(info.node, None);
                None
            }
            None => None,
        }
    }

    /// The nodes whose clocks matter: all, or only those whose offset is unknown.
    pub(super) fn nodes(&self, all: bool) -> Vec<NodeId> {
        self.0.iter().filter(|(_, offset)| all || offset.is_none()).map(|(node, _)| *node).collect()
    }

    /// Records a node's clock offset. Without a new answer the old one stays, with a growing uncertainty.
    pub(super) fn found(&mut self, node: NodeId, offset: Option<ClockOffset>) {
        let known = self.0.entry(node).or_default();
        *known = offset.or(*known);
    }
}

/// Measures a node's clock offset.
pub(super) fn compare(session: &Session, node: NodeId) -> Option<ClockOffset> {
    session.node.compare_clock(node, PATIENCE).ok()
}
