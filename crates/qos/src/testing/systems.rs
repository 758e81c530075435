//! Small systems of any kind, a function of their seed.

use crate::Class;
use crate::analysis::stages::{Classes, Place};
use crate::simulate::Chance;
use crate::system::{
    Chain, ChainPart, LatencyBudget, Link, Node, NodeKind, Objective, Pace, Placement, PlacementDelay, Proxies, Sched,
    Scheduler, Subscriber, System, Topic, Transport,
};

/// A system, and the decisions of a plan: any decision has its bounds.
#[derive(Clone, Debug)]
pub struct Sketch {
    /// Two to seven nodes in a tree or a ring, up to eight topics; loads from light to too much.
    pub system: System,
    /// The class of each channel: in three of four systems that of its topic.
    pub classes: Classes,
    /// Places of proxies.
    pub places: Vec<Place>,
}

/// The sketch of a seed.
pub fn sketch(seed: u64) -> Sketch {
    let mut pencil = Pencil { chance: Chance(seed), system: System { name: "random".into(), ..System::default() } };
    pencil.nodes();
    pencil.links();
    let (mut of_topics, mut places) = (Vec::new(), Vec::new());
    for _ in 0..1 + pencil.one_of(&[0, 1, 2, 3, 4, 5, 6, 7]) {
        pencil.topic();
        of_topics.push(Class::ALL[pencil.one_of(&[0, 1, 1, 2, 3]) as usize]);
        for _ in 0..1 + pencil.one_of(&[0, 0, 1, 2]) {
            places.extend(pencil.subscriber());
        }
    }
    pencil.system.placement = Placement {
        transport: if pencil.one_of(&[0, 1]) == 1 { Transport::Multicast } else { Transport::Unicast },
        proxies: if pencil.one_of(&[0, 1]) == 1 { Proxies::Merged } else { Proxies::PerTopic },
        cpu_proxy: pencil.one_of(&[0, 20_000]),
        ..Placement::default()
    };
    let Pencil { mut chance, mut system } = pencil;
    let mut classes = Classes::new(&system, |topic| of_topics[topic]);
    if seed % 4 == 2 {
        let installed = |link: &mut Link| link.devices = [Some("eth0".into()), Some("eth1".into())];
        system.links.iter_mut().for_each(installed);
    }
    if seed % 4 == 3 || seed % 8 == 6 {
        let limits = [None, Some(1), Some(3)];
        let limit = |place: usize| limits[(seed as usize / 8 + place) % 3];
        let limited = |(at, link): (usize, &mut Link)| link.segments = [limit(at), limit(at + 1)];
        system.links.iter_mut().enumerate().for_each(limited);
    }
    if seed % 8 == 3 {
        system.nodes.iter_mut().for_each(|node| node.sched = Some(Sched::Reserved));
    }
    if seed % 8 == 7 {
        let sched = |(index, topic): (usize, &mut Topic)| topic.sched = (index % 2 == 0).then_some(Sched::Reserved);
        system.topics.iter_mut().enumerate().for_each(sched);
    }
    if seed % 16 == 5 {
        give_budgets(&mut system, seed);
    }
    if seed % 4 == 1 {
        let class = |chance: &mut Chance| Class::ALL[chance.below(4) as usize];
        classes.ways().iter().for_each(|(from, to)| classes.set(*from, *to, class(&mut chance)));
    }
    Sketch { system, classes, places }
}

/// The sketch of a seed whose publishers have latency budgets.
pub fn gathering(seed: u64) -> Sketch {
    let mut sketch = sketch(seed);
    give_budgets(&mut sketch.system, seed);
    sketch
}

fn give_budgets(system: &mut System, seed: u64) {
    let mut chance = Chance(seed ^ 0x6761_7468_6572);
    let budgets = [None, Some(300_000), Some(1_000_000), Some(2_000_000), Some(50_000_000)];
    for topic in &mut system.topics {
        let budget = budgets[chance.below(budgets.len() as u64) as usize];
        topic.latency_budget = budget.map(LatencyBudget::Stated);
    }
}

