//! Systems of any size for measuring the planner: a function of their seed.
//!
//! The network is a tree in which nodes near the root have more neighbours, with some links across. Topics'
//! subscribers are anywhere; their deadlines leave room for a proxy at some places, but not at all. Links are as fast
//! as their load when every proxy is *not* at its best places. So many of them are too slow for the best places, and
//! some others have as little room for moved proxies. Without that a system falls apart into its topics and there is
//! no problem to solve.

use qos::network::Network;
use qos::placement::{Effort, Outcome, Watch, place, table};
use qos::system::{Link, Node, Objective, Placement, Subscriber, System, Topic};

/// The size of a system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Nodes.
    pub nodes: usize,
    /// Subscribers.
    pub subscribers: usize,
    /// Topics, each with one publisher.
    pub topics: usize,
}

/// A generator of numbers that look random (SplitMix64).
pub struct Numbers(pub u64);

impl Numbers {
    /// Below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % limit.max(1) as u64) as usize
    }
}

/// Percentage of the links that get a narrow rate although they could have room for the load of the best places.
const NARROW: usize = 20;

/// A system with links that bind; `how` states sharing and objective.
pub fn congested(size: Size, how: Placement, seed: u64) -> System {
    let mut numbers = Numbers(seed);
    let mut system = unbounded(size, how, &mut numbers);
    let network = Network::new(&system);
    let free = places(&system, &network, Vec::new());
    let away = elsewhere(&system, &network, &mut numbers);
    for (link, both) in system.links.iter_mut().enumerate() {
        let [best, left] = [&free, &away].map(|outcome| outcome.loads[2 * link].max(outcome.loads[2 * link + 1]));
        let narrow = best > left || numbers.below(100) < NARROW;
        both.rate = (if narrow { left * 1.05 } else { left * 1.3 + 1e5 }).ceil().max(1e4) as u64;
    }
    system
}

/// The placement when topics must keep away from their cheapest places: up to half of them, fewer if some topic would have no place left.
fn elsewhere(system: &System, network: &Network, numbers: &mut Numbers) -> Outcome {
    let mut part = 1;
    loop {
        let mut excluded = Vec::new();
        let mut topics = vec![false; system.topics.len()];
        for (group, mut candidates) in table(system, network) {
            if std::mem::replace(&mut topics[group.topic], true) {
                continue;
            }
            candidates.retain(|candidate| candidate.fits);
            candidates.sort_by(|a, b| a.cost.messages_per_s.total_cmp(&b.cost.messages_per_s));
            let away = candidates.iter().take(numbers.below(1 + candidates.len() / part));
            excluded.extend(away.map(|candidate| (group.topic, group.publisher, candidate.node)));
        }
        let outcome = places(system, network, excluded);
        if outcome.value.is_some() {
            return outcome;
        }
        part *= 2;
    }
}

struct Unhurried;

impl Watch for Unhurried {
    fn elapsed(&mut self) -> std::time::Duration {
        std::time::Duration::ZERO
    }
}

fn places(system: &System, network: &Network, excluded: Vec<(usize, usize, usize)>) -> Outcome {
    place(system, network, &Effort { excluded, ..Effort::default() }, &mut Unhurried)
}

/// The system with links that carry everything.
fn unbounded(size: Size, how: Placement, numbers: &mut Numbers) -> System {
    let node = |index| Node { name: format!("n{index}"), cpus: 4, proxy: true, ..Node::default() };
    let mut system = System { name: "congested".to_owned(), placement: how, ..System::default() };
    system.nodes = (0..size.nodes).map(node).collect();
    for node in 1..size.nodes {
        // The smaller of two: nodes that came first have more neighbours.
        let up = numbers.below(node).min(numbers.below(node));
        system.links.push(link(&system, up, node, numbers));
    }
    for _ in 0..size.nodes / 2 {
        let (a, b) = (numbers.below(size.nodes), numbers.below(size.nodes));
        if a != b {
            system.links.push(link(&system, a, b, numbers));
        }
    }
    system.topics = (0..size.topics).map(|index| topic(index, size.nodes, numbers)).collect();
    for index in 0..size.subscribers {
        let subscriber = Subscriber {
            topic: index % size.topics,
            node: numbers.below(size.nodes),
            name: format!("/s{index}"),
            scale: [1, 2, 2, 3, 4, 5, 10][numbers.below(7)],
            ..Subscriber::default()
        };
        system.subscribers.push(subscriber);
    }
    deadlines(&mut system, numbers);
    system
}

fn link(system: &System, a: usize, b: usize, numbers: &mut Numbers) -> Link {
    Link {
        name: format!("l{}", system.links.len()),
        between: [a, b],
        rate: u64::MAX >> 12,
        delay: 500 * numbers.below(100) as u64,
        mtu: 1500,
        overhead: 66,
        ..Link::default()
    }
}

fn topic(index: usize, nodes: usize, numbers: &mut Numbers) -> Topic {
    let rate = [10.0, 20.0, 25.0, 50.0, 100.0][numbers.below(5)];
    Topic {
        name: format!("t{index}"),
        size: [64, 256, 1024, 4096, 8192][numbers.below(5)],
        rate,
        period: (1e9 / rate) as u64,
        burst: 1,
        publishers: vec![numbers.below(nodes)],
        ..Topic::default()
    }
}

/// Sets each group's deadlines to those of some place, or up to half as long again.
fn deadlines(system: &mut System, numbers: &mut Numbers) {
    let network = Network::new(system);
    for (group, candidates) in table(system, &network) {
        let some = &candidates[numbers.below(candidates.len())];
        for (subscriber, delay) in group.subscribers.iter().zip(&some.delays) {
            let longest = delay.max(1e9 / system.topics[group.topic].rate);
            system.subscribers[*subscriber].deadline =
                Some((longest * (1.0 + numbers.below(50) as f64 / 100.0)) as u64);
        }
    }
}

/// The objective of the measured planner: messages, with one proxy for each topic, as in the paper.
pub fn as_in_the_paper() -> Placement {
    Placement { objective: Objective::Messages, cpu_weight: 0.5, ..Placement::default() }
}

/// The links in use, and those that bind: by their loads without limits, and as placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// Carry something in the answer.
    pub used: usize,
    /// Would be overloaded, in either direction, if each group had the place that is best for it alone: these limits change the answer.
    pub overloaded: usize,
    /// Have a price in the proof of the answer's bound, in either direction; `None`: its solver has no prices.
    pub priced: Option<usize>,
}

/// The links of a placed system that bind.
pub fn binding(system: &System, outcome: &Outcome) -> Binding {
    let mut free = system.clone();
    free.links.iter_mut().for_each(|link| link.rate = u64::MAX >> 12);
    let best = places(&free, &Network::new(&free), Vec::new());
    if outcome.loads.is_empty() {
        return Binding::default();
    }
    let either = |amounts: &[f64], least: &dyn Fn(&Link) -> f64| {
        let above = |(amounts, link): &(&[f64], &Link)| amounts.iter().any(|amount| *amount > least(link));
        amounts.chunks(2).zip(&system.links).filter(above).count()
    };
    Binding {
        used: either(&outcome.loads, &|_| 0.0),
        overloaded: either(&best.loads, &|link| link.rate as f64),
        priced: Some(&outcome.prices).filter(|prices| !prices.is_empty()).map(|prices| either(prices, &|_| 0.0)),
    }
}
