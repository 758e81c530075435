//! `velox-topics` (V-50, Fig. 11 … 13): five reliable topics of 20 to 300 bytes; the time from the application to the middleware
//! (T_appmid) and back (T_midapp), by number of topics and by size.

use super::trace::{Run, Topic, Traced, Way};
use super::{RATE, first_processor, network};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, lines, shuffled};
use crate::lab::{Lab, Size};
use crate::part::{AWAKE, Hog};
use crate::results::{Bar, Check, Factors, Findings, Group, Panel, Table};
use crate::stalls::{Monitor, Timed};
use crate::statistics::{LinearFit, median};
use crate::topology::Topology;
use std::time::Duration;
use thalweg::carrier::Dice;
use thalweg::stages::End;

/// The experiment.
pub(crate) struct VeloxTopics;

/// Names and sizes; the paper gives those of the first, second and fourth.
pub(super) const TOPICS: [(&str, usize); 5] =
    [("/climat", 200), ("/exo", 20), ("/global", 100), ("/object", 300), ("/observateur", 50)];
const SIZES: [usize; 5] = [20, 50, 100, 200, 300];
/// Of each topic; five are the 12,000 samples/s of Table 2 (V-32).
const HZ: f64 = 2400.0;
/// T_midapp of 1 to 5 topics (Fig. 12a), T_appmid and T_midapp of 5 (Fig. 11), and T_midapp by size where the paper has it (Fig.
/// 12b), in µs.
const PAPER_TOPICS: [f64; 5] = [9.0, 15.0, 24.0, 34.0, 42.0];
const PAPER_APPMID: [f64; 5] = [f64::NAN, f64::NAN, f64::NAN, f64::NAN, 1.6];
const PAPER_SIZES: [f64; 5] = [6.0, f64::NAN, f64::NAN, 9.0, 9.0];
/// Least share of the variance between numbers of topics that a straight line must explain.
const LINEAR: f64 = 0.9;
/// From the least size to the greatest, costs may grow by this factor: they depend on it "hardly".
const HARDLY: f64 = 1.5;
/// Least share of the rate that must be reached.
const REACHED: f64 = 0.9;

impl Experiment for VeloxTopics {
    fn name(&self) -> &'static str {
        "velox-topics"
    }

    fn about(&self) -> &'static str {
        "five reliable topics of 20 to 300 bytes: from the application to the middleware and back, by number of topics and size"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        let topics: Vec<Topic> = TOPICS.iter().map(|(topic, size)| ((*topic).to_owned(), *size)).collect();
        let numbers: Vec<(String, Vec<Topic>)> =
            (1..=topics.len()).map(|n| (format!("{n}"), topics[..n].to_vec())).collect();
        let sizes = SIZES.iter().map(|size| (format!("{size} B"), vec![("/one".to_owned(), *size)])).collect();
        let mut topology = network(lab, 2)?;
        let by_number = measure(lab, &topology, "topics", numbers, &mut findings)?;
        let by_size = measure(lab, &topology, "size", sizes, &mut findings)?;
        lines::judge("all sets", &topology.end_lines(), &mut findings);
        judge(&by_number, &by_size, &mut findings);
        Ok(findings)
    }
}

/// Checks the shapes of Fig. 11 to 13.
fn judge(by_number: &[Costs], by_size: &[Costs], findings: &mut Findings) {
    let midapp = ("T_midapp", Costs::midapp as fn(&Costs) -> f64);
    for (what, of) in [midapp, ("from reception until taken", Costs::received)] {
        let points: Vec<(f64, f64)> = by_number.iter().zip(1..).map(|(costs, n)| (f64::from(n), of(costs))).collect();
        let line = LinearFit::through(&points);
        let (a, b) = line.map_or((f64::NAN, f64::NAN), |line| (line.a, line.b));
        let name =
            format!("{what}, of n topics: share that the line {a:.2} + {b:.2}·n µs explains (paper: -0.7 + 8.5·n)");
        findings.checks.push(Check::at_least(name, line.map_or(f64::NAN, |line| line.explained), LINEAR));
        findings.checks.push(Check::at_least(format!("{what}: of each further topic, µs"), b, 0.0));
    }
    for (name, cost) in [("T_appmid", Costs::appmid as fn(&Costs) -> f64), ("T_midapp", Costs::midapp)] {
        let grows = by_size.last().map_or(f64::NAN, cost) / by_size.first().map_or(f64::NAN, cost);
        findings.checks.push(Check::at_most(format!("{name} of 300 bytes / of 20"), grows, HARDLY));
    }
    for (costs, number) in by_number.iter().zip(1..) {
        let name =
            format!("{number} topics: from reception until taken / T_appmid (most of the time is the subscriber's)");
        findings.checks.push(Check::at_least(name, costs.received() / costs.appmid, 1.0));
    }
}

