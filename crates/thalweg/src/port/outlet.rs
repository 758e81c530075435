//! The sending side of a port: one sample to all its channels (steps 1 to 3 of the data path).

mod monitored;

use super::joins::Joins;
use super::local::LocalChannel;
use super::monitor::seat::Seat;
use super::round::Round;
use super::{Change, Channel, ChannelReport, Histories, Judge, Outcome, PortRef, Published, judge_of_publisher};
use crate::channel::buffer::{Buffer, Pool};
use crate::channel::flow::Flow;
use crate::channel::outgoing::Outgoing;
use crate::codec::Message;
use crate::control::PortInfo;
use crate::driver::Reply;
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

/// Shared-memory slots beyond the queue's limit: what subscribers may hold while they look at it, and the one being written.
const SPARE_SLOTS: usize = 256;
/// Slots of the largest size that there always are.
const FEWEST_SLOTS: usize = 8;
/// Shared memory of one port at most, unless [`FEWEST_SLOTS`] of its largest messages need more. Only pages that were
/// written once cost memory.
const MOST_PAYLOAD: usize = 4 << 30;

/// How long a report waits for the port.
const REPORT_PATIENCE: Duration = Duration::from_millis(20);

/// The shared state of a publisher.
pub(crate) struct Outlet<M: Message> {
    pub info: PortInfo,
    pub me: PortRef,
    pub incarnation: u64,
    pub(super) state: PiMutex<Outflow<M>>,
    pub(super) joins: Joins<M>,
    pub(super) connected: AtomicUsize,
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

/// What only the publishing thread touches, but for joins and leaves.
pub(crate) struct Outflow<M: Message> {
    seq: u64,
    pub(super) pool: Pool,
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

/// How a channel leaves this port, as the driver sees it.
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

/// What a publisher gives the driver: everything but its message type.
pub(crate) trait AnyOutlet: Send + Sync {
    fn info(&self) -> &PortInfo;
    /// Adds a channel and gives the answer before its next sample. It may take until the next sample is published:
    /// [`AnyOutlet::attached`] tells.
    ///
    /// # Errors
    /// With the way: the port is closed, or the type differs (`local`).
    fn attach(&self, channel: Arc<Channel>, way: Way, answer: Option<Reply>) -> std::result::Result<(), (Way, Attach)>;
    /// Whether a channel was added that [`AnyOutlet::attach`] took; `None`: not yet, ask again. Told once.
    fn attached(&self, id: u64) -> Option<bool>;
    /// Removes a channel and ends its flow unless others share it. `false`: not yet, ask again.
    fn detach(&self, id: u64) -> bool;
    /// Sequence number of the last published sample.
    fn last_seq(&self) -> u64;
    /// The channels that are attached, or are being attached or detached. Never waits for the publishing thread.
    fn channels(&self) -> Vec<Arc<Channel>>;
    fn reports(&self) -> Vec<ChannelReport>;
    /// The descriptor of the port's payload memory, made now if need be, for a reader that may hold so many samples.
    ///
    /// # Errors
    /// What the kernel says, and `OutOfMemory` when a reader that may `hold` so many samples could starve the others.
    fn payload_memory(&self, hold: u32) -> std::io::Result<OwnedFd>;
    /// A reader for which [`AnyOutlet::payload_memory`] was asked does not come to be.
    fn unhold(&self, hold: u32);
    /// Where a monitor of the output sits.
    fn monitor(&self) -> &Seat;
    /// What judges by the port's promises.
    fn judge(&self) -> Option<&Arc<Judge>>;
    /// What it keeps, if it does.
    fn histories(&self) -> Option<&Arc<Histories>>;
    /// Waits at most a tick for a sample that its monitor keeps back, and publishes those that are due.
    fn release(&self);
    /// A channel that was never attached is given up.
    fn forget(&self, way: Way);
    /// All samples of a channel are handed over from now on: buffers for them are made before they are needed.
    fn prepare_to_hand_over(&self);
    /// No further sample is taken.
    fn close(&self);
    fn is_closed(&self) -> bool;
}

/// Why a channel could not be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attach {
    OtherType,
    Closed,
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
        let state = Outflow { seq: 0, pool, attached: Vec::new(), arena: None };
        Self {
            info,
            me,
            incarnation,
            state: PiMutex::new(state),
            joins: Joins::default(),
            connected: AtomicUsize::new(0),
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
        self.connected.load(Ordering::Acquire)
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
        if let Some(judge) = &self.judge {
            judge.published(now, change, |bytes| M::encode(value, bytes).is_ok());
        }
        if self.monitor.is_taken()
            && let Some(published) = self.monitored(&mut state, (now, change), value, each)
        {
            return published;
        }
        let Outflow { seq, pool, attached, arena } = &mut *state;
        let published = Published { seq: *seq + 1, ..Published::default() };
        let mut round = Round { outlet: self, published, now, change, each };
        round.hand_over_values(attached, value);
        if self.needs_bytes(attached, round.published.seq) {
            match M::as_bytes(value).filter(|bytes| bytes.len() >= COPY_BELOW) {
                Some(bytes) => {
                    round.check_size(bytes.len())?;
                    round.share(attached, arena, bytes);
                    let mut message = Outgoing::external(round.published.seq, now, bytes, pool).saying(change);
                    round.offer(attached, &mut message);
                    self.remember(&mut message);
                }
                None => {
                    let buffer = pool.exclusive();
                    encode::<M>(value, buffer)?;
                    round.check_size(buffer.payload().len())?;
                    round.share(attached, arena, buffer.payload());
                    let mut message = Outgoing::pooled(round.published.seq, now, buffer).saying(change);
                    round.offer(attached, &mut message);
                    self.remember(&mut message);
                }
            }
        }
        *seq += 1;
        self.published.store(*seq, Ordering::Relaxed);
        Ok(round.published)
    }

