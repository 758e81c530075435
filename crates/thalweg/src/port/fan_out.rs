//! One sample on its way to all channels of a port: the channels that take it, the outcome on each, and the time of each.

#![allow(clippy::disallowed_methods)] // samples are stamped, and waits are measured

use super::Published;
use super::publisher::{Attached, Content, Place, PublisherPort, TypedWay};
use crate::carrier::shm::Memory;
use crate::channel::coalescing::{self, Turn};
use crate::channel::outgoing::Outgoing;
use crate::channel::queue::Label;
use crate::channel::{Channel, Outcome, SampleInfo};
use crate::codec::Message;
use crate::error::{Error, Result};
use crate::trace::stages::{self, Arrived, Stage};
use qos::ResourceLimit;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The outcome of a sample beyond the contract.
const BEYOND: Outcome = Outcome::Refused { limit: ResourceLimit::Policing };

/// Pause before another look for a free place in shared memory, under a policy that waits.
const SLOT_PAUSE: Duration = Duration::from_micros(50);

/// One sample's way through all channels of a port.
pub(super) struct FanOut<'a, M: Message> {
    pub(super) publisher_port: &'a PublisherPort<M>,
    pub(super) published: Published,
    pub(super) label: Label,
    pub(super) each: &'a mut dyn FnMut(&Channel, Outcome),
}

