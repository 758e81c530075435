//! The results of the runs: cells, checks and the figure, and the planner's bound beside the round trips measured with
//! priority.

use super::bound::{self, Bound};
use super::testbed::{Run, SMALL, Setup};
use super::{Amount, Arm, RATE, Row};
use crate::experiments::lines;
use crate::lab::Size;
use crate::load::{Pattern, Protocol};
use crate::results::{Bar, Cell, Check, Figure, Findings, Group, Panel, Stalled, Table};
use crate::statistics::{Distribution, median, median_ratio, uncertainty};
use crate::topology::FULL_PACKET;
use serde_json::json;

/// All runs of a set-up.
#[derive(Debug)]
pub(super) struct Outcome<'a> {
    setup: &'static Setup,
    rows: &'a [Row],
    runs: Vec<[Vec<Run>; 2]>, // of each row: normal, qos; pairs have the same index
    dropped: Vec<String>,     // pairs that could not be run, with the reason
    least_pairs: usize,       // fewer of a row tell nothing
    bound: Option<Bound>,     // of a round trip with priority
}

impl<'a> Outcome<'a> {
    pub(super) fn new(setup: &'static Setup, rows: &'a [Row]) -> Self {
        let runs = rows.iter().map(|_| Default::default()).collect();
        Self { setup, rows, runs, dropped: Vec::new(), least_pairs: LEAST_PAIRS, bound: None }
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
        let checks = (0..self.rows.len()).flat_map(|index| self.checks(index)).chain(self.alike()).collect();
        let promised =
            |index: usize| self.promised(index).map(|bound| bound::bar(bound, &self.runs[index][Arm::Qos as usize]));
        let figure = figure(self.setup, self.rows, &cells, &promised);
        let of_bound = |bound: &Bound| [bound.parts(), bound::table(bound.us, self.setup, self.rows, &self.runs)];
        let tables =
            self.bound.iter().flat_map(of_bound).chain([self.overloads()]).chain(self.protocols_table()).collect();
        let cells = cells.into_iter().filter(|cell| cell.sent > 0).collect();
        let notes = notes(self.setup, amount).into_iter().chain(self.dropped).collect();
        Findings { cells, checks, notes, figure, queues, tables, ..Findings::default() }
    }

    /// Rows that differ only in the measured protocol, by index: udp, tcp.
    fn protocols(&self) -> Vec<(usize, usize)> {
        let find = |wanted: &Row| self.rows.iter().position(|row| row == wanted);
        let udp = |(index, row): (usize, &Row)| {
            let tcp = find(&Row { measured: Protocol::Tcp, ..row.clone() })?;
            (row.measured == Protocol::Udp && row.percent > 0).then_some((index, tcp))
        };
        self.rows.iter().enumerate().filter_map(udp).collect()
    }

    /// p50 by tcp / by udp of an arm, repetition by repetition.
    fn tcp_to_udp(&self, (udp, tcp): (usize, usize), arm: Arm) -> Vec<f64> {
        let p50 = |row: usize| {
            let runs = self.runs[row][arm as usize].iter();
            runs.map(|run| Distribution::of(&run.times()).map_or(f64::NAN, |d| d.p50)).collect::<Vec<_>>()
        };
        p50(tcp).iter().zip(p50(udp)).map(|(tcp, udp)| tcp / udp).collect()
    }

    /// With priority, round trips differ little by protocol.
    fn alike(&self) -> Vec<Check> {
        let check = |rows: (usize, usize)| {
            let found = self.tcp_to_udp(rows, Arm::Qos);
            let ratio = median(&found);
            let name = format!("p50 qos by tcp / by udp, or the other way round: {}", beside(&self.rows[rows.0]));
            Check::at_most(name, ratio.max(1.0 / ratio), ALIKE).certain_within(uncertainty(&found), ALIKE - 1.0)
        };
        self.protocols().into_iter().map(check).collect()
    }

