//! Flows that share the line at full speed: the share of each.

use super::flow::{Load, Saturating, Totals};
use super::path::{self, Path};
use crate::error::Result;
use crate::lab::Lab;
use crate::results::{Bar, Cell, Check, Factors, Findings, Group, Panel, Table};
use crate::statistics::median;
use qos::Class;
use serde_json::json;
use std::time::Duration;

const SIZE: usize = 64 << 10;
/// Jain's index.
const FAIR: f64 = 0.9;
/// Flows that share the line.
const SETS: [&[&str]; 5] =
    [&["udp", "udp"], &["udp", "udp", "udp", "udp"], &["udp", "tcp"], &["udp", "udp", "tcp", "tcp"], &["tcp", "tcp"]];

/// Jain's index of fairness: 1 if all have the same, 1/n if one has all (DEC-TR-301, 1984).
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|x| x * x).sum::<f64>());
    sum * sum / (shares.len() as f64 * squares)
}

pub(super) fn run(lab: &Lab, findings: &mut Findings) -> Result<Panel> {
    let (trips, times, repetitions): (&[u64], _, _) = match () {
        () if lab.options.tiny => (&[0], [50, 100], 1),
        () if lab.options.quick => (&[10], [2000, 6000], 1),
        () => (&[0, 10, 50], [5000, 25_000], 3),
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
                factors: factors.with("round_trip_ms", *trip).with("payload_bytes", SIZE),
                repetitions: found.iter().map(|shares| json!({"mbit": shares})).collect(),
                ..Cell::default()
            });
            let bars = found[0].iter().zip(*set).filter(|(mbit, _)| **mbit > 0.0);
            let bars = bars.map(|(mbit, carrier)| Bar { series: (*carrier).into(), value: *mbit, ..Bar::default() });
            groups.push(Group { label: format!("{trip} ms {name}"), bars: bars.collect() });
        }
        path::judge(&format!("shared, {trip} ms"), &path.end(), findings);
    }
    findings.tables.push(table);
    Ok(Panel { title: "shared".into(), groups })
}

fn join(shares: &[f64]) -> String {
    shares.iter().map(|mbit| format!("{mbit:.1}")).collect::<Vec<_>>().join(" ")
}

/// Mbit/s of each.
fn shares(lab: &Lab, path: &Path, set: &[&'static str], start: Duration, measured: Duration) -> Result<Vec<f64>> {
    let load = |carrier| Load { carrier, size: SIZE, hz: 0.0, class: Class::Normal };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_where_all_have_the_same() {
        assert_eq!((jain(&[3.0, 3.0]), jain(&[1.0, 0.0, 0.0, 0.0])), (1.0, 0.25));
        assert!((jain(&[2.0, 1.0]) - FAIR).abs() < 1e-9, "two to one is the limit");
    }
}
