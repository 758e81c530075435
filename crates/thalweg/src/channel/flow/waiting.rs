//! Messages that wait in a flow, and the visits of the thread that sends them: the one of the flow's class, or the flow's own, which
//! then sends all messages. Small ones leave together, on a stream or in one datagram, copied behind each other.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

use super::batch::{BYTES, Batch, room};
use super::reliable::Kept;
use super::transmit::{Cursor, Sent};
use super::{Flow, is_final};
use crate::channel::outgoing::Outgoing;
use crate::channel::queue::{Entry, Pushed, Queue};
use crate::channel::{Outcome, Own};
use crate::trace::stages::{Stage, Stages};
use crate::trace::{self, Step};
use crate::wire::HEADER;
use linux::clock::monotonic_ns;
use linux::futex::{self, Scope};
use qos::{Class, ResourceLimit};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The outcome of a sender thread's visit.
pub(crate) enum Drained {
    /// No message waits, and the right is free.
    Empty,
    /// The socket is full.
    Blocked,
    /// A pause between bursts of fragments.
    Pause(Duration),
}

/// Messages that a flow has not sent yet: the rest of a partly sent one, and the queue behind it.
pub(super) struct Pending {
    pub partial: Option<Partial>,
    pub queue: Queue,
}

/// A message that left in part, or is about to.
pub(super) struct Partial {
    pub entry: Entry,
    pub cursor: Cursor,
}

impl Flow {
    pub(super) fn wait_in_queue(self: &Arc<Self>, message: &mut Outgoing<'_>) -> Outcome {
        let patience = self.settings.policy.patience();
        let mut pushed = self.push(message);
        if pushed.is_full() && !patience.is_zero() {
            pushed = self.push_patiently(message, patience);
        }
        self.outcome_of(pushed)
    }

    pub(super) fn outcome_of(&self, pushed: Pushed) -> Outcome {
        match pushed {
            Pushed::Queued => Outcome::Queued,
            Pushed::DroppedOldest(dropped, limit) => {
                self.dropped.fetch_add(dropped.into(), Relaxed);
                Outcome::DroppedOldest { dropped, limit }
            }
            Pushed::Full(limit) => {
                self.dropped.fetch_add(1, Relaxed);
                Outcome::Refused { limit }
            }
        }
    }

    fn push(self: &Arc<Self>, message: &mut Outgoing<'_>) -> Pushed {
        let pushed = self.pending.lock().queue.push(message.keep());
        if !pushed.is_full() && self.right.announce() {
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
            if !pushed.is_full() || !self.is_live() {
                return pushed;
            }
            let own = matches!(pushed, Pushed::Full(ResourceLimit::Samples | ResourceLimit::Bytes));
            let left = if own { left } else { left.min(OTHERS_PAUSE) };
            futex::wait(&self.room, seen, Some(left), Scope::Private);
        }
    }

    /// One visit of the sender thread, which holds the right.
    pub(crate) fn drain(self: &Arc<Self>) -> Drained {
        if !self.is_live() {
            return self.rest();
        }
        // The batch is older than the waiting messages.
        if self.has_batch() {
            if let Some(pause) = self.held_back() {
                return Drained::Pause(pause);
            }
            if !self.flush(&mut self.batch.lock(), Duration::ZERO) {
                return self.held();
            }
        }
        for _ in 0..VISIT {
            self.right.look();
            if let Some(pause) = self.held_back() {
                return Drained::Pause(pause);
            }
            match self.send_gathered() {
                Gathered::Nothing => {}
                Gathered::Sent => continue,
                Gathered::Waits(why) => return why,
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
                Err(error) => {
                    self.look_at_size(&error, self.largest().min(HEADER + partial.entry.buffer.payload().len()));
                    if self.kept.is_some() && !is_final(&error) {
                        self.keep_drained(partial);
                    } else if self.is_cut_off_by(&error) {
                        self.pending.lock().partial = Some(partial);
                        return self.rest();
                    } else {
                        self.failed(&error);
                    }
                }
            }
        }
        Drained::Pause(Duration::ZERO)
    }

    /// The reason why a batch did not leave.
    pub(super) fn held(&self) -> Drained {
        self.held_back().map_or(Drained::Blocked, Drained::Pause)
    }

