//! One sample on its way to all channels of a port: the loop of `publish`.

use super::Published;
use super::local::LocalChannel;
use super::outlet::{Attached, Outlet, TypedWay};
use crate::channel::buffer::Buffer;
use crate::channel::coalescing::{self, Turn};
use crate::channel::flow::Flow;
use crate::channel::outgoing::Outgoing;
use crate::channel::queue::Label;
use crate::channel::{Change, Channel, Outcome, SampleInfo};
use crate::codec::Message;
use crate::error::{Error, Result};
use crate::trace::stages::{self, Arrived, Stage};
use crate::trace::{self, Step};
use linux::memory::{Arena, Meta, Policy, Pushed, RingWriter, Sealed};
use qos::ResourceLimit;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Pause before another look for a free slot, under a policy that waits.
const SLOT_PAUSE: Duration = Duration::from_micros(50);
/// Pause before another look whether a reader gave back what it held.
const HELD_PAUSE: Duration = Duration::from_millis(1);

/// One sample's way through all channels of a port.
pub(super) struct Round<'a, M: Message> {
    pub(super) outlet: &'a Outlet<M>,
    pub(super) published: Published,
    pub(super) now: u64,
    pub(super) change: Change,
    /// It comes from a history, after later ones.
    pub(super) historical: bool,
    pub(super) each: &'a mut dyn FnMut(&Channel, Outcome),
}

