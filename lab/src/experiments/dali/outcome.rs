//! What `dali-mappings` found: Table I, the checks, and what stands beside them.

use super::arm::{Arm, Role};
use super::system::Run;
use super::transfer::{Beside, STOOD_STILL, STREAMS};
use super::walker::{LAST, Mapping};
use super::{RATE, later_us, paper, printed, ratio, settings, skip_missing, worst};
use crate::experiments::Tally;
use crate::lab::Size;
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::statistics::{Distribution, median};

/// Beside the transfer the p50 without priorities is at least this many times that with them.
const PRIORITY: f64 = 5.0;
/// The line is busy with the transfer for at least this share of its rate.
const FILLED: f64 = 0.8;

/// A mapping over an engine, alone or beside the transfer.
pub(super) struct Cell {
    pub mapping: Mapping,
    pub arm: &'static Arm,
    pub file: bool,
    /// Arrivals at AVI, of all its inputs.
    last: Tally,
    /// From the publication of a pose to AVI's callback for the path that was made of it.
    chain: Tally,
    /// Each channel by itself, in the order of programs and inputs.
    channels: Vec<(String, String, Tally)>,
    wrong: u64,
    refused: u64,
    footprint: Vec<[f64; 2]>,
    pub beside: Vec<Beside>,
}

impl Cell {
    pub(super) fn new(mapping: Mapping, arm: &'static Arm, file: bool) -> Self {
        let (last, chain) = (Tally::default(), Tally::default());
        let (channels, footprint, beside) = (Vec::new(), Vec::new(), Vec::new());
        Self { mapping, arm, file, last, chain, channels, wrong: 0, refused: 0, footprint, beside }
    }

    pub(super) fn name(&self) -> String {
        let beside = if self.file { " beside a file transfer" } else { "" };
        format!("{}, {}{beside}", self.mapping.name(), self.arm.name)
    }

    pub(super) fn add(&mut self, run: &Run) {
        let (sent, samples) = run.of(|channel| channel.program == LAST);
        self.last.add(sent, &samples, &run.stalls);
        let chains = run.chains(LAST);
        self.chain.add(chains.len() as u64, &chains, &run.stalls);
        for (at, channel) in run.channels.iter().enumerate() {
            if self.channels.len() <= at {
                self.channels.push((channel.program.clone(), channel.topic.clone(), Tally::default()));
            }
            self.channels[at].2.add(channel.sent, &channel.arrivals.samples, &run.stalls);
        }
        self.wrong += run.wrong();
        self.refused += run.refused;
        self.footprint.push(run.footprint);
    }

    /// The largest ratio of a latency to its channel's bound: as measured, and less the stalls of the machine during the sample itself. NaN: a
    /// channel has no bound, or nothing came.
    fn of_bound(&self) -> [f64; 2] {
        let of = |largest: fn(&Tally) -> f64| {
            let ratio = |(program, topic, tally): &(String, String, Tally)| {
                largest(tally) / self.mapping.bound_us(topic, program)
            };
            worst(self.channels.iter().map(ratio))
        };
        [of(Tally::largest), of(Tally::without_own_stalls)]
    }

    /// Samples later than their channel's bound: all, and those that a stall of the machine during the sample does not excuse.
    fn beyond(&self) -> [u64; 2] {
        let counts = self.channels.iter().map(|(program, topic, tally)| {
            let bound = self.mapping.bound_us(topic, program);
            [tally.beyond(bound).0, tally.beyond_without_own_stalls(bound)]
        });
        counts.fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
    }

    /// Of all channels; NaN: none had a sample to lose.
    fn lost(&self) -> f64 {
        let all: Vec<f64> = self.channels.iter().map(|(.., tally)| tally.missing()).filter(|n| !n.is_nan()).collect();
        if all.is_empty() { f64::NAN } else { all.iter().sum() }
    }

    /// Of the transfer beside it: its payload in Mbit/s, or the share of the time in which the line stood still.
    fn of_transfer(&self, of: fn(&Beside) -> f64) -> Vec<f64> {
        self.beside.iter().map(of).collect()
    }

