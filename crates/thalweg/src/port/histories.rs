//! The pull buffers of a port: a history for each start of each publisher whose samples it keeps. A publisher keeps its own
//! samples; a subscriber keeps those that arrive, for itself or (at a relay) for others.

#![allow(clippy::disallowed_methods)] // samples are stamped, and waits are measured

use crate::channel::buffer::Pool;
use crate::channel::history::{History, Instances, Query, Reading};
use crate::channel::memory::{Account, Charge};
use crate::channel::queue::Entry;
use crate::channel::{Payload, SampleInfo};
use crate::codec::{PolicyFields, TypeDescription};
use crate::control::matching::topic_matches;
use crate::control::{PortInfo, PullRole, kept_at_publisher};
use crate::pull::{Identity, Question, Run};
use linux::lock::PiMutex;
use qos::{Durability, Place, PullBuffer, Qos};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most publishers (and starts of them) of which one subscriber keeps samples. The one that was silent for longest gives
/// way to a new one.
const MOST_SOURCES: usize = 64;

/// Least size of a kept sample, in bytes.
const SMALLEST: u64 = 256;

/// The histories of one port. Its lock is held to keep one sample, or to take references to a few.
pub(crate) struct Histories {
    limits: PullBuffer,
    /// The account of all histories of the node; each history here has an account within it.
    account: Arc<Account>,
    /// Samples that were not kept for lack of memory, and how many of them were reported.
    unkept: [AtomicU64; 2],
    /// The place of the key, if the publisher is durable and its topic keyed.
    key: Option<PolicyFields>,
    sources: PiMutex<Sources>,
}

struct Sources {
    all: Vec<Source>,
    /// Instances, if there is a key: late joiners get their samples.
    instances: Option<Instances>,
    /// Copies of samples that arrived in memory which others overwrite.
    pool: Pool,
}

struct Source {
    publisher: Identity,
    name: String,
    topic: String,
    message: TypeDescription,
    clock: String,
    history: History,
    heard: u64,
}

/// `true` if a publisher of this QoS keeps the last samples of each instance, rather than of the topic, for late joiners.
pub(crate) fn is_kept_by_instance(offered: &Qos) -> bool {
    offered.durability != Durability::Volatile && !offered.key.is_empty()
}

/// The pull buffer that a subscriber keeps for each publisher: for its own use, or for others.
pub(crate) fn kept_at_subscriber(port: &PortInfo) -> Option<PullBuffer> {
    let keeps = |pull: &PullBuffer| pull.place == Place::Subscriber || port.pull == PullRole::Keeps;
    port.qos.pull.clone().filter(keeps)
}

impl Histories {
    /// No samples yet. Each publisher's samples are kept within the limits, as long as this account has room.
    pub(crate) fn new(limits: PullBuffer, account: &Arc<Account>) -> Self {
        let sources = Sources { all: Vec::new(), instances: None, pool: Pool::default() };
        let histories = Self {
            limits,
            account: account.clone(),
            unkept: Default::default(),
            key: None,
            sources: PiMutex::new(sources),
        };
        histories.sources.lock().pool.limit(histories.room());
        histories
    }

    /// The histories of a publisher that keeps its samples; `None`: it keeps none.
    pub(crate) fn of_publisher(port: &PortInfo, account: &Arc<Account>) -> Option<Self> {
        let mut histories = Self::new(kept_at_publisher(&port.qos)?, account);
        if is_kept_by_instance(&port.qos) {
            // The key was looked up when the port was described.
            histories.key = PolicyFields::find(port.message.schema.as_deref(), &port.qos.key, None).ok();
            histories.sources.lock().instances = Some(Instances::new(&port.qos).within(Account::of(account)));
        }
        Some(histories)
    }

    /// Memory that a port's buffers may take for one publisher's history: each may have room for twice its content.
    pub(crate) fn room(&self) -> usize {
        let bytes = usize::try_from(self.limits.bytes).unwrap_or(usize::MAX);
        bytes.saturating_mul(2).saturating_add(self.limits.samples as usize * 1024).max(1 << 20)
    }

    pub(crate) fn limits(&self) -> &PullBuffer {
        &self.limits
    }

    /// Publishers (and starts of them) whose samples are kept.
    pub(crate) fn publishers(&self) -> usize {
        self.sources.lock().all.len()
    }

