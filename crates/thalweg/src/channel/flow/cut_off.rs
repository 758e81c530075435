//! A flow that outlasts its connection: offered messages wait, by its policy, until its subscriber comes back. Then another flow
//! takes them over, together with sent messages that may not have arrived. The subscriber drops duplicates.

use super::reliable::Kept;
use super::waiting::Drained;
use super::{Flow, Outcome, Outgoing};
use crate::channel::buffer::Buffer;
use crate::channel::memory::Charge;
use crate::channel::queue::{Entry, Label};
use crate::wire::Messages;
use linux::clock::monotonic_ns;
use linux::futex::{self, Scope};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::{Duration, Instant};

/// State of the flow's connection: messages leave, or wait for the subscriber to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    Live,
    /// It waits for the subscriber.
    CutOff,
    Ended,
}

impl State {
    fn of(value: u8) -> Self {
        match value {
            0 => Self::Live,
            1 => Self::CutOff,
            _ => Self::Ended,
        }
    }
}

/// A sender notices the end of its connection within this time.
const NOTICED: Duration = Duration::from_millis(100);

impl Flow {
    #[inline]
    pub(super) fn state(&self) -> State {
        State::of(self.state.load(Acquire))
    }

    /// `true` if offered messages leave.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.state() == State::Live
    }

    /// `true` if the flow waits for its subscriber to come back.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.state() == State::CutOff
    }

    /// `true` if it may outlast its connection.
    pub(crate) fn outlasts(&self) -> bool {
        self.settings.outlasts && !self.has_ended()
    }

    /// Notes that the connection is gone (of a group: its last member's). From now on no message leaves, no thread waits for room, and
    /// offered messages wait. `false`: this flow does not outlast its connection, or has ended.
    pub(crate) fn cut_off(self: &Arc<Self>) -> bool {
        if !self.settings.outlasts {
            return false;
        }
        match self.state.compare_exchange(State::Live as u8, State::CutOff as u8, AcqRel, Acquire) {
            Ok(_) => {
                if !self.capabilities.multicast {
                    self.link.close();
                }
                self.cut_off_ns.store(monotonic_ns(), Relaxed);
                self.room.fetch_add(1, AcqRel);
                futex::wake(&self.room, u32::MAX >> 1, Scope::Private);
                self.kept.as_ref().into_iter().for_each(Kept::wake);
                if !self.right.is_free() {
                    self.wake_sender(); // it waits for room
                }
                true
            }
            Err(state) => State::of(state) == State::CutOff,
        }
    }

    /// A group that was cut off has a member again: the waiting messages leave, before any new one.
    pub(crate) fn resume(self: &Arc<Self>) {
        // A thread that sends when the last member is lost gives the right back at once, and no thread takes it afterwards.
        let until = Instant::now() + NOTICED;
        let mut given = false;
        while self.is_cut_off() && !given && Instant::now() < until {
            given = self.right.announce();
        }
        let live = (State::CutOff as u8, State::Live as u8);
        let resumed = self.state.compare_exchange(live.0, live.1, AcqRel, Acquire).is_ok();
        if given || (resumed && self.right.announce()) {
            self.submit();
        }
        self.senders.retransmitter.look_by(monotonic_ns());
    }

    /// A member of a group left: if only members that were cut off remain, the group waits for them.
    pub(crate) fn wait_for_absent(self: &Arc<Self>) {
        if self.kept.as_ref().is_some_and(Kept::has_only_absent) {
            self.cut_off();
        }
    }

    /// As [`Flow::cut_off`], because of this error.
    pub(super) fn is_cut_off_by(self: &Arc<Self>, error: &io::Error) -> bool {
        (self.capabilities.stream || super::is_final(error)) && self.cut_off()
    }

    /// Queues the message until the subscriber comes back, even if the queue is full.
    #[cold]
    pub(super) fn wait_for_return(self: &Arc<Self>, message: &mut Outgoing<'_>) -> Outcome {
        let mut pending = self.pending.lock();
        self.expire(&mut pending);
        let pushed = pending.queue.push(message.keep());
        drop(pending);
        if self.is_live() && self.right.announce() {
            self.submit(); // the subscriber came back meanwhile
        }
        self.outcome_of(pushed)
    }

    /// The holder of the send right gives it back without sending.
    #[cold]
    pub(super) fn rest(&self) -> Drained {
        loop {
            self.right.look();
            if self.is_live() {
                return Drained::Pause(Duration::ZERO);
            }
            if self.right.release() {
                self.hand_over();
                return Drained::Empty;
            }
        }
    }

    /// Takes over the remaining messages of an older flow to the same subscriber, which was cut off, and sends them before its own. The
    /// publishing thread does not wait for that: the thread that sends on the older flow hands over, and this ends the older flow.
    pub(crate) fn take_over(self: &Arc<Self>, older: &Arc<Self>) {
        let given = self.right.announce();
        debug_assert!(given, "nothing was offered yet");
        *older.heir.lock() = Some(self.clone());
        if older.right.announce() {
            older.submit();
        }
    }

    /// Gives the remaining messages to the flow that takes over, if there is one. The send right is not held.
    fn hand_over(&self) {
        let mut waits = self.heir.lock(); // until all is handed over: a thread that ends this flow drops the rest
        let Some(heir) = waits.take() else { return };
        let unsent = self.take_unsent();
        let dropped = heir.pending.lock().queue.take_over(unsent, &mut self.pending.lock().queue);
        heir.dropped.fetch_add(dropped as u64, Relaxed);
        heir.submit();
        drop(waits);
        self.end();
    }

    /// Takes the unacknowledged messages and the partly sent one, the oldest first.
    fn take_unsent(&self) -> Vec<Entry> {
        let mut unsent = Vec::new();
        let mut batch = self.batch.lock();
        match (&self.kept, &self.unacknowledged) {
            (Some(kept), _) => {
                kept.take_unacknowledged().into_iter().for_each(|entry| unpack(entry, &mut unsent));
                let since = batch.since_ns;
                batch.take_waiting(&mut unsent, |bytes, unsent| messages(bytes, since, unsent));
            }
            (None, Some(unacknowledged)) => {
                let (mut bytes, now) = (unacknowledged.lock().take(), self.cut_off_ns.load(Relaxed));
                let (begun, whole) = match batch.taken {
                    0 => (&[][..], &batch.frames[..]), // the last frame that left may be the beginning of a message that waits
                    taken => (&batch.frames[taken..], &[][..]),
                };
                bytes.extend_from_slice(begun);
                messages(&bytes, now, &mut unsent);
                messages(whole, now, &mut unsent);
            }
            (None, None) => {}
        }
        self.emptied(&mut batch);
        unsent.extend(self.pending.lock().partial.take().map(|partial| partial.entry));
        unsent
    }
}

fn unpack(entry: Entry, unsent: &mut Vec<Entry>) {
    match entry.batch {
        true => messages(entry.buffer.payload(), entry.now, unsent),
        false => unsent.push(entry),
    }
}

/// Unpacks frames that a flow packed; the last one may be cut. They were published at `now` at the latest: their stamps may be of
/// another host's clock.
fn messages(bytes: &[u8], now: u64, unsent: &mut Vec<Entry>) {
    unsent.extend(Messages::of_own(bytes).map(|(header, message)| {
        let Label { seq, stamp, change, historical } = Label::of(&header);
        let (buffer, charge) = (Arc::new(Buffer::of(message)), Charge::default());
        Entry { buffer, seq, stamp, now, change, historical, offered: 0, batch: false, charge }
    }));
}
