//! `velox-lan` (V-52): one publisher and one subscriber on two hosts behind a switch: Velox's model, bare sockets and the planner's
//! bound beside measurements, by size.

use super::bare::Bare;
use super::{RATE, Testbed, first_processor, network, stream};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, lines};
use crate::lab::{Lab, Size};
use crate::link::SLACK;
use crate::part::Measured;
use crate::prediction::{delay_us, plan, text};
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::stalls::Monitor;
use crate::statistics::{Distribution, median};
use qos::plan::Model;
use std::time::Duration;
use thalweg::stages::End;

/// The experiment.
pub(crate) struct VeloxLan;

/// The set-up as a contract.
const CONTRACT: &str = include_str!("../../../../examples/velox-lan.toml");
const TOPIC: &str = "simulation";
const SUBSCRIBER: &str = "/simulation@subscriber";
/// Bytes: those of V-50, a frame's, and a sample of several packets.
const SIZES: [usize; 5] = [20, 300, 1024, 4096, 16384];
const HZ: f64 = 200.0;
/// Bytes of samples that surely fit in one packet.
const PACKET: usize = 1400;
/// Measured execution times are at most this in the bound, in µs: the declared ones of `examples/velox-lan.toml`. The bound does
/// not grow with the noise of a run.
const CAP: f64 = 200.0;
/// Lateness of each line in the bound, in µs: a line whose thread is later than that stands still. The lateness that a judged sample met was
/// not measured. That of bare sockets is a maximum over other samples, which the judged ones exceed as often as not.
const LINE_CAP: f64 = SLACK as f64 / 1e3;
/// The measured mean and the expected one may differ by this factor, either way. The call of `send` is in both parts of the
/// expected one, and TCP's work in neither.
const AGREES: f64 = 1.5;

impl Experiment for VeloxLan {
    fn name(&self) -> &'static str {
        "velox-lan"
    }

    fn about(&self) -> &'static str {
        "two hosts behind a switch: Velox's model, the planner's bound and what is measured"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let (sizes, repetitions, ms) = match lab.options.size {
            Size::Tiny => (&SIZES[..], 1, 100),
            Size::Ci => (&[20, 1024, 16384][..], 2, 250),
            Size::Quick => (&SIZES[..], 5, 1000),
            Size::Whole => (&SIZES[..], 9, 5000),
        };
        let mut topology = network(lab, 2)?;
        let processor = Vec::from_iter(first_processor()?);
        let (mut bare, time) = (Bare::new(lab, &topology, &processor)?, Duration::from_millis(ms));
        let mut found = Vec::new();
        for (number, size) in sizes.iter().copied().enumerate() {
            lab.tell(&format!("{size} bytes"));
            let streams = [stream(&format!("/{TOPIC}"), size, HZ)];
            let mut testbed = Testbed::across(lab, &topology, number, &streams, 1, &processor)?;
            testbed.real_time(lab)?;
            let mut one = Found { size, ..Found::default() };
            testbed.run(lab, time, &mut Tally::default())?;
            for _ in 0..repetitions {
                testbed.stages(lab)?; // from nothing
                testbed.run(lab, time, &mut one.tally)?;
                one.stages.extend(testbed.stages(lab)?.first().map(Times::of));
                let monitor = Monitor::start()?;
                let (sent, arrived) = bare.run(lab, size, HZ, time)?;
                one.bare.add(sent, &arrived, &monitor.finish());
            }
            found.push(one);
        }
        let mut findings = judge(&found)?;
        lines::judge("all sizes", &topology.end_lines(), &mut findings);
        Ok(findings)
    }
}

/// Results of one size: latencies, those of bare sockets, and the times of each repetition.
#[derive(Debug, Default)]
struct Found {
    /// Bytes of a sample.
    size: usize,
    tally: Tally,
    bare: Tally,
    stages: Vec<Times>,
}

/// Times of a repetition in µs: means of T_appmid, 1/μ and T_midapp, and the longest that sender and receiver computed for a
/// sample.
#[derive(Clone, Copy, Debug)]
struct Times {
    means: [f64; 3],
    longest: [f64; 2],
}

