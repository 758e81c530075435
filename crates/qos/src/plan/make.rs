//! From a contract to its plan.
//!
//! | module | contents |
//! |---|---|
//! | `budgets` | latency budgets that the plan computes, tried |
//! | `delay` | the delay of a channel: bounds by the analysis of processors and links, or by the closed forms of the papers |
//! | `chain` | chains over several topics: sums of channels |
//! | `own` | queues of channels' own |
//! | `paces` | paces that the plan computes, tried |
//! | `refusal` | reasons why not all fits |
//! | `parties` | who is late, and who can give way |
//! | `trials` | plans that are tried, within limits |
//! | `offers` | settings of hosts, or changes of the contract, with which it fits, tried |

mod budgets;
mod chain;
mod delay;
mod offers;
mod own;
mod paces;
mod parties;
mod refusal;
mod trials;

use super::{Channel, Cost, For, Link, Model, Node, Offer, Plan, Proxy, Setting, Solver, Term, border, settle};
use crate::Class;
use crate::analysis::Steps;
use crate::analysis::chain::Unsteady;
use crate::analysis::end_to_end::Where;
use crate::analysis::stages::Classes;
use crate::contract::Contract;
use crate::contract::joined::Part;
use crate::gathering;
use crate::network::{Direction, Network, packets, wire_bytes, wire_load};
use crate::placement::{self, Effort, Group, Outcome, Placed, Status, Watch};
use crate::priority::Policing;
use crate::system::{self, LatencyBudget, PlacementDelay, Scheduler, Subscriber, System, Topic, Transport};
use delay::{Bounds, Delay, Queue, delay};
use offers::{WayOut, settings, smallest, way_out};
use std::borrow::Cow;
use std::time::Duration;

/// Limits of the work on a plan, and on all plans that are tried for offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Steps of the plan itself, and at most as many of each that is tried.
    pub plan: u64,
    /// Steps of all that are tried together. 0: no offers.
    pub offers: u64,
    /// Time since the work began after which no further one is tried. Each placement has as much, and 30 s at most.
    pub time: Duration,
}

impl Work {
    /// As much as a system of this size may take.
    pub fn of(system: &System) -> Self {
        Self { plan: Steps::of(system).left(), offers: OFFERS, time: Duration::MAX }
    }

    /// The effort for the placement of a plan of which no reasons are asked.
    fn effort(&self) -> Effort {
        let usual = Effort::default();
        Effort { time: usual.time.min(self.time), explain: false, ..usual }
    }
}

/// Steps of all plans that are tried for offers: a second.
const OFFERS: u64 = 100_000_000;

/// Plans a contract: places its proxies, and computes each channel's delay by a model.
///
/// In every model, no link may carry more than its rate, in bytes on the wire. If not everything fits the plan gives
/// the reason, and shows the result with every proxy at its publisher.
pub fn make(contract: &Contract, model: Model, watch: &mut dyn Watch) -> Plan {
    make_within(contract, model, Work::of(&contract.system), watch)
}

/// The same within so much work, for the asker of a part of the contract: offers change nothing but that part.
pub fn make_for(part: &Part, contract: &Contract, model: Model, work: Work, watch: &mut dyn Watch) -> Plan {
    planned(contract, Some(part), model, work, watch)
}

/// The offers for the asker of a part of the contract alone: without a plan, and without reasons, which take longer. `None`: the contract fits as it is.
pub fn offers_for(
    part: &Part,
    contract: &Contract,
    model: Model,
    work: Work,
    watch: &mut dyn Watch,
) -> Option<Vec<Offer>> {
    let system = &contract.system;
    let mut computed = compute(system, model, &Steps::new(work.plan), work.effort(), watch);
    if !computed.plan.feasible {
        computed = paces::slowest(system, computed, work, watch).1;
    }
    if computed.plan.feasible {
        return None;
    }
    match way_out(system, Some(part), &computed, work, watch) {
        WayOut::Settings(_) => None,
        WayOut::Offers(offers) => Some(offers),
    }
}

