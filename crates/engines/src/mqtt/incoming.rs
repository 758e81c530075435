//! Samples as they come from the broker.

use super::stamp::{self, Retained, Seen, Stamp};
use super::subscriptions::Round;
use super::topics;
use crate::engine::Refusals;
use crate::engine::{Deliver, Sample};
use rumqttc::v5::mqttbytes::v5::Publish;
use std::sync::Arc;
use thalweg::Change;
use thalweg::control::matching::topic_matches;

/// The samples of a subscriber, as they come from the broker.
pub(super) struct Incoming {
    pub(super) prefix: String,
    pub(super) pattern: Option<String>,
    /// The engine's number: samples with it are its own.
    pub(super) own: u64,
    pub(super) seen: Seen,
    pub(super) retained: Retained,
    pub(super) refusals: Arc<Refusals>,
    pub(super) deliver: Deliver,
}

impl Incoming {
    /// Gives a sample on, unless it is this engine's own, has come before, or has no name here.
    pub(super) fn take(&mut self, sample: &Publish, round: Round) {
        let topic = match topics::name(&self.prefix, &sample.topic) {
            Ok(Some(topic)) => topic,
            Ok(None) => return,
            Err(why) => return self.refusals.add(why),
        };
        if self.pattern.as_ref().is_some_and(|pattern| !topic_matches(pattern, &topic)) {
            return;
        }
        let properties = sample.properties.iter().flat_map(|properties| &properties.user_properties);
        let stamp = properties.filter(|(key, _)| key == stamp::KEY).find_map(|(_, value)| Stamp::parse(value));
        if stamp.is_some_and(|stamp| stamp.engine == self.own || !self.seen.is_new(&stamp)) {
            return;
        }
        if stamp.is_none() && sample.retain && !self.retained.is_new(&sample.topic, &sample.payload, round) {
            return;
        }
        let ends = sample.retain && sample.payload.is_empty();
        let change = stamp.map_or(if ends { Change::Disposed } else { Change::Written }, |stamp| stamp.change);
        (self.deliver)(&Sample {
            topic: &topic,
            message: &sample.payload,
            publisher: 0,
            origin: stamp.and_then(|stamp| stamp.origin),
            change,
            age_ns: 0,
            historical: false,
        });
    }
}
