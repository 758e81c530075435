//! `velox-subscribers` (V-36, V-53, Fig. 16): one publisher, and 1, 2, 4 and 8 subscribers on a host each: latency is a + b·n, and
//! the factor S(n) of a delivery to many.

use super::{RATE, Testbed, first_processor, network, stream};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, lines};
use crate::lab::{Lab, Size};
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::statistics::{LinearFit, median};
use std::time::Duration;

/// The experiment.
pub(crate) struct VeloxSubscribers;

const SUBSCRIBERS: [usize; 4] = [1, 2, 4, 8];
const SIZE: usize = 200;
const HZ: f64 = 200.0;
/// Least share of the variance between numbers of subscribers that a straight line must explain.
const LINEAR: f64 = 0.9;
/// Latency in µs (Fig. 16).
const PAPER: [f64; 4] = [400.0, 600.0, 900.0, 1400.0];
/// S(n) of medians may leave its range by this factor: a subscriber that costs nothing has S(n) = 1/n exactly.
const NOISE: f64 = 1.1;

impl Experiment for VeloxSubscribers {
    fn name(&self) -> &'static str {
        "velox-subscribers"
    }

    fn about(&self) -> &'static str {
        "one publisher, and 1, 2, 4 and 8 subscribers on a host each: latency is a + b·n (Fig. 16), and S(n)"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let (repetitions, ms) = match lab.options.size {
            Size::Tiny => (1, 100),
            Size::Ci => (2, 200),
            Size::Quick => (7, 500),
            Size::Whole => (15, 5000),
        };
        let processor = Vec::from_iter(first_processor()?);
        let mut topology = network(lab, 1 + SUBSCRIBERS[SUBSCRIBERS.len() - 1] as u8)?;
        let mut testbeds = Vec::new();
        for (number, count) in SUBSCRIBERS.into_iter().enumerate() {
            let streams = [stream("/state", SIZE, HZ)];
            let mut testbed = Testbed::across(lab, &topology, number, &streams, count as u8, &processor)?;
            testbed.real_time(lab)?;
            testbed.run(lab, Duration::from_millis(ms), &mut Tally::default())?;
            testbeds.push(testbed);
        }
        let mut tallies = SUBSCRIBERS.map(|_| Tally::default());
        for repetition in 0..repetitions {
            lab.tell(&format!("repetition {} of {repetitions}", repetition + 1));
            for (testbed, tally) in testbeds.iter_mut().zip(&mut tallies) {
                testbed.run(lab, Duration::from_millis(ms), tally)?;
            }
        }
        drop(testbeds);
        let mut findings = judge(&tallies);
        lines::judge("all numbers", &topology.end_lines(), &mut findings);
        Ok(findings)
    }
}

/// The factor of a delivery to n (V-36; Oh, Kim, Fox 2009): the part of n deliveries to one that it takes. 1/n: a further
/// subscriber costs nothing; 1: as much as the first.
fn impact(n: usize, latency: f64, of_one: f64) -> f64 {
    latency / (n as f64 * of_one)
}

