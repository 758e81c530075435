//! Delays of a route in one look, from the stages that its ends report. Time stamps of hosts with different clocks are
//! converted to this host's, with their uncertainty.

use crate::participant::Participant;
use qos::verification::{Cost, Live, Window, Worst};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use thalweg::carrier;
use thalweg::clock::{ClockOffset, DRIFT_NS_PER_S};
use thalweg::control::Document;
use thalweg::stages::{End, Figures, LatenessReport};

/// A channel: publisher's and subscriber's port.
pub(super) type Key = (String, String);
type Stages = BTreeMap<String, f64>;

/// Reports of the ends of all channels in one look.
#[derive(Default)]
pub(super) struct Reports(HashMap<Key, Vec<LatenessReport>>);

impl Reports {
    /// Adds the reports of one node.
    pub(super) fn add(&mut self, ends: Vec<LatenessReport>) {
        for end in ends {
            self.0.entry((end.publisher.clone(), end.subscriber.clone())).or_default().push(end);
        }
    }

    /// Times of a channel's samples since their measurement began, where its ends have one clock.
    pub(super) fn total(&self, live: &Live) -> Option<&Figures> {
        self.end(&live.publisher, &live.subscriber, End::Subscriber)?.total.as_ref()
    }

    fn end(&self, publisher: &str, subscriber: &str, end: End) -> Option<&LatenessReport> {
        let ends = self.0.get(&(publisher.to_owned(), subscriber.to_owned()))?;
        ends.iter().find(|report| report.end == end)
    }

    /// The window of a route, by the clocks of its ends, and of its first part, up to a relay.
    pub(super) fn window(
        &self,
        live: &Live,
        carrier: &carrier::Name,
        whole: Option<&Pair>,
        to_relay: Option<&Pair>,
    ) -> Window {
        let Live { publisher, subscriber, over, .. } = live;
        let Some(arrived) = self.end(publisher, subscriber, End::Subscriber) else { return Window::default() };
        if *carrier == carrier::Name::Local {
            return within_process(arrived);
        }
        let first = over.as_ref().map_or(subscriber, |over| &over.port);
        let sent = self.end(publisher, first, End::Publisher).map(longest).unwrap_or_default();
        let fed = over.as_ref().and_then(|over| self.end(publisher, &over.port, End::Subscriber));
        let worst = latest(arrived, whole).map(|(us, uncertainty_us, received)| {
            let fed = fed.and_then(|fed| latest(fed, to_relay));
            match fed.map(|(us, uncertain, received)| Worst::new(us, uncertain, &sent, &received)) {
                Some(fed) => {
                    let waited =
                        self.end(publisher, subscriber, End::Publisher).map(|relay| time(&longest(relay), &["queue"]));
                    Worst::over_relay(us, uncertainty_us, &fed, waited.unwrap_or(0.0), &received)
                }
                None => Worst::new(us, uncertainty_us, &sent, &received),
            }
        });
        Window {
            measured: arrived.samples,
            late: arrived.late,
            late_at_relay: fed.map_or(0, |fed| fed.late),
            disordered: arrived.disordered,
            worst,
            cost: Cost {
                send_us: time(&sent, &["publish", "send"]),
                receive_us: time(&longest(arrived), &["decode", "callback"]),
                bytes: arrived.largest_bytes,
            },
            ..Window::default()
        }
    }
}

/// The window of a channel of carrier `local`: one end, one clock, all stages.
fn within_process(seen: &LatenessReport) -> Window {
    let longest = longest(seen);
    let worst = latest(seen, Some(&Pair::Same)).map(|(us, _, stages)| Worst::within_process(us, &stages));
    Window {
        measured: seen.samples,
        late: seen.late,
        disordered: seen.disordered,
        worst,
        cost: Cost {
            send_us: time(&longest, &["publish"]),
            receive_us: time(&longest, &["decode", "callback"]),
            bytes: seen.largest_bytes,
        },
        ..Window::default()
    }
}

/// The latest sample of an end: its delay, the uncertainty, and the end's own stages, in µs.
fn latest(report: &LatenessReport, pair: Option<&Pair>) -> Option<(f64, f64, Stages)> {
    let (latest, pair) = report.latest.as_ref().zip(pair)?;
    let (ns, uncertainty) = pair.between(latest.published_ns, latest.done_ns);
    Some((ns as f64 / 1e3, uncertainty as f64 / 1e3, microseconds(&latest.stages_ns)))
}

