//! The delay of a channel by a model: bounds of processors and links together, or the closed forms of the papers.

use super::path::{self, Path, scales, transmission};
use crate::Class;
use crate::analysis::Steps;
use crate::analysis::chain::{Unsteady, unsteady};
use crate::analysis::cpu::reservation::{Excess, Reservation};
use crate::analysis::end_to_end::{self, Bound, Where};
use crate::analysis::queueing::{Hop, Mm1, Mm1k, TwoState, Velox, hop_delay, network_delay};
use crate::analysis::stages::{Classes, Egress, Leaf, Pair, Place, Role, Step};
use crate::assignment::{Assignment, assign, fifo_priority, queue_limit};
use crate::network::Network;
use crate::placement::Placed;
use crate::plan::{Model, Percentiles, Term};
use crate::priority::{Policy, Scheduling};
use crate::quantity::show_bit_rate;
use crate::system::{Scheduler, System, Topic};
use std::collections::HashMap;

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

/// The delay of a channel by a model; `bounds` are those of the models that need an analysis.
pub(super) fn delay(system: &System, path: &Path, model: Model, bounds: &Option<Bounds>) -> Delay {
    match model {
        Model::PaperHop => paper_hop(system, path),
        Model::VeloxTable2 | Model::VeloxEq4Literal | Model::Mm1 | Model::Mm1k => velox(system, path, model),
        Model::Nc | Model::Rta | Model::Bound => {
            let of = |bounds: &Bounds| bounds.of(path.subscriber.topic, path.publisher, path.index);
            bounds.as_ref().map(of).unwrap_or_default()
        }
    }
}

/// The analysis of a contract with its proxies in their places.
pub(super) struct Bounds {
    system: System,
    assignment: Assignment,
    /// Number of threads of each processor.
    threads: Vec<u32>,
    /// Index of each pair: by topic, publisher's node and subscriber.
    pairs: HashMap<(usize, usize, usize), usize>,
    model: Model,
}

impl Bounds {
    /// Assigns classes and ranks, and analyses; `None` for models that need no analysis.
    pub(super) fn new(
        system: &System,
        network: &Network,
        placed: &[Placed],
        model: Model,
        steps: &Steps,
    ) -> Option<Self> {
        let system = match model {
            Model::Bound | Model::Rta => system.clone(),
            Model::Nc => without_processors(system),
            _ => return None,
        };
        let places: Vec<Place> = placed.iter().flat_map(|placed| places(&system, placed)).collect();
        let assignment = assign(&system, network, &places, false, steps);
        let stages = &assignment.stages;
        let key = |(index, pair): (usize, &Pair)| {
            let stream = &stages.streams[pair.stream];
            ((stream.topic, stream.publisher, pair.subscriber), index)
        };
        let pairs = stages.pairs.iter().enumerate().map(key).collect();
        let mut threads = vec![0; stages.processors.len()];
        for stage in &stages.stages {
            if let Step::Compute { processor, reserved: None, .. } = stage.step {
                threads[processor] += 1;
            }
        }
        Some(Self { system, assignment, threads, pairs, model })
    }

    /// The class of each channel.
    pub(super) fn classes(&self) -> Classes {
        self.assignment.classes.clone()
    }

    /// Scheduling of the threads that send and receive a channel's samples; `None`: no execution time is declared there.
    pub(super) fn scheduling(&self, topic: usize, publisher: usize, subscriber: usize) -> [Option<String>; 2] {
        let stages = &self.assignment.stages;
        let Some(pair) = self.pairs.get(&(topic, publisher, subscriber)).map(|pair| &stages.pairs[*pair]) else {
            return [None, None];
        };
        let thread = |wanted: Role| {
            let mut steps = stages.path(pair).map(|stage| stages.stages[stage].step);
            steps.find_map(|step| match step {
                Step::Compute { reserved: Some(of), role, .. } if role == wanted => {
                    let Reservation { runtime: runtime_ns, deadline: deadline_ns, period: period_ns } = of.each;
                    Some(Scheduling::from(Policy::Deadline { runtime_ns, deadline_ns, period_ns }).to_string())
                }
                Step::Compute { processor, rank, role, .. } if role == wanted => {
                    Some(format!("fifo:{}", fifo_priority(rank, self.threads[processor])))
                }
                _ => None,
            })
        };
        [thread(Role::Send), thread(Role::Receive(subscriber))]
    }

    /// The queue of a channel's own.
    pub(super) fn leaf(&self, topic: usize, publisher: usize, subscriber: usize) -> Option<Leaf> {
        let stages = &self.assignment.stages;
        let pair = &stages.pairs[*self.pairs.get(&(topic, publisher, subscriber))?];
        stages.path(pair).find_map(|stage| match stages.stages[stage].step {
            Step::Cross { leaf, .. } => leaf,
            Step::Compute { .. } => None,
        })
    }

