//! A timing test: a recording beside a baseline of the same topics, or beside a plan.
//!
//! Compared are, by topic: the latency from publication to receipt by the recorder, the intervals between publications, the time from a
//! sample to the next one of a chain (a callback's), samples that were later than the plan's bound, and losses. A change counts if it is
//! more than the tolerance, the noise of the baseline and a floor, with 99 % confidence.
//!
//! | module | contents |
//! |---|---|
//! | `bootstrap` | the uncertainty of a change |
//! | `compare` | a recording beside a baseline |
//! | [`Expected`] | bounds and chains of a plan |
//! | `figures` | durations in bounded memory |
//! | `planned` | a recording beside a plan |
//! | [`recorded`] | a contract with the rates and sizes of a recording |
//! | `report` | the result |
//! | [`Run`] | what a recording has of each topic |

mod bootstrap;
mod compare;
mod expected;
mod figures;
mod planned;
mod recorded;
mod report;
mod run;
#[cfg(test)]
mod tests;

pub use compare::{MEDIAN_SAMPLES, P99_SAMPLES, compare};
pub use expected::Expected;
pub use planned::against_plan;
pub use recorded::recorded;
pub use report::{Finding, Measure, Quantile, Report, Row, Stage, Verdict};
pub use run::Run;

use std::time::Duration;

/// Limits of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The part by which a figure may grow, such as 0.2.
    pub share: f64,
    /// Smaller changes of a median never count, nor five times as large ones of a 99th percentile.
    pub floor: Duration,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { share: 0.2, floor: Duration::from_micros(100) }
    }
}