    /// Inconclusive, unless it passes, where the line stood still meanwhile.
    fn excused(&self, check: Check) -> Check {
        let stood = median(&self.of_transfer(|beside| beside.stood_still));
        if check.pass || check.value.is_none() || stood.is_nan() || stood <= STOOD_STILL {
            return check; // what was not measured has no excuse
        }
        check.inconclusive(format!("the line stood still for {:.1} % of the time", stood * 100.0))
    }

    fn footprint(&self, at: usize) -> f64 {
        median(&self.footprint.iter().map(|both| both[at]).collect::<Vec<_>>())
    }
}

pub(super) fn judge(cells: &[Cell]) -> Findings {
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    let mut groups = Vec::new();
    for number in 1..=3 {
        let of = |file: bool| cells.iter().filter(move |cell| cell.mapping.number == number && cell.file == file);
        let (alone, beside): (Vec<&Cell>, Vec<&Cell>) = (of(false).collect(), of(true).collect());
        compare(&alone, &mut findings);
        bounds(&alone, &mut findings);
        priorities(&beside, &mut findings);
        for (label, some) in [(number.to_string(), &alone), (format!("{number}, file"), &beside)] {
            let mut bars: Vec<Bar> = some.iter().filter_map(|cell| cell.last.bar(cell.arm.name)).collect();
            let of_paper = paper::TABLE_I.iter().filter(|row| row.mapping == number && !label.contains("file"));
            bars.extend(of_paper.map(|row| printed(row.name, row.mean, row.stdev)));
            groups.extend((!some.is_empty()).then_some(Group { label, bars }));
        }
    }
    for cell in cells {
        whole(cell, &mut findings);
        for (measured, tally) in [("at AVI", &cell.last), ("chain", &cell.chain)] {
            let factors = Factors::new().with("arm", cell.arm.name).with("mapping", cell.mapping.number);
            let factors = factors.with("file", cell.file).with("measured", measured);
            findings.cells.push(tally.cell(factors, false));
        }
    }
    findings.tables = tables(cells);
    findings.figure = Figure {
        title: "Table I: latency at AVI by mapping; and beside a file transfer".into(),
        axis: "Latency in µs".into(),
        logarithmic: true,
        panels: vec![Panel { title: "mapping".into(), groups }],
    };
    skip_missing(&mut findings);
    findings
}

fn ours<'a>(cells: &[&'a Cell]) -> Option<&'a Cell> {
    cells.iter().copied().find(|cell| cell.arm.role == Role::Planned)
}

/// Thalweg's p99 is the lowest of all engines, and within what the paper says of 99 of 100 (D-18).
fn compare(alone: &[&Cell], findings: &mut Findings) {
    let Some(ours) = ours(alone) else { return };
    for other in alone.iter().filter(|cell| cell.arm.role == Role::Engine) {
        let name = format!("{}: p99 at AVI of {} / of thalweg", ours.mapping.name(), other.arm.name);
        let found = ratio(&other.last, &ours.last, |d| d.p99);
        findings.checks.push(Check::at_least(name, found, 1.0).judged_from(Size::Quick));
    }
    let p99 = Distribution::of(&ours.last.samples).map_or(f64::NAN, |d| d.p99);
    let name = format!("{}: p99 at AVI of thalweg, µs (paper, §V)", ours.mapping.name());
    findings.checks.push(Check::at_most(name, p99, paper::P99).judged_from(Size::Quick));
}

/// No sample of Thalweg is later than its bound. Where bare sockets were, the machine was.
fn bounds(alone: &[&Cell], findings: &mut Findings) {
    let Some(ours) = ours(alone) else { return };
    let [raw, less] = ours.of_bound();
    let name = format!("{}: the largest latency / its channel's bound, of thalweg", ours.mapping.name());
    let check = Check::at_most(name, less, 1.0).less_stalls(raw).judged_from(Size::Quick);
    let bare = alone.iter().find(|cell| cell.arm.role == Role::Baseline).map_or(f64::NAN, |cell| cell.of_bound()[1]);
    findings.checks.push(if check.pass || less.is_nan() || bare.is_nan() || bare <= 1.0 {
        check
    } else {
        check.inconclusive(format!("bare sockets themselves were up to {bare:.2} times as late as these bounds"))
    });
    let name = format!("{}: the longest chain from LOC by STP to AVI, µs (limit: its bound)", ours.mapping.name());
    let chain = &ours.chain;
    let check = Check::at_most(name, chain.without_own_stalls(), ours.mapping.chain_us());
    findings.checks.push(check.less_stalls(chain.largest()).judged_from(Size::Quick));
}

