//! Loss × round trip × size on the line, and sizes on the loopback: `udp` and `tcp` in turns.

use super::{Load, Path, Rate, Saturating, Totals};
use crate::error::Result;
use crate::experiments::{lines, shuffled};
use crate::lab::{Lab, Size};
use crate::results::{Bar, Cell, Check, Factors, Findings, Group, Panel, Table};
use crate::statistics::median;
use qos::Class;
use serde_json::json;
use std::time::Duration;
use thalweg::carrier::Dice;

const SIZES: [usize; 3] = [64, 64 << 10, 1 << 20];
const LOSSES: [u8; 4] = [0, 1, 5, 10];
const CARRIERS: [&str; 2] = ["udp", "tcp"];
/// Least part of tcp's goodput, without loss.
const WITHOUT_LOSS: f64 = 0.8;
/// At 1 and 5 % of loss.
const RANDOM: f64 = 1.0;
/// At 10 % and 50 ms.
const MUCH: f64 = 5.0;

/// Times to start and to measure a flow.
struct Times {
    start: Duration,
    measured: Duration,
}

/// The results of one repetition over both carriers.
#[derive(Clone, Debug, Default)]
struct Found {
    rates: [Vec<Rate>; 2], // as CARRIERS
    totals: [Totals; 2],
}

/// A cell's path: line or loopback, loss, round trip.
struct Place {
    name: String,
    trip_ms: Option<u64>,
    losses: &'static [u8],
    sizes: &'static [usize],
}

/// The paths of a run of this size. The small one has those whose expected ratios are far from the ones that are measured.
fn places(size: Size) -> Vec<Place> {
    let line = |trip: u64, losses, sizes| Place { name: format!("{trip} ms"), trip_ms: Some(trip), losses, sizes };
    let loopback = Place { name: "loopback".into(), trip_ms: None, losses: &LOSSES[..1], sizes: &SIZES };
    let lines = match size {
        Size::Ci => return vec![line(0, &LOSSES[..1], &SIZES[1..2]), line(50, &LOSSES[2..3], &SIZES[1..2])],
        Size::Tiny => vec![line(0, &LOSSES[..1], &SIZES)],
        Size::Quick => [0, 50].map(|trip| line(trip, &LOSSES, &SIZES)).into(),
        Size::Whole => [0, 10, 50].map(|trip| line(trip, &LOSSES, &SIZES)).into(),
    };
    lines.into_iter().chain([loopback]).collect()
}

pub(super) fn run(lab: &Lab, findings: &mut Findings) -> Result<Vec<Panel>> {
    let (times, repetitions) = match lab.options.size {
        Size::Tiny => ([20, 100], 1),
        Size::Ci => ([300, 600], 1),
        Size::Quick => ([500, 1000], 1),
        Size::Whole => ([2000, 5000], 3),
    };
    let [start, measured] = times.map(Duration::from_millis);
    let times = Times { start, measured };
    let mut dice = Dice::new(lab.options.seed);
    let mut lost = Totals::default();
    let mut panels = Vec::new();
    for place in &places(lab.options.size) {
        let path = place.trip_ms.map_or_else(|| Path::loopback(lab), |trip| Path::line(lab, trip))?;
        let mut cells = vec![Found::default(); place.losses.len() * place.sizes.len()];
        for repetition in 1..=repetitions {
            for cell in shuffled(cells.len(), &mut dice) {
                let (loss, size) = (place.losses[cell / place.sizes.len()], place.sizes[cell % place.sizes.len()]);
                for carrier in shuffled(CARRIERS.len(), &mut dice) {
                    one(lab, &path, (carrier, loss, size), &times, &mut cells[cell])?;
                }
                let [udp, tcp] = cells[cell].mbit();
                lab.tell(&format!(
                    "{}, {loss} % loss, {size} B, {repetition} of {repetitions}: udp {udp:.1}, tcp {tcp:.1} Mbit/s so far",
                    place.name
                ));
            }
        }
        let reports = path.end();
        if place.trip_ms.is_some() {
            lines::judge(&place.name, &reports, findings);
        }
        panels.push(tell(place, &cells, &mut lost, findings));
    }
    findings.checks.extend([
        Check::at_least("udp: messages that were published", lost.published as f64, 1.0),
        Check::at_most("udp: messages that did not arrive", lost.published as f64 - lost.arrived as f64, 0.0),
        Check::at_most("udp: messages damaged, twice or out of order", lost.wrong as f64, 0.0),
    ]);
    Ok(panels)
}

