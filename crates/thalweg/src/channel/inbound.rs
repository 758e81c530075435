//! A receive half with its parser: what one channel needs on the thread that serves it (steps 7 to 10 of the data path).
//!
//! Owned by exactly one thread; moving it is sending it, so nothing is lost or reordered when a channel changes threads.

use super::accept::Accept;
use super::fragment::Reassembly;
use crate::carrier::ReceiveHalf;
use crate::port::{AnyInlet, Channel, Delivery, Payload, SampleInfo};
use crate::wire::{self, Fragment, Header, Kind, StreamParser};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// How a half's bytes become frames.
enum Framing {
    /// Frames follow each other.
    Stream(StreamParser),
    /// One frame per datagram; large messages come in fragments.
    Datagrams { buffer: Vec<u8>, reassembly: Reassembly },
}

/// What one step did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// This many samples were delivered.
    Delivered(u32),
    /// Nothing came (yet).
    Nothing,
    /// The channel is over, and why. `true`: the publisher closed in order.
    Ended(String, bool),
}

/// One channel at the subscriber.
pub(crate) struct Inbound {
    pub channel: Arc<Channel>,
    pub inlet: Arc<dyn AnyInlet>,
    half: Box<dyn ReceiveHalf>,
    framing: Framing,
    accept: Accept,
    max_message: usize,
    flow: u32,
    strangers: u64, // datagrams that were no frame of this flow: dropped, counted
}

/// What the handshake agreed for the receiving end.
pub(crate) struct Agreed {
    pub flow: u32,
    pub max_message: usize,
    pub stream: bool,
    /// Deliver only samples after this one (0: all).
    pub resume_after: u64,
    /// Bytes left for unfinished messages of all channels of the node.
    pub budget: Arc<AtomicUsize>,
}

/// A message whose fragments do not come within this time is given up.
const REASSEMBLY_TIMEOUT_NS: u64 = 500_000_000;
/// Room for any datagram.
const DATAGRAM: usize = 65_536;

impl Inbound {
    pub fn new(channel: Arc<Channel>, inlet: Arc<dyn AnyInlet>, half: Box<dyn ReceiveHalf>, agreed: Agreed) -> Self {
        let framing = if agreed.stream {
            Framing::Stream(StreamParser::new(agreed.max_message, Some(agreed.flow)))
        } else {
            let reassembly = Reassembly::new(agreed.max_message, REASSEMBLY_TIMEOUT_NS, agreed.budget);
            Framing::Datagrams { buffer: vec![0; DATAGRAM], reassembly }
        };
        let mut accept = Accept::new(None, true);
        if agreed.resume_after > 0 {
            accept.resume_after(agreed.resume_after);
        }
        let (max_message, flow) = (agreed.max_message, agreed.flow);
        Self { channel, inlet, half, framing, accept, max_message, flow, strangers: 0 }
    }

