//! Channels, links, nodes and proxies as a plan shows them.

use super::delay::{Bounds, Delay, Queue};
use super::path::Path;
use crate::Class;
use crate::analysis::end_to_end::Where;
use crate::analysis::stages::Leaf;
use crate::network::Direction;
use crate::placement::{self, Outcome, Placed, Status, Watch};
use crate::plan::{Channel, ControlQueue, Cost, Link, Node, Proxy, Solver, Term};
use crate::system::{self, Scheduler, System};

pub(super) fn channel(system: &System, path: &Path, class: Class, delay: Delay) -> Channel {
    let Delay { us, mean, terms, also, loss, occupancy } = delay;
    let route: Vec<String> = path.hops.iter().map(|hop| Where::Link(hop.direction).name(system)).collect();
    let hops_to_proxy = if path.proxy.is_some() { path.before } else { 0 };
    Channel {
        topic: path.topic.name.clone(),
        publisher: system.nodes[path.publisher].name.clone(),
        subscriber: path.subscriber.name.clone(),
        node: system.nodes[path.subscriber.node].name.clone(),
        class,
        dscp: class.dscp(),
        sched: None,
        sched_publisher: None,
        pipe: path.topic.pipe,
        proxy: path.proxy.map(|node| system.nodes[node].name.clone()),
        proxied_us: us.filter(|_| !mean && hops_to_proxy > 0).and_then(|_| until(&terms, route.get(hops_to_proxy)?)),
        route,
        hops_to_proxy,
        scale: path.subscriber.scale,
        picture: path.subscriber.picture.map(|[width, height]| format!("{width}x{height}")),
        rate_hz: Some(path.topic.rate / f64::from(path.subscriber.scale)),
        burst: Some(path.at_once()),
        police: path.policing().map(|policing| policing.to_string()),
        latency_budget_us: path.latency_budget().map(|ns| ns as f64 / 1e3),
        batch: path.latency_budget().map(|ns| path.batch(ns)),
        pace_bits_per_s: path.pace(system),
        own_queue: None,
        mean_us: us.filter(|_| mean),
        bound_us: us.filter(|_| !mean),
        deadline_us: path.subscriber.deadline.map(|ns| ns as f64 / 1e3),
        percentiles: None,
        loss,
        terms: terms.iter().map(|term| (term.name.clone(), term.us)).collect(),
        derivation: terms,
        also,
        occupancy,
    }
}

/// Sum of a bound's terms before the first one of this direction of a link.
fn until(terms: &[Term], direction: &str) -> Option<f64> {
    let start = format!("{direction}: ");
    let first = terms.iter().position(|term| term.name.starts_with(&start))?;
    Some(terms[..first].iter().map(|term| term.us).sum())
}

pub(super) fn links(system: &System, loads: &[f64], queues: &[Queue]) -> Vec<Link> {
    let direction = |index: usize| {
        let direction = Direction::at(index);
        let (link, [from, to]) = (&system.links[direction.link], direction.ends(system));
        let load = loads.get(index).copied().unwrap_or(0.0);
        let queue = queues.get(index).copied().unwrap_or_default();
        let device = direction.device(system).map(str::to_owned);
        Link {
            name: link.name.clone(),
            from: system.nodes[from].name.clone(),
            to: system.nodes[to].name.clone(),
            rate_bits_per_s: link.rate as f64,
            load_bits_per_s: load,
            background_bits_per_s: link.background as f64,
            utilisation: (load + link.background as f64 + link.control as f64) / link.rate as f64,
            scheduler: scheduler(link.scheduler).to_owned(),
            backlog_bytes: queue.bytes,
            down: link.down,
            queue_packets: queue.packets.filter(|_| device.is_some()),
            shares: queue.shares,
            control: Leaf::control(link).map(|queue| control(&queue)),
            device,
        }
    };
    (0..2 * system.links.len()).map(direction).collect()
}

fn control(queue: &Leaf) -> ControlQueue {
    ControlQueue { rate_bits_per_s: queue.rate, burst_bytes: queue.burst, packets: queue.packets }
}

pub(super) fn scheduler(scheduler: Scheduler) -> &'static str {
    match scheduler {
        Scheduler::Fifo => "fifo",
        Scheduler::Strict => "strict",
        Scheduler::Htb => "htb",
        Scheduler::Hfsc => "hfsc",
    }
}

pub(super) fn nodes(system: &System, found: &Outcome, bounds: Option<&Bounds>) -> Vec<Node> {
    let node = |(index, node): (usize, &system::Node)| Node {
        name: node.name.clone(),
        kind: node.kind,
        cpus: node.cpus,
        cpus_reserved: bounds.map_or(0.0, |bounds| bounds.reserved(index)),
        cpus_used: found.processors.get(index).copied().unwrap_or(0.0),
        proxied_per_s: found.proxied.get(index).copied().unwrap_or(0.0),
    };
    system.nodes.iter().enumerate().map(node).collect()
}

pub(super) fn proxy(system: &System, placed: &Placed) -> Proxy {
    let name = |index: &usize| system.subscribers[*index].name.clone();
    let subscribers: Vec<String> = placed.group.subscribers.iter().map(name).collect();
    let placement::Cost { messages_per_s, bits_per_s, cpu } = placed.cost;
    Proxy {
        topic: system.topics[placed.group.topic].name.clone(),
        publisher: system.nodes[placed.group.publisher].name.clone(),
        delay_us: subscribers.iter().cloned().zip(placed.delays.iter().map(|ns| ns / 1e3)).collect(),
        subscribers,
        node: system.nodes[placed.node].name.clone(),
        cost: Cost { messages_per_s, bits_per_s, cpu },
    }
}

pub(super) fn solver(found: &Outcome, watch: &mut dyn Watch) -> Solver {
    Solver {
        name: found.solver.to_owned(),
        ms: Some(watch.elapsed().as_secs_f64() * 1e3),
        optimal: matches!(found.status, Status::Optimal | Status::Infeasible),
        gap: found.gap(),
    }
}
