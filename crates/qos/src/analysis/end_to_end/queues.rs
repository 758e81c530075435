//! What comes to each queue, and from where.

use super::order::{Coming, Member};
use super::{Because, Iteration, QueueBound, Room, load};
use crate::Class;
use crate::analysis::link::queue::Load;
use crate::analysis::stages::{Packets, Stages, Step};

/// The streams of each queue, apart by the queue that they come from.
pub struct Queues(Vec<Vec<Group>>);

/// What comes over one link, or begins here.
struct Group {
    /// The queue before; `None`: begins here.
    from: Option<usize>,
    stages: Vec<usize>,
}

impl Queues {
    pub fn new(stages: &Stages) -> Self {
        let mut queues: Vec<Vec<Group>> = stages.outlets.iter().map(|_| Vec::new()).collect();
        for (index, stage) in stages.stages.iter().enumerate() {
            let Step::Cross { queue, .. } = stage.step else { continue };
            let from = stage.after.and_then(|after| match stages.stages[after].step {
                Step::Cross { queue, .. } => Some(queue),
                Step::Compute { .. } => None,
            });
            match queues[queue].iter_mut().find(|group| group.from == from) {
                Some(group) => group.stages.push(index),
                None => queues[queue].push(Group { from, stages: vec![index] }),
            }
        }
        Self(queues)
    }
}

impl Iteration<'_> {
    /// How long everything stays in a queue.
    pub(super) fn serve(&mut self, queue: usize) {
        let outlet = self.outlet(queue);
        let mut coming = Coming::new(outlet);
        for group in &self.queues.0[queue] {
            let mut known = Vec::new();
            for stage in &group.stages {
                let Step::Cross { class, packets, .. } = self.stages.stages[*stage].step else { continue };
                coming.units[class as usize] = coming.units[class as usize].max(packets.unit);
                match self.member(*stage) {
                    Some(member) => known.push(member),
                    None => {
                        let because = self.because[*stage].unwrap_or(Because::TooLong(self.place(*stage)));
                        coming.unknown[class as usize].get_or_insert(because);
                    }
                }
            }
            coming.groups.push(known);
        }
        let found = Class::ALL.map(|class| coming.stay(outlet, class));
        let here: Vec<usize> = self.queues.0[queue].iter().flat_map(|group| &group.stages).copied().collect();
        for stage in here {
            match found[self.class(stage) as usize] {
                Ok(stay) => self.stays(stage, stay),
                Err(because) => self.refuse(stage, because),
            }
        }
    }

    fn class(&self, stage: usize) -> Class {
        match self.stages.stages[stage].step {
            Step::Cross { class, .. } => class,
            Step::Compute { .. } => Class::default(),
        }
    }

    fn member(&self, index: usize) -> Option<Member> {
        let stage = &self.stages.stages[index];
        let Step::Cross { class, packets, forwarding, .. } = stage.step else { return None };
        let before = stage.after.and_then(|after| match self.stages.stages[after].step {
            Step::Cross { packets, .. } => Some(packets),
            Step::Compute { .. } => None,
        });
        let load = Load { arrivals: self.arrivals(index, self.passages[index].first)?, work: packets.work() };
        Some(Member { load, class, packets, before, forwarding })
    }

    /// What each class of a queue needs.
    pub(super) fn bounds(&self, queue: usize) -> [QueueBound; 4] {
        let mut bounds = [QueueBound::default(); 4];
        for index in self.queues.0[queue].iter().flat_map(|group| &group.stages) {
            let stage = &self.stages.stages[*index];
            let Step::Cross { class, packets, .. } = stage.step else { continue };
            let bound = &mut bounds[class as usize];
            bound.load = bound.load.saturating_add(load(&self.stages.arrivals(stage), packets.work()));
            bound.room = self.room(*index, packets).and_then(|room| {
                let sum = if bound.streams == 0 { Room::default() } else { bound.room? };
                Some(Room {
                    bytes: sum.bytes.saturating_add(room.bytes),
                    packets: sum.packets.saturating_add(room.packets),
                })
            });
            bound.stay = self.passages[*index].stay;
            bound.streams += 1;
        }
        bounds
    }

    /// What of a stream waits at most: what comes while the first of it stays.
    fn room(&self, stage: usize, packets: Packets) -> Option<Room> {
        let samples = self.member(stage)?.load.arrivals.within(self.passages[stage].stay?.time);
        Some(Room { bytes: samples.saturating_mul(packets.bytes), packets: samples.saturating_mul(packets.count) })
    }
}