/// Beside a transfer that fills the line, priorities make the difference.
fn priorities(beside: &[&Cell], findings: &mut Findings) {
    let Some(ours) = ours(beside) else { return };
    let share = median(&ours.of_transfer(|beside| beside.goodput)) * 1e6 / RATE as f64;
    let check = Check::at_least("beside a file transfer: its share of the line", share, FILLED);
    findings.checks.push(ours.excused(check));
    for other in beside.iter().filter(|cell| cell.arm.role == Role::Unplanned) {
        let found = ratio(&other.last, &ours.last, |d| d.p50);
        let name = "beside a file transfer: p50 at AVI of thalweg without priorities / with";
        findings.checks.push(ours.excused(Check::at_least(name, found, PRIORITY)));
    }
}

/// Nothing is lost, doubled or damaged by an engine that promises that.
fn whole(cell: &Cell, findings: &mut Findings) {
    let Some(size) = cell.arm.role.keeps_all(cell.file) else { return };
    let lost = Check::at_most(format!("{}: lost", cell.name()), cell.lost(), 0.0);
    let wrong = (cell.wrong + cell.refused) as f64;
    let wrong = Check::at_most(format!("{}: doubled, out of order, damaged or refused", cell.name()), wrong, 0.0);
    findings.checks.extend([lost, wrong].map(|check| check.judged_from(size)));
}

fn tables(cells: &[Cell]) -> Vec<Table> {
    let heads = ["mapping, engine", "n", "max", "avg", "stdev", "p99", "p99 / bare", "max, less stalls"];
    let [mut last, mut chain] = ["at AVI, all inputs", "the chain from LOC by STP to AVI"]
        .map(|of| Table::new(format!("Table I in µs: {of}"), &heads));
    for cell in cells {
        let bare = cells.iter().find(|c| c.arm.role == Role::Baseline && c.mapping.number == cell.mapping.number);
        for (table, tally, bare) in
            [(&mut last, &cell.last, bare.map(|b| &b.last)), (&mut chain, &cell.chain, bare.map(|b| &b.chain))]
        {
            let found = Distribution::of(&tally.samples);
            let figure = |of: fn(&Distribution) -> f64| found.as_ref().map_or(f64::NAN, of);
            let against = bare.map_or(f64::NAN, |bare| ratio(tally, bare, |d| d.p99));
            let figures = [figure(|d| d.max), figure(|d| d.mean), figure(|d| d.stdev), figure(|d| d.p99)];
            let n = tally.samples.len() as f64;
            table.row(cell.name(), &[&[n], &figures[..], &[against, tally.without_own_stalls()]].concat());
        }
    }
    for row in &paper::TABLE_I {
        let name = format!("mapping {}, {}", row.mapping, row.name);
        last.row(name, &[f64::NAN, row.max, row.mean, row.stdev, f64::NAN, f64::NAN, f64::NAN]);
    }
    vec![last, chain, of_bounds(cells), of_programs(cells)]
}

fn of_bounds(cells: &[Cell]) -> Table {
    let heads =
        ["mapping, engine", "samples", "later than the bound", "of those, not by their own stalls", "largest / bound"];
    let mut table = Table::new("Samples beside the plan's bounds (made for thalweg; for others, to compare)", &heads);
    for cell in cells.iter().filter(|cell| !cell.file) {
        let ([late, unexcused], [raw, _]) = (cell.beyond(), cell.of_bound());
        let n: u64 = cell.channels.iter().map(|(.., tally)| tally.samples.len() as u64).sum();
        table.row(cell.name(), &[n as f64, late as f64, unexcused as f64, raw]);
    }
    table
}

fn of_programs(cells: &[Cell]) -> Table {
    let heads = [
        "mapping, engine",
        "threads",
        "memory of its own, KiB",
        "beside a file of, Mbit/s",
        "lost",
        "doubled, out of order, damaged",
        "refused",
    ];
    let mut table = Table::new("A program (median of the eight), and what all of them missed", &heads);
    for cell in cells {
        let goodput = median(&cell.of_transfer(|beside| beside.goodput));
        let missed = [cell.lost(), cell.wrong as f64, cell.refused as f64];
        table.row(cell.name(), &[&[cell.footprint(0), cell.footprint(1), goodput], &missed[..]].concat());
    }
    table
}

