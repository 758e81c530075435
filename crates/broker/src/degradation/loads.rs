//! The least that links have to carry, whatever plan is made: a set of subscribers with which that is more than a link carries surely does not fit, and
//! that is told in microseconds, where a plan takes milliseconds.

mod filling;

pub(super) use filling::Filling;

use super::Step;
use super::concerned::way;
use super::pipes::PARTS;
use crate::links::Rates;
use crate::planning::{Present, Reduction};
use qos::contract::joined::Joined;
use qos::network::{Direction, Network, wire_load};
use qos::system::{Link, Subscriber, Topic};
use std::collections::{BTreeMap, BTreeSet};

/// Each subscriber (index): whether it is left out, and its ratio of published samples to those that it gets; of a pipe its size ([`super::pipes`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub gone: Vec<bool>,
    pub scale: Vec<u32>,
}

/// The loads of links, by what is taken.
#[derive(Debug)]
pub(super) struct Model {
    loads: Loads,
    /// For each session (index), the subscribers (indices) that are gone without it: its own, and those of sessions that need it.
    without: Vec<Vec<usize>>,
    /// Each subscriber (index) by itself.
    alone: Vec<usize>,
    /// The streams (indices) of each subscriber, and of each topic.
    streams_of: Vec<Vec<usize>>,
    streams_of_topic: Vec<Vec<usize>>,
    base: Wanted,
}

impl Model {
    /// With what is taken back in any case.
    pub fn new(present: Present<'_>, whole: &Joined, base: &Reduction) -> Self {
        let subscribers = &whole.contract.system.subscribers;
        let is_pipe = |one: &Subscriber| whole.contract.system.topics[one.topic].pipe;
        let scale = subscribers.iter().map(|one| if is_pipe(one) { PARTS } else { one.scale }).collect();
        let mut wanted = Wanted { gone: vec![false; subscribers.len()], scale };
        let without = without(whole);
        let suspended = |name: &String| base.suspended.contains_key(name);
        let gone = present.sessions.iter().zip(&without).filter(|(session, _)| suspended(&session.name));
        gone.flat_map(|(_, its)| its).for_each(|index| wanted.gone[*index] = true);
        let loads = Loads::new(whole, present.links);
        let alone: Vec<usize> = (0..subscribers.len()).collect();
        let mut streams_of = vec![Vec::new(); subscribers.len()];
        let mut streams_of_topic = vec![Vec::new(); whole.contract.system.topics.len()];
        for (index, stream) in loads.streams.iter().enumerate() {
            streams_of_topic[stream.topic].push(index);
            stream.receivers.iter().for_each(|one| streams_of[one.index].push(index));
        }
        Self { loads, without, alone, streams_of, streams_of_topic, base: wanted }
    }

    /// The subscribers (indices) that are gone if this step is taken; none if it thins one.
    fn lost(&self, step: &Step) -> &[usize] {
        match step {
            Step::Scale { .. } | Step::Shrink { .. } => &[],
            Step::Suspend { index, .. } => &self.without[*index],
            Step::LeaveOut { index, .. } => &self.alone[*index..=*index],
        }
    }

    /// `true` if a link has to carry more than it can, though these steps are taken: then no plan fits.
    pub fn exceed<'a>(&self, taken: impl Iterator<Item = &'a Step>) -> bool {
        self.loads.exceed(&self.with(taken))
    }

    /// The least of these steps with which no link carries more than this share of its rate, and the bursts of all its streams at once take no more than
    /// this share of the longest deadline there: then a plan mostly fits. Those that thin do it no more than needed; the more important ones are given
    /// back first. All of them, if they are not enough.
    pub fn least(&self, share: f64, steps: &mut [Step]) -> Vec<usize> {
        let mut filling = Filling::new(self, share, steps);
        if !filling.fits() {
            return (0..steps.len()).collect();
        }
        let mut taken: Vec<usize> = (0..steps.len()).rev().filter(|step| !filling.gives_back(&steps[*step])).collect();
        for step in &taken {
            if let Step::Scale { index, own, most, .. } | Step::Shrink { index, own, most, .. } = &mut steps[*step] {
                let (mut too_little, mut enough) = (*own, *most);
                while enough - too_little > 1 {
                    let middle = u32::midpoint(too_little, enough);
                    if filling.scales(*index, middle) { enough = middle } else { too_little = middle }
                }
                *most = enough;
            }
        }
        taken.reverse();
        taken
    }

    /// What is wanted without what these steps take.
    pub fn with<'a>(&self, taken: impl Iterator<Item = &'a Step>) -> Wanted {
        let mut wanted = self.base.clone();
        for step in taken {
            match step {
                Step::Scale { index, most, .. } | Step::Shrink { index, most, .. } => {
                    wanted.scale[*index] = wanted.scale[*index].max(*most);
                }
                _ => self.lost(step).iter().for_each(|gone| wanted.gone[*gone] = true),
            }
        }
        wanted
    }
}

