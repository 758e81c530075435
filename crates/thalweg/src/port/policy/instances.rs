//! Instances at a port: those that a subscriber knows, with the publishers of each, its state and its last sample (DDS 1.4,
//! §2.2.2.5.1.3), and the deadlines of an instance's samples (§2.2.3.7; V-02). Pure; bounded.

use super::News;
use crate::channel::{Change, InstanceReport, InstanceState, PortRef};
use std::collections::HashMap;

/// One instance.
#[derive(Default)]
pub(super) struct Instance {
    /// The time at which its next sample is due, and the number missed.
    pub deadlines: Deadlines,
    /// With exclusive ownership: the publisher whose samples count.
    pub owner: Option<PortRef>,
    /// The newest sample by its source.
    pub newest: Option<super::reading::Stamp>,
    /// The last sample that was delivered.
    pub taken: Option<super::reading::Stamp>,
    /// Its key; empty where the topic has none.
    key: String,
    state: InstanceState,
    publishers: Vec<PortRef>,
}

impl Instance {
    /// Notes a publisher's statement about the instance. Gives the new state, if it changed.
    fn note(&mut self, publisher: PortRef, change: Change) -> Option<InstanceState> {
        match change {
            Change::Written => {
                if !self.publishers.contains(&publisher) {
                    self.publishers.push(publisher);
                }
                self.become_now(InstanceState::Alive)
            }
            Change::Disposed => self.become_now(InstanceState::Disposed),
            Change::Unregistered => self.lose(publisher),
        }
    }

    /// Removes a publisher of the instance. Gives the new state, if it changed.
    fn lose(&mut self, publisher: PortRef) -> Option<InstanceState> {
        let before = self.publishers.len();
        self.publishers.retain(|other| *other != publisher);
        if self.owner == Some(publisher) {
            self.owner = None;
        }
        let last = before > 0 && self.publishers.is_empty() && self.state == InstanceState::Alive;
        if last { self.become_now(InstanceState::NoPublishers) } else { None }
    }

    fn report(&self) -> InstanceReport {
        let Instance { key, state, publishers, deadlines, .. } = self;
        let (state, publishers, deadlines_missed) = (*state, publishers.len(), deadlines.missed());
        InstanceReport { key: key.clone(), state, publishers, deadlines_missed }
    }

    fn become_now(&mut self, state: InstanceState) -> Option<InstanceState> {
        if state != InstanceState::Alive {
            self.deadlines.end();
        }
        (std::mem::replace(&mut self.state, state) != state).then_some(state)
    }
}

/// All instances, by their numbers.
pub(super) struct Known {
    most: usize,
    all: HashMap<u64, Instance>,
}

impl Known {
    /// No instances yet; at most `most`.
    pub(super) fn new(most: usize) -> Self {
        Self { most, all: HashMap::new() }
    }

    /// The most instances there may be.
    pub(super) fn most(&self) -> u32 {
        u32::try_from(self.most).unwrap_or(u32::MAX)
    }

    /// `true` if an instance is known or may be added. Ended instances give way.
    pub(super) fn has_room(&mut self, key: u64) -> bool {
        if self.all.len() < self.most || self.all.contains_key(&key) {
            return true;
        }
        self.all.retain(|_, instance| instance.state == InstanceState::Alive);
        self.all.len() < self.most
    }

    /// One of them, if it is known.
    pub(super) fn find(&self, key: u64) -> Option<&Instance> {
        self.all.get(&key)
    }

    /// An instance, known from now on; `name` gives its key in words.
    pub(super) fn at(&mut self, key: u64, name: impl FnOnce() -> String) -> &mut Instance {
        self.all.entry(key).or_insert_with(|| Instance { key: name(), ..Instance::default() })
    }

    /// All of them.
    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Instance> {
        self.all.values_mut()
    }

    /// Notes a publisher's statement about an instance.
    pub(super) fn note(&mut self, key: u64, publisher: PortRef, change: Change, news: &mut Vec<News>) {
        if let Some(instance) = self.all.get_mut(&key) {
            let state = instance.note(publisher, change);
            tell_state(instance, state, news);
        }
    }

    /// Removes a publisher from all instances: it left, or gives no sign of life.
    pub(super) fn lose(&mut self, publisher: PortRef, news: &mut Vec<News>) {
        for instance in self.all.values_mut() {
            let state = instance.lose(publisher);
            tell_state(instance, state, news);
        }
    }

    /// The first moment at which a sample is due.
    pub(super) fn next(&self) -> Option<u64> {
        self.all.values().filter_map(|instance| instance.deadlines.next()).min()
    }

    /// Reports the deadlines missed since the last report: `missed` of `total`.
    pub(super) fn tell_missed(&mut self, missed: u64, total: u64, news: &mut Vec<News>) {
        let instances = self.all.values_mut().map(|i| (i.key.as_str(), &mut i.deadlines));
        tell_missed(missed, total, instances, news);
    }

    /// The instances of a topic with a key, by their keys.
    pub(super) fn reports(&self) -> Vec<InstanceReport> {
        let mut reports: Vec<_> = self.keyed().map(Instance::report).collect();
        reports.sort_by(|one, other| one.key.cmp(&other.key));
        reports
    }

    /// The instances of a topic with a key that missed most deadlines, at most `most`.
    pub(super) fn late(&self, most: usize) -> Vec<InstanceReport> {
        let late = self.keyed().filter(|instance| instance.deadlines.missed() > 0);
        let mut reports: Vec<_> = late.map(Instance::report).collect();
        reports.sort_by(|one, other| (other.deadlines_missed, &one.key).cmp(&(one.deadlines_missed, &other.key)));
        reports.truncate(most);
        reports
    }

    fn keyed(&self) -> impl Iterator<Item = &Instance> {
        self.all.values().filter(|instance| !instance.key.is_empty())
    }
}

/// Reports a change of an instance. A new instance is no news, and a topic without a key has none.
fn tell_state(instance: &Instance, state: Option<InstanceState>, news: &mut Vec<News>) {
    if let Some(state) = state.filter(|_| !instance.key.is_empty() && news.len() < MOST_NEWS) {
        news.push(News::InstanceChanged { key: instance.key.clone(), state });
    }
}

/// The time by which the next sample must come; before the first sample there is no deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Due(Option<u64>);

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

/// Reports the deadlines that instances missed since the last report, by key where there is one. All missed `missed` of `total`.
pub(super) fn tell_missed<'a>(
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

/// The most changes that wait to be reported. Further changes are not reported, but [`Known::reports`] shows them.
const MOST_NEWS: usize = 256;

/// The most instances that are named in a report of missed deadlines; further ones are reported together.
const MOST_NAMED: usize = 16;

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
        tell_missed(missed, missed, all.iter_mut().map(|(key, deadlines)| (key.as_str(), deadlines)), &mut news);
        let told = |id: usize| News::DeadlineMissed { instance: Some(format!("id = {id}")), missed: 2, total: 38 };
        let mut expected: Vec<News> = (0..18).filter(|id| ![3, 5].contains(id)).map(told).collect();
        expected.push(News::DeadlineMissed { instance: None, missed: 6, total: 38 });
        assert_eq!(news, expected);
        news.clear();
        missed = all[19].1.look(131, 10);
        tell_missed(missed, 39, all.iter_mut().map(|(key, deadlines)| (key.as_str(), deadlines)), &mut news);
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
