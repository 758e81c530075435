//! Tables and figure of the places.

use super::example::{Example, Sharing};
use super::judge::{AT_ONCE, Found, PERIODIC, T, best, deadlines, in_time, printed};
use crate::results::{Bar, Findings, Group, Panel, Table};
use crate::statistics::{Distribution, median};
use qos::system::{Objective, System};

/// Adds all of them.
pub(super) fn tell(example: &Example, system: &System, found: &[Found], findings: &mut Findings) {
    findings.tables.push(places(example, system, found));
    findings.tables.push(links(system, found));
    for sharing in example.sharings {
        let of: Vec<&Found> = found.iter().filter(|found| found.place.sharing == *sharing).collect();
        findings.tables.push(choices(example, *sharing, &of));
    }
    findings.figure.title = format!("{}: the place of the proxy", system.name);
    findings.figure.axis = "Traffic and delay by the place of the proxy".into();
    findings.figure.panels = vec![traffic(example, system, found), delays(found)];
}

/// Unit of the objective, and what it is divided by.
fn unit(system: &System) -> (&'static str, f64) {
    match system.placement.objective {
        Objective::Messages => ("messages/s", 1.0),
        _ => ("kbit/s", 1e3),
    }
}

fn printed_of(example: &Example, system: &System, found: &Found) -> f64 {
    let all = printed(example, system);
    let of = if found.place.sharing == Sharing::Separate { all.get(found.place.node) } else { None };
    of.copied().unwrap_or(f64::NAN)
}

fn places(example: &Example, system: &System, found: &[Found]) -> Table {
    let (name, each) = unit(system);
    let head = |what: &str| format!("{what}, {name}");
    let traffic = [head("traffic, found"), head("traffic, planned"), head("cost in the paper")];
    let heads = ["delay by the model, T", "p50 found, T", "p99 found, T", "p50 with nodes that send on at once, ms"];
    let heads = ["proxy at"].into_iter().chain(traffic.iter().map(String::as_str)).chain(heads).collect::<Vec<_>>();
    let mut table = Table::new("All links, and the later subscriber", &heads);
    let at = |found: &Found,
              figure: fn(&Distribution) -> f64,
              tallies: fn(&super::Place) -> &[crate::experiments::Tally]| {
        tallies(found.place).iter().map(|tally| median(&tally.each(figure))).fold(f64::NAN, f64::max)
    };
    for found in found {
        let model = found.place.predicted.delays_us.iter().copied().fold(f64::NAN, f64::max);
        let traffic = [found.total, found.planned, printed_of(example, system, found)].map(|value| value / each);
        let delays = [model / T, at(found, |d| d.p50, PERIODIC) / T, at(found, |d| d.p99, PERIODIC) / T];
        let cells = traffic.iter().map(|value| (value, 1)).chain(delays.iter().map(|value| (value, 2)));
        let text = |(value, digits): (&f64, usize)| {
            if value.is_finite() { format!("{value:.digits$}") } else { String::new() }
        };
        let at_once = format!("{:.1}", at(found, |d| d.p50, AT_ONCE) / 1e3);
        table.rows.push([found.place.label()].into_iter().chain(cells.map(text)).chain([at_once]).collect());
    }
    table
}

fn links(system: &System, found: &[Found]) -> Table {
    let ends = |link: &qos::system::Link| link.between.map(|node| system.nodes[node].name.as_str());
    let heads: Vec<String> = system
        .links
        .iter()
        .map(|link| format!("{}: {} → {}, and back", link.name, ends(link)[0], ends(link)[1]))
        .collect();
    let heads: Vec<&str> = ["proxy at"].into_iter().chain(heads.iter().map(String::as_str)).collect();
    let mut table = Table::new("Each link on the wire, kbit/s found (planned)", &heads);
    for found in found {
        let way = |found: f64, planned: f64| format!("{:.1} ({:.1})", found / 1e3, planned / 1e3);
        let cell = |(found, planned): (&[f64; 2], &[f64; 2])| {
            format!("{}, {}", way(found[0], planned[0]), way(found[1], planned[1]))
        };
        let cells = found.links.iter().zip(&found.place.predicted.links).map(cell);
        table.rows.push([found.place.label()].into_iter().chain(cells).collect());
    }
    table
}

/// Beside them the choice of Appendix A as it is printed, where a place is left out if the deadline is *longer* than
/// any of its delays (E-P1).
fn choices(example: &Example, sharing: Sharing, found: &[&Found]) -> Table {
    let heads = ["deadline, T", "in time", "best found", "planned", "by the algorithm as printed (E-P1)"];
    let mut table = Table::new(format!("Best place by deadline, {}", sharing.key()), &heads);
    let name = |found: Option<&Found>| found.map_or("none".to_owned(), |found| found.place.name.clone());
    let planned = |plan: crate::error::Result<Option<String>>| plan.ok().flatten().unwrap_or_else(|| "none".into());
    let row = |deadline: f64, tallies, planned: String, as_printed: String| {
        let count = in_time(found, tallies, deadline * T).count();
        vec![format!("{deadline}"), count.to_string(), name(best(found, tallies, deadline * T)), planned, as_printed]
    };
    for deadline in deadlines(found) {
        let late = found.iter().copied().filter(|found| found.earliest_us() >= deadline * T);
        let as_printed = name(late.min_by(|a, b| a.total.total_cmp(&b.total)));
        table.rows.push(row(
            deadline,
            PERIODIC,
            planned(example.choice(sharing, found, (deadline * T) as u64)),
            as_printed,
        ));
    }
    let mut at_once = row(1.0, AT_ONCE, planned(example.choice_at_once(sharing, found, T as u64)), String::new());
    at_once[0] = "1, nodes that send on at once".into();
    table.rows.push(at_once);
    table
}

fn traffic(example: &Example, system: &System, found: &[Found]) -> Panel {
    let (name, each) = unit(system);
    let group = |found: &Found| {
        let bar = |series: &str, value: f64| Bar { series: series.into(), value: value / each, ..Bar::default() };
        let deviation = Distribution::of(&found.totals).map_or(0.0, |totals| totals.stdev) / each;
        let bars = [
            Bar { deviation, ..bar("found", found.total) },
            bar("by the plan", found.planned),
            bar("cost in the paper", printed_of(example, system, found)),
        ];
        Group { label: found.place.label(), bars: bars.into_iter().filter(|bar| bar.value.is_finite()).collect() }
    };
    Panel { title: format!("all links, {name}"), groups: found.iter().map(group).collect() }
}

fn delays(found: &[Found]) -> Panel {
    let ms = |us: f64| us / 1e3;
    let group = |found: &Found| {
        let later = |tallies: &[crate::experiments::Tally]| {
            let bars = tallies.iter().filter_map(|tally| tally.bar(""));
            bars.max_by(|a, b| a.value.total_cmp(&b.value))
        };
        let measured = |series: &str, tallies| {
            let bar = later(tallies)?;
            Some(Bar { series: series.into(), value: ms(bar.value), deviation: ms(bar.deviation), mark: None })
        };
        let model = found.place.predicted.delays_us.iter().copied().fold(0.0, f64::max);
        let model = Bar { series: "by the plan".into(), value: ms(model), ..Bar::default() };
        let at_once = measured("found, nodes that send on at once", &found.place.at_once);
        let bars = measured("found", &found.place.periodic).into_iter().chain([model]).chain(at_once);
        Group { label: found.place.label(), bars: bars.collect() }
    };
    Panel { title: "delay of the later subscriber, ms".into(), groups: found.iter().map(group).collect() }
}
