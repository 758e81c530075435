//! Flows that share a path. At full speed on the line: the share of each. 64 B at 1 kHz over `udp` beside a saturating
//! `udp` channel, on the loopback and on the line: the latency.

use super::{BUFFER, Load, Path, RATE, Saturating, Totals};
use crate::error::{Error, Result};
use crate::experiments::{Tally, lines};
use crate::lab::{Lab, Size};
use crate::results::{Bar, Cell, Check, Factors, Findings, Group, Panel, Table};
use crate::statistics::{median, median_ratio};
use crate::topology::{DEVICE, Queue, SHAPED, Wire};
use qos::Class;
use qos::priority::Changes;
use serde_json::json;
use std::time::Duration;

/// `None`: flows need seconds to share alike, which a short run has not.
pub(super) fn fairness(lab: &Lab, findings: &mut Findings) -> Result<Option<Panel>> {
    let (trips, times, repetitions): (&[u64], _, _) = match lab.options.size {
        Size::Tiny => (&[0], [50, 100], 1),
        Size::Ci => return Ok(None),
        Size::Quick => (&[10], [2000, 6000], 3),
        Size::Whole => (&[0, 10, 50], [5000, 25_000], 3),
    };
    let [start, measured] = times.map(Duration::from_millis);
    let mut table = Table::new("Flows that share the line: Mbit/s", &["round trip", "flows", "each", "Jain's index"]);
    let mut groups = Vec::new();
    for trip in trips {
        let path = Path::line(lab, *trip)?;
        for set in &SETS {
            let name = set.join("+");
            let mut found: Vec<Vec<f64>> = Vec::new();
            for repetition in 1..=repetitions {
                let shares = shares(lab, &path, set, start, measured)?;
                lab.tell(&format!("{name}, {trip} ms, {repetition} of {repetitions}: {} Mbit/s", join(&shares)));
                found.push(shares);
            }
            let index = median(&found.iter().map(|shares| jain(shares)).collect::<Vec<_>>());
            let shown: Vec<String> = found.iter().map(|shares| join(shares)).collect();
            table.rows.push(vec![format!("{trip} ms"), name.clone(), shown.join("; "), format!("{index:.3}")]);
            // Sets without `udp` are for comparison.
            if set.contains(&"udp") {
                let check = format!("{trip} ms: Jain's index of {name}");
                findings.checks.push(Check::at_least(check, index, FAIR));
            }
            let factors = Factors::new().with("arm", "shared").with("measured", name.as_str());
            findings.cells.push(Cell {
                factors: factors.with("round_trip_ms", *trip).with("payload_bytes", BIG),
                repetitions: found.iter().map(|shares| json!({"mbit": shares})).collect(),
                ..Cell::default()
            });
            let bars = found[0].iter().zip(*set).filter(|(mbit, _)| **mbit > 0.0);
            let bars = bars.map(|(mbit, carrier)| Bar { series: (*carrier).into(), value: *mbit, ..Bar::default() });
            groups.push(Group { label: format!("{trip} ms {name}"), bars: bars.collect() });
        }
        lines::judge(&format!("shared, {trip} ms"), &path.end(), findings);
    }
    findings.tables.push(table);
    Ok(Some(Panel { title: "shared".into(), groups }))
}

/// Jain's index of fairness: 1 if all have the same, 1/n if one has all (DEC-TR-301, 1984).
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|x| x * x).sum::<f64>());
    sum * sum / (shares.len() as f64 * squares)
}

fn join(shares: &[f64]) -> String {
    shares.iter().map(|mbit| format!("{mbit:.1}")).collect::<Vec<_>>().join(" ")
}

