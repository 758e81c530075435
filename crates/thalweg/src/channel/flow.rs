//! A flow over a socket-like carrier at the publisher: the send right, what waits, and how bytes leave.
//!
//! The publishing thread sends inline when it can take the right; otherwise it pushes, and a sender thread drains: the one of
//! the flow's class, or the flow's own while its channel has scheduling of its own (then nothing is sent inline).

mod batch;
mod limit;
mod measured;
mod parity;
mod reliable;
mod thread;

pub use batch::Batching;

use super::bucket::{Bucket, Limit};
use super::fragment::piece;
use super::outgoing::Outgoing;
use super::parity::Redundancy;
use super::queue::{Entry, Label, Pushed, Queue};
use super::reliable::SenderSettings;
use super::right::SendRight;
use crate::carrier::{Capabilities, SendHalf, SharedSocket};
use crate::driver::{FlowNews, Own, Senders};
use crate::port::Outcome;
use crate::stages::Stages;
use crate::trace::{self, Step};
use crate::wire::{FRAGMENT_HEADER, Fragment, HEADER, Header, Kind};
use linux::clock::monotonic_ns;
use linux::futex::{self, Scope};
use linux::lock::PiMutex;
use measured::Measured;
use parity::MessageParity;
use qos::Class;
use reliable::{FULL_PAUSE, Kept};
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What a flow needs to know of its channel.
pub(crate) struct FlowSettings {
    pub id: u32,
    pub policy: qos::Queue,
    /// Bytes of fragments that may leave without a pause: half of what the receiver's socket buffer holds.
    pub burst: usize,
    pub sending: Sending,
    /// Samples that wait longer, in nanoseconds, are dropped.
    pub lifespan: Option<u64>,
    /// Nothing is lost, although the carrier loses.
    pub reliable: Option<SenderSettings>,
}

/// What a publisher asks of its sending besides QoS.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sending {
    pub batching: Option<Batching>,
    /// Each channel leaves at this rate at most; what is more waits in its queue.
    pub limit: Option<Limit>,
    /// Large messages have parity pieces, where datagrams may be lost.
    pub parity: Option<Redundancy>,
}

/// One flow. Shared by the publishing thread, its sender thread and the control thread.
pub(crate) struct Flow {
    pub settings: FlowSettings,
    class: AtomicU8,
    own: PiMutex<Option<Arc<Own>>>, // its own sender thread
    pace: AtomicU64,                // bytes per second, 0: none
    bulk: AtomicBool,
    link: Box<dyn SendHalf>,
    waits: bool, // the carrier can wait for room itself
    capabilities: Capabilities,
    right: SendRight,
    pending: PiMutex<Pending>,
    batch: PiMutex<Vec<u8>>,
    bucket: Option<PiMutex<Bucket>>, // of a flow with a limit; touched by the holder of the right only
    parity: Option<PiMutex<MessageParity>>, // of the large message that is being sent; touched by the holder of the right only
    kept: Option<Kept>,                     // what was sent and is not acknowledged, of a reliable flow over datagrams
    room: AtomicU32,                        // counts what left the queue: a publisher that blocks waits on it
    next: AtomicU32,                        // flow sequence number of the next message
    ended: AtomicBool,
    retired: AtomicBool, // a multicast flow that takes no further members
    pub dropped: AtomicU64,
    /// Of the channel that it was opened for.
    pub stages: OnceLock<Arc<Stages>>,
    senders: Arc<Senders>,
}

struct Pending {
    partial: Option<Partial>,
    queue: Queue,
}

struct Partial {
    entry: Entry,
    cursor: Cursor,
}

/// How far one message has left.
#[derive(Clone, Copy)]
struct Cursor {
    flow_seq: u32,
    /// Stream: bytes of header and payload taken. Datagrams: payload bytes sent in fragments.
    taken: usize,
    /// The carrier itself may wait for room, up to the channel's patience: the publishing thread under `block`.
    waits: bool,
}

/// What a visit of the sender thread found.
pub(crate) enum Drained {
    /// Nothing waits, the right is free.
    Empty,
    /// The socket is full.
    Blocked,
    /// A pause between bursts of fragments.
    Pause(Duration),
}

