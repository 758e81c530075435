//! Clocks of other hosts, compared while samples of them come.

use crate::session::Session;
use std::collections::HashMap;
use std::time::Duration;
use thalweg::SampleInfo;
use thalweg::clock::ClockOffset;
use thalweg::control::NodeId;

/// A node that does not tell its clock within this time is asked again later.
const PATIENCE: Duration = Duration::from_millis(500);
/// Publishers whose clocks are compared at most.
const MOST: usize = 64;

/// What is known of them; `None`: to be asked.
#[derive(Default)]
pub struct Clocks(HashMap<NodeId, Option<ClockOffset>>);

impl Clocks {
    /// How old a sample was when it came, and how far that may be off, in nanoseconds. `None`: not known (yet).
    pub fn latency(&mut self, info: &SampleInfo) -> Option<(u64, u64)> {
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

    /// The nodes whose clocks matter: all, or those of whom nothing is known yet.
    pub fn nodes(&self, all: bool) -> Vec<NodeId> {
        self.0.iter().filter(|(_, offset)| all || offset.is_none()).map(|(node, _)| *node).collect()
    }

    /// What was found of a node's clock. The old answer holds on where there is no new one; it only becomes vaguer.
    pub fn found(&mut self, node: NodeId, offset: Option<ClockOffset>) {
        let known = self.0.entry(node).or_default();
        *known = offset.or(*known);
    }
}

/// Asks a node.
pub fn compare(session: &Session, node: NodeId) -> Option<ClockOffset> {
    session.node.compare_clock(node, PATIENCE).ok()
}
