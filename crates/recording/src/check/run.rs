//! What a recording has of each topic.

use super::expected::Expected;
use super::figures::Figures;
use super::report::Stage;
use crate::play::Ordered;
use crate::read::{Damage, LOSSES, Message, PUBLISHER, ReadError, Recording, SUBSCRIBER, TIMING};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use thalweg::Change;

/// The figures of a recording.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub(super) flows: BTreeMap<String, Flow>,
    /// The time from a sample of the first topic to the next one of the second.
    pub(super) reactions: BTreeMap<(String, String), Figures>,
    damages: Vec<Damage>,
}

/// A topic in a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    pub(super) samples: u64,
    /// From publication to receipt.
    pub(super) latency: Figures,
    /// Between publications of one publisher.
    pub(super) intervals: Figures,
    /// Samples that were certainly later than the bound.
    pub(super) late: u64,
    /// The bound, ns.
    pub(super) bound_ns: Option<u64>,
    /// Lost samples by the place where they were lost.
    pub(super) lost: BTreeMap<Stage, u64>,
    /// The largest uncertainty of the two clocks, ns.
    pub(super) uncertainty_ns: u64,
    /// The port that recorded it.
    pub(super) recorder: String,
    /// The first and the last publication.
    pub(super) span_ns: Option<(u64, u64)>,
    /// The channels that have it, one for each publisher.
    pub(super) channels: BTreeSet<u16>,
    /// Bytes of the largest sample.
    pub(super) largest: u64,
}

impl Flow {
    /// All lost samples.
    pub(super) fn lost(&self) -> u64 {
        self.lost.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The part of samples that was lost.
    pub(super) fn loss(&self) -> f64 {
        self.lost() as f64 / self.lost().saturating_add(self.samples).max(1) as f64
    }

    /// The part of samples that was late.
    pub(super) fn lateness(&self) -> f64 {
        self.late as f64 / self.latency.count().max(1) as f64
    }

    /// Samples per second of one publisher, if there are enough to tell.
    pub(super) fn rate_hz(&self) -> Option<f64> {
        let (first, last) = self.span_ns?;
        let intervals = self.intervals.count();
        let seconds = last.saturating_sub(first) as f64 / 1e9;
        (intervals >= ENOUGH && seconds > 0.0).then(|| intervals as f64 / seconds / self.channels.len().max(1) as f64)
    }
}

impl Run {
    /// Reads a recording.
    ///
    /// # Errors
    /// [`ReadError`] if the file cannot be opened any more.
    pub fn read(recording: &Recording, expected: &Expected) -> Result<Self, ReadError> {
        let mut reader = Reader::new(recording, expected);
        for item in Ordered::new(recording.messages()?, SORTED) {
            match item {
                Ok(timed) => reader.take(&timed.message),
                Err(damage) => reader.run.damages.push(damage),
            }
            reader.run.damages.truncate(MOST_DAMAGES);
        }
        Ok(reader.run)
    }

    /// Parts of the file that could not be read, at most 16.
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// Its topics.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.flows.keys().map(String::as_str)
    }
}

struct Reader<'a> {
    expected: &'a Expected,
    run: Run,
    /// By channel: the last publication, and the number of its sample.
    last: BTreeMap<u16, (u64, u32)>,
    /// By pair of a chain: the last publication of its first topic, unless the second followed.
    causes: BTreeMap<(String, String), u64>,
    /// When the first sample was received.
    begin_ns: Option<u64>,
    /// The recorder counted losses itself.
    counts_losses: bool,
}

impl<'a> Reader<'a> {
    fn new(recording: &Recording, expected: &'a Expected) -> Self {
        let counts_losses = recording.channels().any(|channel| channel.topic == LOSSES);
        let (last, causes) = (BTreeMap::new(), BTreeMap::new());
        Self { expected, run: Run::default(), last, causes, begin_ns: None, counts_losses }
    }

    fn take(&mut self, message: &Message) {
        match message.channel.topic.as_str() {
            TIMING => self.timing(&message.data),
            LOSSES => self.losses(&message.data),
            _ if message.channel.change() != Change::Written => {}
            _ => self.sample(message),
        }
    }