/// Sums over all topics, in µs.
#[derive(Clone, Copy, Debug)]
struct Costs {
    appmid: f64,
    midapp: f64,
    /// The wait from reception until `take` is called.
    cache: f64,
    /// From the return of `publish` to reception, of one sample.
    network: f64,
    /// Samples published per second.
    rate: f64,
}

impl Costs {
    fn appmid(&self) -> f64 {
        self.appmid
    }

    fn midapp(&self) -> f64 {
        self.midapp
    }

    /// From reception until the application has them.
    fn received(&self) -> f64 {
        self.cache + self.midapp
    }

    /// The costs of a run, with T_appmid of each topic.
    fn of(run: &Run, topics: usize, appmid: impl Iterator<Item = f64>) -> Self {
        let middle = |topic: usize, time: fn(&Way) -> u64| {
            let ways = run.ways.iter().filter(|way| way.topic == topic);
            median(&ways.map(|way| time(way) as f64 / 1e3).collect::<Vec<_>>())
        };
        let sum = |time: fn(&Way) -> u64| (0..topics).map(|topic| middle(topic, time)).sum();
        let span = run
            .ways
            .last()
            .zip(run.ways.first())
            .map_or(0, |(last, first)| last.published.saturating_sub(first.published));
        Self {
            appmid: appmid.sum(),
            midapp: sum(|way| way.taken.saturating_sub(way.asked)),
            cache: sum(|way| way.asked.saturating_sub(way.received)),
            network: middle(0, |way| way.received.saturating_sub(way.sent)),
            rate: run.sent.saturating_sub(1) as f64 * 1e9 / span as f64,
        }
    }
}