    /// The time that a further message has to wait for window or pace, if it has to.
    fn held_back(&self) -> Option<Duration> {
        let kept = self.kept.as_ref()?;
        kept.look(monotonic_ns()).inspect_err(|_| self.ask_in_time(kept)).err()
    }

    /// `true` if too many messages are unacknowledged for a further one.
    #[inline]
    pub(super) fn is_window_full(&self) -> bool {
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
        self.expire(&mut pending);
        let entry = pending.queue.pop()?;
        drop(pending);
        self.left_queue();
        trace::step(Step::Next);
        Some(Partial { entry, cursor: Cursor { flow_seq: self.next.fetch_add(1, Relaxed), taken: 0, waits: false } })
    }

    /// Drops what waited too long.
    pub(super) fn expire(&self, pending: &mut Pending) {
        if let Some(lifespan) = self.settings.lifespan {
            let expired = pending.queue.expire(monotonic_ns(), lifespan);
            self.dropped.fetch_add(expired as u64, Relaxed);
            if expired > 0 {
                self.left_queue();
            }
        }
    }

    /// Wakes a publisher that waits for room, after messages left the queue.
    fn left_queue(&self) {
        self.room.fetch_add(1, std::sync::atomic::Ordering::Release);
        if matches!(self.settings.policy, qos::Queue::Block { .. }) {
            futex::wake(&self.room, 1, Scope::Private);
        }
    }

    /// Sends the waiting small messages in one piece, if there are several. Called by the holder of the send right.
    fn send_gathered(self: &Arc<Self>) -> Gathered {
        let batching = self.sending().batching;
        if !self.gathers() || (self.bucket.is_some() && batching.is_none()) {
            return Gathered::Nothing;
        }
        // In this order: a batch that fails ends the flow, and that empties the queue.
        let mut batch = self.batch.lock();
        if !self.capabilities.stream && !batch.is_empty() && !self.flush(&mut batch, Duration::ZERO) {
            return Gathered::Waits(self.held());
        }
        let mut pending = self.pending.lock();
        if pending.partial.is_some() || pending.queue.len() < 2 {
            return Gathered::Nothing;
        }
        self.expire(&mut pending);
        let burst =
            self.settings.sending.limit.map_or(usize::MAX, |limit| limit.burst.try_into().unwrap_or(usize::MAX));
        let outer = self.outer_header();
        let most = self.most_batched(batching.map_or(BYTES, |batching| batching.bytes).min(burst));
        let (count, size) = gathers(&pending, most.saturating_sub(outer), self.most_batched_alone());
        if count < 2 {
            return Gathered::Nothing;
        }
        // With a limit they are one datagram.
        if let Err(pause) = self.allowed(outer + size) {
            return Gathered::Waits(Drained::Pause(pause));
        }
        batch.make_room(room(size));
        let begun_ns = monotonic_ns();
        for _ in 0..count {
            let fits = |entry: &Entry| !self.overflows(&batch, entry.label(), entry.buffer.payload().len());
            if !pending.queue.iter().next().is_some_and(fits) {
                break;
            }
            let Some(entry) = pending.queue.pop() else { break };
            trace::step(Step::Next);
            self.move_to_batch(&mut batch, &entry, begun_ns);
        }
        drop(pending);
        self.left_queue();
        if self.flush(&mut batch, Duration::ZERO) { Gathered::Sent } else { Gathered::Waits(self.held()) }
    }

    fn move_to_batch(&self, batch: &mut Batch, entry: &Entry, now_ns: u64) {
        if let Some(stages) = self.stages.get().filter(|_| entry.offered != 0) {
            stages.note(now_ns, &[(Stage::Queue, now_ns.saturating_sub(entry.offered))]);
            batch.measured += 1;
        }
        self.append(batch, now_ns, entry.label(), entry.buffer.payload());
    }

    /// Notes the time that sending a batch took, for each of its messages that is measured.
    #[cold]
    pub(super) fn note_gathered(&self, batch: &mut Batch, now_ns: u64) {
        let took = (Stage::Send, now_ns.saturating_sub(batch.since_ns));
        let count = std::mem::take(&mut batch.measured);
        if let Some(stages) = self.stages.get() {
            (0..count).for_each(|_| stages.note(now_ns, &[took]));
        }
    }

    /// The class whose thread sends waiting messages.
    pub(crate) fn class(&self) -> Class {
        Class::ALL.get(usize::from(self.class.load(Relaxed))).copied().unwrap_or_default()
    }

