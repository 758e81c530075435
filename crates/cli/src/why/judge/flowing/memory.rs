//! Limits in bytes that are reached: of a queue, of one peer, or of the whole node.

use super::super::super::evidence::{End, Said};
use super::super::super::problem::{self, Problem};
use super::super::Both;
use super::Count;
use crate::output::bytes;
use std::time::Duration;
use thalweg::ChannelReport;
use thalweg::admin::MemoryReport;

/// `true` if a limit in bytes is reached at this end.
pub(super) fn binds_at(said: &Said) -> bool {
    said.channel.as_ref().is_some_and(|looks| Count::of(looks, |r| r.over_bytes + r.over_memory).grew > 0)
}

/// `true` if there was no room for one more sample of average size, at both looks.
pub(super) fn is_full((first, last): &(ChannelReport, ChannelReport)) -> bool {
    let full = |r: &ChannelReport| {
        let usual = r.bytes.checked_div(r.samples).unwrap_or(0);
        r.most_bytes > 0 && r.waiting_bytes > 0 && r.waiting_bytes.saturating_add(usual) > r.most_bytes
    };
    full(first) && full(last)
}

/// The queue of either end has reached its limit in bytes.
pub(super) fn over_bytes(both: &Both<'_>, watched: Duration) -> Option<Problem> {
    let (publisher, subscriber) = (&both.publisher.port.name, &both.subscriber.port.name);
    let at = |said: &Said, text: &dyn Fn(&str, &ChannelReport) -> String, port: &str| {
        let looks = said.channel.as_ref()?;
        let count = Count::of(looks, |r| r.over_bytes);
        let what = text(&count.said(watched), &looks.1);
        let remedy = format!(
            "publish less, take more often, or give {port} more: --policy bytes=SIZE (now {} B)",
            looks.1.most_bytes
        );
        count.matters(looks.1.samples).then(|| problem::OVER_BYTES.found(what, remedy))
    };
    let sent = |count: &str, last: &ChannelReport| {
        let (waits, most) = (bytes(last.waiting_bytes as f64), bytes(last.most_bytes as f64));
        format!("{publisher} drops samples for {subscriber} by their bytes: {count}; {waits} wait, {most} may")
    };
    let kept = |count: &str, last: &ChannelReport| {
        let (waits, most) = (bytes(last.waiting_bytes as f64), bytes(last.most_bytes as f64));
        format!(
            "{subscriber} does not take samples as fast as they come: by their bytes {count} found no room; {waits} wait, {most} may"
        )
    };
    at(both.sent, &sent, publisher).or_else(|| at(both.received, &kept, subscriber))
}

/// A node has reached its limit in bytes.
pub(super) fn over_memory(both: &Both<'_>, watched: Duration) -> Option<Problem> {
    let (p, s) = (&both.publisher.port.name, &both.subscriber.port.name);
    let at = |end: &End, said: &Said| {
        let looks = said.channel.as_ref()?;
        let count = Count::of(looks, |r| r.over_memory);
        let held = said.memory.as_ref().map_or(String::new(), held);
        let what =
            format!("node {} has no memory for samples from {p} to {s}: {}{held}", end.node.name, count.said(watched));
        let remedy = "see who holds it: thalweg info NODE; take more often there, lower `bytes` of its queues, or raise Settings::memory";
        count.matters(looks.1.samples).then(|| problem::OVER_MEMORY.found(what, remedy))
    };
    at(both.publisher, both.sent).or_else(|| at(both.subscriber, both.received))
}

fn held(memory: &MemoryReport) -> String {
    let first = memory.peers.first().map_or(String::new(), |peer| {
        format!(", most of it for {}: {} of {}", peer.peer, bytes(peer.used as f64), bytes(peer.limit as f64))
    });
    format!("; it holds {} of {}{first}", bytes(memory.used as f64), bytes(memory.limit as f64))
}
