//! Batches: small samples leave together, in one send, on a stream or as one datagram (`datagrams`). Three reasons to begin one: the
//! publisher asked for ([`Batching`]), its latency budget allows it, or it outruns the calls that send ([`super::super::coalescing`]).
//!
//! A batch is older than the messages in the queue. It grows only while the send right is free, which is checked under the
//! batch's lock, and the thread that gets the right sends the batch first. That lock is the right to send a batch.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

use super::datagrams::Gathered;
use super::{Flow, MOST_TOGETHER};
use crate::channel::buffer::{Buffer, Pool};
use crate::channel::outgoing::Outgoing;
use crate::channel::queue::Label;
use crate::channel::{Outcome, coalescing};
use crate::trace::{self, Step};
use crate::wire::{HEADER, Kind};
use linux::clock::monotonic_ns;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// Opt-in batching, of a stream or of reliable datagrams: small samples leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// A batch leaves when it holds this many bytes. Samples of more than a quarter of it are not batched. Default 64 KiB.
    pub bytes: usize,
    /// A batch leaves at the latest this long after its first sample. Default 100 µs.
    pub within: Duration,
}

impl Default for Batching {
    fn default() -> Self {
        Self { bytes: BYTES, within: Duration::from_micros(100) }
    }
}

/// Bytes of a batch where the settings have no number.
pub(super) const BYTES: usize = qos::gathering::BYTES;
/// Time after which a batch is looked at again if a thread that waits for room held its lock.
const HELD_PAUSE: Duration = Duration::from_millis(1);

/// The settings of gathering.
#[derive(Clone, Copy)]
struct Gathering {
    bytes: usize,
    within: Duration,
    /// A sample that comes after a pause does not wait for others.
    first_at_once: bool,
}

/// Frames that leave together, and their state.
#[derive(Default)]
pub(super) struct Batch {
    pub frames: Vec<u8>,
    /// Over datagrams: the place of each datagram.
    pub datagrams: Vec<Gathered>,
    /// Buffers for messages that left as datagrams and are kept.
    pub pool: Pool,
    /// The part that left already: bytes of a stream, or datagrams.
    pub taken: usize,
    pub samples: u32,
    /// The number of messages whose stages are measured.
    pub measured: u32,
    /// Time at which the oldest was put in.
    pub since_ns: u64,
    /// Time at which the last batch left.
    left_ns: u64,
    /// A sender thread watches the batch.
    watched: bool,
    /// A message was added since the sender thread looked.
    grew: bool,
    /// The sender thread is to make room.
    wants_room: bool,
    /// The batch held a message since it was trimmed last.
    used: bool,
}

impl Batch {
    /// One with room.
    pub(super) fn with_room(bytes: usize) -> Self {
        let datagrams = Vec::with_capacity(MOST_TOGETHER);
        Self { frames: Vec::with_capacity(room(bytes)), datagrams, ..Self::default() }
    }

    /// Takes the memory that was not needed since the last call: the room if no message was in it, unless it was `asked` for, and
    /// unused buffers.
    pub(super) fn trim(&mut self, asked: bool) -> (Vec<u8>, Vec<Arc<Buffer>>) {
        let used = std::mem::take(&mut self.used) || asked || !self.is_empty();
        let room = if used { Vec::new() } else { std::mem::take(&mut self.frames) };
        (room, self.pool.trim())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Makes room for this many bytes behind the present ones.
    pub(super) fn make_room(&mut self, bytes: usize) {
        if self.frames.capacity() - self.frames.len() < bytes {
            self.frames.reserve_exact(bytes);
        }
    }
}

/// The room of a batch that leaves as soon as it holds this many bytes.
pub(super) fn room(bytes: usize) -> usize {
    bytes + HEADER + bytes / 4
}

impl Flow {
    /// `true` if a message is batched, or may be.
    #[inline]
    pub(super) fn has_batch(&self) -> bool {
        self.batched.load(Acquire)
    }

    /// `true` if this message may leave with others, or others wait to leave before it.
    #[inline]
    pub(super) fn concerns_batch(&self, message: &Outgoing<'_>) -> bool {
        self.gathers() && (message.together || self.sending().batching.is_some() || self.has_batch())
    }

    fn gathering(&self, message: &Outgoing<'_>) -> Option<Gathering> {
        let sending = self.sending();
        let asked = sending.batching.map(|batching| Gathering {
            bytes: self.most_batched(batching.bytes),
            within: batching.within,
            first_at_once: sending.first_at_once,
        });
        let outrun = Gathering { bytes: self.most_batched(BYTES), within: coalescing::WITHIN, first_at_once: false };
        asked.or_else(|| message.together.then_some(outrun))
    }

