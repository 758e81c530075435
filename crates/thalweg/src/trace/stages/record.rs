//! Histograms of fixed size, one per stage.

use super::lateness::{Arrived, Asked, Since};
use super::{Figures, Stage};
use hdrhistogram::Histogram;

/// Longest time that is distinguished, in nanoseconds; longer ones count as this.
const LONGEST: u64 = 60_000_000_000;
/// Significant digits: an error of 1 %, at 15 KiB per stage.
const DIGITS: u8 = 2;

/// The record of one end of a channel.
pub(super) struct Record {
    times: Vec<Times>,
    /// Lateness since it was last asked for.
    since: Since,
    /// The last answer, and its asker.
    told: Option<(Asked, Since)>,
}

struct Times {
    histogram: Option<Histogram<u32>>, // `None`: the bounds are refused, which they are not
    sum: u128,                         // exact, so that means add up
}

impl Default for Record {
    fn default() -> Self {
        let times = |_| Times { histogram: Histogram::new_with_bounds(1, LONGEST, DIGITS).ok(), sum: 0 };
        Self { times: Stage::ALL.iter().map(times).collect(), since: Since::default(), told: None }
    }
}

impl Record {
    pub(super) fn add(&mut self, stage: Stage, ns: u64) {
        if let Some(times) = self.times.get_mut(stage as usize)
            && let Some(histogram) = &mut times.histogram
        {
            histogram.saturating_record(ns);
            times.sum += u128::from(ns);
        }
        self.since.took(stage, ns);
    }

    /// A sample was delivered.
    pub(super) fn arrive(&mut self, took: &[(Stage, u64)], arrived: &Arrived) {
        took.iter().for_each(|(stage, ns)| self.add(*stage, *ns));
        self.since.arrive(took, arrived);
    }

    /// The events since the last call, with those of an earlier answer that did not arrive.
    pub(super) fn take(&mut self, after_ns: i64, asked: Asked) -> Since {
        let since = self.since.take(after_ns);
        let lost = |(told, _): &(Asked, Since)| told.asker == asked.asker && told.look != asked.received;
        let since = match self.told.take().filter(lost) {
            Some((_, earlier)) => since.and(earlier),
            None => since,
        };
        self.told = Some((asked, since.clone()));
        since
    }

    pub(super) fn clear(&mut self) {
        (self.since, self.told) = (Since::default(), None);
        for times in &mut self.times {
            times.sum = 0;
            times.histogram.as_mut().map(Histogram::reset).unwrap_or_default();
        }
    }

    /// Figures of each stage that was noted at all.
    pub(super) fn figures(&self) -> Vec<(Stage, Figures)> {
        let of = |(stage, times): (&Stage, &Times)| {
            let histogram = times.histogram.as_ref().filter(|histogram| !histogram.is_empty())?;
            Some((*stage, Figures::of(histogram, times.sum)))
        };
        Stage::ALL.iter().zip(&self.times).filter_map(of).collect()
    }
}
