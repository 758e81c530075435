//! The sending side of a port: one sample to all its channels (steps 1 to 3 of the data path).

use super::local::LocalChannel;
use super::sample::SampleInfo;
use super::{Channel, ChannelReport, Inlet, Outcome, PortRef, Published};
use crate::channel::buffer::{Buffer, Pool};
use crate::channel::flow::Flow;
use crate::channel::outgoing::Outgoing;
use crate::codec::Message;
use crate::control::PortInfo;
use crate::error::{Error, Result};
use linux::lock::{PiGuard, PiMutex};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Messages at least this long are sent from where they lie; shorter ones are copied next to their header, which is
/// cheaper than a second piece in the send.
const COPY_BELOW: usize = 16 << 10;

/// The shared state of a publisher.
pub(crate) struct Outlet<M: Message> {
    pub info: PortInfo,
    pub me: PortRef,
    pub incarnation: u64,
    state: PiMutex<Outflow<M>>,
    connected: AtomicUsize,
    closed: AtomicBool,
    pub published: AtomicU64,
}

/// What only the publishing thread touches, but for joins and leaves.
pub(crate) struct Outflow<M: Message> {
    seq: u64,
    pool: Pool,
    attached: Vec<Attached<M>>,
}

struct Attached<M: Message> {
    channel: Arc<Channel>,
    way: TypedWay<M>,
}

enum TypedWay<M: Message> {
    Local(Arc<dyn LocalChannel<M>>),
    /// A flow of this channel alone.
    Flow(Arc<Flow>),
    /// A multicast flow, sent once for all its members: `true` at the member that sends.
    Group(Arc<Flow>, bool),
}

/// How a channel leaves this port, as the driver sees it.
pub(crate) enum Way {
    /// A unicast flow.
    Flow(Arc<Flow>),
    /// A multicast flow that other channels may share.
    Group(Arc<Flow>),
    /// A subscriber of this process: its typed inlet.
    Local(Arc<dyn Any + Send + Sync>),
}

/// What a publisher gives the driver: everything but its message type.
pub(crate) trait AnyOutlet: Send + Sync {
    fn info(&self) -> &PortInfo;
    /// Adds a channel. `Err` gives it back: the publishing thread is busy (try again) or the type differs (`local`).
    fn attach(&self, channel: Arc<Channel>, way: Way) -> std::result::Result<u64, (Way, Attach)>;
    /// Removes a channel and ends its flow unless others share it. `false`: busy, try again.
    fn detach(&self, id: u64) -> bool;
    /// Sequence number of the last published sample.
    fn last_seq(&self) -> u64;
    fn reports(&self) -> Vec<ChannelReport>;
    /// No further sample is taken.
    fn close(&self);
    fn is_closed(&self) -> bool;
}

/// Why a channel could not be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attach {
    Busy,
    OtherType,
    Closed,
}

impl<M: Message> Outlet<M> {
    pub fn new(info: PortInfo, me: PortRef, incarnation: u64) -> Self {
        let state = Outflow { seq: 0, pool: Pool::with_buffers(2, 256), attached: Vec::new() };
        Self {
            info,
            me,
            incarnation,
            state: PiMutex::new(state),
            connected: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            published: AtomicU64::new(0),
        }
    }

    pub fn connected(&self) -> usize {
        self.connected.load(Ordering::Acquire)
    }

    /// Publishes one value on all channels. Takes the port's lock (uncontended but for joins and leaves) and no other.
    pub fn publish(&self, value: &M::Value, each: &mut dyn FnMut(&Channel, Outcome)) -> Result<Published> {
        let (mut state, now) = self.begin()?;
        let Outflow { seq, pool, attached } = &mut *state;
        let published = Published { seq: *seq + 1, ..Published::default() };
        let mut round = Round { outlet: self, published, now, each };
        round.hand_over_values(attached, value);
        if attached.iter().any(|a| !a.takes_values()) {
            match M::as_bytes(value).filter(|bytes| bytes.len() >= COPY_BELOW) {
                Some(bytes) => {
                    round.check_size(bytes.len())?;
                    round.offer(attached, &mut Outgoing::external(round.published.seq, now, bytes, pool));
                }
                None => {
                    let buffer = pool.exclusive();
                    encode::<M>(value, buffer)?;
                    round.check_size(buffer.payload().len())?;
                    round.offer(attached, &mut Outgoing::pooled(round.published.seq, now, buffer));
                }
            }
        }
        *seq += 1;
        self.published.store(*seq, Ordering::Relaxed);
        Ok(round.published)
    }