impl Times {
    fn of([publisher, subscriber]: &[Measured; 2]) -> Self {
        let sent = |stage| publisher.mean_us(End::Publisher, stage);
        let longest = |stage| publisher.max_us(End::Publisher, stage);
        Self {
            means: [sent("publish"), sent("send"), subscriber.mean_us(End::Subscriber, "decode")],
            longest: [longest("publish") + longest("send"), subscriber.max_us(End::Subscriber, "decode")],
        }
    }
}

/// The parts of a bound that are measured, in µs.
#[derive(Clone, Copy, Debug)]
struct Parts {
    send: f64,
    receive: f64,
}

impl Found {
    /// The median of the repetitions.
    fn stage(&self, at: usize) -> f64 {
        median(&self.stages.iter().map(|stages| stages.means[at]).collect::<Vec<_>>())
    }

    /// The most that bare sockets took beyond the transmission, without stalls of the machine.
    fn bare_beyond(&self) -> f64 {
        self.bare.without_stalls() - transmission_us(self.size)
    }

    /// The longest execution times of the judged samples.
    fn parts(&self) -> Parts {
        let longest = |at: usize| self.stages.iter().map(|stages| stages.longest[at]).fold(f64::NAN, f64::max);
        Parts { send: longest(0).min(CAP), receive: longest(1).min(CAP) }
    }

    /// The mean of the planner's queueing model for a sample of this size.
    fn model(&self) -> Result<f64> {
        let changes = [
            text("topic", TOPIC, "size", &format!("{} B", self.size)),
            time("topic", TOPIC, "hand_in", self.stage(0)),
            time("topic", TOPIC, "service", self.stage(1)),
            time("topic", TOPIC, "hand_out", self.stage(2)),
        ];
        plan(CONTRACT, &changes, Model::Mm1).map(|plan| delay_us(&plan, TOPIC))
    }

    /// The planner's bound, with measured execution times and lines that are so late, in µs; NaN: nothing was measured.
    fn bound(&self, line: f64) -> Result<f64> {
        let Parts { send, receive } = self.parts();
        if !(send + receive + line).is_finite() {
            return Ok(f64::NAN);
        }
        let changes = [
            text("topic", TOPIC, "size", &format!("{} B", self.size)),
            time("topic", TOPIC, "hand_in", 0.0),
            time("topic", TOPIC, "hand_out", 0.0),
            time("topic", TOPIC, "cpu_send", send),
            time("subscriber", SUBSCRIBER, "cpu_receive", receive),
            time("link", "first", "delay", line),
            time("link", "second", "delay", line),
        ];
        plan(CONTRACT, &changes, Model::Bound).map(|plan| delay_us(&plan, TOPIC))
    }
}

impl Found {
    /// A bound that was exceeded is inconclusive where bare sockets themselves were later than its part for the lines: the machine was.
    fn judge_bound(&self, check: Check) -> Check {
        let (late, most) = (self.bare_beyond(), 2.0 * LINE_CAP);
        if check.pass || late <= most || late.is_nan() {
            return check;
        }
        check.inconclusive(format!(
            "bare sockets took {late:.0} µs beyond the transmission, more than the bound's {most:.0} for both lines"
        ))
    }

    /// The bound and the largest latency, in µs: as measured, or less an excuse.
    fn check_bound(&self, largest: f64, bound: f64) -> Check {
        let name = format!("{} bytes: the largest latency less its own stalls, µs (limit: the bound)", self.size);
        self.judge_bound(Check::at_most(name, largest, bound))
    }

    /// A row of [`LATE`]: the samples above the bound, those that each rule excuses, and the verdict by each.
    fn late(&self, bound: f64, by_bare: f64) -> Vec<String> {
        let (above, excused) = self.tally.beyond(bound);
        let judged = self.tally.beyond_without_own_stalls(bound);
        let (bare_above, bare_excused) = self.bare.beyond(transmission_us(self.size) + 2.0 * LINE_CAP);
        let (above_narrow, excused_narrow) = self.tally.beyond(by_bare);
        let left = above - excused;
        let counts = [self.tally.received, above, above - judged, judged, judged - left, left];
        let beside = [bare_above - bare_excused, above_narrow - excused_narrow];
        let largest = [self.tally.largest(), self.tally.without_own_stalls(), self.tally.without_stalls()];
        let verdicts = largest.map(|us| self.check_bound(us, bound).verdict.name().to_owned());
        let counts = counts.into_iter().chain(beside).map(|count| count.to_string());
        std::iter::once(self.size.to_string()).chain(counts).chain(verdicts).collect()
    }
}

