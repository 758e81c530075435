//! The six components of a round trip (P-33, Table 4).

use super::{AT_RELAY, LONGER, PLACES, PUBLISHER, SUBSCRIBER};
use crate::lab::Size;
use crate::part::Measured;
use crate::results::{Check, Table};
use crate::statistics::{median, uncertainty};
use thalweg::stages::End;

/// The six components, in µs; NaN for a missing one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Components {
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

impl Components {
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

    /// All of the way there.
    fn sum(&self) -> f64 {
        self.values()[..6].iter().filter(|part| part.is_finite()).sum()
    }

    fn values(&self) -> [f64; 7] {
        let Self { pub_cpu, pub_com, sub_ipc, sub_cpu, proxy_cpu, proxy_com, total } = *self;
        [pub_cpu, pub_com, sub_ipc, sub_cpu, proxy_cpu, proxy_com, total]
    }
}

/// Round trips with the proxy at one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrips {
    pub place: &'static str,
    pub there: Components,
    /// The callback that answers: its sample is on the way back before it returns.
    answer: f64,
    /// The way back, until the callback there begins.
    back: f64,
    /// The whole, by the ping's own stamps, mean.
    whole: f64,
}

impl RoundTrips {
    /// By the stages of both ways, each of them at its publisher and at its subscriber; the whole in µs.
    pub(super) fn of(place: &'static str, [there, back]: &[[Measured; 2]; 2], whole: f64) -> Self {
        let callback = |[_, subscriber]: &[Measured; 2]| subscriber.mean_us(End::Subscriber, "callback");
        let back_us = Components::of(back).sum() - callback(back);
        Self { place, there: Components::of(there), answer: callback(there), back: back_us, whole }
    }

    /// The components and the way back, in parts of the whole.
    fn explained(&self) -> f64 {
        (self.there.sum() - self.answer + self.back) / self.whole
    }
}

/// The medians of each component of each place over several runs: a mean of one run has what the machine did just then.
pub(super) fn medians(runs: &[Vec<RoundTrips>]) -> Vec<RoundTrips> {
    let of_place = |index: usize| {
        let of =
            |value: &dyn Fn(&RoundTrips) -> f64| median(&runs.iter().map(|run| value(&run[index])).collect::<Vec<_>>());
        let there = Components {
            pub_cpu: of(&|one| one.there.pub_cpu),
            pub_com: of(&|one| one.there.pub_com),
            sub_ipc: of(&|one| one.there.sub_ipc),
            sub_cpu: of(&|one| one.there.sub_cpu),
            proxy_cpu: of(&|one| one.there.proxy_cpu),
            proxy_com: of(&|one| one.there.proxy_com),
            total: of(&|one| one.there.total),
        };
        let (answer, back, whole) = (of(&|one| one.answer), of(&|one| one.back), of(&|one| one.whole));
        RoundTrips { place: runs[0][index].place, there, answer, back, whole }
    };
    (0..runs.first().map_or(0, Vec::len)).map(of_place).collect()
}

/// Most that components and whole may differ by, as a factor. The stamps of the two are a call apart.
const SAME: f64 = 1.1;

/// Table 4 has 18 components, four of each place and two of the relay, each with a time, which are the round trip together; and the way
/// over a relay is longer than the others (P-33). The relay's `proxy com` is what its `proxy cpu` leaves of the longer way, which may be
/// below 0 where all share a processor, so the two are judged together.
pub(super) fn judge(layout: &str, runs: &[Vec<RoundTrips>]) -> Vec<Check> {
    let components = |RoundTrips { place, there, .. }: &RoundTrips| {
        let Components { pub_cpu, pub_com, sub_ipc, sub_cpu, proxy_cpu, .. } = *there;
        let of_relay = if *place == AT_RELAY { proxy_cpu } else { f64::NAN };
        [pub_cpu, pub_com, sub_ipc, sub_cpu, of_relay].into_iter().filter(|us| *us > 0.0).count()
    };
    let count: usize = medians(runs).iter().map(components).sum();
    let added = |run: &Vec<RoundTrips>| {
        let relay = run.iter().find(|trips| trips.place == AT_RELAY);
        relay.map_or(f64::NAN, |trips| trips.there.proxy_cpu + trips.there.proxy_com)
    };
    let added = median(&runs.iter().map(added).collect::<Vec<_>>());
    let total = |run: &[RoundTrips], relayed: bool| {
        let of = run.iter().filter(|trips| (trips.place == AT_RELAY) == relayed);
        median(&of.map(|trips| trips.there.total).collect::<Vec<_>>())
    };
    let longer: Vec<f64> = runs.iter().map(|run| total(run, true) / total(run, false)).collect();
    let sum = |index: usize| {
        let (place, found) = (runs[0][index].place, runs.iter().map(|run| run[index].explained()).collect::<Vec<_>>());
        let name =
            format!("{layout}, proxy {place}: sum of components and the way back / round trip, or the other way round");
        let found = median(&found);
        Check::at_most(name, found.max(1.0 / found), SAME)
    };
    let mut checks: Vec<Check> = (0..runs.first().map_or(0, Vec::len)).map(sum).collect();
    let name = format!("{layout}: the way over the relay / the median of the others");
    let over = Check::at_least(name, median(&longer), LONGER).judged_from(Size::Quick);
    let [each, both] = ["all 18 but proxy com", "proxy cpu and proxy com"]
        .map(|which| format!("{layout}: components of Table 4 that take time, {which}"));
    checks.extend([
        Check::at_least(each, count as f64, 17.0),
        Check::at_least(format!("{both} together, µs"), added, 0.0).judged_from(Size::Quick),
        if runs.len() > 1 { over.certain_within(uncertainty(&longer), LONGER - 1.0) } else { over },
    ]);
    checks
}

