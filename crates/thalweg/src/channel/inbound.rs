//! A receive half with its parser, for the thread that serves a channel (steps 7 to 10 of the data path).
//!
//! It is owned by exactly one thread, and moves by being sent. So no sample is lost or reordered when a channel changes threads.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

mod deliver;
mod reliable;
mod source;

pub(crate) use deliver::info;
pub(crate) use source::HELD_PAUSE;

use super::accept::Accept;
use super::fragment::{Reassembly, Refused};
use super::reliable::ReceiverSettings;
use crate::carrier::ReceiveHalf;
use crate::carrier::shm::RingReceive;
use crate::channel::{Channel, Deliver};
use crate::trace;
use crate::wire::{self, Fragment, Header, Kind, Parity, StreamParser};
use deliver::End;
use source::{Framing, Source, Stream, Unpaid, datagrams, segment};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The outcome of one step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// This many samples were delivered.
    Delivered(u32),
    /// No sample came (yet).
    Nothing,
    /// A large message waits for memory. There is no wake-up when others give memory back: the caller tries again after [`HELD_PAUSE`].
    Starved,
    /// The channel is over, for this reason.
    Ended(String),
}

/// One channel at the subscriber.
pub(crate) struct Inbound {
    pub channel: Arc<Channel>,
    pub subscriber_port: Arc<dyn Deliver>,
    source: Source,
    accept: Accept,
    max_message: usize,
    flow: u32,
    received_ns: u64,
}

/// The agreement of the handshake for the receiving end.
pub(crate) struct Agreed {
    pub flow: u32,
    /// The publisher retransmits lost messages.
    pub reliable: Option<ReceiverSettings>,
    /// Bytes after which a receipt goes to the publisher; `None`: it gets none.
    pub receipts: Option<u32>,
    pub max_message: usize,
    pub stream: bool,
    /// Deliver only samples after this one (0: all).
    pub resume_after: u64,
}

/// A message whose fragments do not come within this time is given up.
const REASSEMBLY_TIMEOUT_NS: u64 = 500_000_000;
/// Room for any datagram.
const DATAGRAM: usize = 65_536;

impl Inbound {
    pub(crate) fn new(
        channel: Arc<Channel>,
        subscriber_port: Arc<dyn Deliver>,
        mut half: Box<dyn ReceiveHalf>,
        agreed: Agreed,
    ) -> Self {
        let framing = if agreed.stream {
            let parser = StreamParser::new(agreed.max_message, Some(agreed.flow));
            Framing::Stream(Stream::new(parser, channel.account.clone()))
        } else {
            let (reassembly, receiver) = reliable::parts(&agreed, channel.account.clone());
            Framing::Datagrams { buffer: vec![0; DATAGRAM], joins: half.join(), reassembly, receiver }
        };
        Self::with(channel, subscriber_port, Source::Half(half, framing), &agreed)
    }

    /// A channel whose samples are read in the publisher's memory.
    pub(crate) fn shared(
        channel: Arc<Channel>,
        subscriber_port: Arc<dyn Deliver>,
        ring: RingReceive,
        agreed: &Agreed,
    ) -> Self {
        Self::with(channel, subscriber_port, Source::Ring(ring), agreed)
    }

    fn with(channel: Arc<Channel>, subscriber_port: Arc<dyn Deliver>, source: Source, agreed: &Agreed) -> Self {
        let mut inbound = Self {
            channel,
            subscriber_port,
            source,
            accept: Accept::new(agreed.reliable.as_ref().map(|reliable| reliable.first), true),
            max_message: agreed.max_message,
            flow: agreed.flow,
            received_ns: 0,
        };
        inbound.resume_after(agreed.resume_after);
        inbound
    }

    /// Samples up to this one are not delivered: an earlier channel delivered them.
    pub(crate) fn resume_after(&mut self, sample: u64) {
        if sample > 0 {
            self.accept.resume_after(sample);
        }
    }