/// Heads of the table of samples above the bound. A backlog excuses no sample that is judged.
const LATE: [&str; 12] = [
    "bytes",
    "samples",
    "above the bound",
    "excused by their own stalls",
    "not excused",
    "of those, behind a backlog",
    "left without those",
    "bare sockets above their part",
    "left, lines by bare sockets",
    "verdict as measured",
    "less own stalls: judged",
    "less backlogs, too",
];

fn time(table: &str, name: &str, key: &str, us: f64) -> qos::plan::FileChange {
    text(table, name, key, &format!("{:.3} us", if us.is_finite() { us.max(0.001) } else { 0.001 }))
}

/// Transmission of a datagram with its headers over both lines, in µs. Of more than a packet, each crosses the second line while
/// the next one crosses the first, and the last one waits there for the one before.
fn transmission_us(size: usize) -> f64 {
    let full = lines::transmission_us(PAYLOAD - 8, RATE);
    let packets = (size + 8).div_ceil(PAYLOAD);
    let last = lines::transmission_us(size + 8 - (packets - 1) * PAYLOAD - 8, RATE);
    let first_line = (packets - 1) as f64 * full + last;
    first_line + if packets > 1 { full } else { last }
}

/// Lateness of each line as bare sockets found it, in µs: half of the most that those of any size took beyond the transmission.
fn lateness(found: &[Found]) -> f64 {
    let beyond = found.iter().map(Found::bare_beyond).fold(f64::NAN, f64::max);
    (beyond / 2.0).clamp(0.0, LINE_CAP)
}

/// Bytes of a fragment of a datagram.
const PAYLOAD: usize = 1480;

fn judge(found: &[Found]) -> Result<Findings> {
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    let heads =
        ["bytes", "T_appmid", "1/μ", "T_midapp", "model mm1", "model + bare's overhead", "measured mean", "p50", "p99"];
    let mut means = Table::new("Means in µs: model and measurement", &heads);
    let heads = [
        "bytes",
        "transmission",
        "bare least",
        "mean",
        "p50",
        "p99",
        "max",
        "measured least",
        "mean",
        "p50",
        "p99",
        "max",
    ];
    let mut paths = Table::new("The bare path and Thalweg's, in µs", &heads);
    let heads = [
        "bytes",
        "sending",
        "receiving",
        "each line",
        "bound",
        "largest",
        "less its own stalls",
        "less backlogs, too",
        "bound / less its own stalls",
        "each line by bare sockets",
        "bound with that",
    ];
    let mut bounds = Table::new("The bound and its measured parts, in µs", &heads);
    let mut late = Table::new("Samples above the bound, and the verdict by each rule", &LATE);
    let mut groups = Vec::new();
    let line = lateness(found);
    for one in found {
        let (size, model, bound) = (one.size, one.model()?, one.bound(LINE_CAP)?);
        let cell = |tally: &Tally, arm: &str, measured: &str| {
            let factors = Factors::new().with("arm", arm).with("payload_bytes", size).with("measured", measured);
            tally.cell(factors, false)
        };
        let (bare, cell) = (cell(&one.bare, "bare sockets", "udp"), cell(&one.tally, "lan", super::CARRIER));
        let figures = |cell: &crate::results::Cell| {
            let d = cell.latency_us.unwrap_or(NOTHING);
            [d.min, d.mean, d.p50, d.p99, d.max]
        };
        let ([bare_least, bare_mean, ..], [least, mean, p50, p99, _]) = (figures(&bare), figures(&cell));
        let on_both = if size < PACKET { 2 } else { 1 }; // of more than a packet, the last one crosses the second line alone
        let of = format!("{size} bytes");
        lines::judge_idle(&of, least, size, &vec![RATE; on_both], &mut findings);
        lines::judge_idle(&format!("{of}, bare sockets"), bare_least, size, &vec![RATE; on_both], &mut findings);
        let transmission = transmission_us(size);
        let expected = model + bare_mean - transmission;
        let (raw, max) = (one.tally.largest(), one.tally.without_stalls());
        means.row(size.to_string(), &[one.stage(0), one.stage(1), one.stage(2), model, expected, mean, p50, p99]);
        paths.row(size.to_string(), &[&[transmission], &figures(&bare)[..], &figures(&cell)[..]].concat());
        let (Parts { send, receive }, narrow) = (one.parts(), one.bound(line)?);
        let own = one.tally.without_own_stalls();
        bounds.row(size.to_string(), &[send, receive, LINE_CAP, bound, raw, own, max, bound / own, line, narrow]);
        late.rows.push(one.late(bound, narrow));
        let checks = &mut findings.checks;
        checks.push(Check::at_most(format!("{of}: lost"), one.tally.missing(), 0.0));
        checks.push(Check::at_most(format!("{of}: lost of bare sockets"), one.bare.missing(), 0.0));
        checks.push(one.check_bound(own, bound).less_stalls(raw).judged_from(Size::Quick));
        let ratio = mean / expected;
        let name = format!(
            "{of}: measured mean {mean:.0} µs / model and bare sockets' overhead {expected:.0} µs, or the other way round"
        );
        checks.push(Check::at_most(name, ratio.max(1.0 / ratio), AGREES));
        let bar = |series: &str, value: f64, mark: f64| Bar {
            series: series.into(),
            value,
            deviation: 0.0,
            mark: Some(mark).filter(|us| us.is_finite()),
        };
        let bars = vec![
            bar("model mm1", model, f64::NAN),
            bar("bare sockets", bare_mean, f64::NAN),
            // Its packet has 1024 bytes; 350 µs were measured (Fig. 15).
            bar("measured", mean, if size == 1024 { PAPER } else { f64::NAN }),
            bar("bound, and the largest", bound, raw),
        ];
        groups.push(Group {
            label: format!("{size} B"),
            bars: bars.into_iter().filter(|bar| bar.value.is_finite()).collect(),
        });
        findings.cells.extend([cell, bare]);
    }
    findings.tables = vec![means, paths, bounds, late];
    findings.figure = Figure {
        title: "Two hosts behind a switch: model, bare sockets, measured (mark: the paper's), bound".into(),
        axis: "Latency in µs".into(),
        logarithmic: true,
        panels: vec![Panel { title: String::new(), groups }],
    };
    Ok(findings)
}

