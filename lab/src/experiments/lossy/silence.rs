//! 100 samples a second over a link that loses 30 % each way (U-26).

use super::{DEADLINE, DELAY, Stream, hosts, open, publish};
use crate::error::Result;
use crate::experiments::Tally;
use crate::lab::Lab;
use crate::part::stream::Arrived;
use crate::results::{Bar, Check, Factors, Findings, Group, Panel, Table};
use crate::stalls::{Monitor, Stalls, Timed};
use crate::statistics::Distribution;
use qos::{Class, Qos};

pub(super) const SIZE: usize = 64;
pub(super) const HZ: f64 = 100.0;
/// In percent, each way.
pub(super) const LOSS: u8 = 30;
/// Least share of the published samples that arrive: late ones are skipped.
const ARRIVES: f64 = 0.98;
const CARRIERS: [&str; 2] = ["udp", "tcp"];

pub(super) fn policies() -> Qos {
    Qos { deadline: Some(DEADLINE), class: Class::High, ..Qos::default() }
}

/// Figures of a channel's deliveries.
struct Deliveries {
    silences: Option<Distribution>,
    /// Most samples delivered within one period.
    burst: usize,
    /// The oldest, in ms.
    oldest: f64,
}

pub(super) fn run(lab: &Lab, findings: &mut Findings) -> Result<Panel> {
    let count = match () {
        () if lab.options.tiny => 60,
        () if lab.options.quick => 1000,
        () => 6000,
    };
    let mut table = Table::new(
        format!("{LOSS} % loss each way, {HZ} Hz, ms"),
        &["carrier", "silence p50", "p99", "longest", "oldest sample", "most in a period"],
    );
    let mut groups = Vec::new();
    for carrier in CARRIERS {
        lab.tell(&format!("{LOSS} % loss, {carrier}"));
        let hosts = hosts(lab)?;
        let name = if carrier == "udp" { "state" } else { "state-tcp" };
        let mut flow = open(lab, &hosts, 0, &Stream { name, size: SIZE, hz: HZ, carrier, qos: policies() })?;
        hosts.lose(LOSS);
        // The path's loss is learned first.
        publish(lab, &mut flow, count.min(200))?;
        let monitor = Monitor::start()?;
        let arrived = publish(lab, &mut flow, count)?;
        let stalls = monitor.finish();
        let mut tally = Tally::default();
        tally.add(count, &arrived.samples, &stalls);
        let factors = Factors::new().with("arm", "silence").with("measured", carrier).with("loss_percent", LOSS);
        findings.cells.push(tally.cell(factors.with("payload_bytes", SIZE), false));
        let found = deliveries(&arrived, &stalls);
        let [p50, p99, longest] =
            found.silences.as_ref().map_or([f64::NAN; 3], |d| [d.p50, d.p99, d.max].map(|us| us / 1000.0));
        table.row(carrier, &[p50, p99, longest, found.oldest, found.burst as f64]);
        let bar = |series: &str, value: f64| Bar { series: series.into(), value, ..Bar::default() };
        let bars = [bar("longest silence", longest), bar("oldest sample", found.oldest)];
        groups.push(Group {
            label: carrier.into(),
            bars: bars.into_iter().filter(|bar| bar.value.is_finite()).collect(),
        });
        if carrier == "udp" {
            judge(&found, longest, arrived.count as f64 / count as f64, &arrived, findings);
        }
    }
    findings.tables.push(table);
    Ok(Panel { title: format!("{LOSS} % loss, {HZ} Hz"), groups })
}

/// Two round trips, and one period, in ms.
fn allowed() -> f64 {
    4.0 * DELAY.as_secs_f64() * 1e3 + 1e3 / HZ
}

fn judge(found: &Deliveries, longest: f64, share: f64, arrived: &Arrived, findings: &mut Findings) {
    let oldest = (DELAY + DEADLINE).as_secs_f64() * 1e3;
    let burst = (allowed() * HZ / 1e3).ceil() + 1.0;
    findings.checks.extend([
        Check::at_most(
            format!("{LOSS} % loss: the longest silence, ms (two round trips and a period)"),
            longest,
            allowed(),
        ),
        Check::at_most(
            format!("{LOSS} % loss: the oldest sample, ms (the way and the deadline)"),
            found.oldest,
            oldest,
        ),
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
    let (silences, _) = stalls.apart(&at.windows(2).map(between).collect::<Vec<_>>());
    let (ages, _) = stalls.apart(&arrived.samples);
    let period = (1e9 / HZ) as u64;
    let within = |(n, from): (usize, &u64)| at[n..].iter().take_while(|at| **at < from + period).count();
    Deliveries {
        silences: Distribution::of(&silences),
        burst: at.iter().enumerate().map(within).max().unwrap_or(0),
        oldest: ages.into_iter().fold(f64::NAN, f64::max) / 1000.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silences_bursts_and_ages_are_those_of_the_deliveries() {
        let sample = |from_ms: u64, ms: u64| Timed { from_ns: from_ms * 1_000_000, ns: ms * 1_000_000 };
        let samples = vec![sample(0, 10), sample(10, 60), sample(20, 51), sample(30, 45), sample(80, 10)];
        let found = deliveries(&Arrived { samples, ..Arrived::default() }, &Stalls::default());
        let silences = found.silences.unwrap();
        assert_eq!((silences.max, silences.min, found.burst, found.oldest), (60_000.0, 1000.0, 3, 60.0));
        assert!((allowed() - 50.0).abs() < 1e-9);
    }
}
