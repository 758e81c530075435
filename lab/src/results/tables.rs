//! What results look like as tables, for Markdown and HTML alike.

use super::{Cell, Check, Document};
use crate::statistics::Distribution;
use serde_json::Value;

/// Heads of a table of checks.
pub const CHECK_HEADS: [&str; 4] = ["check", "found", "wanted", ""];
/// Around what a reader must not overlook.
pub const STRONG: &str = "**";

/// Whether it passed, in words.
pub fn verdict(document: &Document) -> String {
    let passed = document.checks.iter().filter(|check| check.pass).count();
    let word = if document.pass { "passed" } else { "failed" };
    format!("{word} ({passed} of {} checks)", document.checks.len())
}

/// The machine it ran on, line by line.
pub fn machine(document: &Document) -> Vec<String> {
    let here = &document.environment;
    let versions: Vec<String> = here.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let load: Vec<String> = here.load.iter().map(f64::to_string).collect();
    let mut lines = vec![
        here.kernel.clone(),
        format!("{} processors; load before it began {}", here.cpus, load.join(" ")),
        format!("{}; {}; seed {}", here.clock, versions.join(", "), here.seed),
    ];
    lines.extend(here.qdiscs.iter().map(|queue| format!("`{queue}`")));
    lines
}

/// Heads and rows: all factors that any cell has, then figures.
pub fn cells(document: &Document) -> (Vec<String>, Vec<Vec<String>>) {
    let mut factors: Vec<&String> = Vec::new();
    for (name, _) in document.cells.iter().flat_map(|cell| cell.factors.iter()) {
        if !factors.contains(&name) {
            factors.push(name);
        }
    }
    let heads = factors.iter().map(|name| name.replace('_', " "));
    let figures = ["n", "mean µs", "stdev", "p50", "p99", "p99.9", "max", "lost", "stalled"].map(String::from);
    let rows = document.cells.iter().map(|cell| {
        let set = factors.iter().map(|name| cell.factors.get(name).map_or(String::new(), plain));
        set.chain(figures_of(cell)).collect()
    });
    (heads.chain(figures).collect(), rows.collect())
}

fn figures_of(cell: &Cell) -> Vec<String> {
    let mut row = vec![cell.n.to_string()];
    match cell.rtt_us.or(cell.latency_us) {
        Some(Distribution { mean, stdev, p50, p99, p999, max, .. }) => {
            row.extend([mean, stdev, p50, p99, p999, max].map(|us| format!("{us:.1}")));
        }
        None => row.extend(std::iter::repeat_n(String::new(), 6)),
    }
    row.extend([cell.lost.to_string(), cell.stalled.map_or(String::new(), |stalled| stalled.n.to_string())]);
    row
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Rows of [`CHECK_HEADS`].
pub fn checks(document: &Document) -> Vec<Vec<String>> {
    let row = |check: &Check| {
        let found = check.value.map_or("nothing".to_owned(), |value| value.to_string());
        let word = if check.pass { "pass" } else { "**FAIL**" };
        vec![check.name.clone(), found, format!("{} {}", check.relation, check.limit), word.to_owned()]
    };
    document.checks.iter().map(row).collect()
}