fn notes() -> Vec<String> {
    let mut notes = vec![
        "eight programs, a process each, by the contracts examples/dali-1.toml to -3.toml: periods of the paper's text, the others, sizes and edges our own reading, for Fig. 2 is not available to us".to_owned(),
        "latency at AVI: from just before publish to AVI's callback, of all its inputs. Chain: from the publication of the pose that a path was made of to AVI's callback for that path".to_owned(),
        format!("two hosts, a line of {} Mbit/s, classes by DSCP in front of it; each board's programs on a processor of their own. Engines one after the other in random order, with the same phases; programs of one are ended before the next begins", RATE / 1_000_000),
        "threads: all of SCHED_FIFO 30, as the paper has one priority for all; of thalweg the publishing and receiving ones as planned, and without priorities the ordinary policy".to_owned(),
        format!("bounds: the contract's, with a link that is {:.0} µs later: the lab's line may be late, and sends each packet once more behind the queue. A largest latency is less the stalls of the machine during the sample itself", later_us()),
        format!("file: {STREAMS} greedy streams from the second board to the first, unmarked"),
    ];
    notes.push("bounds: of declared times to compute, 0.2 ms at each end, which are limits and not measured, so they are loose: the table of bounds has the ratio".to_owned());
    notes.extend(settings());
    notes
}

#[cfg(test)]
mod tests {
    use super::super::arm::ARMS;
    use super::super::mappings::BESIDE;
    use super::*;
    use crate::results::Verdict;
    use crate::stalls::{Stalls, Timed};

    /// A run in which all samples of an arm took so many µs.
    fn run(mapping: &Mapping, us: f64, lost: u64) -> Run {
        let samples = vec![Timed { from_ns: 1, ns: (us * 1e3) as u64 }; 5];
        let channels = mapping.programs.iter().flat_map(|program| {
            program.inputs.iter().map(|input| super::super::system::Channel {
                program: program.name.clone(),
                topic: input.topic.clone(),
                sent: 5 + lost,
                arrivals: super::super::account::Arrivals {
                    samples: samples.clone(),
                    chains: samples.clone(),
                    ..Default::default()
                },
            })
        });
        Run { channels: channels.collect(), stalls: Stalls::default(), refused: 0, footprint: [1.0, 2.0] }
    }

    fn cells(us: impl Fn(&Arm, usize, bool) -> f64, lost: u64) -> Vec<Cell> {
        let mut cells = Vec::new();
        for number in 1..=3 {
            let mapping = Mapping::new(number, later_us()).unwrap();
            for file in [false, true].into_iter().filter(|file| !file || number == BESIDE) {
                for arm in ARMS {
                    let mut cell = Cell::new(mapping.clone(), arm, file);
                    cell.add(&run(&mapping, us(arm, number, file), if arm.role == Role::Baseline { 0 } else { lost }));
                    cell.beside.push(Beside { goodput: 90.0, stood_still: 0.0 });
                    cells.push(cell);
                }
            }
        }
        cells
    }

    /// As expected: engines slower than thalweg, two boards slower than one, all slow beside a file but with priorities.
    fn expected(arm: &Arm, number: usize, file: bool) -> f64 {
        let own = match arm.role {
            Role::Baseline => 40.0,
            Role::Planned => 50.0,
            Role::Unplanned => 60.0,
            Role::Engine => 200.0,
        };
        let slow = if file && arm.role == Role::Unplanned { 100.0 } else { 1.0 };
        own * number as f64 * slow
    }

    fn failed(cells: &[Cell]) -> Vec<String> {
        let failed = |check: &Check| check.verdict == Verdict::Fail;
        judge(cells).checks.into_iter().filter(failed).map(|check| check.name).collect()
    }

    #[test]
    fn the_expected_figures_pass() {
        assert_eq!(failed(&cells(expected, 0)), Vec::<String>::new());
        let findings = judge(&cells(expected, 0));
        assert_eq!(findings.tables[0].rows.len(), 4 * ARMS.len() + 9);
        assert_eq!(findings.figure.panels[0].groups.len(), 4);
    }

