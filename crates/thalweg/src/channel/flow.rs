//! A flow over a socket-like carrier at the publisher: the send right, waiting messages, and the ways out.
//!
//! The publishing thread sends inline when it can take the right. Otherwise it queues the message, and a sender thread drains the
//! queue: the thread of the flow's class, or the flow's own while its channel has scheduling of its own (then no message is sent
//! inline).

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

mod batch;
mod cut_off;
mod datagrams;
mod opening;
mod reliable;
#[cfg(test)]
mod tests;
mod transmit;
mod waiting;

use batch::Batch;
pub use batch::Batching;
pub(crate) use reliable::Control;
pub(crate) use waiting::Drained;

use super::bucket::{Bucket, Limit, Pacer};
use super::memory::{Account, Charge};
use super::outgoing::Outgoing;
use super::parity::Redundancy;
use super::queue::{Entry, Queue};
use super::reliable::SenderSettings;
use super::right::SendRight;
use crate::carrier::{Capabilities, MOST_BYTES_TOGETHER, MOST_TOGETHER, SendHalf, SharedSocket};
use crate::channel::{FlowNews, Outcome, Own, Senders};
use crate::trace::stages::Stages;
use crate::wire::HEADER;
use cut_off::{State, Unacknowledged};
use linux::futex::{self, Scope};
use linux::lock::PiMutex;
use qos::Class;
use reliable::Kept;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use transmit::{Cursor, MessageParity, Sent};
use waiting::{Partial, Pending};

/// The settings that a flow has from its channel.
pub(crate) struct FlowSettings {
    pub id: u32,
    pub policy: qos::Queue,
    /// The most bytes that wait in its queue.
    pub bytes: usize,
    /// The account of the messages: those that wait or are not acknowledged are charged to it.
    pub account: Arc<Account>,
    /// Bytes of fragments that may leave without a pause: a quarter of the announced size of the receiver's socket buffer. A flow
    /// with congestion control has its window instead.
    pub burst: usize,
    pub sending: Sending,
    /// Samples that wait longer, in nanoseconds, are dropped.
    pub lifespan: Option<u64>,
    /// Lost messages are retransmitted; `None`: they stay lost.
    pub reliable: Option<SenderSettings>,
    /// Congestion control, for a reliable flow whose subscriber sends receipts.
    pub control: Option<Control>,
    /// Messages that wait or are not acknowledged are sent when the subscriber comes back over another connection.
    pub outlasts: bool,
}

/// A publisher's settings for sending, besides QoS.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sending {
    pub batching: Option<Batching>,
    /// With batching, a sample that comes after a pause leaves at once.
    pub first_at_once: bool,
    /// The highest rate of each channel; the excess waits in its queue.
    pub limit: Option<Limit>,
    /// Parity pieces of large messages, where datagrams may be lost.
    pub parity: Option<Redundancy>,
}

impl Sending {
    /// The same for a port that offers this latency budget: small samples gather for half of it. The other half is for the
    /// way, so that the latency at the subscriber stays within the budget.
    pub(crate) fn within(self, budget: Option<Duration>) -> Self {
        let within = qos::gathering::time(budget.unwrap_or_default());
        match self.batching {
            None if !within.is_zero() => {
                Self { batching: Some(Batching { within, ..Batching::default() }), first_at_once: true, ..self }
            }
            _ => self,
        }
    }
}

/// One flow. Shared by the publishing thread, its sender thread and the control thread.
pub(crate) struct Flow {
    pub settings: FlowSettings,
    class: AtomicU8,
    own: PiMutex<Option<Arc<Own>>>, // its own sender thread
    pace: AtomicU64,                // bytes per second, 0: none
    pacer: PiMutex<Pacer>,          // of datagrams without a window
    budget: AtomicU64,              // the latency budget that was set, in nanoseconds; `AS_OPENED`: none was
    bulk: AtomicBool,
    link: Box<dyn SendHalf>,
    waits: bool, // the carrier can wait for room itself
    capabilities: Capabilities,
    largest: AtomicUsize, // bytes of the longest datagram that the path takes, as far as is known
    right: SendRight,
    pending: PiMutex<Pending>,
    batch: PiMutex<Batch>,
    batched: AtomicBool,                    // the batch is not empty, or is being sent
    bucket: Option<PiMutex<Bucket>>,        // if the flow has a limit; touched by the holder of the right only
    parity: Option<PiMutex<MessageParity>>, // of the large message that is being sent; touched by the holder of the right only
    kept: Option<Kept>,                     // unacknowledged messages of a reliable flow over datagrams
    room: AtomicU32,                        // counts what left the queue: a publisher that blocks waits on it
    next: AtomicU32,                        // flow sequence number of the next message
    state: AtomicU8,
    cut_off_ns: AtomicU64,
    heir: PiMutex<Option<Arc<Flow>>>, // takes over the remaining messages when no thread sends any more
    unacknowledged: Option<PiMutex<Unacknowledged>>, // frames of a stream that outlasts its connection
    retired: AtomicBool,              // a multicast flow that takes no further members
    pub dropped: AtomicU64,
    /// The stages of the channel that it was opened for.
    pub stages: OnceLock<Arc<Stages>>,
    senders: Arc<Senders>,
}