    /// The same in both arms. The paper has TCP's round trips below UDP's without priority (Y-54).
    fn protocols_table(&self) -> Option<Table> {
        let heads = ["load", "normal", "qos"];
        let mut table = Table::new("Round trips by tcp / by udp beside the same load, medians of p50", &heads);
        for rows in self.protocols() {
            let ratios = Arm::BOTH.map(|arm| median(&self.tcp_to_udp(rows, arm)));
            let text = |ratio: f64| if ratio.is_finite() { format!("{ratio:.2}") } else { String::new() };
            table.rows.push([beside(&self.rows[rows.0])].into_iter().chain(ratios.map(text)).collect());
        }
        (!table.rows.is_empty()).then_some(table)
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

    /// The checks that compare a row's arms.
    fn compared(&self, index: usize) -> Vec<Check> {
        let (row, pairs) = (&self.rows[index], Pairs::of(&self.runs[index]));
        let named = |what: &str| format!("{what}: {row}");
        let better = |limit| Check::at_least(named("p99 normal / qos"), pairs.ratio(|d| d.p99), limit);
        let lost = || Check::at_most(named("lost qos"), pairs.lost_with_priority(), 0.0);
        let steady = || Check::at_most(named("standard deviation qos / normal"), pairs.inverse(|d| d.stdev), 1.0);
        match (row.percent, row.pattern) {
            (0, _) => Vec::new(),
            (20, _) => {
                let as_well = |what: &str, figure: fn(&Distribution) -> f64| {
                    let check =
                        Check::at_most(named(&format!("{what} qos / normal")), pairs.inverse(figure), 1.0 + LIGHT);
                    check.certain_within(pairs.noise(figure), LIGHT)
                };
                vec![as_well("mean", |d| d.mean), as_well("p99 - p50", Distribution::spread), lost()]
            }
            (70, pattern) => {
                let mean = Check::at_most(named("mean qos / normal"), pairs.inverse(|d| d.mean), 1.0);
                let spread = Check::at_most(named("p99 - p50 qos / normal"), pairs.inverse(Distribution::spread), 1.0);
                let bursts = matches!(pattern, Pattern::Bursts(_)).then(|| better(5.0));
                [mean, spread, steady(), lost()].into_iter().chain(bursts).collect()
            }
            (95, _) => vec![better(10.0), steady(), lost()],
            _ => {
                let usual = Check::at_least(named("p50 normal / qos"), pairs.ratio(|d| d.p50), USUAL);
                let usual = (row.load == Protocol::Udp && row.payload == SMALL).then_some(usual);
                [
                    self.much_better(row, &pairs).judged_from(Size::Quick),
                    steady(),
                    lost(),
                    self.against_no_load(row, &pairs),
                ]
                .into_iter()
                .chain(usual)
                .collect()
            }
        }
    }

    /// In an overload p99 with priority is 20 times better. That is asked of small samples; of a large one, what it takes beyond its own
    /// transmission, which no priority shortens, is compared.
    fn much_better(&self, row: &Row, pairs: &Pairs) -> Check {
        let own = own_us(self.setup, row);
        let beyond = if own > 0.0 { " beyond transmission" } else { "" };
        Check::at_least(format!("p99{beyond} normal / qos: {row}"), pairs.ratio(|d| d.p99 - own), MUCH_BETTER)
    }

    /// Overloads: p99 of both arms, their ratio, and the ratio of what is beyond a large sample's own transmission.
    fn overloads(&self) -> Table {
        let heads =
            ["load of 120 %, p99 in µs", "normal", "qos", "normal / qos", "transmission", "beyond it, normal / qos"];
        let mut table = Table::new("Overload", &heads);
        for (row, runs) in self.rows.iter().zip(&self.runs).filter(|(row, _)| row.percent > 100) {
            let (pairs, own) = (Pairs::of(runs), own_us(self.setup, row));
            let [normal, qos] = [pairs.without_priority(|d| d.p99), pairs.with_priority(|d| d.p99)];
            let ratios = [0.0, own].map(|own| pairs.ratio(|d| d.p99 - own));
            table.row(row.to_string(), &[normal, qos, ratios[0], own, ratios[1]]);
        }
        table
    }

    /// With priority, an overload costs at most one full packet that is being sent, and some of the rest. A sample that is
    /// no small one also takes its own time on the link, which without load the token bucket does not charge for.
    fn against_no_load(&self, row: &Row, pairs: &Pairs) -> Check {
        let is_same = |other: &Row| (other.percent, other.measured, other.payload) == (0, row.measured, row.payload);
        let idle = self.rows.iter().position(is_same).map(|index| Pairs::of(&self.runs[index]));
        let idle = idle.map_or(f64::NAN, |idle| 2.5 * idle.with_priority(|d| d.p99));
        let (own, words) = if row.payload > SMALL { (time_us(row.payload), ", and its own time") } else { (0.0, "") };
        let name = format!("p99 qos (limit: 2.5 x without load + one packet{words}): {row}");
        // Of 100 samples it is the second largest: in three runs of the ci size of each experiment, it was late in one.
        let found = pairs.with_priority(|d| d.p99);
        Check::at_most(name, found, idle + time_us(FULL_PACKET as usize) + own).judged_from(Size::Quick)
    }
}

/// A row without its protocol.
fn beside(row: &Row) -> String {
    format!("{} B beside {} % by {} ({})", row.payload, row.percent, row.load.name(), row.pattern.name())
}

/// Transmission of a large sample there and back over the line, with its headers, in µs; a small one's is left out.
fn own_us(setup: &Setup, row: &Row) -> f64 {
    if row.payload > SMALL && setup.switched { 2.0 * lines::transmission_us(row.payload, RATE) } else { 0.0 }
}

/// Time on the congested link, in microseconds.
fn time_us(bytes: usize) -> f64 {
    bytes as f64 * 8e6 / RATE as f64
}

/// Figures of a row's pairs: normal, qos.
struct Pairs {
    pairs: Vec<(Distribution, Distribution)>,
    lost: u64,
}

impl Pairs {
    fn of([normal, qos]: &[Vec<Run>; 2]) -> Self {
        let figures = |run: &Run| Distribution::of(&run.times());
        let pairs = normal.iter().zip(qos).filter_map(|(n, q)| Some((figures(n)?, figures(q)?))).collect();
        Self { pairs, lost: qos.iter().map(Run::lost).sum() }
    }

