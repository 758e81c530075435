//! The scheduling of a member's threads, as the kernel has it now (P-15, P-18).

use crate::error::Result;
use qos::priority::Scheduling;
use serde::{Deserialize, Serialize};
use thalweg::Node;

/// One thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// The scheduling that it was to get.
    pub asked: Scheduling,
    /// The one that it has; `None`: it is not there any more, or has a policy that nobody asks for.
    pub found: Option<Scheduling>,
}

/// The threads of every stream: of each that is published the publishing one, and at both kinds of ends those of its channels.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Threads {
    /// Of those that are published, in the order of the settings.
    pub publishes: Vec<Vec<Thread>>,
    /// Of those that are subscribed to.
    pub subscribes: Vec<Vec<Thread>>,
}

impl Thread {
    /// This thread.
    pub(super) fn read(tid: i32, asked: Option<Scheduling>) -> Self {
        let found = linux::sched::read(tid).ok().and_then(|found| found.scheduling());
        Self { asked: asked.unwrap_or_default(), found }
    }

    /// Those of a port's channels. An end on the publishing thread has none of its own.
    pub(super) fn of_port(node: &Node, port: &str) -> Result<Vec<Self>> {
        let ends = node.priority_report(port, None)?;
        Ok(ends.iter().filter_map(|end| Some(Self::read(end.tid?, end.asked.sched))).collect())
    }
}
