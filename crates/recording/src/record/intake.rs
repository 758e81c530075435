//! The samples between the threads that receive and the one that writes, in bounded memory. When it is full, new samples are dropped.
//!
//! The thread that writes may be stopped at any step, for as long as others want its processor. So it holds nothing for which a thread that receives
//! waits: samples come to it in a queue without a lock, and it gives their room back by atomic counters. The lock of the numbers is that of the
//! threads that receive, and of the one that looks after topics. The thread that writes takes it when the recording is over, and nobody
//! receives. What the two still share is the allocator: its lock is held while the bytes of a sample are freed.

#[cfg(test)]
mod tests;

use super::arrivals::{Arrivals, Span};
use linux::clock::monotonic_ns;
use std::collections::HashMap;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use thalweg::{PortRef, SampleInfo};

/// Memory of a waiting sample besides its bytes.
const SAMPLE: u64 = 256;
/// Samples that are taken at once.
const BATCH: usize = 256;

/// A sample that waits to be written.
pub(super) struct Waiting {
    /// The topic's index.
    pub(super) topic: usize,
    pub(super) info: SampleInfo,
    pub(super) bytes: Vec<u8>,
    _room: Room,
}

/// Bytes that wait or are written now: of one topic, and of all.
struct Bytes {
    own: AtomicU64,
    all: Arc<AtomicU64>,
}

/// The room of a sample. Whoever drops it gives it back.
struct Room {
    of: Arc<Bytes>,
    cost: u64,
}

impl Room {
    fn new(of: &Arc<Bytes>, cost: u64) -> Self {
        of.own.fetch_add(cost, Relaxed);
        of.all.fetch_add(cost, Relaxed);
        Self { of: of.clone(), cost }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.own.fetch_sub(self.cost, Relaxed);
        self.of.all.fetch_sub(self.cost, Relaxed);
    }
}

/// The queue of all topics.
pub(super) struct Intake {
    memory: u64,
    /// Bytes that wait or are written now.
    bytes: Arc<AtomicU64>,
    state: Mutex<State>,
    /// Threads that may be about to hand over a sample.
    taking: AtomicUsize,
    closed: AtomicBool,
    samples: Sender<Waiting>,
    lacking: Sender<Lacking>,
    /// The thread that writes has this. Nobody else locks it.
    arrived: Mutex<Arrived>,
    /// The thread that writes, once it has looked for samples.
    writer: OnceLock<Thread>,
}

/// The other ends of the queues.
struct Arrived {
    samples: Receiver<Waiting>,
    lacking: Receiver<Lacking>,
}

/// A publisher whose samples came.
struct Publisher {
    topic: usize,
    first: SampleInfo,
    arrivals: Arrivals,
}

/// What a publisher's samples lack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lacking {
    /// The topic's index.
    pub(super) topic: usize,
    /// A sample of the publisher.
    pub(super) info: SampleInfo,
    /// Lost before they came.
    pub(super) lost: Span,
    /// Dropped here.
    pub(super) dropped: Span,
    /// What the channel has counted as lost on the way by now.
    pub(super) on_the_way: u64,
}

#[derive(Default)]
struct State {
    topics: Vec<Arc<Bytes>>,
    publishers: HashMap<PortRef, Publisher>,
    /// Samples that came.
    came: u64,
    /// The recording ends with what was published by then.
    end_ns: Option<u64>,
}

impl State {
    /// `true` if a sample has room. A topic beyond its share leaves the last eighth to the others.
    fn admits(&self, bytes: &Bytes, cost: u64, memory: u64) -> bool {
        let share = memory / self.topics.len().max(1) as u64;
        let (own, all) = (bytes.own.load(Relaxed), bytes.all.load(Relaxed));
        let most = if own.saturating_add(cost) > share { memory - memory / 8 } else { memory };
        all.saturating_add(cost) <= most || all == 0
    }
}

impl Intake {
    /// A queue of at most so many bytes; empty, it takes one sample of any size.
    pub(super) fn new(memory: u64) -> Self {
        let ((samples, others), (lacking, told)) = (channel(), channel());
        Self {
            memory,
            bytes: Arc::default(),
            state: Mutex::default(),
            taking: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            samples,
            lacking,
            arrived: Mutex::new(Arrived { samples: others, lacking: told }),
            writer: OnceLock::new(),
        }
    }

    /// A further topic; its index.
    pub(super) fn add_topic(&self) -> usize {
        let mut state = self.lock();
        state.topics.push(Arc::new(Bytes { own: AtomicU64::new(0), all: self.bytes.clone() }));
        state.topics.len() - 1
    }

