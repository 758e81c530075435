//! The problem: groups that each need a place, the costs of a place, and the limits that all of them share.

use std::collections::{HashMap, HashSet};

use super::{Cost, Limit};
use crate::network::{Direction, Network, Tree, wire_load};
use crate::system::{Objective, Proxies, Subscriber, System, Transport};

/// Tolerance of a limit: rounding, not a sample more.
const ROUNDING: f64 = 1e-9;

/// Subscribers that share one proxy for one publisher's stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The topic (index).
    pub topic: usize,
    /// The publisher's node (index).
    pub publisher: usize,
    /// The subscribers (indices).
    pub subscribers: Vec<usize>,
}

/// A subscriber's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Request {
    /// Every n-th sample.
    pub scale: u32,
    /// Its bytes.
    pub size: u64,
    picture: Option<[u32; 2]>,
}

/// Equal flows from a publisher to a proxy.
#[derive(Clone, Copy, Debug, Default)]
struct Feed {
    /// Every n-th sample.
    scale: u32,
    /// Samples per second of one.
    rate: f64,
    count: u32,
    /// Execution time (ns) to receive one sample of all of them.
    receive: u64,
}

impl Feed {
    /// A subscriber of it: with a flow of its own, or one for all.
    fn add(&mut self, receive: u64, each: bool) {
        self.count = if each { self.count + 1 } else { 1 };
        self.receive = if each { self.receive.saturating_add(receive) } else { self.receive.max(receive) };
    }
}

/// A stream that a link carries once for all groups that need it (multicast).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Stream {
    topic: usize,
    publisher: usize,
    /// Scaled by a proxy at this node; else as published.
    scaled: Option<(usize, Request)>,
}

/// A stream's copy on one link, or (`None`) the work of sending it.
pub(super) type Copy = (Stream, Option<Direction>);

/// A possible place of a group's proxy: its own cost and load, and the streams that it shares with others.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    pub node: usize,
    pub cost: Cost,
    pub uses: Vec<(usize, f64)>,
    pub shared: Vec<Copy>,
}

/// The whole problem. Limits are numbered: each direction of each link, then each node's proxies, then each node's processors.
#[derive(Clone)]
pub(super) struct Problem<'a> {
    pub system: &'a System,
    pub network: &'a Network,
    pub groups: Vec<Group>,
    /// Capacity of each limit: bit/s, samples/s, processors.
    pub capacity: Vec<f64>,
    /// Each subscriber's deadline, ns.
    pub deadlines: Vec<f64>,
    /// Every node may host a proxy.
    pub anywhere: bool,
    /// Places that were found unfit by other means (`delay = "bound"`): (topic, publisher, node).
    pub excluded: HashSet<(usize, usize, usize)>,
}

impl<'a> Problem<'a> {
    pub(super) fn new(system: &'a System, network: &'a Network) -> Self {
        let mut capacity = Vec::with_capacity(2 * (system.links.len() + system.nodes.len()));
        for link in &system.links {
            let rest = link.rate.saturating_sub(link.background).saturating_sub(link.control);
            capacity.extend([rest as f64; 2]);
        }
        capacity.extend(system.nodes.iter().map(|node| node.proxy_capacity.unwrap_or(f64::INFINITY).max(0.0)));
        capacity.extend(system.nodes.iter().map(|node| f64::from(node.cpus.max(1))));
        let deadline = |subscriber: &Subscriber| subscriber.deadline.map_or(f64::INFINITY, |deadline| deadline as f64);
        let deadlines = system.subscribers.iter().map(deadline).collect();
        let groups = groups(system);
        Self { system, network, groups, capacity, deadlines, anywhere: false, excluded: HashSet::new() }
    }

    /// The limit with this number.
    pub(super) fn limit(&self, number: usize) -> Limit {
        let (directions, nodes) = (2 * self.system.links.len(), self.system.nodes.len());
        match number {
            _ if number < directions => Limit::Link(Direction::at(number)),
            _ if number < directions + nodes => Limit::ProxyCapacity { node: number - directions },
            _ => Limit::Processors { node: number - directions - nodes },
        }
    }