impl<M: Message> Round<'_, M> {
    pub(super) fn info(&self, channel: &Channel, received_ns: u64) -> SampleInfo {
        SampleInfo {
            node: self.outlet.me.node,
            port: self.outlet.me.port,
            incarnation: self.outlet.incarnation,
            seq: self.published.seq,
            source_ns: self.now,
            received_ns,
            same_clock: true,
            historical: self.historical,
            change: self.change,
            scaled: channel.provenance(),
        }
    }

    pub(super) fn check_size(&self, size: usize) -> Result<()> {
        let limit = self.outlet.info.qos.max_message as usize;
        if size <= limit {
            return Ok(());
        }
        let name = &self.outlet.info.name;
        Err(Error::Message(format!(
            "a message of {size} bytes is over max_message of {name}, {limit} bytes; raise it in the port's QoS"
        )))
    }

    pub(super) fn hand_over_values(&mut self, attached: &[Attached<M>], value: &M::Value) {
        let seq = self.published.seq;
        for entry in attached.iter().filter(|entry| entry.selects(seq)) {
            if let TypedWay::Local(subscriber) = &entry.way
                && subscriber.wants_value()
            {
                let now = linux::clock::monotonic_ns();
                let info = self.info(&entry.channel, now);
                subscriber.value(info, value, &entry.channel.account);
                if entry.channel.stages.measures(seq) {
                    let publish = (Stage::Publish, now.saturating_sub(self.now));
                    stages::note_called(&entry.channel.stages, now, info.stamp(), 0, publish); // a value has no bytes
                }
                self.count(&entry.channel, Outcome::Sent, 0);
            }
        }
    }

    pub(super) fn decode_and_hand_over(&mut self, attached: &[Attached<M>], bytes: &[u8]) -> Result<()> {
        let seq = self.published.seq;
        if attached.iter().any(|a| a.takes_values() && a.selects(seq)) {
            let decoded = M::decode(bytes).map_err(|e| Error::Message(e.to_string()))?;
            self.hand_over_values(attached, decoded.value());
        }
        Ok(())
    }

    /// Copies the message into shared memory, once for all channels that read it there.
    pub(super) fn share(&mut self, attached: &mut [Attached<M>], arena: &mut Option<Arena>, bytes: &[u8]) {
        let seq = self.published.seq;
        if !attached.iter().any(|a| matches!(a.way, TypedWay::Ring(..)) && a.selects(seq)) {
            return;
        }
        let Some(arena) = arena else { return self.refuse_rings(attached, bytes.len()) };
        let patience = self.outlet.info.qos.queue.patience();
        let Ok(loan) = arena.loan(bytes.len()).or_else(|_| loan_patiently(attached, arena, bytes.len(), patience))
        else {
            return self.refuse_rings(attached, bytes.len());
        };
        arena.bytes_mut(&loan).copy_from_slice(bytes);
        let sample = arena.seal(loan);
        self.push(attached, arena, &sample);
        arena.release(sample);
    }

    /// All slots are borrowed: subscribers hold too many samples.
    #[cold]
    pub(super) fn refuse_rings(&mut self, attached: &[Attached<M>], size: usize) {
        let seq = self.published.seq;
        for entry in attached.iter().filter(|a| matches!(a.way, TypedWay::Ring(..)) && a.selects(seq)) {
            self.count(&entry.channel, Outcome::Refused { limit: ResourceLimit::Samples }, size);
        }
    }

    /// Gives a finished message to every ring, and wakes those who wait with one system call.
    pub(super) fn push(&mut self, attached: &mut [Attached<M>], arena: &mut Arena, sample: &Sealed) {
        let size = arena.bytes(sample).len();
        let policy = self.outlet.info.qos.queue;
        let drop_rule = if matches!(policy, qos::Queue::KeepLast(_)) { Policy::KeepLast } else { Policy::Refuse };
        let (mut waiting, seq) = (0, self.published.seq);
        for entry in attached.iter_mut().filter(|entry| entry.selects(seq)) {
            let TypedWay::Ring(ring, next) = &mut entry.way else { continue };
            if !entry.channel.takes(arena.bytes(sample), self.now, self.change) {
                continue;
            }
            if size > entry.channel.max_message as usize {
                let outcome = entry.channel.refuse_size();
                self.count(&entry.channel, outcome, size);
                continue;
            }
            let label = Label { seq, stamp: self.now, change: self.change, historical: self.historical };
            let meta = Meta { seq, stamp_ns: self.now, flow_seq: *next, kind: label.flags().into() };
            trace::step(Step::Push);
            let offered = entry.channel.stages.measures(seq).then(linux::clock::monotonic_ns);
            let mut pushed = ring.push(arena, sample, meta, drop_rule);
            if pushed == Pushed::Full && !policy.patience().is_zero() {
                arena.wake(std::mem::take(&mut waiting) | ring.reader_waits());
                pushed = push_patiently(ring, arena, sample, meta, policy.patience());
            }
            let limit = if ring.met_bytes() { ResourceLimit::Bytes } else { ResourceLimit::Samples };
            let outcome = match pushed {
                Pushed::Sent => Outcome::Sent,
                Pushed::SentDroppedOldest(dropped) => Outcome::DroppedOldest { dropped, limit },
                Pushed::Full => Outcome::Refused { limit },
                Pushed::Closed | Pushed::Violation(_) => Outcome::NotConnected,
            };
            if matches!(outcome, Outcome::Sent | Outcome::DroppedOldest { .. }) {
                *next = next.wrapping_add(1);
                waiting |= ring.reader_waits();
            }
            if let Some(offered) = offered {
                let now = linux::clock::monotonic_ns();
                let (publish, send) = (offered.saturating_sub(self.now), now.saturating_sub(offered));
                let took = [(Stage::Publish, publish), (Stage::Queue, 0), (Stage::Send, send)];
                entry.channel.stages.note(now, &took);
            }
            self.count(&entry.channel, outcome, size);
        }
        arena.wake(waiting);
    }

    /// Offers the message to all channels that need its bytes.
    pub(super) fn offer(&mut self, attached: &[Attached<M>], message: &mut Outgoing<'_>, turn: &mut Turn) {
        (message.now, message.together) = coalescing::gathers(turn);
        self.offer_to_all(attached, message);
        if message.called {
            coalescing::ended();
        }
    }

    fn offer_to_all(&mut self, attached: &[Attached<M>], message: &mut Outgoing<'_>) {
        let size = message.payload().len();
        let (mut group, seq) = (Outcome::NotConnected, self.published.seq);
        for entry in attached.iter().filter(|entry| entry.selects(seq)) {
            let outcome = match &entry.way {
                TypedWay::Ring(..) => continue,
                TypedWay::Local(subscriber) if subscriber.wants_value() => continue,
                _ if !entry.channel.takes(message.payload(), self.now, self.change) => continue,
                // A group has members with other limits: those who take less drop it themselves.
                TypedWay::Flow(_) | TypedWay::Local(_) if size > entry.channel.max_message as usize => {
                    entry.channel.refuse_size()
                }
                TypedWay::Local(subscriber) => {
                    let (info, buffer) = (self.info(&entry.channel, self.now), message.keep().buffer);
                    match entry.channel.stages.measures(seq) {
                        false => subscriber.buffer(info, &buffer, &entry.channel.account),
                        true => self.measure_local(&entry.channel, &**subscriber, info, &buffer),
                    }
                    Outcome::Sent
                }
                TypedWay::Flow(flow) => self.offer_to(flow, &entry.channel, message),
                TypedWay::Group(flow, true) => {
                    group = self.offer_to(flow, &entry.channel, message);
                    group
                }
                TypedWay::Group(_, false) => group,
            };
            self.count(&entry.channel, outcome, size);
        }
    }

    /// Hands the message over within the process, and notes how long that took. One that waits to be taken has arrived then.
    #[cold]
    fn measure_local(
        &self,
        channel: &Channel,
        subscriber: &dyn LocalChannel<M>,
        info: SampleInfo,
        buffer: &Arc<Buffer>,
    ) {
        let offered = linux::clock::monotonic_ns();
        let publish = [(Stage::Publish, offered.saturating_sub(self.now))];
        let waits = stages::delivering(&channel.stages, || subscriber.buffer(info, buffer, &channel.account));
        if waits && !subscriber.calls_back() {
            let (seq, size, done_ns) = (info.seq, buffer.payload().len(), linux::clock::monotonic_ns());
            let arrived = Arrived { seq, size, published_ns: self.now, done_ns };
            return channel.stages.note_arrived(&publish, &arrived);
        }
        channel.stages.note(offered, &publish);
    }

    /// Offers the message to a flow, and notes what that took where it is measured.
    #[inline]
    fn offer_to(&self, flow: &Arc<Flow>, channel: &Channel, message: &mut Outgoing<'_>) -> Outcome {
        if !channel.stages.measures(message.seq) {
            message.offered = 0;
            return flow.offer(message);
        }
        message.offered = linux::clock::monotonic_ns();
        let outcome = flow.offer(message);
        let now = linux::clock::monotonic_ns();
        let (publish, send) = (message.offered.saturating_sub(self.now), now.saturating_sub(message.offered));
        let took = [(Stage::Publish, publish), (Stage::Queue, 0), (Stage::Send, send)];
        match outcome {
            Outcome::Sent => channel.stages.note(now, &took),
            // The flow's thread notes the rest.
            Outcome::Queued | Outcome::DroppedOldest { .. } => channel.stages.note(now, &took[..1]),
            _ => {}
        }
        outcome
    }

    #[inline]
    pub(super) fn count(&mut self, channel: &Channel, outcome: Outcome, size: usize) {
        self.published.count(outcome);
        let counters = &channel.counters;
        match outcome {
            Outcome::Sent | Outcome::Queued | Outcome::DroppedOldest { .. } => {
                // One writer: a load and a store, no locked instruction.
                counters.samples.store(counters.samples.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                counters.bytes.store(counters.bytes.load(Ordering::Relaxed) + size as u64, Ordering::Relaxed);
            }
            _ => {}
        }
        if !matches!(outcome, Outcome::Sent | Outcome::Queued) {
            counters.dropped(outcome);
        }
        (self.each)(channel, outcome);
    }
}

