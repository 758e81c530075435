//! The answer to a system: places of its proxies, and the analysis of them.

use super::delay::Bounds;
use super::path::{paths, scales};
use super::{own, refusal};
use crate::analysis::Steps;
use crate::network::Network;
use crate::placement::{self, Effort, Group, Outcome, Placed, Watch};
use crate::plan::Model;
use crate::system::{PlacementDelay, Subscriber, System};
use std::borrow::Cow;

/// Places, and the analysis of them.
pub(super) struct Answer {
    pub(super) found: Outcome,
    /// The places found; if there are none, each proxy at its publisher.
    pub(super) placed: Vec<Placed>,
    pub(super) bounds: Option<Bounds>,
}

/// The most times that places are searched again because a proxy's delay did not keep the analysis' bound.
const ROUNDS: u32 = 16;

/// Places proxies; with `delay = "bound"`, again without the places that the analysis found late, as long as others remain.
pub(super) fn answer(
    system: &System,
    network: &Network,
    model: Model,
    steps: &Steps,
    mut effort: Effort,
    watch: &mut dyn Watch,
) -> Answer {
    // The model of P-21 does not count if the analysis' bound decides.
    let placing = match system.placement.delay {
        PlacementDelay::Paper => Cow::Borrowed(system),
        PlacementDelay::Bound => Cow::Owned(without_deadlines(system)),
    };
    let mut attempt = |effort: &Effort| {
        let found = placement::place(&placing, network, effort, watch);
        let placed = if found.placed.is_empty() { at_publishers(system, network) } else { found.placed.clone() };
        let bounds = Bounds::new(system, network, &placed, model, steps);
        Answer { found, placed, bounds }
    };
    let first = attempt(&effort);
    let mut late = first.late(system);
    if late.is_empty() {
        return first;
    }
    for _ in 0..ROUNDS {
        effort.excluded.append(&mut late);
        let again = attempt(&effort);
        if again.found.placed.is_empty() || steps.left() == 0 {
            break;
        }
        late = again.late(system);
        if late.is_empty() {
            return again;
        }
    }
    // No places keep all bounds: the best ones otherwise show the late pairs.
    first
}

fn without_deadlines(system: &System) -> System {
    let mut system = system.clone();
    system.subscribers.iter_mut().for_each(|subscriber| subscriber.deadline = None);
    system
}

impl Answer {
    /// All limits and deadlines are kept.
    pub(super) fn fits(&self, system: &System, network: &Network) -> bool {
        let asks = system.topics.iter().any(|topic| topic.own_queue);
        let has_room = || own::refusals(system, &paths(system, network, &self.placed), self.bounds.as_ref()).is_empty();
        if asks && !has_room() {
            return false;
        }
        let is_placed = !self.found.placed.is_empty() || system.subscribers.is_empty();
        let keeps = |bounds: &Bounds| bounds.in_time() && bounds.exceeded().is_empty() && bounds.unsteady().is_empty();
        is_placed && refusal::of_placement(system, &self.found).is_empty() && self.bounds.as_ref().is_some_and(keeps)
    }

    /// Proxies with a subscriber that gets its samples too late, if that counts: (topic, publisher's node, node).
    fn late(&self, system: &System) -> Vec<(usize, usize, usize)> {
        let Some(bounds) = self.bounds.as_ref().filter(|_| system.placement.delay == PlacementDelay::Bound) else {
            return Vec::new();
        };
        let is_late = |placed: &&Placed| {
            let Group { topic, publisher, subscribers } = &placed.group;
            let late = |index: &usize| {
                let subscriber = &system.subscribers[*index];
                let deadline = subscriber.deadline.filter(|_| scales(&system.topics[*topic], subscriber));
                let us = || bounds.of(*topic, *publisher, *index).us;
                deadline.is_some_and(|deadline| us().is_none_or(|us| us * 1e3 > deadline as f64))
            };
            subscribers.iter().any(late)
        };
        let late = self.found.placed.iter().filter(is_late);
        late.map(|placed| (placed.group.topic, placed.group.publisher, placed.node)).collect()
    }
}

/// Each subscriber with its stream scaled at the publisher: shown when no placement fits.
fn at_publishers(system: &System, network: &Network) -> Vec<Placed> {
    let each = |(index, subscriber): (usize, &Subscriber)| {
        let publishers = &system.topics[subscriber.topic].publishers;
        let placed = |publisher: &usize| Placed {
            group: Group { topic: subscriber.topic, publisher: *publisher, subscribers: vec![index] },
            node: *publisher,
            cost: Default::default(),
            delays: Vec::new(),
        };
        let reached = |publisher: &&usize| network.hops(**publisher, subscriber.node).is_some();
        publishers.iter().filter(reached).map(placed).collect::<Vec<_>>()
    };
    system.subscribers.iter().enumerate().flat_map(each).collect()
}