/// The sketch of a seed whose publishers have a pace: of large samples, from just enough to three times as much.
pub fn pacing(seed: u64) -> Sketch {
    let mut sketch = sketch(seed);
    let mut chance = Chance(seed ^ 0x7061_6365);
    let mtu = sketch.system.links.iter().map(|link| link.mtu).min().unwrap_or(1500);
    for topic in &mut sketch.system.topics {
        topic.size = topic.size.saturating_mul([1, 4, 16][chance.below(3) as usize]).min(24 * mtu);
        let bits = (topic.size as f64 * 8.0 + 2000.0) * 1e9 / topic.period.max(1) as f64;
        let times = [1.1, 1.5, 3.0][chance.below(3) as usize];
        topic.pace = (chance.below(4) > 0).then_some(Pace::Stated((bits * times) as u64 + 1));
    }
    sketch
}

/// The sketch of a seed with a queue for control traffic before each link: by `htb`, with up to a tenth of the link.
pub fn controlled(seed: u64) -> Sketch {
    let mut sketch = sketch(seed);
    for (index, link) in sketch.system.links.iter_mut().enumerate() {
        (link.scheduler, link.transmission, link.shares) = (Scheduler::Htb, None, None);
        link.control = (link.rate / [10, 20, 50][(seed as usize + index) % 3]).max(1000);
    }
    sketch
}

/// The sketch of a seed in which every other topic that only hosts publish has a queue of its own, before links by `htb` with installed queues; where none of them
/// begins each packet may take the same time. Threads take no time: a queue protects no processor.
pub fn owning(seed: u64) -> Sketch {
    let mut sketch = sketch(seed);
    // What goes through a relay has none.
    sketch.places.clear();
    let system = &mut sketch.system;
    system.placement.transport = Transport::Unicast;
    let mut begins = vec![false; system.nodes.len()];
    for (index, topic) in system.topics.iter_mut().enumerate() {
        let on_hosts = topic.publishers.iter().all(|node| system.nodes[*node].kind == NodeKind::Host);
        topic.cpu_send = 0;
        topic.own_queue = on_hosts && (index as u64 + seed).is_multiple_of(2);
        topic.publishers.iter().filter(|_| topic.own_queue).for_each(|node| begins[*node] = true);
    }
    for (index, link) in system.links.iter_mut().enumerate() {
        (link.scheduler, link.transmission, link.shares) = (Scheduler::Htb, None, None);
        link.devices = [Some("eth0".into()), Some("eth1".into())];
        if !link.between.iter().any(|node| begins[*node]) && (index as u64 + seed / 2).is_multiple_of(2) {
            link.transmission = Some(wire_time(link));
        }
    }
    for subscriber in &mut system.subscribers {
        subscriber.cpu_receive = 0;
        subscriber.deadline = Some(100_000_000 + 4 * system.topics[subscriber.topic].period);
    }
    sketch
}

/// The time of a full packet on a link, ns.
fn wire_time(link: &Link) -> u64 {
    (link.mtu + link.overhead) * 8_000_000_000 / link.rate
}

/// The longest time that a contract may state, ns.
const DAY: u64 = 86_400_000_000_000;

/// The system of a seed with some quantities at the limits of a contract: samples that are too large, or links that
/// are too slow, never both (no link may take longer than a day for a sample).
pub fn extreme(seed: u64) -> System {
    let mut chance = Chance(!seed);
    let with_chain = if Chance(seed.rotate_left(32)).below(4) == 0 { chained(seed) } else { None };
    let mut system = with_chain.unwrap_or_else(|| sketch(seed)).system;
    let large = chance.below(2) == 0;
    system.links.iter_mut().for_each(|link| strain_link(link, chance.below(10), large));
    system.topics.iter_mut().for_each(|topic| strain_topic(topic, chance.below(12), large));
    for subscriber in &mut system.subscribers {
        match chance.below(8) {
            0 => subscriber.scale = 1_000_000,
            1 => subscriber.deadline = Some(1),
            2 => subscriber.deadline = None,
            3 => subscriber.cpu_receive = DAY,
            _ => {}
        }
    }
    for chain in &mut system.chains {
        chain.deadline = [Some(1), Some(100_000_000), Some(DAY), None][chance.below(4) as usize];
    }
    let objectives = [Objective::Messages, Objective::Bandwidth, Objective::Cpu, Objective::Weighted];
    system.placement.objective = objectives[chance.below(4) as usize];
    system.placement.delay = if chance.below(2) == 0 { PlacementDelay::Paper } else { PlacementDelay::Bound };
    system
}

