//! A reliable channel over datagrams: missing messages are requested, and messages that come too early wait.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

use super::deliver::End;
use super::source::{Framing, Source};
use super::{Agreed, Inbound, REASSEMBLY_TIMEOUT_NS, Step, put_together};
use crate::carrier::TICK;
use crate::channel::fragment::Reassembly;
use crate::channel::memory::Account;
use crate::channel::reliable::{Arrived, IN_PROGRESS, Receiver};
use crate::trace;
use crate::wire::{self, FRAGMENT_HEADER, Header, Kind, LONGEST_DATAGRAM, Messages, OF_BATCH};
use linux::clock::monotonic_ns;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The missing parts of a message are requested. A message without a new part for this long is begun again.
const PATIENT_NS: u64 = 10_000_000_000;

/// The reassembly of messages, and the receiver that orders them where the publisher retransmits lost ones.
pub(super) fn parts(agreed: &Agreed, budget: Arc<Account>) -> (Reassembly, Option<Box<Receiver>>) {
    let most = agreed.max_message;
    match agreed.reliable.clone() {
        None => (Reassembly::new(most, REASSEMBLY_TIMEOUT_NS, budget), None),
        Some(settings) => {
            // A batch may come in fragments, even if messages may not be that long.
            let reassembly = Reassembly::with_slots(IN_PROGRESS, most.max(LONGEST_DATAGRAM), PATIENT_NS, budget);
            let mut receiver = Receiver::new(settings);
            if let Some(every) = agreed.receipts {
                receiver.tells(every);
            }
            (reassembly, Some(Box::new(receiver)))
        }
    }
}

impl Inbound {
    pub(crate) fn is_reliable(&self) -> bool {
        matches!(&self.source, Source::Half(_, Framing::Datagrams { receiver: Some(_), .. }))
    }

    /// The time of the next timed work in [`Inbound::step`], by the monotonic clock.
    fn next_deadline(&self) -> Option<u64> {
        match &self.source {
            Source::Half(_, Framing::Datagrams { receiver: Some(receiver), .. }) => receiver.next_deadline(),
            _ => None,
        }
    }

    /// The time until then.
    pub(crate) fn until_timer(&self) -> Option<Duration> {
        self.next_deadline().map(|due| Duration::from_nanos(due.saturating_sub(monotonic_ns())))
    }

    /// Waits here while a message is missing, at most until it has to be requested. `true`: the receive need not wait.
    pub(super) fn waits_for_timer(&self) -> bool {
        let Some(left) = self.until_timer().map(|left| left.min(TICK)) else { return false };
        if let Source::Half(half, _) = &self.source {
            match half.descriptor() {
                Some(fd) => drop(linux::poll::wait_readable(fd, Some(left))),
                None => std::thread::sleep(left.min(super::HELD_PAUSE)),
            }
        }
        true
    }

    /// The timed work, when no datagram came. Returns the number of delivered samples, if any.
    pub(super) fn tick(&mut self) -> Option<u32> {
        if !self.is_reliable() {
            return None;
        }
        let now = monotonic_ns();
        let delivered = self.deliver_ready(now);
        self.say(now);
        (delivered > 0).then_some(delivered)
    }

