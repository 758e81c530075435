//! The figure: bars of means with standard deviations as in Fig. 5 of the paper, one panel per load, and the 99th
//! percentile as a mark.

use super::rows::{Arm, Row};
use super::setup::{SMALL, Setup};
use crate::load::Pattern;
use crate::results::{Bar, Cell, Figure, Group, Panel};

/// Of the cells of all rows: normal and qos of the first row, and so on.
pub fn figure(setup: &Setup, rows: &[Row], cells: &[Cell]) -> Figure {
    let mut drawn: Vec<(u32, bool, bool, Panel)> = Vec::new();
    for (row, cells) in rows.iter().zip(cells.chunks(Arm::BOTH.len())) {
        let key =
            (row.percent, matches!(row.pattern, Pattern::Bursts(_)) && row.percent <= 70, row.payload != setup.payload);
        let at = drawn.iter().position(|(percent, bursts, small, _)| (*percent, *bursts, *small) == key);
        let at = at.unwrap_or_else(|| {
            drawn.push((key.0, key.1, key.2, Panel { title: title(row, key.1, key.2), groups: Vec::new() }));
            drawn.len() - 1
        });
        drawn[at].3.groups.push(group(row, cells));
    }
    drawn.sort_by_key(|(percent, bursts, small, _)| (*small, *percent, *bursts));
    Figure {
        title: format!("{}: {} B, measured / load", setup.title, setup.payload),
        axis: "round trip, µs".into(),
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
    let bars = Arm::BOTH.iter().zip(cells).filter_map(|(arm, cell)| {
        let times = cell.rtt_us?;
        Some(Bar { series: arm.name().into(), value: times.mean, deviation: times.stdev, mark: Some(times.p99) })
    });
    Group { label: format!("{measured}{beside}"), bars: bars.collect() }
}
