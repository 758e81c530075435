//! Bounds against simulations of the worst patterns of release.

use super::systems::{Sketch, sketch};
use crate::analysis::Steps;
use crate::analysis::end_to_end::{Analysis, Bound, analyse};
use crate::analysis::stages::{Pair, Stages, Step};
use crate::network::Network;
use crate::simulate::{Pattern, Run, Seen, worst};
use crate::system::{Scheduler, System};

/// A bound that held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// Bound ÷ the latest that was seen, at least 1.
    pub ratio: f64,
    /// A queue on its way shares the link by `htb` or `hfsc`.
    pub shares: bool,
}

/// All pairs of one system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compared {
    /// Pairs that have a bound, and of which a sample arrived.
    pub held: Vec<Held>,
    /// Pairs without a bound: a resource on their way is overloaded.
    pub unbounded: usize,
}

/// Compares the bounds of a seed's sketch with simulations of it, `tries` of them aimed at each pair.
///
/// # Errors
/// The channel that exceeded its bound, or the queue that exceeded its room.
pub fn compare(seed: u64, tries: u64) -> Result<Compared, String> {
    let Sketch { system, classes, places } = sketch(seed);
    let stages = Stages::new(&system, &Network::new(&system), &places, &classes);
    let analysis = analyse(&system, &stages, &Steps::of(&system));
    let longest = system.topics.iter().map(|topic| topic.period + topic.jitter).max().unwrap_or(0);
    let run = Run { pattern: Pattern::Synchronous, seed, duration: 4 * longest, events: 30_000 };
    let seen = worst(&system, &stages, &run, tries);
    rooms(&analysis, &seen).map_err(|wrong| format!("seed {seed}, {wrong}"))?;
    let mut compared = Compared::default();
    for (pair, (bound, seen)) in stages.pairs.iter().zip(analysis.pairs.iter().zip(&seen.pairs)) {
        let Ok(ns) = bound.ns else {
            compared.unbounded += 1;
            continue;
        };
        keeps(ns, bound, seen.max).map_err(|wrong| format!("seed {seed}, {pair:?}: {wrong}"))?;
        if seen.max > 0 {
            let shares = shares(&system, &stages, pair);
            compared.held.push(Held { ratio: ns as f64 / seen.max as f64, shares });
        }
    }
    Ok(compared)
}

fn keeps(ns: u64, bound: &Bound, seen: u64) -> Result<(), String> {
    if seen > ns {
        return Err(format!("bound {ns} < seen {seen}: {:#?}", bound.terms));
    }
    let sum: u64 = bound.terms.iter().map(|term| term.ns).sum();
    if sum == ns { Ok(()) } else { Err(format!("bound {ns}, but its terms make {sum}")) }
}

fn rooms(analysis: &Analysis, seen: &Seen) -> Result<(), String> {
    for (queue, (classes, seen)) in analysis.queues.iter().zip(&seen.queues).enumerate() {
        let known = classes.iter().all(|class| class.streams == 0 || class.room.is_some());
        let room: u64 = classes.iter().filter_map(|class| Some(class.room?.bytes)).sum();
        if known && room < *seen {
            return Err(format!("queue {queue}: room {room} < seen {seen} bytes"));
        }
    }
    Ok(())
}

fn shares(system: &System, stages: &Stages, pair: &Pair) -> bool {
    stages.path(pair).any(|stage| match stages.stages[stage].step {
        Step::Cross { queue, .. } => matches!(system.links[queue / 2].scheduler, Scheduler::Htb | Scheduler::Hfsc),
        Step::Compute { .. } => false,
    })
}
