//! The times at which samples are due, in virtual time: clock readings are arguments.

/// Maps times of a recording to those of the clock on which it is replayed.
#[derive(Clone, Debug)]
pub struct Schedule {
    rate: f64,
    /// The time in the recording that is due at `start_ns`.
    origin_ns: u64,
    start_ns: u64,
    slowed_ns: u64,
}

impl Schedule {
    /// A replay at `rate` times the speed, whose first sample, of time `origin_ns`, is due now.
    pub fn new(origin_ns: u64, now_ns: u64, rate: f64) -> Self {
        Self { rate, origin_ns, start_ns: now_ns, slowed_ns: 0 }
    }

    /// The time of the clock at which a sample of this time is due.
    pub fn due_ns(&self, time_ns: u64) -> u64 {
        self.start_ns.saturating_add(self.lasts_ns(self.origin_ns, time_ns))
    }

    /// The time that lies between two times of the recording when it is replayed; 0 if the second is not the later one.
    pub fn lasts_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let recorded = to_ns.saturating_sub(from_ns);
        // Exact at the original speed: a float has 53 bits, and a day of nanoseconds 47.
        if self.rate == 1.0 { recorded } else { (recorded as f64 / self.rate) as u64 }
    }

    /// The time of the recording that is due at this time of the clock.
    pub fn time_ns(&self, now_ns: u64) -> u64 {
        let passed = now_ns.saturating_sub(self.start_ns);
        self.origin_ns.saturating_add(if self.rate == 1.0 { passed } else { (passed as f64 * self.rate) as u64 })
    }

    /// Notes that a sample went out at `now_ns` that was due at `due_ns`. A small delay is caught up. After a longer one all samples that
    /// follow come later by as much, so that the intervals between them stay those of the recording.
    pub fn went_out(&mut self, due_ns: u64, now_ns: u64) {
        let late = now_ns.saturating_sub(due_ns);
        if late > CAUGHT_UP_NS {
            self.start_ns = self.start_ns.saturating_add(late);
            self.slowed_ns = self.slowed_ns.saturating_add(late);
        }
    }

    /// The time by which all samples have become later.
    pub fn slowed_ns(&self) -> u64 {
        self.slowed_ns
    }
}

/// The longest delay that is caught up: a few turns of the scheduler.
const CAUGHT_UP_NS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn samples_are_due_at_the_intervals_of_the_recording() {
        let schedule = Schedule::new(500 * MS, 7 * MS, 1.0);
        assert_eq!([500, 503, 600].map(|at| schedule.due_ns(at * MS)), [7, 10, 107].map(|at| at * MS));
        assert_eq!(schedule.due_ns(400 * MS), 7 * MS, "what is before the first one is due with it");
        let twice = Schedule::new(500 * MS, 7 * MS, 2.0);
        assert_eq!([500, 504, 600].map(|at| twice.due_ns(at * MS)), [7, 9, 57].map(|at| at * MS));
        assert_eq!((twice.time_ns(57 * MS), twice.lasts_ns(500 * MS, 600 * MS)), (600 * MS, 50 * MS));
    }

    #[test]
    fn a_short_delay_is_caught_up_and_a_long_one_moves_all_that_follow() {
        let mut schedule = Schedule::new(0, 0, 1.0);
        schedule.went_out(schedule.due_ns(10 * MS), 20 * MS);
        assert_eq!((schedule.due_ns(30 * MS), schedule.slowed_ns()), (30 * MS, 0));
        schedule.went_out(schedule.due_ns(30 * MS), 50 * MS);
        assert_eq!((schedule.due_ns(40 * MS), schedule.slowed_ns()), (60 * MS, 20 * MS));
        assert_eq!(schedule.time_ns(60 * MS), 40 * MS);
    }

    /// Publishing takes longer than there is time: intervals become longer, never shorter than recorded, and the sum is told.
    #[test]
    fn when_it_cannot_keep_up_all_topics_slow_together() {
        let mut schedule = Schedule::new(0, 0, 1.0);
        let (mut now, mut last) = (0, None::<u64>);
        for number in 0..100 {
            let due = schedule.due_ns(number * MS);
            now = now.max(due) + 30 * MS;
            schedule.went_out(due, now);
            assert!(last.is_none_or(|last| due >= last + MS));
            last = Some(due);
        }
        assert_eq!(now, 100 * 30 * MS + 99 * MS);
        assert_eq!(schedule.slowed_ns(), 100 * 30 * MS);
    }

    proptest! {
        #[test]
        fn no_time_is_due_before_an_earlier_one(a: u64, b: u64, now: u64, rate in 0.01f64..100.0) {
            let schedule = Schedule::new(a.min(b) / 2, now, rate);
            prop_assert!(schedule.due_ns(a.min(b)) <= schedule.due_ns(a.max(b)));
        }
    }
}