/// The plan of a contract, but without reasons and offers where it does not fit: the search for them may take ten times as long as the plan.
pub fn attempt(contract: &Contract, model: Model, watch: &mut dyn Watch) -> Plan {
    let work = Work::of(&contract.system);
    let effort = Effort { explain: false, ..Effort::default() };
    let computed = compute(&contract.system, model, &Steps::new(work.plan), effort, watch);
    let (system, mut computed) = paces::slowest(&contract.system, computed, work, watch);
    if !computed.plan.feasible
        && let Some(settings) = settings(&contract.system, &computed, work, watch)
    {
        computed = settled(contract, settings, model, work, watch);
    }
    finished(contract, &system, computed, work, watch)
}

/// The plan with what it computes of itself: paces that the system does not have yet, and with these latency budgets.
fn finished(contract: &Contract, system: &System, computed: Computed, work: Work, watch: &mut dyn Watch) -> Plan {
    let (system, computed) = paces::slowest(system, computed, work, watch);
    let mut plan = budgets::widest(&system, computed, work, watch).plan;
    plan.contract.hash = format!("{:016x}", contract.hash);
    (plan.tunnels, plan.borders) = (border::tunnels(contract), border::borders(contract));
    plan
}

/// `true` if a system fits in model `bound`, with whatever settings of its hosts that takes: the decision of [`attempt`], in less time, because nothing is
/// shown of it.
pub fn fits(system: &System, watch: &mut dyn Watch) -> bool {
    let (system, steps) = (smallest(system), Steps::new(Work::of(system).plan));
    let effort = || Effort { explain: false, ..Effort::default() };
    let network = Network::new(&system);
    if answer(&system, &network, Model::Bound, &steps, effort(), watch).fits(&system, &network) {
        return true;
    }
    paces::asks(&system) && {
        let work = Work::of(&system);
        let computed = compute(&system, Model::Bound, &Steps::new(work.plan), effort(), watch);
        paces::slowest(&system, computed, work, watch).1.plan.feasible
    }
}

/// The same with less work: bounds and offers that it does not suffice for are missing.
pub fn make_within(contract: &Contract, model: Model, work: Work, watch: &mut dyn Watch) -> Plan {
    planned(contract, None, model, work, watch)
}

fn planned(contract: &Contract, part: Option<&Part>, model: Model, work: Work, watch: &mut dyn Watch) -> Plan {
    let steps = Steps::new(work.plan);
    let computed = compute(&contract.system, model, &steps, Effort::default(), watch);
    let (system, mut computed) = paces::slowest(&contract.system, computed, work, watch);
    if !computed.plan.feasible {
        match way_out(&contract.system, part, &computed, work, watch) {
            WayOut::Settings(settings) => computed = settled(contract, settings, model, work, watch),
            WayOut::Offers(offers) => {
                computed.plan.refusals.iter_mut().for_each(|refusal| refusal.offers.clone_from(&offers));
            }
        }
    }
    finished(contract, &system, computed, work, watch)
}

/// The plan with settings of its hosts.
fn settled(contract: &Contract, settings: Vec<Setting>, model: Model, work: Work, watch: &mut dyn Watch) -> Computed {
    let system = settle(&contract.system, &settings);
    let mut computed = compute(&system, model, &Steps::new(work.plan), Effort::default(), watch);
    computed.plan.settings = settings;
    computed
}

/// A plan without offers, and what the search for them needs besides.
struct Computed {
    plan: Plan,
    /// The topics that come less evenly than the contract states.
    unsteady: Vec<Unsteady>,
    /// The part of each direction of each link that each class takes, background included; empty in models without an analysis.
    loads: Vec<[f64; 4]>,
}

