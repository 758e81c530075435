//! Samples that wait until they are taken.

use super::waiting::{Room, Waiting};
use super::{Inlet, Payload};
use crate::channel::buffer::Pool;
use crate::codec::Message;
use crate::port::WHOLE_TOPIC;
use crate::port::sample::{SampleInfo, Storage, TakenSample};
use crate::stages::Stay;
use crate::trace::{self, Step};
use linux::futex::{self, Scope};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

/// A sample that waits, with how long it does, if that is measured.
type Stored = (SampleInfo, Storage, Option<Stay>);

/// What waits, and who waits for it.
pub(super) struct Mailbox {
    pub waiting: Waiting<Stored>,
    pool: Pool,
    pub waker: Option<Waker>,
}

impl Mailbox {
    pub fn new(waiting: Waiting<Stored>) -> Self {
        Self { waiting, pool: Pool::default(), waker: None }
    }
}

impl<M: Message> Inlet<M> {
    pub(super) fn store(&self, info: SampleInfo, payload: Payload<'_>) {
        let instance = if self.by_instance { self.instance(&info, payload.bytes()) } else { WHOLE_TOPIC };
        let mut mailbox = self.mailbox.lock();
        match mailbox.waiting.make_room(instance) {
            Room::Free => {}
            Room::DroppedOldest => drop(self.dropped.fetch_add(1, Ordering::Relaxed)),
            Room::None(limit) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return self.rejected.note(limit);
            }
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
        mailbox.waiting.push(instance, (info, storage, Stay::begin()));
        self.stored.store(mailbox.waiting.len(), Ordering::SeqCst);
        let waker = mailbox.waker.take();
        drop(mailbox);
        self.announce(waker);
    }

    /// From now on there is room for so many samples of a late joiner's history.
    pub(super) fn expect_history(&self, samples: usize) {
        self.mailbox.lock().waiting.expect(samples);
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
        let (info, storage, waited) = self.pop_measured()?;
        waited.into_iter().for_each(Stay::taken);
        Some((info, storage))
    }

    /// With how it waited, if that is measured.
    pub fn pop_measured(&self) -> Option<Stored> {
        if self.stored.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut mailbox = self.mailbox.lock();
        let sample = mailbox.waiting.pop();
        self.stored.store(mailbox.waiting.len(), Ordering::SeqCst);
        drop(mailbox);
        sample.map(|(info, storage, stay)| (info, storage, stay.map(Stay::end)))
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
