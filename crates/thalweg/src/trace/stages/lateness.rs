//! Lateness of samples since it was last asked for, in fixed memory: `thalweg verify` compares it with a plan (F-4).

use super::{End, Figures, Stage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most channels that one [`Request::Lateness`](crate::admin::Request::Lateness) may ask of: each is looked for among all of
/// the node's.
pub const MOST_LATENESS: usize = 256;

/// The limit beyond which a channel's samples are late.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateAfter {
    /// The topic.
    pub topic: String,
    /// Publisher's port name.
    pub publisher: String,
    /// Subscriber's port name.
    pub subscriber: String,
    /// Nanoseconds from the stamp of `publish`, by the publisher's clock, to the end of the callback, by the subscriber's: below 0
    /// where that clock is behind.
    pub after_ns: i64,
}

/// A client of lateness, and its receipt of earlier answers. A node that was stopped answers too late, and the
/// content of that answer must not be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// A number of the asker's own.
    pub asker: u64,
    /// The number of this question, from 1.
    pub look: u64,
    /// The last one that this node's answer arrived to; 0: none.
    pub received: u64,
}

/// Lateness of a channel's samples since the last report, at one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatenessReport {
    /// Publisher's port name.
    pub publisher: String,
    /// Subscriber's port name.
    pub subscriber: String,
    /// The reporting end; for carrier `local`, where they are one, `subscriber` with all stages.
    pub end: End,
    /// Samples that were delivered and measured (subscriber).
    pub samples: u64,
    /// Samples later than [`LateAfter::after_ns`].
    pub late: u64,
    /// Samples that came after one with a higher number.
    pub disordered: u64,
    /// Bytes of the largest.
    pub largest_bytes: u64,
    /// The longest time of each stage of this end.
    pub longest_ns: BTreeMap<String, u64>,
    /// The sample that was delivered the longest time after it was published.
    pub latest: Option<Latest>,
    /// Times of all samples since the measurement began, from the call of `publish` to the end of the callback; `None`: there is none, or the ends have
    /// no common clock (subscriber).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Figures>,
}

/// The latest sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latest {
    /// Its number.
    pub seq: u64,
    /// Time of the call of `publish`, by the publisher's clock.
    pub published_ns: u64,
    /// Time at which its callback returned, or it waited to be taken, by the subscriber's clock.
    pub done_ns: u64,
    /// Its own stages at the subscriber.
    pub stages_ns: BTreeMap<String, u64>,
}

/// A sample that was just delivered.
#[derive(Clone, Copy)]
pub(crate) struct Arrived {
    pub seq: u64,
    pub size: usize,
    pub published_ns: u64,
    pub done_ns: u64,
}

impl Arrived {
    /// The age by the clocks of both ends, with any values.
    fn age(&self) -> i64 {
        self.done_ns.wrapping_sub(self.published_ns).cast_signed()
    }
}

type Times = [Option<u64>; Stage::ALL.len()];

/// The events since the last request.
#[derive(Clone)]
pub(crate) struct Since {
    after_ns: i64,
    highest: u64,
    samples: u64,
    late: u64,
    disordered: u64,
    largest: usize,
    longest: Times,
    latest: Option<(Arrived, Times)>,
}

impl Default for Since {
    fn default() -> Self {
        Self::beginning(i64::MAX, 0)
    }
}

impl Since {
    fn beginning(after_ns: i64, highest: u64) -> Self {
        let nothing = Times::default();
        Self { after_ns, highest, samples: 0, late: 0, disordered: 0, largest: 0, longest: nothing, latest: None }
    }

    /// Takes all of it, and starts from zero.
    pub(crate) fn take(&mut self, after_ns: i64) -> Self {
        let highest = self.highest;
        std::mem::replace(self, Self::beginning(after_ns, highest))
    }

    /// Adds earlier events.
    pub(crate) fn and(mut self, earlier: Self) -> Self {
        self.samples += earlier.samples;
        self.late += earlier.late;
        self.disordered += earlier.disordered;
        self.largest = self.largest.max(earlier.largest);
        for (time, before) in self.longest.iter_mut().zip(earlier.longest) {
            *time = (*time).max(before);
        }
        let age = |latest: &Option<(Arrived, Times)>| latest.as_ref().map(|(arrived, _)| arrived.age());
        if age(&earlier.latest) > age(&self.latest) {
            self.latest = earlier.latest;
        }
        self
    }

