//! The sending side of a port: its state, and the channels that are attached to it.

#![allow(clippy::disallowed_methods)] // samples are stamped, and waits are measured

mod any;
mod publish;

pub(crate) use any::{AnyPublisher, Attach};
pub(super) use publish::Content;

use super::LocalChannel;
use super::joins::Joins;
use super::monitor::slot::MonitorSlot;
use super::{Histories, Judge, judge_of_publisher};
use crate::carrier::shm::Memory;
use crate::channel::buffer::{Buffer, Pool};
use crate::channel::coalescing::Turn;
use crate::channel::flow::Flow;
use crate::channel::ring::Ring;
use crate::channel::{Channel, PortRef};
use crate::codec::Message;
use crate::control::PortInfo;
use linux::lock::{PiGuard, PiMutex};
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Buffers made for a subscriber of this process, in which its samples wait, and the room of each before it has to grow.
const MOST_PREPARED: u32 = 64;
pub(super) const SMALL: usize = 256;

/// Longest wait of a report for the port.
const REPORT_PATIENCE: Duration = Duration::from_millis(20);

/// The shared state of a publisher.
pub(crate) struct PublisherPort<M: Message> {
    pub info: PortInfo,
    pub me: PortRef,
    pub incarnation: u64,
    pub(super) state: PiMutex<PublishState<M>>,
    pub(super) joins: Joins<M>,
    pub(super) connected: AtomicUsize,
    /// The number of attached channels whose subscriber is cut off.
    pub(super) cut_off: AtomicUsize,
    closed: AtomicBool,
    /// The same channels, for threads that must not wait for the publishing thread.
    pub(super) channels: PiMutex<Vec<Arc<Channel>>>,
    pub published: AtomicU64,
    /// The payload memory's descriptor, for further `shm` channels.
    payload: OnceLock<OwnedFd>,
    /// The payload memory until the first channel that uses it is attached.
    pub(super) fresh: PiMutex<Option<Memory>>,
    /// Samples that all `shm` subscribers together may hold.
    pub(super) held: AtomicUsize,
    /// Looks at what goes out.
    monitor: MonitorSlot,
    /// Judges by the port's promises, if time matters for them.
    judge: Option<Arc<Judge>>,
    /// Keeps the published samples, for queries and late joiners.
    histories: Option<Arc<Histories>>,
}

/// State of the publishing thread; others touch it only for joins and leaves.
pub(crate) struct PublishState<M: Message> {
    seq: u64,
    pub(super) pool: Pool,
    pub(super) turn: Turn,
    pub(super) attached: Vec<Attached<M>>,
    /// Payload memory of the `shm` channels; made with the first of them.
    pub(super) memory: Option<Memory>,
}

pub(super) struct Attached<M: Message> {
    pub(super) channel: Arc<Channel>,
    pub(super) way: TypedWay<M>,
}

pub(super) enum TypedWay<M: Message> {
    Local(Arc<dyn LocalChannel<M>>),
    /// A flow of this channel alone.
    Flow(Arc<Flow>),
    /// A multicast flow, sent once for all its members: `true` at the member that sends.
    Group(Arc<Flow>, bool),
    /// Shared memory.
    Ring(Ring),
}

/// The way of a channel out of this port, as the driver sees it.
pub(crate) enum Way {
    /// A unicast flow.
    Flow(Arc<Flow>),
    /// A multicast flow that other channels may share.
    Group(Arc<Flow>),
    /// A subscriber of this process: its typed subscriber port.
    Local(Arc<dyn Any + Send + Sync>),
    /// Shared memory: the channel's ring.
    Ring(Ring),
}

/// The place of a loaned message, which is written where it is sent from.
pub(crate) enum Place {
    /// In a pooled buffer.
    Buffer(Arc<Buffer>),
    /// In the port's shared memory.
    Slot(linux::memory::Loan),
}

impl<M: Message> PublisherPort<M> {
    pub(crate) fn new(info: PortInfo, me: PortRef, incarnation: u64, histories: Option<Arc<Histories>>) -> Self {
        let kept = histories.as_ref().map_or(0, |kept| kept.limits().samples.min(MOST_PREPARED));
        let mut pool = Pool::with_buffers(2 + kept as usize, SMALL);
        if let Some(histories) = &histories {
            pool.limit(histories.room());
        }
        let now = linux::clock::monotonic_ns();
        // The key was looked up when the port was described.
        let judge = judge_of_publisher(&info.name, &info.qos, info.message.schema.as_deref(), now).ok().flatten();
        let state = PublishState { seq: 0, pool, turn: Turn::default(), attached: Vec::new(), memory: None };
        Self {
            info,
            me,
            incarnation,
            state: PiMutex::new(state),
            joins: Joins::default(),
            connected: AtomicUsize::new(0),
            cut_off: AtomicUsize::new(0),
            channels: PiMutex::default(),
            closed: AtomicBool::new(false),
            published: AtomicU64::new(0),
            payload: OnceLock::new(),
            fresh: PiMutex::new(None),
            held: AtomicUsize::new(0),
            monitor: MonitorSlot::default(),
            judge,
            histories,
        }
    }