/// Larger samples make a flow a bulk one.
pub(crate) const BULK: usize = 64 << 10;
/// No latency budget: the flow gathers as it was opened.
const AS_OPENED: u64 = u64::MAX;

impl Flow {
    pub(crate) fn new(
        settings: FlowSettings,
        class: Class,
        link: Box<dyn SendHalf>,
        capabilities: Capabilities,
        senders: Arc<Senders>,
    ) -> Self {
        let right = SendRight::new();
        right.hand_over_always(settings.sending.limit.is_some());
        let most = if capabilities.stream { usize::MAX } else { batch::BYTES };
        let gathers = capabilities.stream || settings.control.is_some_and(|control| control.batches);
        let batch = settings.sending.batching.filter(|_| gathers).map(|b| Batch::with_room(b.bytes.min(most)));
        let queue = Queue::new(settings.policy).within(settings.bytes, settings.account.clone());
        let queue = queue.gathering(datagrams::waits_together(&settings));
        let outlasts = settings.outlasts && capabilities.stream;
        let unacknowledged = outlasts.then(|| PiMutex::new(Unacknowledged::new(settings.account.clone())));
        Self {
            pending: PiMutex::new(Pending { partial: None, queue }),
            waits: link.set_patience(settings.policy.patience()),
            kept: settings.reliable.map(|reliable| Kept::new(reliable, settings.control)),
            bucket: settings.sending.limit.map(|limit| PiMutex::new(Bucket::new(limit))),
            parity: settings.sending.parity.filter(|_| !capabilities.stream).map(|_| PiMutex::default()),
            settings,
            class: AtomicU8::new(class as u8),
            own: PiMutex::new(None),
            pace: AtomicU64::new(0),
            pacer: PiMutex::default(),
            budget: AtomicU64::new(AS_OPENED),
            bulk: AtomicBool::new(false),
            link,
            capabilities,
            largest: AtomicUsize::new(capabilities.max_datagram.unwrap_or(usize::MAX)),
            right,
            batch: PiMutex::new(batch.unwrap_or_default()),
            batched: AtomicBool::new(false),
            room: AtomicU32::new(0),
            next: AtomicU32::new(0),
            state: AtomicU8::new(State::Live as u8),
            cut_off_ns: AtomicU64::new(0),
            heir: PiMutex::new(None),
            unacknowledged,
            retired: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            stages: OnceLock::new(),
            senders,
        }
    }

    /// Sends the message now, or queues it, or returns the reason for neither.
    #[inline]
    pub(crate) fn offer(self: &Arc<Self>, message: &mut Outgoing<'_>) -> Outcome {
        match self.state() {
            State::Live => {}
            State::CutOff => return self.wait_for_return(message),
            State::Ended => return Outcome::NotConnected,
        }
        if message.payload().len() > BULK {
            self.sends_bulk();
        }
        if self.concerns_batch(message)
            && let Some(outcome) = self.offer_batched(message)
        {
            return outcome;
        }
        if self.is_window_full() {
            return self.wait_in_queue(message);
        }
        if self.right.try_inline() { self.send_inline(message) } else { self.wait_in_queue(message) }
    }

