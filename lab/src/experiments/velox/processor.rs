//! `velox-cpu` (V-35, V-51, Fig. 14): processor time of publisher and subscriber by rate and size of samples, and as samples grow
//! more.

use super::{RATE, Testbed, first_processor, network, stream};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, lines};
use crate::lab::{Lab, Size};
use crate::part::{AWAKE, Hog};
use crate::results::{Bar, Check, Factors, Findings, Group, Panel, Table};
use crate::statistics::{LinearFit, median};
use crate::topology::Topology;
use std::time::Duration;

/// The experiment.
pub(crate) struct VeloxProcessor;

/// The last one is the paper's.
const RATES: [f64; 5] = [500.0, 1000.0, 3000.0, 6000.0, 12_000.0];
const SIZES: [usize; 4] = [64, 256, 1024, 8192];
/// Packets of the largest size; the others fit in one.
const PACKETS: f64 = 6.0;
/// Bytes of a sample that surely cross both lines, one after the other.
const PACKET: usize = 1400;
/// The rate at which sizes are compared.
const AT: f64 = 1000.0;
/// From the least size to the greatest that fits in a packet, use may grow by this factor.
const GROWS: f64 = 2.0;
/// Up to this rate each sample has a wake-up of its own. At 12,000 Hz one serves several: a sample costs 18 µs at the publisher and
/// 14 at the subscriber instead of 22 on a quiet processor that is kept awake, and a line through all rates explains 0.98 and 0.93.
const ALONE: f64 = 6000.0;
/// Least share of the variance between rates up to that one that a straight line must explain.
const LINEAR: f64 = 0.9;
/// At the highest rate a sample may cost this many times what it does at the lowest.
const DEARER: f64 = 1.25;
/// The least cost of a sample: a lower figure would be a wrong measurement.
const LEAST_US: f64 = 0.5;
/// Least share of a rate that must be reached.
const REACHED: f64 = 0.9;
/// From the first repetitions to the last ones, the use at the highest rate may grow or shrink by this factor: it is constant as
/// samples grow more (Fig. 14).
const CONSTANT: f64 = 1.25;
/// In percent at the highest rate (Fig. 14).
const PAPER: f64 = 10.0;

impl Experiment for VeloxProcessor {
    fn name(&self) -> &'static str {
        "velox-cpu"
    }

    fn about(&self) -> &'static str {
        "processor time of publisher and subscriber by rate and size of samples"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let (rates, sizes) = match lab.options.size {
            Size::Ci => (&[500.0, 3000.0, 6000.0, 12_000.0][..], &[64, 1024, 8192][..]),
            _ => (&RATES[..], &SIZES[..]),
        };
        let by_rate: Vec<(f64, usize)> = rates.iter().map(|hz| (*hz, SIZES[0])).collect();
        let by_size: Vec<(f64, usize)> = sizes.iter().map(|size| (AT, *size)).collect();
        let mut topology = network(lab, 2)?;
        let rates = measure(lab, &topology, 0, &by_rate)?;
        let sizes = measure(lab, &topology, by_rate.len(), &by_size)?;
        let mut findings = judge(&rates, &sizes);
        lines::judge("all rates and sizes", &topology.end_lines(), &mut findings);
        Ok(findings)
    }
}

/// Results at one rate and size.
#[derive(Debug, Default)]
struct Found {
    hz: f64,
    size: usize,
    tally: Tally,
    /// Of each repetition: use in percent of one processor, of the publisher and of the subscriber.
    used: Vec<[f64; 2]>,
    /// Of each repetition: samples per second.
    rates: Vec<f64>,
}

impl Found {
    /// Use of an end, the median of these repetitions.
    fn of(used: &[[f64; 2]], end: usize) -> f64 {
        median(&used.iter().map(|used| used[end]).collect::<Vec<_>>())
    }

    fn used(&self, end: usize) -> f64 {
        Self::of(&self.used, end)
    }

    fn rate(&self) -> f64 {
        median(&self.rates)
    }

    /// Processor time of an end for each sample, in µs.
    fn each_us(&self, end: usize) -> f64 {
        self.used(end) * 1e4 / self.rate()
    }

    /// Use in the last third of the repetitions / in the first.
    fn grows(&self, end: usize) -> f64 {
        let third = self.used.len().div_ceil(3);
        Self::of(&self.used[self.used.len() - third..], end) / Self::of(&self.used[..third], end)
    }
}

