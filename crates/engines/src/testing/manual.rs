//! An engine in a test's hands: the test wants topics, holds publishers up, and delivers samples.

use crate::engine::{Abilities, Deliver, Engine, MarkedUnit, Publisher, Result, Sample, Subscriber, Support, Topic};
use crate::lock;
use qos::Qos;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use thalweg::Change;
use thalweg::control::matching::topic_matches;

/// An engine without a network. It keeps no policy, and its copies are one engine.
#[derive(Clone, Default)]
pub struct Manual(Arc<Space>);

#[derive(Default)]
struct Space {
    state: Mutex<State>,
    changed: Condvar,
    subscribers: Mutex<BTreeMap<usize, (Topic, Deliver)>>,
}

#[derive(Default)]
struct State {
    wanted: BTreeSet<String>,
    held: BTreeSet<String>,
    /// Publishers that are held up.
    waiting: usize,
    left: Vec<(String, Vec<u8>)>,
    kept: Vec<(String, Vec<u8>)>,
    /// The topics of all subscribers so far.
    opened: Vec<String>,
}

impl Manual {
    /// Somebody there subscribes to the topic from now on.
    pub fn want(&self, topic: &str) {
        lock(&self.0.state).wanted.insert(topic.to_owned());
    }

    /// Nobody there subscribes to the topic from now on.
    pub fn unwant(&self, topic: &str) {
        lock(&self.0.state).wanted.remove(topic);
    }

    /// Each sample of the topic waits from now on.
    pub fn hold(&self, topic: &str) {
        lock(&self.0.state).held.insert(topic.to_owned());
    }

    /// Samples of the topic go on.
    pub fn release(&self, topic: &str) {
        lock(&self.0.state).held.remove(topic);
        self.0.changed.notify_all();
    }

    /// The number of samples that wait.
    pub fn waiting(&self) -> usize {
        lock(&self.0.state).waiting
    }

    /// Topics and messages that were published, in order.
    pub fn left(&self) -> Vec<(String, Vec<u8>)> {
        lock(&self.0.state).left.clone()
    }

    /// The number of subscribers of the topic.
    pub fn subscribers(&self, topic: &str) -> usize {
        lock(&self.0.subscribers).values().filter(|(own, _)| topic_matches(&own.name, topic)).count()
    }

    /// The number of subscribers of this very topic so far, those that have closed included.
    pub fn opened(&self, topic: &str) -> usize {
        lock(&self.0.state).opened.iter().filter(|opened| *opened == topic).count()
    }

    /// Each subscriber of the topic gets this sample when it opens from now on, as from a publisher that keeps it for late joiners.
    pub fn keep(&self, topic: &str, message: &[u8]) {
        lock(&self.0.state).kept.push((topic.to_owned(), message.to_vec()));
    }

    /// Gives a sample to each subscriber of its topic.
    pub fn deliver(&self, topic: &str, message: &[u8]) {
        for (own, deliver) in lock(&self.0.subscribers).values_mut() {
            if topic_matches(&own.name, topic) {
                deliver(&sample(topic, message, false));
            }
        }
    }
}

fn sample<'a>(topic: &'a str, message: &'a [u8], historical: bool) -> Sample<'a> {
    Sample { topic, message, publisher: 0, origin: None, change: Change::Written, age_ns: 0, historical }
}

impl Engine for Manual {
    fn name(&self) -> &'static str {
        "manual"
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reliability: Support::Enforced,
            durability: Support::None,
            matching: Support::None,
            deadline: Support::None,
            lifespan: Support::None,
            instances: Support::None,
            keys: Support::None,
            types: Support::None,
            marked: MarkedUnit::None,
            endpoints: false,
            wanted: true,
        }
    }

    fn publisher(&self, topic: &Topic, _offer: &Qos) -> Result<Box<dyn Publisher>> {
        Ok(Box::new(Publishing { space: self.0.clone(), topic: topic.name.clone() }))
    }

    fn subscriber(&self, topic: &Topic, _request: &Qos, mut deliver: Deliver) -> Result<Box<dyn Subscriber>> {
        let (number, kept) = {
            let mut state = lock(&self.0.state);
            state.opened.push(topic.name.clone());
            (state.opened.len(), state.kept.clone())
        };
        for (of, message) in kept.iter().filter(|(of, _)| topic_matches(&topic.name, of)) {
            deliver(&sample(of, message, true));
        }
        lock(&self.0.subscribers).insert(number, (topic.clone(), deliver));
        Ok(Box::new(Subscribing { space: self.0.clone(), number }))
    }
}

struct Publishing {
    space: Arc<Space>,
    topic: String,
}

impl Publisher for Publishing {
    fn publish(&self, sample: &Sample<'_>) -> Result<()> {
        let mut state = lock(&self.space.state);
        state.waiting += 1;
        while state.held.contains(&self.topic) {
            state = self.space.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        state.left.push((self.topic.clone(), sample.message.to_vec()));
        Ok(())
    }

    fn is_wanted(&self) -> bool {
        lock(&self.space.state).wanted.contains(&self.topic)
    }
}

struct Subscribing {
    space: Arc<Space>,
    number: usize,
}

impl Subscriber for Subscribing {}

impl Drop for Subscribing {
    fn drop(&mut self) {
        let dropped = lock(&self.space.subscribers).remove(&self.number);
        drop(dropped); // without the lock
    }
}
