//! `outages`: time until samples come again after a dead link. Neither end gets an error from the outage.

use super::{DELAY, PATIENCE, Stream, hosts, only, open};
use crate::error::Result;
use crate::experiments::Experiment;
use crate::lab::{Lab, Size};
use crate::part::stream::Arrived;
use crate::results::{Bar, Check, Figure, Findings, Group, Panel, Table};
use crate::stalls::Timed;
use crate::statistics::median;
use linux::clock::monotonic_ns;
use qos::{Qos, Queue};
use std::time::Duration;

/// The experiment.
pub(crate) struct Outages;

const CARRIERS: [&str; 3] = ["udp", "mcast", "tcp"];
const HZ: f64 = 1000.0;
const SIZE: usize = 64;
/// Samples that wait meanwhile; older ones are dropped.
const WAITING: u32 = 1000;
/// The time that a channel runs before each outage.
const BEFORE: Duration = Duration::from_millis(300);
/// A channel that is silent for this long after the outage has not resumed.
fn after(size: Size) -> Duration {
    Duration::from_millis(if size == Size::Ci { 1200 } else { 3000 })
}

/// What was on its way when the outage began has come by then.
const UNDER_WAY: Duration = Duration::from_millis(50);
/// Less than this part of the samples that are due in an outage may come in it: the control that the link carried nothing.
const THROUGH: f64 = 0.5;

/// Seconds without an answer after which a handshake's stream has ended, and the channel is opened again.
const STREAM_LIVES: f64 = 10.0;

/// The outcome of one outage.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    /// The first sample after the link was back, in ms.
    resumed: f64,
    missing: f64,
    again: f64,
    /// The samples that came during the outage, in parts of those that were due.
    through: f64,
}

impl Experiment for Outages {
    fn name(&self) -> &'static str {
        "outages"
    }

    fn about(&self) -> &'static str {
        "a link carries nothing for 0.1 to 30 s beneath reliable channels of 1 kHz: how soon samples come again"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let (outages, tries): (&[f64], usize) = match lab.options.size {
            Size::Tiny => (&[0.1], 1),
            Size::Ci => (&[0.1], 1),
            Size::Quick => (&[0.1, 0.5, 1.5], 3),
            Size::Whole => (&[0.1, 0.3, 0.5, 1.5, 5.0, 30.0], 5),
        };
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        let heads =
            ["carrier, outage", "resumed after ms (median)", "longest", "missing of all tries", "twice or late"];
        let mut table = Table::new("Outages beneath reliable channels of 1 kHz", &heads);
        let mut groups = Vec::new();
        for carrier in CARRIERS {
            let mut bars = Vec::new();
            for outage in outages {
                lab.tell(&format!("{carrier}, {outage} s"));
                let tries = (0..tries).map(|_| one(lab, carrier, *outage)).collect::<Result<Vec<_>>>()?;
                bars.extend(tell(carrier, *outage, &tries, &mut table, &mut findings));
            }
            groups.push(Group { label: carrier.into(), bars });
        }
        findings.tables.push(table);
        findings.figure = Figure {
            title: "Outages".into(),
            axis: "First sample after the link is back, ms".into(),
            logarithmic: true,
            panels: vec![Panel { title: "1 kHz, reliable".into(), groups }],
        };
        Ok(findings)
    }
}

fn tell(carrier: &str, outage: f64, tries: &[Outcome], table: &mut Table, findings: &mut Findings) -> Option<Bar> {
    let resumed: Vec<f64> = tries.iter().map(|one| one.resumed).collect();
    let sum = |of: &dyn Fn(&Outcome) -> f64| tries.iter().map(of).sum::<f64>();
    let (value, longest) = (median(&resumed), resumed.iter().copied().fold(f64::NAN, f64::max));
    let (missing, again) = (sum(&|one| one.missing), sum(&|one| one.again));
    let through = tries.iter().map(|one| one.through).fold(f64::NAN, f64::max);
    table.row(format!("{carrier}, {outage} s"), &[value, longest, missing, again]);
    findings.checks.extend([
        Check::at_most(format!("{carrier}, {outage} s: resumed after, ms"), value, limit(carrier, outage)),
        Check::at_most(format!("{carrier}, {outage} s: samples twice or out of order"), again, 0.0),
        Check::at_most(format!("{carrier}, {outage} s: part of the samples that came in the outage"), through, THROUGH),
    ]);
    value.is_finite().then(|| Bar { series: format!("{outage} s"), value, mark: Some(longest), ..Bar::default() })
}

