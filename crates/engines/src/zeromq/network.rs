//! The sockets of an engine, and the thread that waits for all of them. A socket of ZeroMQ may be used by one thread at a time: each is
//! behind a lock, the one by which samples leave behind its own.

#![allow(clippy::disallowed_methods)] // the event loop reads the clock

use super::endpoint::Endpoint;
use super::sink::Sink;
use super::source::{Found, Frames, Limits, Source};
use super::subscribers::{Subscribers, Target, prefix};
use super::{Settings, failed};
use crate::engine::Refusals;
use crate::engine::{Result, Sample};
use crate::lock;
use libzmq::Context;
use linux::poll::{Poller, Readiness, Ready, Waker};
use qos::Class;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::Change;
use thalweg::control::matching::{LONGEST_NAME, check_name};

/// Messages of one source before the others have their turn.
const BATCH: usize = 64;
/// Tokens of the poller: this one is the waker's, then come those of the sinks, then those of the sources.
const WAKE: u64 = 0;
const FIRST_SOURCE: u64 = 1 + Class::ALL.len() as u64;

pub(super) struct Network {
    context: Arc<Context>,
    bind: Vec<Endpoint>,
    limits: Limits,
    poller: Poller,
    waker: Waker,
    ends: AtomicBool,
    /// By class, in the order of [`Class::ALL`]; opened when first used.
    sinks: Mutex<[Option<Arc<Sink>>; Class::ALL.len()]>,
    sources: Mutex<Vec<Source>>,
    subscribers: Mutex<Subscribers>,
    refusals: Arc<Refusals>,
}

/// What the thread of the network works with.
#[derive(Default)]
struct Inbox {
    frames: Frames,
    name: String,
    targets: Vec<Arc<Target>>,
}

impl Network {
    pub(super) fn open(settings: &Settings) -> Result<Self> {
        let endpoints = |texts: &[String]| texts.iter().map(|text| Endpoint::parse(text)).collect::<Result<Vec<_>>>();
        let (bind, connect) = (endpoints(&settings.bind)?, endpoints(&settings.connect)?);
        let context = Context::new().map_err(failed)?;
        let (poller, waker) = (Poller::new().map_err(failed)?, Waker::new().map_err(failed)?);
        poller.add(&waker, WAKE, Readiness::IN).map_err(failed)?;
        let limits = Limits { max_message: settings.max_message, queue: settings.queue };
        let open = |(endpoint, token)| Source::open(&context, endpoint, limits, &poller, token);
        let sources = connect.into_iter().zip(FIRST_SOURCE..).map(open).collect::<io::Result<Vec<_>>>();
        let sources = Mutex::new(sources.map_err(failed)?);
        Ok(Self {
            context,
            bind,
            limits,
            poller,
            waker,
            ends: AtomicBool::new(false),
            sinks: Mutex::default(),
            sources,
            subscribers: Mutex::default(),
            refusals: Arc::default(),
        })
    }

    pub(super) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub(super) fn max_message(&self) -> u32 {
        self.limits.max_message
    }

    /// The socket of a class; `None` if others are not to come to this program.
    pub(super) fn sink(&self, class: Class) -> Result<Option<Arc<Sink>>> {
        let mut sinks = lock(&self.sinks);
        let place = sinks.iter_mut().zip(Class::ALL).zip(WAKE + 1..).find(|((_, other), _)| *other == class);
        let Some(((place, _), token)) = place.filter(|_| !self.bind.is_empty()) else { return Ok(None) };
        if place.is_none() {
            let sink = Sink::open(&self.context, &self.bind, class, self.limits.queue, self.refusals.clone())?;
            sink.watch(|descriptor| self.poller.add(descriptor, token, Readiness::IN)).map_err(failed)?;
            *place = Some(Arc::new(sink));
            self.waker.wake();
        }
        Ok(place.clone())
    }

    pub(super) fn subscribe(&self, target: &Arc<Target>) -> Result<()> {
        let mut sources = lock(&self.sources);
        lock(&self.subscribers).add(target.clone());
        self.waker.wake();
        sources.iter_mut().try_for_each(|source| source.subscribe(prefix(&target.topic))).map_err(failed)
    }