/// For each session, the subscribers of it and of those that need it, directly or not.
fn without(whole: &Joined) -> Vec<Vec<usize>> {
    let system = &whole.contract.system;
    let mut of_subscriber: BTreeMap<usize, usize> = BTreeMap::new();
    let mut of_topic: BTreeMap<usize, usize> = BTreeMap::new();
    for (session, part) in whole.parts.iter().enumerate() {
        of_subscriber.extend(part.subscribers.iter().map(|index| (*index, session)));
        of_topic.extend(part.topics.iter().map(|index| (*index, session)));
    }
    let mut needed_by: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); whole.parts.len()];
    for (session, part) in whole.parts.iter().enumerate() {
        let chains = part.chains.iter().flat_map(|chain| &system.chains[*chain].parts).map(|part| part.subscriber);
        let all: Vec<usize> = part.subscribers.iter().copied().chain(chains).collect();
        let topics = all.iter().filter_map(|index| of_topic.get(&system.subscribers[*index].topic));
        let needed = topics.chain(all.iter().filter_map(|index| of_subscriber.get(index)));
        for other in needed.filter(|other| **other != session) {
            needed_by[*other].insert(session);
        }
    }
    let closure = |first: usize| {
        let (mut known, mut left) = (BTreeSet::from([first]), vec![first]);
        while let Some(session) = left.pop() {
            left.extend(needed_by[session].iter().filter(|other| known.insert(**other)));
        }
        known.iter().flat_map(|session| whole.parts[*session].subscribers.iter().copied()).collect()
    };
    (0..whole.parts.len()).map(closure).collect()
}

/// The streams of topics over links.
#[derive(Debug, Default)]
struct Loads {
    /// bit/s that each direction of a link carries.
    rates: Vec<f64>,
    streams: Vec<Stream>,
    /// The topic of each subscriber, and whether its samples are made smaller whatever its ratio is.
    topics: Vec<(usize, bool)>,
    /// Those that are pipes.
    pipes: Vec<bool>,
    /// The deadline of each subscriber, s.
    deadlines: Vec<Option<f64>>,
}

/// A publisher's samples of one topic in one direction of a link.
#[derive(Debug)]
struct Stream {
    topic: usize,
    /// The direction (index).
    direction: usize,
    /// Bits of the samples that may come at once.
    burst: f64,
    /// The subscribers behind it.
    receivers: Vec<Receiver>,
}

#[derive(Debug)]
struct Receiver {
    /// The subscriber (index).
    index: usize,
    /// bit/s of all samples, as it gets them.
    load: f64,
    /// There is a way through a node that may be a proxy, and not in this direction: samples of a topic with proxies may go there.
    avoids: bool,
}

