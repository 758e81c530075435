//! All policies of a subscriber together: one verdict for each sample, and the news when time passes.

use super::instances::Known;
use super::{News, ns};
use crate::channel::{Change, InstanceReport, PortRef, SampleInfo};
use crate::codec::{PolicyFields, WHOLE_TOPIC};
use qos::{DestinationOrder, LivelinessKind, Ownership, Qos};
use serde::{Deserialize, Serialize};

/// The default limit of a subscriber's instances.
const MOST_INSTANCES: u32 = 4096;
/// The most instances in a report of those that missed deadlines.
const MOST_LATE: usize = 8;

/// Samples that a subscriber's policies dropped or noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyCounts {
    /// Deadlines that passed without a sample, one for each period and instance.
    pub deadlines_missed: u64,
    /// Samples that were older than their lifespan: dropped.
    pub expired: u64,
    /// Samples that came although the content filter does not hold for them: dropped.
    pub filtered: u64,
    /// Samples too soon after the one before: dropped.
    pub separated: u64,
    /// Samples older than one that was delivered already, by source time stamps: dropped.
    pub outdated: u64,
    /// Samples of a publisher that does not own the instance: dropped.
    pub not_owned: u64,
    /// Samples beyond the limits of samples, instances or samples of an instance: dropped.
    pub rejected: u64,
    /// Samples that came later than the latency budget: delivered.
    pub over_budget: u64,
}

/// A publisher as a subscriber sees it.
pub(crate) struct Writer {
    /// Its port.
    pub port: PortRef,
    /// Its name.
    pub name: String,
    /// Its topic's number.
    pub topic: u64,
    /// Its offer.
    pub offered: Qos,
    /// The places of key and filter in its type.
    pub policy_fields: PolicyFields,
    /// The names of the key's fields.
    pub key: Vec<String>,
    /// `true` if the filter is evaluated here, and not at the publisher (multicast).
    pub filters_here: bool,
}

struct Living {
    writer: Writer,
    last_sign: u64,
    alive: bool,
}

impl Living {
    /// The last moment of its lease; `None`: no end, or its node shows that it is alive by the channel itself.
    fn lease_end(&self) -> Option<u64> {
        let liveliness = &self.writer.offered.liveliness;
        let manual = liveliness.kind != LivelinessKind::Automatic;
        let lease = ns(liveliness.lease).filter(|_| manual && self.alive)?;
        Some(self.last_sign.saturating_add(lease))
    }
}

/// Time and host of a sample's publication and reception.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    of: PortRef,
    source: u64,
    received: u64,
    same_clock: bool,
}

impl Stamp {
    /// Nanoseconds between the publication of `earlier` and this one; between their reception where the clocks differ.
    fn after(self, earlier: Stamp) -> i128 {
        if self.comparable(earlier) {
            i128::from(self.source) - i128::from(earlier.source)
        } else {
            i128::from(self.received) - i128::from(earlier.received)
        }
    }

    fn comparable(self, other: Stamp) -> bool {
        self.of.node == other.of.node || (self.same_clock && other.same_clock)
    }
}

/// The policies of one subscriber.
pub(crate) struct Reading {
    deadline: Option<u64>,
    budget: Option<u64>,
    lifespan: Option<u64>,
    separation: u64,
    by_source: bool,
    exclusive: bool,
    instances: Known,
    writers: Vec<Living>,
    counts: PolicyCounts,
    told: PolicyCounts,
}

impl Reading {
    /// The policies that `requested` states.
    pub(super) fn new(requested: &Qos) -> Self {
        Self {
            deadline: ns(requested.deadline),
            budget: ns(requested.latency_budget).filter(|budget| *budget > 0),
            lifespan: ns(requested.lifespan),
            separation: ns(requested.separation).unwrap_or(0),
            by_source: requested.destination_order == DestinationOrder::BySource,
            exclusive: requested.ownership == Ownership::Exclusive,
            instances: Known::new(requested.limits.instances.unwrap_or(MOST_INSTANCES) as usize),
            writers: Vec::new(),
            counts: PolicyCounts::default(),
            told: PolicyCounts::default(),
        }
    }

