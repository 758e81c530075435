//! Pictures over a narrow link that loses, beside a control channel (F-14).

use super::silence::{self, policies};
use super::{PATIENCE, Stream, hosts, only, open, publish};
use crate::error::Result;
use crate::experiments::Tally;
use crate::lab::Lab;
use crate::results::{Bar, Check, Factors, Findings, Group, Panel, Table};
use crate::stalls::Monitor;
use crate::statistics::{median, median_ratio};
use crate::topology::{self, Wire};
use crate::wan::DEVICE;
use qos::{Class, Qos, Queue};
use std::time::Duration;

/// Bytes of a 1080p picture in JPEG: at 10 Hz, 60 % of the link, so that losses can be repeated before the next one.
pub(super) const FRAME: usize = 150_000;
pub(super) const FRAMES_HZ: f64 = 10.0;
pub(super) const RATE: u64 = 20_000_000;
/// In percent, each way.
pub(super) const LOSS: u8 = 5;
/// An older picture is left out.
pub(super) const LIFESPAN: Duration = Duration::from_millis(250);
/// The control channel's p99 may be this much worse than alone.
const WORSE: f64 = 1.5;
/// Pictures that may be unacknowledged.
pub(super) const WAITING: u32 = 4;
/// This share of the pictures comes at least.
const WHOLE: f64 = 0.5;

pub(super) fn run(lab: &Lab, findings: &mut Findings) -> Result<Panel> {
    let (pairs, count) = match () {
        () if lab.options.tiny => (1, 30),
        () if lab.options.quick => (5, 250),
        () => (9, 1000),
    };
    let hosts = hosts(lab)?;
    Wire { rate: RATE, limit: 1000, queue: topology::Queue::Classes }.install(hosts.host(1), DEVICE)?;
    let (size, hz) = (silence::SIZE, silence::HZ);
    let control = Stream { name: "control", size, hz, carrier: "udp", qos: policies() };
    let latest = Qos { class: Class::Low, lifespan: Some(LIFESPAN), queue: Queue::KeepLast(WAITING), ..Qos::default() };
    let pictures = Stream { name: "pictures", size: FRAME, hz: FRAMES_HZ, carrier: "udp", qos: latest };
    let (mut control, mut pictures) = (open(lab, &hosts, 0, &control)?, open(lab, &hosts, 1, &pictures)?);
    hosts.lose(LOSS);
    publish(lab, &mut control, count.min(200))?; // how much the path loses is learned first
    let (mut alone, mut beside, mut frames) = (Tally::default(), Tally::default(), Tally::default());
    let mut strange = 0;
    for pair in 1..=pairs {
        lab.tell(&format!("pictures, pair {pair} of {pairs}"));
        alone.publish(lab, &mut control, count, PATIENCE)?;
        let monitor = Monitor::start()?;
        pictures.start(lab)?;
        beside.publish(lab, &mut control, count, PATIENCE)?;
        let (published, arrived) = pictures.stop(lab, PATIENCE)?;
        let arrived = only(arrived).of(&published);
        frames.add(published.count, &arrived.samples, &monitor.finish());
        strange += arrived.damaged + arrived.again;
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
        let cell = tally.cell(factors.with("loss_percent", LOSS).with("payload_bytes", size), false);
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
        Check::at_most("pictures that were not whole, twice or out of order", strange as f64, 0.0),
        Check::at_most(
            "pictures: age at p50, ms",
            median(&frames.each(|d| d.p50)) / 1000.0,
            LIFESPAN.as_secs_f64() * 1e3,
        ),
    ]);
    Ok(Panel {
        title: format!("{LOSS} % loss, {} Mbit/s", RATE / 1_000_000),
        groups: vec![Group { label: "latency".into(), bars }],
    })
}

fn percent(tallies: &[&Tally]) -> f64 {
    let (lost, sent) = tallies.iter().fold((0, 0), |(lost, sent), tally| (lost + tally.lost(), sent + tally.sent()));
    lost as f64 * 100.0 / sent as f64
}
