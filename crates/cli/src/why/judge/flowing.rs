//! Problems of an open channel: silence, drops, losses, and their places.

mod queues;

use super::super::End;
use super::{
    Both, Diagnosis, LOST, MALFORMED, NOT_ARRIVING, OWN_QUEUE, POLICED, Problem, SILENT, TOO_LARGE, UNDECODABLE,
    UNSCALABLE,
};
use qos::{Place, Qos, Queue, Reliability};
use std::time::Duration;
use thalweg::ChannelReport;
use thalweg::Event;
use thalweg::admin::explain::{Explanation, SubscriberState};
use thalweg::carrier;
use thalweg::proxy::Provenance;

/// A counter at the first and at the last look.
#[derive(Clone, Copy)]
struct Count {
    now: u64,
    grew: u64,
}

impl Count {
    fn of(looks: &(ChannelReport, ChannelReport), value: fn(&ChannelReport) -> u64) -> Self {
        let (first, last) = (value(&looks.0), value(&looks.1));
        Self { now: last, grew: last.saturating_sub(first) }
    }

    /// `true` if the counter grows now, or exceeds one in a hundred of all.
    fn matters(self, all: u64) -> bool {
        self.grew > 0 || (self.now > 0 && self.now.saturating_mul(100) >= all)
    }

    fn said(self, watched: Duration) -> String {
        match self.grew {
            0 => format!("{} in all, none within the last {} ms", self.now, watched.as_millis()),
            grew => format!("{} in all, {grew} within the last {} ms", self.now, watched.as_millis()),
        }
    }
}

/// Counters of the channel at both ends.
struct Seen {
    sent: Count,
    refused: Count,
    too_large: Count,
    policed: Count,
    received: Count,
    lost: Count,
    malformed: Count,
    dropped: Count,
    undecodable: u64,
    unscalable: Count,
    /// The subscriber's answers to retransmissions and keep-alives that reached the publisher.
    acknowledged: Count,
    waiting: u64,
    /// Samples waited at the publisher at the first look and at the last.
    stuck: bool,
    busy: bool,
    /// The subscriber's queue blocks, and was full at each look.
    holds_up: bool,
    /// Share of the time that the receiving thread waited for a processor, in percent.
    starved: u64,
}

/// Judges the channel's counters, and returns its rate.
pub(super) fn judge(both: &Both<'_>, watched: Duration, found: &mut Diagnosis) -> String {
    let (Some(out), Some(taken)) = (&both.sent.channel, &both.received.channel) else { return String::new() };
    let states: Vec<&SubscriberState> =
        both.received.looks.iter().filter_map(|look| look.subscriber.as_ref()).collect();
    let dropped = |state: Option<&&SubscriberState>| state.map_or(0, |state| state.dropped);
    let seen = Seen {
        sent: Count::of(out, |r| r.samples),
        refused: Count::of(out, |r| r.lost.saturating_sub(r.too_large + r.policed + r.over_bytes + r.over_memory)),
        too_large: Count::of(out, |r| r.too_large),
        policed: Count::of(out, |r| r.policed),
        received: Count::of(taken, |r| r.samples),
        lost: Count::of(taken, ChannelReport::lost_on_the_way),
        malformed: Count::of(taken, |r| r.malformed),
        dropped: Count {
            now: dropped(states.last()),
            grew: dropped(states.last()).saturating_sub(dropped(states.first())),
        },
        unscalable: Count::of(out, |r| r.unscalable),
        undecodable: states.last().map_or(0, |state| state.undecodable),
        acknowledged: Count::of(out, |r| r.acknowledgements),
        waiting: out.1.waiting,
        stuck: out.0.waiting > 0 && out.1.waiting > 0,
        starved: percent(both.received.starved_ns, watched),
        busy: each_time(both, in_callback),
        holds_up: blocks(&both.subscriber.port.qos)
            && (each_time(both, |look| is_full(look, &both.subscriber.port.qos)) || queues::is_full(taken)),
    };
    let rate = |count: Count| match watched.as_secs_f64() {
        0.0 => String::new(),
        seconds => format!(" ({:.0}/s)", count.grew as f64 / seconds),
    };
    let Seen { sent, received, lost, .. } = &seen;
    if let Some(proxied) = &taken.1.proxied {
        let Provenance { from, node, .. } = proxied.provenance;
        found.line("proxy", format!("{proxied} (node {node}), from sample {from} on"));
    }
    found.line("sent", format!("{}{}, {} wait", sent.now, rate(*sent), seen.waiting));
    found.line("received", format!("{}{}, lost {}", received.now, rate(*received), lost.now));
    if taken.1.acknowledgements > 0 || out.1.repaired > 0 {
        let (acknowledged, repeated) = (out.1.acknowledgements, out.1.repaired);
        let (came, skipped) = (taken.1.repaired, taken.1.skipped);
        let text = format!(
            "{repeated} datagrams repeated, {came} samples came by that, {skipped} given up, {acknowledged} acknowledgements"
        );
        found.line("repaired", text);
    }
    if seen.starved > 0 {
        found.line("processor", format!("the receiving thread waited for one {} % of the time", seen.starved));
    }
    queues::of_kernel(both, found);
    slow_callbacks(both, found);
    late_instances(both, found);
    monitors(both).for_each(|monitor| found.line("monitor", monitor));
    found.problem(problems(both, &seen, &out.1.carrier, watched));
    match sent.grew {
        0 => format!("{} samples so far, none within the last {} ms", sent.now, watched.as_millis()),
        grew => format!("{:.0} samples/s", grew as f64 / watched.as_secs_f64().max(0.001)),
    }
}

