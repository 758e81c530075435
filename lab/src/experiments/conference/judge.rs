//! What a conference was like.

use super::{CUT, HOSTS, Heard, KINDS, Kind, NARROW, RATE};
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::statistics::{Distribution, median};

/// What matters more than video still comes then, but for what is on its way when a slice ends.
const COMES: f64 = 95.0;
/// Its p99 is at most this, in µs: a packet on the wire and one held ready in front of it take 6 ms each, to and fro.
const SOON_US: f64 = 50_000.0;

/// Cells, checks, figure and table.
pub(super) fn judge(phases: &[Heard; 4], resumed: &[f64; 5]) -> Findings {
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    for heard in phases {
        for (kind, tally) in KINDS.iter().zip(&heard.tallies) {
            let factors =
                Factors::new().with("arm", heard.name).with("stream", kind.name).with("class", kind.class.to_string());
            let factors = factors.with("measured", kind.carrier).with("payload_bytes", kind.size);
            findings.cells.push(tally.cell(factors, false));
        }
    }
    for (kind, share) in KINDS.iter().zip(resumed) {
        let name = format!("{}: share of the streams that went on after the outage", kind.name);
        findings.checks.push(Check::at_least(name, *share, 1.0));
    }
    // The first slice begins with what the wide link had let in.
    let narrow = |kind: usize| median(&phases[1].rates.iter().skip(1).map(|rates| rates[kind]).collect::<Vec<_>>());
    for (kind, name) in [(0, "audio"), (1, "game")] {
        let p99 = median(&phases[1].tallies[kind].each(|d| d.p99));
        findings.checks.extend([
            Check::at_least(format!("{name} over the narrow link: share of what is wanted, %"), narrow(kind), COMES),
            Check::at_most(format!("{name} over the narrow link: p99, µs"), p99, SOON_US),
        ]);
    }
    findings.checks.push(Check::at_most(
        "video over the narrow link gives way: share of what is wanted, %",
        narrow(2),
        COMES,
    ));
    findings.tables.push(table(phases));
    let bar = |kind: &Kind, rate: f64| Bar { series: kind.name.into(), value: rate, ..Bar::default() };
    let group = |heard: &Heard, n: usize, rates: &[f64; 5]| Group {
        label: format!("{} {}", heard.name, n + 1),
        bars: KINDS.iter().zip(rates).map(|(kind, rate)| bar(kind, *rate)).collect(),
    };
    let groups =
        |heard: &Heard| heard.rates.iter().enumerate().map(|(n, rates)| group(heard, n, rates)).collect::<Vec<_>>();
    let panel = |heard| Panel { title: String::new(), groups: groups(heard) };
    findings.figure = Figure {
        title: format!("What host {CUT} receives, second by second: its link fails and comes back"),
        axis: "Share of the samples wanted, in %".into(),
        logarithmic: false,
        panels: phases.iter().map(panel).collect(),
    };
    findings
}

/// Latencies by stream and phase.
fn table(phases: &[Heard; 4]) -> Table {
    let mut table = Table::new("Latency p50 / p99 in ms", &["", "before", "narrow", "outage", "after"]);
    for (n, kind) in KINDS.iter().enumerate() {
        let of = |heard: &Heard| {
            let middle = |figure: fn(&Distribution) -> f64| {
                let all: Vec<f64> = heard.tallies[n].each(figure).into_iter().filter(|us| us.is_finite()).collect();
                median(&all) / 1000.0
            };
            let (p50, p99) = (middle(|d| d.p50), middle(|d| d.p99));
            if p50.is_finite() { format!("{p50:.1} / {p99:.1}") } else { String::new() }
        };
        table.rows.push(std::iter::once(kind.name.to_owned()).chain(phases.iter().map(of)).collect());
    }
    table
}

fn notes() -> Vec<String> {
    let kinds = KINDS.iter().map(|kind| {
        format!("{}: {} B at {} Hz, class {}, {}", kind.name, kind.size, kind.hz, kind.class, kind.carrier)
    });
    let mut notes: Vec<String> = kinds.collect();
    notes.extend([
        format!(
            "Each of {HOSTS} hosts sends all five and takes those of the two others; of video they take every 1st, 2nd and 5th \
             picture. Links have {} Mbit/s, classes by DSCP out of the switch.",
            RATE / 1_000_000
        ),
        format!("narrow: the switch's port to the third host has {} Mbit/s, less than it wants.", NARROW / 1_000_000),
        "outage: the switch's port to the third host is down. Cells are of the third host, and count what arrived: what was sent meanwhile is nobody's loss. Streams by tcp repeat it afterwards, at once.".into(),
    ]);
    notes
}