fn strain_link(link: &mut Link, how: u64, large: bool) {
    match how {
        0 => link.rate = 10_000_000_000_000,
        1 => link.delay = DAY,
        2 => link.forwarding = DAY,
        3 => link.background = link.rate,
        4 => link.shares = Some([1e-6, 1e-6, 1e-6, 0.9]),
        5 if !large => link.rate = 1000,
        6 if !large => (link.mtu, link.overhead) = (32, 65_536),
        7 if !large => (link.mtu, link.transmission) = (65_536, Some(DAY)),
        _ => {}
    }
}

fn strain_topic(topic: &mut Topic, how: u64, large: bool) {
    match how {
        0 => (topic.size, topic.period, topic.rate) = (1, 100, 1e7),
        1 => (topic.period, topic.rate) = (DAY, 1.0 / 86_400.0),
        2 => topic.jitter = DAY,
        3 => topic.burst = 1_000_000,
        4 => topic.cpu_send = DAY,
        5 => (topic.hand_in, topic.hand_out) = (DAY, DAY),
        7 => topic.latency_budget = Some(LatencyBudget::Auto),
        8 => topic.latency_budget = Some(LatencyBudget::Stated(DAY)),
        9 => topic.pace = Some(Pace::Auto),
        10 => topic.pace = Some(Pace::Stated(8000)),
        11 => topic.pace = Some(Pace::Stated(10_000_000_000_000)),
        6 if large => topic.size = 1 << 30,
        _ => {}
    }
}

/// The sketch of a seed with a chain over some of its topics, published by callbacks or sampled; its topics' publishers and rates are changed
/// for that. `None`: it has but one topic.
pub fn chained(seed: u64) -> Option<Sketch> {
    let mut sketch = sketch(seed);
    let system = &mut sketch.system;
    let mut chance = Chance(seed ^ 0x6368_6169_6e73);
    let mut left: Vec<usize> = (0..system.topics.len()).collect();
    let most = 2 + chance.below(3) as usize;
    let mut parts: Vec<ChainPart> = Vec::new();
    while parts.len() < most && !left.is_empty() {
        let topic = left.swap_remove(chance.below(left.len() as u64) as usize);
        let wanted: Vec<usize> =
            (0..system.subscribers.len()).filter(|i| system.subscribers[*i].topic == topic).collect();
        let subscriber = wanted[chance.below(wanted.len() as u64) as usize];
        let sampled = !parts.is_empty() && chance.below(2) == 0;
        let before = parts.last().map(|part: &ChainPart| system.subscribers[part.subscriber].clone());
        let publisher = before.as_ref().map_or(system.topics[topic].publishers[0], |before| before.node);
        system.topics[topic].publishers = vec![publisher];
        if let Some(before) = before.filter(|_| !sampled) {
            let period = system.topics[before.topic].period * u64::from(before.scale);
            (system.topics[topic].period, system.topics[topic].rate) = (period, 1e9 / period as f64);
        }
        parts.push(ChainPart { publisher, subscriber, sampled });
    }
    // A proxy of a publisher that is none any more.
    let topics = &system.topics;
    let subscribers = &system.subscribers;
    sketch.places.retain(|place| topics[subscribers[place.subscriber].topic].publishers.contains(&place.publisher));
    let several = parts.len() > 1;
    system.chains = vec![Chain { name: "chain".into(), parts, deadline: None }];
    several.then_some(sketch)
}

struct Pencil {
    chance: Chance,
    system: System,
}

impl Pencil {
    fn one_of(&mut self, list: &[u64]) -> u64 {
        list[self.chance.below(list.len() as u64) as usize]
    }

    fn node(&mut self) -> usize {
        self.chance.below(self.system.nodes.len() as u64) as usize
    }

