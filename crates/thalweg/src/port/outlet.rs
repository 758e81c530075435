//! The sending side of a port: one sample to all its channels (steps 1 to 3 of the data path).

mod any;
mod loan;
mod monitored;

pub(crate) use any::{AnyOutlet, Attach};
pub(crate) use loan::Place;

use super::joins::Joins;
use super::local::LocalChannel;
use super::monitor::seat::Seat;
use super::round::Round;
use super::{Histories, Judge, Published, judge_of_publisher};
use crate::channel::buffer::{Buffer, Pool};
use crate::channel::coalescing::{self, Turn};
use crate::channel::flow::Flow;
use crate::channel::outgoing::Outgoing;
use crate::channel::{Change, Channel, Outcome, PortRef};
use crate::codec::Message;
use crate::control::PortInfo;
use crate::error::{Error, Result};
use crate::trace::{self, Step};
use linux::lock::{PiGuard, PiMutex};
use linux::memory::{Arena, RingWriter};
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Messages at least this long are sent from where they lie; shorter ones are copied next to their header, which is
/// cheaper than a second piece in the send.
const COPY_BELOW: usize = 16 << 10;

/// Buffers made for a subscriber of this process, whose samples wait in them, and what each holds before it has to grow.
const MOST_PREPARED: u32 = 64;
pub(super) const SMALL: usize = 256;

/// Longest wait of a report for the port.
const REPORT_PATIENCE: Duration = Duration::from_millis(20);

/// The shared state of a publisher.
pub(crate) struct Outlet<M: Message> {
    pub info: PortInfo,
    pub me: PortRef,
    pub incarnation: u64,
    pub(super) state: PiMutex<Outflow<M>>,
    pub(super) joins: Joins<M>,
    pub(super) connected: AtomicUsize,
    /// The number of attached channels whose subscriber is cut off.
    pub(super) cut_off: AtomicUsize,
    closed: AtomicBool,
    /// The same channels, for those who must not wait for the publishing thread.
    pub(super) channels: PiMutex<Vec<Arc<Channel>>>,
    pub published: AtomicU64,
    /// The payload memory's descriptor, for further `shm` channels.
    payload: OnceLock<OwnedFd>,
    /// The payload memory until the first channel that uses it is attached.
    pub(super) fresh: PiMutex<Option<Arena>>,
    /// Samples that all `shm` subscribers together may hold.
    pub(super) held: AtomicUsize,
    /// Looks at what goes out.
    monitor: Seat,
    /// Judges by what the port promises, where time passes for it.
    judge: Option<Arc<Judge>>,
    /// Keeps what goes out, for those who ask or join late.
    histories: Option<Arc<Histories>>,
}

/// State of the publishing thread; others touch it only for joins and leaves.
pub(crate) struct Outflow<M: Message> {
    seq: u64,
    pub(super) pool: Pool,
    pub(super) turn: Turn,
    pub(super) attached: Vec<Attached<M>>,
    /// Payload memory of the `shm` channels; made with the first of them.
    pub(super) arena: Option<Arena>,
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
    /// Shared memory: the ring and the flow sequence number of its next sample.
    Ring(RingWriter, u32),
}

/// The way of a channel out of this port, as the driver sees it.
pub(crate) enum Way {
    /// A unicast flow.
    Flow(Arc<Flow>),
    /// A multicast flow that other channels may share.
    Group(Arc<Flow>),
    /// A subscriber of this process: its typed inlet.
    Local(Arc<dyn Any + Send + Sync>),
    /// Shared memory: the channel's ring.
    Ring(RingWriter),
}

