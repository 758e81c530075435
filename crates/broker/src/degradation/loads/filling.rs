//! Links that are filled up to a share: what was taken is given back, one thing after the other, as long as no link is crowded. Each look costs what the
//! one thing changes, not all streams.

use super::super::Step;
use super::super::pipes::PARTS;
use super::{Loads, Model, Stream, Wanted};

/// What a direction of a link carries.
#[derive(Clone, Copy, Debug, Default)]
struct Filled {
    /// bit/s.
    load: f64,
    /// Bits of all bursts with a deadline at once.
    bits: f64,
    /// The longest of those deadlines, s.
    longest: f64,
}

/// What a stream has in that.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Part {
    load: f64,
    bits: f64,
    deadline: Option<f64>,
}

/// Links with a part of all that is wanted.
#[derive(Debug)]
pub(in crate::degradation) struct Filling<'a> {
    model: &'a Model,
    share: f64,
    /// The number of taken steps without any of which each subscriber would be there.
    gone: Vec<u32>,
    scale: Vec<u32>,
    /// The number of subscribers of each topic for which samples are thinned or made smaller.
    with_proxies: Vec<u32>,
    parts: Vec<Part>,
    filled: Vec<Filled>,
}

impl<'a> Filling<'a> {
    /// With all of these steps taken.
    pub fn new(model: &'a Model, share: f64, steps: &[Step]) -> Self {
        let Wanted { gone, scale } = &model.base;
        let topics = model.loads.topics.iter().map(|(topic, _)| topic + 1).max().unwrap_or(0);
        let mut filling = Self {
            model,
            share,
            gone: gone.iter().map(|gone| u32::from(*gone)).collect(),
            scale: scale.clone(),
            with_proxies: vec![0; topics],
            parts: vec![Part::default(); model.loads.streams.len()],
            filled: vec![Filled::default(); model.loads.rates.len()],
        };
        for step in steps {
            match step {
                Step::Scale { index, most, .. } | Step::Shrink { index, most, .. } => {
                    filling.scale[*index] = filling.scale[*index].max(*most);
                }
                _ => model.lost(step).iter().for_each(|index| filling.gone[*index] += 1),
            }
        }
        for (index, (topic, _)) in model.loads.topics.iter().enumerate() {
            filling.with_proxies[*topic] += u32::from(filling.thins(index));
        }
        (0..filling.parts.len()).for_each(|stream| filling.fill(stream));
        filling
    }

