//! Bounds of chains beside simulations of them.

use super::{EVENTS, Sketch, chained};
use crate::analysis::Steps;
use crate::analysis::chain::{bound, pairs, unsteady, wait};
use crate::analysis::end_to_end::{Analysis, analyse};
use crate::analysis::stages::Stages;
use crate::network::Network;
use crate::simulate::{Pattern, Run, worst};

/// A chain that kept its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Bound, ns.
    pub bound: u64,
    /// Each part's wait and bound, ns; their sum is the chain's.
    pub parts: Vec<[u64; 2]>,
    /// The latest that was seen, ns.
    pub seen: u64,
}

/// Compares the bound of the chain of a seed's sketch with simulations, and those of all its channels. `None`: it has no chain, or no bound.
///
/// # Errors
/// The chain or channel that exceeded its bound.
pub fn follow(seed: u64, tries: u64) -> Result<Option<Followed>, String> {
    let Some((sketch, stages, analysis)) = chained(seed).and_then(steady) else { return Ok(None) };
    let system = &sketch.system;
    let longest = system.topics.iter().map(|topic| topic.period + topic.jitter).max().unwrap_or(0);
    let run = Run { pattern: Pattern::Synchronous, seed, duration: 6 * longest, events: EVENTS };
    let seen = worst(system, &stages, &run, tries);
    for ((pair, bound), seen) in stages.pairs.iter().zip(&analysis.pairs).zip(&seen.pairs) {
        if bound.ns.is_ok_and(|ns| seen.max > ns) {
            return Err(format!("seed {seed}, {pair:?}: bound {:?} < seen {}", bound.ns, seen.max));
        }
    }
    let pairs = pairs(system, &stages).swap_remove(0);
    let Some(whole) = bound(system, 0, &pairs, &analysis) else { return Ok(None) };
    let part = |(index, pair): (usize, &Option<usize>)| {
        [wait(system, &system.chains[0], index), analysis.pairs[(*pair)?].ns.ok()?].into()
    };
    let parts: Vec<[u64; 2]> = pairs.iter().enumerate().filter_map(part).collect();
    let seen = seen.chains[0].max;
    if seen > whole {
        return Err(format!(
            "seed {seed}, chain {:?}: bound {whole} = {parts:?} < seen {seen}",
            system.chains[0].parts
        ));
    }
    Ok((seen > 0).then_some(Followed { bound: whole, parts, seen }))
}

/// States as much jitter as the topics of callbacks have. `None`: it grows without end, or is too much to simulate.
fn steady(mut sketch: Sketch) -> Option<(Sketch, Stages, Analysis)> {
    for _ in 0..50 {
        let Sketch { system, classes, places } = &mut sketch;
        let stages = Stages::new(system, &Network::new(system), places, classes);
        let analysis = analyse(system, &stages, &Steps::of(system));
        let missing = unsteady(system, &stages, &analysis);
        if missing.is_empty() {
            return Some((sketch, stages, analysis));
        }
        for one in missing {
            system.topics[one.topic].jitter = one.needs.filter(|ns| *ns < 1_000_000_000)?;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::seed;
    use super::*;

    /// Systems per run, at least: some 20 s.
    const SYSTEMS: usize = if cfg!(debug_assertions) { 150 } else { 1500 };
    /// Systems until each stage that is left out has been found out, at most: about one of 75 finds out the rarest.
    const MOST: u64 = 2000;

    type Part = fn(&Followed) -> u64;

    /// The stages of a chain's sum, ns.
    const STAGES: [(&str, Part); 4] = [
        ("the first channel", |one| one.parts[0][1]),
        ("the last channel", |one| one.parts.last().map_or(0, |part| part[1])),
        ("a channel between", |one| one.parts[1..one.parts.len() - 1].iter().map(|part| part[1]).max().unwrap_or(0)),
        ("a wait", |one| one.parts.iter().map(|part| part[0]).max().unwrap_or(0)),
    ];

    /// No chain ends later than its bound. With any one of its stages left out of the sum some chain does.
    #[test]
    fn chains_keep_their_bounds_and_each_stage_counts() {
        let first = seed() % (1 << 40);
        let mut found = [0; STAGES.len()];
        let mut ratios: Vec<f64> = Vec::new();
        for (tried, seed) in (first..first + MOST).enumerate() {
            if tried >= SYSTEMS && !found.contains(&0) {
                break;
            }
            let Some(one) = follow(seed, 1).unwrap_or_else(|wrong| panic!("{wrong}")) else { continue };
            ratios.push(one.bound as f64 / one.seen as f64);
            let breaks = STAGES.map(|(_, part)| usize::from(one.bound - part(&one) < one.seen));
            found.iter_mut().zip(breaks).for_each(|(found, breaks)| *found += breaks);
        }
        ratios.sort_by(f64::total_cmp);
        let (count, median) = (ratios.len(), ratios[ratios.len() / 2]);
        println!("{count} chains from seed {first}, bound / latest seen in the median {median:.2}");
        for ((stage, _), found) in STAGES.iter().zip(found) {
            println!("without {stage} {found} of {count} bounds break");
            assert!(found > 0, "without {stage} no bound breaks");
        }
        assert!(count > SYSTEMS / 4, "{count} of {SYSTEMS} have a bound");
    }

    /// 36 samples at once at a thread that reserves 60 us of each 3 ms, and computes 50 us for each: what a sample leaves of a period serves the
    /// next one, so they take 31 periods. One for each, as an earlier simulation had it, would be later than the bound.
    #[test]
    fn samples_that_share_a_period_of_a_reservation_keep_their_bound() {
        assert!(follow(702_186_791_247, 1).unwrap().is_some_and(|one| one.seen > 0));
    }

    /// A topic of callbacks comes unevenly: whoever states none of that has channels that break their bounds.
    #[test]
    fn channels_would_break_their_bounds_without_the_jitter_of_callbacks() {
        let breaks = |seed: &u64| {
            let Some(sketch) = chained(*seed) else { return false };
            let Sketch { system, classes, places } = &sketch;
            let stages = Stages::new(system, &Network::new(system), places, classes);
            let analysis = analyse(system, &stages, &Steps::of(system));
            if unsteady(system, &stages, &analysis).iter().any(|one| one.needs.is_none()) {
                return false;
            }
            let longest = system.topics.iter().map(|topic| topic.period + topic.jitter).max().unwrap_or(0);
            let run = Run { pattern: Pattern::Synchronous, seed: *seed, duration: 6 * longest, events: EVENTS };
            let seen = worst(system, &stages, &run, 1);
            let mut pairs = analysis.pairs.iter().zip(&seen.pairs);
            pairs.any(|(bound, seen)| bound.ns.is_ok_and(|ns| seen.max > ns))
        };
        let first = seed() % (1 << 40);
        let found = (first..first + 500).find(breaks);
        println!("found out by system {found:?} from seed {first}");
        assert!(found.is_some(), "by none of 500 systems from seed {first}");
    }
}
