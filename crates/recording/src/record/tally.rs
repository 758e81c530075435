//! The samples of one recorded channel: delays of each second, losses by place, totals.

use super::arrivals::Span;
use crate::file::{LatencyFigures, Loss, Place, Timing};
use serde::Serialize;
use thalweg::Change;

/// Samples that are not in the files, by the place where they were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// In the publisher's queue.
    pub publisher: u64,
    /// On the way.
    pub network: u64,
    /// In the recorder.
    pub recorder: u64,
    /// On the disk.
    pub disk: u64,
}

impl Lost {
    /// The number at a place.
    pub fn at(&self, place: Place) -> u64 {
        match place {
            Place::Publisher => self.publisher,
            Place::Network => self.network,
            Place::Recorder => self.recorder,
            Place::Disk => self.disk,
        }
    }

    /// Adds to the number at a place.
    pub(super) fn add(&mut self, place: Place, count: u64) {
        let number = match place {
            Place::Publisher => &mut self.publisher,
            Place::Network => &mut self.network,
            Place::Recorder => &mut self.recorder,
            Place::Disk => &mut self.disk,
        };
        *number = number.saturating_add(count);
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        Place::ALL.iter().fold(0, |sum, place| sum.saturating_add(self.at(*place)))
    }
}

/// The totals of a recorded channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// The topic.
    pub topic: String,
    /// The publisher's port name.
    pub publisher: String,
    /// Samples in the files.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Ends of instances in the files.
    pub ended: u64,
    /// Samples and ends that are not.
    pub lost: Lost,
}

/// Latencies of one second that are kept for the percentiles; the largest one counts in any case.
const MOST_LATENCIES: usize = 1 << 16;

/// The samples of one second.
#[derive(Debug, Default)]
struct Second {
    span: Span,
    latencies: Vec<u64>,
    max: u64,
    uncertainty: u64,
}

/// What is known of one recorded channel.
#[derive(Debug)]
pub(super) struct Tally {
    /// Its index in the output.
    pub(super) channel: usize,
    /// The index of the channel for each kind of ends, once there was one.
    pub(super) ends: Vec<(Change, usize)>,
    pub(super) totals: Recorded,
    second: Second,
    /// Samples that the file has only after the next flush, and their bytes.
    open: (Span, u64),
    /// Ends of instances that the file has only then.
    open_ends: Span,
    /// Losses on the way that were counted.
    on_the_way: u64,
}

impl Tally {
    /// Nothing yet.
    pub(super) fn new(channel: usize, topic: String, publisher: String) -> Self {
        let totals = Recorded { topic, publisher, ..Recorded::default() };
        Self {
            channel,
            ends: Vec::new(),
            totals,
            second: Second::default(),
            open: Default::default(),
            open_ends: Span::default(),
            on_the_way: 0,
        }
    }

    /// Counts a written end of an instance.
    pub(super) fn add_end(&mut self, seq: u64) {
        self.totals.ended += 1;
        self.open_ends.add(seq);
    }

    /// Counts a written sample. `latency`: of a live one, with its uncertainty, if the publisher's clock is known.
    pub(super) fn add(&mut self, seq: u64, bytes: u64, latency: Option<(u64, u64)>) {
        self.totals.samples += 1;
        self.totals.bytes += bytes;
        self.open.0.add(seq);
        self.open.1 += bytes;
        self.second.span.add(seq);
        if let Some((latency, uncertainty)) = latency {
            self.second.max = self.second.max.max(latency);
            self.second.uncertainty = self.second.uncertainty.max(uncertainty);
            if self.second.latencies.len() < MOST_LATENCIES {
                self.second.latencies.push(latency);
            }
        }
    }

    /// Everything so far is in the file.
    pub(super) fn flushed(&mut self) {
        self.open = Default::default();
        self.open_ends = Span::default();
    }

    /// The delays since the last call.
    pub(super) fn take_timing(&mut self) -> Option<Timing> {
        let Second { span, mut latencies, max, uncertainty } = std::mem::take(&mut self.second);
        if span.count == 0 {
            return None;
        }
        latencies.sort_unstable();
        let at = |hundredths: usize| latencies.get((latencies.len() * hundredths).div_ceil(100).saturating_sub(1));
        let figures = at(50).zip(at(99)).map(|(p50, p99)| LatencyFigures { p50: *p50, p99: *p99, max });
        Some(Timing {
            topic: self.totals.topic.clone(),
            publisher: self.totals.publisher.clone(),
            first_seq: span.first,
            last_seq: span.last,
            count: span.count,
            latency_ns: figures,
            uncertainty_ns: figures.map(|_| uncertainty),
        })
    }