    /// Median of normal / qos.
    fn ratio(&self, figure: impl Fn(&Distribution) -> f64) -> f64 {
        median_ratio(&self.pairs.iter().map(|(n, q)| (figure(n), figure(q))).collect::<Vec<_>>())
    }

    /// Median of qos / normal.
    fn inverse(&self, figure: impl Fn(&Distribution) -> f64) -> f64 {
        median_ratio(&self.pairs.iter().map(|(n, q)| (figure(q), figure(n))).collect::<Vec<_>>())
    }

    fn without_priority(&self, figure: impl Fn(&Distribution) -> f64) -> f64 {
        median(&self.pairs.iter().map(|(n, _)| figure(n)).collect::<Vec<_>>())
    }

    fn with_priority(&self, figure: impl Fn(&Distribution) -> f64) -> f64 {
        median(&self.pairs.iter().map(|(_, q)| figure(q)).collect::<Vec<_>>())
    }

    /// Samples lost with priority; NaN without a measurement, which is no success.
    fn lost_with_priority(&self) -> f64 {
        if self.pairs.is_empty() { f64::NAN } else { self.lost as f64 }
    }

    /// The noise of a figure between repetitions of the same arm: twice its median distance from its median.
    fn noise(&self, figure: impl Fn(&Distribution) -> f64) -> f64 {
        let found: Vec<f64> = self.pairs.iter().map(|(normal, _)| figure(normal)).collect();
        let middle = median(&found);
        let distances: Vec<f64> = found.iter().map(|one| (one - middle).abs()).collect();
        2.0 * median(&distances) / middle
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
            told["offered_mbit"] = json!(round(run.offered.mbit()));
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
    vec![
        format!("The congested link has {} Mbit/s, Ethernet headers included; one full packet takes {:.1} µs.", RATE / 1_000_000, time_us(FULL_PACKET as usize)),
        format!("A round trip is a sample of {} B{small} by one channel and the same back by another, both of one carrier, from publish to callback. {count} per run, after {warmup} that do not count, at random distances of {} to {} ms; {repetitions} pairs of runs per row, the arms in turns first.", setup.payload, period.as_secs_f64() * 500.0, period.as_secs_f64() * 1500.0),
        "Arm normal: DSCP 0, SCHED_OTHER, one queue of 100 packets. Arm qos: class HIGH (AF42) and SCHED_FIFO 30 on the threads of both channels at both ends, set on the open channels, and the queue that makes the mark count.".into(),
        "Measured ends on processor 0, load (SCHED_FIFO 10) and sink (9) on processor 1, in both arms.".into(),
        "Loads of full packets. Random: at exponential distances. Bursts: at even ones. Greedy streams take what they get; their goodput is reported.".into(),
        "Figures are of all round trips; \"stalled\" counts those of which half or more may be a stall of the machine (a thread of SCHED_FIFO 80 ran too late).".into(),
    ]
}

/// Draws the cells of all rows (normal and qos of the first row, and so on), and the bound of each row, by its index.
fn figure(setup: &Setup, rows: &[Row], cells: &[Cell], promised: &dyn Fn(usize) -> Option<Bar>) -> Figure {
    let mut drawn: Vec<(u32, bool, bool, Panel)> = Vec::new();
    for (index, (row, cells)) in rows.iter().zip(cells.chunks(Arm::BOTH.len())).enumerate() {
        let key =
            (row.percent, matches!(row.pattern, Pattern::Bursts(_)) && row.percent <= 70, row.payload != setup.payload);
        let at = drawn.iter().position(|(percent, bursts, small, _)| (*percent, *bursts, *small) == key);
        let at = at.unwrap_or_else(|| {
            drawn.push((key.0, key.1, key.2, Panel { title: title(row, key.1, key.2), groups: Vec::new() }));
            drawn.len() - 1
        });
        let mut group = group(row, cells);
        group.bars.extend(promised(index));
        drawn[at].3.groups.push(group);
    }
    drawn.sort_by_key(|(percent, bursts, small, _)| (*small, *percent, *bursts));
    Figure {
        title: format!("{}: {} B, measured / load", setup.title, setup.payload),
        axis: "round trip, µs, medians over repetitions".into(),
        logarithmic: true,
        panels: drawn.into_iter().map(|(_, _, _, panel)| panel).collect(),
    }
}

fn title(row: &Row, bursts: bool, small: bool) -> String {
    let load = if row.percent == 0 { "no load".to_owned() } else { format!("{} %", row.percent) };
    let how = if bursts { " in bursts" } else { "" };
    let size = if small { format!(", {SMALL} B") } else { String::new() };
    format!("{load}{how}{size}")
}

fn group(row: &Row, cells: &[Cell]) -> Group {
    let measured = row.measured.name().to_uppercase();
    let beside = if row.percent == 0 { String::new() } else { format!(" / {}", row.load.name().to_uppercase()) };
    let bars = Arm::BOTH.iter().zip(cells).filter_map(|(arm, cell)| bar(*arm, cell));
    Group { label: format!("{measured}{beside}"), bars: bars.collect() }
}

/// Medians over repetitions, as they are checked: one disturbed repetition does not show.
fn bar(arm: Arm, cell: &Cell) -> Option<Bar> {
    let times: Vec<Distribution> =
        cell.repetitions.iter().filter_map(|one| serde_json::from_value(one["rtt_us"].clone()).ok()).collect();
    let middle = |figure: fn(&Distribution) -> f64| median(&times.iter().map(figure).collect::<Vec<_>>());
    let (value, deviation, p99) = (middle(|d| d.mean), middle(|d| d.stdev), middle(|d| d.p99));
    (!times.is_empty()).then(|| Bar { series: arm.name().into(), value, deviation, mark: Some(p99) })
}

/// By so much p99 is better with priority in an overload.
const MUCH_BETTER: f64 = 20.0;
/// With priority, the protocols' round trips differ by this factor at most.
const ALIKE: f64 = 1.5;
/// Pairs of a row that tell something.
const LEAST_PAIRS: usize = 3;
/// In an overload by datagrams, small samples with priority are so much faster in the middle: those without wait for a full queue of
/// 100 packets, 12 ms. Unlike p99, a hundred samples tell it.
const USUAL: f64 = 10.0;
/// At 20 % load a channel with priority may be worse by this share.
const LIGHT: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::super::testbed::{NIC, SWITCH, run};
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
    }