fn judge(tallies: &[Tally; 4]) -> Findings {
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    let heads = ["subscribers", "measured (median of p50)", "line", "in the paper", "S(n)", "S(n) in the paper", "1/n"];
    let mut table = Table::new("Latency in µs, and S(n) = latency of n / (n · latency of 1)", &heads);
    let points: Vec<(f64, f64)> =
        SUBSCRIBERS.iter().zip(tallies).map(|(n, tally)| (*n as f64, median(&tally.each(|d| d.p50)))).collect();
    let line = LinearFit::through(&points);
    let (mut groups, mut factors_of_n) = (Vec::new(), Vec::new());
    for (((n, tally), (at, found)), paper) in SUBSCRIBERS.iter().zip(tallies).zip(&points).zip(PAPER) {
        let factors = Factors::new().with("arm", "fan-out").with("subscribers", *n).with("measured", super::CARRIER);
        findings.cells.push(tally.cell(factors.with("payload_bytes", SIZE), false));
        findings.checks.push(Check::at_most(format!("{n} subscribers: lost"), tally.missing(), 0.0));
        lines::judge_idle(&format!("{n} subscribers"), tally.least(), SIZE, &[RATE; 2], &mut findings);
        let [impact_found, impact_paper] =
            [(*found, points[0].1), (paper, PAPER[0])].map(|(us, one)| impact(*n, us, one));
        if *n > 1 {
            findings.checks.push(Check::at_most(format!("S({n}), limit 1"), impact_found, NOISE));
            findings.checks.push(Check::at_least(format!("S({n}), limit 1/{n}"), impact_found, 1.0 / at / NOISE));
        }
        let text =
            |value: f64, digits: usize| if value.is_finite() { format!("{value:.digits$}") } else { String::new() };
        let latencies = [*found, line.map_or(f64::NAN, |line| line.at(*at)), paper].map(|us| text(us, 1));
        let impacts = [impact_found, impact_paper, 1.0 / at].map(|factor| text(factor, 3));
        table.rows.push(std::iter::once(n.to_string()).chain(latencies).chain(impacts).collect());
        let bar = |series: &str, value: f64, mark: f64| Bar {
            series: series.into(),
            value,
            mark: Some(mark),
            ..Bar::default()
        };
        let drawn = |bar: Bar| Group {
            label: n.to_string(),
            bars: Some(bar).filter(|b| b.value.is_finite()).into_iter().collect(),
        };
        groups.push(drawn(bar("latency", *found, paper)));
        factors_of_n.push(drawn(bar("S(n)", impact_found, impact_paper)));
    }
    let (a, b) = line.map_or((f64::NAN, f64::NAN), |line| (line.a, line.b));
    let name =
        format!("latency of n subscribers: share that the line {a:.1} + {b:.1}·n µs explains (paper: 300 + 140·n)");
    findings.checks.push(Check::at_least(name, line.map_or(f64::NAN, |line| line.explained), LINEAR));
    findings.tables.push(table);
    findings.figure = Figure {
        title: "One publisher and n subscribers (mark: the paper's)".into(),
        axis: "Latency in µs, medians; S(n)".into(),
        logarithmic: false,
        panels: vec![Panel { title: "latency".into(), groups }, Panel { title: "S(n)".into(), groups: factors_of_n }],
    };
    findings
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "{SIZE} bytes at {HZ} Hz from one host to n others behind a switch, 100 Mbit/s each, a channel by tcp to each; all processes on one processor, threads FIFO 30, the lines on another"
        ),
        "latency from publish to the receiving thread, of all subscribers together".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::{Stalls, Timed};

    fn failed(us: [f64; 4]) -> Vec<String> {
        let tallies = us.map(|us| {
            let mut tally = Tally::default();
            tally.add(3, &[Timed { from_ns: 0, ns: (us * 1000.0) as u64 }; 3], &Stalls::default());
            tally
        });
        judge(&tallies).checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect()
    }

    #[test]
    fn the_papers_figures_pass_and_others_fail() {
        assert_eq!(failed(PAPER), Vec::<String>::new());
        assert!(failed([400.0, 1000.0, 900.0, 1400.0]).iter().any(|name| name == "S(2), limit 1"));
        let fast = failed([400.0, 300.0, 200.0, 45.0]);
        assert!(fast.iter().any(|name| name == "S(8), limit 1/8"), "{fast:?}");
        let jumps = failed([400.0, 700.0, 450.0, 1000.0]);
        assert!(jumps.iter().any(|name| name.contains("explains")), "{jumps:?}");
    }

    #[test]
    fn the_factor_is_one_where_each_subscriber_costs_as_much_as_the_first() {
        assert_eq!([impact(1, 7.0, 7.0), impact(4, 28.0, 7.0), impact(4, 7.0, 7.0)], [1.0, 1.0, 0.25]);
    }
}
