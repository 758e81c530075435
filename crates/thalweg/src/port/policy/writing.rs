//! The policies of a publisher that depend on time: the deadline and the signs of life that it promised.

use super::instances::{Deadlines, tell_missed};
use super::{News, ns};
use crate::channel::Change;
use crate::codec::PolicyFields;
use qos::{LivelinessKind, Qos};
use std::collections::HashMap;

/// The most instances whose deadline is watched; further ones share one.
const MOST_INSTANCES: usize = 4096;

/// The policies of one publisher.
pub(crate) struct Writing {
    deadline: Option<u64>,
    lease: Option<u64>,
    policy_fields: PolicyFields,
    /// The names of the key's fields.
    key: Vec<String>,
    /// With their keys.
    instances: HashMap<u64, (String, Deadlines)>,
    scratch: Vec<u8>,
    last_sign: u64,
    alive: bool,
    missed: u64,
    told: u64,
}

impl Writing {
    /// The policies that `offered` states, of a port that opens at `now`.
    pub(super) fn new(offered: &Qos, policy_fields: PolicyFields, now: u64) -> Self {
        let manual = offered.liveliness.kind != LivelinessKind::Automatic;
        Self {
            deadline: ns(offered.deadline),
            lease: ns(offered.liveliness.lease).filter(|_| manual),
            policy_fields,
            key: offered.key.clone(),
            instances: HashMap::new(),
            scratch: Vec::new(),
            last_sign: now,
            alive: true,
            missed: 0,
            told: 0,
        }
    }

    /// Notes a message published at `now`. `encode` gives its bytes, if they distinguish instances.
    /// An instance that ends with it has no deadline any more.
    pub(super) fn published(&mut self, now: u64, change: Change, encode: impl FnOnce(&mut Vec<u8>) -> bool) {
        self.last_sign = now;
        let Some(period) = self.deadline else { return };
        self.scratch.clear();
        let known = self.policy_fields.is_nothing() || encode(&mut self.scratch);
        let key = self.policy_fields.instance(&self.scratch).filter(|_| known).unwrap_or(u64::MAX);
        let key =
            if self.instances.len() < MOST_INSTANCES || self.instances.contains_key(&key) { key } else { u64::MAX };
        let (policy_fields, scratch, names) = (&self.policy_fields, &self.scratch, &self.key);
        let text = || if key == u64::MAX { String::new() } else { policy_fields.key_text(scratch, names) };
        let (_, deadlines) = self.instances.entry(key).or_insert_with(|| (text(), Deadlines::default()));
        self.missed += deadlines.sample(now, period);
        if change != Change::Written {
            self.instances.remove(&key);
        }
    }

    /// Notes that the program asserts its liveliness at `now`.
    pub(super) fn sign(&mut self, now: u64) {
        self.last_sign = now;
    }

    fn lease_end(&self) -> Option<u64> {
        self.lease.map(|lease| self.last_sign.saturating_add(lease))
    }

    /// The effects of time up to `now`.
    pub(super) fn look(&mut self, now: u64, name: &str, news: &mut Vec<News>) {
        if let Some(period) = self.deadline {
            self.missed += self.instances.values_mut().map(|(_, deadlines)| deadlines.look(now, period)).sum::<u64>();
        }
        let alive = self.lease_end().is_none_or(|end| now <= end);
        if alive != self.alive {
            self.alive = alive;
            news.push(News::LivelinessChanged { publisher: name.to_owned(), alive });
        }
    }

    /// The counts since the last report.
    pub(super) fn tell(&mut self, news: &mut Vec<News>) {
        let missed = self.missed - std::mem::replace(&mut self.told, self.missed);
        let instances = self.instances.values_mut().map(|(key, deadlines)| (key.as_str(), deadlines));
        tell_missed(missed, self.missed, instances, news);
    }

    /// The latest time to look again; `None`: no state changes by time.
    pub(super) fn next(&self) -> Option<u64> {
        let lease = self.lease_end().filter(|_| self.alive).map(|end| end.saturating_add(1));
        self.instances.values().filter_map(|(_, deadlines)| deadlines.next()).chain(lease).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::Liveliness;
    use std::time::Duration;

    fn missed(missed: u64, total: u64) -> News {
        News::DeadlineMissed { instance: None, missed, total }
    }

    #[test]
    fn a_promise_that_is_not_kept_is_noticed_to_the_nanosecond() {
        let nothing = || PolicyFields::find(None, &[], None).unwrap();
        let liveliness = Liveliness { kind: LivelinessKind::ByPort, lease: Some(Duration::from_nanos(50)) };
        let offered = Qos { deadline: Some(Duration::from_nanos(20)), liveliness, ..Qos::default() };
        let mut writing = Writing::new(&offered, nothing(), 1000);
        assert_eq!(writing.next(), Some(1051));
        writing.published(1010, Change::Written, |_| true);
        let look = |writing: &mut Writing, now| {
            let mut news = Vec::new();
            writing.look(now, "/p", &mut news);
            writing.tell(&mut news);
            news
        };
        assert_eq!((look(&mut writing, 1030), writing.next()), (vec![], Some(1031)));
        assert_eq!(look(&mut writing, 1031), [missed(1, 1)]);
        assert_eq!(look(&mut writing, 1060), [missed(1, 2)]);
        let changed = |alive| News::LivelinessChanged { publisher: "/p".into(), alive };
        assert_eq!(look(&mut writing, 1061), [changed(false)]);
        writing.sign(1070);
        assert_eq!(look(&mut writing, 1070), [changed(true)]);
        // A disposed instance is not due any more.
        writing.published(1075, Change::Disposed, |_| true);
        assert_eq!((look(&mut writing, 1120), writing.next()), (vec![missed(1, 3)], Some(1126)));
    }
    #[test]
    fn a_promise_for_an_instance_names_it() {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct Arm {
            name: String,
        }
        let key = vec!["name".to_owned()];
        let policy_fields =
            PolicyFields::find(crate::codec::TypeDescription::of::<Arm>().schema.as_deref(), &key, None).unwrap();
        let offered = Qos { deadline: Some(Duration::from_nanos(20)), key, ..Qos::default() };
        let mut writing = Writing::new(&offered, policy_fields, 1000);
        let mut says = |now, name: &str, change| {
            let arm = Arm { name: name.into() };
            writing.published(now, change, |bytes| crate::codec::to_cdr(&arm).map(|cdr| bytes.extend(cdr)).is_ok());
            let mut news = Vec::new();
            writing.look(now, "/p", &mut news);
            writing.tell(&mut news);
            news
        };
        assert_eq!(says(1000, "left", Change::Written), []);
        assert_eq!(says(1010, "right", Change::Written), []);
        let of = |name: &str, missed, total| News::DeadlineMissed {
            instance: Some(format!("name = {name}")),
            missed,
            total,
        };
        assert_eq!(says(1021, "right", Change::Written), [of("left", 1, 1)]);
        assert_eq!(says(1040, "left", Change::Disposed), []);
        assert_eq!(says(1042, "low", Change::Written), [of("right", 1, 2)]);
    }
}