    #[test]
    fn round_trips_are_held_to_their_bound_where_the_contract_holds() {
        let rows = rows(&SWITCH, &Options::default());
        for (us, expected) in [(1300, true), (1400, false)] {
            let mut outcome = Outcome::new(&SWITCH, &rows);
            outcome.promise(Bound { us: 1329.0, ..Bound::default() });
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
    fn protocols_that_differ_with_priority_fail_and_without_it_are_told() {
        let rows = rows(&NIC, &Options::default());
        let judged = |tcp_us: [u64; 3]| {
            let mut outcome = Outcome::new(&NIC, &rows);
            for (index, row) in rows.iter().enumerate() {
                for tcp_us in tcp_us {
                    let us = if row.measured == Protocol::Tcp { tcp_us } else { 100 };
                    outcome.add(index, Arm::Normal, run(&[9000, 9000], 0));
                    outcome.add(index, Arm::Qos, run(&[us, us], 0));
                }
            }
            let found = outcome.findings(&amount(&Options::default()), Vec::new());
            let alike = found.checks.iter().filter(|check| check.name.starts_with("p50 qos by tcp"));
            let table = &found.tables.last().unwrap().rows;
            assert!(table.len() >= 8 && table.iter().all(|row| row[1] == "1.00" && !row[2].is_empty()), "{table:?}");
            alike.map(|check| check.verdict).collect::<Vec<_>>()
        };
        assert!(judged([120, 120, 120]).iter().all(|verdict| *verdict == Verdict::Pass));
        assert!(judged([60, 61, 62]).iter().all(|verdict| *verdict == Verdict::Fail));
        assert!(judged([20, 110, 600]).iter().all(|verdict| *verdict == Verdict::Inconclusive));
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
