//! Samples that wait until they are taken.

#![allow(clippy::disallowed_methods)] // samples are stamped, and waits are measured

use super::waiting::{Room, Waiting};
use super::{Sink, SubscriberPort};
use crate::channel::buffer::{Buffer, Pool};
use crate::channel::memory::{ALWAYS, Account, Charge, size_of};
use crate::channel::{Payload, SampleInfo};
use crate::codec::{Message, WHOLE_TOPIC};
use crate::port::{Storage, TakenSample};
use crate::trace::stages::Stay;
use crate::trace::{self, Step};
use linux::futex::{self, Scope};
use linux::lock::PiGuard;
use qos::ResourceLimit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

/// A waiting sample, with its waiting time, if that is measured, and its charge on the node's memory.
type Stored = (SampleInfo, Storage, Option<Stay>, Charge);

/// Pause before another look for memory that others hold.
const OTHERS_PAUSE: Duration = Duration::from_millis(1);

/// Waiting samples, and the threads that wait for them.
pub(super) struct Mailbox {
    pub waiting: Waiting<Stored>,
    pool: Pool,
    pub waker: Option<Waker>,
}

/// The waiting place of threads that want room in a mailbox.
#[derive(Debug, Default)]
pub(super) struct RoomWaiters {
    /// Grows when a sample is taken while a thread waits.
    taken: AtomicU32,
    waiting: AtomicU32,
}

impl RoomWaiters {
    /// Wakes waiting threads: a sample was taken, or none will be taken any more.
    pub(super) fn open(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.taken.fetch_add(1, Ordering::SeqCst);
            futex::wake(&self.taken, u32::MAX >> 1, Scope::Private);
        }
    }
}

impl Mailbox {
    pub(super) fn new(waiting: Waiting<Stored>) -> Self {
        Self { waiting, pool: Pool::default(), waker: None }
    }

    /// Makes room for a sample of `size` bytes, charged to this account.
    fn make_room(&mut self, instance: u64, account: &Arc<Account>, size: usize) -> (Room, Charge) {
        let always = self.waiting.bytes().saturating_add(size) <= ALWAYS;
        let charged = Charge::new(account, size, always);
        let room = self.waiting.make_room(instance, size, charged.as_ref().err().copied());
        let charge = match charged {
            Ok(charge) if !matches!(room, Room::None(_)) => charge,
            Err(_) if !matches!(room, Room::None(_)) => Charge::new(account, size, true).unwrap_or_default(),
            _ => Charge::default(),
        };
        (room, charge)
    }

    /// Takes buffers that were not needed lately out of the pool.
    pub(super) fn trim(&mut self) -> Vec<Arc<Buffer>> {
        self.pool.trim()
    }
}

impl<M: Message> SubscriberPort<M> {
    pub(super) fn store(&self, info: &SampleInfo, payload: Payload<'_>, account: &Arc<Account>) {
        let instance = if self.by_instance { self.instance(info, payload.bytes()) } else { WHOLE_TOPIC };
        let size = size_of(payload.bytes().len());
        let mut mailbox = self.mailbox.lock();
        let (mut room, mut charge) = mailbox.make_room(instance, account, size);
        if matches!(room, Room::None(_)) && self.blocks() && !matches!(payload, Payload::Pooled(_)) {
            drop(mailbox);
            (mailbox, room, charge) = self.wait_for_room(instance, account, size);
        }
        match room {
            Room::Free => {}
            Room::DroppedOldest(count, limit) => self.dropped_by(u64::from(count), limit),
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
        mailbox.waiting.push(instance, size, (*info, storage, Stay::begin(), charge));
        self.stored.store(mailbox.waiting.len(), Ordering::SeqCst);
        let waker = mailbox.waker.take();
        drop(mailbox);
        self.announce(waker);
    }

    /// `true` if a full queue holds up the thread that fills it. The owner of a polled port would wait for itself, and the thread of
    /// a publisher in this process (`local`) is not held up by its subscribers.
    pub(super) fn blocks(&self) -> bool {
        !self.polled && matches!(self.info.qos.queue, qos::Queue::Block { .. }) && matches!(self.sink, Sink::Mailbox)
    }

    /// Counts older samples that gave way to a new one. Only drops by bytes or memory are reported: drops by number are the purpose of
    /// keep-last.
    #[cold]
    fn dropped_by(&self, count: u64, limit: ResourceLimit) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
        self.rejected.note_dropped(limit, count);
    }

    /// Waits until there is room for a sample of this instance, the queue's patience ends, or the port closes.
    #[cold]
    fn wait_for_room(
        &self,
        instance: u64,
        account: &Arc<Account>,
        size: usize,
    ) -> (PiGuard<'_, Mailbox>, Room, Charge) {
        let patience = self.info.qos.queue.patience();
        let began = linux::clock::monotonic_ns();
        self.room_waiters.waiting.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            let seen = self.room_waiters.taken.load(Ordering::SeqCst);
            let mut mailbox = self.mailbox.lock();
            let (room, charge) = mailbox.make_room(instance, account, size);
            let waited = Duration::from_nanos(linux::clock::monotonic_ns().saturating_sub(began));
            let left = patience.saturating_sub(waited);
            if !matches!(room, Room::None(_)) || left.is_zero() || self.is_closed() {
                break (mailbox, room, charge);
            }
            drop(mailbox);
            // There is no wake-up when another port or channel gives memory back.
            let others = matches!(room, Room::None(ResourceLimit::PeerMemory | ResourceLimit::NodeMemory));
            let left = if others { left.min(OTHERS_PAUSE) } else { left };
            futex::wait(&self.room_waiters.taken, seen, Some(left), Scope::Private);
        };
        self.room_waiters.waiting.fetch_sub(1, Ordering::SeqCst);
        found
    }

    /// From now on there is room for this many samples of a late joiner's history.
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

    pub(crate) fn pop(&self) -> Option<(SampleInfo, Storage)> {
        let (info, storage, waited) = self.pop_measured()?;
        waited.into_iter().for_each(Stay::taken);
        Some((info, storage))
    }

    /// Takes the next waiting sample, with its waiting time, if that is measured.
    pub(crate) fn pop_measured(&self) -> Option<(SampleInfo, Storage, Option<Stay>)> {
        if self.stored.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut mailbox = self.mailbox.lock();
        let sample = mailbox.waiting.pop();
        self.stored.store(mailbox.waiting.len(), Ordering::SeqCst);
        drop(mailbox);
        self.room_waiters.open();
        sample.map(|(info, storage, stay, _charge)| (info, storage, stay.map(Stay::end)))
    }

    /// The next waiting sample that can be decoded.
    pub(crate) fn take(&self) -> Option<TakenSample<M>> {
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

    /// `true` if a sample waits or the port is closed; otherwise `waker` is woken then.
    pub(crate) fn is_ready_or_wakes(&self, waker: &Waker) -> bool {
        let mut mailbox = self.mailbox.lock();
        let ready = !mailbox.waiting.is_empty() || self.is_closed();
        if !ready && !mailbox.waker.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            mailbox.waker = Some(waker.clone());
        }
        ready
    }

    /// As [`SubscriberPort::take`]; if no sample waits, `waker` is woken by the next one or the end.
    pub(crate) fn take_or_register(&self, waker: &Waker) -> Option<TakenSample<M>> {
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
    pub(crate) fn wait_for_news(&self, timeout: Duration) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = self.news.load(Ordering::SeqCst);
        if self.stored.load(Ordering::SeqCst) == 0 && !self.is_closed() {
            futex::wait(&self.news, seen, Some(timeout), Scope::Private);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