/// Measures all rates and sizes in turns, each with processes of its own.
fn measure(lab: &Lab, topology: &Topology, number: usize, all: &[(f64, usize)]) -> Result<Vec<Found>> {
    let (repetitions, ms) = match lab.options.size {
        Size::Tiny => (1, 100),
        Size::Ci => (2, 250),
        Size::Quick => (8, 600),
        Size::Whole => (12, 5000),
    };
    let processor = Vec::from_iter(first_processor()?);
    let _awake = processor.first().map(|processor| Hog::Idle.start(lab, *processor)).transpose()?;
    let mut found: Vec<Found> =
        all.iter().map(|(hz, size)| Found { hz: *hz, size: *size, ..Found::default() }).collect();
    let mut testbeds = Vec::new();
    for (n, (hz, size)) in all.iter().enumerate() {
        let streams = [stream("/samples", *size, *hz)];
        let mut testbed = Testbed::across(lab, topology, number + n, &streams, 1, &processor)?;
        testbed.real_time(lab)?;
        testbeds.push(testbed);
    }
    for repetition in 0..repetitions {
        lab.tell(&format!("{} rates and sizes, repetition {} of {repetitions}", all.len(), repetition + 1));
        for (testbed, one) in testbeds.iter_mut().zip(&mut found) {
            let used = testbed.run(lab, Duration::from_millis(ms), &mut one.tally)?;
            one.used.push([used.publisher * 100.0, used.subscriber * 100.0]);
            one.rates.push(used.rate);
        }
    }
    Ok(found)
}

fn judge(rates: &[Found], sizes: &[Found]) -> Findings {
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    let ([first, .., last], [smallest, .., packet, largest]) = (rates, sizes) else { return findings };
    for (end, who) in ENDS.into_iter().enumerate() {
        let lower = rates.iter().filter(|one| one.hz <= ALONE);
        let points: Vec<(f64, f64)> = lower.map(|one| (one.rate(), one.used(end))).collect();
        let line = LinearFit::through(&points);
        let (a, b) = line.map_or((f64::NAN, f64::NAN), |line| (line.a, line.b * 1e4));
        let name =
            format!("{who}, up to {ALONE} samples/s: share that the line {a:.1} % + {b:.1} µs per sample explains");
        findings.checks.push(Check::at_least(name, line.map_or(f64::NAN, |line| line.explained), LINEAR));
        findings.checks.push(Check::at_least(format!("{who}: what each sample costs, µs"), b, LEAST_US));
        let name = format!("{who}, {} samples/s: what each costs / at the lowest rate", last.hz);
        findings.checks.push(Check::at_most(name, last.each_us(end) / first.each_us(end), DEARER));
        // Over a network each packet costs a wake-up of the receiver, unlike on the loopback, which has larger ones.
        for (found, limit) in [(packet, GROWS), (largest, PACKETS)] {
            let name = format!("{who}: use with {} bytes / with {}", found.size, smallest.size);
            findings.checks.push(Check::at_most(name, found.used(end) / smallest.used(end), limit));
        }
        let grows = last.grows(end);
        let name = format!("{who}, {} samples/s: use at the end / at the beginning, or the other way round", last.hz);
        findings.checks.push(Check::at_most(name, grows.max(1.0 / grows), CONSTANT).judged_from(Size::Quick));
    }
    for (by, found) in [("rate", rates), ("size", sizes)] {
        report(by, found, &mut findings);
    }
    findings.figure.title = "Processor time by rate and size of samples (mark: the paper's)".into();
    findings.figure.axis = "Share of one processor in %, medians over repetitions".into();
    findings
}

