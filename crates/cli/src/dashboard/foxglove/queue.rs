//! Samples that wait: of each channel or subscription the last ones, in bounded memory.

use linux::poll::Waker;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thalweg::PortRef;
use tungstenite::Bytes;

/// Most samples of one subscription that wait.
pub(super) const KEPT: usize = 32;
/// Their bytes; the last one is kept whatever its size.
pub(super) const KEPT_BYTES: usize = 1 << 20;

/// A sample of a channel, shared by the clients that wait for it.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) channel: u32,
    pub(super) publisher: PortRef,
    /// When it came here, ns since 1970.
    pub(super) time_ns: u64,
    pub(super) bytes: Bytes,
}

/// The last samples, in their order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Arc<Sample>>,
    bytes: usize,
}

impl Queue {
    /// Adds a sample; the oldest ones go if it is too many.
    pub(super) fn push(&mut self, sample: Arc<Sample>) {
        self.bytes += sample.bytes.len();
        self.waiting.push_back(sample);
        while self.waiting.len() > 1 && (self.waiting.len() > KEPT || self.bytes > KEPT_BYTES) {
            self.pop();
        }
    }

    /// Takes the oldest sample.
    pub(super) fn pop(&mut self) -> Option<Arc<Sample>> {
        let sample = self.waiting.pop_front()?;
        self.bytes -= sample.bytes.len();
        Some(sample)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Samples on their way from the threads that receive to the one that serves clients.
pub(super) struct Inbox {
    waiting: Mutex<BTreeMap<u32, Queue>>,
    pub(super) waker: Waker,
}

impl Inbox {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { waiting: Mutex::default(), waker: Waker::new()? })
    }

    /// Adds a sample. Called where it was received; waits for nothing but the lock.
    pub(super) fn put(&self, sample: Sample) {
        let sample = Arc::new(sample); // without the lock
        let mut waiting = self.lock();
        let first = waiting.is_empty();
        waiting.entry(sample.channel).or_default().push(sample);
        drop(waiting);
        if first {
            self.waker.wake();
        }
    }

    /// Takes all that wait.
    pub(super) fn take(&self) -> impl Iterator<Item = Arc<Sample>> + use<> {
        let waiting = std::mem::take(&mut *self.lock());
        waiting.into_values().flat_map(|queue| queue.waiting)
    }

    /// A lock is poisoned only if a thread panicked between two whole states.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Queue>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use thalweg::control::{NodeId, PortId};

    /// A sample whose bytes begin with a number.
    pub(in super::super) fn sample(channel: u32, number: u8, length: usize) -> Arc<Sample> {
        let (publisher, bytes) = (PortRef { node: NodeId(1), port: PortId(1) }, vec![number; length].into());
        Arc::new(Sample { channel, publisher, time_ns: u64::from(number), bytes })
    }

    #[test]
    fn the_last_samples_are_kept_and_one_of_any_size() {
        let mut queue = Queue::default();
        (0..100).for_each(|number| queue.push(sample(1, number, 10)));
        assert_eq!((queue.pop().unwrap().bytes[0], queue.bytes()), (100 - KEPT as u8, 10 * (KEPT - 1)));
        queue.push(sample(1, 200, 2 * KEPT_BYTES));
        assert_eq!((queue.pop().unwrap().bytes[0], queue.bytes(), queue.is_empty()), (200, 0, true));
    }

    #[test]
    fn a_big_channel_leaves_the_samples_of_a_small_one_in_the_inbox() {
        let inbox = Inbox::new().unwrap();
        let put = |channel, number, length| inbox.put(Arc::into_inner(sample(channel, number, length)).unwrap());
        put(2, 7, 8);
        (0..100).for_each(|number| put(1, number, KEPT_BYTES / 2));
        let found: Vec<_> = inbox.take().map(|sample| (sample.channel, sample.bytes[0])).collect();
        assert_eq!(found, [(1, 98), (1, 99), (2, 7)]);
        assert_eq!(inbox.take().count(), 0);
    }
}
