//! `pushpull-proxy` (P-40, Table 4): the cost of a proxy in a round trip, by place and stage.

use super::components::{self, RoundTrips};
use super::{
    AT_RELAY, Amount, HALF, LONGER, Layout, NEARLY_ALL, NONE, PLACES, PUBLISHER, RAW, RAW_RELAY, SUBSCRIBER, Testbed,
    patience, quotients,
};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, shuffled};
use crate::lab::{Lab, Options, Size};
use crate::part::AWAKE;
use crate::results::{Check, Factors, Figure, Findings, Group, Panel};
use crate::statistics::{median, uncertainty};
use std::time::Duration;
use thalweg::carrier::Dice;

/// The experiment.
pub(crate) struct PushPullProxy;

const PAYLOAD: usize = 64;
const ROUTES: [&str; 6] = [NONE, PUBLISHER, SUBSCRIBER, AT_RELAY, RAW, RAW_RELAY];
/// Largest factor between a relay and forwarding by bare sockets.
const HOP: f64 = 1.2;

impl Experiment for PushPullProxy {
    fn name(&self) -> &'static str {
        "pushpull-proxy"
    }

    fn about(&self) -> &'static str {
        "what a proxy at the publisher, the subscriber or a relay adds to a round trip of 64 bytes, and where the time goes"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        let (mut panels, mut dice) = (Vec::new(), Dice::new(lab.options.seed));
        let layouts = [Layout::Here, Layout::OneHop];
        for layout in if lab.options.size == Size::Ci { &layouts[1..] } else { &layouts[..] } {
            let layout = *layout;
            let tallies = measure(lab, layout, &mut dice)?;
            let label = |route: &&str, tally: &Tally| tally.bar(route);
            let bars = ROUTES.iter().zip(&tallies).filter_map(|(route, tally)| label(route, tally)).collect();
            panels.push(Panel { title: layout.name().into(), groups: vec![Group { label: String::new(), bars }] });
            note(layout, &tallies, &mut findings);
            let each = (0..runs(&lab.options)).map(|run| {
                lab.tell(&format!("{}, Table 4, run {} of {}", layout.name(), run + 1, runs(&lab.options)));
                components(lab, &mut Testbed::over(lab, "udp", (layout, None), true, &mut dice)?)
            });
            let found = each.collect::<Result<Vec<_>>>()?;
            let title =
                format!("Table 4 as measured, {}, udp: mean µs of the way there, medians of runs", layout.name());
            findings.tables.push(components::table(&title, &components::medians(&found)));
            findings.checks.extend(components::judge(layout.name(), &found));
        }
        findings.figure = Figure {
            title: "Round trips of 64 bytes by the place of the proxy".into(),
            axis: "Round trip in µs".into(),
            logarithmic: false,
            panels,
        };
        Ok(findings)
    }
}

fn amount(options: &Options) -> (usize, Amount) {
    let (repetitions, count) = match options.size {
        Size::Tiny => (1, 20),
        Size::Ci => (1, 60),
        Size::Quick => (25, 80), // many short ones: a machine that others use changes from second to second
        Size::Whole => (51, 400),
    };
    (repetitions, Amount { count, warmup: 20, period: Duration::from_millis(1), patience: patience(options.size) })
}

/// Runs of Table 4, which share its samples.
fn runs(options: &Options) -> u32 {
    match options.size {
        Size::Tiny | Size::Ci => 1,
        Size::Quick => 5,
        Size::Whole => 9,
    }
}

/// All routes in turns. Each repetition has processes of its own: a difference between two routes of the same
/// processes persists, so that repetitions with them would count as one.
fn measure(lab: &Lab, layout: Layout, dice: &mut Dice) -> Result<Vec<Tally>> {
    let (repetitions, amount) = amount(&lab.options);
    let mut tallies: Vec<Tally> = ROUTES.iter().map(|_| Tally::default()).collect();
    for repetition in 0..repetitions {
        lab.tell(&format!("{}, repetition {} of {repetitions}", layout.name(), repetition + 1));
        let mut testbed = Testbed::build(lab, layout, None, true, dice)?;
        for index in shuffled(ROUTES.len(), dice) {
            testbed.run(lab, ROUTES[index], PAYLOAD, amount, &mut tallies[index])?;
        }
    }
    Ok(tallies)
}

