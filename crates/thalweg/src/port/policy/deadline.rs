//! Deadlines of an instance's samples (DDS 1.4, §2.2.3.7; V-02).

use super::News;

/// The time by which the next sample must come; before the first sample there is no deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due(Option<u64>);

impl Due {
    /// A sample came at `now`. Returns how many had been missed before it.
    pub(super) fn sample(&mut self, now: u64, period: u64) -> u64 {
        let missed = self.missed(now, period);
        self.0 = Some(now.saturating_add(period));
        missed
    }

    /// The number of deadlines that passed up to `now` and were not reported yet: one for each whole period without a sample. A
    /// sample that comes exactly at its deadline is in time.
    pub(super) fn missed(&mut self, now: u64, period: u64) -> u64 {
        let Some(due) = self.0.filter(|due| now > *due) else { return 0 };
        let missed = (now - due).div_ceil(period.max(1));
        self.0 = Some(due.saturating_add(missed.saturating_mul(period.max(1))));
        missed
    }

    /// The first moment at which one more has been missed.
    pub(super) fn next(self) -> Option<u64> {
        self.0.map(|due| due.saturating_add(1))
    }
}

/// The deadlines of one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deadlines {
    due: Due,
    missed: u64,
    told: u64,
}

impl Deadlines {
    /// A sample came at `now`. Returns how many deadlines had been missed before it.
    pub(super) fn sample(&mut self, now: u64, period: u64) -> u64 {
        let missed = self.due.sample(now, period);
        self.missed += missed;
        missed
    }

    /// The number of deadlines that passed up to `now` and were not counted yet.
    pub(super) fn look(&mut self, now: u64, period: u64) -> u64 {
        let missed = self.due.missed(now, period);
        self.missed += missed;
        missed
    }

    /// Ends the deadline: no sample is due any more.
    pub(super) fn end(&mut self) {
        self.due = Due::default();
    }

    /// The number missed in all.
    pub(super) fn missed(&self) -> u64 {
        self.missed
    }

    /// The first moment at which one more has been missed.
    pub(super) fn next(&self) -> Option<u64> {
        self.due.next()
    }
}

/// The most instances that are named in a report of missed deadlines; further ones are reported together.
const MOST_NAMED: usize = 16;

/// Reports the deadlines that instances missed since the last report, by key where there is one. All missed `missed` of `total`.
pub(super) fn tell<'a>(
    missed: u64,
    total: u64,
    instances: impl Iterator<Item = (&'a str, &'a mut Deadlines)>,
    news: &mut Vec<News>,
) {
    if missed == 0 {
        return;
    }
    let (mut others, mut named) = (missed, 0);
    for (key, deadlines) in instances {
        let missed = deadlines.missed - std::mem::replace(&mut deadlines.told, deadlines.missed);
        if missed > 0 && named < MOST_NAMED && !key.is_empty() {
            (others, named) = (others.saturating_sub(missed), named + 1);
            news.push(News::DeadlineMissed { instance: Some(key.to_owned()), missed, total });
        }
    }
    if others > 0 {
        news.push(News::DeadlineMissed { instance: None, missed: others, total });
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

    #[test]
    fn the_first_instances_are_named_and_the_others_told_together() {
        let mut all = vec![(String::from("id = 0"), Deadlines::default()); 20];
        let (mut missed, mut news) = (0, Vec::new());
        for (id, (key, deadlines)) in all.iter_mut().enumerate() {
            *key = if id == 3 { String::new() } else { format!("id = {id}") };
            deadlines.sample(100, 10);
            missed += deadlines.look(if id == 5 { 110 } else { 121 }, 10);
        }
        tell(missed, missed, all.iter_mut().map(|(key, deadlines)| (key.as_str(), deadlines)), &mut news);
        let told = |id: usize| News::DeadlineMissed { instance: Some(format!("id = {id}")), missed: 2, total: 38 };
        let mut expected: Vec<News> = (0..18).filter(|id| ![3, 5].contains(id)).map(told).collect();
        expected.push(News::DeadlineMissed { instance: None, missed: 6, total: 38 });
        assert_eq!(news, expected);
        news.clear();
        missed = all[19].1.look(131, 10);
        tell(missed, 39, all.iter_mut().map(|(key, deadlines)| (key.as_str(), deadlines)), &mut news);
        assert_eq!(news, [News::DeadlineMissed { instance: Some("id = 19".into()), missed: 1, total: 39 }]);
    }

    proptest! {
        /// Compared with a clock that ticks every nanosecond, with looks at any times.
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
