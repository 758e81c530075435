//! A reliable flow over datagrams: messages are kept until they are acknowledged, and retransmitted meanwhile.
//!
//! The publishing thread notes each sent message. One thread of the node receives the subscribers' feedback, and retransmits: its
//! datagrams are whole frames, so they need no send right.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

use super::Flow;
use super::opening::Opening;
use crate::channel::bucket::burst;
use crate::channel::congestion::{CongestionSettings, Wait};
use crate::channel::memory::{ALWAYS, Account, Charge};
use crate::channel::queue::{Entry, Label};
use crate::channel::reliable::{Action, Counters, Sender, SenderSettings, To};
use crate::wire::feedback::{Acknowledgement, Datagram, LONGEST};
use crate::wire::{ASK, FRAGMENT_HEADER, Fragment, HEADER, Header, Kind, OF_BATCH, REPAIR, datagram};
use linux::clock::monotonic_ns;
use linux::lock::PiMutex;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

/// Pause before another look whether a full window has room: acknowledgements come to another thread.
const FULL_PAUSE: Duration = Duration::from_micros(200);
/// The same where that thread wakes the waiting one: this look is for a wake-up that could not be made.
const WOKEN_PAUSE: Duration = Duration::from_millis(5);

/// The most datagrams that are received at a time. One thread receives for all flows of a node, and a subscriber that floods it
/// delays the others by no more than these datagrams.
const MOST_HEARD: u32 = 64;

/// Congestion control of the flow, as agreed with its subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    pub congestion: CongestionSettings,
    /// Bytes of messages that the subscriber takes at first.
    pub window: u64,
    /// It takes several samples in one datagram.
    pub batches: bool,
    /// It takes messages with short headers in such a datagram.
    pub short_headers: bool,
}

/// The reliable part of a flow.
pub(crate) struct Kept {
    sender: PiMutex<Sender>,
    full: AtomicBool,
    flags: AtomicU16,
    malformed: AtomicU64,
    members: PiMutex<Vec<u64>>,
    any: AtomicBool, // there is a member that acknowledges; otherwise no message is kept
    controlled: bool,
    waits: AtomicBool, // the sending thread waits for room in the window
    opening: Opening,  // a publishing thread waits for it, with a batch
}

impl Kept {
    pub(super) fn new(settings: SenderSettings, control: Option<Control>) -> Self {
        let mut sender = Sender::new(settings);
        if let Some(Control { congestion, window, .. }) = control {
            sender.control(congestion, window);
        }
        Self {
            controlled: control.is_some(),
            waits: AtomicBool::new(false),
            opening: Opening::default(),
            sender: PiMutex::new(sender),
            full: AtomicBool::new(false),
            flags: AtomicU16::new(0),
            malformed: AtomicU64::new(0),
            members: PiMutex::default(),
            any: AtomicBool::new(false),
        }
    }

    /// Flags of a frame that is sent now.
    pub(super) fn flags(&self) -> u16 {
        self.flags.load(Relaxed)
    }

    /// `true` if any member acknowledges: a group may have members that do not.
    pub(super) fn is_needed(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// `true` if a further message has to wait for acknowledgements.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    pub(super) fn unacknowledged(&self) -> usize {
        self.sender.lock().unacknowledged()
    }

    /// `true` if a window bounds the datagrams that leave.
    pub(super) fn is_controlled(&self) -> bool {
        self.controlled && self.is_needed()
    }

    /// Checks whether a further message may leave, for the thread that sends waiting messages.
    ///
    /// # Errors
    /// The longest time to wait.
    pub(super) fn look(&self, now_ns: u64) -> Result<(), Duration> {
        if !self.is_controlled() {
            return if self.is_full() { Err(FULL_PAUSE) } else { Ok(()) };
        }
        let mut sender = self.sender.lock();
        wait(&mut sender, now_ns).map_or(Ok(()), |wait| Err(self.waits_for(now_ns, wait)))
    }

