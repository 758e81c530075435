//! Samples that wait until they are taken.

use super::{Inlet, Payload};
use crate::channel::buffer::Pool;
use crate::codec::Message;
use crate::port::sample::{SampleInfo, Storage, TakenSample};
use crate::stages::Waiting;
use crate::trace::{self, Step};
use linux::futex::{self, Scope};
use qos::Queue;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

/// What waits, and who waits for it.
pub(super) struct Mailbox {
    pub waiting: VecDeque<(SampleInfo, Storage, Option<Waiting>)>,
    limit: usize,
    keep_oldest: bool,
    pool: Pool,
    pub waker: Option<Waker>,
}

impl Mailbox {
    /// Has room for what `queue` says, and for the history of a late joiner, which comes at once and is not to drop itself.
    pub fn new(queue: Queue, late: u32) -> Self {
        let limit = queue.limit().max(late) as usize;
        let waiting = VecDeque::with_capacity(limit.min(1024));
        let keep_oldest = !matches!(queue, Queue::KeepLast(_));
        Self { waiting, limit, keep_oldest, pool: Pool::default(), waker: None }
    }
}

impl<M: Message> Inlet<M> {
    pub(super) fn store(&self, info: SampleInfo, payload: Payload<'_>) {
        let mut mailbox = self.mailbox.lock();
        if mailbox.waiting.len() >= mailbox.limit {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            if mailbox.keep_oldest {
                return;
            }
            mailbox.waiting.pop_front();
        }
        let storage = match payload {
            Payload::Shared(borrowed) => Storage::Shared(borrowed),
            Payload::Pooled(buffer) => Storage::Pooled(buffer.clone()),
            Payload::Bytes(bytes) => {
                let buffer = mailbox.pool.exclusive();
                if let Some(free) = Arc::get_mut(buffer) {
                    free.start().extend_from_slice(bytes);
                }
                Storage::Pooled(buffer.clone())
            }
        };
        mailbox.waiting.push_back((info, storage, Waiting::begin()));
        self.stored.store(mailbox.waiting.len(), Ordering::SeqCst);
        let waker = mailbox.waker.take();
        drop(mailbox);
        self.announce(waker);
    }

    pub(super) fn announce(&self, waker: Option<Waker>) {
        self.news.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            futex::wake(&self.news, u32::MAX >> 1, Scope::Private);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub fn pop(&self) -> Option<(SampleInfo, Storage)> {
        self.pop_measured().map(|(info, storage, _)| (info, storage))
    }

    /// With how it waited, if that is measured.
    pub fn pop_measured(&self) -> Option<(SampleInfo, Storage, Option<Waiting>)> {
        if self.stored.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut mailbox = self.mailbox.lock();
        let sample = mailbox.waiting.pop_front();
        self.stored.store(mailbox.waiting.len(), Ordering::SeqCst);
        drop(mailbox);
        sample.map(|(info, storage, waiting)| (info, storage, waiting.map(Waiting::end)))
    }

    /// The next waiting sample that can be decoded.
    pub fn take(&self) -> Option<TakenSample<M>> {
        loop {
            let (info, storage) = self.pop()?;
            trace::step(Step::Decode);
            match TakenSample::new(info, storage) {
                Ok(sample) => {
                    trace::step(Step::Take);
                    return Some(sample);
                }
                Err(problem) => self.cannot_decode(&problem.to_string()),
            }
        }
    }

    /// Whether a sample waits, or the port is closed; else `waker` is woken then.
    pub fn is_ready_or_wakes(&self, waker: &Waker) -> bool {
        let mut mailbox = self.mailbox.lock();
        let ready = !mailbox.waiting.is_empty() || self.is_closed();
        if !ready && !mailbox.waker.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            mailbox.waker = Some(waker.clone());
        }
        ready
    }

    /// As [`Inlet::take`]; when nothing waits, `waker` is woken by the next sample or the end.
    pub fn take_or_register(&self, waker: &Waker) -> Option<TakenSample<M>> {
        if let Some(sample) = self.take() {
            return Some(sample);
        }
        let mut mailbox = self.mailbox.lock();
        if mailbox.waiting.is_empty() {
            mailbox.waker = Some(waker.clone());
            return None;
        }
        drop(mailbox);
        self.take()
    }

    /// Waits until a sample arrives, the port closes or `timeout` passed.
    pub fn wait_for_news(&self, timeout: Duration) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = self.news.load(Ordering::SeqCst);
        if self.stored.load(Ordering::SeqCst) == 0 && !self.is_closed() {
            futex::wait(&self.news, seen, Some(timeout), Scope::Private);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