/// Measures the sets of topics in random order, each time with new processes. Two equal processes differ by half of
/// the measured value for as long as they live, and so do two seconds of a processor that others share. Many short
/// repetitions even that out, longer ones do not.
fn measure(
    lab: &Lab,
    topology: &Topology,
    by: &str,
    sets: Vec<(String, Vec<Topic>)>,
    findings: &mut Findings,
) -> Result<Vec<Costs>> {
    let (repetitions, ms) = match lab.options.size {
        Size::Tiny => (1, 100),
        Size::Ci | Size::Quick => (21, 200),
        Size::Whole => (60, 500),
    };
    let processor = Vec::from_iter(first_processor()?);
    let _awake = processor.first().map(|processor| Hog::Idle.start(lab, *processor)).transpose()?;
    let mut dice = Dice::new(lab.options.seed);
    let mut measured: Vec<(Tally, Vec<Costs>)> = sets.iter().map(|_| Default::default()).collect();
    for repetition in 0..repetitions {
        lab.tell(&format!("by {by}, repetition {} of {repetitions}", repetition + 1));
        for index in shuffled(sets.len(), &mut dice) {
            let topics = &sets[index].1;
            let (hz, seed) = (HZ * topics.len() as f64, lab.options.seed ^ repetition as u64);
            let mut traced = Traced::new(lab, topology, repetition * sets.len() + index, topics, &processor)?;
            traced.run(lab, hz, Duration::from_millis(ms / 4), seed)?;
            traced.stages(lab)?; // from nothing
            let (tally, found) = &mut measured[index];
            let monitor = Monitor::start()?;
            let run = traced.run(lab, hz, Duration::from_millis(ms), seed)?;
            let whole = |way: &Way| Timed { from_ns: way.published, ns: way.taken.saturating_sub(way.published) };
            tally.add(run.sent, &run.ways.iter().map(whole).collect::<Vec<_>>(), &monitor.finish());
            let stages = traced.stages(lab)?;
            let appmid = stages.iter().map(|publisher| publisher.p50_us(End::Publisher, "publish"));
            found.push(Costs::of(&run, topics.len(), appmid));
        }
    }
    let heads = [
        by,
        "T_appmid",
        "T_midapp",
        "wait in the cache",
        "network, one sample",
        "samples/s",
        "reception until taken",
        "T_midapp in the paper",
    ];
    let mut table = Table::new(format!("By {by}, µs: sums over the topics"), &heads);
    let mut panel = Panel { title: format!("by {by}"), groups: Vec::new() };
    let mut all = Vec::new();
    let paper = if by == "topics" { [PAPER_APPMID, PAPER_TOPICS] } else { [[f64::NAN; 5], PAPER_SIZES] };
    for (n, ((label, topics), (tally, found))) in sets.into_iter().zip(&measured).enumerate() {
        let middle = |of: fn(&Costs) -> f64| median(&found.iter().map(of).collect::<Vec<_>>());
        let (appmid, midapp, cache) = (middle(|c| c.appmid), middle(|c| c.midapp), middle(|c| c.cache));
        let costs = Costs { appmid, midapp, cache, network: middle(|c| c.network), rate: middle(|c| c.rate) };
        let factors = Factors::new().with("arm", by).with("topics", topics.len()).with("measured", super::CARRIER);
        let bytes = topics.iter().map(|(_, size)| size).sum::<usize>();
        findings.cells.push(tally.cell(factors.with("payload_bytes", bytes), false));
        findings.checks.push(Check::at_most(format!("by {by}, {label}: lost"), tally.lost() as f64, 0.0));
        let (least, smallest) = (super::least_us(tally), topics.iter().map(|(_, size)| *size).min().unwrap_or(0));
        lines::judge_idle(&format!("by {by}, {label}"), least, smallest, &[RATE; 2], findings);
        let asked = HZ * topics.len() as f64;
        let name = format!("by {by}, {label}: share of {asked} samples/s that was reached");
        findings.checks.push(Check::at_least(name, costs.rate / asked, REACHED));
        let text = |value: f64| if value.is_finite() { format!("{value:.2}") } else { String::new() };
        let values = [appmid, midapp, cache, costs.network, costs.rate, costs.received(), paper[1][n]].map(text);
        table.rows.push(std::iter::once(label.clone()).chain(values).collect());
        let bars = [
            ("T_appmid", appmid, paper[0][n]),
            ("T_midapp", midapp, paper[1][n]),
            ("from reception until taken", costs.received(), paper[1][n]),
        ];
        let bar = |(series, value, paper): (&str, f64, f64)| Bar {
            series: series.into(),
            value,
            mark: Some(paper).filter(|us| us.is_finite()),
            ..Bar::default()
        };
        panel
            .groups
            .push(Group { label, bars: bars.into_iter().filter(|(_, value, _)| value.is_finite()).map(bar).collect() });
        all.push(costs);
    }
    findings.tables.push(table);
    findings.figure.title = "From the application to the middleware and back".into();
    findings.figure.axis = "Sum over the topics in µs, medians over repetitions (mark: the paper's)".into();
    findings.figure.logarithmic = true;
    findings.figure.panels.push(panel);
    Ok(all)
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "one process publishes all topics in turn at exponential distances, {HZ} Hz each, another one on another host subscribes to all and takes their samples; tcp, behind a switch, 100 Mbit/s \
             each; both on one processor, threads FIFO 30, the lines on another"
        ),
        AWAKE.into(),
        "T_appmid: stage `publish`, from the call until the encoded message is offered to the channel. T_midapp: the call of `take` that returns a sample, as the paper's read() from a reader's \
         cache, without its display. Wait in the cache: from reception until `take` is called: the taking thread wakes up. Network: from the return of `publish` to reception. Medians over \
         repetitions, each with new processes, of medians over all samples: one interrupt in a hundred samples is as long as what is measured."
            .into(),
        "T_midapp sums the calls of all topics, as the paper's \"cumulative time\" does".into(),
        "cells: latency from publish to taken of all topics together; payload_bytes: the sum of one sample of each".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(midapp: f64, cache: f64) -> Costs {
        Costs { appmid: 1.0, midapp, cache, network: 50.0, rate: 12_000.0 }
    }

    fn failed(by_number: &[Costs], by_size: &[Costs]) -> Vec<String> {
        let mut findings = Findings::default();
        judge(by_number, by_size, &mut findings);
        findings.checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect()
    }

    #[test]
    fn the_papers_figures_pass_and_others_fail() {
        let paper = PAPER_TOPICS.map(|us| costs(us, 0.0));
        let sizes = [6.0, 7.0, 8.0, 9.0, 9.0].map(|us| costs(us, 0.0));
        assert_eq!(failed(&paper, &sizes), Vec::<String>::new());
        let level = [9.0, 30.0, 2.0, 40.0, 1.0].map(|us| costs(us, 0.0));
        assert!(failed(&level, &sizes).iter().any(|name| name.contains("explains")));
        let steep = failed(&paper, &[6.0, 7.0, 8.0, 9.0, 10.0].map(|us| costs(us, 0.0)));
        assert_eq!(steep, ["T_midapp of 300 bytes / of 20"]);
        let instant = failed(&[0.1, 0.2, 0.3, 0.4, 0.5].map(|us| costs(us, 0.0)), &sizes);
        assert_eq!(instant.len(), 5, "{instant:?}");
    }

    #[test]
    fn costs_are_summed_over_the_topics() {
        let way = |n: u64| Way {
            topic: (n % 2) as usize,
            due: n * 1000,
            published: n * 1000,
            sent: n * 1000 + 100,
            received: n * 1000 + 300,
            asked: n * 1000 + 400,
            taken: n * 1000 + 900,
        };
        let run = Run { ways: (0..11).map(way).collect(), sent: 11 };
        let found = Costs::of(&run, 2, [0.3, 0.4].into_iter());
        assert_eq!([found.appmid, found.midapp, found.cache, found.network], [0.7, 1.0, 0.2, 0.2]);
        assert_eq!(found.rate, 1e6);
    }
}