    #[test]
    fn a_late_sample_a_lost_one_and_a_missing_priority_fail() {
        let late = failed(&cells(
            |arm, number, file| expected(arm, number, file) * if arm.role == Role::Planned { 50.0 } else { 1.0 },
            0,
        ));
        assert_eq!(late.iter().filter(|name| name.contains("its channel's bound")).count(), 3, "{late:?}");
        let lost = failed(&cells(expected, 1));
        assert!(lost.iter().any(|name| name == "mapping 1, thalweg: lost"), "{lost:?}");
        let beside: Vec<&String> = lost.iter().filter(|name| name.ends_with("beside a file transfer: lost")).collect();
        assert_eq!(beside, ["mapping 3, thalweg beside a file transfer: lost"]);
        let unmarked = failed(&cells(
            |arm, number, file| {
                expected(arm, number, file) * if file && arm.role == Role::Planned { 100.0 } else { 1.0 }
            },
            0,
        ));
        assert!(unmarked.iter().any(|name| name.contains("without priorities / with")), "{unmarked:?}");
    }

    /// A cell of mapping 3 beside the file, with a pair of p50 for each repetition and the line's.
    fn beside(us: &[f64], role: Role, line: Beside) -> Cell {
        let mapping = Mapping::new(BESIDE, later_us()).unwrap();
        let arm = ARMS.iter().find(|arm| arm.role == role).unwrap();
        let mut cell = Cell::new(mapping.clone(), arm, true);
        for us in us {
            cell.add(&run(&mapping, *us, 0));
            cell.beside.push(line);
        }
        cell
    }

    fn verdicts(with: &[f64], without: &[f64], line: Beside) -> Vec<Verdict> {
        let cells = [beside(with, Role::Planned, line), beside(without, Role::Unplanned, line)];
        let of_line = |check: &Check| check.name.starts_with("beside a file transfer");
        judge(&cells).checks.into_iter().filter(of_line).map(|check| check.verdict).collect()
    }

    #[test]
    fn of_three_pairs_the_median_counts_and_a_line_that_stood_still_excuses() {
        use Verdict::{Fail, Inconclusive, Pass};
        let line = |goodput, stood_still| Beside { goodput, stood_still };
        let without = [1000.0; 3];
        assert_eq!(verdicts(&[100.0, 900.0, 100.0], &without, line(90.0, 0.0)), [Pass, Pass]);
        assert_eq!(verdicts(&[100.0, 900.0, 900.0], &without, line(90.0, 0.0)), [Pass, Fail], "one of three by chance");
        assert_eq!(verdicts(&[100.0; 3], &without, line(70.0, 0.0)), [Fail, Pass], "no transfer");
        assert_eq!(verdicts(&[900.0; 3], &without, line(70.0, 0.1)), [Inconclusive; 2]);
    }

    #[test]
    fn a_channel_from_which_nothing_came_keeps_no_bound() {
        let mut cells = cells(expected, 0);
        let ours = cells.iter_mut().find(|cell| cell.arm.role == Role::Planned && !cell.file).unwrap();
        ours.channels[0].2 = Tally::default();
        let failed = failed(&cells);
        assert_eq!(failed.iter().filter(|name| name.contains("its channel's bound")).count(), 1, "{failed:?}");
    }

    #[cfg(feature = "zenoh")]
    #[test]
    fn an_engine_that_is_faster_fails() {
        let faster =
            |arm: &Arm, number: usize, file| expected(arm, number, file) / if arm.name == "zenoh" { 10.0 } else { 1.0 };
        let faster = failed(&cells(faster, 0));
        assert_eq!(
            faster.iter().filter(|name| name.contains("p99 at AVI of zenoh / of thalweg")).count(),
            3,
            "{faster:?}"
        );
    }

    #[test]
    fn an_empty_measurement_passes_nothing() {
        let mapping = Mapping::new(3, later_us()).unwrap();
        let nothing: Vec<Cell> = ARMS.iter().map(|arm| Cell::new(mapping.clone(), arm, false)).collect();
        let checks = judge(&nothing).checks;
        let empty = |check: &&Check| !check.name.contains("doubled");
        assert!(!checks.is_empty() && checks.iter().filter(empty).all(|check| !check.pass), "{checks:?}");
    }
}