    /// Puts the message into the batch, which may leave then. `None`: the message takes the usual way, and only messages that the
    /// flow's thread sends first are before it.
    pub(super) fn offer_batched(self: &Arc<Self>, message: &mut Outgoing<'_>) -> Option<Outcome> {
        let (length, label) = (message.payload().len(), message.label());
        let size = HEADER + length;
        let mut batch = self.batch.lock();
        if !self.right.is_free() {
            return None;
        }
        // The right is free because the flow rests: the messages in the queue are older.
        if self.is_cut_off() {
            return Some(self.wait_for_return(message));
        }
        if self.right.is_handed_over_always() {
            // This holds also if the wait ends just now: batched messages are older.
            return (!batch.is_empty()).then(|| self.wait_behind(batch, message));
        }
        if !batch.is_empty() && self.overflows(&batch, label, length) && !self.flush_now(&mut batch, message) {
            return Some(self.wait_behind(batch, message));
        }
        let gathering = self.gathering(message);
        if gathering.is_some_and(|gathering| batch.frames.capacity() < room(gathering.bytes)) {
            return self.ask_for_room(batch, message);
        }
        let fits = size <= (batch.frames.capacity() - batch.frames.len()).min(BYTES);
        let fits = fits && size <= self.most_batched_alone();
        let small = gathering.map_or(fits, |gathering| fits && size <= HEADER + gathering.bytes / 4);
        if !small || (gathering.is_none() && batch.is_empty()) {
            let left = batch.is_empty() || self.flush_now(&mut batch, message);
            return if left { None } else { Some(self.wait_behind(batch, message)) };
        }
        let begins = batch.is_empty();
        self.append(&mut batch, message.now, message.label(), message.payload());
        let due = match gathering {
            None => true,
            Some(Gathering { bytes, within, first_at_once }) => {
                let paused = message.now.saturating_sub(batch.left_ns) >= within.as_nanos() as u64;
                let full = batch.frames.len() >= bytes || self.is_full(&batch, length);
                full || (begins && first_at_once && paused)
            }
        };
        if due {
            return Some(if self.flush_now(&mut batch, message) {
                self.outcome(Outcome::Sent)
            } else {
                self.hand_over_batch(batch)
            });
        }
        let watch = !std::mem::replace(&mut batch.watched, true);
        drop(batch);
        message.called |= watch; // waking a thread is a call, too
        if let Some(Gathering { within, .. }) = gathering.filter(|_| watch)
            && !self.senders.watch_batch(self, within)
        {
            return Some(self.send_unwatched(message));
        }
        Some(Outcome::Sent)
    }

    /// Asks for room when the flow gathers for the first time, or after a long while: samples leave one by one until its thread has
    /// made room. So a late publisher in a loop does not also allocate 80 KiB.
    #[cold]
    fn ask_for_room(
        self: &Arc<Self>,
        mut batch: linux::lock::PiGuard<'_, Batch>,
        message: &mut Outgoing<'_>,
    ) -> Option<Outcome> {
        if !batch.is_empty() && !self.flush_now(&mut batch, message) {
            return Some(self.wait_behind(batch, message));
        }
        let asks = !std::mem::replace(&mut batch.wants_room, true);
        drop(batch);
        message.called |= asks;
        if asks && !self.senders.watch_batch(self, Duration::ZERO) {
            self.batch.lock().wants_room = false;
        }
        None
    }

    /// Makes the room that was asked for, while no thread waits for it.
    #[cold]
    fn make_wanted_room(&self) {
        let mut fresh = Batch::with_room(BYTES);
        let mut batch = self.batch.lock();
        if batch.is_empty() {
            std::mem::swap(&mut batch.frames, &mut fresh.frames);
            std::mem::swap(&mut batch.datagrams, &mut fresh.datagrams);
        }
        batch.wants_room = false;
        drop(batch); // before its former memory is freed
    }

    /// Sends the batch at once, where no thread watches batches.
    #[cold]
    fn send_unwatched(self: &Arc<Self>, message: &mut Outgoing<'_>) -> Outcome {
        let mut batch = self.batch.lock();
        batch.watched = false;
        if self.flush_now(&mut batch, message) {
            return self.outcome(Outcome::Sent);
        }
        self.hand_over_batch(batch)
    }

    pub(super) fn append(&self, batch: &mut Batch, now_ns: u64, label: Label, payload: &[u8]) {
        if batch.is_empty() {
            batch.since_ns = now_ns;
            self.batched.store(true, Relaxed);
        }
        if self.capabilities.stream {
            let (mut header, flow_seq) = ([0; HEADER], self.next.fetch_add(1, Relaxed));
            self.header(Kind::Message, payload.len(), flow_seq, label).emit(&mut header);
            batch.frames.extend_from_slice(&header);
        } else {
            self.join(batch, label, payload.len());
        }
        batch.frames.extend_from_slice(payload);
        batch.samples += 1;
        (batch.grew, batch.used) = (true, true);
    }

