//! `lossy-link` (F-14, U-26): reliable channels with a deadline on links that lose.
//!
//! - [`silence`]: 100 samples a second over a link that loses 30 % each way: the longest silence, and bursts of old samples.
//! - [`frames`]: pictures over 20 Mbit/s that lose 5 %, beside a control channel.
//!
//! `outages` (P-16) is an experiment of its own: the time until channels resume after a total loss.

mod outages;

pub(super) use outages::Outages;

use super::{Experiment, Tally, lines};
use crate::error::{Error, Result};
use crate::lab::{Lab, Size};
use crate::link::Behaviour;
use crate::part::stream::{Arrived, Flow, Settings};
use crate::part::{NodeSettings, Place};
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::stalls::{Monitor, Stalls, Timed};
use crate::statistics::{Distribution, median, median_ratio};
use crate::topology::{self, DEVICE, Line, Topology, Wire};
use qos::{Class, Qos, Queue};
use std::net::SocketAddr;
use std::time::Duration;

/// The experiment.
pub(super) struct LossyLink;

impl Experiment for LossyLink {
    fn name(&self) -> &'static str {
        "lossy-link"
    }

    fn about(&self) -> &'static str {
        "30 % loss at 100 Hz: no long silence, no burst of the past; pictures over a narrow link that loses, beside control"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        let panels = [Some(silence(lab, &mut findings)?), frames(lab, &mut findings)?];
        findings.figure = Figure {
            title: "Links that lose".into(),
            axis: "Time in ms: the longest or oldest, and p50".into(),
            logarithmic: true,
            panels: panels.into_iter().flatten().collect(),
        };
        Ok(findings)
    }
}

/// Two hosts, 10 ms apart.
fn hosts(lab: &Lab) -> Result<Topology> {
    Topology::link(lab, &[Line::both(1, Behaviour { delay: DELAY, ..Behaviour::default() })])
}

/// From now on the link loses this percentage of the frames in either direction. A link may thus be better while programs find each
/// other than while they are measured.
fn lose(hosts: &Topology, percent: u8) {
    hosts.change(1, |line| line.loss = f64::from(percent) / 100.0);
}

/// Opens a flow from the first host to the second one; `number` distinguishes its nodes from others'.
fn open(lab: &Lab, hosts: &Topology, number: u16, what: &Stream) -> Result<Flow> {
    let at = |host: u8| SocketAddr::new(Topology::address_of(host), 7400 + number);
    let end = |role: &str, host: u8| {
        let node = NodeSettings::at(lab, role, what.name, at(host), &[at(1), at(2)])?;
        Ok::<_, Error>((node, Place::at(hosts.host(host), &[]).first()))
    };
    let Stream { name, size, hz, carrier, qos } = what;
    let (topic, carriers, qos) = (format!("/{name}"), vec![(*carrier).into()], qos.clone());
    let settings = Settings { topic, size: *size, hz: *hz, carriers, qos, ..Settings::default() };
    Flow::open(lab, &settings, end("publisher", 1)?, vec![end("subscriber", 2)?])
}

/// Publishes samples; gives the arrivals of these.
fn publish(lab: &Lab, flow: &mut Flow, count: u64) -> Result<Arrived> {
    let (published, arrived) = flow.publish(lab, count, PATIENCE)?;
    Ok(only(arrived).of(&published))
}

/// The account of the only subscriber.
fn only(arrived: Vec<Arrived>) -> Arrived {
    arrived.into_iter().next().unwrap_or_default()
}

/// A stream's name, samples, carrier and policies.
struct Stream {
    name: &'static str,
    size: usize,
    hz: f64,
    carrier: &'static str,
    qos: Qos,
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "Two hosts with a link in user space between them, {} ms each way. It loses each frame by chance, and only while samples \
             are measured.",
            DELAY.as_millis()
        ),
        format!(
            "silence: {} bytes at {} Hz, a deadline of {} ms at both ends; {} % of the packets are lost in each direction. A silence is \
             the time between two deliveries, 2 round trips and 1 period are allowed. By tcp for comparison: nothing is expected of it.",
            SIZE,
            HZ,
            DEADLINE.as_millis(),
            LOSS
        ),
        format!(
            "frames: {} bytes, as of a 1080p picture in JPEG, at {} Hz, class low, lifespan {} ms, the latest {} wait; control: {} bytes \
             at {} Hz, class high, deadline {} ms. What leaves the first host has {} Mbit/s, classes by DSCP; {} % are lost in each \
             direction. Ratios are of pairs of runs that follow each other, medians.",
            FRAME,
            FRAMES_HZ,
            LIFESPAN.as_millis(),
            WAITING,
            SIZE,
            HZ,
            DEADLINE.as_millis(),
            RATE / 1_000_000,
            FRAMES_LOSS
        ),
    ]
}