/// The plan of a system, without offers, with these steps for its analyses and this effort for each of its placements.
fn compute(system: &System, model: Model, steps: &Steps, effort: Effort, watch: &mut dyn Watch) -> Computed {
    let network = Network::new(system);
    let Answer { found, placed, bounds } = answer(system, &network, model, steps, effort, watch);
    let classes = bounds.as_ref().map_or_else(|| Classes::stated(system), Bounds::classes);
    let paths = paths(system, &network, &placed);
    let queues = delay::publishers(system);
    let channel = |path: &Path| {
        let (topic, publisher, subscriber) = (path.subscriber.topic, path.publisher, path.index);
        let [sched_publisher, sched] =
            bounds.as_ref().map(|bounds| bounds.scheduling(topic, publisher, subscriber)).unwrap_or_default();
        let delay = delay(system, path, model, &bounds);
        let percentiles = delay::percentiles(system, path, model, &queues);
        Channel {
            sched,
            sched_publisher,
            percentiles,
            own_queue: path.own_queue(system, bounds.as_ref()),
            ..channel(system, path, classes.of(publisher, subscriber), delay)
        }
    };
    let mut channels: Vec<Channel> = paths.iter().map(channel).collect();
    own::number(&mut channels);
    let mut refusals = refusal::of_placement(system, &found);
    let exceeded = bounds.as_ref().map(Bounds::exceeded).unwrap_or_default();
    refusals.extend(exceeded.iter().map(|(node, excess)| refusal::of_reservations(system, *node, excess)));
    refusals.extend(own::refusals(system, &paths, bounds.as_ref()));
    refusals.extend(refusal::of_channels(&channels, model));
    let chains = chain::chains(system, &paths, &channels);
    refusals.extend(chains.iter().filter_map(|chain| chain::of_chain(chain, model)));
    let unsteady = bounds.as_ref().filter(|_| model == Model::Bound).map(Bounds::unsteady).unwrap_or_default();
    refusals.extend(unsteady.iter().map(|topic| chain::of_unsteady(system, topic)));
    let feasible = refusals.is_empty() && (!found.placed.is_empty() || system.subscribers.is_empty());
    let loads = if found.loads.is_empty() { loads(system, &paths) } else { found.loads.clone() };
    let queues = bounds.as_ref().map(Bounds::queues).unwrap_or_default();
    let plan = Plan {
        contract: For { name: system.name.clone(), hash: String::new() },
        feasible,
        model,
        objective: Some(system.placement.objective),
        objective_value: found.value.filter(|_| feasible),
        channels,
        chains,
        links: links(system, &loads, &queues),
        settings: Vec::new(),
        tunnels: Vec::new(),
        borders: Vec::new(),
        admitted: Vec::new(),
        nodes: nodes(system, &found, bounds.as_ref()),
        placement: found.placed.iter().map(|placed| proxy(system, placed)).collect(),
        refusals,
        solver: solver(&found, watch),
    };
    Computed { plan, unsteady, loads: bounds.as_ref().map(Bounds::loads).unwrap_or_default() }
}

/// Places, and the analysis of them.
struct Answer {
    found: Outcome,
    /// The places found; if there are none, each proxy at its publisher.
    placed: Vec<Placed>,
    bounds: Option<Bounds>,
}

/// The most times that places are searched again because a proxy's delay did not keep the analysis' bound.
const ROUNDS: u32 = 16;

/// Places proxies; with `delay = "bound"`, again without the places that the analysis found late, as long as others remain.
fn answer(
    system: &System,
    network: &Network,
    model: Model,
    steps: &Steps,
    mut effort: Effort,
    watch: &mut dyn Watch,
) -> Answer {
    // The model of P-21 does not count if the analysis' bound decides.
    let placing = match system.placement.delay {
        PlacementDelay::Paper => Cow::Borrowed(system),
        PlacementDelay::Bound => Cow::Owned(without_deadlines(system)),
    };
    let mut attempt = |effort: &Effort| {
        let found = placement::place(&placing, network, effort, watch);
        let placed = if found.placed.is_empty() { at_publishers(system, network) } else { found.placed.clone() };
        let bounds = Bounds::new(system, network, &placed, model, steps);
        Answer { found, placed, bounds }
    };
    let first = attempt(&effort);
    let mut late = first.late(system);
    if late.is_empty() {
        return first;
    }
    for _ in 0..ROUNDS {
        effort.excluded.append(&mut late);
        let again = attempt(&effort);
        if again.found.placed.is_empty() || steps.left() == 0 {
            break;
        }
        late = again.late(system);
        if late.is_empty() {
            return again;
        }
    }
    // No places keep all bounds: the best ones otherwise show the late pairs.
    first
}

fn without_deadlines(system: &System) -> System {
    let mut system = system.clone();
    system.subscribers.iter_mut().for_each(|subscriber| subscriber.deadline = None);
    system
}

impl Answer {
    /// All limits and deadlines are kept.
    fn fits(&self, system: &System, network: &Network) -> bool {
        let asks = system.topics.iter().any(|topic| topic.own_queue);
        let has_room = || own::refusals(system, &paths(system, network, &self.placed), self.bounds.as_ref()).is_empty();
        if asks && !has_room() {
            return false;
        }
        let is_placed = !self.found.placed.is_empty() || system.subscribers.is_empty();
        let keeps = |bounds: &Bounds| bounds.in_time() && bounds.exceeded().is_empty() && bounds.unsteady().is_empty();
        is_placed && refusal::of_placement(system, &self.found).is_empty() && self.bounds.as_ref().is_some_and(keeps)
    }

