//! Table 4: what a sample's way costs, part by part (P-33).

use super::testbed::{AT_RELAY, PLACES};
use crate::part::stages::Measured;
use crate::results::Table;

/// The six components, in µs; not a number where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Anatomy {
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
    /// What else the way over the relay takes longer than the direct one.
    pub proxy_com: f64,
    /// `total`: from `publish` to the end of the callback.
    pub total: f64,
}

const PUBLISHER: &str = "publisher";
const SUBSCRIBER: &str = "subscriber";

impl Anatomy {
    /// Of what the publisher and the subscriber measured. A relay's part is in `pub_com` at first.
    pub fn of([publisher, subscriber]: &[Measured; 2]) -> Self {
        let sum = |measured: &Measured, end, stages: [&str; 2]| -> f64 {
            stages.into_iter().map(|stage| measured.mean_us(end, stage)).sum()
        };
        let pub_cpu = sum(publisher, PUBLISHER, ["publish", "queue"]);
        let receive = subscriber.mean_us(SUBSCRIBER, "receive");
        let sub_ipc = if receive.is_finite() { receive } else { 0.0 };
        Self {
            pub_cpu,
            pub_com: subscriber.mean_us(SUBSCRIBER, "transit") - sub_ipc - pub_cpu,
            sub_ipc,
            sub_cpu: sum(subscriber, SUBSCRIBER, ["decode", "callback"]),
            proxy_cpu: f64::NAN,
            proxy_com: f64::NAN,
            total: subscriber.mean_us(SUBSCRIBER, "total"),
        }
    }

    /// Of the way over a relay, which used so much processor time for each sample; `direct` is without one.
    pub fn over_relay(self, direct: &Self, proxy_cpu: f64) -> Self {
        let proxy_com = self.pub_com - direct.pub_com - proxy_cpu;
        Self { pub_com: direct.pub_com, proxy_cpu, proxy_com, ..self }
    }

    fn values(&self) -> [f64; 7] {
        let Self { pub_cpu, pub_com, sub_ipc, sub_cpu, proxy_cpu, proxy_com, total } = *self;
        [pub_cpu, pub_com, sub_ipc, sub_cpu, proxy_cpu, proxy_com, total]
    }
}

/// The paper's, in ms: at the subscriber, the publisher and a relay.
const PAPER: [(&str, [f64; 6]); 3] = [
    (SUBSCRIBER, [0.2816, 0.4920, 0.3601, 0.33, f64::NAN, f64::NAN]),
    (PUBLISHER, [0.2871, 0.498, 0.364, 0.328, f64::NAN, f64::NAN]),
    (AT_RELAY, [0.2807, 0.494, 0.3626, 0.3329, 0.042, 0.49664]),
];

/// A row for each place, and the paper's.
pub fn table(title: &str, found: &[(&str, Anatomy)]) -> Table {
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

    fn measured(end: &str, stages: &[(&str, f64)]) -> Measured {
        let figures = |(name, mean_us): &(&str, f64)| {
            ((*name).to_owned(), Figures { n: 1, mean_us: *mean_us, ..Figures::default() })
        };
        let stages_us: BTreeMap<_, _> = stages.iter().map(figures).collect();
        Measured { ends: vec![StagesReport { end: end.into(), stages_us, ..StagesReport::default() }] }
    }

    #[test]
    fn components_add_up_to_the_whole_with_a_relay_and_without() {
        let publisher = measured(PUBLISHER, &[("publish", 1.0), ("queue", 2.0), ("send", 4.0)]);
        let arrived = |transit| {
            let stages =
                [("transit", transit), ("receive", 3.0), ("decode", 5.0), ("callback", 6.0), ("total", transit + 11.0)];
            measured(SUBSCRIBER, &stages)
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
    fn the_papers_sums_are_right() {
        let table = table("", &[]);
        let sums: Vec<&str> = table.rows.iter().map(|row| row[7].as_str()).collect();
        assert_eq!(sums, ["1463.7", "1477.1", "2008.8"]);
    }
}