/// Mbit/s of each.
fn shares(lab: &Lab, path: &Path, set: &[&'static str], start: Duration, measured: Duration) -> Result<Vec<f64>> {
    let load = |carrier| Load { carrier, size: BIG, hz: 0.0, class: Class::Normal };
    let mut flows =
        set.iter().map(|carrier| Saturating::open(lab, path, load(*carrier))).collect::<Result<Vec<_>>>()?;
    flows.iter_mut().try_for_each(|flow| flow.flow.start(lab))?;
    lab.stop.sleep(start)?;
    let before = flows.iter_mut().map(|flow| flow.count(lab)).collect::<Result<Vec<_>>>()?;
    lab.stop.sleep(measured)?;
    let after = flows.iter_mut().map(|flow| flow.count(lab)).collect::<Result<Vec<_>>>()?;
    let rates = flows.iter().zip(before.iter().zip(&after)).map(|(flow, (before, after))| flow.rate(before, after));
    let rates = rates.map(|rate| rate.least * 8e-6).collect();
    flows.into_iter().map(|flow| flow.finish(lab)).collect::<Result<Vec<Totals>>>()?;
    Ok(rates)
}

/// A path and its queues.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Both ends on a host: no queue but the sockets'.
    Loopback,
    /// The line, and classes by DSCP at the sending host, which lets a little less than the line's rate through.
    Classes(u64),
    /// The line with a single queue in front of it, which the big channel fills.
    OneQueue(u64),
}

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
                let wire = Wire { rate: RATE, limit: (BUFFER / 1514) as u32, queue: Queue::Classes };
                wire.install(path.hosts().host(1), DEVICE)?;
                Ok(path)
            }
        }
    }
}

pub(super) fn small(lab: &Lab, findings: &mut Findings) -> Result<Panel> {
    let (pairs, count) = match lab.options.size {
        Size::Tiny => (1, 30),
        Size::Ci => (1, 200),
        Size::Quick => (3, 1000),
        Size::Whole => (9, 5000),
    };
    let mut table = Table::new("64 B at 1 kHz: µs", &["", "alone p50", "p99", "beside p50", "p99", "p99 / alone"]);
    let mut bars = Vec::new();
    let ways = if lab.options.size == Size::Ci { &WAYS[1..2] } else { &WAYS[..] };
    for (way, held) in ways.iter().copied() {
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
            findings.checks.push(Check::at_most(name, ratio, WORSE).judged_from(Size::Quick));
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
            findings.cells.push(tally.cell(factors.with("payload_bytes", SMALL), false));
            if p99.is_finite() {
                bars.push((way, Bar { series: arm.into(), value: p99, ..Bar::default() }));
            }
        }
    }
    findings.tables.push(table);
    findings.notes.push(format!(
        "small: {SMALL} B at {HZ} Hz, class=high sched=fifo:30 at both ends, processes of its own; the other: {BIG} B, class low. classes: the \
         sending host lets {} % of the line's rate through, classes by DSCP, so that nothing waits in front of the line; one queue: both wait together \
         in front of the line, which the other fills as CUBIC does",
        SHAPED
    ));
    let group = |(way, _): (Way, bool)| {
        let bars = bars.iter().filter(|(of, _)| *of == way).map(|(_, bar)| bar.clone()).collect();
        Group { label: way.name(), bars }
    };
    Ok(Panel { title: "small, p99".into(), groups: ways.iter().copied().map(group).collect() })
}

/// The small and the big one.
fn open(lab: &Lab, path: &Path) -> Result<[Saturating; 2]> {
    let small = Load { carrier: "udp", size: SMALL, hz: HZ, class: Class::High };
    let mut small = Saturating::open(lab, path, small)?;
    let changes: Changes = "class=high sched=fifo:30".parse().map_err(|e| Error::Usage(format!("{e}")))?;
    small.flow.set(lab, &changes)?;
    let big = Saturating::open(lab, path, Load { carrier: "udp", size: BIG, hz: 0.0, class: Class::Low })?;
    Ok([small, big])
}

/// Flows that share the line.
const SETS: [&[&str]; 5] =
    [&["udp", "udp"], &["udp", "udp", "udp", "udp"], &["udp", "tcp"], &["udp", "udp", "tcp", "tcp"], &["tcp", "tcp"]];
/// Jain's index.
const FAIR: f64 = 0.9;
const SMALL: usize = 64;
const HZ: f64 = 1000.0;
const BIG: usize = 64 << 10;
/// p99 may be this much worse than alone.
const WORSE: f64 = 1.5;
/// The last sample may take this long.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for the big channel's start.
const START: Duration = Duration::from_millis(500);
/// All paths; `true` if the small channel's p99 is checked. In one full queue it waits as long as the queue takes to
/// empty.
const WAYS: [(Way, bool); 3] = [(Way::Loopback, true), (Way::Classes(10), true), (Way::OneQueue(10), false)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_where_all_have_the_same() {
        assert_eq!((jain(&[3.0, 3.0]), jain(&[1.0, 0.0, 0.0, 0.0])), (1.0, 0.25));
        assert!((jain(&[2.0, 1.0]) - FAIR).abs() < 1e-9, "two to one is the limit");
    }
}
