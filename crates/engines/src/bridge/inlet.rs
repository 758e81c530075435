//! From the engine to Thalweg: one topic, or one pattern. There is a publisher for each of the topic's publishers where the engine tells
//! them apart, so that each has its own history; else one for the topic.
//!
//! The publishers open first. The subscriber in the engine opens when one of them has a channel: until then nobody here could take a sample.
//! It closes when none has one any more, if other bridges' ports alone ask for the topic. Samples of a publisher that has no channel yet wait
//! for it, at most [`FIRST_CHANNEL`]. Answers are subscribed to as soon as questions leave: nobody there gives the first one again.

#![allow(clippy::disallowed_methods)] // threads of engines read the clock here

mod line;
mod thin;
mod topics;

use super::place::Place;
use super::routes::In;
use super::rules::Rules;
use crate::engine::services::{asked, is_numbered};
use crate::engine::{Engine, Error, Result, Sample, Subscriber, Topic};
use crate::lock;
use qos::Durability;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::codec::Untyped;
use thalweg::control::matching::is_pattern;
use thalweg::control::{Document, NodeId};
use thalweg::{Node, Publisher};
use topics::Topics;

/// The longest wait for a first channel. Subscribers that match get theirs within milliseconds.
const FIRST_CHANNEL: Duration = Duration::from_secs(1);

/// The nodes of this realm: what they published is here without the bridge.
pub(super) type Known = Arc<Mutex<HashSet<NodeId>>>;

/// The publishers in the engine whose samples have been there or here before. A subscriber there has them as well as those that are wanted.
pub(super) type Barred = Arc<Mutex<HashSet<u128>>>;

/// The surroundings of all inlets of a bridge.
#[derive(Clone, Default)]
pub(super) struct Around {
    pub(super) known: Known,
    pub(super) barred: Barred,
    pub(super) documents: Arc<Vec<Document>>,
    pub(super) rules: Arc<Rules>,
    pub(super) place: Arc<Place>,
}

pub(super) struct Inlet {
    pub(super) route: In,
    topics: Arc<Mutex<Topics>>,
    known: Known,
    subscriber: Option<Box<dyn Subscriber>>,
    /// Publishers in the engine that have none here.
    left_out: usize,
}

impl Inlet {
    /// An inlet without publishers: [`Self::adjust`] opens them.
    pub(super) fn new(node: &Node, engine: &dyn Engine, route: &In, around: &Around) -> Self {
        let topics = Arc::new(Mutex::new(Topics::new(node.clone(), engine, route.clone(), around)));
        Self { route: route.clone(), topics, known: around.known.clone(), subscriber: None, left_out: 0 }
    }

    /// Follows the publishers in the engine, the subscribers here, and the routes beside it.
    ///
    /// # Errors
    /// The reason why one did not open. Those that did have their samples carried.
    pub(super) fn adjust(&mut self, route: &In, around: &Around) -> Result<()> {
        let (closed, opened) = {
            let mut topics = lock(&self.topics);
            let adjusted = topics.adjust(route, &around.documents, Instant::now());
            self.left_out = topics.left_out();
            adjusted
        };
        in_background(closed); // publishers that close wait for what they have to send: not with the lock
        self.route.follow(route);
        opened
    }

    /// Publishers in the engine that have none here.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    /// `true` unless all its publishers are left out.
    pub(super) fn comes(&self) -> bool {
        self.left_out == 0 || lock(&self.topics).has_lines()
    }

    /// The topic of the questions, if this one is of answers.
    pub(super) fn questions(&self) -> Option<&str> {
        asked(&self.route.topic).filter(|_| is_numbered(&self.route.message))
    }

    /// Subscribes in the engine once a sample has somewhere to go, or answers to questions (`expected`), and passes on samples that have waited.
    pub(super) fn look(&mut self, engine: &dyn Engine, expected: bool) -> Result<()> {
        lock(&self.topics).settle(Instant::now());
        let waits = !expected && !is_pattern(&self.route.there) && !lock(&self.topics).has_channel();
        // Ports that only ask keep the route, and would keep others there publishing for nobody. A history is followed.
        if waits && !self.route.taken && self.route.qos.durability == Durability::Volatile {
            self.subscriber = None;
        }
        if self.subscriber.is_some() || waits {
            return Ok(());
        }
        let (taking, known) = (self.topics.clone(), self.known.clone());
        let deliver = Box::new(move |sample: &Sample<'_>| {
            if sample.origin.is_none_or(|origin| !lock(&known).contains(&origin.node)) {
                lock(&taking).take(sample, Instant::now());
            }
        });
        let topic = Topic { name: self.route.there.clone(), message: self.route.message.clone() };
        self.subscriber = Some(engine.subscriber(&topic, &self.route.qos, deliver)?);
        Ok(())
    }

    pub(super) fn came(&self) -> u64 {
        lock(&self.topics).came()
    }

    /// The last error of a sample, once.
    pub(super) fn failed(&self) -> Option<Error> {
        lock(&self.topics).failed()
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        self.subscriber = None;
        in_background(lock(&self.topics).close());
    }
}

/// Drops publishers that have channels on a thread of their own: each waits up to a second for samples that a subscriber has not taken. The
/// others go at once, so that nobody who comes next finds them.
fn in_background(publishers: Vec<Publisher<Untyped>>) {
    let (sending, idle): (Vec<_>, Vec<_>) = publishers.into_iter().partition(|publisher| publisher.connected() > 0);
    drop(idle);
    if !sending.is_empty() {
        let settings = linux::thread::Settings::named("closing");
        // Without a thread they are dropped here, which takes longer.
        let _ = linux::thread::spawn(settings, move || drop(sending));
    }
}