impl Loads {
    /// The streams of contract and sessions on these links.
    fn new(whole: &Joined, links: &Rates) -> Self {
        let mut system = whole.contract.system.clone();
        for link in &mut system.links {
            let rate = links.get(&link.name).copied().unwrap_or(link.rate);
            (link.down, link.rate) = (rate == 0, rate.min(link.rate));
        }
        let mut ways = Ways { network: Network::new(&system), known: BTreeMap::new() };
        let proxies: Vec<usize> = (0..system.nodes.len()).filter(|node| system.nodes[*node].proxy).collect();
        let mut directions: BTreeMap<Direction, usize> = BTreeMap::new();
        let mut streams: BTreeMap<(usize, usize, usize), Vec<Receiver>> = BTreeMap::new();
        for (index, one) in system.subscribers.iter().enumerate() {
            let topic = &system.topics[one.topic];
            // A picture may become as small as its subscriber likes.
            let size = if one.picture.is_some() { 0 } else { one.scaled_size.unwrap_or(topic.size).min(topic.size) };
            for publisher in &topic.publishers {
                for at in ways.direct(*publisher, one.node) {
                    let count = directions.len();
                    let direction = *directions.entry(at).or_insert(count);
                    let load = wire_load(&system.links[at.link], size, topic.rate);
                    let load = if topic.pipe { load * f64::from(PARTS) } else { load };
                    let avoids = proxies.iter().any(|proxy| ways.avoid(*publisher, *proxy, one.node, at));
                    let receivers = streams.entry((one.topic, *publisher, direction)).or_default();
                    receivers.push(Receiver { index, load, avoids });
                }
            }
        }
        let mut at: Vec<(Direction, usize)> = directions.into_iter().collect();
        at.sort_unstable_by_key(|(_, index)| *index);
        let links: Vec<&Link> = at.iter().map(|(at, _)| &system.links[at.link]).collect();
        let stream = |((topic, _, direction), receivers): ((usize, usize, usize), Vec<Receiver>)| {
            let Topic { size, burst, .. } = system.topics[topic];
            let burst = wire_load(links[direction], size, f64::from(burst));
            Stream { topic, direction, burst, receivers }
        };
        let rates = links.iter().map(|link| link.rate as f64).collect();
        let of_one = |one: &Subscriber| (one.topic, one.picture.is_some() || one.scaled_size.is_some());
        let topics = system.subscribers.iter().map(of_one).collect();
        let deadlines = system.subscribers.iter().map(|one| one.deadline.map(|ns| ns as f64 / 1e9)).collect();
        let pipes = system.subscribers.iter().map(|one| system.topics[one.topic].pipe).collect();
        Self { rates, streams: streams.into_iter().map(stream).collect(), topics, pipes, deadlines }
    }

    /// `true` if a link has to carry more than its rate. A stream goes once over a link, at least as often as the subscriber behind it
    /// wants that gets most of it.
    fn exceed(&self, wanted: &Wanted) -> bool {
        let mut with_proxies = BTreeSet::new();
        for (index, (topic, smaller)) in self.topics.iter().enumerate() {
            if !wanted.gone[index] && !self.pipes[index] && (*smaller || wanted.scale[index] > 1) {
                with_proxies.insert(*topic);
            }
        }
        let mut loads = vec![0.0; self.rates.len()];
        for Stream { topic, direction, receivers, .. } in &self.streams {
            let may_avoid = with_proxies.contains(topic);
            let there = receivers.iter().filter(|one| !(wanted.gone[one.index] || may_avoid && one.avoids));
            let each = there.map(|one| one.load / f64::from(wanted.scale[one.index].max(1)));
            loads[*direction] += each.fold(0.0, f64::max);
        }
        // A sum of so few terms is exact to a millionth.
        loads.iter().zip(&self.rates).any(|(load, rate)| *load > rate * (1.0 + 1e-6))
    }
}

/// The shortest ways between nodes, each looked for once.
struct Ways {
    network: Network,
    known: BTreeMap<(usize, usize), Vec<Direction>>,
}

impl Ways {
    fn direct(&mut self, from: usize, to: usize) -> Vec<Direction> {
        self.known.entry((from, to)).or_insert_with(|| way(&self.network, from, to)).clone()
    }

    /// `true` if the way over this node does not go in this direction.
    fn avoid(&mut self, from: usize, over: usize, to: usize, at: Direction) -> bool {
        let is_way = |ways: &Self, from, to| from == to || ways.network.hops(from, to).is_some();
        is_way(self, from, over)
            && is_way(self, over, to)
            && !self.direct(from, over).contains(&at)
            && !self.direct(over, to).contains(&at)
    }
}