fn policies() -> Qos {
    Qos { deadline: Some(DEADLINE), class: Class::High, ..Qos::default() }
}

/// Figures of a channel's deliveries.
struct Deliveries {
    silences: Option<Distribution>,
    /// The longest silence, and the oldest sample, in ms: of all, and of those that no stall of the machine hit.
    longest: [f64; 2],
    oldest: [f64; 2],
    /// Most samples delivered within one period.
    burst: usize,
}

fn silence(lab: &Lab, findings: &mut Findings) -> Result<Panel> {
    let count = match lab.options.size {
        Size::Tiny => 60,
        Size::Ci => 300,
        Size::Quick => 1000,
        Size::Whole => 6000,
    };
    let mut table = Table::new(
        format!("{LOSS} % loss each way, {HZ} Hz, ms"),
        &[
            "carrier",
            "silence p50",
            "p99",
            "longest",
            "without stalls",
            "oldest sample",
            "without stalls",
            "most in a period",
        ],
    );
    let mut groups = Vec::new();
    // The other carrier is for comparison only.
    let carriers = if lab.options.size == Size::Ci { &CARRIERS[..1] } else { &CARRIERS[..] };
    for carrier in carriers.iter().copied() {
        lab.tell(&format!("{LOSS} % loss, {carrier}"));
        let mut hosts = hosts(lab)?;
        let name = if carrier == "udp" { "state" } else { "state-tcp" };
        let mut flow = open(lab, &hosts, 0, &Stream { name, size: SIZE, hz: HZ, carrier, qos: policies() })?;
        lose(&hosts, LOSS);
        // The path's loss is learned first.
        publish(lab, &mut flow, (count / 2).min(200))?;
        let monitor = Monitor::start()?;
        let arrived = publish(lab, &mut flow, count)?;
        let stalls = monitor.finish();
        drop(flow);
        let ended = hosts.end_lines();
        let mut tally = Tally::default();
        tally.add(count, &arrived.samples, &stalls);
        let factors = Factors::new().with("arm", "silence").with("measured", carrier).with("loss_percent", LOSS);
        findings.cells.push(tally.cell(factors.with("payload_bytes", SIZE), false));
        let found = deliveries(&arrived, &stalls);
        let [p50, p99] = found.silences.as_ref().map_or([f64::NAN; 2], |d| [d.p50, d.p99].map(|us| us / 1000.0));
        let ([longest, _], [oldest, _]) = (found.longest, found.oldest);
        table.row(carrier, &[&[p50, p99], &found.longest[..], &found.oldest, &[found.burst as f64]].concat());
        let bar = |series: &str, value: f64| Bar { series: series.into(), value, ..Bar::default() };
        let bars = [bar("longest silence", longest), bar("oldest sample", oldest)];
        groups.push(Group {
            label: carrier.into(),
            bars: bars.into_iter().filter(|bar| bar.value.is_finite()).collect(),
        });
        if carrier == "udp" {
            judge(&found, arrived.count as f64 / count as f64, &arrived, findings);
            lines::judge_loss(&format!("{LOSS} % loss"), LOSS, &ended, findings);
        }
    }
    findings.tables.push(table);
    Ok(Panel { title: format!("{LOSS} % loss, {HZ} Hz"), groups })
}

/// Two round trips, and one period, in ms.
fn allowed() -> f64 {
    4.0 * DELAY.as_secs_f64() * 1e3 + 1e3 / HZ
}

