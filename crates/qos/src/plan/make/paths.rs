//! The path of a channel's samples, hop by hop.

use crate::network::{Direction, Network, packets, wire_bytes, wire_load};
use crate::placement::Placed;
use crate::system::{Subscriber, System, Topic};

/// A channel's path: from its publisher, through its proxy if it has one, to its subscriber.
pub(super) struct Path<'a> {
    pub topic: &'a Topic,
    /// The publisher's node (index).
    pub publisher: usize,
    pub subscriber: &'a Subscriber,
    /// The subscriber (index).
    pub index: usize,
    /// The proxy's node (index).
    pub proxy: Option<usize>,
    pub hops: Vec<Hop>,
    /// Number of the first hops, which carry samples as they were published.
    pub before: usize,
}

/// One direction of a link, and the samples that cross it.
pub(super) struct Hop {
    pub direction: Direction,
    /// Bytes of a sample.
    pub size: u64,
}

impl Path<'_> {
    /// Time between two samples that the subscriber gets, ns.
    pub(super) fn scaled_period(&self) -> u64 {
        self.topic.period.saturating_mul(u64::from(self.subscriber.scale))
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
pub(super) fn all<'a>(system: &'a System, network: &Network, placed: &[Placed]) -> Vec<Path<'a>> {
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
            let scale = if at < path.before { 1.0 } else { f64::from(path.subscriber.scale) };
            let link = &system.links[hop.direction.link];
            loads[hop.direction.index()] += wire_load(link, hop.size, path.topic.rate / scale);
        }
    }
    loads
}