    #[inline]
    pub(super) fn received_reliably(&mut self, at: Range<usize>, now: u64) -> Step {
        let Self {
            source: Source::Half(_, Framing::Datagrams { buffer, reassembly, receiver: Some(receiver), .. }),
            ..
        } = self
        else {
            return Step::Nothing;
        };
        let (accept, channel, subscriber_port) = (&mut self.accept, &self.channel, self.subscriber_port.as_ref());
        let frame = wire::datagram(buffer.get(at).unwrap_or_default(), self.max_message, Some(self.flow));
        let Ok((header, payload)) = frame else {
            channel.counters.malformed.fetch_add(1, Relaxed);
            return if channel.is_closed() { Step::Ended("closed".to_owned()) } else { Step::Nothing };
        };
        receiver.arrived(now, &header, payload);
        let mut delivered = 0;
        let whole = match header.kind {
            Kind::Message | Kind::Batch => Ok(Some(payload)),
            Kind::Fragment | Kind::Parity => fragment(reassembly, receiver, now, &header, payload),
            _ => Ok(None),
        };
        let header = whole_header(header);
        let mut end = End { accept, channel, subscriber_port, received_ns: now, from: None };
        match (header.kind, whole) {
            // The whole batch is checked before it counts as received.
            (Kind::Batch, Ok(Some(batch))) => match Messages::parse(&header, batch, self.max_message) {
                Ok(messages) => {
                    if receiver.message(now, &header, batch) == Arrived::InOrder {
                        delivered += end.batch(&header, messages);
                    }
                }
                Err(_) => drop(channel.counters.malformed.fetch_add(1, Relaxed)),
            },
            (_, Ok(Some(message))) if message.len() <= self.max_message => {
                trace::step(trace::Step::Parse);
                if receiver.message(now, &header, message) == Arrived::InOrder {
                    delivered += end.message(&header, message);
                }
            }
            (_, Ok(Some(_)) | Err(())) => drop(channel.counters.malformed.fetch_add(1, Relaxed)),
            (Kind::KeepAlive, _) => receiver.keep_alive(now, &header),
            (Kind::End, _) => return Step::Ended("the publisher closed".into()),
            (_, Ok(None)) => {}
        }
        Step::Delivered(delivered + self.deliver_ready(now))
    }

    /// Delivers messages that waited for the one that came now.
    #[inline]
    fn deliver_ready(&mut self, now: u64) -> u32 {
        let Self { source: Source::Half(_, Framing::Datagrams { receiver: Some(receiver), .. }), .. } = self else {
            return 0;
        };
        let (accept, channel, subscriber_port) = (&mut self.accept, &self.channel, self.subscriber_port.as_ref());
        let mut end = End { accept, channel, subscriber_port, received_ns: now, from: None };
        let mut delivered = 0;
        while let Some(held) = receiver.ready(now) {
            delivered += match held.header.kind {
                Kind::Batch => Messages::parse(&held.header, &held.bytes, self.max_message)
                    .map_or(0, |messages| end.batch(&held.header, messages)),
                _ => end.message(&held.header, &held.bytes),
            };
            receiver.recycle(held);
        }
        delivered
    }

    /// Says what is to be said.
    #[inline]
    pub(super) fn say(&mut self, now: u64) {
        let Self {
            source: Source::Half(half, Framing::Datagrams { reassembly, receiver: Some(receiver), .. }),
            accept,
            channel,
            ..
        } = self
        else {
            return;
        };
        if receiver.has_news(now) {
            accept.announced(receiver.next());
            if let Some(said) = receiver.acknowledgement(now, reassembly) {
                trace::step(trace::Step::Send);
                let _ = half.send_feedback(said); // a lost answer is made again
            }
            let counters = receiver.counters();
            channel.counters.repaired.store(counters.repaired, Relaxed);
            channel.counters.skipped.store(counters.skipped, Relaxed);
            channel.counters.acknowledgements.store(counters.acknowledgements, Relaxed);
        }
    }
}

/// The header of the message or batch that this frame is, or is a part of.
#[inline]
fn whole_header(header: Header) -> Header {
    let of_batch = header.kind == Kind::Fragment && header.flags & OF_BATCH != 0;
    Header { kind: if of_batch { Kind::Batch } else { header.kind }, ..header }
}

/// Takes a fragment. Returns the whole message if this was its last missing part.
fn fragment<'a>(
    reassembly: &'a mut Reassembly,
    receiver: &mut Receiver,
    now: u64,
    header: &Header,
    payload: &[u8],
) -> Result<Option<&'a [u8]>, ()> {
    if payload.len() < FRAGMENT_HEADER {
        return Err(());
    }
    if !receiver.wants(now, header) {
        return Ok(None);
    }
    if !reassembly.has_room_for(header.sample, receiver.settled()) {
        receiver.crowded(header);
        return Ok(None);
    }
    // A refused fragment is a duplicate, or no part of its message; missing parts are requested.
    let whole = matches!(put_together(reassembly, now, header, payload), Ok(Some(_)));
    if !whole {
        receiver.part(now, header, reassembly);
        return Ok(None);
    }
    Ok(reassembly.finished())
}