fn percent(part_ns: Option<u64>, of: Duration) -> u64 {
    let of = u64::try_from(of.as_nanos()).unwrap_or(u64::MAX).max(1);
    part_ns.unwrap_or(0).saturating_mul(100) / of
}

/// Slow callbacks that the subscriber's node reported.
fn slow_callbacks(both: &Both<'_>, found: &mut Diagnosis) {
    let events = both.received.looks.last().map_or(&[][..], |look| &look.events[..]);
    let last = events.iter().rev().find(|event| matches!(event, Event::SlowCallback { .. }));
    last.into_iter().for_each(|event| found.line("callback", event.to_string()));
}

/// Instances that missed their deadlines: those with the most misses at the subscriber, the last reported one at the
/// publisher.
fn late_instances(both: &Both<'_>, found: &mut Diagnosis) {
    let s = &both.subscriber.port.name;
    let state = both.received.looks.last().and_then(|look| look.subscriber.as_ref());
    for late in state.map_or(&[][..], |state| &state.late[..]) {
        found.line("deadline", format!("{s} missed {} deadlines of instance {}", late.deadlines_missed, late.key));
    }
    let p = &both.publisher.port.name;
    let events = both.sent.looks.last().map_or(&[][..], |look| &look.events[..]);
    let of = |event: &&Event| matches!(event, Event::DeadlineMissed { port, instance: Some(_), .. } if port == p);
    events.iter().rev().find(of).into_iter().for_each(|event| found.line("deadline", event.to_string()));
}

fn monitors<'a>(both: &Both<'a>) -> impl Iterator<Item = &'a String> {
    [both.sent, both.received].into_iter().filter_map(|said| said.looks.last()).flat_map(|look| &look.monitors)
}

/// `true` if `held` is true of each look at the subscriber's node.
fn each_time(both: &Both<'_>, held: impl Fn(&Explanation) -> bool) -> bool {
    both.received.looks.len() > 1 && both.received.looks.iter().all(held)
}

fn blocks(asked: &Qos) -> bool {
    matches!(asked.queue, Queue::Block { .. })
}

fn is_full(look: &Explanation, asked: &Qos) -> bool {
    let limit = asked.queue.limit().min(asked.limits.samples.unwrap_or(u32::MAX));
    look.subscriber.as_ref().is_some_and(|state| state.waiting >= u64::from(limit))
}

fn in_callback(look: &Explanation) -> bool {
    look.subscriber.as_ref().is_some_and(|state| state.in_callback != 0)
}