    /// `true` if the encoded message is needed.
    #[inline]
    fn needs_bytes(&self, attached: &[Attached<M>], seq: u64) -> bool {
        self.histories.is_some() || attached.iter().any(|a| a.selects(seq) && !a.takes_values())
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Buffers to be made for samples that wait in them instead of leaving at once.
    pub(super) fn prepared(&self) -> usize {
        self.info.qos.queue.limit().min(MOST_PREPARED) as usize + 2
    }

    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Ordering::Acquire).saturating_sub(self.cut_off.load(Ordering::Relaxed))
    }

    /// Locks the port for tools, with a short wait for a publishing thread that holds it (it may wait for room in a channel).
    fn try_lock_patiently(&self) -> Option<PiGuard<'_, PublishState<M>>> {
        let until = Instant::now() + REPORT_PATIENCE;
        loop {
            match self.state.try_lock() {
                Some(state) => return Some(state),
                None if Instant::now() >= until => return None,
                None => std::thread::yield_now(),
            }
        }
    }

    /// `true` if a group has members that are not cut off.
    pub(super) fn has_members(&self, group: &Arc<Flow>) -> bool {
        let is_of = |channel: &Channel| channel.sent_by().is_some_and(|flow| Arc::ptr_eq(&flow, group));
        self.channels.lock().iter().any(|channel| !channel.is_closed() && is_of(channel))
    }

    /// Waits until no sample waits in any channel, at most `timeout`. `false`: some still wait.
    pub(crate) fn drain(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        loop {
            let left: usize = self.state.lock().attached.iter().map(Attached::waiting).sum();
            if left == 0 {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl<M: Message> PublishState<M> {
    /// Memory of `len` bytes for a message: shared with the subscribers if there are `shm` channels.
    pub(crate) fn loan(&mut self, len: usize) -> Place {
        let shares = self.attached.iter().any(Attached::shares);
        if let Some(loan) = self.memory.as_mut().filter(|_| shares).and_then(|memory| memory.loan(len).ok()) {
            return Place::Slot(loan);
        }
        let mut buffer = self.pool.take();
        if let Some(free) = Arc::get_mut(&mut buffer) {
            free.sized(len);
        }
        Place::Buffer(buffer)
    }

    /// The memory of a loan.
    pub(crate) fn bytes_mut<'a>(&'a mut self, place: &'a mut Place) -> &'a mut [u8] {
        match place {
            Place::Buffer(buffer) => Arc::get_mut(buffer).map(Buffer::payload_mut).unwrap_or_default(),
            Place::Slot(loan) => self.memory.as_mut().map(|memory| memory.bytes_mut(loan)).unwrap_or_default(),
        }
    }

    /// Takes an unpublished loan back.
    pub(crate) fn give_back(&mut self, place: Place) {
        match place {
            Place::Buffer(buffer) => self.pool.replace(buffer),
            Place::Slot(loan) => {
                if let Some(memory) = self.memory.as_mut() {
                    memory.cancel(loan);
                }
            }
        }
    }
}

impl<M: Message> Attached<M> {
    /// `true` if the sample is sent on this channel. A sample that the channel's proxy leaves out here causes no further work.
    #[inline]
    pub(super) fn selects(&self, seq: u64) -> bool {
        self.channel.selection.takes(seq)
    }
    pub(super) fn takes_values(&self) -> bool {
        matches!(&self.way, TypedWay::Local(subscriber) if subscriber.wants_value())
    }
    /// `true` if the channel reads the port's shared memory.
    pub(super) fn shares(&self) -> bool {
        matches!(self.way, TypedWay::Ring(_))
    }
    fn waiting(&self) -> usize {
        match &self.way {
            TypedWay::Flow(flow) | TypedWay::Group(flow, true) if flow.is_live() => flow.waiting(),
            _ => 0,
        }
    }
    /// Bytes of waiting samples.
    fn bytes(&self) -> usize {
        match &self.way {
            TypedWay::Ring(ring) => ring.bytes(),
            TypedWay::Flow(flow) | TypedWay::Group(flow, true) if !flow.has_ended() => flow.bytes(),
            _ => 0,
        }
    }
    /// Ends the channel. A ring ends only when its reader's sign is gone, so that the slots are not read any more.
    pub(super) fn end(&mut self, memory: Option<&mut Memory>) {
        self.channel.close();
        match (&mut self.way, memory) {
            (TypedWay::Flow(flow) | TypedWay::Group(flow, true), _) => flow.end(),
            (TypedWay::Ring(ring), Some(memory)) => ring.end(memory),
            _ => {}
        }
    }
}