/// One flow alone.
fn one(lab: &Lab, path: &Path, (carrier, loss, size): (usize, u8, usize), times: &Times, found: &mut Found) -> Result {
    path.lose(0);
    let load = Load { carrier: CARRIERS[carrier], size, hz: 0.0, class: Class::Normal };
    let mut flow = Saturating::open(lab, path, load)?;
    path.lose(loss);
    let mut before = flow.count(lab)?;
    flow.flow.start(lab)?;
    lab.stop.sleep(times.start)?;
    let later = flow.count(lab)?;
    before = if later.count > 0 { later } else { before };
    lab.stop.sleep(times.measured)?;
    let after = flow.count(lab)?;
    found.rates[carrier].push(flow.rate(&before, &after));
    // A stream that is slow has much in its buffers: it is not waited for.
    if carrier == 0 {
        let Totals { published, arrived, wrong } = flow.finish(lab)?;
        let totals = &mut found.totals[carrier];
        totals.published += published;
        totals.arrived += arrived;
        totals.wrong += wrong;
    }
    Ok(())
}

impl Found {
    /// Goodput in Mbit/s: of udp the lower figure, of tcp the higher one.
    fn mbit(&self) -> [f64; 2] {
        let counted = |rate: &Rate, carrier: usize| if carrier == 0 { rate.least } else { rate.most };
        [0, 1].map(|carrier| {
            let rates: Vec<f64> = self.rates[carrier].iter().map(|rate| counted(rate, carrier) * 8e-6).collect();
            median(&rates)
        })
    }
}

fn target(place: &Place, loss: u8) -> Option<f64> {
    match (loss, place.trip_ms) {
        (0, _) => Some(WITHOUT_LOSS),
        (1 | 5, _) => Some(RANDOM),
        (10, Some(50)) => Some(MUCH),
        _ => None,
    }
}

fn tell(place: &Place, cells: &[Found], lost: &mut Totals, findings: &mut Findings) -> Panel {
    let mut table =
        Table::new(format!("Goodput, {}: Mbit/s", place.name), &["loss, message", "udp", "tcp", "udp / tcp", "wanted"]);
    let mut groups = Vec::new();
    for (index, found) in cells.iter().enumerate() {
        let (loss, size) = (place.losses[index / place.sizes.len()], place.sizes[index % place.sizes.len()]);
        let [udp, tcp] = found.mbit();
        let wanted = target(place, loss);
        table.rows.push(vec![
            format!("{loss} %, {size} B"),
            format!("{udp:.1}"),
            format!("{tcp:.1}"),
            format!("{:.2}", udp / tcp),
            wanted.map_or(String::new(), |wanted| format!("{wanted}")),
        ]);
        if let Some(wanted) = wanted {
            let name = format!("{}, {loss} % loss, {size} B: goodput of udp / tcp", place.name);
            findings.checks.push(Check::at_least(name, udp / tcp, wanted));
        }
        let totals = found.totals[0];
        lost.published += totals.published;
        lost.arrived += totals.arrived;
        lost.wrong += totals.wrong;
        findings.cells.extend(CARRIERS.iter().enumerate().map(|(carrier, name)| {
            let factors = Factors::new().with("arm", place.name.as_str()).with("measured", *name);
            let rates = found.rates[carrier].iter();
            Cell {
                factors: factors.with("loss_percent", loss).with("payload_bytes", size),
                repetitions: rates.map(|r| json!({"mbit_least": r.least * 8e-6, "mbit_most": r.most * 8e-6})).collect(),
                ..Cell::default()
            }
        }));
        let bar = |series: &str, value: f64| Bar { series: series.into(), value, ..Bar::default() };
        let bars = [bar("udp", udp), bar("tcp", tcp)].into_iter().filter(|bar| bar.value > 0.0).collect();
        groups.push(Group { label: format!("{loss} % {size}"), bars });
    }
    findings.tables.push(table);
    Panel { title: place.name.clone(), groups }
}
