//! The figure: a panel for each load, a group of bars for each row, the bound beside those that it covers.

use crate::experiments::yarp::setup::{SMALL, Setup};
use crate::experiments::yarp::{Arm, Row};
use crate::load::Pattern;
use crate::results::{Bar, Cell, Figure, Group, Panel};
use crate::statistics::{Distribution, median};

/// Draws the cells of all rows (normal and qos of the first row, and so on), and the bound of each row, by its index.
pub(super) fn figure(setup: &Setup, rows: &[Row], cells: &[Cell], promised: &dyn Fn(usize) -> Option<Bar>) -> Figure {
    let mut drawn: Vec<(u32, bool, bool, Panel)> = Vec::new();
    for (index, (row, cells)) in rows.iter().zip(cells.chunks(Arm::BOTH.len())).enumerate() {
        let key =
            (row.percent, matches!(row.pattern, Pattern::Bursts(_)) && row.percent <= 70, row.payload != setup.payload);
        let at = drawn.iter().position(|(percent, bursts, small, _)| (*percent, *bursts, *small) == key);
        let at = at.unwrap_or_else(|| {
            drawn.push((key.0, key.1, key.2, Panel { title: title(row, key.1, key.2), groups: Vec::new() }));
            drawn.len() - 1
        });
        let mut group = group(row, cells);
        group.bars.extend(promised(index));
        drawn[at].3.groups.push(group);
    }
    drawn.sort_by_key(|(percent, bursts, small, _)| (*small, *percent, *bursts));
    Figure {
        title: format!("{}: {} B, measured / load", setup.title, setup.payload),
        axis: "round trip, µs, medians over repetitions".into(),
        logarithmic: true,
        panels: drawn.into_iter().map(|(_, _, _, panel)| panel).collect(),
    }
}

fn title(row: &Row, bursts: bool, small: bool) -> String {
    let load = if row.percent == 0 { "no load".to_owned() } else { format!("{} %", row.percent) };
    let how = if bursts { " in bursts" } else { "" };
    let size = if small { format!(", {SMALL} B") } else { String::new() };
    format!("{load}{how}{size}")
}

fn group(row: &Row, cells: &[Cell]) -> Group {
    let measured = row.measured.name().to_uppercase();
    let beside = if row.percent == 0 { String::new() } else { format!(" / {}", row.load.name().to_uppercase()) };
    let bars = Arm::BOTH.iter().zip(cells).filter_map(|(arm, cell)| bar(*arm, cell));
    Group { label: format!("{measured}{beside}"), bars: bars.collect() }
}

/// Medians over repetitions, as they are checked: one disturbed repetition does not show.
fn bar(arm: Arm, cell: &Cell) -> Option<Bar> {
    let times: Vec<Distribution> =
        cell.repetitions.iter().filter_map(|one| serde_json::from_value(one["rtt_us"].clone()).ok()).collect();
    let middle = |figure: fn(&Distribution) -> f64| median(&times.iter().map(figure).collect::<Vec<_>>());
    let (value, deviation, p99) = (middle(|d| d.mean), middle(|d| d.stdev), middle(|d| d.p99));
    (!times.is_empty()).then(|| Bar { series: arm.name().into(), value, deviation, mark: Some(p99) })
}
