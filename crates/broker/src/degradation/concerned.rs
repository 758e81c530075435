//! Who uses the links that carry less, or those to which traffic has moved from links that are down.

use crate::links::Rates;
use qos::contract::joined::Joined;
use qos::network::{Direction, Network};
use qos::system::{Subscriber, System};
use std::collections::BTreeSet;

/// For each subscriber (index), whether it does. A proxy that is not on the way is not counted.
pub(super) fn subscribers(whole: &Joined, links: &Rates) -> Vec<bool> {
    let system = &whole.contract.system;
    let mut now = system.clone();
    now.links.iter_mut().for_each(|link| link.down = links.get(&link.name) == Some(&0));
    let (before, now) = (Network::new(system), Network::new(&now));
    let rate = |at: &Direction| links.get(&system.links[at.link].name).copied();
    let ways: Vec<Vec<Direction>> = system.subscribers.iter().map(|one| self::ways(system, &now, one)).collect();
    let moved = |one: &Subscriber| self::ways(system, &before, one).iter().any(|at| rate(at) == Some(0));
    let moved = system.subscribers.iter().zip(&ways).filter(|(one, _)| moved(one));
    let taken: BTreeSet<Direction> = moved.flat_map(|(_, way)| way.iter().copied()).collect();
    ways.iter().map(|way| way.iter().any(|at| rate(at).is_some() || taken.contains(at))).collect()
}

/// The directions of links from its publishers to a subscriber.
fn ways(system: &System, network: &Network, one: &Subscriber) -> Vec<Direction> {
    let publishers = &system.topics[one.topic].publishers;
    publishers.iter().flat_map(|publisher| way(network, *publisher, one.node)).collect()
}

/// The directions of links from a node to another; none where no way leads.
pub(super) fn way(network: &Network, from: usize, to: usize) -> Vec<Direction> {
    network.route(from, to).unwrap_or_default()
}
