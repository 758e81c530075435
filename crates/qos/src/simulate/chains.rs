//! Chains over several topics in virtual time: each sample is followed from the first publication to the last callback.

use crate::analysis::chain::pairs;
use crate::analysis::stages::Stages;
use crate::system::System;
use std::collections::{HashMap, VecDeque};

/// A place in a chain: the chain's index, and its part's.
type At = (usize, usize);

/// All chains of a run.
#[derive(Debug, Default)]
pub(super) struct Chains {
    /// Number of parts of each chain.
    lengths: Vec<usize>,
    /// The parts that end with each pair, and that begin with each stream.
    ends: HashMap<usize, Vec<At>>,
    begins: HashMap<usize, Vec<At>>,
    /// The stream that the callback of a pair publishes, and the samples of each such stream so far.
    made_by: HashMap<usize, usize>,
    made: HashMap<usize, u64>,
    /// Sampled parts: times at which inputs were there, with their first publications.
    inputs: HashMap<At, VecDeque<(u64, u64)>>,
    /// Ratio of published samples to those that each part's subscriber gets, and inputs of samples that it did not get.
    scales: HashMap<At, u64>,
    held: HashMap<At, u64>,
    /// Samples on their way in a part of a chain, but its first, with their first publications.
    since: HashMap<(usize, At), u64>,
}

impl Chains {
    pub(super) fn new(system: &System, stages: &Stages) -> Self {
        let mut all = Self::default();
        for (index, (chain, pairs)) in system.chains.iter().zip(pairs(system, stages)).enumerate() {
            all.lengths.push(chain.parts.len());
            let Some(pairs) = pairs.into_iter().collect::<Option<Vec<usize>>>() else { continue };
            for (at, (part, pair)) in chain.parts.iter().zip(&pairs).enumerate() {
                let stream = stages.pairs[*pair].stream;
                all.ends.entry(*pair).or_default().push((index, at));
                all.begins.entry(stream).or_default().push((index, at));
                all.scales.insert((index, at), u64::from(system.subscribers[part.subscriber].scale.max(1)));
                if at > 0 && part.sampled {
                    all.inputs.insert((index, at), VecDeque::new());
                } else if at > 0 {
                    all.made_by.insert(pairs[at - 1], stream);
                    all.made.insert(stream, 0);
                }
            }
        }
        all
    }

    /// `true` for a stream that a callback publishes, and no clock.
    pub(super) fn makes(&self, stream: usize) -> bool {
        self.made.contains_key(&stream)
    }

    /// The stream of which the callback of this pair publishes a sample.
    pub(super) fn made_by(&self, pair: usize) -> Option<usize> {
        self.made_by.get(&pair).copied()
    }

    /// The number of the next sample of a stream that a callback publishes.
    pub(super) fn next(&mut self, stream: usize) -> u64 {
        let made = self.made.entry(stream).or_default();
        *made += 1;
        *made - 1
    }

    /// A sample is published, made of another one by a callback, or of what came before `now`.
    pub(super) fn published(&mut self, now: u64, stream: usize, (sample, number): (usize, u64), of: Option<usize>) {
        for at in self.begins.get(&stream).into_iter().flatten().filter(|(_, part)| *part > 0) {
            let since = match self.inputs.get_mut(at) {
                Some(inputs) => {
                    // All of these wait since the last publication. The sample is made of the last one, and is late by the first one.
                    let there = inputs.partition_point(|(there, _)| *there < now);
                    let first = inputs.drain(..there).map(|(_, since)| since).next();
                    // A clock that has not begun yet publishes nothing.
                    first.filter(|_| number > 0)
                }
                None => of.and_then(|of| self.since.remove(&(of, *at))),
            };
            let Some(since) = self.held.remove(at).or(since) else { continue };
            // The subscriber gets one that is made of a later input, which counts for this one.
            match number.is_multiple_of(self.scales[at]) {
                true => self.since.insert((sample, *at), since),
                false => self.held.insert(*at, since),
            };
        }
    }

    /// A sample, published at `published`, is done with at the end of a pair. Gives the chains that end here, with their first publications.
    pub(super) fn ended(&mut self, now: u64, pair: usize, sample: usize, published: u64) -> Vec<(usize, u64)> {
        let mut ended = Vec::new();
        for (chain, part) in self.ends.get(&pair).into_iter().flatten().copied() {
            let since = if part == 0 { Some(published) } else { self.since.remove(&(sample, (chain, part))) };
            let (Some(since), next) = (since, (chain, part + 1)) else { continue };
            if part + 1 == self.lengths[chain] {
                ended.push((chain, since));
            } else if let Some(inputs) = self.inputs.get_mut(&next) {
                inputs.push_back((now, since));
            } else {
                // The sample that the callback makes of it takes this over.
                self.since.insert((sample, next), since);
            }
        }
        ended
    }
}
