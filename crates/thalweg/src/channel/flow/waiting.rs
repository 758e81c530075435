//! Messages that wait in a flow, and the visits of the thread that sends them.

use super::gather::Gathered;
use super::reliable::Kept;
use super::transmit::{Cursor, Sent};
use super::{Flow, is_final};
use crate::channel::Outcome;
use crate::channel::outgoing::Outgoing;
use crate::channel::queue::{Entry, Pushed, Queue};
use crate::trace::stages::{Stage, Stages};
use crate::trace::{self, Step};
use crate::wire::HEADER;
use linux::clock::monotonic_ns;
use linux::futex::{self, Scope};
use qos::ResourceLimit;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Messages and bytes one visit may send before the thread looks after other flows.
const VISIT: usize = 64;
/// Pause before another look for memory that other channels hold: there is no wake-up when they give it back.
const OTHERS_PAUSE: Duration = Duration::from_millis(1);

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
    pub(super) fn left_queue(&self) {
        self.room.fetch_add(1, std::sync::atomic::Ordering::Release);
        if matches!(self.settings.policy, qos::Queue::Block { .. }) {
            futex::wake(&self.room, 1, Scope::Private);
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