    /// Loads by kind of limit: links' directions, proxies, processors.
    pub(super) fn apart(&self, mut loads: Vec<f64>) -> [Vec<f64>; 3] {
        let mut proxied = loads.split_off(2 * self.system.links.len());
        let processors = proxied.split_off(self.system.nodes.len());
        [loads, proxied, processors]
    }

    pub(super) fn proxies_of(&self, node: usize) -> usize {
        2 * self.system.links.len() + node
    }

    pub(super) fn processors_of(&self, node: usize) -> usize {
        2 * self.system.links.len() + self.system.nodes.len() + node
    }

    /// `true` if a load keeps a limit.
    pub(super) fn keeps(&self, number: usize, load: f64) -> bool {
        load <= self.capacity[number] * (1.0 + ROUNDING) + ROUNDING
    }

    pub(super) fn multicast(&self) -> bool {
        self.system.placement.transport == Transport::Multicast
    }

    /// `true` if each subscriber has a flow of its own on the way from the publisher to the proxy, as the paper counts.
    fn feeds_each(&self) -> bool {
        !self.multicast() && self.system.placement.proxies != Proxies::Merged
    }

    /// Samples per second on the way from the publisher to the proxy, over all flows there.
    pub(super) fn fed(&self, group: &Group) -> f64 {
        self.feeds(group).map(|feed| feed.rate * f64::from(feed.count)).sum()
    }

    /// The flows from the publisher to the proxy: those of the whole stream, and those that are thinned for pictures.
    fn feeds(&self, group: &Group) -> impl Iterator<Item = Feed> {
        let (mut whole, mut thinned) =
            (Feed { scale: 1, rate: self.published(group).0, ..Feed::default() }, Vec::new());
        for subscriber in group.subscribers.iter().map(|who| &self.system.subscribers[*who]) {
            let scale = subscriber.scale_before_proxy();
            let feed = match thinned.iter_mut().find(|feed: &&mut Feed| feed.scale == scale) {
                _ if scale == 1 => &mut whole,
                Some(feed) => feed,
                None => {
                    thinned.push(Feed { scale, rate: whole.rate / f64::from(scale), ..Feed::default() });
                    let last = thinned.len() - 1;
                    &mut thinned[last]
                }
            };
            feed.add(subscriber.cpu_receive, self.feeds_each());
        }
        std::iter::once(whole).chain(thinned).filter(|feed| feed.count > 0)
    }

    /// Samples per second that a publisher sends, and their bytes.
    pub(super) fn published(&self, group: &Group) -> (f64, u64) {
        let topic = &self.system.topics[group.topic];
        (topic.rate, topic.size)
    }

    pub(super) fn request(&self, subscriber: usize) -> Request {
        request(self.system, subscriber)
    }

    /// Samples per second that a subscriber wants.
    pub(super) fn wanted(&self, subscriber: usize) -> f64 {
        let subscriber = &self.system.subscribers[subscriber];
        self.system.topics[subscriber.topic].rate / f64::from(subscriber.scale.max(1))
    }

    /// `true` if every subscriber wants the whole stream: a "proxy" at the publisher has no work.
    pub(super) fn unscaled(&self, group: &Group) -> bool {
        let published = Request { scale: 1, size: self.system.topics[group.topic].size, picture: None };
        group.subscribers.iter().all(|subscriber| self.request(*subscriber) == published)
    }

    /// `true` if a proxy works there, and not only a publisher that sends to its subscribers.
    pub(super) fn scales_at(&self, group: &Group, node: usize) -> bool {
        node != group.publisher || !self.unscaled(group)
    }

    /// `true` if the group's proxy may be at a node, apart from delays and loads.
    pub(super) fn allowed(&self, group: &Group, node: usize) -> bool {
        let may = self.anywhere || self.system.nodes[node].proxy || !self.scales_at(group, node);
        may && !self.excluded.contains(&(group.topic, group.publisher, node))
    }