    /// Waits until a batch may leave, at most for `left`. Calls `waits` before.
    pub(super) fn wait_room(&self, left: Duration, waits: impl FnOnce()) {
        self.opening.wait(|| {
            let now = monotonic_ns();
            let pause = match wait(&mut self.sender.lock(), now)? {
                Wait::Until(at) => Duration::from_nanos(at.saturating_sub(now)),
                Wait::Receipt => WOKEN_PAUSE,
            };
            waits();
            Some(pause.min(left))
        });
    }

    /// The number of these parts of a message, from the first, that may leave; they count as in flight from here on.
    ///
    /// # Errors
    /// If there are none: the longest time to wait.
    fn leave(&self, now_ns: u64, parts: impl Iterator<Item = (Datagram, usize)>) -> Result<usize, Duration> {
        let (mut sender, mut count) = (self.sender.lock(), 0);
        for (datagram, bytes) in parts {
            match sender.room(now_ns, bytes) {
                Ok(()) => sender.leaves(now_ns, datagram, bytes),
                Err(wait) if count == 0 => return Err(self.waits_for(now_ns, wait)),
                Err(_) => break,
            }
            count += 1;
        }
        Ok(count)
    }

    /// The number of these datagrams, messages or batches, that may leave, from the first. They count as in flight from here on,
    /// and are kept next.
    fn leave_whole(&self, now_ns: u64, datagrams: impl Iterator<Item = (Datagram, usize)>) -> usize {
        let (mut sender, mut count) = (self.sender.lock(), 0);
        for (datagram, bytes) in datagrams {
            if sender.room(now_ns, bytes).is_err() || sender.is_full_with(count) {
                break;
            }
            sender.leaves_whole(now_ns, datagram, bytes);
            count += 1;
        }
        count
    }

    /// Notes that a thread waits, with the sender locked, so that no receipt comes in between. Gives the longest time to wait.
    fn waits_for(&self, now_ns: u64, wait: Wait) -> Duration {
        match wait {
            Wait::Until(at) => Duration::from_nanos(at.saturating_sub(now_ns)),
            Wait::Receipt => {
                self.waits.store(true, SeqCst);
                WOKEN_PAUSE
            }
        }
    }

    /// The member that a datagram is for; `None`: all members.
    fn member(&self, to: To) -> Option<u64> {
        match to {
            To::All => None,
            To::One(index) => self.members.lock().get(index).copied(),
        }
    }

    /// Bytes of unacknowledged messages.
    pub(super) fn bytes(&self) -> usize {
        self.sender.lock().bytes()
    }

    /// Wakes threads that wait for room.
    pub(super) fn wake(&self) {
        self.opening.open();
    }

    /// `true` if it has members and all of them were cut off.
    pub(super) fn has_only_absent(&self) -> bool {
        self.is_needed() && self.sender.lock().has_only_absent()
    }

    /// Takes the unacknowledged messages, the oldest first; none is kept afterwards.
    pub(super) fn take_unacknowledged(&self) -> Vec<Entry> {
        self.sender.lock().take_unacknowledged()
    }

    #[cfg(test)]
    pub fn sender(&self) -> linux::lock::PiGuard<'_, Sender> {
        self.sender.lock()
    }

    fn note(&self, sender: &Sender, now_ns: u64, account: &Account) {
        let over = || sender.bytes() > ALWAYS && !sender.may_drop_oldest() && account.is_over();
        self.full.store(sender.is_full(now_ns) || over(), Relaxed);
        self.flags.store(sender.flags(), Relaxed);
    }
}

/// The reason why a message as long as the last one has to wait.
fn wait(sender: &mut Sender, now_ns: u64) -> Option<Wait> {
    match sender.usual_room(now_ns) {
        Ok(()) => sender.is_full(now_ns).then_some(Wait::Receipt),
        Err(wait) => Some(wait),
    }
}

