//! What was measured beside the planner's and the paper's figures.

use super::example::{Example, OVERHEAD, PERIOD_MS, RATE, Sharing};
use super::tables;
use crate::error::Result;
use crate::experiments::Tally;
use crate::results::{Check, Factors, Findings};
use crate::statistics::median;
use crate::topology::Count;
use qos::system::{Objective, System};

/// Most of an unscaled stream that a link's load may differ from the plan's, in percent: of 76 samples, an odd one is 1.3 %.
const LINK: f64 = 2.0;
/// Most that all links' traffic may differ from the paper's cost, in percent.
const TOTAL: f64 = 2.0;
/// What the paper's delay leaves out may be so much of a period: transmission, relays, threads that wake up.
const BESIDES: f64 = 0.5;
/// Places whose traffic differs by less cost the same.
const EQUAL: f64 = 1.02;
/// The period T in µs.
pub(super) const T: f64 = PERIOD_MS as f64 * 1e3;

/// The planner's figures for one place.
#[derive(Clone, Debug, Default)]
pub(super) struct Predicted {
    /// Each link in both directions, bit/s on the wire.
    pub links: Vec<[f64; 2]>,
    pub messages_per_s: f64,
    /// Of payload.
    pub bits_per_s: f64,
    /// Of each subscriber.
    pub delays_us: Vec<f64>,
}

/// What the links were given during a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    /// The published samples' own time: their number times T.
    pub published_s: f64,
    /// The time of counting.
    pub window_s: f64,
    pub links: Vec<[Count; 2]>,
}

/// The stream's load on one direction of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub messages_per_s: f64,
    /// On the wire.
    pub bits_per_s: f64,
    /// Without headers.
    pub payload: f64,
}

/// One place of the proxy.
pub(super) struct Place {
    pub sharing: Sharing,
    pub node: usize,
    pub name: String,
    pub predicted: Predicted,
    /// Samples published so far.
    pub published: u64,
    /// Repetition by repetition, with nodes that send on once a period.
    pub traffic: Vec<Traffic>,
    /// Delays of each subscriber's samples then.
    pub periodic: Vec<Tally>,
    /// The same with nodes that send on at once.
    pub at_once: Vec<Tally>,
}

impl Traffic {
    /// Datagrams, for each second of the stream.
    fn loads(&self) -> Vec<[Load; 2]> {
        let load = |count: &Count| {
            let bits_per_s = count.bytes as f64 * 8.0 / self.published_s;
            let messages_per_s = count.datagrams as f64 / self.published_s;
            Load { messages_per_s, bits_per_s, payload: bits_per_s - messages_per_s * OVERHEAD as f64 * 8.0 }
        };
        self.links.iter().map(|ways| [load(&ways[0]), load(&ways[1])]).collect()
    }

    /// The most that the nodes exchanged besides on one direction of a link, in bit/s.
    fn besides(&self) -> f64 {
        let other = self.links.iter().flatten().map(|count| count.sent.saturating_sub(count.bytes));
        other.max().unwrap_or(0) as f64 * 8.0 / self.window_s
    }
}

impl Place {
    pub(super) fn new(sharing: Sharing, node: usize, name: &str, predicted: Predicted) -> Self {
        let (traffic, periodic, at_once) = (Vec::new(), Vec::new(), Vec::new());
        Self { sharing, node, name: name.to_owned(), predicted, published: 0, traffic, periodic, at_once }
    }

    /// Its stream's topic.
    pub(super) fn topic(&self) -> String {
        format!("/{}/{}", self.sharing.key(), self.name)
    }

    /// As tables and checks say it.
    pub(super) fn label(&self) -> String {
        let shared = if self.sharing == Sharing::Merged { ", merged" } else { "" };
        format!("{}{shared}", self.name)
    }
}

/// A place as it was found: medians over the repetitions.
pub(super) struct Found<'a> {
    pub place: &'a Place,
    /// Each link in both directions, bit/s on the wire.
    pub links: Vec<[f64; 2]>,
    /// All links by the objective: messages/s, or payload bit/s.
    pub total: f64,
    /// The same of each repetition.
    pub totals: Vec<f64>,
    /// By the plan.
    pub planned: f64,
}

impl<'a> Found<'a> {
    fn new(place: &'a Place, objective: Objective) -> Self {
        let loads: Vec<Vec<[Load; 2]>> = place.traffic.iter().map(Traffic::loads).collect();
        let by = |load: &Load| if objective == Objective::Messages { load.messages_per_s } else { load.payload };
        let totals: Vec<f64> = loads.iter().map(|links| links.iter().flatten().map(by).sum()).collect();
        let of = |link: usize, way: usize| {
            median(&loads.iter().map(|links| links[link][way].bits_per_s).collect::<Vec<_>>())
        };
        let links = (0..place.predicted.links.len()).map(|link| [of(link, 0), of(link, 1)]).collect();
        let Predicted { messages_per_s, bits_per_s, .. } = place.predicted;
        let planned = if objective == Objective::Messages { messages_per_s } else { bits_per_s };
        Self { place, links, total: median(&totals), totals, planned }
    }