    /// Counts samples that did not come. Of these, as many were lost on the way as the channel has counted since; the others never left
    /// the publisher. `on_the_way`: the channel's count so far.
    pub(super) fn lose(&mut self, lost: Span, on_the_way: u64) -> Vec<Loss> {
        let network = on_the_way.saturating_sub(self.on_the_way).min(lost.count);
        self.on_the_way += network;
        let parts = [(Place::Network, network), (Place::Publisher, lost.count - network)];
        let some = parts.into_iter().filter(|(_, count)| *count > 0);
        some.map(|(place, count)| self.lose_at(place, Span { count, ..lost })).collect()
    }

    /// Counts samples that were lost at a place.
    pub(super) fn lose_at(&mut self, place: Place, span: Span) -> Loss {
        self.totals.lost.add(place, span.count);
        Loss {
            topic: self.totals.topic.clone(),
            publisher: self.totals.publisher.clone(),
            first_seq: span.first,
            last_seq: span.last,
            count: span.count,
            place,
        }
    }

    /// The disk has refused: samples since the last flush are not in the file, nor are these `further` ones.
    pub(super) fn lose_on_disk(&mut self, further: Span) -> Option<Loss> {
        let (mut span, bytes) = std::mem::take(&mut self.open);
        self.totals.samples -= span.count;
        self.totals.bytes -= bytes;
        let ends = std::mem::take(&mut self.open_ends);
        self.totals.ended -= ends.count;
        span.join(ends);
        span.join(further);
        (span.count > 0).then(|| self.lose_at(Place::Disk, span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally() -> Tally {
        Tally::new(0, "/t".into(), "/p".into())
    }

    #[test]
    fn a_second_has_its_percentiles_and_its_largest_uncertainty() {
        let mut tally = tally();
        (1..=200).for_each(|n| tally.add(n, 10, Some((n, n % 7))));
        let timing = tally.take_timing().unwrap();
        assert_eq!((timing.first_seq, timing.last_seq, timing.count), (1, 200, 200));
        assert_eq!(timing.latency_ns, Some(LatencyFigures { p50: 100, p99: 198, max: 200 }));
        assert_eq!(timing.uncertainty_ns, Some(6));
        assert_eq!(tally.take_timing(), None);
        tally.add(201, 10, None);
        let unknown = tally.take_timing().unwrap();
        assert_eq!((unknown.count, unknown.latency_ns, unknown.uncertainty_ns), (1, None, None));
    }

    #[test]
    fn losses_have_the_place_that_the_channel_counted() {
        let mut tally = tally();
        let lost = |count| Span { first: 5, last: 20, count };
        let places = |losses: Vec<Loss>| losses.iter().map(|loss| (loss.place, loss.count)).collect::<Vec<_>>();
        assert_eq!(places(tally.lose(lost(10), 3)), [(Place::Network, 3), (Place::Publisher, 7)]);
        assert_eq!(places(tally.lose(lost(2), 8)), [(Place::Network, 2)]);
        assert_eq!(places(tally.lose(lost(4), 8)), [(Place::Network, 3), (Place::Publisher, 1)]);
        assert_eq!(tally.totals.lost, Lost { publisher: 8, network: 8, recorder: 0, disk: 0 });
    }

    #[test]
    fn a_disk_that_refuses_takes_back_what_was_not_flushed() {
        let mut tally = tally();
        (1..=3).for_each(|n| tally.add(n, 10, None));
        tally.flushed();
        (4..=5).for_each(|n| tally.add(n, 10, None));
        let loss = tally.lose_on_disk(Span { first: 6, last: 9, count: 4 }).unwrap();
        assert_eq!((loss.first_seq, loss.last_seq, loss.count, loss.place), (4, 9, 6, Place::Disk));
        assert_eq!((tally.totals.samples, tally.totals.bytes, tally.totals.lost.total()), (3, 30, 6));
        tally.add_end(10);
        assert_eq!((tally.totals.ended, tally.lose_on_disk(Span::default()).map(|loss| loss.first_seq)), (1, Some(10)));
        assert_eq!((tally.totals.ended, tally.totals.samples), (0, 3), "an end is no sample");
        assert_eq!(tally.lose_on_disk(Span::default()), None);
    }
}
