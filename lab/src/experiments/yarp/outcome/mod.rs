//! The results of the runs: cells, tables, and the checks of each row.
//!
//! | module | contents |
//! |---|---|
//! | `arms` | a row's pairs of runs, with priority and without: what is expected of them |
//! | `protocols` | rows that differ only in the measured protocol |
//! | `setups` | rows of set-up (b) that were run in (a), too |
//! | `figure` | the figure |

mod arms;
mod figure;
mod protocols;
mod setups;

use super::bound::{self, Bound};
use super::setup::{SMALL, Setup};
use super::testbed::Run;
use super::{Amount, Arm, RATE, Row};
use crate::results::{Cell, Check, Findings, Stalled};
use crate::statistics::Distribution;
use crate::topology::FULL_PACKET;
use serde_json::json;
pub(super) use setups::is_in_both;

/// All runs of a set-up.
#[derive(Debug)]
pub(super) struct Outcome<'a> {
    setup: &'static Setup,
    rows: &'a [Row],
    runs: Vec<[Vec<Run>; 2]>,       // of each row: normal, qos; pairs have the same index
    dropped: Vec<String>,           // pairs that could not be run, with the reason
    least_pairs: usize,             // fewer of a row tell nothing
    bound: Option<Bound>,           // of a round trip with priority
    card: Option<Box<Outcome<'a>>>, // set-up (a) of some rows
}

impl<'a> Outcome<'a> {
    pub(super) fn new(setup: &'static Setup, rows: &'a [Row]) -> Self {
        let runs = rows.iter().map(|_| Default::default()).collect();
        Self { setup, rows, runs, dropped: Vec::new(), least_pairs: LEAST_PAIRS, bound: None, card: None }
    }

    /// Sets the planner's bound of a round trip with priority.
    pub(super) fn promise(&mut self, bound: Bound) {
        self.bound = Some(bound);
    }

    /// Runs with priority that a bound covers.
    pub(super) fn covered(&self) -> impl Iterator<Item = &Run> {
        let both = self.rows.iter().zip(&self.runs).filter(|(row, _)| bound::is_covered(self.setup, row));
        both.flat_map(|(_, runs)| &runs[Arm::Qos as usize])
    }

    /// Adds a run of the row with this index; its pair is added, too.
    pub(super) fn add(&mut self, row: usize, arm: Arm, run: Run) {
        self.runs[row][arm as usize].push(run);
    }

    /// A pair that could not be run: its row has one fewer.
    pub(super) fn drop(&mut self, pair: &str, because: &str) {
        self.dropped.push(format!("dropped: {pair}: {because}"));
    }

    /// All that was found.
    pub(super) fn findings(mut self, amount: &Amount, queues: Vec<String>) -> Findings {
        self.least_pairs = LEAST_PAIRS.min(amount.repetitions as usize);
        let both = self.rows.iter().zip(&self.runs);
        let cells: Vec<Cell> = both.flat_map(|(row, runs)| Arm::BOTH.map(|arm| cell(row, arm, runs))).collect();
        let checks = (0..self.rows.len())
            .flat_map(|index| self.checks(index))
            .chain(self.alike())
            .chain(self.slower())
            .collect();
        let promised =
            |index: usize| self.promised(index).map(|bound| bound::bar(bound, &self.runs[index][Arm::Qos as usize]));
        let figure = figure::figure(self.setup, self.rows, &cells, &promised);
        let of_bound = |bound: &Bound| [bound.parts(), bound::table(bound.us, self.setup, self.rows, &self.runs)];
        let of_rows = [Some(self.overloads()), self.setups_table(), self.protocols_table()].into_iter().flatten();
        let tables = self.bound.iter().flat_map(of_bound).chain(of_rows).collect();
        let cells = cells.into_iter().filter(|cell| cell.sent > 0).collect();
        let of_card = self.card.into_iter().flat_map(|card| card.dropped);
        let notes = notes(self.setup, amount).into_iter().chain(self.dropped).chain(of_card).collect();
        Findings { cells, checks, notes, figure, queues, tables, ..Findings::default() }
    }

    /// The bound of a row; `None` if the contract does not cover it.
    fn promised(&self, index: usize) -> Option<f64> {
        let bound = self.bound.as_ref().filter(|_| bound::is_covered(self.setup, &self.rows[index]));
        bound.map(|bound| bound.us)
    }

    /// The checks of a row.
    fn checks(&self, index: usize) -> Vec<Check> {
        let promised = self
            .promised(index)
            .map(|bound| bound::check(bound, &self.rows[index], &self.runs[index][Arm::Qos as usize]));
        let pairs = self.runs[index].iter().map(Vec::len).min().unwrap_or(0);
        let enough = |check: Check| match pairs {
            0 => check,
            _ if pairs < self.least_pairs => check.inconclusive(format!("{pairs} pairs were left of the row")),
            _ => check,
        };
        self.compared(index).into_iter().chain(promised).map(enough).collect()
    }
}

