//! The planner's bound beside the round trips measured with priority.

use super::rows::{Arm, Row};
use super::testbed::{Run, Setup};
use crate::error::Result;
use crate::prediction::{delay_us, plan};
use crate::results::{Bar, Check, Table};
use qos::plan::Model;

/// The set-up as a contract.
const CONTRACT: &str = include_str!("../../../../examples/yarp-switch.toml");
/// Percent of the link's rate that its load has: the promise holds up to there.
const LOAD: u32 = 70;

/// The latest that a round trip ends by the plan, in µs: both channels' bounds.
pub(super) fn round_trip_us() -> Result<f64> {
    let plan = plan(CONTRACT, &[], Model::Bound)?;
    Ok(delay_us(&plan, "there") + delay_us(&plan, "back"))
}

/// `true` if the contract covers a row: its payload, and no more than its load.
pub(super) fn holds(setup: &Setup, row: &Row) -> bool {
    row.payload == setup.payload && row.percent <= LOAD
}

/// The largest of some round trips. Not a number: there is none.
fn largest(us: impl Iterator<Item = f64>) -> f64 {
    us.fold(f64::NAN, f64::max)
}

/// Checks that no round trip takes longer than promised, apart from stalls of the machine.
pub(super) fn check(bound: f64, row: &Row, runs: &[Run]) -> Check {
    let taken = largest(runs.iter().flat_map(Run::without_stalls));
    Check::at_most(format!("max qos, without stalls of the machine (limit: the plan's bound): {row}"), taken, bound)
}

/// A bar as high as the bound, with the largest round trip as its mark.
pub(super) fn bar(bound: f64, runs: &[Run]) -> Bar {
    Bar {
        series: "bound, and the largest".into(),
        value: bound,
        deviation: 0.0,
        mark: Some(largest(runs.iter().flat_map(Run::without_stalls))).filter(|us| us.is_finite()),
    }
}

/// Measurements against the bound, row by row: every later round trip, too.
pub(super) fn table(bound: f64, setup: &Setup, rows: &[Row], runs: &[[Vec<Run>; 2]]) -> Table {
    let heads = [
        "with priority, µs",
        "bound",
        "largest",
        "without stalls",
        "bound / that",
        "round trips",
        "later than the bound",
        "without stalls",
    ];
    let mut table = Table::new("Measured against bound (examples/yarp-switch.toml)", &heads);
    for (row, runs) in rows.iter().zip(runs).filter(|(row, _)| holds(setup, row)) {
        let runs = &runs[Arm::Qos as usize];
        let all: Vec<f64> = runs.iter().flat_map(Run::all_times).collect();
        let taken: Vec<f64> = runs.iter().flat_map(Run::without_stalls).collect();
        let [most, least] = [&all, &taken].map(|us| largest(us.iter().copied()));
        let [later, unexplained] = [&all, &taken].map(|us| us.iter().filter(|us| **us > bound).count() as f64);
        table.row(row.to_string(), &[bound, most, least, bound / least, all.len() as f64, later, unexplained]);
    }
    table
}
