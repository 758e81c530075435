//! A channel's policer: samples beyond its contract are not sent, so that who sends too much harms only itself. The meter is the virtual scheduling of
//! ITU-T I.371, annex A: one moment, no refilling. Pure; time comes as an argument.

use qos::priority::Policing;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Only the publishing thread asks it, with the port's lock; others may set it.
#[derive(Debug, Default)]
pub(crate) struct Policer {
    /// Time between two samples, ns; 0: all pass.
    period: AtomicU64,
    tolerance: AtomicU64,
    largest: AtomicU64,
    /// The time at which the next sample is due.
    due: AtomicU64,
}

impl Policer {
    /// From now on these pass; `None`: all.
    pub(crate) fn set(&self, policing: Option<Policing>) {
        let Some(Policing { period_ns, tolerance_ns, largest }) = policing else {
            return self.period.store(0, Relaxed);
        };
        let before = [&self.period, &self.tolerance, &self.largest].map(|one| one.load(Relaxed));
        if before == [period_ns, tolerance_ns, largest] {
            return; // set again, such as by an agent: nothing is forgiven
        }
        self.due.store(0, Relaxed);
        self.tolerance.store(tolerance_ns, Relaxed);
        self.largest.store(largest, Relaxed);
        self.period.store(period_ns, Relaxed);
    }

    /// `true` if some samples may not pass.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.period.load(Relaxed) > 0
    }

    /// `true` if a sample of so many bytes passes now.
    pub(crate) fn passes(&self, now_ns: u64, bytes: usize) -> bool {
        let (period, latest) = (self.period.load(Relaxed), now_ns.saturating_add(self.tolerance.load(Relaxed)));
        // Never later than behind one that passes now, unless it was written for another period that was set meanwhile.
        let (mut due, most) = (self.due.load(Relaxed), latest.saturating_add(period));
        if due > most {
            due = most;
            self.due.store(due, Relaxed);
        }
        if bytes as u64 > self.largest.load(Relaxed) || due > latest {
            return false;
        }
        self.due.store(due.max(now_ns).saturating_add(period), Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policer(text: &str) -> Policer {
        let policer = Policer::default();
        policer.set(Some(text.parse().unwrap()));
        policer
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn what_comes_too_soon_or_is_too_large_does_not_pass() {
        let policer = policer("100Hz/1/1000B");
        let passes = |ms: u64, bytes| policer.passes(1000 * MS + ms * MS, bytes);
        assert_eq!([passes(0, 1000), passes(9, 1000), passes(10, 1001), passes(10, 1000)], [true, false, false, true]);
        policer.set(Some("100Hz/1/1000B".parse().unwrap()));
        assert!(!passes(15, 1), "the same again changes nothing");
        policer.set(Some("100Hz/1/999B".parse().unwrap()));
        assert!(passes(15, 1));
        policer.set(None);
        assert!(!policer.is_set());
    }

    #[test]
    fn a_late_sample_costs_the_next_one_nothing_within_the_tolerance() {
        let policer = policer("100Hz/1.5/1000B");
        // Each sample is due 10 ms after the one before it, and comes up to 5 ms late.
        let passes = [0, 15, 20, 35, 40].map(|ms| policer.passes(1000 * MS + ms * MS, 1));
        assert_eq!(passes, [true; 5]);
        assert!(!policer.passes(1044 * MS, 1), "6 ms too early");
    }

    #[test]
    fn a_burst_passes_after_a_pause() {
        let policer = policer("100Hz/3/1B");
        let at = |ms| (0..5).filter(|_| policer.passes(1000 * MS + ms * MS, 1)).count();
        assert_eq!([at(0), at(5), at(10), at(200)], [3, 0, 1, 3]);
    }

    #[test]
    fn a_moment_that_was_due_under_another_contract_holds_up_nobody_for_long() {
        let policer = policer("100Hz/1/1B");
        policer.due.store(u64::MAX, Relaxed); // written by the publishing thread behind the change
        assert_eq!([1000, 1009, 1010].map(|ms| policer.passes(ms * MS, 1)), [false, false, true]);
    }

    proptest! {
        /// A publisher that keeps its contract loses nothing, and one that does not never sends more than it allows.
        #[test]
        fn it_is_as_strict_as_the_contract(
            burst in 1u64..5, jitter in 0u64..30 * MS, steps in proptest::collection::vec(0u64..25 * MS, 1..200),
        ) {
            let period = 10 * MS;
            let at_once = burst as f64 + jitter as f64 / period as f64;
            let policing = Policing::new(100.0, at_once, 1).unwrap();
            let (kept, policed) = (Policer::default(), Policer::default());
            kept.set(Some(policing));
            policed.set(Some(policing));
            // Releases once a period, each late by up to the jitter, in order; the first ones at once.
            let mut last = 0;
            for (n, step) in steps.iter().enumerate() {
                let due = 1_000 * MS + (n as u64).saturating_sub(burst - 1) * period;
                last = (due + step % (jitter + 1)).max(last);
                prop_assert!(kept.passes(last, 1), "sample {n} at {last}");
            }
            let mut now = 1_000 * MS;
            let mut passed = Vec::new();
            for step in &steps {
                now += step / 5;
                if policed.passes(now, 1) {
                    passed.push(now);
                }
            }
            for (index, first) in passed.iter().enumerate() {
                for (count, at) in (1..).zip(&passed[index..]) {
                    // I.371: in any window of so long there are at most so many.
                    let allowed = 1 + (at - first + policing.tolerance_ns) / period;
                    prop_assert!(count <= allowed, "{count} within {} ns, {allowed} allowed", at - first);
                }
            }
        }
    }
}
