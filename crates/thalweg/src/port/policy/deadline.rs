//! When the next sample of an instance is due (DDS 1.4, §2.2.3.7; V-02).

/// The time by which the next sample must come; nothing is due before the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due(Option<u64>);

impl Due {
    /// A sample came at `now`; how many had been missed before it.
    pub fn sample(&mut self, now: u64, period: u64) -> u64 {
        let missed = self.missed(now, period);
        self.0 = Some(now.saturating_add(period));
        missed
    }

    /// How many deadlines passed up to `now` that were not told yet: one for each whole period without a sample. A sample that
    /// comes exactly at its deadline is in time.
    pub fn missed(&mut self, now: u64, period: u64) -> u64 {
        let Some(due) = self.0.filter(|due| now > *due) else { return 0 };
        let missed = (now - due).div_ceil(period.max(1));
        self.0 = Some(due.saturating_add(missed.saturating_mul(period.max(1))));
        missed
    }

    /// The first moment at which one more has been missed.
    pub fn next(self) -> Option<u64> {
        self.0.map(|due| due.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sample_is_in_time_up_to_its_deadline_to_the_nanosecond() {
        let mut due = Due::default();
        assert_eq!((due.missed(1_000_000, 20), due.next()), (0, None));
        assert_eq!((due.sample(100, 20), due.next()), (0, Some(121)));
        assert_eq!((due.sample(120, 20), due.sample(141, 20)), (0, 1));
        assert_eq!((due.missed(161, 20), due.missed(162, 20), due.missed(162, 20)), (0, 1, 0));
        assert_eq!((due.missed(181, 20), due.missed(182, 20), due.sample(290, 20)), (0, 1, 5));
    }

    proptest! {
        /// Against a clock that ticks every nanosecond, however often it is looked.
        #[test]
        fn misses_are_those_of_a_ticking_clock(period in 1_u64..9, samples in prop::collection::vec(any::<(bool, bool)>(), 1..200)) {
            let (mut due, mut missed, mut model, mut last) = (Due::default(), 0, 0, None::<u64>);
            for (now, (sample, look)) in samples.into_iter().enumerate() {
                let now = now as u64;
                model += u64::from(last.is_some_and(|last| now > last && (now - last - 1).is_multiple_of(period) && now > last + period));
                if sample {
                    missed += due.sample(now, period);
                    last = Some(now);
                } else if look {
                    missed += due.missed(now, period);
                }
                if sample || look {
                    prop_assert_eq!(missed, model);
                }
            }
        }
    }
}