/// The components of each place, measured apart: measuring has a cost of its own.
fn components(lab: &Lab, testbed: &mut Testbed) -> Result<Vec<RoundTrips>> {
    let (_, amount) = amount(&lab.options);
    // Datagrams may be lost: one that is a second late is not waited for.
    let first = Amount { count: amount.warmup, warmup: 0, patience: Duration::from_secs(1), ..amount };
    let amount = Amount { count: amount.count * 4 / runs(&lab.options), ..first };
    let mut found: Vec<RoundTrips> = Vec::new();
    for place in PLACES {
        // Stages and round trips are of the same samples, once the kernel stamps packets.
        testbed.stages(lab, place)?;
        testbed.run(lab, place, PAYLOAD, first, &mut Tally::default())?;
        testbed.stages(lab, place)?;
        let (before, mut tally) = (testbed.relay_ns()?, Tally::default());
        testbed.run(lab, place, PAYLOAD, amount, &mut tally)?;
        let used = (testbed.relay_ns()? - before) as f64 / 1e3 / f64::from(amount.count);
        let mut trips = RoundTrips::of(place, &testbed.stages(lab, place)?, median(&tally.each(|d| d.mean)));
        if let (AT_RELAY, Some(direct)) = (place, found.first()) {
            trips.there = trips.there.over_relay(&direct.there, used);
        }
        found.push(trips);
    }
    Ok(found)
}

fn note(layout: Layout, tallies: &[Tally], findings: &mut Findings) {
    let of = |route: &str| ROUTES.iter().position(|r| *r == route).map_or(&tallies[0], |index| &tallies[index]);
    for (route, tally) in ROUTES.iter().zip(tallies) {
        let factors = Factors::new()
            .with("arm", *route)
            .with("proxy", *route)
            .with("layout", layout.name())
            .with("measured", if route.starts_with(RAW) { "raw tcp" } else { "tcp" })
            .with("payload_bytes", PAYLOAD);
        findings.cells.push(tally.cell(factors, true));
        let name = format!("{}, {route}: lost", layout.name());
        findings.checks.push(Check::at_most(name, tally.missing(), 0.0));
    }
    for place in [PUBLISHER, SUBSCRIBER] {
        let ratios = quotients(of(place), of(NONE));
        let name = format!("{}: p50 with a proxy at the {place} / without one", layout.name());
        findings.checks.push(
            Check::at_most(name, median(&ratios), LONGER)
                .certain_within(uncertainty(&ratios), LONGER - 1.0)
                .judged_from(Size::Quick),
        );
    }
    let more = |over: &Tally, under: &Tally| -> Vec<f64> {
        over.pairs(under, |d| d.p50).into_iter().map(|(over, under)| over - under).collect()
    };
    let (relay, raw) = (more(of(AT_RELAY), of(NONE)), more(of(RAW_RELAY), of(RAW)));
    let hops: Vec<f64> = relay.iter().zip(&raw).map(|(relay, raw)| relay / raw).collect();
    let name = format!(
        "{}: what a relay adds, {:.1} µs, / what one more hop of bare sockets adds, {:.1} µs (medians of p50)",
        layout.name(),
        median(&relay),
        median(&raw)
    );
    let check = Check::at_most(name, median(&hops), HOP).certain_within(uncertainty(&hops), HOP - 1.0);
    findings.checks.push(check.judged_from(Size::Quick));
}

fn notes() -> Vec<String> {
    vec![
        "A round trip is a sample by one channel and the same back by another, tcp, from publish to callback; the proxy is of the one \
         that leads there. Sent at random distances of 0.5 to 1.5 ms."
            .into(),
        "raw: bare TCP sockets instead of the channels; raw-relay: passed on by a process at the relay's place".into(),
        NEARLY_ALL.into(),
        AWAKE.into(),
        "All on one processor, nice -20; each repetition has new processes, and opens and measures the routes in orders drawn by lot. Ratios and differences are of runs that follow each other, medians. \
         A check is inconclusive if the median's own uncertainty (its standard error, from the repetitions) is more than the limit allows."
            .into(),
        HALF.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::{Stalls, Timed};

    /// The checks that fail where the round trips of each route, in their order, took this long.
    fn failed(us: [u64; ROUTES.len()]) -> Vec<String> {
        let tally = |us: u64| {
            let mut tally = Tally::default();
            (0..3).for_each(|_| tally.add(10, &[Timed { from_ns: 0, ns: us * 1000 }; 10], &Stalls::default()));
            tally
        };
        let mut findings = Findings::default();
        note(Layout::Here, &us.map(tally), &mut findings);
        findings.checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect()
    }

    #[test]
    fn a_proxy_or_a_relay_that_costs_more_fails() {
        assert_eq!(failed([100, 103, 103, 112, 50, 60]), Vec::<String>::new());
        let dear = failed([100, 104, 103, 112, 50, 60]);
        assert!(dear.len() == 1 && dear[0].contains("with a proxy at the publisher"), "{dear:?}");
        let relay = failed([100, 103, 103, 113, 50, 60]);
        assert!(relay.len() == 1 && relay[0].contains("what a relay adds"), "{relay:?}");
    }

    #[test]
    fn nothing_measured_passes_nothing() {
        let mut findings = Findings::default();
        note(Layout::Here, &ROUTES.map(|_| Tally::default()), &mut findings);
        assert!(findings.checks.len() == 9 && findings.checks.iter().all(|check| !check.pass), "{:?}", findings.checks);
    }
}