/// Waits for room in a ring, at most `patience`.
#[cold]
fn push_patiently(ring: &mut RingWriter, arena: &mut Arena, sample: &Sealed, meta: Meta, patience: Duration) -> Pushed {
    let (room, until) = (ring.room(), Instant::now() + patience);
    loop {
        let asked = room.ask();
        let pushed = ring.push(arena, sample, meta, Policy::Refuse);
        let left = until.saturating_duration_since(Instant::now());
        if pushed != Pushed::Full || left.is_zero() {
            return pushed;
        }
        // A reader tells when it takes a sample, not when it gives one back.
        room.wait(asked, if ring.met_bytes() { left.min(HELD_PAUSE) } else { left });
    }
}

/// Takes back what readers returned, and tries again until `patience` is over: slots are scarce.
#[cold]
fn loan_patiently<M: Message>(
    attached: &mut [Attached<M>],
    arena: &mut Arena,
    len: usize,
    patience: Duration,
) -> std::result::Result<linux::memory::Loan, linux::memory::ArenaError> {
    let until = Instant::now() + patience;
    loop {
        for entry in attached.iter_mut() {
            if let TypedWay::Ring(ring, _) = &mut entry.way {
                let _ = ring.collect(arena); // a violation shows at the next push
            }
        }
        let loan = arena.loan(len);
        if loan.is_ok() || Instant::now() >= until {
            return loan;
        }
        std::thread::sleep(SLOT_PAUSE);
    }
}