    /// Sends the batch, and waits for room by the policy. `false`: not all of it left.
    fn flush_now(self: &Arc<Self>, batch: &mut Batch, message: &mut Outgoing<'_>) -> bool {
        message.called = true;
        self.flush(batch, self.settings.policy.patience())
    }

    /// Without room: gives the batch to the flow's thread, which sends it first, and queues the message behind it.
    #[cold]
    fn wait_behind(self: &Arc<Self>, batch: linux::lock::PiGuard<'_, Batch>, message: &mut Outgoing<'_>) -> Outcome {
        drop(batch);
        self.wait_in_queue(message)
    }

    /// Without room: gives the batch to the flow's thread.
    #[cold]
    fn hand_over_batch(self: &Arc<Self>, batch: linux::lock::PiGuard<'_, Batch>) -> Outcome {
        // Under the lock: no other thread may find the right free, and send, before the flow's thread has it.
        let given = self.right.announce();
        drop(batch);
        if given {
            self.submit();
        }
        self.outcome(Outcome::Queued)
    }

    fn outcome(&self, outcome: Outcome) -> Outcome {
        if self.has_ended() { Outcome::NotConnected } else { outcome }
    }

    /// Sends the batch; `false` when not all of it left.
    pub(super) fn flush(self: &Arc<Self>, batch: &mut Batch, patience: Duration) -> bool {
        if !self.capabilities.stream {
            return self.flush_datagrams(batch, patience);
        }
        let mut until = None;
        let mut waits = self.waits && !patience.is_zero();
        while batch.taken < batch.frames.len() {
            trace::step(Step::Send);
            match self.take(&[IoSlice::new(&batch.frames[batch.taken..])], waits) {
                // A send that waits and takes only a part has used up the patience.
                Ok(count) => (batch.taken, waits) = (batch.taken + count, false),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let until = *until.get_or_insert_with(|| Instant::now() + patience);
                    let left = until.saturating_duration_since(Instant::now());
                    if self.waits || left.is_zero() || !matches!(self.link.wait_room(left), Ok(true)) {
                        return false;
                    }
                }
                // It stays, for who comes back.
                Err(error) if self.is_cut_off_by(&error) => return false,
                Err(error) => {
                    self.dropped.fetch_add(u64::from(batch.samples.saturating_sub(1)), Relaxed);
                    self.failed(&error); // counts one
                    break;
                }
            }
        }
        self.emptied(batch);
        true
    }

    pub(super) fn emptied(&self, batch: &mut Batch) {
        batch.frames.clear();
        batch.datagrams.clear();
        (batch.taken, batch.samples) = (0, 0);
        batch.left_ns = monotonic_ns();
        if batch.measured > 0 {
            self.note_gathered(batch, batch.left_ns);
        }
        self.batched.store(false, Release);
    }

    /// Looks at the batch for the thread of the flow's class at `now_ns`, and sends it when its time is up. Returns the pause
    /// before the next look; `None`: no message was batched lately.
    pub(crate) fn flush_due(self: &Arc<Self>, now_ns: u64) -> Option<Duration> {
        // Held by a publisher that sends it, and may wait for room.
        let Some(mut batch) = self.batch.try_lock() else { return Some(HELD_PAUSE) };
        if batch.wants_room {
            drop(batch);
            self.make_wanted_room();
            return None; // the request for room is separate from the watch of the batch
        }
        let within = self.sending().batching.map_or(coalescing::WITHIN, |batching| batching.within);
        if batch.is_empty() {
            batch.watched = std::mem::take(&mut batch.grew);
            return batch.watched.then_some(within);
        }
        let age = Duration::from_nanos(now_ns.saturating_sub(batch.since_ns));
        if age < within {
            return Some(within - age);
        }
        batch.grew = false;
        if self.has_ended() || self.flush(&mut batch, Duration::ZERO) {
            return Some(within);
        }
        batch.watched = false;
        let given = self.right.announce();
        drop(batch);
        if given {
            self.submit();
        }
        None
    }

    /// Drops a batch when the flow ends: its messages are lost.
    pub(super) fn drop_batch(&self) {
        // Otherwise a thread that sends the batch holds it, and counts the losses.
        if let Some(mut batch) = self.batch.try_lock() {
            self.dropped.fetch_add(u64::from(batch.samples), Relaxed);
            self.emptied(&mut batch);
        }
    }
}