fn problems(both: &Both<'_>, seen: &Seen, carrier: &carrier::Name, watched: Duration) -> Vec<Problem> {
    let datagrams = carrier.is_lossy();
    let sizes = too_large(both, seen);
    let slow = queues::slow_callback(both, seen, datagrams).or_else(|| queues::held_up(both, seen, datagrams));
    let slow = slow.or_else(|| queues::starved(both, seen, datagrams));
    let own = own_queue(both, watched);
    let found = [
        sizes,
        policed(both, seen, watched),
        own.clone(),
        slow.clone(),
        // Before its consequences: queues are full in front of a path that lets no packet through.
        not_arriving(both, seen, datagrams, watched).filter(|_| slow.is_none()),
        queues::over_bytes(both, watched),
        queues::over_memory(both, watched),
        queues::queue_full(both, seen, carrier, watched).filter(|_| slow.is_none()),
        queues::not_taken(both, seen, watched).filter(|_| !seen.holds_up && !queues::binds_at(both.received)),
        undecodable(both, seen),
        unscalable(both, seen, watched),
        silent(both, seen),
        lost(both, seen, carrier, watched).filter(|_| datagrams && slow.is_none() && own.is_none()),
        malformed(both, seen),
        queues::control(both, watched),
    ];
    found.into_iter().flatten().collect()
}

fn too_large(both: &Both<'_>, seen: &Seen) -> Option<Problem> {
    let (p, s) = (&both.publisher.port, &both.subscriber.port);
    let what = format!(
        "{} messages of {} were larger than {} takes (max_message {} bytes)",
        seen.too_large.now, p.name, s.name, s.qos.max_message
    );
    let remedy = format!("raise max_message of {} (the publisher allows {} bytes)", s.name, p.qos.max_message);
    seen.too_large.matters(seen.sent.now + seen.too_large.now).then(|| TOO_LARGE.found(what, remedy))
}

fn policed(both: &Both<'_>, seen: &Seen, watched: Duration) -> Option<Problem> {
    let (p, s) = (&both.publisher.port.name, &both.subscriber.port.name);
    let what = format!("samples of {p} are beyond its contract, and are refused: {}", seen.policed.said(watched));
    let remedy = format!(
        "thalweg get {p} {s} shows what it may send: publish no more, or plan anew with its real size, rate, burst and jitter"
    );
    (seen.policed.grew > 0).then(|| POLICED.found(what, remedy))
}

/// The kernel's queue for this channel alone overflows: its rate is the contract's, so the publisher sends more.
fn own_queue(both: &Both<'_>, watched: Duration) -> Option<Problem> {
    let (first, last) = both.sent.own_queue?;
    let (p, s) = (&both.publisher.port.name, &both.subscriber.port.name);
    let grew = queues::dropped(first, last);
    let what = format!(
        "{p} sends more than the own queue of its channel lets pass: {grew} packets were dropped there within {} ms, {} since it was made",
        watched.as_millis(),
        last.drops
    );
    let remedy = format!(
        "thalweg get {p} {s} shows the queue: publish no more than the contract says, or plan anew with its real size, rate, burst and jitter"
    );
    (grew > 0).then(|| OWN_QUEUE.found(what, remedy))
}

fn undecodable(both: &Both<'_>, seen: &Seen) -> Option<Problem> {
    let what = format!(
        "{} samples at {} were no value of its type {}",
        seen.undecodable, both.subscriber.port.name, both.subscriber.port.message.name
    );
    let remedy = "build both programs from the same definition of the type";
    (seen.undecodable > 0).then(|| UNDECODABLE.found(what, remedy))
}

fn unscalable(both: &Both<'_>, seen: &Seen, watched: Duration) -> Option<Problem> {
    let (p, s) = (&both.publisher.port.name, &both.subscriber.port.name);
    let events = both.sent.looks.last().map_or(&[][..], |look| &look.events[..]);
    let first = events.iter().find_map(|event| match event {
        Event::Undecodable { subscriber, problem } if subscriber != s => Some(format!("; the first: {problem}")),
        _ => None,
    });
    let what = format!(
        "samples of {p} cannot be made smaller, and are left out: {}{}",
        seen.unscalable.said(watched),
        first.unwrap_or_default()
    );
    let remedy =
        format!("publish what can be scaled (docs/proxies.md), or take it whole: thalweg set {p} {s} picture=default");
    (seen.unscalable.now > 0).then(|| UNSCALABLE.found(what, remedy))
}