fn report(by: &str, found: &[Found], findings: &mut Findings) {
    let heads = [
        "Hz",
        "bytes",
        "reached",
        "publisher %",
        "subscriber %",
        "publisher, µs per sample",
        "subscriber, µs per sample",
    ];
    let mut table = Table::new(format!("Share of one processor, by {by}"), &heads);
    let mut panel = Panel { title: format!("by {by}"), groups: Vec::new() };
    for one in found {
        let used = [one.used(0), one.used(1)];
        let factors = Factors::new().with("arm", by).with("hz", one.hz).with("measured", super::CARRIER);
        let factors = factors.with("publisher_cpu_percent", used[0]).with("subscriber_cpu_percent", used[1]);
        findings.cells.push(one.tally.cell(factors.with("payload_bytes", one.size), false));
        let of = if by == "rate" { format!("{} Hz", one.hz) } else { format!("{} B", one.size) };
        findings.checks.push(Check::at_most(format!("{of}: lost"), one.tally.missing(), 0.0));
        lines::judge_idle(&of, one.tally.least(), one.size.min(PACKET), &[RATE; 2], findings);
        let name = format!("{of}: share of the rate that was reached");
        findings.checks.push(Check::at_least(name, one.rate() / one.hz, REACHED));
        table.row(one.hz.to_string(), &[one.size as f64, one.rate(), used[0], used[1], one.each_us(0), one.each_us(1)]);
        let mark = (by == "rate" && one.hz == RATES[RATES.len() - 1]).then_some(PAPER);
        let bar = |end: usize| Bar { series: ENDS[end].into(), value: used[end], mark, ..Bar::default() };
        panel.groups.push(Group {
            label: of,
            bars: [bar(0), bar(1)].into_iter().filter(|bar| bar.value.is_finite()).collect(),
        });
    }
    findings.tables.push(table);
    findings.figure.panels.push(panel);
}

const ENDS: [&str; 2] = ["publisher", "subscriber"];

fn notes() -> Vec<String> {
    vec![
        format!("one process publishes to another one on another host behind a switch, tcp, 100 Mbit/s each; both on one processor, threads FIFO 30, the lines on another; rates with {} bytes, sizes at {AT} Hz", SIZES[0]),
        "processor time is what the kernel counts for all threads of a process, sleeping between samples included; medians over \
         repetitions. The paper's 10 % is of its own processor, at 12,000 samples/s"
            .into(),
        AWAKE.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::{Stalls, Timed};

    /// Three repetitions, at `reached` times the rate, in which a sample costs `each` µs at either end, by size and repetition.
    fn found(hz: f64, size: usize, reached: f64, each: fn(usize, usize) -> f64) -> Found {
        let mut one = Found { hz, size, ..Found::default() };
        for repetition in 0..3 {
            one.tally.add(3, &[Timed { from_ns: 0, ns: 300_000 }; 3], &Stalls::default());
            one.used.push([each(size, repetition) * hz * reached / 1e4; 2]);
            one.rates.push(hz * reached);
        }
        one
    }

    fn failed(reached: f64, each: fn(usize, usize) -> f64) -> Vec<String> {
        let rates = RATES.map(|hz| found(hz, SIZES[0], reached, each));
        let sizes = SIZES.map(|size| found(AT, size, reached, each));
        judge(&rates, &sizes).checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect()
    }

    #[test]
    fn even_costs_pass_and_costs_by_size_by_time_and_missed_rates_fail() {
        assert_eq!(failed(1.0, |_, _| 8.0), Vec::<String>::new());
        let by_size = failed(1.0, |size, _| size as f64 / 10.0);
        assert_eq!(by_size.iter().filter(|name| name.contains("bytes / with")).count(), 4, "{by_size:?}");
        let by_time = failed(1.0, |_, repetition| 8.0 + 8.0 * repetition as f64);
        assert_eq!(by_time.iter().filter(|name| name.contains("at the beginning")).count(), 2, "{by_time:?}");
        let slow = failed(0.8, |_, _| 8.0);
        assert_eq!(slow.len(), RATES.len() + SIZES.len(), "{slow:?}");
        let dear = RATES.map(|hz| found(hz, SIZES[0], 1.0, if hz < 10_000.0 { |_, _| 8.0 } else { |_, _| 12.0 }));
        let dear = judge(&dear, &SIZES.map(|size| found(AT, size, 1.0, |_, _| 8.0))).checks;
        let dear: Vec<String> = dear.into_iter().filter(|check| !check.pass).map(|check| check.name).collect();
        assert_eq!(dear.iter().filter(|name| name.contains("at the lowest rate")).count(), 2, "{dear:?}");
        let free = failed(1.0, |_, _| 0.1);
        assert_eq!(free.iter().filter(|name| name.contains("each sample costs")).count(), 2, "{free:?}");
    }
}
