//! 64 B at 1 kHz over `udp` beside a saturating `udp` channel, on the loopback and on the line.

use super::flow::{Load, Saturating};
use super::path::{BUFFER, Path, RATE};
use crate::error::{Error, Result};
use crate::experiments::Tally;
use crate::lab::Lab;
use crate::results::{Bar, Check, Factors, Findings, Group, Panel, Table};
use crate::statistics::{median, median_ratio};
use crate::topology::{Queue, Wire};
use crate::wan::DEVICE;
use qos::Class;
use qos::priority::Changes;
use std::time::Duration;

const SIZE: usize = 64;
const HZ: f64 = 1000.0;
const BIG: usize = 64 << 10;
/// p99 may be this much worse than alone.
const WORSE: f64 = 1.5;
/// Rate of the sending host, below the line's, so that packets wait in the host's classes and not in front of the line.
const SHAPED: u64 = RATE / 100 * 95;
/// The last sample may take this long.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for the big channel's start.
const START: Duration = Duration::from_millis(500);

/// A path and its queues.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Both ends on a host: no queue but the sockets'.
    Loopback,
    /// The line, and classes by DSCP at the sending host, which lets 95 % of the line through.
    Classes(u64),
    /// The line with a single queue in front of it, which the big channel fills.
    OneQueue(u64),
}

/// All paths; `true` if the small channel's p99 is checked. In one full queue it waits as long as the queue takes to
/// empty.
const WAYS: [(Way, bool); 3] = [(Way::Loopback, true), (Way::Classes(10), true), (Way::OneQueue(10), false)];

impl Way {
    fn name(self) -> String {
        match self {
            Way::Loopback => "loopback".into(),
            Way::Classes(trip) => format!("line, {trip} ms, classes"),
            Way::OneQueue(trip) => format!("line, {trip} ms, one queue"),
        }
    }

    fn path(self, lab: &Lab) -> Result<Path> {
        match self {
            Way::Loopback => Path::loopback(lab),
            Way::OneQueue(trip) => Path::line(lab, trip),
            Way::Classes(trip) => {
                let path = Path::line(lab, trip)?;
                let wire = Wire { rate: SHAPED, limit: (BUFFER / 1514) as u32, queue: Queue::Classes };
                wire.install(path.hosts().host(1), DEVICE)?;
                Ok(path)
            }
        }
    }
}

pub(super) fn run(lab: &Lab, findings: &mut Findings) -> Result<Panel> {
    let (pairs, count) = match () {
        () if lab.options.tiny => (1, 30),
        () if lab.options.quick => (3, 1000),
        () => (9, 5000),
    };
    let mut table = Table::new("64 B at 1 kHz: µs", &["", "alone p50", "p99", "beside p50", "p99", "p99 / alone"]);
    let mut bars = Vec::new();
    for (way, held) in WAYS {
        let path = way.path(lab)?;
        let mut flows = open(lab, &path)?;
        let (mut alone, mut beside) = (Tally::default(), Tally::default());
        let mut big = 0.0;
        Tally::default().publish(lab, &mut flows[0].flow, count.min(200), PATIENCE)?; // warms up
        for pair in 1..=pairs {
            lab.tell(&format!("small, {}, pair {pair} of {pairs}", way.name()));
            alone.publish(lab, &mut flows[0].flow, count, PATIENCE)?;
            flows[1].flow.start(lab)?;
            lab.stop.sleep(START)?;
            let before = flows[1].count(lab)?;
            beside.publish(lab, &mut flows[0].flow, count, PATIENCE)?;
            let after = flows[1].count(lab)?;
            big += flows[1].rate(&before, &after).least * 8e-6 / f64::from(pairs);
            flows[1].flow.stop(lab, PATIENCE)?;
        }
        let ratio = median_ratio(&beside.pairs(&alone, |d| d.p99));
        if held {
            let name = format!("small beside saturating, {}: p99 / alone", way.name());
            findings.checks.push(Check::at_most(name, ratio, WORSE));
        }
        let lost = alone.lost() + beside.lost();
        findings.checks.push(Check::at_most(format!("small, {}: lost samples", way.name()), lost as f64, 0.0));
        let figures = [&alone, &beside].map(|tally| [median(&tally.each(|d| d.p50)), median(&tally.each(|d| d.p99))]);
        table.row(
            format!("{} (the other: {big:.0} Mbit/s)", way.name()),
            &[figures[0], figures[1], [ratio, f64::NAN]].concat()[..5],
        );
        for (arm, tally, [_, p99]) in [("alone", &alone, figures[0]), ("beside", &beside, figures[1])] {
            let factors = Factors::new().with("arm", arm).with("measured", "udp").with("way", way.name());
            findings.cells.push(tally.cell(factors.with("payload_bytes", SIZE), false));
            if p99.is_finite() {
                bars.push((way, Bar { series: arm.into(), value: p99, ..Bar::default() }));
            }
        }
    }
    findings.tables.push(table);
    findings.notes.push(format!(
        "small: {SIZE} B at {HZ} Hz, class=high sched=fifo:30 at both ends, processes of its own; the other: {BIG} B, class low. classes: the \
         sending host lets {} Mbit/s through, classes by DSCP, so that nothing waits in front of the line; one queue: both wait together \
         in front of the line, which the other fills as CUBIC does",
        SHAPED / 1_000_000
    ));
    let group = |(way, _): (Way, bool)| {
        let bars = bars.iter().filter(|(of, _)| *of == way).map(|(_, bar)| bar.clone()).collect();
        Group { label: way.name(), bars }
    };
    Ok(Panel { title: "small, p99".into(), groups: WAYS.map(group).to_vec() })
}

/// The small and the big one.
fn open(lab: &Lab, path: &Path) -> Result<[Saturating; 2]> {
    let small = Load { carrier: "udp", size: SIZE, hz: HZ, class: Class::High };
    let mut small = Saturating::open(lab, path, small)?;
    let changes: Changes = "class=high sched=fifo:30".parse().map_err(|e| Error::Usage(format!("{e}")))?;
    small.flow.set(lab, &changes)?;
    let big = Saturating::open(lab, path, Load { carrier: "udp", size: BIG, hz: 0.0, class: Class::Low })?;
    Ok([small, big])
}
