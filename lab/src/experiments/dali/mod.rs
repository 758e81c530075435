//! The walker of the project DALi over every engine (D-10 to D-19): a comparison of middleware on two boards.
//!
//! Of the paper's boards there are two hosts with a line of 100 Mbit/s between them, each with a processor of its own where there are two. Every engine
//! carries the same bytes of the same programs at the same times, behind one face (`engines::Engine`, the paper's `GlobalDataSpace`), one
//! after the other: each is opened, connected, run and ended, so that none runs beside another.
//!
//! | module | contents |
//! |---|---|
//! | `mappings` | `dali-mappings`: Table I, the plan's bounds, and a file transfer beside |
//! | `outcome` | its checks, tables and figure |
//! | `fanout` | `dali-single`, `dali-two`, `dali-sizes`: Fig. 3 to 5 |
//! | `failover` | `dali-failover`: the second board fails (D-04) |
//! | `system` | a graph of programs over one engine |
//! | `boards` | two boards and the line between them |
//! | `transfer` | a file transfer beside a system |
//! | `program` | the role of one program |
//! | `account` | what its callbacks note |
//! | `arm` | the engines, one row each |
//! | `bare` | bare sockets behind the same face: the baseline |
//! | `walker` | the walker's graph and bounds, from its contracts |
//! | `sample` | the message |
//! | `paper` | what the paper prints |

mod account;
mod arm;
mod bare;
mod boards;
mod failover;
mod fanout;
mod mappings;
mod outcome;
mod paper;
mod program;
mod sample;
mod system;
mod transfer;
mod walker;

pub(super) use failover::DaliFailover;
pub(super) use fanout::{SINGLE, SIZES, TWO};
pub(super) use mappings::DaliMappings;

use crate::experiments::Tally;
use crate::link::SLACK;
use crate::part::Role;
use crate::results::{Bar, Findings, Skipped};
use crate::statistics::Distribution;
use crate::topology::FULL_PACKET;
use arm::ARMS;
use std::time::Duration;

/// The roles of these experiments.
pub(crate) const ROLES: &[(&str, Role)] = &[(program::ROLE, program::play)];

/// The line, in bit/s.
const RATE: u64 = 100_000_000;
/// Time for the last samples to arrive, and to look again.
const SETTLE: Duration = Duration::from_millis(100);

/// The lab's line is later than the contract's: its thread may be late, and it follows a queue that has sent the packet once already.
fn later_us() -> f64 {
    SLACK as f64 / 1e3 + FULL_PACKET as f64 * 8e6 / RATE as f64
}

/// Skips the engines that this build does not have.
fn skip_missing(findings: &mut Findings) {
    for (is_here, name, feature) in
        [(cfg!(feature = "zenoh"), "zenoh, ros2", "zenoh"), (cfg!(feature = "yarp"), "yarp", "yarp")]
    {
        if !is_here {
            let because = format!("this build has it not: build it with the feature {feature}, a default one");
            findings.skipped.push(Skipped { name: name.to_owned(), because });
        }
    }
    for (is_here, name, feature) in
        [(cfg!(feature = "rtps"), "dds", "rtps"), (cfg!(feature = "zeromq"), "zeromq", "zeromq")]
    {
        if !is_here {
            findings.notes.push(format!(
                "without {name}: this build has not the feature {feature}, which needs a library of the system"
            ));
        }
    }
}

/// The settings of each engine, for people.
fn settings() -> impl Iterator<Item = String> {
    let carriers = "on one board thalweg uses shared memory, and the other engines sockets: there these carriers are compared, too";
    ARMS.iter().map(|arm| format!("{}: {}", arm.name, arm.settings)).chain([carriers.to_owned()])
}

/// Median over repetitions of a figure of one tally divided by that of another.
fn ratio(over: &Tally, under: &Tally, figure: fn(&Distribution) -> f64) -> f64 {
    crate::statistics::median_ratio(&over.pairs(under, figure))
}

/// The largest; NaN of none, or if one is NaN: what was not measured keeps no limit.
fn worst(values: impl Iterator<Item = f64>) -> f64 {
    let larger = |most: f64, one: f64| if most.is_nan() || one.is_nan() { f64::NAN } else { most.max(one) };
    values.reduce(larger).unwrap_or(f64::NAN)
}

/// A bar of a value that the paper prints.
fn printed(series: &str, value: f64, deviation: f64) -> Bar {
    Bar { series: series.to_owned(), value, deviation, mark: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_the_worst() {
        assert!(worst([].into_iter()).is_nan() && worst([1.0, f64::NAN, 2.0].into_iter()).is_nan());
        assert_eq!(worst([1.0, 3.0, 2.0].into_iter()), 3.0);
    }
}