    /// `true` if no more samples will come: this side cut the channel, or it is closed and its carrier is no stream, which would end.
    pub(crate) fn is_over(&self) -> bool {
        self.channel.is_cut() || (self.channel.is_closed() && !self.is_stream())
    }

    /// Becomes readable when a step would do something.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Half(half, _) => half.descriptor(),
            Source::Ring(_) => None,
        }
    }

    /// Time at which bytes of a carrier's half were last received, by the monotonic clock.
    pub(crate) fn received_ns(&self) -> u64 {
        self.received_ns
    }

    /// Makes the thread that serves this channel alone wait without end, where the carrier allows.
    pub(crate) fn wait_without_end(&mut self) {
        let interrupt = match &mut self.source {
            Source::Half(half, _) => half.wait_without_end(),
            Source::Ring(ring) => Some(ring.wait_without_end()),
        };
        if let Some(interrupt) = interrupt {
            self.channel.waits_without_end(interrupt);
        }
    }

    /// As [`Inbound::step`], waiting at most `timeout`, which is less than a tick.
    pub(crate) fn step_within(&mut self, timeout: Duration) -> Step {
        let timeout = self.until_timer().map_or(timeout, |left| left.min(timeout));
        match &mut self.source {
            Source::Ring(ring) => ring.wait_within(timeout),
            Source::Half(half, _) => match half.descriptor() {
                Some(fd) => drop(linux::poll::wait_readable(fd, Some(timeout))),
                None => std::thread::sleep(timeout.min(HELD_PAUSE)),
            },
        }
        let step = self.step(false);
        if step == Step::Starved {
            std::thread::sleep(timeout.min(HELD_PAUSE));
        }
        step
    }

    /// Receives once (waiting up to the tick if `wait`, for memory [`HELD_PAUSE`]) and delivers every sample that is complete.
    pub(crate) fn step(&mut self, wait: bool) -> Step {
        if self.channel.is_cut() {
            return Step::Ended("closed".to_owned());
        }
        let wait = wait && !self.waits_for_timer();
        let received = match &mut self.source {
            Source::Half(half, Framing::Stream(stream)) => match stream.pay(linux::clock::monotonic_ns) {
                Ok(()) => half.receive(stream.parser.space(), wait),
                Err(Unpaid::GivenUp(why)) => return Step::Ended(why),
                Err(Unpaid::Waits) if self.is_over() => return Step::Ended("closed".to_owned()),
                Err(Unpaid::Waits) => {
                    if wait {
                        std::thread::sleep(HELD_PAUSE);
                    }
                    return Step::Starved;
                }
            },
            Source::Half(half, Framing::Datagrams { buffer, .. }) => half.receive(buffer, wait),
            Source::Ring(_) => return self.step_ring(wait),
        };
        match received {
            Ok(count) => self.received(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if let Some(delivered) = self.tick() {
                    return Step::Delivered(delivered);
                }
                if self.is_over() { Step::Ended("closed".to_owned()) } else { Step::Nothing }
            }
            // A datagram socket reports that the peer's socket is gone: only the end of the handshake's stream is certain.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !self.is_stream() => Step::Nothing,
            Err(error) => Step::Ended(error.to_string()),
        }
    }

    fn is_stream(&self) -> bool {
        matches!(self.source, Source::Half(_, Framing::Stream(_)))
    }

    fn received(&mut self, count: usize) -> Step {
        trace::step(trace::Step::Receive);
        let now = linux::clock::monotonic_ns();
        self.received_ns = now;
        if self.is_stream() { self.received_bytes(count, now) } else { self.received_datagrams(count, now) }
    }

    /// One datagram, or several that came together: all are acknowledged at once.
    fn received_datagrams(&mut self, count: usize, now: u64) -> Step {
        let Source::Half(_, Framing::Datagrams { buffer, joins, .. }) = &self.source else { return Step::Nothing };
        let segment = if *joins { segment(buffer, count) } else { count };
        let mut all = Step::Nothing;
        for at in datagrams(count, segment) {
            all = match (self.received_datagram(at, now), all) {
                (Step::Delivered(more), Step::Delivered(before)) => Step::Delivered(before + more),
                (Step::Nothing, before) => before,
                (step @ Step::Delivered(_), _) => step,
                (ended, _) => return ended,
            };
        }
        self.say(now);
        all
    }

    fn received_bytes(&mut self, count: usize, now: u64) -> Step {
        let Self {
            source: Source::Half(_, Framing::Stream(Stream { parser, .. })),
            accept,
            channel,
            subscriber_port,
            ..
        } = self
        else {
            return Step::Nothing;
        };
        if count == 0 {
            let cut = parser.partial() > 0;
            return Step::Ended(if cut { "cut off within a message" } else { "the peer closed" }.to_owned());
        }
        parser.filled(count);
        let mut end = End { accept, channel, subscriber_port: subscriber_port.as_ref(), received_ns: now, from: None };
        let mut delivered = 0;
        loop {
            match parser.next() {
                Ok(None) => return Step::Delivered(delivered),
                Ok(Some(frame)) if frame.header.kind == Kind::End => {
                    return Step::Ended("the publisher closed".into());
                }
                Ok(Some(frame)) if matches!(frame.header.kind, Kind::KeepAlive | Kind::Acknowledgement) => {}
                Ok(Some(frame)) => {
                    trace::step(trace::Step::Parse);
                    delivered += end.message(&frame.header, parser.payload(frame.range));
                }
                Err(error) => return Step::Ended(format!("protocol violation: {error}")),
            }
        }
    }

    #[inline]
    fn received_datagram(&mut self, at: Range<usize>, now: u64) -> Step {
        if self.is_reliable() {
            return self.received_reliably(at, now);
        }
        let Self {
            source: Source::Half(half, Framing::Datagrams { buffer, reassembly, .. }),
            accept,
            channel,
            subscriber_port,
            ..
        } = self
        else {
            return Step::Nothing;
        };
        let frame = wire::datagram(buffer.get(at).unwrap_or_default(), self.max_message, Some(self.flow));
        let Ok((header, payload)) = frame else {
            // Any sender may have sent this datagram: it is dropped and counted, and the channel continues.
            channel.counters.malformed.fetch_add(1, Relaxed);
            return if channel.is_closed() { Step::Ended("closed".to_owned()) } else { Step::Nothing };
        };
        let from = channel.stages.measures(header.sample).then(|| half.descriptor()).flatten();
        let mut end = End { accept, channel, subscriber_port: subscriber_port.as_ref(), received_ns: now, from };
        match header.kind {
            Kind::Message => {
                trace::step(trace::Step::Parse);
                Step::Delivered(end.message(&header, payload))
            }
            Kind::Fragment | Kind::Parity => match put_together(reassembly, now, &header, payload) {
                Ok(Some(message)) => {
                    trace::step(trace::Step::Parse);
                    Step::Delivered(end.message(&header, message))
                }
                Err(Refused::Inconsistent | Refused::OverBudget) => {
                    channel.counters.malformed.fetch_add(1, Relaxed);
                    Step::Nothing
                }
                _ => Step::Nothing,
            },
            Kind::End => Step::Ended("the publisher closed".into()),
            Kind::KeepAlive | Kind::Acknowledgement => Step::Nothing,
            // Only reliable flows have batches.
            Kind::Batch => {
                channel.counters.malformed.fetch_add(1, Relaxed);
                Step::Nothing
            }
        }
    }
}

/// Takes a part of a message, or a parity piece. Returns the message if it is whole now.
fn put_together<'a>(
    reassembly: &'a mut Reassembly,
    now: u64,
    header: &Header,
    payload: &[u8],
) -> Result<Option<&'a [u8]>, Refused> {
    if header.kind == Kind::Parity {
        let (at, piece) = Parity::parse(payload).map_err(|_| Refused::Inconsistent)?;
        return reassembly.insert_parity(now, header.sample, at, piece);
    }
    let (at, piece) = Fragment::parse(payload).map_err(|_| Refused::Inconsistent)?;
    reassembly.insert(now, header.sample, at, piece)
}
