//! Figures of stages: their histograms of fixed size, and the measurements as they travel and are shown.

use super::Stage;
use super::lateness::{Arrived, Asked, Since};
use crate::carrier;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Times of one stage, in microseconds; all but the mean within 1 %.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Figures {
    /// Samples.
    pub n: u64,
    /// Exact.
    #[serde(rename = "mean")]
    pub mean_us: f64,
    #[serde(rename = "min")]
    pub min_us: f64,
    #[serde(rename = "p50")]
    pub p50_us: f64,
    #[serde(rename = "p90")]
    pub p90_us: f64,
    #[serde(rename = "p99")]
    pub p99_us: f64,
    #[serde(rename = "p999")]
    pub p999_us: f64,
    #[serde(rename = "p9999")]
    pub p9999_us: f64,
    #[serde(rename = "max")]
    pub max_us: f64,
}

impl Figures {
    pub(super) fn of(histogram: &Histogram<u32>, sum: u128) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |quantile| us(histogram.value_at_quantile(quantile).min(histogram.max()));
        Self {
            n: histogram.len(),
            mean_us: sum as f64 / histogram.len() as f64 / 1e3,
            min_us: us(histogram.min()),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            max_us: us(histogram.max()),
        }
    }
}

/// The stages of one end of a channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StagesReport {
    /// The topic.
    pub topic: String,
    /// Publisher's port name.
    pub publisher: String,
    /// Subscriber's port name.
    pub subscriber: String,
    /// The carrier.
    pub carrier: carrier::Name,
    /// The reporting end; `relay` in the place of the publisher, for a stream that a relay hosts.
    pub end: End,
    /// One sample in this many is measured.
    pub every: u32,
    /// Samples that were left out because of a report at that moment.
    pub missed: u64,
    /// Each stage that was seen, by its name.
    pub stages_us: BTreeMap<String, Figures>,
}

impl StagesReport {
    /// Mean of a stage in microseconds; 0 where it was not seen.
    fn mean(&self, stage: &str) -> f64 {
        self.stages_us.get(stage).map_or(0.0, |figures| figures.mean_us)
    }
}

/// The end of a channel that reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The node that publishes, or a relay in its place.
    #[default]
    Publisher,
    /// The node that subscribes.
    Subscriber,
    /// A relay that hosts the stream: only of its stages ([`StagesReport`]).
    Relay,
}

impl End {
    /// Its name, in lower case, as it travels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publisher => "publisher",
            Self::Subscriber => "subscriber",
            Self::Relay => "relay",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Mean time on the wire of the samples that both ends measured, in microseconds: `transit` less the stages around
/// it. For a stream from a relay it is the time from the relay on, with the relay's end as the publisher's. `None`:
/// the ends have no common clock, or did not measure the same number of samples yet (within 1 %).
pub fn wire_us(publisher: &StagesReport, subscriber: &StagesReport) -> Option<f64> {
    let (sent, came) = (publisher.stages_us.get("send")?.n, subscriber.stages_us.get("transit")?.n);
    let before = publisher.stages_us.get("publish")?.mean_us + publisher.mean("queue") + publisher.mean("send");
    let alike = publisher.every == subscriber.every && sent.abs_diff(came) <= 1 + sent / 100;
    alike.then(|| subscriber.mean("transit") - before - subscriber.mean("receive"))
}

/// The record of one end of a channel.
pub(super) struct Record {
    times: Vec<Times>,
    /// Lateness since it was last asked for.
    since: Since,
    /// The last answer, and its asker.
    told: Option<(Asked, Since)>,
}

/// The times of one stage.
#[derive(Clone)]
pub(super) struct Times {
    histogram: Option<Histogram<u32>>, // `None`: the bounds are refused, which they are not
    sum: u128,                         // exact, so that means add up
}

impl Default for Record {
    fn default() -> Self {
        let times = |_| Times { histogram: Histogram::new_with_bounds(1, LONGEST, DIGITS).ok(), sum: 0 };
        Self { times: Stage::ALL.iter().map(times).collect(), since: Since::default(), told: None }
    }
}

impl Times {
    /// `None`: the stage was not noted.
    pub(super) fn figures(&self) -> Option<Figures> {
        let histogram = self.histogram.as_ref().filter(|histogram| !histogram.is_empty())?;
        Some(Figures::of(histogram, self.sum))
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
        let of = |(stage, times): (&Stage, &Times)| Some((*stage, times.figures()?));
        Stage::ALL.iter().zip(&self.times).filter_map(of).collect()
    }

    /// The times of a stage.
    pub(super) fn times(&self, stage: Stage) -> Option<Times> {
        self.times.get(stage as usize).cloned()
    }
}

/// Longest time that is distinguished, in nanoseconds; longer ones count as this.
const LONGEST: u64 = 60_000_000_000;
/// Significant digits: an error of 1 %, at 15 KiB per stage.
const DIGITS: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_travels_as_its_name() {
        for end in [End::Publisher, End::Subscriber, End::Relay] {
            let text = serde_json::to_string(&end).unwrap();
            assert_eq!(text, format!("\"{end}\""));
            assert_eq!(serde_json::from_str::<End>(&text).unwrap(), end);
        }
    }
}