/// The paper's mean end to end, in µs.
const PAPER: f64 = 350.0;

const NOTHING: Distribution = Distribution {
    mean: f64::NAN,
    stdev: f64::NAN,
    min: f64::NAN,
    p50: f64::NAN,
    p90: f64::NAN,
    p99: f64::NAN,
    p999: f64::NAN,
    max: f64::NAN,
};

fn notes() -> Vec<String> {
    vec![
        format!("{HZ} Hz by tcp from one host to another behind a switch, 100 Mbit/s each; threads FIFO 30 as planned, both processes on one processor, the lines on another; latency from publish to the receiving thread"),
        "model: M/M/1 (V-22, V-33) with T_appmid, 1/μ and T_midapp as measured; it knows no threads that wake up, the lines' among them".into(),
        "bare sockets: datagrams of the same size at the same rate over the same lines, in turns with the measurement; one thread of FIFO 30 sends, another one receives. Their overhead is their mean less the transmission over both lines".into(),
        format!("bound: examples/velox-lan.toml with the longest execution times of the judged samples instead of the declared ones, at most {CAP} µs at either end, and with each line late by {LINE_CAP} µs. \"By bare sockets\": with each line late by half of the most that bare sockets of any size took beyond the transmission, without stalls; a figure, not judged. The largest is judged less the stalls of the machine during the sample itself. What a stall had left waiting (a backlog) excuses nothing: a table has the samples that waited for one, and the verdict by each rule, from the figures alone, beside it"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::stalls::{Stall, Stalls, Timed};

    /// All samples took this long; bare sockets 60 µs more than the transmission.
    fn found(latency_us: impl Fn(usize) -> f64) -> Vec<Found> {
        let one = |size: &usize| {
            let times = Times { means: [2.0, 10.0, 3.0], longest: [30.0, 10.0] };
            let mut one = Found { size: *size, stages: vec![times], ..Found::default() };
            let samples = |us: f64| [Timed { from_ns: 0, ns: (us * 1000.0) as u64 }; 3];
            one.tally.add(3, &samples(latency_us(*size)), &Stalls::default());
            one.bare.add(3, &samples(transmission_us(*size) + 60.0), &Stalls::default());
            one
        };
        SIZES.iter().map(one).collect()
    }

    fn failed(found: &[Found]) -> Vec<String> {
        let failed = |check: &Check| check.verdict == Verdict::Fail;
        judge(found).unwrap().checks.into_iter().filter(failed).map(|check| check.name).collect()
    }

    #[test]
    fn latencies_near_the_bare_path_pass_and_above_the_bound_or_off_the_model_fail() {
        assert_eq!(failed(&found(|size| transmission_us(size) + 80.0)), Vec::<String>::new());
        let late = failed(&found(|size| transmission_us(size) + 800.0));
        assert_eq!(late.iter().filter(|name| name.contains("largest latency")).count(), SIZES.len(), "{late:?}");
        let table = &judge(&found(|size| transmission_us(size) + 800.0)).unwrap().tables[3];
        assert_eq!(table.rows[0], ["20", "3", "3", "0", "3", "0", "3", "0", "3", "fail", "fail", "fail"]);
        let off = failed(&found(|_| 4000.0));
        assert_eq!(off.iter().filter(|name| name.contains("other way round")).count(), SIZES.len(), "{off:?}");
    }

    #[test]
    fn a_sample_that_waited_behind_a_stall_fails_and_the_verdict_with_that_excuse_stands_beside() {
        let mut found = found(|size| transmission_us(size) + 80.0);
        let bound = found[2].bound(LINE_CAP).unwrap();
        let stall = Stall { cpu: 0, from_ns: 0, to_ns: 6_800_000, late_ns: 6_500_000 };
        let stalls = Stalls { stalls: vec![stall], ..Stalls::default() };
        // The second is sent after the stall, and 0.15 ms before the first arrives.
        let late = ((bound + 50.0) * 1000.0) as u64;
        let arrived = [(0, 7_000_000), (6_850_000, late)].map(|(from_ns, ns)| Timed { from_ns, ns });
        found[2].tally.add(2, &arrived, &stalls);
        let table = &judge(&found).unwrap().tables[3];
        assert_eq!(table.rows[2], ["1024", "5", "2", "1", "1", "1", "0", "0", "1", "fail", "fail", "pass"]);
        let late: Vec<String> = failed(&found).into_iter().filter(|name| name.contains("largest latency")).collect();
        assert!(late.len() == 1 && late[0].starts_with("1024 bytes"), "{late:?}");
    }

    #[test]
    fn the_bound_does_not_grow_with_noise_beyond_the_cap() {
        let mut found = found(|size| transmission_us(size) + 80.0);
        let before = found[2].bound(LINE_CAP).unwrap();
        found[2].stages[0].longest = [1e6, 1e6];
        found[2].bare.add(1, &[Timed { from_ns: 0, ns: 1_000_000_000 }], &Stalls::default());
        let after = found[2].bound(LINE_CAP).unwrap();
        assert!(after > before && after < transmission_us(1024) + 2.0 * (CAP + LINE_CAP) + 20.0, "{before} {after}");
        // A bound that is kept is kept. One that is not: bare sockets were that late, so the machine was.
        assert!(failed(&found).iter().all(|name| !name.contains("largest latency")), "{:?}", failed(&found));
        found[2].tally.add(1, &[Timed { from_ns: 0, ns: 5_000_000 }], &Stalls::default());
        let checks = judge(&found).unwrap().checks;
        let unclear: Vec<&str> =
            checks.iter().filter(|c| c.verdict == Verdict::Inconclusive).map(|c| c.name.as_str()).collect();
        assert!(unclear.len() == 1 && unclear[0].starts_with("1024 bytes: the largest latency"), "{unclear:?}");
    }

    #[test]
    fn an_empty_measurement_passes_no_bound() {
        let nothing = judge(&SIZES.map(|size| Found { size, ..Found::default() })).unwrap();
        assert!(nothing.checks.iter().filter(|check| !check.name.contains("lost")).all(|check| !check.pass));
    }

    #[test]
    fn datagrams_of_several_packets_cross_both_lines_at_once() {
        assert!((transmission_us(1024) - 2.0 * 85.28).abs() < 1e-9);
        // 4104 bytes are two fragments of 1480 and one of 1144: 2 · 121.12 + 94.24 on the first line, and a full one on the second.
        assert!((transmission_us(4096) - (3.0 * 121.12 + 94.24)).abs() < 1e-9, "{}", transmission_us(4096));
    }
}