fn judge(found: &Deliveries, share: f64, arrived: &Arrived, findings: &mut Findings) {
    let oldest = (DELAY + DEADLINE).as_secs_f64() * 1e3;
    let burst = (allowed() * HZ / 1e3).ceil() + 1.0;
    findings.checks.extend([
        Check::at_most(
            format!("{LOSS} % loss: the longest silence, ms (two round trips and a period)"),
            found.longest[1],
            allowed(),
        )
        .less_stalls(found.longest[0]),
        Check::at_most(
            format!("{LOSS} % loss: the oldest sample, ms (the way and the deadline)"),
            found.oldest[1],
            oldest,
        )
        .less_stalls(found.oldest[0]),
        Check::at_most(
            format!("{LOSS} % loss: most samples within a period (what a silence may hold)"),
            found.burst as f64,
            burst,
        ),
        Check::at_least(format!("{LOSS} % loss: share of the samples that arrived in time"), share, ARRIVES),
        Check::at_most(
            format!("{LOSS} % loss: samples damaged, twice or out of order"),
            (arrived.damaged + arrived.again) as f64,
            0.0,
        ),
    ]);
}

fn deliveries(arrived: &Arrived, stalls: &Stalls) -> Deliveries {
    let at: Vec<u64> = arrived.samples.iter().map(|sample| sample.from_ns + sample.ns).collect();
    let between = |pair: &[u64]| Timed { from_ns: pair[0], ns: pair[1].saturating_sub(pair[0]) };
    let silences: Vec<Timed> = at.windows(2).map(between).collect();
    let largest = |all: &[Timed]| {
        let us: Vec<f64> = all.iter().map(|one| one.ns as f64 / 1000.0).collect();
        [us, stalls.apart(all).0].map(|us| us.into_iter().fold(f64::NAN, f64::max) / 1000.0)
    };
    let period = (1e9 / HZ) as u64;
    let within = |(n, from): (usize, &u64)| at[n..].iter().take_while(|at| **at < from + period).count();
    Deliveries {
        silences: Distribution::of(&silences.iter().map(|silence| silence.ns as f64 / 1000.0).collect::<Vec<_>>()),
        longest: largest(&silences),
        oldest: largest(&arrived.samples),
        burst: at.iter().enumerate().map(within).max().unwrap_or(0),
    }
}

/// `None`: a short run ends while the channel still learns how much the link carries.
fn frames(lab: &Lab, findings: &mut Findings) -> Result<Option<Panel>> {
    let (pairs, count) = match lab.options.size {
        Size::Tiny => (1, 30),
        Size::Ci => return Ok(None),
        Size::Quick => (5, 250),
        Size::Whole => (9, 1000),
    };
    let mut hosts = hosts(lab)?;
    hosts.change(1, |line| line.rate = Some(RATE));
    Wire { rate: RATE, limit: 1000, queue: topology::Queue::Classes }.install(hosts.host(1), DEVICE)?;
    let (size, hz) = (SIZE, HZ);
    let control = Stream { name: "control", size, hz, carrier: "udp", qos: policies() };
    let latest = Qos { class: Class::Low, lifespan: Some(LIFESPAN), queue: Queue::KeepLast(WAITING), ..Qos::default() };
    let pictures = Stream { name: "pictures", size: FRAME, hz: FRAMES_HZ, carrier: "udp", qos: latest };
    let (mut control, mut pictures) = (open(lab, &hosts, 0, &control)?, open(lab, &hosts, 1, &pictures)?);
    lose(&hosts, FRAMES_LOSS);
    publish(lab, &mut control, count.min(200))?; // how much the path loses is learned first
    let (mut alone, mut beside, mut frames) = (Tally::default(), Tally::default(), Tally::default());
    let mut malformed = 0;
    for pair in 1..=pairs {
        lab.tell(&format!("pictures, pair {pair} of {pairs}"));
        alone.publish(lab, &mut control, count, PATIENCE)?;
        let monitor = Monitor::start()?;
        pictures.start(lab)?;
        beside.publish(lab, &mut control, count, PATIENCE)?;
        let (published, arrived) = pictures.stop(lab, PATIENCE)?;
        let arrived = only(arrived).of(&published);
        frames.add(published.count, &arrived.samples, &monitor.finish());
        malformed += arrived.damaged + arrived.again;
    }
    let cells = [
        ("alone", "control", size, &alone),
        ("beside", "control", size, &beside),
        ("beside", "pictures", FRAME, &frames),
    ];
    let mut table = Table::new("Pictures beside control, ms", &["", "p50", "p99", "sent", "arrived"]);
    let mut bars = Vec::new();
    for (arm, what, size, tally) in cells {
        let factors = Factors::new().with("arm", arm).with("stream", what).with("measured", "udp");
        let cell = tally.cell(factors.with("loss_percent", FRAMES_LOSS).with("payload_bytes", size), false);
        let [p50, p99] = cell.latency_us.map_or([f64::NAN; 2], |d| [d.p50 / 1000.0, d.p99 / 1000.0]);
        table.row(format!("{what}, {arm}"), &[p50, p99, cell.sent as f64, cell.received as f64]);
        if p50.is_finite() {
            bars.push(Bar { series: format!("{what}, {arm}"), value: p50, mark: Some(p99), ..Bar::default() });
        }
        findings.cells.push(cell);
    }
    findings.tables.push(table);
    findings.queues = hosts.host(1).tc(&["-s", "qdisc", "show", "dev", DEVICE])?.lines().map(str::to_owned).collect();
    let came = 1.0 - frames.lost() as f64 / frames.sent() as f64;
    findings.checks.extend([
        Check::at_most("control beside pictures: p99 / alone", median_ratio(&beside.pairs(&alone, |d| d.p99)), WORSE),
        Check::at_most("control: samples skipped, percent", percent(&[&alone, &beside]), 1.0),
        Check::at_least("pictures: share that came, the others were skipped", came, WHOLE),
        Check::at_most("pictures that were not whole, twice or out of order", malformed as f64, 0.0),
        Check::at_most(
            "pictures: age at p50, ms",
            median(&frames.each(|d| d.p50)) / 1000.0,
            LIFESPAN.as_secs_f64() * 1e3,
        ),
    ]);
    drop((control, pictures));
    lines::judge_loss("pictures", FRAMES_LOSS, &hosts.end_lines(), findings);
    Ok(Some(Panel {
        title: format!("{FRAMES_LOSS} % loss, {} Mbit/s", RATE / 1_000_000),
        groups: vec![Group { label: "latency".into(), bars }],
    }))
}

