//! The instances that a subscriber knows: the publishers of each, its state, and its last sample (DDS 1.4, §2.2.2.5.1.3).
//! Pure; bounded.

use super::News;
use super::deadline::{self, Deadlines};
use crate::channel::{Change, InstanceReport, InstanceState, PortRef};
use std::collections::HashMap;

/// The most changes that wait to be reported. Further changes are not reported, but [`Known::reports`] shows them.
const MOST_NEWS: usize = 256;

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
            tell(instance, state, news);
        }
    }

    /// Removes a publisher from all instances: it left, or gives no sign of life.
    pub(super) fn lose(&mut self, publisher: PortRef, news: &mut Vec<News>) {
        for instance in self.all.values_mut() {
            let state = instance.lose(publisher);
            tell(instance, state, news);
        }
    }

    /// The first moment at which a sample is due.
    pub(super) fn next(&self) -> Option<u64> {
        self.all.values().filter_map(|instance| instance.deadlines.next()).min()
    }

    /// Reports the deadlines missed since the last report: `missed` of `total`.
    pub(super) fn tell_missed(&mut self, missed: u64, total: u64, news: &mut Vec<News>) {
        let instances = self.all.values_mut().map(|i| (i.key.as_str(), &mut i.deadlines));
        deadline::tell(missed, total, instances, news);
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
fn tell(instance: &Instance, state: Option<InstanceState>, news: &mut Vec<News>) {
    if let Some(state) = state.filter(|_| !instance.key.is_empty() && news.len() < MOST_NEWS) {
        news.push(News::InstanceChanged { key: instance.key.clone(), state });
    }
}