    fn send_inline(self: &Arc<Self>, message: &mut Outgoing<'_>) -> Outcome {
        let mut cursor = Cursor { flow_seq: self.next.fetch_add(1, Relaxed), taken: 0, waits: self.waits };
        let patience = self.settings.policy.patience();
        message.called |= self.gathers();
        let mut sent = self.transmit_outgoing(message, &mut cursor);
        if matches!(sent, Ok(Sent::Blocked)) && !patience.is_zero() && !self.waits {
            sent = self.send_patiently(message, &mut cursor, patience);
        }
        match sent {
            Ok(Sent::All) => {
                if let Some(kept) = self.kept.as_ref().filter(|kept| kept.is_needed()) {
                    self.keep_sent(kept, message.now, cursor.flow_seq, message.keep());
                }
                if self.right.finish_inline() {
                    self.submit();
                }
                Outcome::Sent
            }
            Ok(Sent::Blocked | Sent::Pause(_)) => {
                cursor.waits = false; // the sender thread sends the rest, without waiting
                let entry = self.charged(message.keep());
                self.pending.lock().partial = Some(Partial { entry, cursor });
                self.right.hand_over();
                self.submit();
                Outcome::Queued
            }
            Err(error) => {
                self.look_at_size(&error, self.largest().min(HEADER + message.payload().len()));
                let outcome = match &self.kept {
                    Some(kept) if kept.is_needed() && !is_final(&error) => {
                        self.keep_sent(kept, message.now, cursor.flow_seq, message.keep());
                        Outcome::Queued
                    }
                    _ if self.is_cut_off_by(&error) => self.wait_for_return(message),
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

    /// Charges a message that left in part, or is not acknowledged: it is kept even beyond the limits.
    fn charged(&self, mut entry: Entry) -> Entry {
        if !entry.charge.is_taken() {
            entry.charge = Charge::new(&self.settings.account, entry.size(), true).unwrap_or_default();
        }
        entry
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
    pub(crate) fn wait_room(&self, timeout: Duration) {
        let _ = self.link.wait_room(timeout); // the next send returns the error
    }

    /// Datagrams leave at most at this rate, in bytes per second, but for bursts of two of them or a millisecond's bytes. It was
    /// reserved, so a reliable flow over datagrams keeps it in spite of losses. A stream's socket paces itself.
    pub(crate) fn set_pace(&self, pace: Option<u64>) {
        let rate = pace.unwrap_or(0);
        if self.pace.swap(rate, Relaxed) != rate {
            *self.pacer.lock() = Pacer::default(); // what left at the old rate
        }
        self.reserve(pace);
    }

    /// Small samples gather for half of this from now on, in nanoseconds, as with the latency budget of a port; `None`: as the flow was
    /// opened.
    pub(crate) fn set_latency_budget(&self, budget_ns: Option<u64>) {
        self.budget.store(budget_ns.unwrap_or(AS_OPENED), Relaxed);
    }

    /// The present settings: with the latency budget that was set since it was opened.
    #[inline]
    fn sending(&self) -> Sending {
        match self.budget.load(Relaxed) {
            AS_OPENED => self.settings.sending,
            budget => {
                let none = Sending { batching: None, first_at_once: false, ..self.settings.sending };
                none.within(Some(Duration::from_nanos(budget)))
            }
        }
    }

    /// `true` if a latency budget has an effect: small samples may leave together, and no other thread sends all of them.
    pub(crate) fn takes_latency_budget(&self) -> bool {
        self.gathers() && !self.right.is_handed_over_always()
    }

    /// `true` if a sample above [`BULK`] was published on it.
    pub(crate) fn is_bulk(&self) -> bool {
        self.bulk.load(Relaxed)
    }

    #[cold]
    fn sends_bulk(&self) {
        if !self.bulk.load(Relaxed) && !self.bulk.swap(true, Relaxed) {
            self.senders.tell(self, FlowNews::Bulk);
        }
    }

    /// Samples that wait now.
    pub(crate) fn waiting(&self) -> usize {
        // One lock after the other, never both: a failing batch takes them in the other order.
        let batched = self.batch.lock().samples as usize;
        let unacknowledged = self.kept.as_ref().map_or(0, Kept::unacknowledged);
        // A message that is being sent is in no queue, but its sender holds the right.
        self.pending.lock().queue.len() + usize::from(!self.right.is_free()) + batched + unacknowledged
    }

    /// Bytes of queued and unacknowledged messages.
    pub(crate) fn bytes(&self) -> usize {
        let queued = self.pending.lock().queue.bytes();
        queued + self.kept.as_ref().map_or(0, Kept::bytes)
    }

    /// Ends the flow at once, and drops the waiting messages. If another flow takes these over, the flow ends afterwards.
    pub(crate) fn end(&self) {
        if self.heir.lock().is_none() && self.state.swap(State::Ended as u8, AcqRel) != State::Ended as u8 {
            self.link.close();
            self.drop_batch();
            self.dropped.fetch_add(self.pending.lock().queue.clear() as u64, Relaxed);
            futex::wake(&self.room, u32::MAX >> 1, Scope::Private);
            self.end_own_unless_live();
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state() == State::Ended
    }

    /// Retires a multicast flow whose last member left: it ends soon, and takes no more members.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Relaxed);
    }

    /// `true` if several subscribers may receive it.
    pub(crate) fn is_group(&self) -> bool {
        self.capabilities.multicast
    }

    /// `true` if a multicast flow takes further members.
    pub(crate) fn takes_members(&self) -> bool {
        !self.retired.load(Relaxed) && !self.has_ended()
    }

    /// The socket, to be marked while it is in use.
    pub(crate) fn socket(&self) -> Option<SharedSocket> {
        self.link.socket()
    }

    /// The descriptor that becomes writable when there is room again.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }
}

/// `true` if no message can leave any more, not even as a datagram.
fn is_final(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}