impl Flow {
    /// Keeps a message that left, or was lost on the spot: it is retransmitted when a subscriber misses it.
    #[inline]
    pub(super) fn keep_sent(&self, kept: &Kept, now_ns: u64, flow_seq: u32, entry: Entry) {
        let mut entry = entry;
        let mut sender = kept.sender.lock();
        if !entry.charge.is_taken() {
            let account = &self.settings.account;
            entry.charge = Charge::new(account, entry.size(), false).unwrap_or_else(|_| {
                sender.shrink_to(ALWAYS);
                Charge::new(account, entry.size(), true).unwrap_or_default()
            });
        }
        let due = sender.sent(now_ns, flow_seq, entry);
        kept.note(&sender, now_ns, &self.settings.account);
        drop(sender);
        if let Some(due) = due {
            self.senders.retransmitter.look_by(due);
        }
    }

    /// The number of these parts of a large message that leave, as window and pace allow it.
    ///
    /// # Errors
    /// If there are none: the longest time to wait.
    #[inline]
    pub(super) fn leave(&self, parts: impl Iterator<Item = (Datagram, usize)>) -> Result<usize, Duration> {
        let Some(kept) = self.kept.as_ref().filter(|kept| kept.is_controlled()) else {
            return self.leave_at_pace(parts);
        };
        kept.leave(monotonic_ns(), parts).inspect_err(|_| self.ask_in_time(kept))
    }

    /// The number of these parts that leave without a window: all, or one with a pace.
    ///
    /// # Errors
    /// If the pace lets none leave: the time to wait.
    fn leave_at_pace(&self, mut parts: impl Iterator<Item = (Datagram, usize)>) -> Result<usize, Duration> {
        if self.pace.load(Relaxed) == 0 {
            return Ok(parts.count());
        }
        parts.next().map_or(Ok(0), |(_, bytes)| self.keep_pace(bytes).map(|()| 1))
    }

    /// The pace of datagrams without a window, in bytes per second. A window has a pacer of its own, and so has a stream's socket.
    #[inline]
    fn own_pace(&self) -> Option<u64> {
        let rate = self.pace.load(Relaxed);
        let is_own = rate > 0 && !self.capabilities.stream && !self.kept.as_ref().is_some_and(Kept::is_controlled);
        is_own.then_some(rate)
    }

    /// Checks whether a datagram of so many bytes may leave now, and counts it.
    ///
    /// # Errors
    /// The time to wait.
    #[inline]
    pub(super) fn keep_pace(&self, bytes: usize) -> Result<(), Duration> {
        let Some(rate) = self.own_pace() else { return Ok(()) };
        let (now, mut pacer) = (monotonic_ns(), self.pacer.lock());
        let wait = pacer.wait(now, rate, burst(rate, bytes));
        wait.map_err(|at| Duration::from_nanos(at.saturating_sub(now)))?;
        pacer.on_sent(now, rate, bytes);
        Ok(())
    }

    /// Takes back a datagram of so many bytes, which did not leave.
    pub(super) fn unpace(&self, bytes: usize) {
        if let Some(rate) = self.own_pace() {
            self.pacer.lock().unsent(rate, bytes);
        }
    }

    /// The number of these datagrams that leave, as window and pace allow it.
    pub(super) fn leave_whole(&self, datagrams: impl Iterator<Item = (Datagram, usize)>) -> usize {
        let Some(kept) = self.kept.as_ref().filter(|kept| kept.is_controlled()) else { return datagrams.count() };
        kept.leave_whole(monotonic_ns(), datagrams)
    }

    /// Takes back the last datagram, which did not leave.
    pub(super) fn left_not_whole(&self, bytes: usize) {
        if let Some(kept) = self.kept.as_ref().filter(|kept| kept.is_controlled()) {
            kept.sender.lock().left_not_whole(bytes);
        }
    }

    /// Takes back a part that did not leave: the socket is full.
    pub(super) fn left_not(&self, bytes: usize) {
        match self.kept.as_ref().filter(|kept| kept.is_controlled()) {
            Some(kept) => kept.sender.lock().left_not(bytes),
            None => self.unpace(bytes),
        }
    }

