//! The planner's bound of a round trip with priority, beside what was measured.
//!
//! The contract (`examples/yarp-switch.toml`) declares execution times with waits in them. The bound that is judged has measured ones
//! instead, and how late the line was; it is never above the declared one, whatever the run.

use super::setup::Setup;
use super::testbed::Run;
use super::{Arm, Row};
use crate::error::Result;
use crate::link::{LinkReport, SLACK};
use crate::prediction::{delay_us, plan, text};
use crate::results::{Bar, Check, Table};
use qos::plan::{FileChange, Model, Plan};

/// The bound of a round trip with priority.
#[derive(Clone, Debug, Default)]
pub(super) struct Bound {
    /// In µs.
    pub us: f64,
    /// The plan by declared times.
    pub declared: Plan,
    /// The plan by measured ones.
    pub measured: Plan,
}

/// The longest times of both channels' ends, in µs: there, back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Computed {
    /// From the call of `publish` until the carrier has all of the sample, the wake-up of the sending thread included.
    pub send: [f64; 2],
    /// From the kernel (by `tcp`, from the reading thread) to the callback: with the reading thread's wake-up by `udp`.
    pub receive: [f64; 2],
}

impl Bound {
    /// With the longest times of these runs and the line's lateness in place of declared times, each at most [`CAP`].
    ///
    /// # Errors
    /// As [`plan`].
    pub(super) fn of<'a>(runs: impl Iterator<Item = &'a Run>, line: &[LinkReport]) -> Result<Self> {
        let all: Vec<Computed> = runs.filter_map(|run| run.computed).collect();
        let longest = |of: fn(&Computed) -> f64| largest(all.iter().map(of)).min(CAP);
        let late = line.iter().map(|report| report.lateness_us.max).fold(0.0, f64::max).min(SLACK as f64 / 1e3);
        let changes = [
            time("topic", "there", "cpu_send", longest(|c| c.send[0])),
            time("topic", "back", "cpu_send", longest(|c| c.send[1])),
            time("subscriber", "/there@host3", "cpu_receive", longest(|c| c.receive[0])),
            time("subscriber", "/back@host1", "cpu_receive", longest(|c| c.receive[1])),
            time("link", "three", "delay", late),
        ];
        let declared = plan(CONTRACT, &[], Model::Bound)?;
        let measured = if all.is_empty() { declared.clone() } else { plan(CONTRACT, &changes, Model::Bound)? };
        Ok(Self { us: round_trip_us(&measured).min(round_trip_us(&declared)), declared, measured })
    }

    /// Its parts, as declared and with measured times.
    pub(super) fn parts(&self) -> Table {
        let mut table = Table::new("The bound of a round trip by part, µs", &["part", "declared", "measured"]);
        for topic in WAYS {
            for (name, us) in terms(&self.measured, topic) {
                let declared = terms(&self.declared, topic).into_iter().find(|(other, _)| *other == name);
                table.row(format!("{topic}: {name}"), &[declared.map_or(0.0, |(_, us)| us), us]);
            }
        }
        table.row("sum", &[round_trip_us(&self.declared), round_trip_us(&self.measured)]);
        table.row("judged by", &[f64::NAN, self.us]);
        table
    }
}

/// Both channels' bounds, in µs.
fn round_trip_us(plan: &Plan) -> f64 {
    WAYS.iter().map(|topic| delay_us(plan, topic)).sum()
}

fn terms(plan: &Plan, topic: &str) -> Vec<(String, f64)> {
    let of = plan.channels.iter().filter(|channel| channel.topic == topic);
    of.flat_map(|channel| &channel.derivation).map(|term| (term.name.clone(), term.us)).collect()
}

fn time(table: &str, name: &str, key: &str, us: f64) -> FileChange {
    text(table, name, key, &format!("{:.3} us", if us.is_finite() { us.max(0.001) } else { CAP }))
}

/// `true` if the contract covers a row: its payload, and no more than its load.
pub(super) fn is_covered(setup: &Setup, row: &Row) -> bool {
    setup.has_contract() && row.payload == setup.payload && row.percent <= LOAD
}

/// The largest of some round trips. Not a number: there is none.
fn largest(us: impl Iterator<Item = f64>) -> f64 {
    us.fold(f64::NAN, f64::max)
}

/// Checks that no round trip takes longer than promised, apart from stalls of the machine. One that does not come back is later
/// than any bound.
pub(super) fn check(bound: f64, row: &Row, runs: &[Run]) -> Check {
    let late = |us: f64| if runs.iter().any(|run| run.lost() > 0) { f64::INFINITY } else { us };
    let taken = late(largest(runs.iter().flat_map(Run::without_stalls)));
    let name = format!("max qos, without stalls of the machine (limit: the plan's bound): {row}");
    Check::at_most(name, taken, bound).less_stalls(late(largest(runs.iter().flat_map(Run::all_times))))
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
        "and without waits for a line that stood still",
        "bound / that",
        "round trips",
        "later than the bound",
        "without stalls",
        "and waits for the line",
    ];
    let mut table = Table::new("Measured against bound (examples/yarp-switch.toml)", &heads);
    for (row, runs) in rows.iter().zip(runs).filter(|(row, _)| is_covered(setup, row)) {
        let runs = &runs[Arm::Qos as usize];
        let all: Vec<f64> = runs.iter().flat_map(Run::all_times).collect();
        let alone: Vec<f64> = runs.iter().flat_map(Run::without_overlap).collect();
        let taken: Vec<f64> = runs.iter().flat_map(Run::without_stalls).collect();
        let each = [&all, &alone, &taken];
        let [most, less, least] = each.map(|us| largest(us.iter().copied()));
        let [later, after, unexplained] = each.map(|us| us.iter().filter(|us| **us > bound).count() as f64);
        let count = all.len() as f64;
        table.row(row.to_string(), &[bound, most, less, least, bound / least, count, later, after, unexplained]);
    }
    table
}

/// The channels of a round trip.
const WAYS: [&str; 2] = ["there", "back"];
/// Measured times count up to the declared ones, in µs.
const CAP: f64 = 100.0;
/// The set-up as a contract.
const CONTRACT: &str = include_str!("../../../../examples/yarp-switch.toml");
/// Percent of the link's rate that its load has: the promise holds up to there.
const LOAD: u32 = 70;

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::super::setup::SWITCH;
    use super::super::testbed::run;
    use super::*;
    use crate::lab::Options;
    use crate::results::Verdict;

    fn bound(us: f64) -> f64 {
        let computed = Some(Computed { send: [us; 2], receive: [us; 2] });
        Bound::of([Run { computed, ..run(&[100], 0) }].iter(), &[]).unwrap().us
    }

    #[test]
    fn measured_times_lower_the_bound_and_noise_does_not_raise_it() {
        let declared = Bound::of([].iter(), &[]).unwrap().us;
        let transmission = 117.28 + 10.4;
        assert!(bound(10.0) > transmission && bound(10.0) < bound(50.0) && bound(50.0) < declared - 150.0);
        assert!(bound(1e6) <= declared, "{} {declared}", bound(1e6));
    }

    #[test]
    fn a_round_trip_that_does_not_come_back_is_later_than_any_bound() {
        let row = &rows(&SWITCH, &Options::default())[0];
        assert!(check(1221.0, row, &[run(&[100], 0)]).pass);
        assert_eq!(check(1221.0, row, &[run(&[100], 1)]).verdict, Verdict::Fail);
    }
}