    /// Proxies with a subscriber that gets its samples too late, if that counts: (topic, publisher's node, node).
    fn late(&self, system: &System) -> Vec<(usize, usize, usize)> {
        let Some(bounds) = self.bounds.as_ref().filter(|_| system.placement.delay == PlacementDelay::Bound) else {
            return Vec::new();
        };
        let is_late = |placed: &&Placed| {
            let Group { topic, publisher, subscribers } = &placed.group;
            let late = |index: &usize| {
                let subscriber = &system.subscribers[*index];
                let deadline = subscriber.deadline.filter(|_| scales(&system.topics[*topic], subscriber));
                let us = || bounds.of(*topic, *publisher, *index).us;
                deadline.is_some_and(|deadline| us().is_none_or(|us| us * 1e3 > deadline as f64))
            };
            subscribers.iter().any(late)
        };
        let late = self.found.placed.iter().filter(is_late);
        late.map(|placed| (placed.group.topic, placed.group.publisher, placed.node)).collect()
    }
}

/// Each subscriber with its stream scaled at the publisher: shown when no placement fits.
fn at_publishers(system: &System, network: &Network) -> Vec<Placed> {
    let each = |(index, subscriber): (usize, &Subscriber)| {
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

fn channel(system: &System, path: &Path, class: Class, delay: Delay) -> Channel {
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

fn links(system: &System, loads: &[f64], queues: &[Queue]) -> Vec<Link> {
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
            utilisation: (load + link.background as f64) / link.rate as f64,
            scheduler: scheduler(link.scheduler).to_owned(),
            backlog_bytes: queue.bytes,
            down: link.down,
            queue_packets: queue.packets.filter(|_| device.is_some()),
            shares: queue.shares,
            device,
        }
    };
    (0..2 * system.links.len()).map(direction).collect()
}

fn scheduler(scheduler: Scheduler) -> &'static str {
    match scheduler {
        Scheduler::Fifo => "fifo",
        Scheduler::Strict => "strict",
        Scheduler::Htb => "htb",
        Scheduler::Hfsc => "hfsc",
    }
}

fn nodes(system: &System, found: &Outcome, bounds: Option<&Bounds>) -> Vec<Node> {
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

/// A channel's path: from its publisher, through its proxy if it has one, to its subscriber.
struct Path<'a> {
    topic: &'a Topic,
    /// The publisher's node (index).
    publisher: usize,
    subscriber: &'a Subscriber,
    /// The subscriber (index).
    index: usize,
    /// The proxy's node (index).
    proxy: Option<usize>,
    hops: Vec<Hop>,
    /// Number of the first hops, which carry samples as they were published.
    before: usize,
}

/// One direction of a link, and the samples that cross it.
struct Hop {
    direction: Direction,
    /// Bytes of a sample.
    size: u64,
}