    /// Makes the thread that asks for receipts look in time whether one came.
    pub(super) fn ask_in_time(&self, kept: &Kept) {
        let due = kept.sender.lock().next_deadline();
        if let Some(due) = due {
            self.senders.retransmitter.look_by(due);
        }
    }

    /// From now on its datagrams have at most `most` bytes.
    pub(super) fn keep_within(&self, most: usize) {
        if let Some(kept) = &self.kept {
            kept.sender.lock().shrink(most);
        }
    }

    /// From now on the flow has this rate for itself, in bytes per second; `None`: it shares the path.
    pub(super) fn reserve(&self, rate: Option<u64>) {
        if let Some(kept) = &self.kept {
            kept.sender.lock().reserve(rate.or(self.settings.sending.limit.map(|limit| limit.rate)));
        }
    }

    /// `true` if the flow is reliable by retransmits.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Adds a member that acknowledges from now on, from this address where there are several. Gives the number of its first message.
    pub(crate) fn admit(&self, member: u64, address: Option<SocketAddr>) -> Option<u32> {
        let kept = self.kept.as_ref()?;
        if let Some(address) = address {
            self.link.admit(member, address);
        }
        let mut sender = kept.sender.lock();
        if !kept.any.swap(true, Relaxed) {
            sender.starts_at(self.next.load(Relaxed));
        }
        kept.members.lock().push(member);
        Some(sender.join(member))
    }

    /// As [`Flow::admit`], for a member that was cut off and comes back. Gives the number of the first message that it may not have.
    pub(crate) fn readmit(&self, before: u64, member: u64, address: SocketAddr) -> Option<u32> {
        let kept = self.kept.as_ref()?;
        let mut sender = kept.sender.lock();
        let (now, mut members) = (monotonic_ns(), kept.members.lock());
        let first = sender.comes_back(now, before, member)?;
        members.iter_mut().filter(|other| **other == before).for_each(|other| *other = member);
        self.link.dismiss(before);
        self.link.admit(member, address);
        Some(first)
    }

    /// Notes that a member of a group lost its connection, and may come back. `false`: no message is kept for it.
    pub(crate) fn cut_off_member(&self, member: u64) -> bool {
        let Some(kept) = &self.kept else { return false };
        let mut sender = kept.sender.lock();
        let known = sender.loses(member);
        kept.note(&sender, monotonic_ns(), &self.settings.account);
        known
    }

    /// Removes a member that left.
    pub(crate) fn dismiss(&self, member: u64) {
        let Some(kept) = &self.kept else { return };
        self.link.dismiss(member);
        let mut sender = kept.sender.lock();
        let mut members = kept.members.lock();
        members.retain(|other| *other != member);
        sender.leave(member);
        kept.any.store(!members.is_empty(), Relaxed);
        kept.note(&sender, monotonic_ns(), &self.settings.account);
    }

    /// Receives feedback of subscribers, `MOST_HEARD` datagrams at most.
    pub(crate) fn receive_feedback(self: &Arc<Self>) {
        let Some(kept) = &self.kept else { return };
        let mut buffer = [0; LONGEST];
        // Errors of a datagram socket concern single datagrams, which are retransmitted.
        for _ in 0..MOST_HEARD {
            let Ok((length, member)) = self.link.receive_feedback(&mut buffer) else { return };
            let said = datagram(buffer.get(..length).unwrap_or_default(), LONGEST, Some(self.settings.id));
            let taken =
                said.ok().filter(|(header, _)| header.kind == Kind::Acknowledgement).and_then(|(header, said)| {
                    let said = match kept.controlled {
                        true => Acknowledgement::parse_with_receipt(said),
                        false => Acknowledgement::parse(said),
                    };
                    let (mut sender, now) = (kept.sender.lock(), monotonic_ns());
                    sender.acknowledge(now, member, self.next.load(Relaxed), &header, &said.ok()?).ok()?;
                    kept.note(&sender, now, &self.settings.account);
                    Some(sender.is_open())
                });
            match taken {
                None => drop(kept.malformed.fetch_add(1, Relaxed)),
                Some(true) => {
                    kept.opening.open();
                    if kept.waits.swap(false, SeqCst) {
                        self.wake_sender();
                    }
                }
                Some(false) => {}
            }
        }
    }

