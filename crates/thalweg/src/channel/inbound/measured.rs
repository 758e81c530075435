//! The stages of a sample at the subscriber.

use crate::channel::{Channel, SampleInfo};
use crate::trace::stages::{self, Arrived, Stage};

/// Notes the stages of a sample of so many bytes that was just delivered; `arrived`: time at which the kernel had its packet.
#[cold]
pub(super) fn note_stages(channel: &Channel, info: &SampleInfo, size: usize, arrived: Option<u64>) {
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