enum Sent {
    All,
    Blocked,
    Pause(Duration),
}

/// Messages and bytes one visit may send before the thread looks after other flows.
const VISIT: usize = 64;
/// Larger samples make a flow a bulk one.
pub(crate) const BULK: usize = 64 << 10;
/// Pause between two bursts of fragments: a receiver that is scheduled at all has emptied its buffer by then.
const BURST_PAUSE: Duration = Duration::from_millis(1);

impl Flow {
    pub fn new(
        settings: FlowSettings,
        class: Class,
        link: Box<dyn SendHalf>,
        capabilities: Capabilities,
        senders: Arc<Senders>,
    ) -> Self {
        let right = SendRight::new();
        right.hand_over_always(settings.sending.limit.is_some());
        let batch = settings.sending.batching.map(|b| Vec::with_capacity(b.bytes * 2)).unwrap_or_default();
        Self {
            pending: PiMutex::new(Pending { partial: None, queue: Queue::new(settings.policy) }),
            waits: link.set_patience(settings.policy.patience()),
            kept: settings.reliable.map(Kept::new),
            bucket: settings.sending.limit.map(|limit| PiMutex::new(Bucket::new(limit))),
            parity: settings.sending.parity.filter(|_| !capabilities.stream).map(|_| PiMutex::default()),
            settings,
            class: AtomicU8::new(class as u8),
            own: PiMutex::new(None),
            pace: AtomicU64::new(0),
            bulk: AtomicBool::new(false),
            link,
            capabilities,
            right,
            batch: PiMutex::new(batch),
            room: AtomicU32::new(0),
            next: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            stages: OnceLock::new(),
            senders,
        }
    }

    /// Sends the message now, or lets it wait, or says why neither.
    #[inline]
    pub fn offer(self: &Arc<Self>, message: &mut Outgoing<'_>) -> Outcome {
        if self.ended.load(Relaxed) {
            return Outcome::NotConnected;
        }
        if message.payload().len() > BULK {
            self.sends_bulk();
        }
        if self.settings.sending.batching.is_some() && self.batches() {
            return self.offer_batched(message);
        }
        if self.is_window_full() {
            return self.wait_in_queue(message);
        }
        if self.right.try_inline() { self.send_inline(message) } else { self.wait_in_queue(message) }
    }

    fn send_inline(self: &Arc<Self>, message: &mut Outgoing<'_>) -> Outcome {
        let mut cursor = Cursor { flow_seq: self.next.fetch_add(1, Relaxed), taken: 0, waits: self.waits };
        let patience = self.settings.policy.patience();
        let mut sent = self.transmit_outgoing(message, &mut cursor);
        if matches!(sent, Ok(Sent::Blocked)) && !patience.is_zero() && !self.waits {
            sent = self.send_patiently(message, &mut cursor, patience);
        }
        match sent {
            Ok(Sent::All) => {
                if let Some(kept) = self.kept.as_ref().filter(|kept| kept.is_needed()) {
                    self.keep_sent(kept, message.stamp, cursor.flow_seq, message.keep());
                }
                if self.right.finish_inline() {
                    self.submit();
                }
                Outcome::Sent
            }
            Ok(Sent::Blocked | Sent::Pause(_)) => {
                cursor.waits = false; // the rest is the sender thread's, which waits for nobody
                self.pending.lock().partial = Some(Partial { entry: message.keep(), cursor });
                self.right.hand_over();
                self.submit();
                Outcome::Queued
            }
            Err(error) => {
                let outcome = match &self.kept {
                    Some(kept) if kept.is_needed() && !is_final(&error) => {
                        self.keep_sent(kept, message.stamp, cursor.flow_seq, message.keep());
                        Outcome::Queued
                    }
                    _ => self.failed(&error),
                };
                if self.right.finish_inline() {
                    self.submit();
                }
                outcome
            }
        }
    }

