//! The path of a channel: the links that it crosses, and what crosses them.

use crate::gathering;
use crate::network::{Direction, Network, packets, wire_bytes, wire_load};
use crate::placement::Placed;
use crate::priority::Policing;
use crate::system::{LatencyBudget, Subscriber, System, Topic, Transport};

/// A channel's path: from its publisher, through its proxy if it has one, to its subscriber.
pub(super) struct Path<'a> {
    pub(super) topic: &'a Topic,
    /// The publisher's node (index).
    pub(super) publisher: usize,
    pub(super) subscriber: &'a Subscriber,
    /// The subscriber (index).
    pub(super) index: usize,
    /// The proxy's node (index).
    pub(super) proxy: Option<usize>,
    pub(super) hops: Vec<Hop>,
    /// Number of the first hops, which carry samples as they were published.
    pub(super) before: usize,
}

/// One direction of a link, and the samples that cross it.
pub(super) struct Hop {
    pub(super) direction: Direction,
    /// Bytes of a sample.
    pub(super) size: u64,
}

impl Path<'_> {
    /// Time between two samples that the subscriber gets, ns.
    pub(super) fn scaled_period(&self) -> u64 {
        self.topic.period.saturating_mul(u64::from(self.subscriber.scale))
    }

    /// Samples that may come at once, by burst and jitter.
    pub(super) fn at_once(&self) -> f64 {
        f64::from(self.topic.burst) + self.topic.jitter as f64 * self.topic.rate / 1e9
    }

    /// The latency budget of the samples that leave the publisher, ns.
    pub(super) fn latency_budget(&self) -> Option<u64> {
        let budget = self.topic.latency_budget.filter(|_| !self.hops.is_empty())?;
        Some(if let LatencyBudget::Stated(ns) = budget { ns } else { 0 })
    }

    /// The pace at which samples leave the publisher, in bit/s: on a channel of its own to the subscriber.
    pub(super) fn pace(&self, system: &System) -> Option<u64> {
        let is_own = self.proxy.is_none_or(|proxy| proxy == self.publisher);
        let has = is_own && !self.hops.is_empty() && system.placement.transport == Transport::Unicast;
        self.topic.paced().filter(|_| has && !self.topic.forwarded)
    }

    /// Samples that may leave the publisher together.
    pub(super) fn batch(&self, budget: u64) -> u64 {
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
    pub(super) fn policing(&self) -> Option<Policing> {
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
    pub(super) fn packets(&self, system: &System) -> u64 {
        let on = |hop: &Hop| packets(&system.links[hop.direction.link], hop.size);
        self.hops.iter().map(on).max().unwrap_or(1)
    }
}

/// Nanoseconds that one (the largest) packet of a sample takes on a link's wire.
pub(super) fn transmission(system: &System, hop: &Hop) -> f64 {
    let link = &system.links[hop.direction.link];
    let bytes = wire_bytes(link, hop.size.min(link.mtu));
    link.transmission.map_or(bytes as f64 * 8e9 / link.rate as f64, |stated| stated as f64)
}

/// Each publisher with each of its subscribers, in the order of the placement's groups.
pub(super) fn paths<'a>(system: &'a System, network: &Network, placed: &[Placed]) -> Vec<Path<'a>> {
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
pub(super) fn scales(topic: &Topic, subscriber: &Subscriber) -> bool {
    let smaller = subscriber.scaled_size.is_some_and(|size| size != topic.size);
    subscriber.scale > 1 || smaller || subscriber.picture.is_some()
}

/// Bit/s on the wire in each direction of each link, every channel a flow of its own.
pub(super) fn loads(system: &System, paths: &[Path]) -> Vec<f64> {
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