    /// Publishes a message that was written into a loaned buffer.
    pub fn publish_loan(&self, mut state: PiGuard<'_, Outflow<M>>, mut buffer: Arc<Buffer>) -> Result<Published> {
        let now = linux::clock::monotonic_ns();
        let published = Published { seq: state.seq + 1, ..Published::default() };
        let mut round = Round { outlet: self, published, now, each: &mut |_, _| {} };
        if state.attached.iter().any(Attached::takes_values) {
            let decoded = M::decode(buffer.payload()).map_err(|e| Error::Message(e.to_string()))?;
            round.hand_over_values(&state.attached, decoded.value());
        }
        round.offer(&state.attached, &mut Outgoing::pooled(round.published.seq, now, &mut buffer));
        let published = round.published;
        state.seq = published.seq;
        self.published.store(published.seq, Ordering::Relaxed);
        state.give_back(buffer);
        Ok(published)
    }

    fn begin(&self) -> Result<(PiGuard<'_, Outflow<M>>, u64)> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        Ok((self.state.lock(), linux::clock::monotonic_ns()))
    }

    /// The port's state, for a loan: joins and leaves wait meanwhile.
    pub fn hold(&self) -> Result<PiGuard<'_, Outflow<M>>> {
        self.begin().map(|(state, _)| state)
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

impl<M: Message> Outflow<M> {
    /// A buffer of `len` bytes to write a message into.
    pub fn loan(&mut self, len: usize) -> Arc<Buffer> {
        let buffer = self.pool.exclusive();
        if let Some(free) = Arc::get_mut(buffer) {
            free.sized(len);
        }
        std::mem::take(buffer)
    }
    /// Gives a loaned buffer back to the pool.
    pub fn give_back(&mut self, buffer: Arc<Buffer>) {
        self.pool.replace(buffer);
    }
}

fn encode<M: Message>(value: &M::Value, buffer: &mut Arc<Buffer>) -> Result<()> {
    match Arc::get_mut(buffer) {
        Some(free) => M::encode(value, free.start()).map_err(|e| Error::Message(format!("cannot encode: {e}"))),
        None => Err(Error::Message("cannot encode: the pool lent a buffer twice (a bug of Thalweg's)".into())),
    }
}

/// One sample's way through all channels of a port.
struct Round<'a, M: Message> {
    outlet: &'a Outlet<M>,
    published: Published,
    now: u64,
    each: &'a mut dyn FnMut(&Channel, Outcome),
}