    /// Publishes a message that was written into a loan.
    pub fn publish_loan(&self, mut state: PiGuard<'_, Outflow<M>>, mut place: Place) -> Result<Published> {
        let now = linux::clock::monotonic_ns();
        if let Some(judge) = &self.judge {
            let message = state.bytes_mut(&mut place);
            judge.published(now, Change::Written, |bytes| {
                bytes.extend_from_slice(message);
                true
            });
        }
        if self.monitor.is_taken()
            && let Some(published) = self.monitored_loan(&mut state, now, &mut place)
        {
            state.give_back(place);
            return published;
        }
        let Outflow { seq, pool, attached, arena } = &mut *state;
        let published = Published { seq: *seq + 1, ..Published::default() };
        let change = Change::Written;
        let mut round = Round { outlet: self, published, now, change, each: &mut |_, _| {} };
        let outcome = match (place, arena) {
            (Place::Buffer(mut buffer), arena) => {
                let decoded = round.decode_and_hand_over(attached, buffer.payload());
                round.share(attached, arena, buffer.payload());
                let mut message = Outgoing::pooled(round.published.seq, now, &mut buffer);
                round.offer(attached, &mut message);
                self.remember(&mut message);
                pool.replace(buffer);
                decoded
            }
            (Place::Slot(loan), Some(arena)) => {
                let sample = arena.seal(loan);
                round.push(attached, arena, &sample);
                let decoded = round.decode_and_hand_over(attached, arena.bytes(&sample));
                if self.histories.is_some() || attached.iter().any(|a| !matches!(a.way, TypedWay::Ring(..))) {
                    let mut message = Outgoing::external(round.published.seq, now, arena.bytes(&sample), pool);
                    round.offer(attached, &mut message);
                    self.remember(&mut message);
                }
                arena.release(sample);
                decoded
            }
            (Place::Slot(_), None) => Err(Error::Closed),
        };
        *seq = round.published.seq;
        self.published.store(*seq, Ordering::Relaxed);
        outcome.map(|()| round.published)
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

    fn begin(&self) -> Result<(PiGuard<'_, Outflow<M>>, u64)> {
        if self.is_closing() {
            return Err(Error::Closed);
        }
        let mut state = self.state.lock();
        self.take_in(&mut state);
        Ok((state, linux::clock::monotonic_ns()))
    }

    /// The port's state, for a loan: who joins or leaves meanwhile does so with the next sample.
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
    /// Memory of `len` bytes to write a message into: the subscribers' own where there are `shm` channels.
    pub fn loan(&mut self, len: usize) -> Place {
        let shares = self.attached.iter().any(|a| matches!(a.way, TypedWay::Ring(..)));
        if let Some(loan) = self.arena.as_mut().filter(|_| shares).and_then(|arena| arena.loan(len).ok()) {
            return Place::Slot(loan);
        }
        let mut buffer = self.pool.take();
        if let Some(free) = Arc::get_mut(&mut buffer) {
            free.sized(len);
        }
        Place::Buffer(buffer)
    }

    /// The memory of a loan.
    pub fn bytes_mut<'a>(&'a mut self, place: &'a mut Place) -> &'a mut [u8] {
        match place {
            Place::Buffer(buffer) => Arc::get_mut(buffer).map(Buffer::payload_mut).unwrap_or_default(),
            Place::Slot(loan) => self.arena.as_mut().map(|arena| arena.bytes_mut(loan)).unwrap_or_default(),
        }
    }

    /// Takes an unpublished loan back.
    pub fn give_back(&mut self, place: Place) {
        match place {
            Place::Buffer(buffer) => self.pool.replace(buffer),
            Place::Slot(loan) => {
                if let Some(arena) = self.arena.as_mut() {
                    arena.cancel(loan);
                }
            }
        }
    }
}

/// Where a loaned message lies.
pub(crate) enum Place {
    /// In a pooled buffer.
    Buffer(Arc<Buffer>),
    /// In the port's shared memory.
    Slot(linux::memory::Loan),
}

fn encode<M: Message>(value: &M::Value, buffer: &mut Arc<Buffer>) -> Result<()> {
    trace::step(Step::Encode);
    match Arc::get_mut(buffer) {
        Some(free) => M::encode(value, free.start()).map_err(|e| Error::Message(format!("cannot encode: {e}"))),
        None => Err(Error::Message("cannot encode: the pool lent a buffer twice (a bug of Thalweg's)".into())),
    }
}

impl<M: Message> Attached<M> {
    /// Whether the sample goes on this channel: what its proxy leaves out here costs nothing further.
    #[inline]
    pub(super) fn selects(&self, seq: u64) -> bool {
        self.channel.selection.takes(seq)
    }
    pub(super) fn takes_values(&self) -> bool {
        matches!(&self.way, TypedWay::Local(subscriber) if subscriber.wants_value())
    }
    fn waiting(&self) -> usize {
        match &self.way {
            TypedWay::Flow(flow) | TypedWay::Group(flow, true) if !flow.has_ended() => flow.waiting(),
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

impl<M: Message> AnyOutlet for Outlet<M> {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn attach(&self, channel: Arc<Channel>, way: Way, answer: Option<Reply>) -> std::result::Result<(), (Way, Attach)> {
        self.begin_join(channel, way, answer)
    }

    fn attached(&self, id: u64) -> Option<bool> {
        self.end_join(id)
    }

    fn detach(&self, id: u64) -> bool {
        self.end_channel(id)
    }

    fn payload_memory(&self, hold: u32) -> std::io::Result<OwnedFd> {
        let (largest, limit) = (self.info.qos.max_message as usize, self.info.qos.queue.limit() as usize);
        let wanted = Arena::capacity_for(limit + SPARE_SLOTS, largest).min(MOST_PAYLOAD);
        let capacity = wanted.max(Arena::capacity_for(FEWEST_SLOTS, largest));
        // A loan never fails while all together hold less than this: a subscriber that hoards harms itself only.
        let slots = capacity / Arena::capacity_for(1, largest);
        let held = self.held.load(Ordering::Relaxed) + hold as usize;
        if limit.min(slots / 2) + held + 1 > slots {
            let why = format!(
                "{held} samples could be held at once, and there is room for {slots}: lower max_message or the queues"
            );
            return Err(std::io::Error::new(std::io::ErrorKind::OutOfMemory, why));
        }
        if self.payload.get().is_none() {
            let arena = Arena::create(capacity, largest)?;
            let _ = self.payload.set(arena.payload_fd().try_clone_to_owned()?);
            *self.fresh.lock() = Some(arena);
        }
        let fd = self.payload.get().ok_or(std::io::ErrorKind::NotFound)?.try_clone()?;
        self.held.fetch_add(hold as usize, Ordering::Relaxed);
        Ok(fd)
    }

    fn unhold(&self, hold: u32) {
        self.held.fetch_sub(hold as usize, Ordering::Relaxed);
    }

    fn monitor(&self) -> &Seat {
        &self.monitor
    }
    fn histories(&self) -> Option<&Arc<Histories>> {
        self.histories.as_ref()
    }

    fn judge(&self) -> Option<&Arc<Judge>> {
        self.judge.as_ref()
    }

    fn release(&self) {
        self.release_late();
    }

    fn forget(&self, way: Way) {
        match way {
            Way::Flow(flow) => flow.end(),
            Way::Ring(ring) => self.unhold(ring.hold()),
            Way::Group(_) | Way::Local(_) => {}
        }
    }

    fn last_seq(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }

    fn channels(&self) -> Vec<Arc<Channel>> {
        self.channels.lock().iter().filter(|channel| !channel.is_closed()).cloned().collect()
    }

    fn reports(&self) -> Vec<ChannelReport> {
        let Some(state) = self.try_lock_patiently() else { return Vec::new() };
        state.attached.iter().map(|a| a.channel.report("publisher", a.waiting())).collect()
    }

    fn prepare_to_hand_over(&self) {
        let waiting = self.prepared();
        let mut spare = Pool::with_buffers(waiting, SMALL);
        // Without them the publishing thread makes one whenever more wait than ever before.
        if let Some(mut state) = self.try_lock_patiently() {
            state.pool.grow_to(waiting, &mut spare);
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.drop_joins();
        let mut state = self.state.lock();
        let mut attached = std::mem::take(&mut state.attached);
        let mut arena = state.arena.take();
        drop(state);
        attached.iter_mut().for_each(|a| a.end(arena.as_mut()));
        self.channels.lock().clear();
        self.connected.store(0, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        self.is_closing()
    }
}