    fn nodes(&mut self) {
        let kinds = [NodeKind::Host, NodeKind::Host, NodeKind::Host, NodeKind::Router, NodeKind::Switch];
        for i in 0..2 + self.one_of(&[0, 1, 2, 3, 4, 5]) {
            let kind = if i < 2 { NodeKind::Host } else { kinds[self.chance.below(5) as usize] };
            let cpus = self.one_of(&[1, 1, 2]) as u32;
            self.system.nodes.push(Node { name: format!("n{i}"), kind, cpus, proxy: true, ..Node::default() });
        }
    }

    fn links(&mut self) {
        let count = self.system.nodes.len();
        for i in 1..count {
            let to = self.chance.below(i as u64) as usize;
            self.join(to, i);
        }
        if count > 3 && self.one_of(&[0, 1]) == 1 {
            self.join(0, count - 1);
        }
    }

    fn join(&mut self, a: usize, b: usize) {
        let schedulers = [Scheduler::Fifo, Scheduler::Strict, Scheduler::Strict, Scheduler::Htb, Scheduler::Hfsc];
        let rate = self.one_of(&[10, 100, 100, 1000]) * 1_000_000;
        let link = Link {
            name: format!("l{}", self.system.links.len()),
            between: [a, b],
            rate,
            delay: self.one_of(&[0, 500, 50_000]),
            forwarding: self.one_of(&[0, 5000]),
            mtu: self.one_of(&[1500, 1500, 600]),
            overhead: self.one_of(&[0, 66]),
            scheduler: schedulers[self.one_of(&[0, 1, 2, 3, 4]) as usize],
            shares: self.one_of(&[0, 1]).eq(&1).then_some([0.2, 0.45, 0.3, 0.05]),
            background: rate / 100 * self.one_of(&[0, 0, 0, 10, 40]),
            ..Link::default()
        };
        self.system.links.push(link);
    }

    fn topic(&mut self) {
        let period = self.one_of(&[1, 2, 5, 10, 20, 33]) * self.one_of(&[500_000, 1_000_000, 1_000_003]);
        let publisher = self.node();
        let topic = Topic {
            name: format!("t{}", self.system.topics.len()),
            size: self.one_of(&[8, 64, 200, 1000, 1500, 4000, 8192, 20_000]),
            period,
            rate: 1e9 / period as f64,
            jitter: self.one_of(&[0, 0, 0, 100_000, period / 2, period * 2]),
            burst: self.one_of(&[1, 1, 1, 2, 4]) as u32,
            publishers: if self.one_of(&[0, 0, 0, 1]) == 1 { vec![publisher, self.node()] } else { vec![publisher] },
            cpu_send: self.one_of(&[0, 10_000, 50_000, 200_000]),
            hand_in: self.one_of(&[0, 0, 1600]),
            hand_out: self.one_of(&[0, 0, 42_000]),
            ..Topic::default()
        };
        self.system.topics.push(topic);
        self.system.topics.last_mut().into_iter().for_each(|topic| topic.publishers.dedup());
    }

    /// A subscriber of the last topic, and the places of its proxies.
    fn subscriber(&mut self) -> Vec<Place> {
        let (scale, node) = (self.one_of(&[1, 1, 2, 3]) as u32, self.node());
        let subscriber = self.system.subscribers.len();
        let proxy = (scale > 1).then(|| self.node());
        let deadlines = self.one_of(&[1, 2, 5]);
        let cpu_receive = self.one_of(&[0, 10_000, 50_000, 200_000]);
        let index = self.system.topics.len() - 1;
        let topic = &self.system.topics[index];
        let places = proxy.into_iter().flat_map(|node| topic.publishers.iter().map(move |p| (*p, node)));
        let places = places.map(|(publisher, node)| Place { publisher, subscriber, node }).collect();
        self.system.subscribers.push(Subscriber {
            topic: index,
            node,
            name: format!("/s{subscriber}"),
            scale,
            scaled_size: (scale == 3).then_some(topic.size / 2),
            deadline: Some(topic.period * deadlines),
            cpu_receive,
            ..Subscriber::default()
        });
        places
    }
}