    #[cold]
    fn send_patiently(&self, message: &mut Outgoing<'_>, cursor: &mut Cursor, patience: Duration) -> io::Result<Sent> {
        let until = Instant::now() + patience;
        loop {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return Ok(Sent::Blocked) };
            self.link.wait_room(left)?;
            match self.transmit_outgoing(message, cursor)? {
                Sent::Blocked => {}
                done => return Ok(done),
            }
        }
    }

    fn transmit_outgoing(&self, message: &mut Outgoing<'_>, cursor: &mut Cursor) -> io::Result<Sent> {
        let label = message.label();
        if cursor.taken == 0 && message.payload().len() <= self.largest_payload() {
            let header = self.header(Kind::Message, message.payload().len(), cursor.flow_seq, label);
            if let Some(frame) = message.frame_mut() {
                // One contiguous piece, one send: the common case.
                if let Some(room) = frame.first_chunk_mut::<HEADER>() {
                    header.emit(room);
                }
                let size = frame.len();
                trace::step(Step::Send);
                return match self.take(&[IoSlice::new(frame)], cursor.waits) {
                    Ok(taken) if taken == size => Ok(Sent::All),
                    Ok(taken) => {
                        (cursor.taken, cursor.waits) = (taken, false);
                        self.transmit(message.payload(), label, cursor)
                    }
                    Err(error) => blocked(error),
                };
            }
        }
        self.transmit(message.payload(), label, cursor)
    }

    /// Sends what is left of a message after `cursor`.
    fn transmit(&self, payload: &[u8], label: Label, cursor: &mut Cursor) -> io::Result<Sent> {
        if payload.len() > self.largest_payload() {
            return self.transmit_fragments(payload, label, cursor);
        }
        let mut header = [0; HEADER];
        self.header(Kind::Message, payload.len(), cursor.flow_seq, label).emit(&mut header);
        let total = HEADER + payload.len();
        while cursor.taken < total {
            let most = match self.allowance(total - cursor.taken) {
                Ok(most) => cursor.taken + most,
                Err(pause) => return Ok(Sent::Pause(pause)),
            };
            let left = &header[cursor.taken.min(HEADER)..most.min(HEADER)];
            let rest = &payload[cursor.taken.saturating_sub(HEADER)..most.saturating_sub(HEADER)];
            let parts = [IoSlice::new(left), IoSlice::new(rest)];
            let parts = if left.is_empty() { &parts[1..] } else { &parts[..] };
            trace::step(Step::Send);
            match self.take(parts, cursor.waits) {
                // A part taken by a send that waits means that the patience is over: the rest waits for nobody.
                Ok(taken) => (cursor.taken, cursor.waits) = (cursor.taken + taken, false),
                Err(error) => return blocked(error),
            }
        }
        Ok(Sent::All)
    }

    fn transmit_fragments(&self, payload: &[u8], label: Label, cursor: &mut Cursor) -> io::Result<Sent> {
        let most = self.piece();
        let burst_end = cursor.taken + self.burst().max(most);
        while cursor.taken < payload.len() {
            if cursor.taken >= burst_end {
                return Ok(Sent::Pause(BURST_PAUSE));
            }
            let piece = &payload[cursor.taken..payload.len().min(cursor.taken + most)];
            if let Err(pause) = self.allowed(HEADER + FRAGMENT_HEADER + piece.len()) {
                return Ok(Sent::Pause(pause));
            }
            let mut head = [0; HEADER + FRAGMENT_HEADER];
            let (first, second) = head.split_at_mut(HEADER);
            if let (Some(first), Some(second)) = (first.first_chunk_mut(), second.first_chunk_mut()) {
                self.header(Kind::Fragment, FRAGMENT_HEADER + piece.len(), cursor.flow_seq, label).emit(first);
                Fragment { offset: cursor.taken as u32, total: payload.len() as u32 }.emit(second);
            }
            trace::step(Step::Send);
            match self.link.send(&[IoSlice::new(&head), IoSlice::new(piece)]) {
                Ok(_) => cursor.taken += piece.len(),
                Err(error) => return blocked(error),
            }
        }
        if self.parity.is_some() { self.transmit_parity(payload, label, cursor, burst_end) } else { Ok(Sent::All) }
    }

    fn take(&self, parts: &[IoSlice<'_>], waits: bool) -> io::Result<usize> {
        if waits { self.link.send_waiting(parts) } else { self.link.send(parts) }
    }

    fn header(&self, kind: Kind, length: usize, flow_seq: u32, label: Label) -> Header {
        trace::step(Step::Emit);
        Header {
            length: length as u32,
            kind,
            flags: self.kept.as_ref().map_or(0, Kept::flags) | label.change.flags(),
            flow: self.settings.id,
            sequence: flow_seq,
            sample: label.seq,
            stamp_ns: label.stamp,
        }
    }

    /// Bytes of a large message in each of its datagrams.
    fn piece(&self) -> usize {
        piece(self.capabilities.max_datagram.unwrap_or(usize::MAX))
    }

    fn largest_payload(&self) -> usize {
        self.capabilities.max_datagram.map_or(usize::MAX, |most| most - HEADER)
    }

    fn wait_in_queue(self: &Arc<Self>, message: &mut Outgoing<'_>) -> Outcome {
        let patience = self.settings.policy.patience();
        let mut pushed = self.push(message);
        if pushed == Pushed::Full && !patience.is_zero() {
            pushed = self.push_patiently(message, patience);
        }
        match pushed {
            Pushed::Queued => Outcome::Queued,
            Pushed::DroppedOldest => {
                self.dropped.fetch_add(1, Relaxed);
                Outcome::DroppedOldest
            }
            Pushed::Full => {
                self.dropped.fetch_add(1, Relaxed);
                Outcome::Refused
            }
        }
    }

    fn push(self: &Arc<Self>, message: &mut Outgoing<'_>) -> Pushed {
        let pushed = self.pending.lock().queue.push(message.keep());
        if pushed != Pushed::Full && self.right.announce() {
            self.submit();
        }
        pushed
    }

    #[cold]
    fn push_patiently(self: &Arc<Self>, message: &mut Outgoing<'_>, patience: Duration) -> Pushed {
        let until = Instant::now() + patience;
        loop {
            let seen = self.room.load(std::sync::atomic::Ordering::Acquire);
            let pushed = self.push(message);
            let Some(left) = until.checked_duration_since(Instant::now()) else { return pushed };
            if pushed != Pushed::Full || self.ended.load(Relaxed) {
                return pushed;
            }
            futex::wait(&self.room, seen, Some(left), Scope::Private);
        }
    }

    /// One visit of the sender thread, which holds the right.
    pub fn drain(&self) -> Drained {
        // What was batched before the flow got its own thread is older than what waits.
        if self.settings.sending.batching.is_some() && !self.flush(&mut self.batch.lock(), Duration::ZERO) {
            return Drained::Blocked;
        }
        for _ in 0..VISIT {
            self.right.look();
            if self.is_window_full() {
                return Drained::Pause(FULL_PAUSE);
            }
            if let Some(drained) = self.send_gathered() {
                return drained;
            }
            let Some(mut partial) = self.next_pending() else {
                if self.right.release() {
                    return Drained::Empty;
                }
                continue;
            };
            let entry = &partial.entry;
            let measured = Measured::begin(self, entry);
            match self.transmit(entry.buffer.payload(), entry.label(), &mut partial.cursor) {
                Ok(Sent::All) => {
                    measured.end(entry.offered);
                    self.keep_drained(partial);
                }
                Ok(waiting) => {
                    self.pending.lock().partial = Some(partial);
                    return if let Sent::Pause(pause) = waiting { Drained::Pause(pause) } else { Drained::Blocked };
                }
                Err(error) if self.kept.is_some() && !is_final(&error) => self.keep_drained(partial),
                Err(error) => {
                    self.failed(&error);
                }
            }
        }
        Drained::Pause(Duration::ZERO)
    }

    /// Too much is unacknowledged for a further message.
    #[inline]
    fn is_window_full(&self) -> bool {
        self.kept.as_ref().is_some_and(Kept::is_full)
    }

    fn keep_drained(&self, Partial { entry, cursor }: Partial) {
        if let Some(kept) = self.kept.as_ref().filter(|kept| kept.is_needed()) {
            self.keep_sent(kept, monotonic_ns(), cursor.flow_seq, entry);
        }
    }

    fn next_pending(&self) -> Option<Partial> {
        let mut pending = self.pending.lock();
        if let Some(partial) = pending.partial.take() {
            return Some(partial);
        }
        if let Some(lifespan) = self.settings.lifespan {
            let expired = pending.queue.expire(monotonic_ns(), lifespan);
            self.dropped.fetch_add(expired as u64, Relaxed);
            if expired > 0 {
                self.left_queue();
            }
        }
        let entry = pending.queue.pop()?;
        drop(pending);
        self.left_queue();
        trace::step(Step::Next);
        Some(Partial { entry, cursor: Cursor { flow_seq: self.next.fetch_add(1, Relaxed), taken: 0, waits: false } })
    }

    /// Something left the queue: a publisher that waits for room is told.
    fn left_queue(&self) {
        self.room.fetch_add(1, std::sync::atomic::Ordering::Release);
        if matches!(self.settings.policy, qos::Queue::Block { .. }) {
            futex::wake(&self.room, 1, Scope::Private);
        }
    }

    /// A broken stream ends the flow; a datagram that could not leave is a lost sample.
    fn failed(&self, error: &io::Error) -> Outcome {
        self.dropped.fetch_add(1, Relaxed);
        if self.capabilities.stream || is_final(error) {
            self.end();
            return Outcome::NotConnected;
        }
        Outcome::Unreachable
    }

    /// Waits for room in the socket.
    pub fn wait_room(&self, timeout: Duration) {
        let _ = self.link.wait_room(timeout); // what is wrong the next send says
    }

    /// Fragments leave at most at this rate, in bytes per second. A stream's socket paces itself.
    pub fn set_pace(&self, pace: Option<u64>) {
        self.pace.store(pace.unwrap_or(0), Relaxed);
    }

    /// Bytes of fragments that leave without a pause.
    fn burst(&self) -> usize {
        let paced = self.pace.load(Relaxed) / (1_000_000_000 / BURST_PAUSE.as_nanos() as u64);
        if paced == 0 { self.settings.burst } else { self.settings.burst.min(paced as usize) }
    }

    /// A sample above [`BULK`] was published on it.
    pub fn is_bulk(&self) -> bool {
        self.bulk.load(Relaxed)
    }

    #[cold]
    fn sends_bulk(&self) {
        if !self.bulk.load(Relaxed) && !self.bulk.swap(true, Relaxed) {
            self.senders.tell(self, FlowNews::Bulk);
        }
    }

    /// Samples that wait now.
    pub fn waiting(&self) -> usize {
        // One lock after the other, never both: a failing batch takes them in the other order.
        let batched = usize::from(!self.batch.lock().is_empty());
        let unacknowledged = self.kept.as_ref().map_or(0, Kept::unacknowledged);
        // A message that is being sent is in no queue, but whoever sends it holds the right.
        self.pending.lock().queue.len() + usize::from(!self.right.is_free()) + batched + unacknowledged
    }

    /// Ends the flow at once; what waits is dropped.
    pub fn end(&self) {
        if !self.ended.swap(true, Relaxed) {
            self.link.close();
            self.dropped.fetch_add(self.pending.lock().queue.clear() as u64, Relaxed);
            futex::wake(&self.room, u32::MAX >> 1, Scope::Private);
            self.end_own_if_over();
        }
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// A multicast flow whose last member left: it ends soon, and takes nobody any more.
    pub fn retire(&self) {
        self.retired.store(true, Relaxed);
    }

    /// Whether a multicast flow takes further members.
    pub fn takes_members(&self) -> bool {
        !self.retired.load(Relaxed) && !self.has_ended()
    }

    /// The socket, to be marked while it is in use.
    pub fn socket(&self) -> Option<SharedSocket> {
        self.link.socket()
    }

    /// Becomes writable when there is room again.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }
}

/// Nothing more can leave, not even as a datagram.
fn is_final(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

fn blocked(error: io::Error) -> io::Result<Sent> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(Sent::Blocked) } else { Err(error) }
}