    /// End-to-end delay of each subscriber, ns: δ = d_pub·T + d_sub·T' (P-21), T' on all of the way to pictures; `None`: there is no way.
    pub(super) fn delays(&self, group: &Group, node: usize) -> Option<Vec<f64>> {
        let before = f64::from(self.network.from(group.publisher).hops[node]?);
        let delay = |subscriber: &usize| {
            let after = f64::from(self.network.hops(node, self.system.subscribers[*subscriber].node)?);
            Some(self.delay(*subscriber, before, after))
        };
        group.subscribers.iter().map(delay).collect()
    }

    /// δ of a subscriber with these hops before and after its proxy, ns.
    pub(super) fn delay(&self, subscriber: usize, before: f64, after: f64) -> f64 {
        let subscriber = &self.system.subscribers[subscriber];
        let period = (1e9 / self.system.topics[subscriber.topic].rate).min(u64::MAX as f64);
        before * period * f64::from(subscriber.scale_before_proxy())
            + after * period * f64::from(subscriber.scale.max(1))
    }

    /// `true` if that delay is within the subscriber's deadline: δ ≤ Δ (the paper's Appendix A prints the reverse, E-P1).
    pub(super) fn in_time(&self, subscriber: usize, delay: f64) -> bool {
        delay <= self.deadlines[subscriber] * (1.0 + ROUNDING)
    }

    /// The nodes where the group's proxy may be and every subscriber is served in time, in the order of the file.
    pub(super) fn places(&self, group: &Group) -> Vec<usize> {
        let in_time = |node: &usize| {
            let delays = self.delays(group, *node);
            delays.is_some_and(|all| group.subscribers.iter().zip(all).all(|(who, delay)| self.in_time(*who, delay)))
        };
        (0..self.system.nodes.len()).filter(|node| self.allowed(group, *node)).filter(in_time).collect()
    }

    /// The value of a cost by the contract's objective, which is minimised.
    pub(super) fn value(&self, cost: &Cost) -> f64 {
        cost.value(&self.system.placement)
    }

    /// A place of a group in full: flows publisher → proxy → subscriber (P-22, P-61), and the work at the nodes (P-54).
    pub(super) fn choice(&self, group: &Group, node: usize) -> Choice {
        let mut made = Choice { node, ..Choice::default() };
        if self.multicast() {
            self.multicast_choice(group, &mut made);
        } else {
            self.unicast_choice(group, &mut made);
        }
        self.proxy_work(group, &mut made);
        made.uses.sort_unstable_by_key(|(limit, _)| *limit);
        made.uses.dedup_by(|next, first| {
            next.0 == first.0 && {
                first.1 += next.1;
                true
            }
        });
        made
    }

    fn unicast_choice(&self, group: &Group, made: &mut Choice) {
        made.travel(self, group.publisher, made.node, self.published(group).1, self.fed(group));
        for subscriber in &group.subscribers {
            let (to, size) = (self.system.subscribers[*subscriber].node, self.request(*subscriber).size);
            made.travel(self, made.node, to, size, self.wanted(*subscriber));
        }
        self.unicast_work(group, made);
    }

    /// Sending and receiving, on the way to the proxy and from it to each subscriber; the proxy's own delivery is not
    /// sent again if it received the published stream.
    fn unicast_work(&self, group: &Group, made: &mut Choice) {
        let cpu_send = self.system.topics[group.topic].cpu_send;
        if made.node != group.publisher {
            made.work(self, group.publisher, self.fed(group), cpu_send);
            self.receive_feeds(group, made);
        }
        for subscriber in &group.subscribers {
            let (wanted, to) = (self.wanted(*subscriber), &self.system.subscribers[*subscriber]);
            if made.node != to.node || made.node == group.publisher {
                made.work(self, made.node, wanted, cpu_send);
                made.work(self, to.node, wanted, to.cpu_receive);
            }
        }
    }