    fn sample(&mut self, message: &Message) {
        let Message { channel, sequence, log_ns, publish_ns, data } = message;
        let begin = *self.begin_ns.get_or_insert(*log_ns);
        let before = self.last.insert(channel.id, (*publish_ns, *sequence));
        let is_ours = channel.metadata.contains_key(PUBLISHER);
        self.react(&channel.topic, *publish_ns);
        let flow = self.run.flows.entry(channel.topic.clone()).or_default();
        if flow.samples == 0 {
            flow.recorder = channel.metadata.get(SUBSCRIBER).cloned().unwrap_or_default();
            let promise = self.expected.promise(&channel.topic, &flow.recorder);
            flow.bound_ns = promise.and_then(|promise| promise.latest_us).map(|us| (us * 1e3) as u64);
        }
        flow.samples += 1;
        flow.channels.insert(channel.id);
        flow.largest = flow.largest.max(data.len() as u64);
        let (first, last) = flow.span_ns.unwrap_or((*publish_ns, *publish_ns));
        flow.span_ns = Some((first.min(*publish_ns), last.max(*publish_ns)));
        // A sample from before the recording waited in a history: nobody was late. One that came when it was published has no stamp of its
        // publisher's clock (rosbag2 before Iron, or another host's clock that is not compared yet).
        if *publish_ns >= begin && publish_ns < log_ns {
            let latency = log_ns.saturating_sub(*publish_ns);
            flow.latency.record(latency);
            let certain = latency.saturating_sub(flow.uncertainty_ns);
            flow.late += u64::from(flow.bound_ns.is_some_and(|bound| certain > bound));
        }
        let Some((published, number)) = before else { return };
        flow.intervals.record(publish_ns.saturating_sub(published));
        let missing = sequence.wrapping_sub(number).wrapping_sub(1);
        // Half of all numbers are behind the last one: a publisher that started again, or samples in another order.
        if is_ours && !self.counts_losses && (1..u32::MAX / 2).contains(&missing) {
            *flow.lost.entry(Stage::Unknown).or_default() += u64::from(missing);
        }
    }

    /// Notes the time since the sample that caused this one.
    fn react(&mut self, topic: &str, publish_ns: u64) {
        for pair in self.expected.reactions() {
            // One effect for each cause: a later one has another cause.
            let cause = if pair.1 == topic { self.causes.remove(pair) } else { None };
            if let Some(cause) = cause {
                self.run.reactions.entry(pair.clone()).or_default().record(publish_ns.saturating_sub(cause));
            }
            if pair.0 == topic {
                self.causes.insert(pair.clone(), publish_ns);
            }
        }
    }

    fn timing(&mut self, json: &[u8]) {
        let Ok(Timing { topic, uncertainty_ns }) = serde_json::from_slice(json) else { return };
        if let Some(flow) = self.run.flows.get_mut(&topic) {
            flow.uncertainty_ns = flow.uncertainty_ns.max(uncertainty_ns.unwrap_or(0));
        }
    }

    fn losses(&mut self, json: &[u8]) {
        let Ok(Lost { topic, count, place }) = serde_json::from_slice(json) else { return };
        let flow = self.run.flows.entry(topic).or_default();
        let held = flow.lost.entry(Stage::of_loss(&place)).or_default();
        *held = held.saturating_add(count);
    }
}

/// The part of a sample of the recorder's figures that is used.
#[derive(Deserialize)]
struct Timing {
    topic: String,
    uncertainty_ns: Option<u64>,
}

/// The part of a sample of the recorder's losses that is used.
#[derive(Deserialize)]
struct Lost {
    topic: String,
    count: u64,
    #[serde(rename = "where")]
    place: String,
}

/// Intervals that tell a rate.
const ENOUGH: u64 = 20;
/// Bytes of samples that are put in order.
const SORTED: u64 = 64 << 20;
/// Damages that are kept.
const MOST_DAMAGES: usize = 16;