/// In ms: a flow is asked by its ends; a stream waits for the kernel's next repetition, or for a new connection.
fn limit(carrier: &str, outage: f64) -> f64 {
    if carrier == "tcp" || outage >= STREAM_LIVES { 1000.0 } else { 100.0 }
}

fn one(lab: &Lab, carrier: &'static str, outage: f64) -> Result<Outcome> {
    let hosts = hosts(lab)?;
    let qos = Qos { queue: Queue::KeepLast(WAITING), ..Qos::default() };
    let mut flow = open(lab, &hosts, 0, &Stream { name: "state", size: SIZE, hz: HZ, carrier, qos })?;
    flow.start(lab)?;
    lab.stop.sleep(BEFORE)?;
    hosts.change(1, |line| line.loss = 1.0);
    let down_ns = monotonic_ns();
    lab.stop.sleep(Duration::from_secs_f64(outage))?;
    let back_ns = monotonic_ns();
    hosts.change(1, |line| line.loss = 0.0);
    let after = after(lab.options.size);
    lab.stop.sleep(after)?;
    let (published, arrived) = flow.stop(lab, PATIENCE)?;
    Ok(outcome(published.count, &only(arrived).of(&published), [down_ns, back_ns], after))
}

fn outcome(published: u64, arrived: &Arrived, [down_ns, back_ns]: [u64; 2], silent: Duration) -> Outcome {
    let at = |sample: &Timed| sample.from_ns + sample.ns;
    let cut = down_ns + UNDER_WAY.as_nanos() as u64..back_ns;
    let due = HZ * cut.end.saturating_sub(cut.start) as f64 / 1e9;
    let came = arrived.samples.iter().map(at).filter(|at| cut.contains(at)).count();
    let first = arrived.samples.iter().map(at).filter(|at| *at > back_ns).min();
    Outcome {
        resumed: first.map_or(silent.as_secs_f64() * 1e3, |at| (at - back_ns) as f64 / 1e6),
        missing: published.saturating_sub(arrived.count) as f64,
        again: arrived.again as f64,
        through: came as f64 / due,
    }
}

fn notes() -> Vec<String> {
    vec![format!(
        "Two hosts with a link in user space between them, {} ms each way, of which every frame vanishes in both directions for as long \
         as the outage lasts; neither end is told. {SIZE} bytes at {HZ} Hz, reliable, the last {WAITING} wait: what more is published \
         meanwhile is dropped by that and counted as missing. Each try is of new processes. Medians are judged: 100 ms over udp and \
         mcast while the handshake's stream lives ({STREAM_LIVES} s), else 1 s.",
        DELAY.as_millis()
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_behind_the_outage_counts() {
        let sample = |from_ms: u64, ms: u64| Timed { from_ns: from_ms * 1_000_000, ns: ms * 1_000_000 };
        let arrived =
            |samples: Vec<Timed>| Arrived { count: samples.len() as u64, samples, again: 2, ..Arrived::default() };
        let silent = after(Size::Quick);
        let cut = [20_000_000, 100_000_000];
        let found = outcome(5, &arrived(vec![sample(0, 10), sample(10, 130), sample(120, 10)]), cut, silent);
        assert_eq!(found, Outcome { resumed: 30.0, missing: 2.0, again: 2.0, through: 0.0 });
        assert_eq!(outcome(5, &arrived(vec![sample(0, 10)]), cut, silent).resumed, 3000.0);
        assert_eq!([("udp", 5.0), ("udp", 30.0), ("tcp", 0.1)].map(|(by, of)| limit(by, of)), [100.0, 1000.0, 1000.0]);
    }

    #[test]
    fn a_link_that_carries_samples_in_the_outage_fails() {
        let sample = |n: u64| Timed { from_ns: n * 1_000_000, ns: 10_000_000 };
        let failed = |came: std::ops::Range<u64>| {
            let samples: Vec<Timed> = came.map(sample).collect();
            let arrived = Arrived { count: samples.len() as u64, samples, ..Arrived::default() };
            let found = outcome(300, &arrived, [100_000_000, 200_000_000], after(Size::Quick));
            let (mut table, mut findings) = (Table::new("", &[]), Findings::default());
            tell("udp", 0.1, &[found], &mut table, &mut findings);
            findings.checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect::<Vec<_>>()
        };
        assert_eq!(failed(200..300), Vec::<String>::new());
        assert_eq!(failed(0..300), ["udp, 0.1 s: part of the samples that came in the outage"]);
    }
}
