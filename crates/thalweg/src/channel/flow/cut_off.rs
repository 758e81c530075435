//! A flow that outlasts its connection: offered messages wait, by its policy, until its subscriber comes back. Then another flow
//! takes them over, together with sent messages that may not have arrived. The subscriber drops duplicates.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

use super::reliable::Kept;
use super::waiting::Drained;
use super::{Flow, Outcome, Outgoing};
use crate::channel::buffer::Buffer;
use crate::channel::memory::{Account, Charge};
use crate::channel::queue::{Entry, Label};
use crate::wire::{HEADER, Header, Messages};
use linux::clock::monotonic_ns;
use linux::futex::{self, Scope};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
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
                self.end_own_unless_live();
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

/// Bytes of a stream that the kernel took and would lose with the connection. They are kept until the kernel reports them as
/// acknowledged, so that they can be sent again over the next connection.
///
/// Whole frames, and the beginning of a partly sent one: at most twice as many bytes as the kernel's send buffer holds, and one
/// partly sent message.
pub(super) struct Unacknowledged {
    bytes: VecDeque<u8>,
    ask_at: usize,
    account: Arc<Account>,
    charged: usize,
}

impl Unacknowledged {
    /// The start, before any message. Messages are charged to the account even beyond its limits: the kernel has them already.
    pub(super) fn new(account: Arc<Account>) -> Self {
        Self { bytes: VecDeque::new(), ask_at: FEWEST, account, charged: 0 }
    }

    /// The kernel took the first `taken` bytes of these parts. `outstanding` gives the number of all bytes that are not
    /// acknowledged, if the kernel knows. It is called again when twice as many bytes are kept as remained then.
    pub(super) fn sent(
        &mut self,
        parts: &[IoSlice<'_>],
        mut taken: usize,
        outstanding: impl FnOnce() -> Option<usize>,
    ) {
        for part in parts {
            let part = &part[..part.len().min(taken)];
            self.bytes.extend(part);
            taken -= part.len();
        }
        if self.bytes.len() >= self.ask_at {
            self.forget_all_but(outstanding().unwrap_or(0));
            self.ask_at = (2 * self.bytes.len()).max(FEWEST);
        }
        self.charge();
    }

    /// Takes all that is kept.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let bytes = Vec::from(std::mem::take(&mut self.bytes));
        self.charge();
        bytes
    }

    /// Forgets the frames that lie completely before the last `outstanding` bytes.
    fn forget_all_but(&mut self, outstanding: usize) {
        let acknowledged = self.bytes.len().saturating_sub(outstanding);
        let mut end = 0;
        while let Some(next) = self.frame(end).map(|length| end + length).filter(|next| *next <= acknowledged) {
            end = next;
        }
        self.bytes.drain(..end);
        let needed = self.bytes.len().max(FEWEST);
        if self.bytes.capacity() > 4 * needed {
            self.bytes.shrink_to(2 * needed);
        }
    }

    /// The length of the frame that begins there.
    fn frame(&self, at: usize) -> Option<usize> {
        let mut head = [0; HEADER];
        if self.bytes.len() < at + HEADER {
            return None;
        }
        head.iter_mut().zip(self.bytes.range(at..)).for_each(|(to, from)| *to = *from);
        Some(HEADER + Header::parse(&head).ok()?.length as usize)
    }

    fn charge(&mut self) {
        let room = self.bytes.capacity();
        if room > self.charged {
            self.account.take(room - self.charged);
        } else {
            self.account.give_back(self.charged - room);
        }
        self.charged = room;
    }
}

impl Drop for Unacknowledged {
    fn drop(&mut self) {
        self.account.give_back(self.charged);
    }
}

/// A sender notices the end of its connection within this time.
const NOTICED: Duration = Duration::from_millis(100);

/// Bytes that are kept before the kernel is asked for the first time: one question for dozens of small samples.
const FEWEST: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Kind, Messages};
    use proptest::prelude::*;

    fn frame(sample: u64, length: usize) -> Vec<u8> {
        let mut head = [0; HEADER];
        let header =
            Header { length: length as u32, kind: Kind::Message, flags: 0, flow: 7, sequence: 0, sample, stamp_ns: 0 };
        header.emit(&mut head);
        [&head[..], &vec![sample as u8; length]].concat()
    }

    proptest! {
        /// The kernel takes and acknowledges any number of bytes at a time. The frames that it may lose are kept whole, and little else.
        #[test]
        fn unacknowledged_frames_are_kept(
            lengths in prop::collection::vec(0usize..3000, 1..60), cuts in prop::collection::vec(1usize..5000, 1..40), behind in 0usize..20_000,
        ) {
            let account = Account::new(1 << 30);
            let mut kept = Unacknowledged::new(account.clone());
            let frames: Vec<Vec<u8>> = (1..).zip(&lengths).map(|(sample, length)| frame(sample, *length)).collect();
            let all = frames.concat();
            let (mut at, mut cuts) = (0, cuts.iter().cycle());
            while at < all.len() {
                let count = cuts.next().map_or(1, |cut| *cut).min(all.len() - at);
                let (first, second) = all[at..].split_at(count / 2);
                at += count;
                kept.sent(&[IoSlice::new(first), IoSlice::new(second)], count, || Some(behind.min(at)));
                let most = 2 * (behind + 3000 + HEADER).max(FEWEST) + 5000;
                prop_assert!(kept.bytes.len() <= most && kept.bytes.len() >= behind.min(at), "{} of {behind}", kept.bytes.len());
            }
            prop_assert!(account.used() >= kept.bytes.len());
            let bytes = kept.take();
            prop_assert!(all.ends_with(&bytes));
            let samples: Vec<u64> = Messages::of_own(&bytes).map(|(header, _)| header.sample).collect();
            let first = lengths.len() as u64 + 1 - samples.len() as u64;
            prop_assert_eq!(samples, Vec::from_iter(first..=lengths.len() as u64));
            prop_assert_eq!(account.used(), 0);
        }
    }
}