impl<M: Message> Round<'_, M> {
    fn info(&self, received_ns: u64) -> SampleInfo {
        SampleInfo {
            node: self.outlet.me.node,
            port: self.outlet.me.port,
            incarnation: self.outlet.incarnation,
            seq: self.published.seq,
            source_ns: self.now,
            received_ns,
            same_clock: true,
        }
    }

    fn check_size(&self, size: usize) -> Result<()> {
        let limit = self.outlet.info.qos.max_message as usize;
        if size <= limit {
            return Ok(());
        }
        let name = &self.outlet.info.name;
        Err(Error::Message(format!(
            "a message of {size} bytes is over max_message of {name}, {limit} bytes; raise it in the port's QoS"
        )))
    }

    fn hand_over_values(&mut self, attached: &[Attached<M>], value: &M::Value) {
        for entry in attached {
            if let TypedWay::Local(subscriber) = &entry.way
                && subscriber.wants_value()
            {
                subscriber.value(self.info(linux::clock::monotonic_ns()), value);
                self.count(&entry.channel, Outcome::Sent, 0);
            }
        }
    }

    fn offer(&mut self, attached: &[Attached<M>], message: &mut Outgoing<'_>) {
        let size = message.payload().len();
        let mut group = Outcome::NotConnected;
        for entry in attached {
            let outcome = match &entry.way {
                TypedWay::Local(subscriber) if subscriber.wants_value() => continue,
                TypedWay::Local(subscriber) => {
                    subscriber.buffer(self.info(self.now), &message.keep().buffer);
                    Outcome::Sent
                }
                TypedWay::Flow(flow) => flow.offer(message),
                TypedWay::Group(flow, true) => {
                    group = flow.offer(message);
                    group
                }
                TypedWay::Group(_, false) => group,
            };
            self.count(&entry.channel, outcome, size);
        }
    }

    #[inline]
    fn count(&mut self, channel: &Channel, outcome: Outcome, size: usize) {
        self.published.count(outcome);
        let counters = &channel.counters;
        match outcome {
            Outcome::Sent | Outcome::Queued | Outcome::DroppedOldest => {
                // One writer: a load and a store, no locked instruction.
                counters.samples.store(counters.samples.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                counters.bytes.store(counters.bytes.load(Ordering::Relaxed) + size as u64, Ordering::Relaxed);
            }
            _ => {}
        }
        if !matches!(outcome, Outcome::Sent | Outcome::Queued) {
            counters.lost.store(counters.lost.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        (self.each)(channel, outcome);
    }
}

impl<M: Message> Attached<M> {
    fn takes_values(&self) -> bool {
        matches!(&self.way, TypedWay::Local(subscriber) if subscriber.wants_value())
    }
    fn waiting(&self) -> usize {
        match &self.way {
            TypedWay::Flow(flow) | TypedWay::Group(flow, true) if !flow.has_ended() => flow.waiting(),
            _ => 0,
        }
    }
    fn end(self) {
        self.channel.close();
        match self.way {
            TypedWay::Flow(flow) | TypedWay::Group(flow, true) => flow.end(),
            _ => {}
        }
    }
}

impl<M: Message> AnyOutlet for Outlet<M> {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn attach(&self, channel: Arc<Channel>, way: Way) -> std::result::Result<u64, (Way, Attach)> {
        if self.closed.load(Ordering::Relaxed) {
            return Err((way, Attach::Closed));
        }
        // Grown outside the lock: the publishing thread neither allocates nor waits for an allocation.
        let mut room = Vec::with_capacity((self.connected() + 1).next_power_of_two().max(8));
        let Some(mut state) = self.state.try_lock() else { return Err((way, Attach::Busy)) };
        let way = match way {
            Way::Flow(flow) => TypedWay::Flow(flow),
            Way::Group(flow) => {
                let first =
                    !state.attached.iter().any(|a| matches!(&a.way, TypedWay::Group(f, _) if Arc::ptr_eq(f, &flow)));
                TypedWay::Group(flow, first)
            }
            Way::Local(inlet) => match inlet.downcast::<Inlet<M>>() {
                Ok(inlet) => TypedWay::Local(inlet),
                Err(inlet) => return Err((Way::Local(inlet), Attach::OtherType)),
            },
        };
        if state.attached.len() == state.attached.capacity() {
            if room.capacity() <= state.attached.len() {
                room.reserve(state.attached.len() + 1);
            }
            room.append(&mut state.attached);
            std::mem::swap(&mut room, &mut state.attached);
        }
        state.attached.push(Attached { channel, way });
        self.connected.store(state.attached.len(), Ordering::Release);
        let seq = state.seq;
        drop(state);
        Ok(seq)
    }

    fn detach(&self, id: u64) -> bool {
        let Some(mut state) = self.state.try_lock() else { return false };
        let Some(index) = state.attached.iter().position(|a| a.channel.id == id) else { return true };
        let mut removed = state.attached.remove(index);
        if let TypedWay::Group(flow, sends @ true) = &mut removed.way {
            let heir = state.attached.iter_mut().find_map(|a| match &mut a.way {
                TypedWay::Group(other, first) if Arc::ptr_eq(other, flow) => Some(first),
                _ => None,
            });
            if let Some(first) = heir {
                *first = true;
                *sends = false;
            }
        }
        self.connected.store(state.attached.len(), Ordering::Release);
        drop(state);
        removed.end();
        true
    }

    fn last_seq(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }

    fn reports(&self) -> Vec<ChannelReport> {
        let state = self.state.lock();
        state.attached.iter().map(|a| a.channel.report("publisher", a.waiting())).collect()
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let attached = std::mem::take(&mut self.state.lock().attached);
        attached.into_iter().for_each(Attached::end);
        self.connected.store(0, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}