    /// Number of queues beside those of classes before one direction of a link, and the part of it that they and the shares of the classes take.
    pub(super) fn own_queues(&self, queue: usize) -> (usize, f64) {
        let stages = &self.assignment.stages;
        let own = stages.stages.iter().filter_map(|stage| match stage.step {
            Step::Cross { queue: at, leaf: Some(leaf), .. } if at == queue => Some(leaf.share),
            _ => None,
        });
        let egress = &stages.egresses[queue];
        let own = own.chain(egress.control.map(|control| control.share));
        let parts = egress.shares.iter().copied().chain(own.clone());
        (own.count(), parts.map(|part| part as f64 / 1e9).sum())
    }

    /// The bound of a channel, and its terms.
    pub(super) fn of(&self, topic: usize, publisher: usize, subscriber: usize) -> Delay {
        let Some(Bound { ns, terms, .. }) =
            self.pairs.get(&(topic, publisher, subscriber)).and_then(|pair| self.assignment.analysis.pairs.get(*pair))
        else {
            return Delay::default();
        };
        let counts = |term: &&end_to_end::Term| self.model != Model::Rta || !waits_on_link(term);
        let terms: Vec<Term> = named(&self.system, terms.iter().filter(counts));
        // An empty sum is -0.
        let sum = terms.iter().map(|term| term.us).sum::<f64>() + 0.0;
        match ns {
            Ok(_) => Delay { us: Some(sum), terms, ..Delay::default() },
            Err(because) => {
                let also = vec![Term::new("no bound", 0.0, because.explain(&self.system))];
                Delay { terms, also, ..Delay::default() }
            }
        }
    }

    /// Processors that a node's reservations are worth.
    pub(super) fn reserved(&self, node: usize) -> f64 {
        let part = |of: &Reservation| of.runtime as f64 / of.period.max(1) as f64;
        // An empty sum is -0.
        self.assignment.stages.reservations(node).iter().map(part).sum::<f64>() + 0.0
    }

    /// Every channel and chain with a deadline keeps it.
    pub(super) fn in_time(&self) -> bool {
        self.assignment.fits
    }

    /// Nodes with more reservations than they can keep.
    pub(super) fn exceeded(&self) -> Vec<(usize, Excess)> {
        self.assignment.stages.exceeded(&self.system)
    }

    /// Topics that callbacks publish less evenly than the contract states.
    pub(super) fn unsteady(&self) -> Vec<Unsteady> {
        unsteady(&self.system, &self.assignment.stages, &self.assignment.analysis)
    }

    /// The part of each direction of each link that each class takes, background included.
    pub(super) fn loads(&self) -> Vec<[f64; 4]> {
        let of = |(queue, classes): (usize, &[end_to_end::QueueBound; 4])| {
            let link = &self.system.links[queue / 2];
            let mut loads = classes.map(|class| class.load as f64 / 1e9);
            loads[Class::Normal as usize] += link.background as f64 / link.rate as f64;
            loads
        };
        self.assignment.analysis.queues.iter().enumerate().map(of).collect()
    }

    /// The queue of each direction of each link.
    pub(super) fn queues(&self) -> Vec<Queue> {
        let (stages, analysis) = (&self.assignment.stages, &self.assignment.analysis);
        let queue = |(egress, classes): (&Egress, &[end_to_end::QueueBound; 4])| {
            let used = || classes.iter().filter(|class| class.streams > 0);
            let bytes = used().map(|class| class.room.map(|room| room.bytes as f64)).sum::<Option<f64>>();
            let limit = |class| queue_limit(analysis, egress.direction, class).map(|room| room.packets);
            let longest = Class::ALL.into_iter().map(limit).try_fold(0, |most, packets| Some(u64::max(most, packets?)));
            let shared = matches!(egress.scheduler, Scheduler::Htb | Scheduler::Hfsc);
            Queue {
                // An empty sum is -0.
                bytes: bytes.map(|bytes| bytes + 0.0),
                packets: longest.map(|packets| u32::try_from(packets).unwrap_or(u32::MAX)),
                shares: shared.then(|| egress.shares.map(|share| share as f64 / 1e9)),
            }
        };
        stages.egresses.iter().zip(&analysis.queues).map(queue).collect()
    }
}

/// The queue of one direction of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    /// Bytes that wait at most; `None`: no bound.
    pub bytes: Option<f64>,
    /// Packets of one class that wait at most.
    pub packets: Option<u32>,
    /// Share of each class, 0…1.
    pub shares: Option<[f64; 4]>,
}

