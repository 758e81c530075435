//! Time stamps of hosts with different clocks, converted to this host's, with their uncertainty.

use crate::session::Session;
use std::collections::HashMap;
use std::time::Duration;
use thalweg::clock::{ClockOffset, DRIFT_NS_PER_S};
use thalweg::control::Document;

/// Time after which a node without an answer has no clock for this look.
const PATIENCE: Duration = Duration::from_millis(500);

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
    pub(super) fn pair(&mut self, session: &Session, publisher: &Document, subscriber: &Document) -> Option<Pair> {
        if publisher.clock == subscriber.clock {
            return Some(Pair::Same);
        }
        let mut of = |node: &Document| {
            if let Some(known) = self.0.get(&node.clock) {
                return Some(*known);
            }
            let offset = session.node.compare_clock(node.node, PATIENCE).ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