    /// Takes a sample, or drops and counts it. Called where it was received; waits for nothing but the lock. `joined_after`: see
    /// [`Arrivals::note`].
    pub(super) fn take(
        &self,
        topic: usize,
        info: &SampleInfo,
        bytes: &[u8],
        joined_after: impl FnOnce() -> Option<u64>,
    ) {
        // Counted before the look at `closed`: who finds it closed and nobody taking has all samples.
        self.taking.fetch_add(1, SeqCst);
        if !self.closed.load(SeqCst)
            && let Some(room) = self.reserve((topic, bytes.len() as u64 + SAMPLE), info, joined_after)
        {
            // The copy is made without the lock. The other end of the queue is here, too, so it takes the sample.
            let _ = self.samples.send(Waiting { topic, info: *info, bytes: bytes.to_vec(), _room: room });
        }
        self.taking.fetch_sub(1, SeqCst);
        self.wake();
    }

    fn reserve(
        &self,
        (topic, cost): (usize, u64),
        info: &SampleInfo,
        joined_after: impl FnOnce() -> Option<u64>,
    ) -> Option<Room> {
        let mut state = self.lock();
        let is_after = |end_ns: u64| info.same_clock && info.source_ns > end_ns;
        if state.end_ns.is_some_and(is_after) {
            return None;
        }
        state.came += 1;
        let of = state.topics.get(topic)?.clone();
        let admitted = state.admits(&of, cost, self.memory);
        let port = PortRef { node: info.node, port: info.port };
        let first = || Publisher { topic, first: *info, arrivals: Arrivals::default() };
        let arrivals = &mut state.publishers.entry(port).or_insert_with(first).arrivals;
        arrivals.note(info, joined_after);
        if !admitted {
            arrivals.drop_sample(info.seq);
            return None;
        }
        Some(Room::new(&of, cost)) // with the lock: no other thread reserves meanwhile
    }

    /// Wakes the thread that writes, if it sleeps.
    fn wake(&self) {
        self.writer.get().into_iter().for_each(Thread::unpark);
    }

    /// For the thread that writes: gives back the samples in `batch`, and takes the next ones; waits for them at most `timeout`. `false`: it is
    /// closed, and none is left.
    pub(super) fn next(&self, batch: &mut Vec<Waiting>, timeout: Duration) -> bool {
        batch.clear();
        self.writer.get_or_init(thread::current);
        let arrived = self.arrived();
        let until = Instant::now() + timeout;
        loop {
            let is_over = self.is_over(); // before the look at the queue, which then has all that came
            batch.extend(arrived.samples.try_iter().take(BATCH));
            let left = until.saturating_duration_since(Instant::now());
            if is_over || !batch.is_empty() || left.is_zero() {
                return !(is_over && batch.is_empty());
            }
            thread::park_timeout(left);
        }
    }

    /// `true` if no further sample will come.
    fn is_over(&self) -> bool {
        self.closed.load(SeqCst) && self.taking.load(SeqCst) == 0
    }

    /// What each publisher's samples lack since the last call, for a thread that may take the lock of those that receive: see [`Intake`].
    /// `on_the_way` gives what a publisher's channel has lost by now.
    pub(super) fn take_losses(&self, end: bool, on_the_way: impl Fn(&Lacking) -> u64) -> Vec<Lacking> {
        let lacking = |Publisher { topic, first, arrivals }: &mut Publisher| {
            let (lost, dropped) = arrivals.take(end);
            let found = Lacking { topic: *topic, info: *first, lost, dropped, on_the_way: 0 };
            (lost.count + dropped.count > 0).then_some(found)
        };
        let found: Vec<Lacking> = self.lock().publishers.values_mut().filter_map(lacking).collect();
        found.into_iter().map(|found| Lacking { on_the_way: on_the_way(&found), ..found }).collect()
    }

    /// Hands losses over to the thread that writes.
    pub(super) fn tell_losses(&self, losses: Vec<Lacking>) {
        for lacking in losses {
            let _ = self.lacking.send(lacking); // the other end is here, too
        }
    }

    /// For the thread that writes: losses that were handed over.
    pub(super) fn told_losses(&self) -> Vec<Lacking> {
        self.arrived().lacking.try_iter().collect()
    }

    /// The highest number of any sample that came.
    #[cfg(test)]
    pub(super) fn highest(&self) -> u64 {
        self.lock().publishers.values().map(|publisher| publisher.arrivals.highest()).max().unwrap_or(0)
    }

    /// Takes what was published before now and is on its way: until nothing has come for `quiet`, and at most for `longest`.
    pub(super) fn settle(&self, quiet: Duration, longest: Duration) {
        let until = Instant::now() + longest;
        self.lock().end_ns = Some(monotonic_ns());
        let mut before = None;
        while Instant::now() < until {
            let came = Some(self.lock().came);
            if came == before {
                return;
            }
            before = came;
            thread::sleep(quiet);
        }
    }

    /// Takes nothing more.
    pub(super) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.wake();
    }

    /// A lock is poisoned only if a thread panicked between two whole states.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