    /// The subscriber is not called any more. Waits for a call that has begun.
    pub(super) fn unsubscribe(&self, target: &Arc<Target>) {
        let mut sources = lock(&self.sources);
        lock(&self.subscribers).remove(target);
        for source in sources.iter_mut() {
            // The socket subscribes: it cannot fail.
            let _ = source.unsubscribe(prefix(&target.topic));
        }
        drop(sources);
        self.waker.wake();
        *lock(&target.deliver) = None;
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.ends.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Waits for all sockets, until the [`end`](Self::end).
    pub(super) fn run(&self) {
        let (mut ready, mut inbox) = (Vec::with_capacity(64), Inbox::default());
        while !self.ends.load(Ordering::Acquire) {
            if let Err(error) = self.poller.wait(&mut ready, self.patience(Instant::now())) {
                return self.refusals.add(format!("nothing comes any more: {error}"));
            }
            self.look(&ready, &mut inbox);
        }
    }

    fn patience(&self, now: Instant) -> Option<Duration> {
        lock(&self.sources).iter().filter_map(|source| source.patience(now)).min()
    }

    fn look(&self, ready: &[Ready], inbox: &mut Inbox) {
        let all = ready.iter().any(|one| one.token == WAKE);
        let is_ready = |token: u64| all || ready.iter().any(|one| one.token == token);
        if all {
            self.waker.clear();
        }
        let sinks = lock(&self.sinks).clone();
        for (sink, token) in sinks.iter().zip(WAKE + 1..) {
            sink.iter().filter(|_| is_ready(token)).for_each(|sink| sink.look());
        }
        let count = lock(&self.sources).len();
        for index in 0..count {
            self.follow(index, is_ready, inbox);
        }
    }

    /// Receives what has come from a source, and makes it anew if it has ended.
    fn follow(&self, index: usize, is_ready: impl Fn(u64) -> bool, inbox: &mut Inbox) {
        if !lock(&self.sources).get(index).is_some_and(|source| source.is_due(is_ready)) {
            return;
        }
        for _ in 0..BATCH {
            // Not locked while somebody takes the sample.
            let found = lock(&self.sources).get_mut(index).map(|source| source.receive(&mut inbox.frames));
            match found {
                Some(Found::Message) => self.deliver(inbox),
                Some(Found::Malformed(frames)) => {
                    self.refusals.add(format!("a message of {frames} frames; a topic and one payload are expected"));
                }
                Some(Found::Nothing) | None => break,
            }
        }
        let now = Instant::now();
        let mut sources = lock(&self.sources);
        let Some(source) = sources.get_mut(index) else { return };
        if !source.has_ended(&mut inbox.frames.message, now) {
            return;
        }
        let (place, largest) = (source.place(), self.limits.max_message);
        let again = source.reopen(&self.poller, &lock(&self.subscribers).prefixes(), now);
        let failed = again.err().map(|error| format!(", and cannot be made again: {error}")).unwrap_or_default();
        self.refusals.add(format!(
            "what came from {place}: no ZeroMQ, or a frame of more than {largest} bytes; the connection has ended{failed}"
        ));
    }

    /// Gives a sample to those who take its topic.
    fn deliver(&self, inbox: &mut Inbox) {
        let Inbox { frames: Frames { topic, message }, name, targets } = inbox;
        let text = std::str::from_utf8(topic).ok().filter(|text| text.len() < LONGEST_NAME);
        let Some(text) = text else {
            return self.refusals.add(format!("a topic of {} bytes that is no name", topic.len()));
        };
        name.clear();
        name.push('/');
        name.push_str(text);
        lock(&self.subscribers).of(name, targets);
        if targets.is_empty() {
            return; // it only begins like a topic of ours
        }
        if let Err(wrong) = check_name(name) {
            targets.clear();
            return self.refusals.add(wrong.to_string());
        }
        let sample = Sample {
            topic: name,
            message,
            publisher: 0,
            origin: None,
            change: Change::Written,
            age_ns: 0,
            historical: false,
        };
        for target in targets.drain(..) {
            if let Some(deliver) = lock(&target.deliver).as_mut() {
                deliver(&sample);
            }
        }
    }
}