impl Path<'_> {
    /// Time between two samples that the subscriber gets, ns.
    fn scaled_period(&self) -> u64 {
        self.topic.period.saturating_mul(u64::from(self.subscriber.scale))
    }

    /// Samples that may come at once, by burst and jitter.
    fn at_once(&self) -> f64 {
        f64::from(self.topic.burst) + self.topic.jitter as f64 * self.topic.rate / 1e9
    }

    /// The latency budget of the samples that leave the publisher, ns.
    fn latency_budget(&self) -> Option<u64> {
        let budget = self.topic.latency_budget.filter(|_| !self.hops.is_empty())?;
        Some(if let LatencyBudget::Stated(ns) = budget { ns } else { 0 })
    }

    /// The pace at which samples leave the publisher, in bit/s: on a channel of its own to the subscriber.
    fn pace(&self, system: &System) -> Option<u64> {
        let is_own = self.proxy.is_none_or(|proxy| proxy == self.publisher);
        let has = is_own && !self.hops.is_empty() && system.placement.transport == Transport::Unicast;
        self.topic.paced().filter(|_| has && !self.topic.forwarded)
    }

    /// Samples that may leave the publisher together.
    fn batch(&self, budget: u64) -> u64 {
        let (scale, size) = self.leaving();
        match size {
            size if size > gathering::LARGEST => 1,
            _ => gathering::batch(budget, self.topic.period.saturating_mul(u64::from(scale)), self.topic.burst)
                .min(gathering::BYTES as u64 / size.max(1) + 1),
        }
    }

    /// The ratio of samples to those that leave the publisher, at least 1, and their bytes.
    fn leaving(&self) -> (u32, u64) {
        let (scale, size) = match self.proxy == Some(self.publisher) {
            true => (self.subscriber.scale, self.subscriber.scaled_size.unwrap_or(self.topic.size)),
            false => (self.subscriber.scale_before_proxy(), self.topic.size),
        };
        (scale.max(1), size)
    }

    /// The samples that leave the publisher by the contract, if they are policed.
    fn policing(&self) -> Option<Policing> {
        let is_here = self.proxy == Some(self.publisher);
        let (scale, size) = self.leaving();
        let scale = f64::from(scale);
        // The samples between come and go: what may come early stays as long.
        let at_once = 1.0 + (self.at_once() - 1.0) / scale;
        let policing = || Policing::new(self.topic.rate / scale, at_once, size);
        // A relay takes the stream by a channel of its own.
        let is_whole = is_here || self.proxy.is_none();
        (self.topic.police && is_whole).then(policing).flatten()
    }

    /// Packets of one sample on the hop that needs the most.
    fn packets(&self, system: &System) -> u64 {
        let on = |hop: &Hop| packets(&system.links[hop.direction.link], hop.size);
        self.hops.iter().map(on).max().unwrap_or(1)
    }
}

/// Nanoseconds that one (the largest) packet of a sample takes on a link's wire.
fn transmission(system: &System, hop: &Hop) -> f64 {
    let link = &system.links[hop.direction.link];
    let bytes = wire_bytes(link, hop.size.min(link.mtu));
    link.transmission.map_or(bytes as f64 * 8e9 / link.rate as f64, |stated| stated as f64)
}

/// Each publisher with each of its subscribers, in the order of the placement's groups.
fn paths<'a>(system: &'a System, network: &Network, placed: &[Placed]) -> Vec<Path<'a>> {
    let mut paths: Vec<Path> = placed.iter().flat_map(|placed| of_group(system, network, placed)).collect();
    paths.sort_by_key(|path| (path.subscriber.topic, path.publisher, path.index));
    paths
}

fn of_group<'a>(system: &'a System, network: &Network, placed: &Placed) -> Vec<Path<'a>> {
    let (topic, publisher) = (&system.topics[placed.group.topic], placed.group.publisher);
    let scales = |index: &usize| scales(topic, &system.subscribers[*index]);
    let proxy = placed.group.subscribers.iter().any(scales).then_some(placed.node);
    let to_proxy = network.route(publisher, placed.node).unwrap_or_default();
    let path = |index: &usize| {
        let subscriber = &system.subscribers[*index];
        let scaled = subscriber.scaled_size.unwrap_or(topic.size);
        let from_proxy = network.route(placed.node, subscriber.node).unwrap_or_default();
        let before = to_proxy.iter().map(|direction| Hop { direction: *direction, size: topic.size });
        let after = from_proxy.iter().map(|direction| Hop { direction: *direction, size: scaled });
        let hops = before.chain(after).collect();
        Path { topic, publisher, subscriber, index: *index, proxy, hops, before: to_proxy.len() }
    };
    placed.group.subscribers.iter().map(path).collect()
}

/// `true` if this subscriber gets less than the whole stream.
fn scales(topic: &Topic, subscriber: &Subscriber) -> bool {
    let smaller = subscriber.scaled_size.is_some_and(|size| size != topic.size);
    subscriber.scale > 1 || smaller || subscriber.picture.is_some()
}

/// Bit/s on the wire in each direction of each link, every channel a flow of its own.
fn loads(system: &System, paths: &[Path]) -> Vec<f64> {
    let mut loads = vec![0.0; 2 * system.links.len()];
    for path in paths {
        for (at, hop) in path.hops.iter().enumerate() {
            let Subscriber { scale, .. } = path.subscriber;
            let scale = f64::from(if at < path.before { path.subscriber.scale_before_proxy() } else { *scale });
            let link = &system.links[hop.direction.link];
            loads[hop.direction.index()] += wire_load(link, hop.size, path.topic.rate / scale);
        }
    }
    loads
}
