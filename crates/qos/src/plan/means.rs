//! Delays by the closed forms of the papers.

use super::ways::{Way, transmission};
use super::{Model, Term};
use crate::analysis::queueing::{Hop, Mm1, Mm1k, TwoState, Velox, hop_delay, network_delay};
use crate::contract::System;

/// What a model says of a channel.
#[derive(Default)]
pub(super) struct Delay {
    /// µs; `None`: it grows without limit.
    pub us: Option<f64>,
    pub terms: Vec<Term>,
    /// The part of samples that is lost.
    pub loss: Option<f64>,
}

fn term(name: impl Into<String>, us: f64, because: impl Into<String>) -> Term {
    Term { name: name.into(), us, because: because.into(), aside: false }
}

fn aside(name: impl Into<String>, us: f64, because: impl Into<String>) -> Term {
    Term { aside: true, ..term(name, us, because) }
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// P-20 and P-21.
pub(super) fn paper_hop(system: &System, way: &Way) -> Delay {
    let (period, scaled) = (way.topic.period, way.scaled_period());
    let each = |(at, hop): (usize, &super::ways::Hop)| {
        let from = &system.nodes[hop.direction.ends(system)[0]].name;
        let (time, which) = if at < way.before { (period, "T") } else { (scaled, "T'") };
        let because = format!("{from} may hold a sample for one period {which} before it sends it on (P-21)");
        term(format!("hop {} at {from}", at + 1), micros(time), because)
    };
    let terms = way.hops.iter().enumerate().map(each).collect();
    let (before, after) = (way.before as u32, (way.hops.len() - way.before) as u32);
    Delay { us: Some(micros(hop_delay(before, after, period, scaled))), terms, loss: None }
}

/// Velox's delay by one of its readings.
pub(super) fn velox(system: &System, way: &Way, model: Model) -> Delay {
    let (network, mut terms) = network(system, way);
    let parts = Velox {
        hand_in: micros(way.topic.hand_in),
        hand_out: micros(way.topic.hand_out),
        network,
        interval: 1e6 / way.topic.rate,
        service: micros(way.topic.service),
    };
    terms.insert(0, term("hand in", parts.hand_in, "T_appmid, measured (V-11)"));
    let delay = match model {
        Model::VeloxTable2 => {
            terms.push(term(
                "interval",
                parts.interval,
                "T_pub + T_sub = 1/λ (V-31); a queue's wait is not 1/λ (E-V3)",
            ));
            terms.push(term("service", parts.service, "P + P1 = 1/μ (V-31)"));
            Delay { us: Some(parts.table2()), ..Delay::default() }
        }
        Model::VeloxEq4Literal => {
            for side in ["publisher", "subscriber"] {
                terms.push(term(format!("interval at the {side}"), parts.interval, "1/λ at both ends (V-21, E-V4)"));
                terms.push(term(format!("service at the {side}"), parts.service, "1/μ at both ends (V-21, E-V4)"));
            }
            Delay { us: Some(parts.eq4_literal()), ..Delay::default() }
        }
        _ => queued(system, way, model, &parts, &mut terms),
    };
    terms.push(term("hand out", parts.hand_out, "T_midapp, measured (V-11)"));
    Delay { terms, ..delay }
}

/// Eq. 6 with a term for each hop.
fn network(system: &System, way: &Way) -> (f64, Vec<Term>) {
    let hop = |hop: &super::ways::Hop| {
        let link = &system.links[hop.direction.link];
        Hop {
            forwarding: micros(link.forwarding),
            propagation: micros(link.delay),
            transmission: transmission(system, hop) / 1e3,
        }
    };
    let hops: Vec<Hop> = way.hops.iter().map(hop).collect();
    let packets = way.packets(system);
    let mut terms = Vec::new();
    for (at, (hop, step)) in hops.iter().zip(&way.hops).enumerate() {
        let forwarding = if at == 0 { 0.0 } else { hop.forwarding };
        let us = hop.propagation + hop.transmission + forwarding;
        let name = format!("link {}", system.links[step.direction.link].name);
        let because = format!("L {} + T {:.2} + P {forwarding} (eq. 6, V-23)", hop.propagation, hop.transmission);
        terms.push(term(unused(&terms, name), us, because));
    }
    if packets > 1 {
        let slowest = hops.iter().map(|hop| hop.transmission).fold(0.0, f64::max);
        let because = format!("{} more packets behind the first, on the slowest link (eq. 6, V-23)", packets - 1);
        terms.push(term("further packets", (packets - 1) as f64 * slowest, because));
    }
    (network_delay(&hops, packets), terms)
}

/// A name that no term has: links may have the same name as something else, but no two terms may.
fn unused(terms: &[Term], name: String) -> String {
    let count = terms.iter().filter(|term| term.name == name).count();
    if count == 0 { name } else { format!("{name} #{}", count + 1) }
}

/// With queues instead of 1/λ and 1/μ: the publisher's in the delay, and beside it what it is with the subscriber's, too.
fn queued(system: &System, way: &Way, model: Model, parts: &Velox, terms: &mut Vec<Term>) -> Delay {
    let own = micros(way.topic.service);
    let (at_publisher, at_subscriber) = (publishing(system, way.publisher), receiving(system, way.subscriber.node));
    let limited = |queue| way.topic.buffer.filter(|_| model == Model::Mm1k).map(|room| Mm1k { queue, room });
    let sojourn = |queue: Mm1| match limited(queue) {
        // What waits is what all messages together cause; what is served is one's own.
        Some(queue) => Some(queue.sojourn() * 1e6 - queue.queue.service * 1e6 + own),
        None => queue.wait().map(|wait| wait * 1e6 + own),
    };
    let chain = TwoState { to_processing: at_publisher.arrivals, to_waiting: 1.0 / at_publisher.service };
    let [waiting, processing] = chain.occupancy();
    let kind = limited(at_publisher).map_or("M/M/1".to_owned(), |queue| format!("M/M/1/{}", queue.room));
    let because = format!(
        "{kind} at the publisher's node: λ = {:.0}/s, ρ = {:.3}, waiting {waiting:.4} and processing {processing:.4} of the time (V-20, V-22)",
        at_publisher.arrivals,
        at_publisher.utilisation()
    );
    let loss = limited(at_publisher).map(Mm1k::loss);
    let Some(one) = sojourn(at_publisher) else {
        terms.push(Term {
            aside: true,
            ..term("queue at the publisher", f64::MAX, because + ": it grows without limit")
        });
        return Delay::default();
    };
    terms.push(term("queue at the publisher", one, because));
    if let Some(other) = sojourn(at_subscriber) {
        let both = parts.with_queues(one, 1) + other;
        terms.push(aside("with a queue at the subscriber, too", both, "the whole delay, if both ends queue (V-33)"));
    }
    Delay { us: Some(parts.with_queues(one, 1)), loss, ..Delay::default() }
}

/// All that a node publishes, as one queue with N writers (V-10).
fn publishing(system: &System, node: usize) -> Mm1 {
    let topics = system.topics.iter().filter(|topic| topic.publishers.contains(&node));
    queue(topics.map(|topic| (topic.rate, topic.service)))
}

/// All that a node's subscribers get.
fn receiving(system: &System, node: usize) -> Mm1 {
    let here = system.subscribers.iter().filter(|subscriber| subscriber.node == node);
    queue(here.map(|subscriber| {
        let topic = &system.topics[subscriber.topic];
        (topic.rate / f64::from(subscriber.scale), topic.service)
    }))
}

fn queue(streams: impl Iterator<Item = (f64, u64)>) -> Mm1 {
    let sum = |(arrivals, work), (rate, service): (f64, u64)| (arrivals + rate, work + rate * service as f64 / 1e9);
    let (arrivals, work): (f64, f64) = streams.fold((0.0, 0.0), sum);
    Mm1 { arrivals, service: if arrivals > 0.0 { work / arrivals } else { 0.0 } }
}
