//! `velox-topics` (V-50, Fig. 11 … 13): five reliable topics of 20 to 300 bytes; the time from the application to the middleware
//! (T_appmid) and back (T_midapp), by number of topics and by size.

use super::{Testbed, first_processor, stream};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, shuffled};
use crate::lab::Lab;
use crate::part::member::Stream;
use crate::part::{AWAKE, Hog};
use crate::results::{Bar, Check, Factors, Findings, Group, Panel, Table};
use crate::statistics::{LinearFit, median};
use std::time::Duration;
use thalweg::carrier::Dice;
use thalweg::stages::End;

/// The experiment.
pub(crate) struct VeloxTopics;

/// Names and sizes; the paper gives those of the first, second and fourth.
const TOPICS: [(&str, usize); 5] =
    [("/climat", 200), ("/exo", 20), ("/global", 100), ("/object", 300), ("/observateur", 50)];
const SIZES: [usize; 5] = [20, 50, 100, 200, 300];
/// Five topics: the 12,000 samples/s of Table 2 (V-32).
const HZ: f64 = 2400.0;
/// Least share of the variance between numbers of topics that a straight line must explain.
const LINEAR: f64 = 0.9;
/// From the least size to the greatest, costs may grow by this factor: they depend on it "hardly".
const HARDLY: f64 = 1.5;

impl Experiment for VeloxTopics {
    fn name(&self) -> &'static str {
        "velox-topics"
    }

    fn about(&self) -> &'static str {
        "five reliable topics of 20 to 300 bytes: from the application to the middleware and back, by number of topics and size"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        let topics: Vec<Stream> = TOPICS.iter().map(|(topic, size)| stream(topic, *size, HZ)).collect();
        let numbers: Vec<(String, Vec<Stream>)> =
            (1..=topics.len()).map(|n| (format!("{n}"), topics[..n].to_vec())).collect();
        let sizes = SIZES.iter().map(|size| (format!("{size} B"), vec![stream("/one", *size, HZ)])).collect();
        let by_number = measure(lab, "topics", numbers, &mut findings)?;
        let by_size = measure(lab, "size", sizes, &mut findings)?;
        let points: Vec<(f64, f64)> =
            by_number.iter().enumerate().map(|(n, costs)| (n as f64 + 1.0, costs.midapp)).collect();
        let line = LinearFit::through(&points);
        let (a, b) = line.map_or((f64::NAN, f64::NAN), |line| (line.a, line.b));
        let name =
            format!("T_midapp of n topics: share that the line {a:.2} + {b:.2}·n µs explains (paper: -0.7 + 8.5·n)");
        findings.checks.push(Check::at_least(name, line.map_or(f64::NAN, |line| line.explained), LINEAR));
        findings.checks.push(Check::at_least("T_midapp of each further topic, µs", b, 0.0));
        for (name, cost) in [("T_appmid", Costs::appmid as fn(&Costs) -> f64), ("T_midapp", Costs::midapp)] {
            let grows = by_size.last().map_or(f64::NAN, cost) / by_size.first().map_or(f64::NAN, cost);
            findings.checks.push(Check::at_most(format!("{name} of 300 bytes / of 20"), grows, HARDLY));
        }
        Ok(findings)
    }
}

/// Sums over all topics, in µs.
#[derive(Clone, Copy, Debug)]
struct Costs {
    appmid: f64,
    midapp: f64,
}

impl Costs {
    fn appmid(&self) -> f64 {
        self.appmid
    }

    fn midapp(&self) -> f64 {
        self.midapp
    }
}

/// Measures the sets of topics in random order, each time with new processes. Two equal processes differ by half of
/// the measured value for as long as they live, and so do two seconds of a processor that others share. Many short
/// repetitions even that out, longer ones do not.
fn measure(lab: &Lab, by: &str, sets: Vec<(String, Vec<Stream>)>, findings: &mut Findings) -> Result<Vec<Costs>> {
    let (repetitions, ms) = match () {
        () if lab.options.tiny => (1, 100),
        () if lab.options.quick => (21, 200),
        () => (60, 500),
    };
    let processor = Vec::from_iter(first_processor()?);
    let _awake = processor.first().map(|processor| Hog::Idle.start(lab, *processor)).transpose()?;
    let mut dice = Dice::new(lab.options.seed);
    let mut measured: Vec<(Tally, Vec<(f64, f64)>)> = sets.iter().map(|_| Default::default()).collect();
    for repetition in 0..repetitions {
        lab.tell(&format!("by {by}, repetition {} of {repetitions}", repetition + 1));
        for index in shuffled(sets.len(), &mut dice) {
            let mut testbed = Testbed::start(lab, &format!("{by}-{index}"), &sets[index].1, 1, &processor)?;
            testbed.run(lab, Duration::from_millis(ms / 4), &mut Tally::default())?;
            testbed.stages(lab)?; // from nothing
            let (tally, found) = &mut measured[index];
            testbed.run(lab, Duration::from_millis(ms), tally)?;
            let stages = testbed.stages(lab)?;
            let appmid: f64 = stages.iter().map(|[publisher, _]| publisher.p50_us(End::Publisher, "publish")).sum();
            let midapp: f64 = stages.iter().map(|[_, subscriber]| subscriber.p50_us(End::Subscriber, "decode")).sum();
            found.push((appmid, midapp));
        }
    }
    let mut table = Table::new(format!("By {by}, µs: sums over the topics"), &[by, "T_appmid", "T_midapp"]);
    let mut panel = Panel { title: format!("by {by}"), groups: Vec::new() };
    let mut all = Vec::new();
    for ((label, streams), (tally, found)) in sets.into_iter().zip(&measured) {
        let middle = |of: fn(&(f64, f64)) -> f64| median(&found.iter().map(of).collect::<Vec<_>>());
        let costs = Costs { appmid: middle(|c| c.0), midapp: middle(|c| c.1) };
        let factors = Factors::new().with("arm", by).with("topics", streams.len()).with("measured", super::CARRIER);
        findings
            .cells
            .push(tally.cell(factors.with("payload_bytes", streams.iter().map(|s| s.size).sum::<usize>()), false));
        findings.checks.push(Check::at_most(format!("by {by}, {label}: lost"), tally.lost() as f64, 0.0));
        table.rows.push(vec![label.clone(), format!("{:.2}", costs.appmid), format!("{:.2}", costs.midapp)]);
        let bars = [("T_appmid", costs.appmid), ("T_midapp", costs.midapp)];
        let bar = |(series, value): (&str, f64)| Bar { series: series.into(), value, ..Bar::default() };
        panel
            .groups
            .push(Group { label, bars: bars.into_iter().filter(|(_, value)| value.is_finite()).map(bar).collect() });
        all.push(costs);
    }
    findings.tables.push(table);
    findings.figure.title = "From the application to the middleware and back".into();
    findings.figure.axis = "Sum over the topics in µs, medians over repetitions".into();
    findings.figure.panels.push(panel);
    Ok(all)
}

fn notes() -> Vec<String> {
    vec![
        format!("one process publishes all topics at {HZ} Hz, another one on the same processor subscribes to all, tcp over loopback"),
        AWAKE.into(),
        "T_appmid: stage `publish`, from the call until the encoded message is offered to the channel. T_midapp: stage `decode`, from \
         the reading thread having the sample to the callback. Medians over repetitions, each with new processes, of medians over all samples: one interrupt in a hundred samples is as long as \
         what is measured."
            .into(),
        "cells: latency from publish to callback of all topics together; payload_bytes: the sum of one sample of each".into(),
    ]
}
