//! Bounds and means of delays, from the contract alone.
//!
//! | module | contents |
//! |---|---|
//! | `cpu` | threads on a processor: response times (P-24), reservations |
//! | `link` | packets in a link's queue: network calculus |
//! | `queueing` | means of the papers: queues, periods per hop |
//! | `stages` | a contract with routes, places and priorities as a tree of stages |
//! | `chain` | bounds of chains over several topics |
//! | `end_to_end` | bounds of whole ways: the holistic iteration over all stages |
//!
//! [`Arrivals`] count the events of any interval. [`Steps`] limit the computation of an answer. All times are whole
//! nanoseconds and are rounded so that a bound stays one: demand up, supply down.

pub mod chain;
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

/// A periodic event whose instances may be late: at most ⌊(Δ + jitter) ÷ period⌋ + 1 of them fall into any closed stretch of
/// length Δ (Audsley et al. 1993, §3; Le Boudec & Thiran 2001, §1.2: a stair function). Bursts are jitter too: of a stream
/// with b samples at once, jitter (b − 1) · period more admits just the token bucket of depth b.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrivals {
    /// Nanoseconds between two, on average; at least 1.
    pub period: u64,
    /// Largest delay of an event behind its period, ns.
    pub jitter: u64,
}

impl Arrivals {
    /// Strictly periodic ones.
    pub const fn periodic(period: u64) -> Self {
        Self { period, jitter: 0 }
    }

    /// Arrivals of a stream of bursts: `burst` samples may come at once.
    pub const fn bursty(period: u64, jitter: u64, burst: u32) -> Self {
        Self { period, jitter: jitter.saturating_add(period.saturating_mul((burst as u64).saturating_sub(1))) }
    }

    /// Most in a closed stretch of `span` ns: one that comes at its end counts.
    pub const fn within(&self, span: u64) -> u64 {
        (span.saturating_add(self.jitter) / self.divisor()).saturating_add(1)
    }

    /// Most in a stretch of `span` ns without its end: ⌈(span + jitter) ÷ period⌉.
    pub const fn before(&self, span: u64) -> u64 {
        if span == 0 { 0 } else { self.within(span - 1) }
    }

    /// The shortest time from one to the `count`-th after it, ns.
    pub const fn distance(&self, count: u64) -> u64 {
        self.divisor().saturating_mul(count).saturating_sub(self.jitter)
    }

    /// The same with more jitter.
    pub const fn delayed(&self, jitter: u64) -> Self {
        Self { period: self.period, jitter: self.jitter.saturating_add(jitter) }
    }

    /// Share of a resource that each instance occupies for `work` ns, in parts per billion, rounded up.
    pub const fn load(&self, work: u64) -> u128 {
        match work.checked_mul(BILLION as u64) {
            // Nearly always, and much sooner.
            Some(billionths) => billionths.div_ceil(self.divisor()) as u128,
            None => (work as u128 * BILLION).div_ceil(self.divisor() as u128),
        }
    }

    const fn divisor(&self) -> u64 {
        if self.period == 0 { 1 } else { self.period }
    }
}

/// A whole resource, in the unit of [`Arrivals::load`].
pub const BILLION: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bursts_are_a_token_bucket() {
        let three = Arrivals::bursty(10, 0, 3);
        assert_eq!([0, 9, 10, 19, 20].map(|span| three.within(span)), [3, 3, 4, 4, 5]);
        assert_eq!([0, 1, 2, 3, 4].map(|count| three.distance(count)), [0, 0, 0, 10, 20]);
        assert_eq!([0, 1, 10, 11].map(|span| Arrivals::periodic(10).before(span)), [0, 1, 1, 2]);
    }

    proptest! {
        /// Instances late by any amounts up to the jitter never come oftener than they may, nor closer.
        #[test]
        fn late_instances_keep_the_curve(period in 1..50u64, late in prop::collection::vec(0..120u64, 2..12), from in 0..11usize, to in 0..11usize) {
            let jitter = *late.iter().max().unwrap();
            let arrivals = Arrivals { period, jitter };
            let mut at: Vec<u64> = late.iter().enumerate().map(|(k, late)| k as u64 * period + late).collect();
            at.sort_unstable();
            let (from, to) = (from.min(to) % at.len(), from.max(to) % at.len());
            if from <= to {
                let (span, count) = (at[to] - at[from], (to - from) as u64);
                prop_assert!(count < arrivals.within(span));
                prop_assert!(span >= arrivals.distance(count));
            }
        }
    }
}
