//! Chains over several topics: a sample of the first one, the sample that a callback makes of it, and so on to the end of the last
//! callback.
//!
//! A part is published by the callback of the part before (event-driven): then it begins at the latest when that callback ends, and the
//! bounds add up. Or it is published on a clock of its own with what came last (sampled, time-driven): then what just missed a publication
//! waits for the next one, up to a period and its jitter (and with bursts, up to the next one). So the chain's latest end is
//!
//! L = Σ (wᵢ + Rᵢ), with wᵢ = 0 if event-driven, burst · T + jitter if sampled
//!
//! and with scale n of a subscriber behind the first part n − 1 periods more (then with the jitter in any case): the sample may be one that is left out.
//!
//! (Davare, Zhu, Di Natale, Pinello, Kanajan & Sangiovanni-Vincentelli: Period Optimization for Hard Real-time Distributed Automotive Systems, DAC 2007:
//! Σ (Tᵢ + Rᵢ) if all are sampled, the first one of an event outside, so that its period counts, too; Tindell & Clark 1994 for event-driven ones.) It
//! is counted from the call of `publish` until the end of the last topic's callback for the first sample that was made of this one *or of a later
//! one*: the first reaction of Feiertag, Richter, Nordlander & Jonsson (A Compositional Framework for End-to-End Path Delay Calculation of Automotive Systems
//! under Different Path Semantics, CRTS 2008), without the wait of an event for the first sample; not their maximum age of data.
//!
//! A topic that callbacks publish comes as unevenly as their ends: [`unsteady`] has those of which the contract states less jitter than
//! that. All other bounds rest on the stated one.

use super::end_to_end::Analysis;
use super::stages::Stages;
use crate::system::{Chain, ChainPart, System};
use std::collections::HashMap;

/// The longest from the end of the callback before a part until a sample of the part is published that its subscriber gets, ns; 0 for a
/// chain's first part.
pub fn wait(system: &System, chain: &Chain, part: usize) -> u64 {
    let Some(part) = chain.parts.get(part).filter(|_| part > 0) else { return 0 };
    let topic = system.topic_of(part);
    // Publications after the one that was just missed, or made, up to one that is not left out, and that ends a burst.
    let (scale, burst) = (system.subscribers[part.subscriber].scale.max(1), topic.burst.max(1));
    let further = u64::from(scale) - u64::from(!part.sampled);
    if further == 0 {
        return 0;
    }
    // A topic's period is rounded down. Here the longest one counts, up to a thousandth of a nanosecond.
    let period = topic.period.max((1e9 / topic.rate - 1e-3).ceil() as u64);
    period.saturating_mul(further + u64::from(burst) - 1).saturating_add(topic.jitter)
}

/// The pair of each part of each chain; `None` if its subscriber is not admitted.
pub fn pairs(system: &System, stages: &Stages) -> Vec<Vec<Option<usize>>> {
    if system.chains.is_empty() {
        return Vec::new();
    }
    let key = |(index, pair): (usize, &super::stages::Pair)| {
        ((stages.streams[pair.stream].publisher, pair.subscriber), index)
    };
    let known: HashMap<(usize, usize), usize> = stages.pairs.iter().enumerate().map(key).collect();
    let of = |part: &ChainPart| known.get(&(part.publisher, part.subscriber)).copied();
    system.chains.iter().map(|chain| chain.parts.iter().map(of).collect()).collect()
}

/// The bound of a chain over these pairs, ns; `None` if a part has none.
pub fn bound(system: &System, chain: usize, pairs: &[Option<usize>], analysis: &Analysis) -> Option<u64> {
    let part = |(index, pair): (usize, &Option<usize>)| {
        analysis.pairs[(*pair)?].ns.ok()?.checked_add(wait(system, &system.chains[chain], index))
    };
    pairs.iter().enumerate().try_fold(0_u64, |sum, one| sum.checked_add(part(one)?))
}

/// The pairs of each chain that misses its deadline, or has a deadline and no bound. Chains with a part
/// that is not admitted do not count.
pub fn late(system: &System, stages: &Stages, analysis: &Analysis) -> Vec<usize> {
    let is_late = |(index, pairs): (usize, Vec<Option<usize>>)| {
        let pairs_of = pairs.iter().copied().collect::<Option<Vec<usize>>>()?;
        let deadline = system.chains[index].deadline?;
        let late = bound(system, index, &pairs, analysis).is_none_or(|ns| ns > deadline);
        late.then_some(pairs_of)
    };
    pairs(system, stages).into_iter().enumerate().filter_map(is_late).flatten().collect()
}

/// A topic that comes less evenly than its contract states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsteady {
    /// The topic (index).
    pub topic: usize,
    /// The subscriber (index) whose callback publishes it.
    pub cause: usize,
    /// The jitter that it needs, ns: that of its cause, and the time between the earliest and the latest end of the callback. `None`: that
    /// end has no bound.
    pub needs: Option<u64>,
    /// The jitter that it states, ns.
    pub has: u64,
}

/// Topics that are published by callbacks, and come less evenly than stated.
pub fn unsteady(system: &System, stages: &Stages, analysis: &Analysis) -> Vec<Unsteady> {
    let mut found: Vec<Unsteady> = Vec::new();
    for (chain, pairs) in system.chains.iter().zip(pairs(system, stages)) {
        let following = chain.parts.windows(2).zip(pairs.windows(2)).filter(|(parts, _)| !parts[1].sampled);
        for (parts, pairs) in following {
            let (Some(before), Some(after)) = (pairs[0], pairs[1]) else { continue };
            let topic = system.subscribers[parts[1].subscriber].topic;
            let jitter = |pair: usize| stages.streams[stages.pairs[pair].stream].arrivals.jitter;
            let spread = analysis.pairs[before].ns.map(|latest| latest.saturating_sub(analysis.pairs[before].least));
            // Bursts are jitter, too: what is missing has to be stated besides them.
            let missing = spread.map(|spread| jitter(before).saturating_add(spread).saturating_sub(jitter(after)));
            if missing != Ok(0) && found.iter().all(|known| known.topic != topic) {
                let has = system.topics[topic].jitter;
                let needs = missing.ok().map(|missing| has.saturating_add(missing));
                found.push(Unsteady { topic, cause: parts[0].subscriber, needs, has });
            }
        }
    }
    found
}