    /// Bytes that may be kept of one publisher: a small sample counts with the room of its buffer.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.limits.bytes.max(u64::from(self.limits.samples) * SMALLEST)
    }

    /// `true` if samples of this publisher are kept.
    pub(crate) fn knows(&self, publisher: Identity) -> bool {
        self.sources.lock().all.iter().any(|source| source.publisher == publisher)
    }

    /// The time at which each publisher was last heard, by CLOCK_MONOTONIC in nanoseconds; 0: never.
    pub(crate) fn heard(&self) -> Vec<(u64, Identity)> {
        self.sources.lock().all.iter().map(|source| (source.heard, source.publisher)).collect()
    }

    /// Drops all samples of this publisher.
    pub(crate) fn forget(&self, publisher: Identity) {
        self.sources.lock().all.retain(|source| source.publisher != publisher);
    }

    /// From now on samples of this publisher are kept.
    pub(crate) fn admit(&self, publisher: Identity, port: &PortInfo, clock: &str) {
        let mut sources = self.sources.lock();
        if sources.all.iter().any(|source| source.publisher == publisher) {
            return;
        }
        if sources.all.len() >= MOST_SOURCES {
            let silent = (0..sources.all.len()).min_by_key(|index| sources.all[*index].heard);
            silent.map(|index| sources.all.remove(index));
        }
        sources.all.push(Source {
            publisher,
            name: port.name.clone(),
            topic: port.topic.clone(),
            message: port.message.clone(),
            clock: clock.to_owned(),
            history: History::new(publisher.incarnation, self.limits.clone()).within(Account::of(&self.account)),
            heard: 0,
        });
    }

    /// Keeps a sample of the port itself, which is a publisher.
    #[inline]
    pub(crate) fn keep_own(&self, entry: Entry) {
        let instance = self.key.as_ref().and_then(|key| key.instance(entry.buffer.payload()));
        let (mut sources, mut kept) = (self.sources.lock(), true);
        if let Some((instances, instance)) = sources.instances.as_mut().zip(instance) {
            kept = instances.keep(instance, &entry);
        }
        if let Some(own) = sources.all.first_mut() {
            let now = entry.stamp;
            kept &= own.history.keep(compact(entry), now);
        }
        self.unkept[0].fetch_add(u64::from(!kept), Relaxed);
    }

    /// Samples that were not kept for lack of memory, since the last call and in all.
    pub(crate) fn tell_unkept(&self) -> Option<(u64, u64)> {
        let all = self.unkept[0].load(Relaxed);
        let told = self.unkept[1].swap(all, Relaxed);
        (all > told).then_some((all - told, all))
    }

    /// Keeps a sample that arrived: shared where possible, otherwise copied.
    pub(crate) fn keep_arrived(&self, info: &SampleInfo, payload: &Payload<'_>) {
        let sources = &mut *self.sources.lock();
        let is = |source: &&mut Source| {
            let of = source.publisher;
            (of.node, of.port, of.incarnation) == (info.node, info.port, info.incarnation)
        };
        let Some(source) = sources.all.iter_mut().find(is) else { return };
        let buffer = match payload {
            Payload::Pooled(buffer) => (*buffer).clone(),
            other => {
                let buffer = sources.pool.exclusive();
                if let Some(free) = Arc::get_mut(buffer) {
                    free.start().extend_from_slice(other.bytes());
                }
                buffer.clone()
            }
        };
        source.heard = info.received_ns;
        let (seq, stamp, change) = (info.seq, info.source_ns, info.change);
        let entry = Entry {
            buffer,
            seq,
            stamp,
            now: info.received_ns,
            change,
            historical: false,
            offered: 0,
            batch: false,
            charge: Charge::default(),
        };
        let kept = source.history.keep(compact(entry), info.received_ns);
        self.unkept[0].fetch_add(u64::from(!kept), Relaxed);
    }

    /// The last samples of each instance of the port itself, which is a publisher.
    pub(crate) fn latest(&self, samples: u32) -> Vec<Entry> {
        let (mut sources, mut latest) = (self.sources.lock(), Vec::new());
        if let Some(instances) = &sources.instances {
            latest = instances.last(samples as usize);
        } else if let Some(own) = sources.all.first_mut() {
            let mut reading = own.history.ask(&Query::Last(u64::from(samples)), linux::clock::monotonic_ns());
            own.history.read(&mut reading, usize::MAX, usize::MAX, &mut latest);
        }
        latest
    }

    /// The publishers whose samples may answer the question; and the type of others, if the asking port cannot read it.
    pub(crate) fn sources(&self, question: &Question) -> (Vec<Identity>, Option<TypeDescription>) {
        let (mut found, mut unreadable) = (Vec::new(), None);
        for source in &self.sources.lock().all {
            let named = question.publisher.as_ref().is_none_or(|name| *name == source.name);
            if !named || question.except.contains(&source.publisher) || !topic_matches(&question.topic, &source.topic) {
                continue;
            }
            match question.message.accepts(&source.message) {
                true => found.push(source.publisher),
                false => unreadable = Some(source.message.clone()),
            }
        }
        (found, unreadable)
    }

    /// Begins the answer for one publisher, with the samples that were taken at once; `None`: the publisher has given way to
    /// another one.
    pub(crate) fn ask(
        &self,
        publisher: Identity,
        query: &Query,
        now: u64,
        flow: u32,
    ) -> Option<(Run, Reading, Vec<Entry>)> {
        let mut sources = self.sources.lock();
        let by_instance = match (query, &sources.instances) {
            (Query::LastOfEach(samples), Some(instances)) => Some(instances.last(*samples as usize)),
            _ => None,
        };
        let source = sources.all.iter_mut().find(|source| source.publisher == publisher)?;
        let Source { name, topic, message, clock, .. } = source;
        let (name, topic, message, clock) = (name.clone(), topic.clone(), message.clone(), clock.clone());
        let reading = by_instance.as_ref().map_or_else(|| source.history.ask(query, now), |_| Reading::nothing_more());
        let run = Run { publisher, name, topic, message, clock, flow };
        Some((run, reading, by_instance.unwrap_or_default()))
    }

    /// Takes references to the next samples of an answer.
    pub(crate) fn read(
        &self,
        publisher: Identity,
        reading: &mut Reading,
        most: (usize, usize),
        into: &mut Vec<Entry>,
    ) -> bool {
        let sources = self.sources.lock();
        let Some(source) = sources.all.iter().find(|source| source.publisher == publisher) else { return false };
        source.history.read(reading, most.0, most.1, into);
        true
    }
}

fn compact(entry: Entry) -> Entry {
    match entry.buffer.compact() {
        Some(smaller) => Entry { buffer: Arc::new(smaller), ..entry },
        None => entry,
    }
}

impl std::fmt::Debug for Histories {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Histories within {:?} of each publisher", self.limits)
    }
}
