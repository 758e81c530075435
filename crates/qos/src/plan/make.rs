//! From a contract to its plan.

use super::means::{self, Delay};
use super::ways::{self, Way};
use super::{Channel, Cost, For, Link, Model, Node, Plan, Proxy, Solver, refusal};
use crate::contract::{Contract, Scheduler, System};
use crate::network::{Direction, Network};
use crate::placement::{self, Effort, Group, Outcome, Placed, Status, Watch};

/// Plans a contract: places its proxies, and computes each channel's delay by a model.
///
/// Whatever the model, no link may carry more than its rate, in bytes on the wire. Where not all fits the plan says why, and
/// shows what there would be if every proxy were at its publisher.
pub fn make(contract: &Contract, model: Model, watch: &mut dyn Watch) -> Plan {
    let system = &contract.system;
    let network = Network::new(system);
    let found = placement::place(system, &network, &Effort::default(), watch);
    let at_publishers = || at_publishers(system, &network);
    let placed = if found.placed.is_empty() { at_publishers() } else { found.placed.clone() };
    let ways = ways::all(system, &network, &placed);
    let channels: Vec<Channel> = ways.iter().map(|way| channel(system, way, model)).collect();
    let mut refusals = refusal::of_placement(system, &found);
    refusals.extend(refusal::of_channels(&channels, model));
    let feasible = refusals.is_empty() && !found.placed.is_empty();
    let loads = if found.loads.is_empty() { ways::loads(system, &ways) } else { found.loads.clone() };
    Plan {
        contract: For { name: system.name.clone(), hash: format!("{:016x}", contract.hash) },
        feasible,
        model,
        objective_value: found.value.filter(|_| feasible),
        channels,
        links: links(system, &loads),
        nodes: nodes(system, &found),
        placement: found.placed.iter().map(|placed| proxy(system, placed)).collect(),
        refusals,
        solver: solver(&found, watch),
    }
}

/// Each subscriber with its stream scaled where it is published: what there is to show when no placement fits.
fn at_publishers(system: &System, network: &Network) -> Vec<Placed> {
    let each = |(index, subscriber): (usize, &crate::contract::Subscriber)| {
        let publishers = &system.topics[subscriber.topic].publishers;
        let placed = |publisher: &usize| Placed {
            group: Group { topic: subscriber.topic, publisher: *publisher, subscribers: vec![index] },
            node: *publisher,
            cost: Default::default(),
            delays: Vec::new(),
        };
        let reached = |publisher: &&usize| network.hops(**publisher, subscriber.node).is_some();
        publishers.iter().filter(reached).map(placed).collect::<Vec<_>>()
    };
    system.subscribers.iter().enumerate().flat_map(each).collect()
}

fn channel(system: &System, way: &Way, model: Model) -> Channel {
    let Delay { us, terms, also, loss, occupancy } = match model {
        Model::PaperHop => means::paper_hop(system, way),
        Model::VeloxTable2 | Model::VeloxEq4Literal | Model::Mm1 | Model::Mm1k => means::velox(system, way, model),
        Model::Nc | Model::Rta | Model::Bound => Delay::default(),
    };
    let class = way.topic.class.unwrap_or_default();
    Channel {
        topic: way.topic.name.clone(),
        publisher: system.nodes[way.publisher].name.clone(),
        subscriber: way.subscriber.name.clone(),
        node: system.nodes[way.subscriber.node].name.clone(),
        class,
        dscp: class.dscp(),
        sched: None,
        proxy: way.proxy.map(|node| system.nodes[node].name.clone()),
        mean_us: us.filter(|_| model.is_mean()),
        bound_us: us.filter(|_| !model.is_mean()),
        deadline_us: way.subscriber.deadline.map(|ns| ns as f64 / 1e3),
        loss,
        terms: terms.iter().map(|term| (term.name.clone(), term.us)).collect(),
        derivation: terms,
        also,
        occupancy,
    }
}

fn links(system: &System, loads: &[f64]) -> Vec<Link> {
    let direction = |index: usize| {
        let direction = Direction::at(index);
        let (link, [from, to]) = (&system.links[direction.link], direction.ends(system));
        let load = loads.get(index).copied().unwrap_or(0.0);
        let scheduler = match link.scheduler {
            Scheduler::Fifo => "fifo",
            Scheduler::Strict => "strict",
            Scheduler::Htb => "htb",
            Scheduler::Hfsc => "hfsc",
        };
        Link {
            name: link.name.clone(),
            from: system.nodes[from].name.clone(),
            to: system.nodes[to].name.clone(),
            rate_bits_per_s: link.rate as f64,
            load_bits_per_s: load,
            background_bits_per_s: link.background as f64,
            utilisation: (load + link.background as f64) / link.rate as f64,
            scheduler: scheduler.to_owned(),
            backlog_bytes: None,
        }
    };
    (0..2 * system.links.len()).map(direction).collect()
}

fn nodes(system: &System, found: &Outcome) -> Vec<Node> {
    let node = |(index, node): (usize, &crate::contract::Node)| Node {
        name: node.name.clone(),
        cpus: node.cpus,
        cpus_used: found.processors.get(index).copied().unwrap_or(0.0),
        proxied_per_s: found.proxied.get(index).copied().unwrap_or(0.0),
    };
    system.nodes.iter().enumerate().map(node).collect()
}

fn proxy(system: &System, placed: &Placed) -> Proxy {
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

fn solver(found: &Outcome, watch: &mut dyn Watch) -> Solver {
    Solver {
        name: found.solver.to_owned(),
        ms: Some(watch.elapsed().as_secs_f64() * 1e3),
        optimal: matches!(found.status, Status::Optimal | Status::Infeasible),
        gap: found.gap(),
    }
}
