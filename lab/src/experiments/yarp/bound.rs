//! What was measured with priority beside what the planner promises of it.

use super::rows::{Arm, Row};
use super::setup::Setup;
use super::stage::Run;
use crate::error::Result;
use crate::promise::{delay_us, plan};
use crate::results::{Bar, Check, Table};
use qos::plan::Model;

/// The set-up as a contract.
const CONTRACT: &str = include_str!("../../../../examples/yarp-switch.toml");
/// Percent of the link's rate that its load has: the promise holds up to there.
const LOAD: u32 = 70;

/// The latest that a round trip ends by the plan, in µs: both channels' bounds.
pub fn round_trip_us() -> Result<f64> {
    let plan = plan(CONTRACT, &[], Model::Bound)?;
    Ok(delay_us(&plan, "there") + delay_us(&plan, "back"))
}

/// Whether the contract holds in a row: its payload, and no more than its load.
pub fn holds(setup: &Setup, row: &Row) -> bool {
    row.payload == setup.payload && row.percent <= LOAD
}

/// The largest round trip of runs that no stall of the machine hit. Not a number: there is none.
fn largest<'a>(runs: impl IntoIterator<Item = &'a Run>) -> f64 {
    runs.into_iter().flat_map(Run::times).fold(f64::NAN, f64::max)
}

/// How many round trips took longer than promised. Those that a stall of the machine hit are apart.
fn later(bound: f64, runs: &[Run]) -> usize {
    runs.iter().flat_map(Run::times).filter(|us| *us > bound).count()
}

/// No round trip takes longer than promised.
pub fn check(bound: f64, row: &Row, runs: &[Run]) -> Check {
    Check::at_most(format!("max qos (limit: the plan's bound): {row}"), largest(runs), bound)
}

/// A bar as high as the bound, with the largest round trip as its mark.
pub fn bar(bound: f64, runs: &[Run]) -> Bar {
    Bar {
        series: "bound, and the largest".into(),
        value: bound,
        deviation: 0.0,
        mark: Some(largest(runs)).filter(|us| us.is_finite()),
    }
}

/// Measured against bound, row by row: every round trip that was later, too.
pub fn table(bound: f64, setup: &Setup, rows: &[Row], runs: &[[Vec<Run>; 2]]) -> Table {
    let heads = [
        "with priority, µs",
        "bound",
        "largest",
        "bound / largest",
        "round trips",
        "later than the bound",
        "hit by stalls",
    ];
    let mut table = Table::new("Measured against bound (examples/yarp-switch.toml)", &heads);
    for (row, runs) in rows.iter().zip(runs).filter(|(row, _)| holds(setup, row)) {
        let runs = &runs[Arm::Qos as usize];
        let (largest, all) = (largest(runs), runs.iter().flat_map(Run::times).count() as f64);
        let hit: u64 = runs.iter().map(|run| run.stalled().n).sum();
        table.row(row.to_string(), &[bound, largest, bound / largest, all, later(bound, runs) as f64, hit as f64]);
    }
    table
}