    /// `true` if `requested` states one of them: a port without them has no judge.
    pub(super) fn looks(requested: &Qos) -> bool {
        let default = Qos::default();
        requested.deadline.is_some()
            || requested.lifespan.is_some()
            || requested.separation.is_some()
            || requested.filter.is_some()
            || !requested.key.is_empty()
            || ns(requested.latency_budget).is_some_and(|budget| budget > 0)
            || requested.liveliness != default.liveliness
            || requested.ownership != default.ownership
            || requested.destination_order != default.destination_order
            || requested.limits.instances.is_some()
    }

    /// The counters so far.
    pub(super) fn counts(&self) -> PolicyCounts {
        self.counts
    }

    /// A channel from a publisher opens.
    pub(super) fn came(&mut self, writer: Writer, now: u64) {
        self.writers.retain(|known| known.writer.port != writer.port);
        self.writers.push(Living { writer, last_sign: now, alive: true });
    }

    /// The channel from a publisher ended: it owns no instance any more.
    pub(super) fn left(&mut self, publisher: PortRef, news: &mut Vec<News>) {
        self.writers.retain(|known| known.writer.port != publisher);
        self.instances.lose(publisher, news);
    }

    /// The instances of a topic with a key.
    pub(super) fn instances(&self) -> Vec<InstanceReport> {
        self.instances.reports()
    }

    /// The instances that missed most deadlines.
    pub(super) fn late_instances(&self) -> Vec<InstanceReport> {
        self.instances.late(MOST_LATE)
    }

    /// Notes a publisher's sign of life at `now`. It counts for all of its node's ports with the same liveliness.
    pub(super) fn sign(&mut self, publisher: PortRef, now: u64, news: &mut Vec<News>) {
        let by_node = |known: &Living| known.writer.offered.liveliness.kind == LivelinessKind::ByNode;
        let together = self.writers.iter().any(|known| known.writer.port == publisher && by_node(known));
        for known in &mut self.writers {
            let same = known.writer.port == publisher;
            if same || (together && known.writer.port.node == publisher.node && by_node(known)) {
                known.last_sign = now;
                if !known.alive {
                    known.alive = true;
                    news.push(News::LivelinessChanged { publisher: known.writer.name.clone(), alive: true });
                }
            }
        }
    }

    /// `true` if a sample that is there at `now` is delivered.
    pub(super) fn takes(&mut self, info: &SampleInfo, bytes: &[u8], news: &mut Vec<News>) -> bool {
        let (publisher, now) = (PortRef { node: info.node, port: info.port }, info.received_ns);
        self.sign(publisher, now, news);
        let writer = self.writers.iter().map(|known| &known.writer).find(|writer| writer.port == publisher);
        let age = info.latency_ns();
        let lifespan = [self.lifespan, writer.and_then(|w| ns(w.offered.lifespan))].into_iter().flatten().min();
        if lifespan.zip(age).is_some_and(|(lifespan, age)| age > lifespan) {
            return drop_for(&mut self.counts.expired);
        }
        if writer.is_some_and(|writer| writer.filters_here) && !self.holds(info, bytes) {
            return drop_for(&mut self.counts.filtered);
        }
        let Some(key) = self.instance(info, bytes).filter(|key| self.instances.has_room(*key)) else {
            return drop_for(&mut self.counts.rejected);
        };
        let name = || writer.map(|writer| writer.policy_fields.key_text(bytes, &writer.key)).unwrap_or_default();
        self.instances.at(key, name);
        if self.exclusive && !self.owns(publisher, key, info.change) {
            return drop_for(&mut self.counts.not_owned);
        }
        let stamp = Stamp { of: publisher, source: info.source_ns, received: now, same_clock: info.same_clock };
        self.is_in_order(key, stamp) && {
            self.instances.note(key, publisher, info.change, news);
            info.change != Change::Written || self.takes_in_time(key, stamp, age)
        }
    }

    fn writer(&self, info: &SampleInfo) -> Option<&Writer> {
        let publisher = PortRef { node: info.node, port: info.port };
        self.writers.iter().map(|known| &known.writer).find(|writer| writer.port == publisher)
    }

    /// The number of a sample's instance; `None`: it is no value of its type.
    pub(super) fn instance(&self, info: &SampleInfo, bytes: &[u8]) -> Option<u64> {
        let Some(writer) = self.writer(info) else { return Some(WHOLE_TOPIC) };
        Some(writer.topic.wrapping_add(writer.policy_fields.instance(bytes)?))
    }

