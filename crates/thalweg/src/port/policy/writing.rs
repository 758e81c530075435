//! The policies of a publisher that time passes for: the deadline and the sign of life that it promised.

use super::deadline::Due;
use super::instance::Sought;
use super::{News, ns};
use qos::{LivelinessKind, Qos};
use std::collections::HashMap;

/// Instances whose deadline is watched; all beyond share one.
const MOST_INSTANCES: usize = 4096;

/// The policies of one publisher.
pub(crate) struct Writing {
    deadline: Option<u64>,
    lease: Option<u64>,
    sought: Sought,
    instances: HashMap<u64, Due>,
    last_sign: u64,
    alive: bool,
    missed: u64,
    told: u64,
}

impl Writing {
    /// The policies that `offered` states, of a port that opens at `now`.
    pub fn new(offered: &Qos, sought: Sought, now: u64) -> Self {
        let manual = offered.liveliness.kind != LivelinessKind::Automatic;
        Self {
            deadline: ns(offered.deadline),
            lease: ns(offered.liveliness.lease).filter(|_| manual),
            sought,
            instances: HashMap::new(),
            last_sign: now,
            alive: true,
            missed: 0,
            told: 0,
        }
    }

    /// A message is published at `now`.
    pub fn published(&mut self, bytes: &[u8], now: u64) {
        self.last_sign = now;
        let Some(period) = self.deadline else { return };
        let key = self.sought.instance(bytes).unwrap_or(u64::MAX);
        let key =
            if self.instances.len() < MOST_INSTANCES || self.instances.contains_key(&key) { key } else { u64::MAX };
        self.missed += self.instances.entry(key).or_default().sample(now, period);
    }

    /// The program says at `now` that it is alive.
    pub fn sign(&mut self, now: u64) {
        self.last_sign = now;
    }

    fn lease_end(&self) -> Option<u64> {
        self.lease.map(|lease| self.last_sign.saturating_add(lease))
    }

    /// What time brought up to `now`.
    pub fn look(&mut self, now: u64, name: &str, news: &mut Vec<News>) {
        if let Some(period) = self.deadline {
            self.missed += self.instances.values_mut().map(|due| due.missed(now, period)).sum::<u64>();
        }
        if self.missed > self.told {
            news.push(News::DeadlineMissed { missed: self.missed - self.told, total: self.missed });
            self.told = self.missed;
        }
        let alive = self.lease_end().is_none_or(|end| now <= end);
        if alive != self.alive {
            self.alive = alive;
            news.push(News::LivelinessChanged { publisher: name.to_owned(), alive });
        }
    }

    /// When to look again at the latest; `None`: time brings nothing.
    pub fn next(&self) -> Option<u64> {
        let lease = self.lease_end().filter(|_| self.alive).map(|end| end.saturating_add(1));
        self.instances.values().filter_map(|due| due.next()).chain(lease).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::Liveliness;
    use std::time::Duration;

    fn missed(missed: u64, total: u64) -> News {
        News::DeadlineMissed { missed, total }
    }

    #[test]
    fn a_promise_that_is_not_kept_is_noticed_to_the_nanosecond() {
        let nothing = || Sought::find(None, &[], None).unwrap();
        let liveliness = Liveliness { kind: LivelinessKind::ByPort, lease: Some(Duration::from_nanos(50)) };
        let offered = Qos { deadline: Some(Duration::from_nanos(20)), liveliness, ..Qos::default() };
        let mut writing = Writing::new(&offered, nothing(), 1000);
        let mut news = Vec::new();
        assert_eq!(writing.next(), Some(1051));
        writing.published(&[], 1010);
        writing.look(1030, "/p", &mut news);
        assert_eq!((news.as_slice(), writing.next()), (&[][..], Some(1031)));
        writing.look(1031, "/p", &mut news);
        writing.look(1060, "/p", &mut news);
        assert_eq!(news, [missed(1, 1), missed(1, 2)]);
        news.clear();
        writing.look(1061, "/p", &mut news);
        writing.sign(1070);
        writing.look(1070, "/p", &mut news);
        let changed = |alive| News::LivelinessChanged { publisher: "/p".into(), alive };
        assert_eq!(news, [changed(false), changed(true)]);
    }
}