    /// Scaling at the proxy.
    fn proxy_work(&self, group: &Group, made: &mut Choice) {
        if self.scales_at(group, made.node) {
            let handled = self.fed(group);
            made.uses.push((self.proxies_of(made.node), handled));
            made.work(self, made.node, handled, self.system.placement.cpu_proxy);
        }
    }

    /// The nodes' work for a place of a group (unicast): the part of a choice that is on no link.
    pub(super) fn work(&self, group: &Group, node: usize) -> Choice {
        let mut made = Choice { node, ..Choice::default() };
        self.unicast_work(group, &mut made);
        self.proxy_work(group, &mut made);
        made
    }

    /// The load of a place of a group on each direction that it uses (unicast), flow by flow.
    pub(super) fn flows(&self, group: &Group, node: usize, mut add: impl FnMut(usize, f64)) {
        let mut go = |tree: &Tree, size: u64, rate: f64| {
            let mut at = tree.up[node];
            while let Some((next, direction)) = at {
                add(direction.index(), wire_load(&self.system.links[direction.link], size, rate));
                at = tree.up[next];
            }
        };
        go(self.network.from(group.publisher), self.published(group).1, self.fed(group));
        for subscriber in &group.subscribers {
            let tree = self.network.towards(self.system.subscribers[*subscriber].node);
            go(tree, self.request(*subscriber).size, self.wanted(*subscriber));
        }
    }

    /// The value of a place of a group (unicast), from the numbers of hops alone.
    pub(super) fn value_at(&self, group: &Group, node: usize) -> f64 {
        let mut cost = Cost::default();
        let mut count = |hops: Option<u32>, rate: f64, size: u64| {
            let messages = f64::from(hops.unwrap_or(0)) * rate;
            cost.add(&Cost { messages_per_s: messages, bits_per_s: messages * size as f64 * 8.0, cpu: 0.0 }, 1.0);
        };
        count(self.network.from(group.publisher).hops[node], self.fed(group), self.published(group).1);
        for subscriber in &group.subscribers {
            let hops = self.network.hops(node, self.system.subscribers[*subscriber].node);
            count(hops, self.wanted(*subscriber), self.request(*subscriber).size);
        }
        if matches!(self.system.placement.objective, Objective::Cpu | Objective::Weighted) {
            cost.cpu = self.work(group, node).cost.cpu;
        }
        self.value(&cost)
    }

    /// The proxy's node receives every flow from the publisher.
    fn receive_feeds(&self, group: &Group, made: &mut Choice) {
        self.feeds(group).for_each(|feed| made.work(self, made.node, feed.rate, feed.receive));
    }

    /// Each stream goes once over each link, for this group and for others that need the same stream (P-31).
    fn multicast_choice(&self, group: &Group, made: &mut Choice) {
        let node = made.node;
        let (topic, publisher) = (group.topic, group.publisher);
        if node != publisher {
            let size = self.published(group).1;
            for Feed { scale, .. } in self.feeds(group) {
                let thinned = (publisher, Request { scale, size, picture: None });
                let feed = Stream { topic, publisher, scaled: (scale > 1).then_some(thinned) };
                made.share(self, feed, publisher, node);
            }
            self.receive_feeds(group, made);
        }
        for subscriber in &group.subscribers {
            let to = &self.system.subscribers[*subscriber];
            if node != to.node || node == publisher {
                let stream = Stream { topic, publisher, scaled: Some((node, self.request(*subscriber))) };
                made.share(self, stream, node, to.node);
                made.work(self, to.node, self.wanted(*subscriber), to.cpu_receive);
            }
        }
        made.shared.sort_unstable();
        made.shared.dedup();
    }

