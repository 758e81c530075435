//! What a plan says of the topics of a recording.

use qos::plan::{Channel, Plan};
use qos::verification::{Promise, is_subscriber};
use std::collections::{BTreeMap, BTreeSet};

/// Bounds of topics, and pairs of topics of which the second is published by the callback of the first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expected {
    promises: BTreeMap<String, Vec<(Channel, Promise)>>,
    reactions: BTreeSet<(String, String)>,
}

impl Expected {
    /// The promises of a plan, and its chains.
    pub fn of(plan: &Plan) -> Self {
        let mut expected = Self::default();
        for channel in plan.channels.iter().filter(|channel| !channel.pipe) {
            let promise = Promise::of(channel);
            expected.promises.entry(absolute(&channel.topic)).or_default().push((channel.clone(), promise));
        }
        for chain in &plan.chains {
            let caused = chain.parts.windows(2).filter(|pair| !pair[1].sampled);
            expected.reactions.extend(caused.map(|pair| (absolute(&pair[0].topic), absolute(&pair[1].topic))));
        }
        expected
    }

    /// Adds a chain: each of these topics is published by the callback of the one before.
    pub fn add_chain(&mut self, topics: &[String]) {
        let pairs = topics.windows(2).map(|pair| (absolute(&pair[0]), absolute(&pair[1])));
        self.reactions.extend(pairs);
    }

    /// Pairs of topics of which the second is published by the callback of the first.
    pub(super) fn reactions(&self) -> impl Iterator<Item = &(String, String)> {
        self.reactions.iter()
    }

    /// The topics with a promise.
    pub(super) fn topics(&self) -> impl Iterator<Item = &str> {
        self.promises.keys().map(String::as_str)
    }

    /// The promise for a topic as this port recorded it: that of its own channel, if the plan has it; else the loosest of the topic, as the
    /// recorder stands where the plan has no channel.
    pub(super) fn promise(&self, topic: &str, recorder: &str) -> Option<Promise> {
        let all = self.promises.get(topic)?;
        if let Some((_, own)) = all.iter().find(|(channel, _)| is_subscriber(channel, recorder)) {
            return Some(own.clone());
        }
        let published =
            |(channel, promise): &(Channel, Promise)| Some(promise.rate_hz? * f64::from(channel.scale.max(1)));
        let largest = |values: Vec<Option<f64>>| {
            let stated: Option<Vec<f64>> = values.into_iter().collect();
            stated?.into_iter().max_by(f64::total_cmp)
        };
        Some(Promise {
            latest_us: largest(all.iter().map(|(_, promise)| promise.latest_us).collect()),
            rate_hz: largest(all.iter().map(published).collect()),
            burst: all.iter().map(|(_, promise)| promise.burst).fold(1.0, f64::max),
            loss: all.iter().map(|(_, promise)| promise.loss).fold(0.0, f64::max),
            proxied_us: None,
            own_queue: None,
        })
    }
}

/// A name as topics of a recording have it: a contract's need no `/` in front.
fn absolute(name: &str) -> String {
    if name.starts_with('/') { name.to_owned() } else { format!("/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::plan::{Chain, ChainPart};

    #[test]
    fn a_recorder_that_is_not_planned_has_the_loosest_bound() {
        let channel = |subscriber: &str, bound: f64, scale: u32| Channel {
            topic: "imu".into(),
            subscriber: subscriber.into(),
            bound_us: Some(bound),
            rate_hz: Some(100.0 / f64::from(scale)),
            scale,
            ..Channel::default()
        };
        let plan = Plan { channels: vec![channel("/a", 50.0, 1), channel("/b", 90.0, 4)], ..Plan::default() };
        let expected = Expected::of(&plan);
        let promise = |port: &str| expected.promise("/imu", port).unwrap();
        assert_eq!((promise("/a").latest_us, promise("/b").latest_us), (Some(50.0), Some(90.0)));
        assert_eq!((promise("/recorder").latest_us, promise("/recorder").rate_hz), (Some(90.0), Some(100.0)));
        assert_eq!(expected.promise("/map", "/a"), None);
    }

    #[test]
    fn chains_are_pairs_of_cause_and_effect() {
        let part = |topic: &str, sampled| ChainPart { topic: topic.into(), sampled, ..ChainPart::default() };
        let parts = vec![part("a", true), part("b", false), part("c", true), part("d", false)];
        let plan = Plan { chains: vec![Chain { parts, ..Chain::default() }], ..Plan::default() };
        let mut expected = Expected::of(&plan);
        expected.add_chain(&["/x".to_owned(), "y".to_owned()]);
        let pairs: Vec<_> = expected.reactions().map(|(a, b)| format!("{a} {b}")).collect();
        assert_eq!(pairs, ["/a /b", "/c /d", "/x /y"]);
    }
}