/// The paper's, in ms: at the subscriber, the publisher and a relay.
const PAPER: [(&str, [f64; 6]); 3] = [
    (SUBSCRIBER, [0.2816, 0.4920, 0.3601, 0.33, f64::NAN, f64::NAN]),
    (PUBLISHER, [0.2871, 0.498, 0.364, 0.328, f64::NAN, f64::NAN]),
    (AT_RELAY, [0.2807, 0.494, 0.3626, 0.3329, 0.042, 0.49664]),
];

/// A row for each place, and the paper's.
pub(super) fn table(title: &str, found: &[RoundTrips]) -> Table {
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
        let of_place = found.iter().filter(|trips| trips.place == place);
        of_place.for_each(|trips| table.row(place, &trips.there.values()));
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
    use super::super::NONE;
    use super::*;
    use crate::results::Verdict;
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
        let direct = Components::of(&[publisher.clone(), arrived(20.0)]);
        assert_eq!((direct.pub_cpu, direct.pub_com, direct.sub_ipc, direct.sub_cpu), (3.0, 14.0, 3.0, 11.0));
        let relayed = Components::of(&[publisher, arrived(35.0)]).over_relay(&direct, 9.0);
        assert_eq!((relayed.pub_com, relayed.proxy_cpu, relayed.proxy_com), (14.0, 9.0, 6.0));
        for components in [direct, relayed] {
            assert_eq!(components.sum(), components.total);
        }
    }

    #[test]
    fn a_component_without_time_and_a_relay_that_adds_none_fail() {
        let direct = Components {
            pub_cpu: 3.0,
            pub_com: 14.0,
            sub_ipc: 3.0,
            sub_cpu: 11.0,
            total: 31.0,
            ..Components::default()
        };
        let relayed = Components { proxy_cpu: 9.0, proxy_com: 6.0, total: 46.0, ..direct };
        let trips = |place, there| RoundTrips { place, there, answer: 4.0, back: 25.0, whole: there.sum() + 21.0 };
        let all = |direct, relayed| {
            [(NONE, direct), (PUBLISHER, direct), (SUBSCRIBER, direct), (AT_RELAY, relayed)]
                .map(|(place, there)| trips(place, there))
        };
        let passes = |found: &[RoundTrips; 4]| {
            judge("hosts", &[found.to_vec()]).iter().map(|check| check.pass).collect::<Vec<_>>()
        };
        assert_eq!(passes(&all(direct, relayed)), [true; 7]);
        assert_eq!(passes(&all(Components { sub_ipc: 0.0, ..direct }, relayed))[4..], [false, true, true]);
        assert_eq!(passes(&all(direct, Components { proxy_cpu: f64::NAN, ..relayed }))[4..], [false, false, true]);
        // What is left for `proxy com` may be below 0, but not by more than `proxy cpu`.
        assert_eq!(passes(&all(direct, Components { proxy_com: -8.0, ..relayed }))[4..], [true; 3]);
        for proxy_com in [-10.0, f64::NAN] {
            assert_eq!(passes(&all(direct, Components { proxy_com, ..relayed }))[4..], [true, false, true]);
        }
        assert_eq!(passes(&all(direct, Components { total: 31.0, ..relayed }))[4..], [true, true, false]);
        // One of three runs that the machine disturbed says nothing; three that differ as much as they are longer are no proof.
        let runs = |totals: [f64; 3]| totals.map(|total| all(direct, Components { total, ..relayed }).to_vec());
        let last = |totals| judge("hosts", &runs(totals)).last().unwrap().verdict;
        assert_eq!(last([46.0, 20.0, 46.5]), Verdict::Pass);
        assert_eq!(last([20.0, 46.0, 20.5]), Verdict::Fail);
        assert_eq!(last([20.0, 34.0, 46.0]), Verdict::Inconclusive);
        // 45 of 52 µs, 45 of 38, and a stage that was not measured.
        let mut found = all(direct, relayed);
        (found[0].whole, found[1].whole, found[2].answer) = (60.0, 45.0, f64::NAN);
        assert_eq!(passes(&found), [false, false, false, true, true, true, true]);
    }

    #[test]
    fn the_papers_sums_are_right() {
        let table = table("", &[]);
        let sums: Vec<&str> = table.rows.iter().map(|row| row[7].as_str()).collect();
        assert_eq!(sums, ["1463.7", "1477.1", "2008.8"]);
    }
}