    /// Cost and load of one copy of a stream.
    pub(super) fn copy(&self, (stream, direction): &Copy) -> Choice {
        let topic = &self.system.topics[stream.topic];
        let (scale, size) = stream.scaled.map_or((1, topic.size), |(_, request)| (request.scale, request.size));
        let rate = topic.rate / f64::from(scale.max(1));
        let mut made = Choice::default();
        match direction {
            Some(direction) => made.hop(self, *direction, size, rate),
            None => {
                let sender = stream.scaled.map_or(stream.publisher, |(node, _)| node);
                made.work(self, sender, rate, topic.cpu_send);
            }
        }
        made
    }
}

impl Choice {
    fn travel(&mut self, problem: &Problem, from: usize, to: usize, size: u64, rate: f64) {
        for direction in problem.network.route(from, to).unwrap_or_default() {
            self.hop(problem, direction, size, rate);
        }
    }

    fn hop(&mut self, problem: &Problem, direction: Direction, size: u64, rate: f64) {
        self.cost.messages_per_s += rate;
        self.cost.bits_per_s += size as f64 * 8.0 * rate;
        self.uses.push((direction.index(), wire_load(&problem.system.links[direction.link], size, rate)));
    }

    /// Execution time (ns) per sample at a node.
    fn work(&mut self, problem: &Problem, node: usize, rate: f64, each: u64) {
        if each > 0 {
            let processors = rate * each as f64 / 1e9;
            self.cost.cpu += processors;
            self.uses.push((problem.processors_of(node), processors));
        }
    }

    fn share(&mut self, problem: &Problem, stream: Stream, from: usize, to: usize) {
        let route = problem.network.route(from, to).unwrap_or_default();
        self.shared.extend(route.into_iter().map(|direction| (stream, Some(direction))));
        self.shared.push((stream, None));
    }
}

fn request(system: &System, subscriber: usize) -> Request {
    let subscriber = &system.subscribers[subscriber];
    let size = subscriber.scaled_size.unwrap_or(system.topics[subscriber.topic].size);
    Request { scale: subscriber.scale.max(1), size, picture: subscriber.picture }
}

/// The groups that share a proxy: a topic's subscribers, each alone, or those with equal requests. A publisher's stream has its own.
pub(super) fn groups(system: &System) -> Vec<Group> {
    let mut of_topic = vec![Vec::new(); system.topics.len()];
    for (index, subscriber) in system.subscribers.iter().enumerate() {
        of_topic[subscriber.topic].push(index);
    }
    let mut groups = Vec::new();
    for (topic, subscribers) in of_topic.into_iter().enumerate().filter(|(_, subscribers)| !subscribers.is_empty()) {
        let parts: Vec<Vec<usize>> = match system.placement.proxies {
            Proxies::PerTopic => vec![subscribers],
            Proxies::PerSubscriber => subscribers.into_iter().map(|one| vec![one]).collect(),
            Proxies::Merged => equal_requests(system, subscribers),
        };
        for publisher in &system.topics[topic].publishers {
            let group = |part: &Vec<usize>| Group { topic, publisher: *publisher, subscribers: part.clone() };
            groups.extend(parts.iter().map(group));
        }
    }
    groups
}

fn equal_requests(system: &System, subscribers: Vec<usize>) -> Vec<Vec<usize>> {
    let mut place: HashMap<Request, usize> = HashMap::new();
    let mut parts: Vec<Vec<usize>> = Vec::new();
    for subscriber in subscribers {
        let part = *place.entry(request(system, subscriber)).or_insert_with(|| {
            parts.push(Vec::new());
            parts.len() - 1
        });
        parts[part].push(subscriber);
    }
    parts
}

impl Cost {
    /// The value of the objective: messages/s, bit/s, processors, or Mbit/s + `cpu_weight` · processors.
    pub fn value(&self, placement: &crate::system::Placement) -> f64 {
        match placement.objective {
            Objective::Messages => self.messages_per_s,
            Objective::Bandwidth => self.bits_per_s,
            Objective::Cpu => self.cpu,
            Objective::Weighted => self.bits_per_s / 1e6 + placement.cpu_weight * self.cpu,
        }
    }
}
