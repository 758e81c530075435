//! Who is late, and who can give way.

use crate::analysis::end_to_end::Where;
use crate::network::{Direction, Network};
use crate::placement::{self, Candidate};
use crate::plan::{Chain, Channel, Plan};
use crate::system::{PlacementDelay, System};
use std::collections::{HashMap, HashSet};

/// Subscribers that are late, and those that can give way.
pub(super) struct Parties {
    /// Late subscribers with their delay in ns, if there is one.
    pub late: Vec<(usize, Option<f64>)>,
    /// Subscribers that share a full link or a link with a late one, the least important first, then the greediest.
    pub giving: Vec<usize>,
    /// Late chains with their bounds in ns, if there are any.
    pub chains: Vec<(usize, Option<f64>)>,
}

/// The directions of links by the names that routes have them by.
pub(super) fn directions(system: &System) -> HashMap<String, Direction> {
    let all = (0..2 * system.links.len()).map(Direction::at);
    all.map(|direction| (Where::Link(direction).name(system), direction)).collect()
}

impl Parties {
    /// `true` if a channel is late, or part of a late chain.
    pub(super) fn concern(&self, system: &System, channel: &Channel) -> bool {
        let name = |index: usize| system.subscribers[index].name == channel.subscriber;
        let mut parts = self.chains.iter().flat_map(|(chain, _)| &system.chains[*chain].parts);
        self.late.iter().any(|(index, _)| name(*index)) || parts.any(|part| name(part.subscriber))
    }

    pub(super) fn of(system: &System, plan: &Plan) -> Self {
        let network = Network::new(system);
        let index: HashMap<&str, usize> =
            system.subscribers.iter().enumerate().map(|(i, s)| (s.name.as_str(), i)).collect();
        let paper = by_paper(system, &network);
        let late = |channel: &Channel| {
            let (index, deadline) = (*index.get(channel.subscriber.as_str())?, channel.deadline_us?);
            let delay = channel.mean_us.or(channel.bound_us).map(|us| paper[index].max(us * 1e3));
            delay.is_none_or(|ns| ns > deadline * 1e3).then_some((index, delay))
        };
        let late: Vec<_> = plan.channels.iter().filter_map(late).collect();
        let crossed = |index: usize| {
            let subscriber = &system.subscribers[index];
            let from = &system.topics[subscriber.topic].publishers;
            let routes = from.iter().flat_map(|from| network.route(*from, subscriber.node).unwrap_or_default());
            routes.map(|direction| direction.index()).collect::<HashSet<usize>>()
        };
        let full = plan.links.iter().enumerate().filter(|(_, link)| link.utilisation > 1.0).map(|(index, _)| index);
        let mut narrow: HashSet<usize> = full.collect();
        late.iter().for_each(|(index, _)| narrow.extend(crossed(*index)));
        let chains = late_chains(plan);
        let parts = chains.iter().flat_map(|(chain, _)| &system.chains[*chain].parts);
        parts.for_each(|part| narrow.extend(crossed(part.subscriber)));
        let mut giving: Vec<usize> =
            (0..system.subscribers.len()).filter(|index| !narrow.is_disjoint(&crossed(*index))).collect();
        giving.sort_by(|a, b| {
            let importance = |index: usize| system.subscribers[index].importance;
            importance(*a).cmp(&importance(*b)).then(load(system, *b).total_cmp(&load(system, *a)))
        });
        Self { late, giving, chains }
    }
}

/// Chains that end later than they may, with their bounds in ns.
fn late_chains(plan: &Plan) -> Vec<(usize, Option<f64>)> {
    let late = |(index, chain): (usize, &Chain)| {
        let (deadline, bound) = (chain.deadline_us?, chain.bound_us);
        bound.is_none_or(|us| us > deadline).then_some((index, bound.map(|us| us * 1e3)))
    };
    plan.chains.iter().enumerate().filter(|_| !plan.model.is_mean()).filter_map(late).collect()
}

/// Payload bit/s that a subscriber gets.
fn load(system: &System, index: usize) -> f64 {
    let (subscriber, topic) = (&system.subscribers[index], &system.topics[system.subscribers[index].topic]);
    topic.rate / f64::from(subscriber.scale) * 8.0 * subscriber.scaled_size.unwrap_or(topic.size) as f64
}

/// For each subscriber the δ of P-21 at the best place for the latest of its group, ns; 0 if some place keeps all
/// deadlines, and if another delay counts.
fn by_paper(system: &System, network: &Network) -> Vec<f64> {
    let mut delays = vec![0.0; system.subscribers.len()];
    if system.placement.delay != PlacementDelay::Paper {
        return delays;
    }
    for (group, candidates) in placement::table(system, network) {
        let latest = |candidate: &&Candidate| candidate.delays.iter().copied().fold(0.0, f64::max);
        let allowed = candidates.iter().filter(|one| system.nodes[one.node].proxy || one.node == group.publisher);
        let best = allowed.min_by(|a, b| latest(a).total_cmp(&latest(b)));
        if let Some(best) = best.filter(|_| !candidates.iter().any(|candidate| candidate.fits)) {
            for (index, delay) in group.subscribers.iter().zip(&best.delays) {
                delays[*index] = delays[*index].max(*delay);
            }
        }
    }
    delays
}