    /// Becomes readable when a step would do something.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.half.descriptor()
    }

    /// Receives once (waiting up to the tick if `wait`) and delivers every sample that is complete.
    pub fn step(&mut self, wait: bool) -> Step {
        let received = match &mut self.framing {
            Framing::Stream(parser) => self.half.receive(parser.space(), wait),
            Framing::Datagrams { buffer, .. } => self.half.receive(buffer, wait),
        };
        match received {
            Ok(count) => self.received(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if self.channel.is_closed() {
                    Step::Ended("closed".to_owned(), true)
                } else {
                    Step::Nothing
                }
            }
            // A datagram socket reports that the peer's socket is gone: the handshake's stream tells for certain.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !self.is_stream() => Step::Nothing,
            Err(error) => Step::Ended(error.to_string(), false),
        }
    }

    fn is_stream(&self) -> bool {
        matches!(self.framing, Framing::Stream(_))
    }

    fn received(&mut self, count: usize) -> Step {
        let now = linux::clock::monotonic_ns();
        if self.is_stream() { self.received_bytes(count, now) } else { self.received_datagram(count, now) }
    }

    fn received_bytes(&mut self, count: usize, now: u64) -> Step {
        let Self { framing: Framing::Stream(parser), accept, channel, inlet, .. } = self else { return Step::Nothing };
        if count == 0 {
            let cut = parser.partial() > 0;
            return Step::Ended(if cut { "cut off within a message" } else { "the peer closed" }.to_owned(), false);
        }
        parser.filled(count);
        let mut delivered = 0;
        loop {
            match parser.next() {
                Ok(None) => return Step::Delivered(delivered),
                Ok(Some(frame)) if frame.header.kind == Kind::End => {
                    return Step::Ended("the publisher closed".into(), true);
                }
                Ok(Some(frame)) if frame.header.kind == Kind::KeepAlive => {}
                Ok(Some(frame)) => {
                    let message = parser.payload(frame.range);
                    delivered += deliver(accept, channel, inlet.as_ref(), &frame.header, message, now);
                }
                Err(error) => return Step::Ended(format!("protocol violation: {error}"), false),
            }
        }
    }

    fn received_datagram(&mut self, count: usize, now: u64) -> Step {
        let Self { framing: Framing::Datagrams { buffer, reassembly }, accept, channel, inlet, .. } = self else {
            return Step::Nothing;
        };
        let frame = wire::datagram(buffer.get(..count).unwrap_or_default(), self.max_message, Some(self.flow));
        let Ok((header, payload)) = frame else {
            self.strangers += 1; // anybody can send a datagram: it is dropped, the channel goes on
            return if channel.is_closed() { Step::Ended("closed".to_owned(), true) } else { Step::Nothing };
        };
        let inlet = inlet.as_ref();
        match header.kind {
            Kind::Message => Step::Delivered(deliver(accept, channel, inlet, &header, payload, now)),
            Kind::Fragment => {
                let Ok((at, piece)) = Fragment::parse(payload) else { return Step::Nothing };
                match reassembly.insert(now, header.sample, at, piece) {
                    Ok(Some(message)) => Step::Delivered(deliver(accept, channel, inlet, &header, message, now)),
                    _ => Step::Nothing,
                }
            }
            Kind::End => Step::Ended("the publisher closed".into(), true),
            Kind::KeepAlive => Step::Nothing,
        }
    }

    /// Datagrams that were dropped because they were no frame of this flow.
    pub fn strangers(&self) -> u64 {
        self.strangers
    }
}

/// Notes the frame in the channel's account and hands the sample to the port; returns how many were delivered.
fn deliver(
    accept: &mut Accept,
    channel: &Channel,
    inlet: &dyn AnyInlet,
    header: &Header,
    message: &[u8],
    now: u64,
) -> u32 {
    if !accept.frame(header.sequence).is_new() || !accept.sample(header.sample) {
        return 0;
    }
    count(channel, header.sample, message.len(), accept.counters().lost);
    inlet.deliver(Delivery {
        info: info(channel, header.sample, header.stamp_ns, now),
        payload: Payload::Bytes(message),
    });
    1
}

pub(crate) fn info(channel: &Channel, seq: u64, source_ns: u64, received_ns: u64) -> SampleInfo {
    SampleInfo {
        node: channel.publisher.node,
        port: channel.publisher.port,
        incarnation: channel.incarnation,
        seq,
        source_ns,
        received_ns,
        same_clock: channel.same_clock,
    }
}

/// One thread writes a channel's counters: loads and stores, no locked instruction.
pub(crate) fn count(channel: &Channel, seq: u64, size: usize, lost: u64) {
    let counters = &channel.counters;
    counters.samples.store(counters.samples.load(Relaxed) + 1, Relaxed);
    counters.bytes.store(counters.bytes.load(Relaxed) + size as u64, Relaxed);
    counters.last_seq.store(seq, Relaxed);
    counters.lost.store(lost, Relaxed);
}
