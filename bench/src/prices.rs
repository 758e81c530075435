//! Places at prices for links: each group takes the place that costs it least, and no limit counts.
//!
//! With prices the sum of what all pay, less the price of all capacity, is below the cost of every placement that keeps the limits (weak
//! duality). Where the priced limits are just reached, it is that cost. Streams go by unicast and cost messages, and all links pack
//! samples alike, as in the systems of [`system`](crate::system).

use std::collections::HashMap;

use qos::network::{Network, wire_load};
use qos::placement::{Candidate, Group, table};
use qos::system::{Proxies, System};

/// All groups, each in a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Laid {
    /// Messages per second over all links.
    pub cost: f64,
    /// The same with the prices of all bits.
    pub paid: f64,
    /// Bit/s on the wire in each direction.
    pub loads: Vec<f64>,
}

/// The groups of a system, their places, and the ways that samples take to and from them.
pub(crate) struct Market<'a> {
    network: &'a Network,
    directions: usize,
    ways: Vec<Way>,
    groups: Vec<Wanted>,
}

/// The routes between one node and all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Way {
    root: usize,
    /// From that node, as a publisher's; else towards it.
    outwards: bool,
}

/// What a group wants.
struct Wanted {
    /// The places that keep its deadlines, each with its messages per second.
    places: Vec<(usize, f64)>,
    /// The flows between its place and the ends: the way (its index), and bit/s on the wire.
    flows: Vec<(usize, f64)>,
}

impl<'a> Market<'a> {
    pub(crate) fn new(system: &System, network: &'a Network) -> Self {
        let (directions, mut ways) = (2 * system.links.len(), HashMap::new());
        let wanted = |(group, candidates): (Group, Vec<Candidate>)| {
            let in_time = candidates.iter().filter(|candidate| candidate.fits);
            let places = in_time.map(|candidate| (candidate.node, candidate.cost.messages_per_s)).collect();
            let flows = flows(system, &group).into_iter().map(|(way, load)| {
                let next = ways.len();
                (*ways.entry(way).or_insert(next), load)
            });
            Wanted { places, flows: flows.collect() }
        };
        let groups = table(system, network).into_iter().map(wanted).collect();
        let mut indexed: Vec<(Way, usize)> = ways.into_iter().collect();
        indexed.sort_unstable_by_key(|(_, index)| *index);
        Self { network, directions, ways: indexed.into_iter().map(|(way, _)| way).collect(), groups }
    }

    /// Each group at its cheapest place, if a bit in each direction has its price (messages); of equal ones the first in the file.
    pub(crate) fn at(&self, prices: &[f64]) -> Laid {
        let sums: Vec<Vec<f64>> = self.ways.iter().map(|way| self.sums(*way, prices)).collect();
        let mut laid = Laid { cost: 0.0, paid: 0.0, loads: vec![0.0; self.directions] };
        for group in &self.groups {
            let paid = |(node, cost): &(usize, f64)| {
                let flows = group.flows.iter().map(|(way, load)| load * sums[*way][*node]);
                (cost + flows.sum::<f64>(), *node, *cost)
            };
            let Some((paid, node, cost)) = group.places.iter().map(paid).min_by(|a, b| a.0.total_cmp(&b.0)) else {
                continue;
            };
            (laid.cost, laid.paid) = (laid.cost + cost, laid.paid + paid);
            group.flows.iter().for_each(|(way, load)| self.carry(*way, node, *load, &mut laid.loads));
        }
        laid
    }

    /// The prices along the route between each node and a way's root.
    fn sums(&self, way: Way, prices: &[f64]) -> Vec<f64> {
        let tree = way.tree(self.network);
        let mut sums = vec![0.0; tree.up.len()];
        for node in &tree.order {
            if let Some((up, direction)) = tree.up[*node] {
                sums[*node] = sums[up] + prices[direction.index()];
            }
        }
        sums
    }

    fn carry(&self, way: usize, node: usize, load: f64, loads: &mut [f64]) {
        let tree = self.ways[way].tree(self.network);
        let mut at = tree.up[node];
        while let Some((up, direction)) = at {
            loads[direction.index()] += load;
            at = tree.up[up];
        }
    }
}

impl Way {
    fn tree(self, network: &Network) -> &qos::network::Tree {
        if self.outwards { network.from(self.root) } else { network.towards(self.root) }
    }
}

/// From the publisher one flow for each subscriber (one for all where equal requests share), and one to each.
fn flows(system: &System, group: &Group) -> Vec<(Way, f64)> {
    let topic = &system.topics[group.topic];
    let load = |rate: f64| system.links.first().map_or(0.0, |link| wire_load(link, topic.size, rate));
    let fed = if system.placement.proxies == Proxies::Merged { 1 } else { group.subscribers.len() };
    let mut flows = vec![(Way { root: group.publisher, outwards: true }, load(topic.rate * fed as f64))];
    flows.extend(group.subscribers.iter().map(|who| {
        let subscriber = &system.subscribers[*who];
        (Way { root: subscriber.node, outwards: false }, load(topic.rate / f64::from(subscriber.scale)))
    }));
    flows
}