    /// Largest distance of a link's load from the plan's, in bit/s.
    fn furthest(&self) -> f64 {
        let pairs = self.links.iter().flatten().zip(self.place.predicted.links.iter().flatten());
        pairs.map(|(found, planned)| (found - planned).abs()).fold(f64::NAN, f64::max)
    }

    /// The median of the subscriber whose samples come first, in µs.
    pub(super) fn earliest_us(&self) -> f64 {
        self.place.periodic.iter().map(at_p50).fold(f64::NAN, f64::min)
    }

    /// The latest of the subscribers, in µs: 99 % of its samples came within that.
    pub(super) fn latest_us(&self, tallies: fn(&Place) -> &[Tally]) -> f64 {
        latest(tallies(self.place), |d| d.p99)
    }
}

fn at_p50(tally: &Tally) -> f64 {
    median(&tally.each(|d| d.p50))
}

fn latest(tallies: &[Tally], figure: fn(&crate::statistics::Distribution) -> f64) -> f64 {
    let each = tallies.iter().map(|tally| median(&tally.each(figure)));
    each.fold(f64::NAN, |latest, each| if each.is_nan() { f64::INFINITY } else { latest.max(each) })
}

pub(super) const PERIODIC: fn(&Place) -> &[Tally] = |place| &place.periodic;
pub(super) const AT_ONCE: fn(&Place) -> &[Tally] = |place| &place.at_once;

/// Units of the paper's costs: L and L′ in bit/s, or f and f′ in messages/s.
pub(super) fn units(system: &System) -> [f64; 2] {
    let (topic, subscriber) = (&system.topics[0], &system.subscribers[0]);
    let scaled = subscriber.scaled_size.unwrap_or(topic.size);
    let [whole, part] = match system.placement.objective {
        Objective::Messages => [1.0, 1.0],
        _ => [topic.size as f64 * 8.0, scaled as f64 * 8.0],
    };
    let f = 1e6 / T;
    [whole * f, part * f / f64::from(subscriber.scale)]
}

/// Checks, tables and figure of all places.
pub(super) fn judge(example: &Example, places: &[Place]) -> Result<Findings> {
    let system = example.system()?;
    let mut findings = Findings { notes: notes(&system), ..Findings::default() };
    let found: Vec<Found> = places.iter().map(|place| Found::new(place, system.placement.objective)).collect();
    for found in &found {
        judge_place(&system, found, &mut findings);
    }
    for sharing in example.sharings {
        let of: Vec<&Found> = found.iter().filter(|found| found.place.sharing == *sharing).collect();
        if *sharing == Sharing::Separate {
            judge_printed(example, &system, &of, &mut findings);
        }
        judge_choices(example, *sharing, &of, &mut findings)?;
    }
    let besides = places.iter().flat_map(|place| &place.traffic).map(Traffic::besides).fold(0.0, f64::max);
    findings.notes.push(format!(
        "Besides the samples, interfaces counted {:.0} kbit/s at most in one direction of a link: heartbeats of all channels that are open.",
        besides / 1e3
    ));
    tables::tell(example, &system, &found, &mut findings);
    Ok(findings)
}

/// The place's own figures: load of each link, delay, losses.
fn judge_place(system: &System, found: &Found, findings: &mut Findings) {
    let (place, label) = (found.place, found.place.label());
    let whole = (system.topics[0].size + OVERHEAD) as f64 * 8e6 / T;
    let name = format!("proxy at {label}: the link furthest from the plan's load, in % of an unscaled stream");
    findings.checks.push(Check::at_most(name, found.furthest() / whole * 100.0, LINK));
    let each = || place.periodic.iter().zip(&place.predicted.delays_us);
    let besides: Vec<f64> = each().map(|(tally, us)| (at_p50(tally) - us) / T).collect();
    let [least, most] = if besides.iter().any(|besides| besides.is_nan()) {
        [f64::NAN; 2]
    } else {
        [f64::min, f64::max].map(|of: fn(f64, f64) -> f64| besides.iter().copied().fold(f64::NAN, of))
    };
    let name = format!("proxy at {label}: delay at the median beyond d_pub·T + d_sub·T', in T");
    findings.checks.push(Check::at_least(format!("{name}, least"), least, 0.0));
    findings.checks.push(Check::at_most(format!("{name}, most"), most, BESIDES));
    let lost: u64 = place.periodic.iter().chain(&place.at_once).map(Tally::lost).sum();
    findings.checks.push(Check::at_most(format!("proxy at {label}: lost"), lost as f64, 0.0));
    for (arm, tallies) in [("once a period", &place.periodic), ("at once", &place.at_once)] {
        for (subscriber, tally) in system.subscribers.iter().zip(tallies) {
            let factors = Factors::new().with("arm", arm).with("proxy", label.clone());
            findings.cells.push(tally.cell(factors.with("measured", subscriber.name.clone()), false));
        }
    }
}

