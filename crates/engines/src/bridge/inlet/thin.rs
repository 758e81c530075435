//! The selection of a rule (`scale`, `separation`), which the publisher here makes: the engine's publishers know of no such thing.

use qos::{Qos, Scale};
use std::time::{Duration, Instant};
use thalweg::proxy::Selection;

pub(super) struct Thin {
    selection: Selection,
    /// Of a rate in hertz: the period, and the time from which the next sample passes.
    period: Option<Duration>,
    due: Option<Instant>,
    separation: Option<Duration>,
    number: u64,
    passed: Option<Instant>,
}

impl Thin {
    pub(super) fn of(qos: &Qos) -> Self {
        let selection = match qos.scale {
            Scale::Every(every) => Selection::rate(1, every.max(1)),
            Scale::Rate { p, q } => Selection::rate(p, q),
            Scale::Millihertz(_) => Ok(Selection::ALL),
        };
        // Nobody states the rate of the stream, so that no share of its samples could be computed: the clock selects.
        let period = match qos.scale {
            Scale::Millihertz(rate) => Some(Duration::from_nanos(1_000_000_000_000 / rate.max(1))),
            Scale::Every(_) | Scale::Rate { .. } => None,
        };
        let selection = selection.unwrap_or(Selection::ALL);
        Self { selection, period, due: None, separation: qos.separation, number: 0, passed: None }
    }

    pub(super) fn passes(&mut self, now: Instant) -> bool {
        self.number += 1;
        let since = |passed: Instant| now.saturating_duration_since(passed);
        let is_far = self.separation.zip(self.passed).is_none_or(|(least, passed)| since(passed) >= least);
        let is_due = self.due.is_none_or(|due| now >= due);
        let passes = is_far && is_due && self.selection.takes(self.number);
        if passes {
            self.passed = Some(now);
            self.due = self.period.map(|period| next(self.due, period, now));
        }
        passes
    }
}

/// A period after the last one was due, so that the mean rate holds though no sample comes just then. After a pause it begins anew.
fn next(due: Option<Instant>, period: Duration, now: Instant) -> Instant {
    let next = due.unwrap_or(now) + period;
    if next > now { next } else { now + period }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds at which samples of a stream with this period pass.
    fn passed(thin: &mut Thin, begin: Instant, times_ms: impl Iterator<Item = u64>) -> Vec<u64> {
        times_ms.filter(|ms| thin.passes(begin + Duration::from_millis(*ms))).collect()
    }

    #[test]
    fn a_rate_in_hertz_is_that_of_the_samples_that_pass() {
        let rate = |text: &str| {
            let mut qos = Qos::default();
            qos.set("scale", text).unwrap();
            Thin::of(&qos)
        };
        let begin = Instant::now();
        let mut thin = rate("20 Hz");
        assert_eq!(passed(&mut thin, begin, (0..200).step_by(10)), [0, 50, 100, 150]);
        // 33.3 Hz: two of three would be 22.2 Hz, so that now and then one of two passes.
        assert_eq!(passed(&mut rate("20 Hz"), begin, (0..3000).step_by(30)).len(), 60);
        assert_eq!(passed(&mut rate("20 Hz"), begin, (0..3000).step_by(100)).len(), 30, "a slower stream passes whole");
        // After a pause there is no burst.
        assert_eq!(passed(&mut thin, begin, (5000..5100).step_by(10)), [5000, 5050]);
        assert_eq!(passed(&mut rate("0.001 Hz"), begin, [0, 999_999, 1_000_000].into_iter()), [0, 1_000_000]);
    }

    #[test]
    fn a_separation_is_the_least_time_between_two() {
        let qos = Qos { separation: Some(Duration::from_millis(50)), ..Qos::default() };
        assert_eq!(passed(&mut Thin::of(&qos), Instant::now(), (0..200).step_by(30)), [0, 60, 120, 180]);
    }
}