    /// Sends the due retransmits. Gives the time of the next look. A flow that was active lately is looked at even without a due
    /// retransmit, so that a publishing thread need not wake the thread that looks.
    pub(crate) fn retransmit(&self, now_ns: u64) -> Option<u64> {
        let kept = self.kept.as_ref().filter(|_| self.is_live())?;
        loop {
            let mut sender = kept.sender.lock();
            let action = sender.poll(now_ns);
            kept.note(&sender, now_ns, &self.settings.account);
            let Some(action) = action else { return sender.next_look(now_ns) };
            drop(sender);
            self.act(kept, action);
        }
    }

    fn act(&self, kept: &Kept, action: Action) {
        match action {
            Action::Retransmit { entry, sequence, bytes, flags, to } => {
                let payload = entry.buffer.payload();
                let (from, length, total) = (bytes.start as u32, bytes.len(), payload.len());
                let whole = length == total;
                let kind = if whole { entry.kind() } else { Kind::Fragment };
                let extra = if whole { 0 } else { FRAGMENT_HEADER };
                let flags = flags | if !whole && entry.batch { OF_BATCH } else { 0 };
                let header = self.header(kind, length + extra, sequence, entry.label());
                let mut head = [0; HEADER + FRAGMENT_HEADER];
                let (first, second) = head.split_at_mut(HEADER);
                if let (Some(first), Some(second)) = (first.first_chunk_mut(), second.first_chunk_mut()) {
                    Header { flags: flags | REPAIR | entry.label().flags(), ..header }.emit(first);
                    Fragment { offset: from, total: total as u32 }.emit(second);
                }
                let parts = [IoSlice::new(&head[..HEADER + extra]), IoSlice::new(&payload[bytes])];
                // Without room the retransmit is lost like any datagram, and requested again.
                if let Err(error) = self.link.retransmit(&parts, kept.member(to)) {
                    self.look_at_size(&error, HEADER + extra + length);
                }
            }
            Action::Shorten => self.shorten(self.largest()),
            Action::KeepAlive { next, oldest, trip_ns, to } => {
                let header = self.header(Kind::KeepAlive, 0, next, keep_alive(oldest, trip_ns));
                let mut head = [0; HEADER];
                Header { flags: ASK, ..header }.emit(&mut head);
                let _ = self.link.retransmit(&[IoSlice::new(&head)], kept.member(to));
            }
        }
    }

    /// Shows a group that datagrams of this flow come through: a keep-alive. Never waits.
    ///
    /// # Errors
    /// The keep-alive could not leave at all.
    pub(crate) fn probe(&self) -> io::Result<()> {
        // Members that acknowledge rely on a keep-alive: for them it has the same numbers as one that is due.
        let (next, oldest, trip_ns) = match self.kept.as_ref().filter(|kept| kept.is_needed()) {
            Some(kept) => {
                let sender = kept.sender.lock();
                let (next, oldest) = sender.position();
                (next, oldest, sender.round_trip().smoothed_ns())
            }
            None => (self.next.load(Relaxed), self.next.load(Relaxed), 0),
        };
        let mut head = [0; HEADER];
        self.header(Kind::KeepAlive, 0, next, keep_alive(oldest, trip_ns)).emit(&mut head);
        match self.link.retransmit(&[IoSlice::new(&head)], None) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Counters of retransmits and feedback so far, and of malformed datagrams among the feedback.
    pub(crate) fn retransmitted(&self) -> (Counters, u64) {
        let Some(kept) = &self.kept else { return Default::default() };
        let counters = kept.sender.lock().counters();
        (counters, kept.malformed.load(SeqCst))
    }
}

/// The label of a keep-alive, which has other numbers in the places of a sample's.
fn keep_alive(oldest: u32, trip_ns: u64) -> Label {
    Label { seq: oldest.into(), stamp: trip_ns, ..Label::default() }
}