fn longest(report: &LatenessReport) -> Stages {
    microseconds(&report.longest_ns)
}

fn microseconds(stages: &BTreeMap<String, u64>) -> Stages {
    stages.iter().map(|(name, ns)| (name.clone(), *ns as f64 / 1e3)).collect()
}

fn time(stages: &Stages, names: &[&str]) -> f64 {
    names.iter().filter_map(|name| stages.get(*name)).sum()
}

/// Clock offsets of the hosts at the ends of channels, by identity, at one look.
pub(super) struct Clocks(HashMap<String, Option<ClockOffset>>);

/// The clocks of the two ends of a channel.
pub(super) enum Pair {
    /// Both ends have the same clock.
    Same,
    /// Clocks of publisher and subscriber; `None`: this host's.
    Apart(Option<ClockOffset>, Option<ClockOffset>),
}

impl Clocks {
    /// Offsets of a look before any clock was asked.
    pub(super) fn new() -> Self {
        Self(HashMap::from([(linux::clock::clock_id(), None)]))
    }

    /// The clocks of two nodes; each clock is asked once. `None`: one of them does not answer.
    pub(super) fn pair(
        &mut self,
        participant: &Participant,
        publisher: &Document,
        subscriber: &Document,
    ) -> Option<Pair> {
        if publisher.clock == subscriber.clock {
            return Some(Pair::Same);
        }
        let mut of = |node: &Document| {
            if let Some(known) = self.0.get(&node.clock) {
                return Some(*known);
            }
            let offset = participant.node.compare_clock(node.node, PATIENCE).ok()?;
            self.0.insert(node.clock.clone(), Some(offset));
            Some(Some(offset))
        };
        Some(Pair::Apart(of(publisher)?, of(subscriber)?))
    }
}

impl Pair {
    /// Nanoseconds between a stamp of the publisher's host and one of the subscriber's, and the uncertainty.
    pub(super) fn between(&self, published_ns: u64, done_ns: u64) -> (i128, u64) {
        let Pair::Apart(publisher, subscriber) = self else {
            return (i128::from(done_ns) - i128::from(published_ns), 0);
        };
        let here = |offset: &Option<ClockOffset>, ns| offset.map_or((i128::from(ns), 0), |offset| offset.here_ns(ns));
        let ((published, one), (done, other)) = (here(publisher, published_ns), here(subscriber, done_ns));
        (done - published, one.saturating_add(other))
    }

    /// The raw difference of two stamps above which a sample is certainly later than `latest_ns`, until the clocks
    /// are compared again within `interval`.
    pub(super) fn late_after(&self, latest_ns: f64, interval: Duration) -> i64 {
        let (offset, uncertainty) = match self {
            Pair::Same => (0, 0.0),
            Pair::Apart(publisher, subscriber) => {
                let known = [publisher, subscriber].into_iter().flatten();
                let drift = interval.as_secs_f64() * DRIFT_NS_PER_S as f64;
                let uncertainty = known.map(|offset| offset.uncertainty_ns as f64 + drift).sum();
                let ns = |offset: &Option<ClockOffset>| offset.map_or(0, |offset| offset.offset_ns);
                (ns(publisher) - ns(subscriber), uncertainty)
            }
        };
        let limit = ((latest_ns + uncertainty) as i128).saturating_add(offset);
        i64::try_from(limit).unwrap_or(if limit > 0 { i64::MAX } else { i64::MIN })
    }
}