    fn loads(&self) -> &'a Loads {
        &self.model.loads
    }

    /// The subscriber is there, and gets less than the whole stream.
    fn thins(&self, index: usize) -> bool {
        self.gone[index] == 0 && !self.loads().pipes[index] && (self.loads().topics[index].1 || self.scale[index] > 1)
    }

    /// `true` if no link is crowded.
    pub fn fits(&self) -> bool {
        (0..self.filled.len()).all(|direction| self.has_room(direction))
    }

    /// No more than the share of the rate is carried, nor do all bursts at once take longer than that share of the longest deadline.
    fn has_room(&self, direction: usize) -> bool {
        let (Filled { load, bits, longest }, rate) = (self.filled[direction], self.loads().rates[direction]);
        // A sum of so few terms is exact to a millionth.
        load <= self.share * rate * (1.0 + 1e-6) && bits <= self.share * longest * rate * (1.0 + 1e-6)
    }

    /// Gives back what a step took, unless a link is crowded with it: `false`.
    pub fn gives_back(&mut self, step: &Step) -> bool {
        match step {
            Step::Scale { index, own, .. } | Step::Shrink { index, own, .. } => self.scales(*index, *own),
            _ => {
                let its = self.model.lost(step);
                let fits = self.changes(its, |filling| its.iter().for_each(|index| filling.gone[*index] -= 1));
                if !fits {
                    its.iter().for_each(|index| self.gone[*index] += 1);
                }
                fits
            }
        }
    }

    /// Gives a subscriber one of so many samples, unless a link is crowded with it: `false`.
    pub fn scales(&mut self, index: usize, scale: u32) -> bool {
        let before = self.scale[index];
        let fits = self.changes(&[index], |filling| filling.scale[index] = scale);
        if !fits {
            self.scale[index] = before;
        }
        fits
    }

    /// Makes a change of these subscribers. If a link is crowded with it, streams and links are as before; what was changed itself is the caller's.
    fn changes(&mut self, subscribers: &[usize], change: impl FnOnce(&mut Self)) -> bool {
        let topics: Vec<usize> = subscribers.iter().map(|index| self.loads().topics[*index].0).collect();
        let had: Vec<u32> = topics.iter().map(|topic| self.with_proxies[*topic]).collect();
        self.count_thinned(subscribers, |count, thins| count - thins);
        change(self);
        self.count_thinned(subscribers, |count, thins| count + thins);
        let mut concerned: Vec<usize> = Vec::new();
        for ((index, topic), had) in subscribers.iter().zip(&topics).zip(&had) {
            concerned.extend(&self.model.streams_of[*index]);
            if (self.with_proxies[*topic] > 0) != (*had > 0) {
                concerned.extend(&self.model.streams_of_topic[*topic]);
            }
        }
        concerned.sort_unstable();
        concerned.dedup();
        let parts: Vec<Part> = concerned.iter().map(|stream| self.parts[*stream]).collect();
        let mut directions: Vec<usize> =
            concerned.iter().map(|stream| self.loads().streams[*stream].direction).collect();
        directions.sort_unstable();
        directions.dedup();
        let filled: Vec<Filled> = directions.iter().map(|direction| self.filled[*direction]).collect();
        concerned.iter().for_each(|stream| self.fill(*stream));
        let fits = directions.iter().all(|direction| self.has_room(*direction));
        if !fits {
            concerned.iter().zip(parts).for_each(|(stream, part)| self.parts[*stream] = part);
            directions.iter().zip(filled).for_each(|(direction, filled)| self.filled[*direction] = filled);
            topics.iter().zip(had).for_each(|(topic, had)| self.with_proxies[*topic] = had);
        }
        fits
    }

    fn count_thinned(&mut self, subscribers: &[usize], count: impl Fn(u32, u32) -> u32) {
        for index in subscribers {
            let (topic, thins) = (self.loads().topics[*index].0, u32::from(self.thins(*index)));
            self.with_proxies[topic] = count(self.with_proxies[topic], thins);
        }
    }

    /// Counts a stream as it is now in its direction.
    fn fill(&mut self, stream: usize) {
        let Stream { topic, direction, burst, receivers } = &self.loads().streams[stream];
        let may_avoid = self.with_proxies[*topic] > 0;
        let there = || receivers.iter().filter(|one| self.gone[one.index] == 0);
        let each = there().filter(|one| !(may_avoid && one.avoids));
        let deadline = there().filter_map(|one| self.loads().deadlines[one.index]).reduce(f64::max);
        let pipe = receivers.first().filter(|one| self.loads().pipes[one.index]);
        let part = Part {
            load: each.map(|one| one.load / f64::from(self.scale[one.index].max(1))).fold(0.0, f64::max),
            // A smaller pipe holds less at once.
            bits: match (deadline, pipe) {
                (None, _) => 0.0,
                (Some(_), None) => *burst,
                (Some(_), Some(one)) => burst * f64::from(PARTS) / f64::from(self.scale[one.index].max(1)),
            },
            deadline,
        };
        let before = std::mem::replace(&mut self.parts[stream], part);
        let filled = &mut self.filled[*direction];
        filled.load += part.load - before.load;
        filled.bits += part.bits - before.bits;
        // What is given back makes it longer only.
        filled.longest = filled.longest.max(part.deadline.unwrap_or(0.0));
    }
}