impl<M: Message> Outlet<M> {
    pub fn new(info: PortInfo, me: PortRef, incarnation: u64, histories: Option<Arc<Histories>>) -> Self {
        let kept = histories.as_ref().map_or(0, |kept| kept.limits().samples.min(MOST_PREPARED));
        let mut pool = Pool::with_buffers(2 + kept as usize, SMALL);
        if let Some(histories) = &histories {
            pool.limit(histories.room());
        }
        let now = linux::clock::monotonic_ns();
        // Its key was looked for when the port was described.
        let judge = judge_of_publisher(&info.name, &info.qos, info.message.schema.as_ref(), now).ok().flatten();
        let state = Outflow { seq: 0, pool, turn: Turn::default(), attached: Vec::new(), arena: None };
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
            monitor: Seat::default(),
            judge,
            histories,
        }
    }

    /// Keeps a message that was sent, where the port has a pull buffer.
    #[inline]
    fn remember(&self, message: &mut Outgoing<'_>) {
        if let Some(histories) = &self.histories {
            histories.keep_own(message.keep());
        }
    }

    /// Somebody needs the encoded message.
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

    pub fn connected(&self) -> usize {
        self.connected.load(Ordering::Acquire).saturating_sub(self.cut_off.load(Ordering::Relaxed))
    }

    /// Publishes one value on all channels. Takes the port's lock (uncontended but for joins and leaves) and no other.
    pub fn publish(
        &self,
        value: &M::Value,
        change: Change,
        each: &mut dyn FnMut(&Channel, Outcome),
    ) -> Result<Published> {
        trace::step(Step::Publish);
        let (mut state, now) = self.begin()?;
        coalescing::begins(now);
        if let Some(judge) = &self.judge {
            judge.published(now, change, |bytes| M::encode(value, bytes).is_ok());
        }
        if self.monitor.is_taken()
            && let Some(published) = self.monitored(&mut state, (now, change), value, each)
        {
            return published;
        }
        let Outflow { seq, pool, turn, attached, arena } = &mut *state;
        let published = Published { seq: *seq + 1, ..Published::default() };
        let mut round = Round { outlet: self, published, now, change, historical: false, each };
        round.hand_over_values(attached, value);
        if self.needs_bytes(attached, round.published.seq) {
            match M::as_bytes(value).filter(|bytes| bytes.len() >= COPY_BELOW) {
                Some(bytes) => {
                    round.check_size(bytes.len())?;
                    round.share(attached, arena, bytes);
                    let mut message = Outgoing::external(round.published.seq, now, bytes, pool).saying(change);
                    round.offer(attached, &mut message, turn);
                    self.remember(&mut message);
                }
                None => {
                    let buffer = pool.exclusive();
                    encode::<M>(value, buffer)?;
                    round.check_size(buffer.payload().len())?;
                    round.share(attached, arena, buffer.payload());
                    let mut message = Outgoing::pooled(round.published.seq, now, buffer).saying(change);
                    round.offer(attached, &mut message, turn);
                    self.remember(&mut message);
                }
            }
        }
        *seq += 1;
        self.published.store(*seq, Ordering::Relaxed);
        Ok(round.published)
    }

    /// For tools: a publishing thread that holds the port (it may wait for room in a channel) is not waited for long.
    fn try_lock_patiently(&self) -> Option<PiGuard<'_, Outflow<M>>> {
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

    fn begin(&self) -> Result<(PiGuard<'_, Outflow<M>>, u64)> {
        if self.is_closing() {
            return Err(Error::Closed);
        }
        let mut state = self.state.lock();
        self.take_in(&mut state);
        Ok((state, linux::clock::monotonic_ns()))
    }

    /// Waits until nothing waits in any channel, at most `timeout`; `false` when something is left.
    pub fn drain(&self, timeout: Duration) -> bool {
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

fn encode<M: Message>(value: &M::Value, buffer: &mut Arc<Buffer>) -> Result<()> {
    trace::step(Step::Encode);
    match Arc::get_mut(buffer) {
        Some(free) => M::encode(value, free.start()).map_err(|e| Error::Message(format!("cannot encode: {e}"))),
        None => Err(Error::Message("cannot encode: the pool lent a buffer twice (a bug of Thalweg's)".into())),
    }
}

impl<M: Message> Attached<M> {
    /// `true` if the sample goes on this channel. A sample that its proxy leaves out here costs nothing further.
    #[inline]
    pub(super) fn selects(&self, seq: u64) -> bool {
        self.channel.selection.takes(seq)
    }
    pub(super) fn takes_values(&self) -> bool {
        matches!(&self.way, TypedWay::Local(subscriber) if subscriber.wants_value())
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
            TypedWay::Ring(ring, _) => usize::try_from(ring.bytes()).unwrap_or(usize::MAX),
            TypedWay::Flow(flow) | TypedWay::Group(flow, true) if !flow.has_ended() => flow.bytes(),
            _ => 0,
        }
    }
    /// Ends the channel. A ring ends only when its reader's sign is gone, so that nobody reads the slots any more.
    pub(super) fn end(&mut self, arena: Option<&mut Arena>) {
        self.channel.close();
        match (&mut self.way, arena) {
            (TypedWay::Flow(flow) | TypedWay::Group(flow, true), _) => flow.end(),
            (TypedWay::Ring(ring, _), Some(arena)) => ring.release_all(arena),
            _ => {}
        }
    }
}
