//! Bounds and means of delays, from the contract alone.
//!
//! | module | contents |
//! |---|---|
//! | `arrivals` | the number of arrivals in any interval |
//! | `cpu` | threads on a processor: response times (P-24), reservations |
//! | `link` | packets in a link's queue: network calculus |
//! | `queueing` | means of the papers: queues, periods per hop |
//! | `stages` | a contract with routes, places and priorities as a tree of stages |
//! | `end_to_end` | bounds of whole ways: the holistic iteration over all stages |
//!
//! [`Steps`] limit the computation of an answer. All times are whole nanoseconds and are rounded so that a bound
//! stays one: demand up, supply down.

pub mod arrivals;
pub mod cpu;
pub mod end_to_end;
pub(crate) mod link;
#[cfg(any(feature = "placement", test))]
pub(crate) mod queueing;
pub mod stages;

use crate::system::System;
use std::cell::Cell;

/// Steps that may still be taken; in each one stream or thread is looked at, which takes some nanoseconds. They are counted, not timed:
/// a contract has the same answer on every machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps(Cell<u64>);

/// Steps for a plan of any size, and additional ones for each of its channels. A plan that is not near the edge of capacity takes
/// far fewer.
const PLAN: u64 = 2_000_000;
const CHANNEL: u64 = 500_000;

impl Steps {
    /// A budget of this many steps.
    pub const fn new(count: u64) -> Self {
        Self(Cell::new(count))
    }

    /// As many as one plan of a system may take.
    pub fn of(system: &System) -> Self {
        Self::new(PLAN + CHANNEL * channels(system))
    }

    /// Takes this many steps. `false`: there were fewer, and none remain.
    pub fn take(&self, count: u64) -> bool {
        let left = self.0.get().checked_sub(count);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }

    /// The remaining steps.
    pub fn left(&self) -> u64 {
        self.0.get()
    }
}

/// Pairs of a publisher and a subscriber.
pub fn channels(system: &System) -> u64 {
    let publishers = |topic: usize| system.topics[topic].publishers.len() as u64;
    system.subscribers.iter().map(|subscriber| publishers(subscriber.topic)).sum()
}
