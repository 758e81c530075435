//! `line-rates`: a line of the lab under more than it carries, by its rate: up to where it is exact on this machine.

use super::lines;
use crate::error::Result;
use crate::experiments::Experiment;
use crate::lab::{Lab, Size};
use crate::link::LinkReport;
use crate::load::{Generator, Load, Pattern, Protocol, Sink};
use crate::part::Place;
use crate::results::{Bar, Check, Figure, Findings, Group, Panel, Table};
use crate::topology::{FULL_PACKET, Line, Topology};
use std::time::Duration;

/// The experiment.
pub struct LineRates;

/// The rates, in Mbit/s. The lab's experiments use those up to [`USED`].
const RATES: [u64; 7] = [1, 10, 20, 100, 250, 500, 1000];
/// The fastest line of an experiment, in Mbit/s.
const USED: u64 = 100;
/// The load as a share of the line's rate, above what it carries.
const OFFERED: f64 = 1.1;
/// A line that carries this share of its rate while it is busy is exact, in percent.
const EXACT: f64 = 98.0;

impl Experiment for LineRates {
    fn name(&self) -> &'static str {
        "line-rates"
    }

    fn about(&self) -> &'static str {
        "a line of the lab, overloaded: the rate it keeps and how late frames are, from 1 Mbit/s to 1 Gbit/s"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let seconds = match lab.options.size {
            Size::Tiny => 0.3,
            Size::Ci => 1.0,
            Size::Quick => 3.0,
            Size::Whole => 20.0,
        };
        let mut runs = Vec::new();
        for rate in RATES {
            lab.tell(&format!("{rate} Mbit/s"));
            runs.push((rate, one(lab, rate, Duration::from_secs_f64(seconds))?));
        }
        Ok(findings(&runs))
    }
}

/// Overloads a line in one direction. Gives that direction's report.
fn one(lab: &Lab, rate: u64, time: Duration) -> Result<LinkReport> {
    let rate = rate * 1_000_000;
    let mut topology = Topology::link(lab, &[Line::of(1, rate)])?;
    let sink = Sink::new(lab, Place::at(topology.host(2), &[]), Topology::address_of(2))?;
    let mut generator = Generator::new(lab, Place::at(topology.host(1), &[]), sink.target)?;
    let offered = (rate as f64 * OFFERED) as u64;
    // Many at once: at 1 Gbit/s a sender that wakes up for each packet reaches half of it.
    let pattern = Pattern::Bursts(if rate > 100_000_000 { 20 } else { 1 });
    generator
        .start(lab, &Load { protocol: Protocol::Udp, rate: offered, pattern, gso: true, seed: lab.options.seed })?;
    lab.stop.sleep(time)?;
    generator.stop(lab)?;
    Ok(topology.end_lines().swap_remove(0))
}

fn findings(runs: &[(u64, LinkReport)]) -> Findings {
    let heads = ["line, Mbit/s", "frame, µs", "carried, % of it", "late by µs, p50", "p99", "p99.9", "stood still, ms"];
    let mut table = Table::new("A line with 10 % more than it carries", &heads);
    let mut findings = Findings { notes: notes(runs), ..Findings::default() };
    let mut groups = Vec::new();
    for (rate, report) in runs {
        let (carried, late) = (carried(*rate, report), report.lateness_us);
        let frame = FULL_PACKET as f64 * 8.0 / *rate as f64;
        table.row(rate.to_string(), &[frame, carried, late.p50, late.p99, late.p999, report.stood_still_ms]);
        groups.push(Group {
            label: format!("{rate} Mbit/s"),
            bars: vec![Bar { series: "carried".into(), value: carried, ..Bar::default() }],
        });
        if *rate <= USED {
            let name = format!("line of {rate} Mbit/s: carried while busy, % of its rate");
            findings.checks.push(Check::at_least(name, carried, EXACT));
        }
        lines::judge("overloaded", std::slice::from_ref(report), &mut findings);
    }
    findings.tables = vec![table];
    findings.figure = Figure {
        title: "Lines under more than they carry".into(),
        axis: "Carried while busy, % of the rate".into(),
        logarithmic: false,
        panels: vec![Panel { title: String::new(), groups }],
    };
    findings
}

/// The rate while the line was busy, in percent of its own; NaN if it never was.
fn carried(rate: u64, report: &LinkReport) -> f64 {
    report.rate.map_or(f64::NAN, |found| found / (rate as f64 * 1e4))
}

fn notes(runs: &[(u64, LinkReport)]) -> Vec<String> {
    let exact = runs.iter().filter(|(rate, report)| carried(*rate, report) >= EXACT).map(|(rate, _)| rate).max();
    vec![
        format!(
            "Datagrams of {FULL_PACKET} B with headers at {OFFERED} times the line's rate, one way; the line's own figures."
        ),
        exact.map_or_else(
            || "No line was exact here.".to_owned(),
            |rate| format!("Exact ({EXACT} % of the rate while busy) up to {rate} Mbit/s on this machine."),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Behaviour, Counts, Lateness};

    /// A line of this rate in Mbit/s, and the part of it that it carried.
    fn run(rate: u64, carried: Option<f64>) -> (u64, LinkReport) {
        let report = LinkReport {
            asked: Behaviour { rate: Some(rate * 1_000_000), ..Behaviour::default() },
            counts: Counts::default(),
            loss_percent: 0.0,
            rate: carried.map(|part| part * rate as f64 * 1e6),
            lateness_us: Lateness::default(),
            ahead: 0,
            stood_still_ms: 0.0,
        };
        (rate, report)
    }

    #[test]
    fn a_line_of_the_experiments_that_does_not_keep_its_rate_fails() {
        let failed = |runs: &[(u64, LinkReport)]| -> Vec<String> {
            let failed = findings(runs).checks.into_iter().filter(|check| !check.pass);
            failed.map(|check| check.name).collect()
        };
        let slow = failed(&[run(10, Some(0.99)), run(100, Some(0.97)), run(1000, Some(0.97))]);
        assert_eq!(slow, ["line of 100 Mbit/s: carried while busy, % of its rate"]);
        assert_eq!(failed(&[run(20, None)]), ["line of 20 Mbit/s: carried while busy, % of its rate"], "never busy");
    }
}