impl<M: Message> FanOut<'_, M> {
    /// Hands the value over to subscribers of this process that take values. A message is decoded for that.
    #[inline]
    pub(super) fn pass_value(
        &mut self,
        attached: &[Attached<M>],
        content: &Content<'_, M>,
        memory: &mut Option<Memory>,
    ) -> Result<()> {
        if let Content::Value(value) = content {
            self.hand_over(attached, value);
            return Ok(());
        }
        let seq = self.label.seq;
        if !attached.iter().any(|a| a.takes_values() && a.selects(seq)) {
            return Ok(());
        }
        let bytes = match (content, memory) {
            (Content::Value(_), _) => return Ok(()),
            (Content::Encoded(bytes), _) => bytes,
            (Content::Loan(Place::Buffer(buffer)), _) => buffer.payload(),
            (Content::Loan(Place::Slot(loan)), Some(memory)) => memory.bytes_mut(loan),
            (Content::Loan(Place::Slot(_)), None) => return Err(Error::Closed),
        };
        let decoded = M::decode(bytes).map_err(|e| Error::Message(e.to_string()))?;
        self.hand_over(attached, decoded.value());
        Ok(())
    }

    #[inline]
    fn hand_over(&mut self, attached: &[Attached<M>], value: &M::Value) {
        let Label { seq, stamp, .. } = self.label;
        for Attached { channel, way } in attached.iter().filter(|entry| entry.selects(seq)) {
            if let TypedWay::Local(subscriber) = way
                && subscriber.wants_value()
            {
                let now = linux::clock::monotonic_ns();
                let info = self.info(channel, now);
                subscriber.value(info, value, &channel.account);
                if channel.stages.measures(seq) {
                    let publish = (Stage::Publish, now.saturating_sub(stamp));
                    stages::note_called(&channel.stages, now, info.stamp(), 0, publish); // a value has no bytes
                }
                self.count(channel, Outcome::Sent, 0);
            }
        }
    }

    /// Offers the message to all channels that need its bytes: first to those that read it in shared memory, whose readers are
    /// woken with one system call, then to the others.
    #[inline]
    pub(super) fn pass(&mut self, attached: &mut [Attached<M>], message: &mut Outgoing<'_>, turn: &mut Turn) {
        (message.now, message.together) = coalescing::gathers(turn);
        if message.shared().is_some() && attached.iter().any(|a| a.shares() && a.selects(self.label.seq)) {
            self.share(attached, message);
            self.walk(attached, message, true);
            message.shared().into_iter().for_each(|shared| shared.wake());
        }
        self.walk(attached, message, false);
        if message.called {
            coalescing::ended();
        }
    }

    /// The one walk over the channels: of those that share memory, or of the others.
    #[inline]
    fn walk(&mut self, attached: &mut [Attached<M>], message: &mut Outgoing<'_>, shares: bool) {
        let Label { seq, stamp, change, .. } = self.label;
        let (size, mut group) = (message.payload().len(), Outcome::NotConnected);
        for entry in attached.iter_mut().filter(|entry| entry.shares() == shares && entry.selects(seq)) {
            if entry.takes_values() || !entry.channel.takes(message.payload(), stamp, change) {
                continue;
            }
            // A group has members with other limits: members with a lower limit drop the message themselves.
            let outcome = match &entry.way {
                TypedWay::Group(_, false) if group == BEYOND => entry.channel.refuse_excess(),
                TypedWay::Group(_, false) => group,
                TypedWay::Group(_, true) => {
                    let exceeds = entry.channel.exceeds(change, message.now, size);
                    group = if exceeds { entry.channel.refuse_excess() } else { self.offer(entry, message) };
                    group
                }
                _ if size > entry.channel.max_message as usize => entry.channel.refuse_size(),
                _ if entry.channel.exceeds(change, message.now, size) => entry.channel.refuse_excess(),
                _ => self.offer(entry, message),
            };
            self.count(&entry.channel, outcome, size);
        }
    }

    /// Offers the message to one channel, and notes the time if it is measured.
    #[inline]
    fn offer(&self, entry: &mut Attached<M>, message: &mut Outgoing<'_>) -> Outcome {
        if entry.channel.stages.measures(self.label.seq) {
            return self.offer_measured(entry, message);
        }
        message.offered = 0;
        self.offer_to(entry, message)
    }

    #[inline]
    fn offer_to(&self, Attached { channel, way }: &mut Attached<M>, message: &mut Outgoing<'_>) -> Outcome {
        match way {
            TypedWay::Flow(flow) | TypedWay::Group(flow, _) => flow.offer(message),
            TypedWay::Ring(ring) => ring.offer(message),
            TypedWay::Local(subscriber) => {
                let info = self.info(channel, self.label.stamp);
                subscriber.buffer(info, &message.keep().buffer, &channel.account);
                Outcome::Sent
            }
        }
    }

    #[cold]
    fn offer_measured(&self, entry: &mut Attached<M>, message: &mut Outgoing<'_>) -> Outcome {
        let Label { seq, stamp, .. } = self.label;
        let (stages, offered) = (entry.channel.stages.clone(), linux::clock::monotonic_ns());
        message.offered = offered;
        let (mut outcome, mut waits) = (Outcome::NotConnected, false);
        match &entry.way {
            TypedWay::Local(_) => {
                waits = stages::delivering(&stages, || outcome = self.offer_to(entry, message));
            }
            _ => outcome = self.offer_to(entry, message),
        }
        let now = linux::clock::monotonic_ns();
        let publish = (Stage::Publish, offered.saturating_sub(stamp));
        let sent = [publish, (Stage::Queue, 0), (Stage::Send, now.saturating_sub(offered))];
        match (&entry.way, outcome) {
            // A sample that waits to be taken has arrived; a callback is noted by the thread that calls it.
            (TypedWay::Local(subscriber), _) if waits && !subscriber.calls_back() => {
                let size = message.payload().len();
                stages.note_arrived(&[publish], &Arrived { seq, size, published_ns: stamp, done_ns: now });
            }
            (TypedWay::Local(_), _) => stages.note(offered, &[publish]),
            (TypedWay::Ring(_), Outcome::Sent | Outcome::DroppedOldest { .. }) | (_, Outcome::Sent) => {
                stages.note(now, &sent);
            }
            // The flow's thread notes the rest.
            (_, Outcome::Queued | Outcome::DroppedOldest { .. }) => stages.note(now, &[publish]),
            _ => {}
        }
        outcome
    }

    /// Copies the message into shared memory, once for all channels that read it there. While all places are borrowed, it takes
    /// back what readers returned, as long as the policy has patience.
    fn share(&self, attached: &mut [Attached<M>], message: &mut Outgoing<'_>) {
        if message.share() {
            return;
        }
        let until = Instant::now() + self.publisher_port.info.qos.queue.patience();
        loop {
            let Some(shared) = message.shared() else { return };
            for entry in attached.iter_mut() {
                if let TypedWay::Ring(ring) = &mut entry.way {
                    ring.collect(shared);
                }
            }
            if message.share() || Instant::now() >= until {
                return;
            }
            std::thread::sleep(SLOT_PAUSE);
        }
    }

    #[inline]
    pub(super) fn check_size(&self, size: usize) -> Result<()> {
        let limit = self.publisher_port.info.qos.max_message as usize;
        if size <= limit {
            return Ok(());
        }
        let name = &self.publisher_port.info.name;
        Err(Error::Message(format!(
            "a message of {size} bytes is over max_message of {name}, {limit} bytes; raise it in the port's QoS"
        )))
    }

    #[inline]
    fn info(&self, channel: &Channel, received_ns: u64) -> SampleInfo {
        self.publisher_port.info(self.label, received_ns, channel.provenance())
    }

    #[inline]
    fn count(&mut self, channel: &Channel, outcome: Outcome, size: usize) {
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
