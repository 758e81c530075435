//! Delays by the closed forms of the papers.

use super::paths::{Path, transmission};
use crate::analysis::queueing::{Hop, Mm1, Mm1k, TwoState, Velox, hop_delay, network_delay};
use crate::plan::{Model, Term};
use crate::system::System;

/// A model's delay of a channel.
#[derive(Default)]
pub(super) struct Delay {
    /// µs; `None`: it grows without limit, or the model gives none.
    pub us: Option<f64>,
    /// `true`: a mean, not the latest.
    pub mean: bool,
    pub terms: Vec<Term>,
    /// Results of another reading.
    pub also: Vec<Term>,
    /// The part of samples that is lost.
    pub loss: Option<f64>,
    /// Waiting and processing.
    pub occupancy: Option<[f64; 2]>,
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// P-20 and P-21.
pub(super) fn paper_hop(system: &System, path: &Path) -> Delay {
    let (period, scaled) = (path.topic.period, path.scaled_period());
    let each = |(at, hop): (usize, &super::paths::Hop)| {
        let from = &system.nodes[hop.direction.ends(system)[0]].name;
        let (time, which) = if at < path.before { (period, "T") } else { (scaled, "T'") };
        let because = format!("{from} may hold a sample for one period {which} before it sends it on (P-21)");
        Term::new(format!("hop {} at {from}", at + 1), micros(time), because)
    };
    let terms = path.hops.iter().enumerate().map(each).collect();
    let (before, after) = (path.before as u32, (path.hops.len() - path.before) as u32);
    let us = hop_delay(before, after, period, scaled) as f64 / 1e3;
    Delay { us: Some(us), terms, ..Delay::default() }
}

/// Velox's delay by one of its readings.
pub(super) fn velox(system: &System, path: &Path, model: Model) -> Delay {
    let network = network(system, path);
    let parts = Velox {
        hand_in: micros(path.topic.hand_in),
        hand_out: micros(path.topic.hand_out),
        network: network.us,
        interval: 1e6 / path.topic.rate,
        service: micros(path.topic.service),
    };
    let mut delay = match model {
        Model::VeloxTable2 => table2(&parts),
        Model::VeloxEq4Literal => eq4_literal(&parts),
        _ => queued(system, path, model, &parts),
    };
    let (hand_in, hand_out) = ("T_appmid, measured (V-11)", "T_midapp, measured (V-11)");
    delay.mean = true;
    delay.terms.splice(0..0, [Term::new("hand in", parts.hand_in, hand_in), network]);
    delay.terms.push(Term::new("hand out", parts.hand_out, hand_out));
    let node = publishing(system, path.publisher);
    if node.service > 0.0 {
        let chain = TwoState { to_processing: node.arrivals, to_waiting: 1.0 / node.service };
        delay.occupancy = Some(chain.occupancy());
    }
    delay
}

/// Eq. 6, with the parts of each hop.
fn network(system: &System, path: &Path) -> Term {
    let hop = |hop: &super::paths::Hop| {
        let link = &system.links[hop.direction.link];
        Hop {
            forwarding: micros(link.forwarding),
            propagation: micros(link.delay),
            transmission: transmission(system, hop) / 1e3,
        }
    };
    let hops: Vec<Hop> = path.hops.iter().map(hop).collect();
    let packets = path.packets(system);
    let part = |(at, hop): (usize, &Hop)| {
        let forwarding = if at == 0 { 0.0 } else { hop.forwarding };
        let because = format!("L {} + T {:.2} + P {forwarding}", hop.propagation, hop.transmission);
        let link = &system.links[path.hops[at].direction.link];
        Term::new(format!("link {}", link.name), hop.propagation + hop.transmission + forwarding, because)
    };
    let mut parts: Vec<Term> = hops.iter().enumerate().map(part).collect();
    if packets > 1 {
        let slowest = hops.iter().map(|hop| hop.transmission).fold(0.0, f64::max);
        let more = packets - 1;
        parts.push(Term::new("further packets", more as f64 * slowest, format!("{more} on the slowest link")));
    }
    let because = "M·L + N·T + (M−1)·T + (M−1)·P (eq. 6, V-23)".to_owned();
    Term { name: "network".to_owned(), us: network_delay(&hops, packets), because, parts }
}

fn table2(parts: &Velox) -> Delay {
    let terms = vec![
        Term::new("interval", parts.interval, "T_pub + T_sub = 1/λ (V-31), although a queue's wait is not 1/λ (E-V3)"),
        Term::new("service", parts.service, "P + P1 = 1/μ (V-31)"),
    ];
    let also = vec![Term::new("as eq. 4 is printed", parts.eq4_literal(), "1/λ and 1/μ at both ends (E-V4)")];
    Delay { us: Some(parts.table2()), terms, also, ..Delay::default() }
}

fn eq4_literal(parts: &Velox) -> Delay {
    let both = |what: &str, us| {
        let end = |end| Term::new(format!("{what} at the {end}"), us, "eq. 4 as printed (V-21, E-V4)");
        [end("publisher"), end("subscriber")]
    };
    let terms = both("interval", parts.interval).into_iter().chain(both("service", parts.service)).collect();
    let also = vec![Term::new("as Table 2 is computed", parts.table2(), "1/λ and 1/μ once (E-V4)")];
    Delay { us: Some(parts.eq4_literal()), terms, also, ..Delay::default() }
}

/// The delay with queues instead of 1/λ and 1/μ: with the publisher's, and beside it with the subscriber's, too.
fn queued(system: &System, path: &Path, model: Model, parts: &Velox) -> Delay {
    let own = micros(path.topic.service);
    let (here, there) = (publishing(system, path.publisher), receiving(system, path.subscriber.node));
    let limited = |queue| path.topic.buffer.filter(|_| model == Model::Mm1k).map(|room| Mm1k { queue, room });
    // All messages together cause the waiting; the service is the channel's own.
    let sojourn = |queue: Mm1| match limited(queue) {
        Some(limited) => Some((limited.sojourn() - queue.service) * 1e6 + own),
        None => queue.wait().map(|wait| wait * 1e6 + own),
    };
    let kind = limited(here).map_or("M/M/1".to_owned(), |queue| format!("M/M/1/{}", queue.room));
    let (arrivals, busy) = (here.arrivals, here.utilisation());
    let because = format!("{kind} of all that the node publishes: λ = {arrivals:.0}/s, ρ = {busy:.3} (V-10, V-22)");
    let loss = limited(here).map(Mm1k::loss);
    let Some(one) = sojourn(here) else {
        let also = vec![Term::new("queue at the publisher", 0.0, format!("{because}: it grows without limit"))];
        return Delay { also, ..Delay::default() };
    };
    let with_both = |other| {
        let because = "the whole delay, if both ends queue (V-33)";
        Term::new("with a queue at the subscriber, too", parts.with_queues(one, 1) + other, because)
    };
    Delay {
        us: Some(parts.with_queues(one, 1)),
        terms: vec![Term::new("queue at the publisher", one, because)],
        also: sojourn(there).map(with_both).into_iter().collect(),
        loss,
        ..Delay::default()
    }
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
