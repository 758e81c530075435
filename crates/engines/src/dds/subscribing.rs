//! Subscribers: a reader of one topic and type, or of each topic that a pattern fits, as others come to write them.

use super::graph::Own;
use super::keys::Key;
use super::policies::of_reader;
use super::publishing::Around;
use super::ros::Member;
use super::types::Stated;
use super::{failed, now, now_ns};
use crate::engine::{Deliver, Error, Result, Sample, Subscriber, Topic};
use crate::lock;
use cyclone::{Content, End, Policies, Reader, Taken};
use linux::thread;
use qos::Qos;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg::Change;
use thalweg::control::Direction;
use thalweg::control::matching::topic_matches;

/// The user's callback, until the subscriber is dropped. Several readers of a pattern share it.
pub(super) struct Target(Mutex<Option<Deliver>>);

impl Target {
    pub(super) fn new(deliver: Deliver) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(deliver))))
    }

    fn take(&self, topic: &str, taken: &Taken<'_>, change: Change, message: &[u8]) {
        let age_ns = u64::try_from(now_ns().saturating_sub(taken.timestamp)).unwrap_or_default();
        if let Some(deliver) = lock(&self.0).as_mut() {
            deliver(&Sample {
                topic,
                message,
                publisher: taken.writer.map_or(0, |writer| writer.number()),
                origin: None,
                change,
                age_ns,
                historical: false,
            });
        }
    }

    /// Takes a message of a topic with a key: a value, the end of an instance, or both.
    fn take_keyed(&self, topic: &str, key: &Key, taken: &Taken<'_>) -> std::result::Result<(), String> {
        let message = match taken.content {
            Content::Value => key.value(taken.message)?,
            Content::Key => Cow::Owned(key.whole(taken.message)?),
            Content::KeyHash => Cow::Owned(key.of_hash(taken.message)?),
        };
        if taken.content == Content::Value {
            self.take(topic, taken, Change::Written, &message);
        }
        match taken.end {
            Some(End::Disposed) => self.take(topic, taken, Change::Disposed, &message),
            Some(End::Unregistered) => self.take(topic, taken, Change::Unregistered, &message),
            None => {}
        }
        Ok(())
    }
}

/// A reader of a topic and type, and its places among our ends and in our node.
pub(super) struct Reading {
    _member: Option<Member>,
    _own: Own,
    _reader: Reader,
}

impl Reading {
    fn open(around: &Around, topic: &Topic, stated: &Stated, request: &Qos, target: &Arc<Target>) -> Result<Self> {
        let policies = of_reader(request, around.user_data(stated));
        let key = if stated.keyed { Some(around.key_of(stated, topic)?) } else { None };
        // The reader has all instances for one: the source's order of one says nothing of another.
        let policies = Policies { by_source: policies.by_source && key.is_none(), ..policies };
        let own = around.graph.enter(&topic.name, stated, Direction::Subscriber, request, policies.clone());
        let (taking, graph, name) = (target.clone(), around.graph.clone(), topic.name.clone());
        let take = Box::new(move |taken: &Taken<'_>| match &key {
            None => taking.take(&name, taken, Change::Written, taken.message),
            Some(key) => {
                let passed = taking.take_keyed(&name, key, taken);
                passed.unwrap_or_else(|why| graph.refuse(&format!("{name}: {why}")));
            }
        });
        let there = around.types.naming.there(topic);
        let first = around.participants.first();
        let reader = first.participant.reader(&there, &stated.name, stated.keyed, &policies, take).map_err(failed)?;
        Ok(Self { _member: first.member(reader.guid(), false), _own: own, _reader: reader })
    }
}

/// The subscriber of one topic.
pub(super) struct Single {
    target: Arc<Target>,
    _reading: Reading,
}

impl Single {
    pub(super) fn open(around: &Around, topic: &Topic, request: &Qos, target: Arc<Target>) -> Result<Self> {
        let stated = around.types.of(topic, &around.graph.types_of(&topic.name))?.stated;
        let stated = Stated { keyed: around.graph.is_keyed(&topic.name, &stated.name), ..stated };
        let reading = Reading::open(around, topic, &stated, request, &target)?;
        Ok(Self { target, _reading: reading })
    }
}

impl Subscriber for Single {}

impl Drop for Single {
    fn drop(&mut self) {
        *lock(&self.target.0) = None;
    }
}

/// Most topics of a pattern.
const MOST_TOPICS: usize = 4096;
/// The wait for somebody who comes or goes is over after this time, so that a pattern that is dropped while nobody does ends, too.
const LOOK: Duration = Duration::from_millis(100);

/// The subscriber of a pattern: a thread opens and closes readers as others come and go.
pub(super) struct Pattern {
    target: Arc<Target>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pattern {
    pub(super) fn open(around: Around, pattern: &str, request: &Qos, target: Arc<Target>) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let (ends, taking) = (over.clone(), target.clone());
        let (pattern, request) = (pattern.to_owned(), request.clone());
        let body = move || {
            let mut readers = HashMap::new();
            while !ends.load(Ordering::Acquire) {
                let seen = around.graph.changes(now());
                follow(&around, &pattern, &request, &taking, &mut readers);
                while around.graph.changes(now()) == seen && !ends.load(Ordering::Acquire) {
                    around.graph.wait(seen, LOOK);
                }
            }
        };
        let thread = thread::spawn(thread::Settings::named("dds-pattern"), body);
        let thread = thread.map_err(|error| Error::Engine(format!("a thread for a pattern of topics: {error}")))?;
        Ok(Self { target, over, thread: Some(thread) })
    }
}

/// Readers by topic and type.
type Readers = HashMap<(String, Stated), Reading>;

/// Opens a reader for each topic and type that somebody writes, and closes those that nobody does.
fn follow(around: &Around, pattern: &str, request: &Qos, target: &Arc<Target>, readers: &mut Readers) {
    let written = around.graph.written();
    readers.retain(|topic, _| written.contains(topic));
    for (name, stated) in written.into_iter().filter(|(topic, _)| topic_matches(pattern, topic)) {
        let key = (name, stated);
        if readers.contains_key(&key) {
            continue;
        }
        if readers.len() == MOST_TOPICS {
            around.graph.refuse(&format!("{}: a topic of {pattern} beyond {MOST_TOPICS}", key.0));
            return;
        }
        let topic = Topic { name: key.0.clone(), message: around.types.description(&key.1) };
        match Reading::open(around, &topic, &key.1, request, target) {
            Ok(reading) => drop(readers.insert(key, reading)),
            Err(wrong) => around.graph.refuse(&format!("{}: {wrong}", topic.name)),
        }
    }
}

impl Subscriber for Pattern {}

impl Drop for Pattern {
    fn drop(&mut self) {
        *lock(&self.target.0) = None;
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