/// The place of each subscriber's proxy; none if nothing is scaled.
fn places(system: &System, placed: &Placed) -> Vec<Place> {
    let (publisher, node, topic) = (placed.group.publisher, placed.node, &system.topics[placed.group.topic]);
    let subscribers = &placed.group.subscribers;
    if !subscribers.iter().any(|subscriber| scales(topic, &system.subscribers[*subscriber])) {
        return Vec::new();
    }
    subscribers.iter().map(|subscriber| Place { publisher, subscriber: *subscriber, node }).collect()
}

fn without_processors(system: &System) -> System {
    let mut system = system.clone();
    system.topics.iter_mut().for_each(|topic| topic.cpu_send = 0);
    system.subscribers.iter_mut().for_each(|subscriber| subscriber.cpu_receive = 0);
    system.placement.cpu_proxy = 0;
    system
}

/// `true` for the terms that response times alone leave out: queues at links.
fn waits_on_link(term: &end_to_end::Term) -> bool {
    matches!(term.at, Where::Link(_)) && !["transmission", "propagation", "forwarding"].contains(&term.what)
}

/// Terms with names of their own.
fn named<'a>(system: &System, terms: impl Iterator<Item = &'a end_to_end::Term>) -> Vec<Term> {
    let mut all: Vec<&end_to_end::Term> = Vec::new();
    let term = |term: &'a end_to_end::Term| {
        let before = all.iter().filter(|other| (other.at, other.what) == (term.at, term.what)).count();
        all.push(term);
        let name = format!("{}: {}", term.at.name(system), term.what);
        let name = if before == 0 { name } else { format!("{name} #{}", before + 1) };
        Term::new(name, term.ns as f64 / 1e3, because(system, term))
    };
    terms.map(term).collect()
}

/// The calculation of a term, with its bytes if it is a number of bytes.
fn because(system: &System, term: &end_to_end::Term) -> String {
    let Where::Link(direction) = term.at else { return term.source.to_owned() };
    let link = &system.links[direction.link];
    let bytes = u128::from(term.ns) * u128::from(link.rate) / 8_000_000_000;
    let of = || format!("{bytes} B at {}", show_bit_rate(link.rate as f64));
    // Shares are served at less than the link's rate.
    let waits = term.what.starts_with("waiting") && matches!(link.scheduler, Scheduler::Fifo | Scheduler::Strict);
    match term.what {
        "transmission" if link.transmission.is_none() => format!("{}, headers included", of()),
        what if (what.starts_with("blocking") || waits) && link.transmission.is_none() => {
            format!("{}: {}", of(), term.source)
        }
        _ => term.source.to_owned(),
    }
}

/// P-20 and P-21.
fn paper_hop(system: &System, path: &Path) -> Delay {
    let scaled = path.scaled_period();
    let period = path.topic.period.saturating_mul(u64::from(path.subscriber.scale_before_proxy()));
    let each = |(at, hop): (usize, &path::Hop)| {
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
fn velox(system: &System, path: &Path, model: Model) -> Delay {
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
    let hop = |hop: &path::Hop| {
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

/// Percentiles of the delay with a queue at the publisher: of M/M/1 beside bounds, where a service time is stated; the other models have no
/// distribution.
pub(super) fn percentiles(system: &System, path: &Path, model: Model, queues: &[Mm1]) -> Option<Percentiles> {
    let (queue, own) = (*queues.get(path.publisher)?, path.topic.service as f64 / 1e9);
    let room = path.topic.buffer.filter(|_| model == Model::Mm1k);
    let model = match model {
        Model::Mm1 | Model::Mm1k => model,
        Model::Bound if own > 0.0 => Model::Mm1,
        _ => return None,
    };
    let at = |part: f64| match room {
        None => queue.percentile(own, part),
        // Its states are those of one service time for all.
        Some(room) => Mm1k { queue, room }.percentile(part).filter(|_| (own / queue.service - 1.0).abs() < 1e-6),
    };
    let fixed = micros(path.topic.hand_in) + network(system, path).us + micros(path.topic.hand_out);
    let whole = |part: f64| at(part).map(|seconds| fixed + seconds * 1e6);
    Some(Percentiles { model, p50_us: whole(0.5)?, p99_us: whole(0.99)?, p999_us: whole(0.999)? })
}

/// The queue of each node's publishers, for [`percentiles`].
pub(super) fn publishers(system: &System) -> Vec<Mm1> {
    let mut streams = vec![Vec::new(); system.nodes.len()];
    let each = |topic: &Topic| {
        let stream = (topic.rate, topic.service);
        topic.publishers.clone().into_iter().map(move |node| (node, stream))
    };
    system.topics.iter().flat_map(each).for_each(|(node, stream)| streams[node].push(stream));
    streams.into_iter().map(|of_node| queue(of_node.into_iter())).collect()
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

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}