    /// From now on the thread of this class sends waiting messages.
    pub(crate) fn set_class(&self, class: Class) {
        if self.class.swap(class as u8, Relaxed) != class as u8 {
            self.senders.prepare(class);
            self.senders.moved();
        }
    }

    /// From now on this thread sends all messages; `None`: the class's thread sends waiting messages again. A thread that sends at
    /// the moment loses and overtakes no message.
    pub(crate) fn move_to(&self, own: Option<Arc<Own>>) {
        let handed_over = own.is_some();
        let previous = std::mem::replace(&mut *self.own.lock(), own);
        self.right.hand_over_always(handed_over || self.bucket.is_some());
        if let Some(previous) = previous {
            previous.leave();
        }
        if handed_over {
            self.senders.moved();
            self.end_own_unless_live();
        }
    }

    /// The flow's own sender thread, if it has one.
    pub(crate) fn own(&self) -> Option<Arc<Own>> {
        self.own.lock().clone()
    }

    /// `true` if the thread of this class sends the flow's waiting messages.
    pub(crate) fn is_sent_by(&self, class: Class) -> bool {
        self.class() == class && self.own.lock().is_none()
    }

    /// Gives the send right to the flow's thread.
    pub(super) fn submit(self: &Arc<Self>) {
        let own = self.own.lock();
        let Some(thread) = own.as_ref() else {
            drop(own);
            return self.senders.submit(self.clone());
        };
        thread.give();
        let thread = thread.clone();
        drop(own);
        thread.wake();
    }

    /// Makes the thread that has the send right look again: there may be room.
    pub(super) fn wake_sender(self: &Arc<Self>) {
        match self.own() {
            Some(thread) => thread.wake(),
            None => self.senders.look(self),
        }
    }

    /// Passes the send right from a former thread of the flow to the present one.
    pub(crate) fn pass_on(self: &Arc<Self>) {
        if !self.has_ended() {
            self.submit();
        }
    }

    /// Ends the flow's own thread unless messages leave. While the flow waits for its subscriber, nobody could take the thread's scheduling
    /// back: settings are applied to open channels only.
    pub(super) fn end_own_unless_live(&self) {
        let mut own = self.own.lock(); // a flow that is resumed meanwhile keeps the thread that it gets then
        if !self.is_live() {
            self.right.hand_over_always(self.bucket.is_some());
            own.take().into_iter().for_each(|own| own.leave());
        }
    }
}

/// The stages `queue` and `send` of a message that waited: the place to note them, and the time at which sending began; `None`: they are
/// not measured. A partly sent message counts from its last part on.
struct Measured<'a>(Option<(&'a Stages, u64)>);

impl<'a> Measured<'a> {
    fn begin(flow: &'a Flow, entry: &Entry) -> Self {
        let measured = (entry.offered != 0).then(|| flow.stages.get()).flatten();
        Self(measured.map(|stages| (stages.as_ref(), monotonic_ns())))
    }

    fn end(self, offered: u64) {
        if let Some((stages, begun)) = self.0 {
            let now = monotonic_ns();
            let took = [(Stage::Queue, begun.saturating_sub(offered)), (Stage::Send, now.saturating_sub(begun))];
            stages.note(now, &took);
        }
    }
}

/// The outcome of gathering.
pub(super) enum Gathered {
    /// No messages to gather: at most one waits, or the first is a large one.
    Nothing,
    /// The gathered messages have left.
    Sent,
    /// It has to wait.
    Waits(Drained),
}

/// The number of waiting messages that leave together, the oldest first, and their bytes as frames; each has at most `longest`.
fn gathers(pending: &Pending, most: usize, longest: usize) -> (usize, usize) {
    let (mut count, mut size) = (0, 0);
    for entry in pending.queue.iter() {
        let frame = HEADER + entry.buffer.payload().len();
        if frame > (HEADER + most / 4).min(longest) || size + frame > most {
            break;
        }
        (count, size) = (count + 1, size + frame);
    }
    (count, size)
}

/// Messages and bytes one visit may send before the thread looks after other flows.
const VISIT: usize = 64;
/// Pause before another look for memory that other channels hold: there is no wake-up when they give it back.
const OTHERS_PAUSE: Duration = Duration::from_millis(1);