fn percent(tallies: &[&Tally]) -> f64 {
    let (lost, sent) = tallies.iter().fold((0, 0), |(lost, sent), tally| (lost + tally.lost(), sent + tally.sent()));
    lost as f64 * 100.0 / sent as f64
}

/// Each way.
const DELAY: Duration = Duration::from_millis(10);
/// The last sample may take this long.
const PATIENCE: Duration = Duration::from_secs(2);
/// Samples later than this, beyond the path's own delay, are of no use.
const DEADLINE: Duration = Duration::from_millis(100);
const SIZE: usize = 64;
const HZ: f64 = 100.0;
/// In percent, each way.
const LOSS: u8 = 30;
/// Least share of the published samples that arrive: late ones are skipped.
const ARRIVES: f64 = 0.98;
const CARRIERS: [&str; 2] = ["udp", "tcp"];
/// Bytes of a 1080p picture in JPEG: at 10 Hz, 60 % of the link, so that losses can be repeated before the next one.
const FRAME: usize = 150_000;
const FRAMES_HZ: f64 = 10.0;
const RATE: u64 = 20_000_000;
/// In percent, each way.
const FRAMES_LOSS: u8 = 5;
/// An older picture is left out.
const LIFESPAN: Duration = Duration::from_millis(250);
/// The control channel's p99 may be this much worse than alone.
const WORSE: f64 = 1.5;
/// Pictures that may be unacknowledged.
const WAITING: u32 = 4;
/// This share of the pictures comes at least.
const WHOLE: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::Stall;

    #[test]
    fn silences_bursts_and_ages_are_those_of_the_deliveries() {
        let sample = |from_ms: u64, ms: u64| Timed { from_ns: from_ms * 1_000_000, ns: ms * 1_000_000 };
        let samples = vec![sample(0, 10), sample(10, 60), sample(20, 51), sample(30, 45), sample(80, 10)];
        let arrived = Arrived { samples, ..Arrived::default() };
        let found = deliveries(&arrived, &Stalls::default());
        let silences = found.silences.unwrap();
        assert_eq!((silences.max, silences.min, found.burst), (60_000.0, 1000.0, 3));
        assert_eq!((found.longest, found.oldest), ([60.0; 2], [60.0; 2]));
        let stall = Stall { cpu: 0, from_ns: 15_000_000, to_ns: 65_000_000, late_ns: 50_000_000 };
        let found = deliveries(&arrived, &Stalls { stalls: vec![stall], ..Stalls::default() });
        assert_eq!((found.longest, found.oldest), ([60.0, 15.0], [60.0, 10.0]), "what the machine did is told apart");
        assert!((allowed() - 50.0).abs() < 1e-9);
    }
}
