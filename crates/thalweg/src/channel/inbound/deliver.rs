//! The way of a message after its frame was parsed (steps 9 and 10 of the data path), the same for frames, batches and rings.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

use crate::channel::accept::Accept;
use crate::channel::queue::Label;
use crate::channel::{Channel, Deliver, Delivery, Payload, SampleInfo};
use crate::trace::stages::{self, Arrived, Stage};
use crate::trace::{self, Step};
use crate::wire::{Header, Messages};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Relaxed;

/// The end of a channel, for messages that were received together.
pub(super) struct End<'a> {
    pub accept: &'a mut Accept,
    pub channel: &'a Channel,
    pub subscriber_port: &'a dyn Deliver,
    pub received_ns: u64,
    /// The socket that may know the arrival time of a measured sample's packet.
    pub from: Option<BorrowedFd<'a>>,
}

impl End<'_> {
    /// Takes the message of a frame. Returns the number of delivered samples.
    #[inline]
    pub(super) fn message(&mut self, header: &Header, message: &[u8]) -> u32 {
        u32::from(self.accept.frame(header.sequence).is_new() && self.sample(header, message))
    }

    /// Takes the messages of a batch, which is one frame of its flow.
    pub(super) fn batch(&mut self, header: &Header, messages: Messages<'_>) -> u32 {
        if !self.accept.frame(header.sequence).is_new() {
            return 0;
        }
        let mut delivered = 0;
        for (header, message) in messages {
            trace::step(Step::Parse);
            delivered += u32::from(self.sample(&header, message));
        }
        delivered
    }

    #[inline]
    fn sample(&mut self, header: &Header, message: &[u8]) -> bool {
        let label = Label::of(header);
        if !accepts(self.accept, self.channel, &label, message.len()) {
            return false;
        }
        let arrived = self.from.and_then(linux::socket::arrived_ns);
        let info = info(self.channel, label, self.received_ns);
        deliver(self.channel, self.subscriber_port, info, Payload::Bytes(message), arrived);
        true
    }
}

/// `true` if the sample of a new frame is new, and passes this end's selection. Then it is counted.
#[inline]
pub(super) fn accepts(accept: &mut Accept, channel: &Channel, label: &Label, size: usize) -> bool {
    trace::step(Step::Accept);
    let is_new = if label.historical { accept.historical(label.seq) } else { accept.sample(label.seq) };
    // The channel may be cut within a batch or before it: the next channel brings the samples that this one did not deliver.
    let goes_on = is_new && channel.selection.takes(label.seq) && !channel.is_cut();
    if goes_on {
        count(channel, label, size, accept.counters().lost);
    }
    goes_on
}

/// Delivers a sample through the channel's gate. `arrived`: the time at which the kernel had the packet of a measured one.
#[inline]
pub(super) fn deliver(
    channel: &Channel,
    subscriber_port: &dyn Deliver,
    info: SampleInfo,
    payload: Payload<'_>,
    arrived: Option<u64>,
) {
    let delivery = Delivery { info, payload, account: &channel.account };
    match channel.stages.measures(info.seq) {
        false => channel.gate.deliver(subscriber_port, delivery),
        true => deliver_measured(channel, subscriber_port, delivery, arrived),
    }
}

#[cold]
fn deliver_measured(channel: &Channel, subscriber_port: &dyn Deliver, delivery: Delivery<'_>, arrived: Option<u64>) {
    let (info, size) = (delivery.info, delivery.payload.bytes().len());
    stages::delivering(&channel.stages, || channel.gate.deliver(subscriber_port, delivery));
    let end = linux::clock::monotonic_ns();
    let begun = stages::callback_begun(info.received_ns);
    let mut took = [(Stage::Decode, begun.unwrap_or(end).saturating_sub(info.received_ns)); 5];
    let mut count = 1;
    let mut add = |stage, ns: Option<u64>| {
        if let (Some(ns), Some(place)) = (ns, took.get_mut(count)) {
            (*place, count) = ((stage, ns), count + 1);
        }
    };
    add(Stage::Callback, begun.map(|begun| end.saturating_sub(begun)));
    add(Stage::Receive, arrived.map(|arrived| info.received_ns.saturating_sub(arrived)));
    add(Stage::Transit, info.latency_ns());
    add(Stage::Total, info.latency_ns().map(|_| end.saturating_sub(info.source_ns)));
    let arrived = Arrived { seq: info.seq, size, published_ns: info.source_ns, done_ns: end };
    channel.stages.note_arrived(took.get(..count).unwrap_or_default(), &arrived);
}

/// A sample as its subscriber sees it.
#[inline]
pub(crate) fn info(channel: &Channel, label: Label, received_ns: u64) -> SampleInfo {
    let Label { seq, stamp, change, historical } = label;
    SampleInfo {
        node: channel.publisher.node,
        port: channel.publisher.port,
        incarnation: channel.incarnation,
        seq,
        source_ns: stamp,
        received_ns,
        same_clock: channel.same_clock,
        historical,
        change,
        scaled: channel.provenance(),
    }
}

/// Adds to a counter of the channel. One thread writes them, so loads and stores suffice, without a locked instruction.
#[inline]
fn count(channel: &Channel, label: &Label, size: usize, lost: u64) {
    let counters = &channel.counters;
    let samples = counters.samples.load(Relaxed);
    counters.samples.store(samples + 1, Relaxed);
    if let (0, false, Some(before)) = (samples, label.historical, channel.resumes_after) {
        counters.missed.store(label.seq.saturating_sub(before + 1), Relaxed);
    }
    counters.bytes.store(counters.bytes.load(Relaxed) + size as u64, Relaxed);
    if !label.historical {
        counters.last_seq.store(label.seq, Relaxed);
    }
    counters.lost.store(lost, Relaxed);
}
