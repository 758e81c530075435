//! Paces that the plan computes: the slowest with which everything still fits, each tried by a plan of its own.
//!
//! A sample of many packets that leaves all at once fills the queues of its class, here and at each switch behind. At a pace it leaves room for
//! others between its packets, and takes longer itself.

use super::trials::Trials;
use super::{Computed, Work};
use crate::contract::FASTEST;
use crate::network::{Direction, Network};
use crate::placement::Watch;
use crate::plan::{Model, settle};
use crate::system::{Pace, System, Topic, Transport};

/// The slowest pace is this much faster than the samples take, so that one that is late does not make all later ones late: by 5/4.
const FASTER: [u64; 2] = [5, 4];
/// Each further pace is twice as fast; so many are tried for a topic.
const PACES: u32 = 8;
/// Most plans that are tried.
const TRIALS: u32 = 64;

/// The system with the paces that the contract leaves to the plan, and the plan with them: for each of these topics, in the order of the file, the
/// slowest with which everything fits, or none. If it does not fit without, paces are tried for all of them together.
pub(super) fn slowest(system: &System, computed: Computed, work: Work, watch: &mut dyn Watch) -> (System, Computed) {
    let topics = asking(system, computed.plan.model);
    let (mut found, mut trials) = ((system.clone(), computed), Trials::new(TRIALS, work));
    let mut first = |found: &(System, Computed), topics: &[usize]| {
        (0..PACES).find_map(|pace| planned(found, topics, pace, &mut trials, &mut *watch))
    };
    if !found.1.plan.feasible && !topics.is_empty() {
        found = first(&found, &topics).unwrap_or(found);
    }
    if found.1.plan.feasible {
        for topic in topics {
            found = first(&found, &[topic]).unwrap_or(found);
        }
    }
    found
}

/// Topics (indices) whose pace the plan computes.
fn asking(system: &System, model: Model) -> Vec<usize> {
    let mut topics = if asks(system) { large(system, model) } else { Vec::new() };
    topics.retain(|topic| system.topics[*topic].pace == Some(Pace::Auto));
    topics
}

/// `true` if the contract leaves a pace to the plan.
pub(super) fn asks(system: &System) -> bool {
    system.topics.iter().any(|topic| topic.pace == Some(Pace::Auto))
}

/// Topics (indices) of more than one packet on some way, without a stated pace, where a model has bounds.
pub(super) fn large(system: &System, model: Model) -> Vec<usize> {
    // Means are no promise, and the papers' models know no pace.
    if !matches!(model, Model::Bound | Model::Nc | Model::Rta) || system.placement.transport != Transport::Unicast {
        return Vec::new();
    }
    let network = Network::new(system);
    let is_large = |(index, topic): &(usize, &Topic)| {
        let is_cut = |direction: &Direction| system.links[direction.link].mtu < topic.size;
        let wanted = system.subscribers.iter().filter(|subscriber| subscriber.topic == *index);
        let mut ways = wanted.flat_map(|one| topic.publishers.iter().map(|from| (*from, one.node)));
        topic.paced().is_none()
            && !topic.forwarded
            && ways.any(|(from, to)| network.route(from, to).is_some_and(|route| route.iter().any(is_cut)))
    };
    system.topics.iter().enumerate().filter(is_large).map(|(index, _)| index).collect()
}

/// A topic's pace of this number, 0 the slowest, in bit/s: to three digits, upwards.
pub(super) fn rate(topic: &Topic, number: u32) -> u64 {
    let bits = u128::from(topic.size) * 8 * 1_000_000_000 * u128::from(FASTER[0]);
    let least = bits.div_ceil(u128::from(topic.period.max(1)) * u128::from(FASTER[1]));
    let rate = u64::try_from(least << number).unwrap_or(FASTEST).clamp(8000, FASTEST);
    rate.next_multiple_of(10_u64.pow(rate.ilog10() - 2))
}

/// The plan with a pace of these topics, if it fits.
fn planned(
    (system, found): &(System, Computed),
    topics: &[usize],
    pace: u32,
    trials: &mut Trials,
    watch: &mut dyn Watch,
) -> Option<(System, Computed)> {
    let mut paced = system.clone();
    for topic in topics {
        paced.topics[*topic].pace = Some(Pace::Stated(rate(&paced.topics[*topic], pace)));
    }
    let mut computed = trials.plan(&settle(&paced, &found.plan.settings), found.plan.model, watch)?;
    computed.plan.settings.clone_from(&found.plan.settings);
    computed.plan.feasible.then_some((paced, computed))
}