    /// Notes the duration of a stage of a sample.
    pub(crate) fn took(&mut self, stage: Stage, ns: u64) {
        if let Some(longest) = self.longest.get_mut(stage as usize) {
            *longest = (*longest).max(Some(ns));
        }
    }

    /// A sample was delivered.
    pub(crate) fn arrive(&mut self, took: &[(Stage, u64)], arrived: &Arrived) {
        let age = arrived.age();
        self.samples += 1;
        self.late += u64::from(age > self.after_ns);
        self.disordered += u64::from(arrived.seq <= self.highest);
        self.highest = self.highest.max(arrived.seq);
        self.largest = self.largest.max(arrived.size);
        if self.latest.as_ref().is_none_or(|(latest, _)| age > latest.age()) {
            let mut times = Times::default();
            for (stage, ns) in took {
                times.get_mut(*stage as usize).map(|time| *time = Some(*ns)).unwrap_or_default();
            }
            self.latest = Some((*arrived, times));
        }
    }

    /// The report, as it travels.
    pub(crate) fn report(self, publisher: &str, subscriber: &str, end: End) -> LatenessReport {
        let latest = |(arrived, times): (Arrived, Times)| Latest {
            seq: arrived.seq,
            published_ns: arrived.published_ns,
            done_ns: arrived.done_ns,
            stages_ns: named(&times),
        };
        LatenessReport {
            publisher: publisher.to_owned(),
            subscriber: subscriber.to_owned(),
            end: end.to_owned(),
            samples: self.samples,
            late: self.late,
            disordered: self.disordered,
            largest_bytes: self.largest as u64,
            longest_ns: named(&self.longest),
            latest: self.latest.map(latest),
            total: None,
        }
    }
}

fn named(times: &Times) -> BTreeMap<String, u64> {
    let seen = Stage::ALL.iter().zip(times).filter_map(|(stage, ns)| Some((stage, (*ns)?)));
    seen.map(|(stage, ns)| (stage.name().to_owned(), ns)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(seq: u64, published_ns: u64, done_ns: u64) -> Arrived {
        Arrived { seq, size: 10, published_ns, done_ns }
    }

    #[test]
    fn the_latest_late_ones_and_those_out_of_order_are_told_once() {
        let mut since = Since::default();
        assert_eq!(since.take(5_000).samples, 0);
        for (seq, age) in [(1, 1_000), (3, 9_000), (2, 5_000), (4, 5_001)] {
            since.arrive(&[(Stage::Decode, age / 10)], &arrived(seq, 1_000_000, 1_000_000 + age));
        }
        since.took(Stage::Callback, 7);
        let report = since.take(5_000).report("/p", "/s", End::Subscriber);
        assert_eq!((report.samples, report.late, report.disordered, report.largest_bytes), (4, 2, 1, 10));
        assert_eq!(report.longest_ns, BTreeMap::from([("callback".to_owned(), 7)]));
        let latest = report.latest.unwrap();
        assert_eq!((latest.seq, latest.stages_ns["decode"]), (3, 900));
        since.arrive(&[], &arrived(4, 0, 1));
        let next = since.take(0).report("/p", "/s", End::Subscriber);
        assert_eq!((next.samples, next.late, next.disordered), (1, 0, 1), "the highest number is remembered");
    }

    #[test]
    fn clocks_may_say_anything() {
        let mut since = Since::default();
        since.take(-1_000);
        since.arrive(&[], &arrived(1, 10_000, 9_500)); // 500 ns later than the limit says
        since.arrive(&[], &arrived(2, u64::MAX, 0));
        since.arrive(&[], &arrived(3, 0, u64::MAX));
        let report = since.take(0).report("/p", "/s", End::Subscriber);
        assert_eq!((report.samples, report.late), (3, 3));
        assert_eq!(report.latest.map(|latest| latest.seq), Some(2));
    }
}