fn silent(both: &Both<'_>, seen: &Seen) -> Option<Problem> {
    let (p, End { node, .. }) = (&both.publisher.port.name, both.publisher);
    let left_out = seen.unscalable.now > 0;
    let nothing = !left_out
        && [seen.sent, seen.refused, seen.too_large, seen.policed, seen.received].iter().all(|one| one.now == 0);
    let monitor = both.sent.looks.last().and_then(|look| look.monitors.first());
    nothing.then(|| match monitor {
        Some(monitor) => {
            let what = format!("the channel is open, but nothing passed the monitor of {monitor}");
            SILENT.found(what, format!("thalweg admin {p} 'dtch out', or publish more"))
        }
        None => {
            let what = format!("the channel is open, but {p} has published nothing since");
            let remedy = format!("see what its process does: node {}, process {}", node.name, node.pid);
            SILENT.found(what, remedy)
        }
    })
}

/// One end sends and the other does not receive, since the beginning or at present. One sample may fall between the
/// two looks.
fn not_arriving(both: &Both<'_>, seen: &Seen, datagrams: bool, watched: Duration) -> Option<Problem> {
    let (p, s) = (&both.publisher.port.name, &both.subscriber.port.name);
    let here =
        |(_, now): &(ChannelReport, ChannelReport)| now.proxied.as_ref().is_some_and(|p| p.place == Place::Subscriber);
    let left_out = both.received.channel.as_ref().is_some_and(here);
    let leaves = seen.sent.now > seen.waiting && seen.sent.grew > u64::from(seen.received.now > 0);
    let none = seen.received.grew == 0 && (leaves || seen.stuck) && !left_out && !seen.busy;
    let what = match (seen.received.now, leaves) {
        (0, true) => format!("{} samples were sent, and none reached {s}", seen.sent.now),
        (before, true) => format!(
            "{p} sends, and {s} receives nothing any more: {} samples left within the last {} ms, and none came after the first {before}",
            seen.sent.grew,
            watched.as_millis()
        ),
        (_, false) => format!(
            "{} samples wait at {p}, and {s} received nothing within the last {} ms",
            seen.waiting,
            watched.as_millis()
        ),
    };
    none.then(|| NOT_ARRIVING.found(what, unheard(both, seen, datagrams)))
}

/// The end to examine if no sample arrives.
fn unheard(both: &Both<'_>, seen: &Seen, datagrams: bool) -> String {
    let (p, s) = (&both.publisher.port.name, &both.subscriber.port.name);
    match datagrams {
        true if seen.acknowledged.grew > 0 => format!(
            "{s} answers {p}, so small datagrams come through: is the MTU the same all along the way? else start its process anew, and report it with --capture FILE.pcap"
        ),
        true => format!(
            "nothing comes through to {s}: is udp let through (firewall), is the MTU the same all along the way, is its interface up, do switches pass the group on? or use tcp"
        ),
        false => format!("see whether the process of {s} gets a processor (top -H), and whether its link is up"),
    }
}

fn lost(both: &Both<'_>, seen: &Seen, carrier: &carrier::Name, watched: Duration) -> Option<Problem> {
    let (p, s) = (&both.publisher.port.name, &both.subscriber.port.name);
    let reliable =
        [both.publisher, both.subscriber].iter().all(|end| end.port.qos.reliability == Reliability::Reliable);
    let (how, remedy) = match reliable {
        true => (
            "given up",
            "a queue that keeps the last gives up what an outage or a slow link leaves no room for, and a connection that ended took its \
             queue along: keep more (--policy queue=\"block 1000 1s\"), or make both transient-local",
        ),
        false => (
            "lost on the way",
            "see `thalweg doctor` at both hosts (receive buffers, dropped packets), raise the class, or ask for reliable",
        ),
    };
    let what = format!("samples are {how} from {p} to {s} over {carrier}: {}", seen.lost.said(watched));
    seen.lost.matters(seen.received.now).then(|| LOST.found(what, remedy))
}

fn malformed(both: &Both<'_>, seen: &Seen) -> Option<Problem> {
    let s = &both.subscriber.port.name;
    let what = format!("{} datagrams that are no frame of the channel came to {s}", seen.malformed.now);
    let remedy = "something else sends to its port: see who, with --capture FILE.pcap";
    seen.malformed.matters(seen.received.now).then(|| MALFORMED.found(what, remedy))
}
