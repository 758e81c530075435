//! `pushpull-proxy` (P-40, Table 4): the cost of a proxy in a round trip, by place and stage.

use super::{
    AT_RELAY, Amount, HALF, LONGER, Layout, NEARLY_ALL, NONE, PLACES, PUBLISHER, RAW, RAW_RELAY, SUBSCRIBER, Testbed,
    quotients,
};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, shuffled};
use crate::lab::{Lab, Options, Size};
use crate::part::{AWAKE, Measured};
use crate::results::{Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::statistics::{median, uncertainty};
use std::time::Duration;
use thalweg::carrier::Dice;
use thalweg::stages::End;

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
            let found = anatomies(lab, &mut Testbed::over(lab, "udp", (layout, None), true, &mut dice)?)?;
            let title = format!("Table 4 as measured, {}, udp: mean µs of the way there", layout.name());
            findings.tables.push(table(&title, &found));
            findings.checks.extend(judge_stages(layout.name(), &found));
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
    (repetitions, Amount { count, warmup: 20, period: Duration::from_millis(1), patience: Duration::from_secs(1) })
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

/// The stages of each place, measured apart: measuring has a cost of its own.
fn anatomies(lab: &Lab, testbed: &mut Testbed) -> Result<Vec<(&'static str, Anatomy)>> {
    let (_, amount) = amount(&lab.options);
    let amount = Amount { count: amount.count * 4, ..amount };
    let mut found: Vec<(&'static str, Anatomy)> = Vec::new();
    for place in PLACES {
        testbed.stages(lab, place)?;
        let before = testbed.relay_ns()?;
        testbed.run(lab, place, PAYLOAD, amount, &mut Tally::default())?;
        let used = (testbed.relay_ns()? - before) as f64 / 1e3 / f64::from(amount.count + amount.warmup);
        let anatomy = Anatomy::of(&testbed.stages(lab, place)?);
        let direct = found.first().map_or(anatomy, |(_, direct)| *direct);
        found.push((place, if place == AT_RELAY { anatomy.over_relay(&direct, used) } else { anatomy }));
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
        findings.checks.push(Check::at_most(name, tally.lost() as f64, 0.0));
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

/// The six components, in µs; NaN for a missing one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Anatomy {
    /// Publisher: stages `publish` and `queue`.
    pub pub_cpu: f64,
    /// From the publisher to the next one: `send`, and the wire.
    pub pub_com: f64,
    /// Subscriber: from the kernel to the reading thread, `receive`. Streams do not tell: 0.
    pub sub_ipc: f64,
    /// Subscriber: `decode` and `callback`.
    pub sub_cpu: f64,
    /// Relay: processor time of its process for each sample.
    pub proxy_cpu: f64,
    /// The rest of the time that the path over the relay takes longer than the direct one.
    pub proxy_com: f64,
    /// `total`: from `publish` to the end of the callback.
    pub total: f64,
}

impl Anatomy {
    /// Components by the measurements of publisher and subscriber. A relay's part is in `pub_com` at first.
    pub(super) fn of([publisher, subscriber]: &[Measured; 2]) -> Self {
        let sum = |measured: &Measured, end, stages: [&str; 2]| -> f64 {
            stages.into_iter().map(|stage| measured.mean_us(end, stage)).sum()
        };
        let pub_cpu = sum(publisher, End::Publisher, ["publish", "queue"]);
        let receive = subscriber.mean_us(End::Subscriber, "receive");
        let sub_ipc = if receive.is_finite() { receive } else { 0.0 };
        Self {
            pub_cpu,
            pub_com: subscriber.mean_us(End::Subscriber, "transit") - sub_ipc - pub_cpu,
            sub_ipc,
            sub_cpu: sum(subscriber, End::Subscriber, ["decode", "callback"]),
            proxy_cpu: f64::NAN,
            proxy_com: f64::NAN,
            total: subscriber.mean_us(End::Subscriber, "total"),
        }
    }

    /// Components of the path over a relay that used this processor time for each sample; `direct` is the path without one.
    pub(super) fn over_relay(self, direct: &Self, proxy_cpu: f64) -> Self {
        let proxy_com = self.pub_com - direct.pub_com - proxy_cpu;
        Self { pub_com: direct.pub_com, proxy_cpu, proxy_com, ..self }
    }

    fn values(&self) -> [f64; 7] {
        let Self { pub_cpu, pub_com, sub_ipc, sub_cpu, proxy_cpu, proxy_com, total } = *self;
        [pub_cpu, pub_com, sub_ipc, sub_cpu, proxy_cpu, proxy_com, total]
    }
}

/// Table 4 has all components of every place, each with a time; and the way over a relay is longer than the others (P-33).
fn judge_stages(layout: &str, found: &[(&str, Anatomy)]) -> [Check; 2] {
    let components = |(place, anatomy): &(&str, Anatomy)| {
        let Anatomy { pub_cpu, pub_com, sub_ipc, sub_cpu, proxy_cpu, .. } = *anatomy;
        let of_relay = if *place == AT_RELAY { proxy_cpu } else { f64::NAN };
        [pub_cpu, pub_com, sub_ipc, sub_cpu, of_relay].into_iter().filter(|us| *us > 0.0).count()
    };
    let count: usize = found.iter().map(components).sum();
    let totals = |relayed: bool| {
        let of = found.iter().filter(|(place, _)| (*place == AT_RELAY) == relayed);
        median(&of.map(|(_, anatomy)| anatomy.total).collect::<Vec<_>>())
    };
    [
        Check::at_least(format!("{layout}: components of Table 4 that take time"), count as f64, 17.0),
        Check::at_least(
            format!("{layout}: the way over the relay / the median of the others"),
            totals(true) / totals(false),
            LONGER,
        )
        .judged_from(Size::Quick),
    ]
}

/// The paper's, in ms: at the subscriber, the publisher and a relay.
const PAPER: [(&str, [f64; 6]); 3] = [
    (SUBSCRIBER, [0.2816, 0.4920, 0.3601, 0.33, f64::NAN, f64::NAN]),
    (PUBLISHER, [0.2871, 0.498, 0.364, 0.328, f64::NAN, f64::NAN]),
    (AT_RELAY, [0.2807, 0.494, 0.3626, 0.3329, 0.042, 0.49664]),
];

/// A row for each place, and the paper's.
pub(super) fn table(title: &str, found: &[(&str, Anatomy)]) -> Table {
    let heads = [
        "proxy at",
        "pub cpu (publish, queue)",
        "pub com (send, wire)",
        "sub ipc (receive)",
        "sub cpu (decode, callback)",
    ];
    let heads =
        [&heads[..], &["proxy cpu (relay's process)", "proxy com (what else the relay adds)", "total"]].concat();
    let mut table = Table::new(title, &heads);
    for place in PLACES {
        let of_place = found.iter().filter(|(name, _)| *name == place);
        of_place.for_each(|(name, anatomy)| table.row(*name, &anatomy.values()));
    }
    for (place, ms) in PAPER {
        let sum = ms.iter().filter(|value| value.is_finite()).sum::<f64>();
        let us: Vec<f64> = ms.iter().chain([&sum]).map(|value| value * 1000.0).collect();
        table.row(format!("{place}, in the paper (1999)"), &us);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use thalweg::stages::{Figures, StagesReport};

    fn measured(end: End, stages: &[(&str, f64)]) -> Measured {
        let figures = |(name, mean_us): &(&str, f64)| {
            ((*name).to_owned(), Figures { n: 1, mean_us: *mean_us, ..Figures::default() })
        };
        let stages_us: BTreeMap<_, _> = stages.iter().map(figures).collect();
        Measured { ends: vec![StagesReport { end, stages_us, ..StagesReport::default() }] }
    }

    #[test]
    fn components_add_up_to_the_whole_with_a_relay_and_without() {
        let publisher = measured(End::Publisher, &[("publish", 1.0), ("queue", 2.0), ("send", 4.0)]);
        let arrived = |transit| {
            let stages =
                [("transit", transit), ("receive", 3.0), ("decode", 5.0), ("callback", 6.0), ("total", transit + 11.0)];
            measured(End::Subscriber, &stages)
        };
        let direct = Anatomy::of(&[publisher.clone(), arrived(20.0)]);
        assert_eq!((direct.pub_cpu, direct.pub_com, direct.sub_ipc, direct.sub_cpu), (3.0, 14.0, 3.0, 11.0));
        let relayed = Anatomy::of(&[publisher, arrived(35.0)]).over_relay(&direct, 9.0);
        assert_eq!((relayed.pub_com, relayed.proxy_cpu, relayed.proxy_com), (14.0, 9.0, 6.0));
        for anatomy in [direct, relayed] {
            let parts: f64 = anatomy.values()[..6].iter().filter(|part| part.is_finite()).sum();
            assert_eq!(parts, anatomy.total);
        }
    }

    #[test]
    fn a_component_without_time_and_a_relay_that_adds_none_fail() {
        let direct =
            Anatomy { pub_cpu: 3.0, pub_com: 14.0, sub_ipc: 3.0, sub_cpu: 11.0, total: 31.0, ..Anatomy::default() };
        let relayed = Anatomy { proxy_cpu: 9.0, proxy_com: 6.0, total: 46.0, ..direct };
        let passes = |direct, relayed| {
            let found = [(NONE, direct), (PUBLISHER, direct), (SUBSCRIBER, direct), (AT_RELAY, relayed)];
            judge_stages("hosts", &found).map(|check| check.pass)
        };
        assert_eq!(passes(direct, relayed), [true, true]);
        assert_eq!(passes(Anatomy { sub_ipc: 0.0, ..direct }, relayed), [false, true]);
        assert_eq!(passes(direct, Anatomy { proxy_cpu: f64::NAN, ..relayed }), [false, true]);
        assert_eq!(passes(direct, Anatomy { total: 31.0, ..relayed }), [true, false]);
    }

    #[test]
    fn the_papers_sums_are_right() {
        let table = table("", &[]);
        let sums: Vec<&str> = table.rows.iter().map(|row| row[7].as_str()).collect();
        assert_eq!(sums, ["1463.7", "1477.1", "2008.8"]);
    }
}
