//! Bounds of processors and links together.

use super::means::Delay;
use super::paths;
use crate::Class;
use crate::analysis::Steps;
use crate::analysis::end_to_end::{self, Bound, Where};
use crate::analysis::stages::{Pair, Place, Role, Step};
use crate::assignment::{Assignment, assign, fifo_priority};
use crate::network::Network;
use crate::placement::Placed;
use crate::plan::{Model, Term};
use crate::quantity::show_bit_rate;
use crate::system::{Scheduler, System};
use std::collections::HashMap;

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
            if let Step::Compute { processor, .. } = stage.step {
                threads[processor] += 1;
            }
        }
        Some(Self { system, assignment, threads, pairs, model })
    }

    /// The class of each topic.
    pub(super) fn classes(&self) -> Vec<Class> {
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
                Step::Compute { processor, rank, role, .. } if role == wanted => {
                    Some(format!("fifo:{}", fifo_priority(rank, self.threads[processor])))
                }
                _ => None,
            })
        };
        [thread(Role::Send), thread(Role::Receive(subscriber))]
    }

    /// The bound of a channel, and its terms.
    pub(super) fn of(&self, topic: usize, publisher: usize, subscriber: usize) -> Delay {
        let Some(Bound { ns, terms }) =
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

    /// Bytes that wait at most in each direction of each link; `None`: no bound.
    pub(super) fn backlogs(&self) -> Vec<Option<f64>> {
        let bytes = |classes: &[end_to_end::QueueBound; 4]| {
            let used = classes.iter().filter(|class| class.streams > 0);
            used.map(|class| class.room.map(|room| room.bytes as f64)).sum::<Option<f64>>().map(|bytes| bytes + 0.0)
        };
        self.assignment.analysis.queues.iter().map(bytes).collect()
    }
}

/// The place of each subscriber's proxy; none if nothing is scaled.
fn places(system: &System, placed: &Placed) -> Vec<Place> {
    let (publisher, node, topic) = (placed.group.publisher, placed.node, &system.topics[placed.group.topic]);
    let subscribers = &placed.group.subscribers;
    if !subscribers.iter().any(|subscriber| paths::scales(topic, &system.subscribers[*subscriber])) {
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
    let mut counts: HashMap<String, u32> = HashMap::new();
    let term = |term: &end_to_end::Term| {
        let name = format!("{}: {}", term.at.name(system), term.what);
        let count = counts.entry(name.clone()).or_insert(0);
        *count += 1;
        let name = if *count == 1 { name } else { format!("{name} #{count}") };
        Term::new(name, term.ns as f64 / 1e3, because(system, term))
    };
    terms.map(term).collect()
}

/// The calculation of a term, with its bytes if it is a number of bytes.
fn because(system: &System, term: &end_to_end::Term) -> String {
    let Where::Link(direction) = term.at else { return term.source.to_owned() };
    let link = &system.links[direction.link];
    let bytes = (u128::from(term.ns) * u128::from(link.rate) / 8_000_000_000) as f64;
    let of = format!("{bytes:.0} B at {}", show_bit_rate(link.rate as f64));
    // Shares are served at less than the link's rate.
    let waits = term.what.starts_with("waiting") && matches!(link.scheduler, Scheduler::Fifo | Scheduler::Strict);
    match term.what {
        "transmission" if link.transmission.is_none() => format!("{of}, headers included"),
        what if (what.starts_with("blocking") || waits) && link.transmission.is_none() => {
            format!("{of}: {}", term.source)
        }
        _ => term.source.to_owned(),
    }
}
