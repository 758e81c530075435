//! `velox-subscribers` (V-53, Fig. 16): one publisher, and 1, 2, 4 and 8 subscribers: latency is a + b·n.

use super::{Testbed, first_processor, stream};
use crate::error::Result;
use crate::experiments::{Experiment, Tally};
use crate::lab::Lab;
use crate::results::{Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::statistics::{LinearFit, median};
use std::time::Duration;

/// The experiment.
pub(crate) struct VeloxSubscribers;

const SUBSCRIBERS: [usize; 4] = [1, 2, 4, 8];
const SIZE: usize = 200;
const HZ: f64 = 200.0;
/// Least share of the variance between numbers of subscribers that a straight line must explain.
const LINEAR: f64 = 0.9;

impl Experiment for VeloxSubscribers {
    fn name(&self) -> &'static str {
        "velox-subscribers"
    }

    fn about(&self) -> &'static str {
        "one publisher, and 1, 2, 4 and 8 subscribers: latency is a + b·n (Fig. 16)"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let (repetitions, ms) = match () {
            () if lab.options.tiny => (1, 100),
            () if lab.options.quick => (7, 500),
            () => (15, 5000),
        };
        let processor = Vec::from_iter(first_processor()?);
        let mut testbeds = Vec::new();
        for count in SUBSCRIBERS {
            let streams = [stream("/state", SIZE, HZ)];
            testbeds.push(Testbed::start(lab, &format!("subscribers-{count}"), &streams, count, &processor)?);
        }
        let mut tallies = SUBSCRIBERS.map(|_| Tally::default());
        for repetition in 0..repetitions {
            lab.tell(&format!("repetition {} of {repetitions}", repetition + 1));
            for (testbed, tally) in testbeds.iter_mut().zip(&mut tallies) {
                testbed.run(lab, Duration::from_millis(ms), tally)?;
            }
        }
        Ok(judge(&tallies))
    }
}

fn judge(tallies: &[Tally; 4]) -> Findings {
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    let mut table = Table::new("Latency in µs", &["subscribers", "measured (median of p50)", "line", "in the paper"]);
    let points: Vec<(f64, f64)> =
        SUBSCRIBERS.iter().zip(tallies).map(|(n, tally)| (*n as f64, median(&tally.each(|d| d.p50)))).collect();
    let line = LinearFit::through(&points);
    let mut groups = Vec::new();
    for ((n, tally), (at, found)) in SUBSCRIBERS.iter().zip(tallies).zip(&points) {
        let factors = Factors::new().with("arm", "fan-out").with("subscribers", *n).with("measured", super::CARRIER);
        findings.cells.push(tally.cell(factors.with("payload_bytes", SIZE), false));
        findings.checks.push(Check::at_most(format!("{n} subscribers: lost"), tally.lost() as f64, 0.0));
        table.row(n.to_string(), &[*found, line.map_or(f64::NAN, |line| line.at(*at)), 300.0 + 140.0 * at]);
        groups.push(Group { label: n.to_string(), bars: tally.bar("latency").into_iter().collect() });
    }
    let (a, b) = line.map_or((f64::NAN, f64::NAN), |line| (line.a, line.b));
    let name =
        format!("latency of n subscribers: share that the line {a:.1} + {b:.1}·n µs explains (paper: 300 + 140·n)");
    findings.checks.push(Check::at_least(name, line.map_or(f64::NAN, |line| line.explained), LINEAR));
    findings.checks.push(Check::at_least("what each further subscriber adds, µs", b, 0.0));
    findings.tables.push(table);
    findings.figure = Figure {
        title: "One publisher and n subscribers".into(),
        axis: "Latency in µs".into(),
        logarithmic: false,
        panels: vec![Panel { title: String::new(), groups }],
    };
    findings
}

fn notes() -> Vec<String> {
    vec![
        format!("{SIZE} bytes at {HZ} Hz from one process to n others, all on one processor, tcp over loopback"),
        "latency from publish to callback, of all subscribers together".into(),
    ]
}
