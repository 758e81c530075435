//! `dali-failover` (D-04): the second board fails; the walker is planned anew for the first one alone, and its programs are started there. How
//! long AVI hears nothing.

use super::arm::{ARMS, Role};
use super::boards::Boards;
use super::program::{Order, Report, Silence};
use super::system::System;
use super::walker::{LAST, Mapping, Program};
use super::{SETTLE, later_us, worst};
use crate::error::{Error, Result};
use crate::experiments::Experiment;
use crate::lab::{Lab, Size};
use crate::part::LONG;
use crate::results::{Bar, Cell, Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::stalls::Timed;
use crate::statistics::{Distribution, median};
use linux::clock::monotonic_ns;
use serde_json::{Value, json};
use std::time::Duration;

/// The experiment.
pub(in crate::experiments) struct DaliFailover;

/// The mapping that fails, and the one that follows.
const MAPPINGS: [usize; 2] = [3, 1];
/// AVI hears nothing for so long, five of its shortest periods: the other board is given up.
const GIVEN_UP: Duration = Duration::from_millis(50);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(5);
/// Longest silence of a topic beyond its period.
const LIMIT_MS: f64 = 2000.0;
/// Rounds of `--ci`, of which most must keep the limit: starting seven programs takes what the machine leaves.
const CI_ROUNDS: usize = 3;

impl Experiment for DaliFailover {
    fn name(&self) -> &'static str {
        "dali-failover"
    }

    fn about(&self) -> &'static str {
        "the walker's second board fails: planned anew for the first one, started there, and how long AVI hears nothing"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let rounds = match lab.options.size {
            Size::Tiny => 1,
            Size::Ci => CI_ROUNDS,
            Size::Quick => 5,
            Size::Whole => 15,
        };
        let most = lab.options.size == Size::Ci;
        let mut boards = Boards::new(lab)?;
        let mut outages = Vec::new();
        for number in 1..=rounds {
            lab.tell(&format!("round {number} of {rounds}"));
            outages.push(fail(lab, &mut boards)?);
            if most && is_decided(&outages) {
                break;
            }
        }
        let mut findings = judge(&outages, most);
        boards.end(&mut findings)?;
        Ok(findings)
    }
}

/// A failure, in ms from when the board ended.
#[derive(Clone, Debug, Default)]
struct Outage {
    /// AVI has heard nothing for long enough.
    noticed: f64,
    /// There is a new plan.
    planned: f64,
    /// The programs are started and have heard of each other.
    connected: f64,
    /// AVI's topics, and the silence of each beyond its period.
    silences: Vec<(String, f64)>,
    /// Samples of the new mapping that AVI got twice, out of order or damaged.
    wrong: u64,
}

impl Outage {
    /// Of all topics; not a number: one did not come back.
    fn longest(&self) -> f64 {
        worst(self.silences.iter().map(|(_, ms)| *ms))
    }
}

fn fail(lab: &Lab, boards: &mut Boards) -> Result<Outage> {
    let arm = ARMS.iter().find(|arm| arm.role == Role::Planned);
    let arm = arm.ok_or_else(|| Error::Failed("thalweg is not among the engines".into()))?;
    let before = Mapping::new(MAPPINGS[0], later_us())?;
    let mut system = System::open(lab, boards, arm, &before.programs)?;
    publish(lab, &mut system)?;
    lab.stop.sleep(Duration::from_millis(1200))?; // each topic came
    system.part(LAST)?.ask::<Report>(lab, &Order::Take, LONG)?;
    let failed_ns = monotonic_ns();
    let since = || (monotonic_ns() - failed_ns) as f64 / 1e6;
    system.kill(2);
    // Before this one of the old programs may have published still.
    let ended_ns = monotonic_ns();
    let mut outage = Outage::default();
    while system.part(LAST)?.ask::<Silence>(lab, &Order::Listen, LONG)?.ns < GIVEN_UP.as_nanos() as u64 {
        lab.stop.sleep(LOOK)?;
    }
    outage.noticed = since();
    let after = Mapping::new(MAPPINGS[1], later_us())?;
    outage.planned = since();
    system.start(lab, boards, arm, &after.programs)?;
    publish(lab, &mut system)?;
    system.heard(lab)?;
    system.schedule(lab)?;
    outage.connected = since();
    lab.stop.sleep(Duration::from_millis(1200) + SETTLE)?;
    let report: Report = system.part(LAST)?.ask(lab, &Order::Take, LONG)?;
    let avi = after.programs.iter().find(|program| program.name == LAST);
    for (input, arrivals) in avi.iter().flat_map(|avi| &avi.inputs).zip(report.inputs) {
        let silence = silence_ms(&arrivals.samples, failed_ns, ended_ns) - period_ms(&after.programs, &input.topic);
        outage.silences.push((input.topic.clone(), silence));
        outage.wrong += arrivals.again + arrivals.damaged;
    }
    Ok(outage)
}

