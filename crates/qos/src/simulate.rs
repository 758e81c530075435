//! A contract and its plan in virtual time: threads, queues and links, event by event, the same for the same seed.
//!
//! Simulation checks bounds. A delay that it shows is possible: a bound below it is wrong, and one far above it is loose. The
//! patterns of release are therefore the worst known ones, not typical ones.
//!
//! | module | contents |
//! |---|---|
//! | `batches` | samples of publishers with a latency budget, which leave together |
//! | `event` | events, and their order in time |
//! | `pacers` | publishers whose packets leave at a pace |
//! | `chains` | chains over several topics: which sample was made of which |
//! | `release` | releases of samples, by pattern |
//! | `resources` | a queue with its order of service; threads by reservation and rank, pre-emptive |
//! | `world` | one run, event by event |
//! | `work` | packets, times and samples of each stage, from the contract and not from the analysis |

mod batches;
mod chains;
mod event;
mod pacers;
mod release;
mod resources;
mod work;
mod world;

use crate::analysis::Steps;
use crate::analysis::stages::{Classes, Place, Stages};
use crate::assignment::ranked;
use crate::network::Network;
use crate::plan::Plan;
use crate::system::System;
#[cfg(feature = "placement")]
pub(crate) use release::Chance;
pub use release::Pattern;
use std::collections::HashMap;
use world::World;

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The pattern of publications.
    pub pattern: Pattern,
    /// The same seed gives the same run.
    pub seed: u64,
    /// Virtual time in which samples are published, ns; those on their way arrive after it.
    pub duration: u64,
    /// Most events, so that it ends in real time, too.
    pub events: u64,
}

/// Observations of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairSeen {
    /// Samples that arrived.
    pub count: u64,
    /// The longest from publication to the subscriber's application, ns.
    pub max: u64,
    /// Sum over all samples, ns: for the mean.
    pub sum: u128,
}

/// Observations of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// In the order of [`Stages::pairs`].
    pub pairs: Vec<PairSeen>,
    /// Of each of [`System::chains`]: from the publication of a first sample to the end of the last callback for a sample that was made of it,
    /// or of a later one.
    pub chains: Vec<PairSeen>,
    /// Most bytes that each queue held, in the order of [`Stages::egresses`], without background.
    pub queues: Vec<u64>,
    /// Events that happened.
    pub events: u64,
    /// The run ended before its time, because it had as many events as were allowed.
    pub cut: bool,
}

impl PairSeen {
    /// One more, which took so long.
    fn note(&mut self, took: u64) {
        let (count, max, sum) = (self.count + 1, self.max.max(took), self.sum + u128::from(took));
        *self = Self { count, max, sum };
    }
}

impl Seen {
    /// Takes in another run: counts add, maxima are the larger.
    pub fn and(mut self, other: &Seen) -> Seen {
        self.pairs.resize(other.pairs.len(), PairSeen::default());
        self.chains.resize(other.chains.len(), PairSeen::default());
        self.queues.resize(other.queues.len(), 0);
        let pairs = self.pairs.iter_mut().zip(&other.pairs).chain(self.chains.iter_mut().zip(&other.chains));
        for (ours, theirs) in pairs {
            let (count, max, sum) = (ours.count + theirs.count, ours.max.max(theirs.max), ours.sum + theirs.sum);
            *ours = PairSeen { count, max, sum };
        }
        self.queues.iter_mut().zip(&other.queues).for_each(|(ours, theirs)| *ours = (*ours).max(*theirs));
        Seen { events: self.events + other.events, cut: self.cut || other.cut, ..self }
    }
}

/// One run in virtual time. `stages` are those of `system`.
pub fn simulate(system: &System, stages: &Stages, run: &Run) -> Seen {
    World::new(system, stages, run).observe(run.events)
}

/// Runs of all patterns, the aimed ones `tries` times for each pair, taken together: the worst that is known.
pub fn worst(system: &System, stages: &Stages, run: &Run, tries: u64) -> Seen {
    let plain =
        [Pattern::Synchronous, Pattern::RandomPhases, Pattern::Late].into_iter().map(|pattern| (pattern, run.seed));
    let aimed = (0..stages.pairs.len()).flat_map(|pair| (0..tries).map(move |t| (Pattern::Aimed { pair }, t)));
    let runs = plain.chain(aimed.map(|(pattern, t)| (pattern, run.seed.wrapping_add(t))));
    runs.map(|(pattern, seed)| simulate(system, stages, &Run { pattern, seed, ..*run }))
        .fold(Seen::default(), |all, seen| all.and(&seen))
}

/// The stages of `system` with the classes and proxies of its `plan`, and for each of the plan's channels the pair that it is; `None`
/// for a channel that the contract does not have. Threads are ranked as by the planner.
pub fn planned(system: &System, plan: &Plan) -> (Stages, Vec<Option<usize>>) {
    let nodes: HashMap<&str, usize> = system.nodes.iter().enumerate().map(|(i, n)| (n.name.as_str(), i)).collect();
    let ports: HashMap<&str, usize> =
        system.subscribers.iter().enumerate().map(|(i, s)| (s.name.as_str(), i)).collect();
    let mut classes = Classes::stated(system);
    let mut places = Vec::new();
    let mut keys = Vec::new();
    for channel in &plan.channels {
        let publisher = nodes.get(channel.publisher.as_str()).copied();
        let subscriber = ports.get(channel.subscriber.as_str()).copied();
        let (Some(publisher), Some(subscriber)) = (publisher, subscriber) else {
            keys.push(None);
            continue;
        };
        classes.set(publisher, subscriber, channel.class);
        let proxy = channel.proxy.as_deref().and_then(|proxy| nodes.get(proxy));
        places.extend(proxy.map(|node| Place { publisher, subscriber, node: *node }));
        keys.push(Some((publisher, subscriber)));
    }
    let mut stages = Stages::new(system, &Network::new(system), &places, &classes);
    ranked(system, &mut stages, &Steps::of(system));
    let pairs = stages.pairs.iter().enumerate();
    let pairs: HashMap<(usize, usize), usize> =
        pairs.map(|(i, pair)| ((stages.streams[pair.stream].publisher, pair.subscriber), i)).collect();
    let of = |key: Option<(usize, usize)>| pairs.get(&key?).copied();
    let pairs = keys.into_iter().map(of).collect();
    (stages, pairs)
}

#[cfg(feature = "placement")]
#[cfg(test)]
mod tests;
