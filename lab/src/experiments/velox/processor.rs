//! `velox-cpu` (V-51, Fig. 14): processor time of publisher and subscriber by rate and size of samples.

use super::{Testbed, first_processor, stream};
use crate::error::Result;
use crate::experiments::{Experiment, Tally};
use crate::lab::Lab;
use crate::results::{Bar, Check, Factors, Findings, Group, Panel, Table};
use crate::statistics::{LinearFit, median};
use std::time::Duration;

/// The experiment.
pub(crate) struct VeloxProcessor;

const RATES: [f64; 4] = [250.0, 500.0, 1000.0, 2000.0];
const SIZES: [usize; 4] = [64, 512, 2048, 8192];
/// The rate at which sizes are compared.
const AT: f64 = 1000.0;
/// From the least size to the greatest, use may grow by this factor.
const GROWS: f64 = 2.0;
/// Least share of the variance between rates that a straight line must explain.
const LINEAR: f64 = 0.9;
/// The least cost of a sample: a lower figure would be a wrong measurement.
const LEAST_US: f64 = 0.5;

impl Experiment for VeloxProcessor {
    fn name(&self) -> &'static str {
        "velox-cpu"
    }

    fn about(&self) -> &'static str {
        "processor time of publisher and subscriber by rate and size of samples"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let by_rate: Vec<(f64, usize)> = RATES.iter().map(|hz| (*hz, SIZES[0])).collect();
        let by_size: Vec<(f64, usize)> = SIZES.iter().map(|size| (AT, *size)).collect();
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        let rates = measure(lab, "rate", &by_rate, &mut findings)?;
        let sizes = measure(lab, "size", &by_size, &mut findings)?;
        for (end, who) in ["publisher", "subscriber"].into_iter().enumerate() {
            let points: Vec<(f64, f64)> = RATES.iter().zip(&rates).map(|(hz, used)| (*hz, used[end])).collect();
            let line = LinearFit::through(&points);
            let (a, b) = line.map_or((f64::NAN, f64::NAN), |line| (line.a, line.b * 1e4));
            let name = format!("{who}, by rate: share that the line {a:.1} % + {b:.1} µs per sample explains");
            findings.checks.push(Check::at_least(name, line.map_or(f64::NAN, |line| line.explained), LINEAR));
            findings.checks.push(Check::at_least(format!("{who}: what each sample costs, µs"), b, LEAST_US));
            let grows = sizes[SIZES.len() - 1][end] / sizes[0][end];
            let name = format!("{who}: use with {} bytes / with {}", SIZES[SIZES.len() - 1], SIZES[0]);
            findings.checks.push(Check::at_most(name, grows, GROWS));
        }
        findings.figure.title = "Processor time by rate and size of samples".into();
        findings.figure.axis = "Share of one processor in %, medians over repetitions".into();
        Ok(findings)
    }
}

/// Use in percent of one processor, of the publisher and of the subscriber.
fn measure(lab: &Lab, by: &str, all: &[(f64, usize)], findings: &mut Findings) -> Result<Vec<[f64; 2]>> {
    let (repetitions, ms) = match () {
        () if lab.options.tiny => (1, 100),
        () if lab.options.quick => (5, 600),
        () => (9, 5000),
    };
    let processor = Vec::from_iter(first_processor()?);
    let mut testbeds = Vec::new();
    for (n, (hz, size)) in all.iter().enumerate() {
        testbeds.push(Testbed::start(lab, &format!("{by}-{n}"), &[stream("/samples", *size, *hz)], 1, &processor)?);
    }
    let mut tallies: Vec<Tally> = all.iter().map(|_| Tally::default()).collect();
    let mut used = vec![[Vec::new(), Vec::new()]; all.len()];
    for repetition in 0..repetitions {
        lab.tell(&format!("by {by}, repetition {} of {repetitions}", repetition + 1));
        for (n, testbed) in testbeds.iter_mut().enumerate() {
            let found = testbed.run(lab, Duration::from_millis(ms), &mut tallies[n])?;
            used[n][0].push(found.publisher * 100.0);
            used[n][1].push(found.subscriber * 100.0);
        }
    }
    let mut table =
        Table::new(format!("Share of one processor in %, by {by}"), &["Hz", "bytes", "publisher", "subscriber"]);
    let mut panel = Panel { title: format!("by {by}"), groups: Vec::new() };
    let middle: Vec<[f64; 2]> =
        used.iter().map(|[publisher, subscriber]| [median(publisher), median(subscriber)]).collect();
    for (((hz, size), tally), found) in all.iter().zip(&tallies).zip(&middle) {
        let factors = Factors::new().with("arm", by).with("hz", *hz).with("measured", super::CARRIER);
        let factors = factors.with("publisher_cpu_percent", found[0]).with("subscriber_cpu_percent", found[1]);
        findings.cells.push(tally.cell(factors.with("payload_bytes", *size), false));
        table.row(hz.to_string(), &[*size as f64, found[0], found[1]]);
        let bar = |series: &str, value| Bar { series: series.into(), value, ..Bar::default() };
        let label = if by == "rate" { format!("{hz} Hz") } else { format!("{size} B") };
        panel.groups.push(Group { label, bars: vec![bar("publisher", found[0]), bar("subscriber", found[1])] });
    }
    findings.tables.push(table);
    findings.figure.panels.push(panel);
    Ok(middle)
}

fn notes() -> Vec<String> {
    vec![
        format!("one process publishes to another one, tcp over loopback, both on one processor; rates with {} bytes, sizes at {AT} Hz", SIZES[0]),
        "processor time is what the kernel counts for all threads of a process, sleeping between samples included; medians over \
         repetitions"
            .into(),
    ]
}