/// Lets all publish that do not yet, until they end.
fn publish(lab: &Lab, system: &mut System) -> Result {
    let now = monotonic_ns();
    let start = Order::Start { from_ns: now, begin_ns: now, until_ns: u64::MAX, most_ns: u64::MAX };
    system.all::<Value>(lab, &start).map(drop)
}

/// From the failure to the first sample that was published once all old programs had ended; NaN: none came.
fn silence_ms(samples: &[Timed], failed_ns: u64, ended_ns: u64) -> f64 {
    let first = samples.iter().find(|sample| sample.from_ns > ended_ns);
    first.map_or(f64::NAN, |sample| (sample.from_ns + sample.ns - failed_ns) as f64 / 1e6)
}

fn period_ms(programs: &[Program], topic: &str) -> f64 {
    let outputs = programs.iter().filter_map(|program| program.output.as_ref());
    let of = outputs.into_iter().find(|output| output.topic == topic);
    of.map_or(f64::NAN, |output| output.period_ns as f64 / 1e6)
}

/// Judges the middle round alone, which keeps the limit if most do, or each of them.
fn judge(outages: &[Outage], most: bool) -> Findings {
    let judged: Vec<&Outage> = if most { middle(outages).into_iter().collect() } else { outages.iter().collect() };
    let mut findings = Findings::default();
    let heads = ["", "median, ms", "longest, ms"];
    let mut table = Table::new("From the failure of the second board", &heads);
    let mut row = |name: &str, of: Vec<f64>| {
        table.row(name, &[median(&of), of.iter().copied().fold(f64::NAN, f64::max)]);
    };
    let each = |of: fn(&Outage) -> f64| outages.iter().map(of).collect::<Vec<f64>>();
    row("AVI has heard nothing for 50 ms", each(|outage| outage.noticed));
    row("planned anew", each(|outage| outage.planned));
    row("started and connected", each(|outage| outage.connected));
    let topics: Vec<&String> =
        outages.first().iter().flat_map(|first| first.silences.iter().map(|(topic, _)| topic)).collect();
    let mut groups = Vec::new();
    for topic in topics {
        let of = |outage: &Outage| outage.silences.iter().find(|(of, _)| of == topic).map_or(f64::NAN, |(_, ms)| *ms);
        let silences: Vec<f64> = outages.iter().map(of).collect();
        row(&format!("silence of {topic} beyond its period"), silences.clone());
        let most = worst(judged.iter().copied().map(of));
        let name = format!("{topic}: the longest silence of AVI beyond its period, ms");
        findings.checks.push(Check::at_most(name, most, LIMIT_MS));
        let bar = Bar { series: "silence".into(), value: median(&silences).max(0.0), deviation: 0.0, mark: None };
        groups.push(Group { label: topic.clone(), bars: vec![bar] });
        let us: Vec<f64> = silences.iter().filter(|ms| ms.is_finite()).map(|ms| ms * 1e3).collect();
        findings.cells.push(Cell {
            factors: Factors::new().with("arm", "thalweg").with("topic", &topic[..]).with("measured", "silence"),
            n: us.len() as u64,
            latency_us: Distribution::of(&us),
            sent: silences.len() as u64,
            received: us.len() as u64,
            lost: (silences.len() - us.len()) as u64,
            repetitions: outages.iter().map(|outage| json!({"noticed_ms": outage.noticed, "planned_ms": outage.planned, "connected_ms": outage.connected})).collect(),
            samples: us,
            ..Cell::default()
        });
    }
    let wrong: u64 = outages.iter().map(|outage| outage.wrong).sum();
    findings.checks.push(Check::at_most("samples that AVI got twice, out of order or damaged", wrong as f64, 0.0));
    findings.tables = vec![table];
    findings.figure = Figure {
        title: "The second board fails: silence of AVI's topics beyond their periods, medians".into(),
        axis: "ms".into(),
        logarithmic: false,
        panels: vec![Panel { title: String::new(), groups }],
    };
    findings.notes = notes();
    findings
}