/// Total costs as the paper prints them.
fn judge_printed(example: &Example, system: &System, found: &[&Found], findings: &mut Findings) {
    let printed = printed(example, system);
    for (found, printed) in found.iter().map(|found| (found, printed[found.place.node])) {
        let name =
            format!("proxy at {}: all links' traffic / the paper's cost, distance from 1 in %", found.place.label());
        findings.checks.push(Check::at_most(name, (found.total / printed - 1.0).abs() * 100.0, TOTAL));
    }
}

/// The paper's cost of each place.
pub(super) fn printed(example: &Example, system: &System) -> Vec<f64> {
    let [whole, part] = units(system);
    example.printed.iter().map(|[before, behind]| f64::from(*before) * whole + f64::from(*behind) * part).collect()
}

/// The best place by measurement is the plan's, for every deadline that lies between two places' delays, and with nodes that send
/// on at once.
fn judge_choices(example: &Example, sharing: Sharing, found: &[&Found], findings: &mut Findings) -> Result {
    for deadline in deadlines(found) {
        let planned = example.choice(sharing, found, (deadline * T) as u64)?;
        let name = format!("{}, deadline {deadline} T", sharing.key());
        findings.checks.push(judge_choice(&name, found, PERIODIC, deadline * T, planned.as_deref()));
    }
    let planned = example.choice_at_once(sharing, found, T as u64)?;
    let name = format!("{}, nodes that send on at once, deadline 1 T", sharing.key());
    findings.checks.push(judge_choice(&name, found, AT_ONCE, T, planned.as_deref()));
    Ok(())
}

/// Deadlines in T: half a period before, between and behind the delays of all places.
pub(super) fn deadlines(found: &[&Found]) -> Vec<f64> {
    let longest = |found: &&Found| found.place.predicted.delays_us.iter().fold(0.0, |a: f64, b| a.max(*b)) / T;
    let (least, most) =
        found.iter().map(longest).fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), d| (a.min(d), b.max(d)));
    let mut all = vec![least - 0.5];
    while all.last().is_some_and(|last| *last < most) {
        all.extend(all.last().map(|last| last + 1.0));
    }
    all
}

/// Places in time, by measurement.
pub(super) fn in_time<'a, 'b>(
    found: &'b [&'b Found<'a>],
    tallies: fn(&Place) -> &[Tally],
    deadline_us: f64,
) -> impl Iterator<Item = &'b Found<'a>> {
    found.iter().copied().filter(move |found| found.latest_us(tallies) <= deadline_us)
}

/// The place of least traffic among those in time, by measurement.
pub(super) fn best<'a, 'b>(
    found: &'b [&'b Found<'a>],
    tallies: fn(&Place) -> &[Tally],
    deadline_us: f64,
) -> Option<&'b Found<'a>> {
    in_time(found, tallies, deadline_us).min_by(|a, b| a.total.total_cmp(&b.total))
}

fn judge_choice(
    name: &str,
    found: &[&Found],
    tallies: fn(&Place) -> &[Tally],
    deadline_us: f64,
    planned: Option<&str>,
) -> Check {
    let Some(planned) = planned else {
        let count = in_time(found, tallies, deadline_us).count();
        return Check::at_most(format!("{name}: the plan has no place; places in time"), count as f64, 0.0);
    };
    let least = best(found, tallies, deadline_us).map_or(f64::NAN, |best| best.total);
    let at = in_time(found, tallies, deadline_us).find(|found| found.place.name == planned);
    let name = format!("{name}: traffic with the proxy at {planned}, as planned / the least of all places in time");
    Check::at_most(name, at.map_or(f64::NAN, |at| at.total) / least, EQUAL)
}

fn notes(system: &System) -> Vec<String> {
    let topic = &system.topics[0];
    vec![
        format!(
            "The network is that of the paper's contract, with a line of {} Mbit/s along each link (the paper's have kbit/s) and T = {PERIOD_MS} ms \
             instead of {}: of both, only ratios matter. A sample has {} B, and {OVERHEAD} B of headers on the wire; hosts between the ends \
             forward packets.",
            RATE / 1_000_000, "0.5 or 1 s", topic.size
        ),
        "Traffic is what the lines are given of datagrams while a place is published, for each second of published samples. The least of it \
         among the places that are in time (99 % of the samples within the deadline) is the best place by measurement."
            .into(),
        "A node sends on once a period: a datagram waits at the near end of each line for the next one of its flow. This is the paper's \
         assumption (§2.2) carried out, not a property of networks, which send on at once; nobody tells a line which period its flow has. \
         The second arm has lines that send on at once: then the deadline binds no place, and the planner's bounds agree."
            .into(),
        "All processes are on one processor, the lines on the other one. Samples at the end of a run that wait for no next one are left \
         out of the delays; none may be lost."
            .into(),
    ]
}

#[cfg(test)]
mod tests;
