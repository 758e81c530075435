//! Queues of a channel that hold up or drop samples: by a receiver that is too slow, or by a limit in samples or bytes; and the kernel's, of the
//! channel's own and of control traffic.

use super::super::super::{End, Said};
use super::super::{
    Both, CONTROL_QUEUE, Diagnosis, NOT_TAKEN, OVER_BYTES, OVER_MEMORY, Problem, QUEUE_FULL, SLOW_CALLBACK, STARVED,
};
use super::{Count, Seen};
use crate::output::bytes;
use linux::queueing::Counters;
use qos::Queue;
use std::time::Duration;
use thalweg::ChannelReport;
use thalweg::admin::MemoryReport;
use thalweg::carrier;

pub(super) fn slow_callback(both: &Both<'_>, seen: &Seen, datagrams: bool) -> Option<Problem> {
    let s = &both.subscriber.port.name;
    let what = format!(
        "the callback of {s} was busy each time it was looked at, and samples {}",
        match seen.refused.grew {
            0 => "wait",
            _ => "are dropped",
        }
    );
    let remedy = "do less in the callback, take samples on a thread of your own, or ask for fewer (sub --every N)";
    (seen.busy && behind(seen, datagrams)).then(|| SLOW_CALLBACK.found(what, remedy))
}

pub(super) fn held_up(both: &Both<'_>, seen: &Seen, datagrams: bool) -> Option<Problem> {
    let s = &both.subscriber.port;
    let what = format!(
        "{} does not take samples as fast as they come: its queue (block {}, {}) was full each time it was looked at, and holds up its channel",
        s.name,
        s.qos.queue.limit(),
        bytes(s.qos.queue_bytes() as f64)
    );
    let remedy = "take more often, or until nothing waits; keep-last gives the latest samples instead of all";
    (seen.holds_up && behind(seen, datagrams)).then(|| NOT_TAKEN.found(what, remedy))
}

pub(super) fn starved(both: &Both<'_>, seen: &Seen, datagrams: bool) -> Option<Problem> {
    let (p, s) = (&both.publisher.port.name, &both.subscriber.port.name);
    let what = format!(
        "the thread that receives for {s} waited for a processor {} % of the time, and samples wait or are dropped",
        seen.starved
    );
    let remedy =
        format!("give it priority: thalweg set {p} {s} sched=fifo:30; or see who takes the processors: top -H");
    (seen.starved >= STARVED_PERCENT && behind(seen, datagrams)).then(|| STARVED.found(what, remedy))
}

pub(super) fn queue_full(both: &Both<'_>, seen: &Seen, carrier: &carrier::Name, watched: Duration) -> Option<Problem> {
    let (p, s) = (&both.publisher.port, &both.subscriber.port.name);
    let queue = match p.qos.queue {
        Queue::KeepLast(n) => format!("keep-last {n} drops the oldest"),
        Queue::KeepAll(n) => format!("keep-all {n} refuses new ones"),
        Queue::Block { limit, up_to_us } => format!("block {limit} refuses new ones after {up_to_us} us"),
    };
    let what = format!("{} drops samples for {s}: {} ({queue})", p.name, seen.refused.said(watched));
    let slower = match carrier.is_within_host() {
        true => "the subscriber takes them more slowly than they are published",
        false => "network or subscriber take them more slowly than they are published",
    };
    let remedy = format!(
        "{slower}: publish less, ask for fewer (sub --every N), or raise the class: thalweg set {} {s} class=high",
        p.name
    );
    seen.refused.matters(seen.sent.now).then(|| QUEUE_FULL.found(what, remedy))
}

pub(super) fn not_taken(both: &Both<'_>, seen: &Seen, watched: Duration) -> Option<Problem> {
    let s = &both.subscriber.port;
    let what = format!(
        "{} does not take samples as fast as they come: {} found its queue ({}) full",
        s.name,
        seen.dropped.said(watched),
        s.qos.queue.limit()
    );
    let remedy = "take more often, or until nothing waits; a longer queue helps with bursts only";
    seen.dropped.matters(seen.received.now).then(|| NOT_TAKEN.found(what, remedy))
}

/// What the kernel's queues of the channel's own and of control traffic have sent and dropped since they were made.
pub(super) fn of_kernel(both: &Both<'_>, found: &mut Diagnosis) {
    for said in [both.sent, both.received] {
        for (about, counted) in [("own queue", said.own_queue), ("control", said.control_queue)] {
            let Some((_, Counters { packets, drops, waiting, .. })) = counted else { continue };
            let device = device(said);
            found.line(about, format!("{packets} packets sent by {device}, {drops} dropped, {waiting} wait"));
        }
    }
}

/// Packets that a queue of the kernel has dropped between two looks. A counter that went back is that of a queue that was made anew.
pub(super) fn dropped(first: Counters, last: Counters) -> u32 {
    last.drops.checked_sub(first.drops).unwrap_or(last.drops)
}

/// The device by which the packets of an end leave.
fn device(said: &Said) -> &str {
    said.settings.as_ref().and_then(|report| report.device.as_deref()).unwrap_or("a device")
}

/// The queue of control traffic overflows at either end's host.
pub(super) fn control(both: &Both<'_>, watched: Duration) -> Option<Problem> {
    let at = |(end, said): (&End, &Said)| {
        let (first, last) = said.control_queue?;
        let grew = dropped(first, last);
        let what = format!(
            "the queue of control traffic before {} of {} is full: {grew} packets were dropped there within {} ms, {} since it was made",
            device(said),
            end.node.host_name,
            watched.as_millis(),
            last.drops
        );
        let remedy = "heartbeats are lost with them, so that relays seem dead: see who sends with the mark CS5 (tcpdump -v), or state a higher \
                      `control` for the link and plan anew";
        (grew > 0).then(|| CONTROL_QUEUE.found(what, remedy))
    };
    [(both.publisher, both.sent), (both.subscriber, both.received)].into_iter().find_map(at)
}

/// Samples are sent faster than they are received.
fn behind(seen: &Seen, datagrams: bool) -> bool {
    seen.refused.grew > 0 || seen.waiting > 0 || (datagrams && seen.lost.grew > 0)
}

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
        count.matters(looks.1.samples).then(|| OVER_BYTES.found(what, remedy))
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
        count.matters(looks.1.samples).then(|| OVER_MEMORY.found(what, remedy))
    };
    at(both.publisher, both.sent).or_else(|| at(both.subscriber, both.received))
}

fn held(memory: &MemoryReport) -> String {
    let first = memory.peers.first().map_or(String::new(), |peer| {
        format!(", most of it for {}: {} of {}", peer.peer, bytes(peer.used as f64), bytes(peer.limit as f64))
    });
    format!("; it holds {} of {}{first}", bytes(memory.used as f64), bytes(memory.limit as f64))
}

/// Share of the time from which on a thread's wait for a processor delays samples.
const STARVED_PERCENT: u64 = 20;