/// Whether the rounds so far are most of [`CI_ROUNDS`] and agree.
fn is_decided(outages: &[Outage]) -> bool {
    let kept = outages.iter().filter(|outage| outage.longest() <= LIMIT_MS).count();
    kept.max(outages.len() - kept) > CI_ROUNDS / 2
}

/// The round with the median of the longest silences; of two, which agree, the worse one.
fn middle(outages: &[Outage]) -> Option<&Outage> {
    let mut sorted: Vec<&Outage> = outages.iter().collect();
    sorted.sort_by(|one, other| one.longest().total_cmp(&other.longest())); // NaN is the last
    sorted.get(sorted.len() / 2).copied()
}

fn notes() -> Vec<String> {
    vec![
        "mapping 3 runs; all programs of the second board are killed (SIGKILL) at once. When AVI has heard nothing for 50 ms, the contract of mapping 1 is planned, the seven programs are started on the first board, which has the same AVI as before, and threads are scheduled as planned".to_owned(),
        "silence: from just before the first program is killed to the callback of the first sample published after the last one has ended, less the topic's period".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage(ms: f64) -> Outage {
        Outage { silences: vec![("/pose".into(), ms), ("/path".into(), 100.0)], ..Outage::default() }
    }

    fn failed(outages: &[Outage]) -> Vec<String> {
        judge(outages, false).checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect()
    }

    #[test]
    fn one_topic_that_is_silent_for_too_long_fails() {
        assert_eq!(failed(&[outage(300.0), outage(1900.0)]), Vec::<String>::new());
        for ms in [2100.0, f64::NAN] {
            let failed = failed(&[outage(300.0), outage(ms), outage(300.0)]);
            assert!(failed.len() == 1 && failed[0].starts_with("/pose"), "{ms}: {failed:?}");
        }
    }

    #[test]
    fn of_a_small_run_most_rounds_decide_each_as_a_whole() {
        let failed = |of: &[Outage]| judge(of, true).checks.into_iter().filter(|check| !check.pass).count();
        assert_eq!(failed(&[outage(2100.0), outage(300.0), outage(400.0)]), 0);
        assert_eq!(failed(&[outage(2100.0), outage(300.0), outage(f64::NAN)]), 1, "one of three is no majority");
        assert_eq!([failed(&[outage(300.0), outage(400.0)]), failed(&[outage(2100.0), outage(2200.0)])], [0, 1]);
        // Each topic comes back in time in most of them, but both do in one alone.
        let other = Outage { silences: vec![("/pose".into(), 100.0), ("/path".into(), 2500.0)], ..Outage::default() };
        assert_eq!(failed(&[outage(2100.0), other, outage(300.0)]), 1);
    }

    #[test]
    fn two_rounds_that_agree_are_most_of_three() {
        let decided = |ms: &[f64]| is_decided(&ms.iter().copied().map(outage).collect::<Vec<_>>());
        assert!(!decided(&[]) && !decided(&[300.0]) && !decided(&[300.0, 2100.0]));
        assert!(decided(&[300.0, 400.0]) && decided(&[2100.0, f64::NAN]) && decided(&[300.0, 2100.0, 400.0]));
    }

    #[test]
    fn silence_ends_with_a_sample_of_the_new_programs() {
        let samples = [(50, 100), (150, 30), (160, 30)].map(|(from_ns, ns)| Timed { from_ns, ns });
        assert!((silence_ms(&samples, 100, 120) - 80.0 / 1e6).abs() < 1e-12);
        assert!((silence_ms(&samples, 100, 155) - 90.0 / 1e6).abs() < 1e-12, "one was published while programs ended");
        assert!(silence_ms(&samples[..1], 100, 100).is_nan());
    }
}
