//! Threads on one processor.
//!
//! | module | what it holds |
//! |---|---|
//! | `response` | response times under fixed priorities (P-24) |
//! | `reservation` | SCHED_DEADLINE: what a reservation supplies, and whether reservations fit |

pub mod reservation;
pub mod response;

use crate::analysis::arrivals::Arrivals;

/// What a thread does for each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// When samples come to it.
    pub arrivals: Arrivals,
    /// The longest it computes for one, ns.
    pub execution: u64,
}

/// Why there is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unbounded {
    /// More is asked of the resource than there is: utilisation in parts per billion, above what it can give.
    Overload(u128),
    /// The busy period is longer than the analysis follows it.
    TooLong,
}