/// Time after which a node without an answer has no clock for this look.
const PATIENCE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use qos::verification::Over;
    use thalweg::stages::Latest;

    fn report(names: [&str; 2], end: End, us: u64, late: u64, stages: &[(&str, u64)]) -> LatenessReport {
        let [publisher, subscriber] = names.map(str::to_owned);
        let times: BTreeMap<String, u64> = stages.iter().map(|(name, us)| ((*name).to_owned(), us * 1000)).collect();
        let latest = Latest { seq: 1, published_ns: 5_000, done_ns: 5_000 + us * 1000, stages_ns: times.clone() };
        let latest = Some(latest).filter(|_| end == End::Subscriber);
        LatenessReport { publisher, subscriber, end, samples: 9, late, longest_ns: times, latest, ..Default::default() }
    }

    #[test]
    fn the_parts_of_a_route_over_a_relay_are_told_apart() {
        let mut reports = Reports::default();
        reports.add(vec![report(
            ["/out", "/gate/proxy1"],
            End::Publisher,
            0,
            0,
            &[("publish", 5), ("queue", 1), ("send", 20)],
        )]);
        // The relay's end of the second part starts at the source's stamp: its `publish` stage is not the
        // publisher's.
        reports.add(vec![
            report(["/out", "/gate/proxy1"], End::Subscriber, 5_100, 2, &[("decode", 4), ("callback", 30)]),
            report(["/out", "/in"], End::Publisher, 0, 0, &[("publish", 5_090), ("queue", 7), ("send", 20)]),
        ]);
        reports.add(vec![report(["/out", "/in"], End::Subscriber, 5_400, 3, &[("decode", 10), ("callback", 40)])]);
        let over = Some(Over { port: "/gate/proxy1".into(), names: vec!["gate".into()] });
        let live = Live { publisher: "/out".into(), subscriber: "/in".into(), over, ..Live::default() };
        let window = reports.window(&live, &carrier::Name::Tcp, Some(&Pair::Same), Some(&Pair::Same));
        let worst = window.worst.unwrap();
        assert_eq!(
            (worst.us, worst.stage(), window.late, window.late_at_relay),
            (5_400.0, Some("wire to relay"), 3, 2)
        );
        let of = |name: &str| worst.stages_us[name];
        assert_eq!((of("wire to relay"), of("relay"), of("wire from relay")), (5_040.0, 41.0, 243.0));
        assert_eq!((window.cost.send_us, window.cost.receive_us), (25.0, 50.0));
        // Time that a silent relay leaves open is time on the way.
        let alone = reports.window(&live, &carrier::Name::Tcp, Some(&Pair::Same), None).worst.unwrap();
        assert_eq!((alone.stage(), alone.stages_us["wire"]), (Some("wire"), 5_324.0));
    }

    /// Both ends are one, which reports all stages.
    #[test]
    fn within_a_process_the_stages_are_those_of_one_end() {
        let mut reports = Reports::default();
        let stages = [("publish", 5), ("mailbox", 900), ("decode", 10), ("callback", 40), ("total", 1_000)];
        reports.add(vec![report(["/out", "/in"], End::Subscriber, 1_000, 3, &stages)]);
        let live = Live { publisher: "/out".into(), subscriber: "/in".into(), ..Live::default() };
        let window = reports.window(&live, &carrier::Name::Local, None, None);
        let worst = window.worst.unwrap();
        assert_eq!((worst.us, worst.stage(), worst.uncertainty_us), (1_000.0, Some("mailbox"), 0.0));
        assert_eq!((worst.stages_us["publish"], window.cost.send_us, window.cost.receive_us), (50.0, 5.0, 50.0));
        assert_eq!((window.measured, window.late), (9, 3));
    }

    #[test]
    fn stamps_of_two_hosts_are_compared_by_way_of_this_one() {
        let offset = |offset_ns| ClockOffset { offset_ns, uncertainty_ns: 100, at_ns: 1_000_000 };
        assert_eq!(Pair::Same.between(500, 700), (200, 0));
        // The publisher's clock is 1000 behind this host's, the subscriber's 2000 ahead.
        let apart = Pair::Apart(Some(offset(1_000)), Some(offset(-2_000)));
        assert_eq!(apart.between(999_000, 1_005_000), (3_000, 200));
        assert_eq!(Pair::Apart(None, Some(offset(-2_000))).between(1_000_000, 1_005_000), (3_000, 100));
        let late = |pair: &Pair, ms| pair.late_after(5_000.0, Duration::from_millis(ms));
        assert_eq!((late(&Pair::Same, 1000), late(&apart, 0), late(&apart, 1000)), (5_000, 8_200, 408_200));
        let far = Pair::Apart(Some(offset(i128::MAX / 4)), None);
        assert_eq!(late(&far, 0), i64::MAX);
    }
}