fn cell(row: &Row, arm: Arm, runs: &[Vec<Run>; 2]) -> Cell {
    let runs = &runs[arm as usize];
    let times: Vec<f64> = runs.iter().flat_map(Run::times).collect();
    let sent = runs.iter().map(|run| run.trips.len() as u64).sum();
    let lost = runs.iter().map(Run::lost).sum();
    let stalled = runs
        .iter()
        .map(Run::stalled)
        .fold(Stalled::default(), |sum, one| Stalled { n: sum.n + one.n, max: sum.max.max(one.max) });
    Cell {
        factors: row.factors(arm),
        n: times.len() as u64,
        rtt_us: Distribution::of(&times),
        latency_us: None,
        sent,
        received: sent - lost,
        lost,
        stalled: Some(stalled),
        without_stalled_us: Distribution::of(&runs.iter().flat_map(Run::times_not_stalled).collect::<Vec<_>>()),
        repetitions: runs.iter().map(|run| repetition(row, run)).collect(),
        samples: times,
    }
}

fn repetition(row: &Row, run: &Run) -> serde_json::Value {
    let mut told =
        json!({ "rtt_us": Distribution::of(&run.times()), "lost": run.lost(), "stalls": run.stalls.summary() });
    if row.percent > 0 {
        told["goodput_mbit"] = json!(round(run.goodput));
        if !row.pattern.is_greedy() {
            told["offered_mbit"] = json!(round(run.offered_mbit()));
        }
    }
    told
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn notes(setup: &Setup, amount: &Amount) -> Vec<String> {
    let Amount { repetitions, count, warmup, period } = amount;
    let small = if setup.payload == SMALL { String::new() } else { format!(", {SMALL} B in some rows") };
    let parts: Vec<String> =
        setup.loads.iter().map(|(host, percent)| format!("{percent} % of it from host {host}")).collect();
    let loads = if parts.len() == 1 { "Loads".to_owned() } else { format!("Two loads ({}),", parts.join(", ")) };
    vec![
        format!("The congested link has {} Mbit/s, Ethernet headers included; one full packet takes {:.1} µs.", RATE / 1_000_000, arms::time_us(FULL_PACKET as usize)),
        format!("A round trip is a sample of {} B{small} by one channel and an acknowledgement of {SMALL} B back by another, both of one carrier, from publish to callback. {count} per run, after {warmup} that do not count, at random distances of {} to {} ms; {repetitions} pairs of runs per row, the arms in turns first.", setup.payload, period.as_secs_f64() * 500.0, period.as_secs_f64() * 1500.0),
        "Arm normal: DSCP 0, SCHED_OTHER, one queue of 100 packets. Arm qos: class HIGH (AF42) and SCHED_FIFO 30 on the threads of both channels at both ends, set on the open channels, and the queue that makes the mark count.".into(),
        "Measured ends on processor 0, load (SCHED_FIFO 10) and sink (9) on processor 1, in both arms.".into(),
        format!("{loads} of full packets. Random: at exponential distances. Bursts: at even ones. Greedy streams take what they get; their goodput is reported."),
        "Figures are of all round trips; \"stalled\" counts those of which half or more may be a stall of the machine (a thread of SCHED_FIFO 80 ran too late).".into(),
    ]
}

/// Pairs of a row that tell something.
const LEAST_PAIRS: usize = 3;

#[cfg(test)]
mod tests {
    use super::super::setup::{BOTH, NIC, SWITCH};
    use super::super::testbed::run;
    use super::super::{amount, rows};
    use super::*;
    use crate::lab::Options;
    use crate::results::Verdict;

    /// Every row with these times in µs, normal and qos, without load and with.
    fn findings(idle: u64, normal: u64, qos: u64, lost: usize) -> Findings {
        let rows = rows(&NIC, &Options::default());
        let mut outcome = Outcome::new(&NIC, &rows);
        for (index, row) in rows.iter().enumerate() {
            let times = if row.percent == 0 { [idle, idle] } else { [normal, qos] };
            for _ in 0..3 {
                outcome.add(index, Arm::Normal, run(&[times[0] / 5, times[0]], 1));
                outcome.add(index, Arm::Qos, run(&[60, times[1]], lost));
            }
        }
        outcome.findings(&amount(&Options::default()), Vec::new())
    }

    #[test]
    fn all_checks_pass_where_priority_helps_as_wanted() {
        let found = findings(100, 10_000, 300, 0);
        let failed: Vec<_> = found.checks.iter().filter(|c| !c.pass).collect();
        assert!(failed.is_empty() && found.checks.len() > 30, "{failed:#?}");
        assert!(found.cells.iter().all(|cell| cell.n == 6 && cell.sent == cell.received + cell.lost));
    }

    #[test]
    fn each_expectation_can_fail() {
        let fails = |found: Findings, name: &str| {
            let failed = found.checks.iter().filter(|c| !c.pass && c.name.starts_with(name)).count();
            assert!(failed > 0, "{name} passes");
        };
        fails(findings(100, 5000, 300, 0), "p99 normal / qos"); // 16 times better, not 20
        fails(findings(100, 2900, 300, 0), "p50 normal / qos"); // 580 / 60 µs
        fails(findings(100, 10_000, 300, 1), "lost qos");
        fails(findings(70, 10_000, 300, 0), "p99 qos (limit"); // 175 + 121 µs
        fails(findings(100, 200, 300, 0), "mean qos / normal:");
        fails(findings(100, 250, 300, 0), "p99 - p50 qos");
        fails(findings(100, 200, 300, 0), "standard deviation qos / normal");
        fails(findings(100, 10_000, 300, 1), "lost qos: 64 B by udp, 20 %");
        fails(findings(100, 10_000, 300, 1), "lost qos: 64 B by udp, no load");
        fails(findings(30, 10_000, 300, 0), "the fastest, µs"); // 6 µs for 64 B: a line takes 9
    }

    #[test]
    fn a_machine_that_is_slow_without_load_makes_no_limit_easier() {
        // 2.5 times 700 µs, of which 500 count, and one packet of 121 µs.
        for (qos, expected) in [(1300, Verdict::Pass), (1500, Verdict::Inconclusive), (1900, Verdict::Fail)] {
            let found = findings(700, 100_000, qos, 0);
            let judged: Vec<_> = found.checks.iter().filter(|check| check.name.starts_with("p99 qos (limit")).collect();
            assert!(!judged.is_empty() && judged.iter().all(|check| check.verdict == expected), "{judged:#?}");
        }
    }

    #[test]
    fn round_trips_are_held_to_their_bound_where_the_contract_holds() {
        let rows = rows(&SWITCH, &Options::default());
        for (us, expected) in [(1200, true), (1300, false)] {
            let mut outcome = Outcome::new(&SWITCH, &rows);
            outcome.promise(Bound { us: 1221.0, ..Bound::default() });
            (0..3 * rows.len()).for_each(|index| {
                outcome.add(index / 3, Arm::Normal, run(&[100, 9000], 0));
                outcome.add(index / 3, Arm::Qos, run(&[60, us], 0));
            });
            let found = outcome.findings(&amount(&Options::default()), Vec::new());
            let held: Vec<_> = found.checks.iter().filter(|check| check.name.starts_with("max qos")).collect();
            assert!(
                held.len() == found.tables[1].rows.len() && held.iter().all(|check| check.pass == expected),
                "{held:#?}"
            );
            assert!(held.len() > 5 && !held.iter().any(|check| check.name.contains("120 %")), "{held:#?}");
        }
    }

    #[test]
    fn a_set_up_of_two_points_where_one_is_not_congested_fails() {
        let rows = rows(&BOTH, &Options::default());
        for (us, expected) in [(18_300, true), (17_900, false)] {
            let mut outcome = Outcome::new(&BOTH, &rows);
            for index in 0..rows.len() {
                (0..3).for_each(|_| outcome.add(index, Arm::Normal, run(&[us, us], 1)));
                (0..3).for_each(|_| outcome.add(index, Arm::Qos, run(&[300, 310], 0)));
            }
            let found = outcome.findings(&amount(&Options::default()), Vec::new());
            let full: Vec<_> = found.checks.iter().filter(|check| check.name.starts_with("p50 normal, µs")).collect();
            assert!(full.len() == 1 && full[0].pass == expected, "{full:?}");
        }
    }

    #[test]
    fn a_row_of_two_pairs_is_inconclusive() {
        let rows = rows(&NIC, &Options::default());
        let mut outcome = Outcome::new(&NIC, &rows);
        (0..2 * rows.len()).for_each(|index| {
            outcome.add(index / 2, Arm::Normal, run(&[100, 90_000], 0));
            outcome.add(index / 2, Arm::Qos, run(&[60, 100], 0));
        });
        let found = outcome.findings(&amount(&Options::default()), Vec::new());
        assert!(found.checks.iter().all(|check| check.verdict == Verdict::Inconclusive), "{:#?}", found.checks);
    }

    #[test]
    fn an_empty_measurement_passes_no_check() {
        let rows = rows(&NIC, &Options::default());
        let found = Outcome::new(&NIC, &rows).findings(&amount(&Options::default()), Vec::new());
        assert!(found.cells.is_empty() && found.checks.iter().all(|check| !check.pass && check.value.is_none()));
    }
}