    /// `true` if the filter holds for a sample. It always holds for the end of an instance.
    pub(super) fn holds(&self, info: &SampleInfo, bytes: &[u8]) -> bool {
        info.change != Change::Written || self.writer(info).is_none_or(|writer| writer.policy_fields.holds(bytes))
    }

    /// `true` if a publisher owns an instance, or owns it from now on because it is stronger than the owner or there is none.
    /// One that unregisters does not become the owner.
    fn owns(&mut self, publisher: PortRef, key: u64, change: Change) -> bool {
        let strength = |port: PortRef| {
            self.writers.iter().find(|known| known.writer.port == port).map(|k| k.writer.offered.strength)
        };
        let owner = self.instances.find(key).and_then(|instance| instance.owner);
        let wins = match owner {
            Some(owner) if owner != publisher => {
                // The lowest id wins among equal strengths.
                (strength(publisher), std::cmp::Reverse(publisher)) > (strength(owner), std::cmp::Reverse(owner))
                    && change != Change::Unregistered
            }
            _ => true,
        };
        if wins {
            self.instances.at(key, String::new).owner = Some(publisher);
        }
        wins
    }

    /// `true` if the sample is in order: by source stamps, it is not older than the newest of its instance.
    fn is_in_order(&mut self, key: u64, stamp: Stamp) -> bool {
        let instance = self.instances.at(key, String::new);
        let older = |newest: Stamp| stamp.comparable(newest) && stamp.source < newest.source;
        if self.by_source && instance.newest.is_some_and(older) {
            return drop_for(&mut self.counts.outdated);
        }
        instance.newest = Some(stamp);
        true
    }

    /// The policies of time, for a sample of an instance.
    fn takes_in_time(&mut self, key: u64, stamp: Stamp, age: Option<u64>) -> bool {
        let instance = self.instances.at(key, String::new);
        if let Some(period) = self.deadline {
            self.counts.deadlines_missed += instance.deadlines.sample(stamp.received, period);
        }
        let separation = i128::from(self.separation);
        if separation > 0 && instance.taken.is_some_and(|taken| stamp.after(taken) < separation) {
            return drop_for(&mut self.counts.separated);
        }
        instance.taken = Some(stamp);
        self.counts.over_budget += u64::from(self.budget.zip(age).is_some_and(|(budget, age)| age > budget));
        true
    }

    /// The effects of time up to `now`.
    pub(super) fn look(&mut self, now: u64, news: &mut Vec<News>) {
        if let Some(period) = self.deadline {
            for instance in self.instances.each() {
                let missed = instance.deadlines.look(now, period);
                self.counts.deadlines_missed += missed;
                if missed > 0 {
                    instance.owner = None; // an owner that misses the deadline loses the instance
                }
            }
        }
        let late = |known: &Living| known.lease_end().is_some_and(|end| now > end);
        let dead: Vec<PortRef> = self.writers.iter().filter(|k| late(k)).map(|k| k.writer.port).collect();
        for known in self.writers.iter_mut().filter(|known| dead.contains(&known.writer.port)) {
            known.alive = false;
            news.push(News::LivelinessChanged { publisher: known.writer.name.clone(), alive: false });
        }
        dead.into_iter().for_each(|publisher| self.instances.lose(publisher, news));
    }

    /// The counts since the last report.
    pub(super) fn tell(&mut self, news: &mut Vec<News>) {
        let (now, told) = (self.counts, std::mem::replace(&mut self.told, self.counts));
        self.instances.tell_missed(now.deadlines_missed - told.deadlines_missed, now.deadlines_missed, news);
        if now.over_budget > told.over_budget {
            news.push(News::BudgetExceeded { late: now.over_budget - told.over_budget, total: now.over_budget });
        }
        if now.rejected > told.rejected {
            news.push(News::Rejected {
                most: self.instances.most(),
                rejected: now.rejected - told.rejected,
                total: now.rejected,
            });
        }
    }

    /// The latest time to look again; `None`: no state changes by time.
    pub(super) fn next(&self) -> Option<u64> {
        let leases = self.writers.iter().filter_map(|known| Some(known.lease_end()?.saturating_add(1)));
        self.instances.next().into_iter().chain(leases).min()
    }
}

fn drop_for(count: &mut u64) -> bool {
    *count += 1;
    false
}

#[cfg(test)]
mod tests;
