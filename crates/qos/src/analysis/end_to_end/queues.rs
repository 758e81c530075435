//! What comes to each queue, and from where.

use super::order::{Before, Coming, Member};
use super::{Because, Iteration, QueueBound, Room, load};
use crate::Class;
use crate::analysis::arrivals::BILLION;
use crate::analysis::link::curve::Bucket;
use crate::analysis::link::queue::Load;
use crate::analysis::stages::{Packets, Stages, Step};

/// The streams of each queue, apart by the queue that they come from, and what was found of it.
pub struct Queues(Vec<(Vec<Group>, Before)>);

/// What comes over one link, or begins here.
struct Group {
    /// The queue before; `None`: begins here.
    from: Option<usize>,
    /// The stages, and what is known of them from the beginning.
    members: Vec<(usize, Member)>,
}

impl Queues {
    pub fn new(stages: &Stages) -> Self {
        let mut queues: Vec<(Vec<Group>, Before)> = stages.outlets.iter().map(|_| Default::default()).collect();
        for (index, stage) in stages.stages.iter().enumerate() {
            let Step::Cross { queue, class, packets, forwarding } = stage.step else { continue };
            let before = stage.after.and_then(|after| match stages.stages[after].step {
                Step::Cross { queue, packets, .. } => Some((queue, packets)),
                Step::Compute { .. } => None,
            });
            let load = Load { arrivals: stages.arrivals(stage), work: packets.work() };
            let line = before.and_then(|(_, before)| line(&packets, &before));
            let member = (index, Member { load, class, last: packets.last, unit: packets.unit, line, forwarding });
            let from = before.map(|(queue, _)| queue);
            let groups = &mut queues[queue].0;
            match groups.iter_mut().find(|group| group.from == from) {
                Some(group) => group.members.push(member),
                None => groups.push(Group { from, members: vec![member] }),
            }
        }
        Self(queues)
    }

    fn of(&self, queue: usize) -> impl Iterator<Item = &(usize, Member)> {
        self.0[queue].0.iter().flat_map(|group| &group.members)
    }
}

/// How fast packets come that a link sends one after the other, in ns of work here per second, and the largest of them.
fn line(here: &Packets, there: &Packets) -> Option<Bucket> {
    let rate = |here: u64, there: u64| (u128::from(here) * BILLION).div_ceil(u128::from(there.max(1)));
    let rate = rate(here.first(), there.first()).max(rate(here.last, there.last));
    Some(Bucket { burst: here.largest(), rate: u64::try_from(rate).ok()? })
}

impl Iteration<'_> {
    /// How long everything stays in a queue.
    pub(super) fn serve(&mut self, queue: usize) {
        let outlet = self.outlet(queue);
        let mut before = self.queues.0[queue].1;
        let mut coming = Coming::new(outlet, &mut before, self.steps);
        for group in &self.queues.0[queue].0 {
            let mut known = Vec::with_capacity(group.members.len());
            for (stage, member) in &group.members {
                let unit = &mut coming.units[member.class as usize];
                *unit = member.unit.max(*unit);
                match self.passages[*stage].latest {
                    Some(latest) => known.push(member.late(latest.saturating_sub(self.passages[*stage].first))),
                    None => {
                        let because = self.because[*stage].unwrap_or(Because::TooLong(self.place(*stage)));
                        coming.unknown[member.class as usize].get_or_insert(because);
                    }
                }
            }
            coming.groups.push(known);
        }
        let found = coming.stays(outlet);
        self.queues.0[queue].1 = before;
        let here: Vec<(usize, Class)> = self.queues.of(queue).map(|(stage, member)| (*stage, member.class)).collect();
        for (stage, class) in here {
            match found[class as usize] {
                Ok(stay) => self.stays(stage, stay),
                Err(because) => self.refuse(stage, because),
            }
        }
    }

    /// What each class of a queue needs.
    pub(super) fn bounds(&self, queue: usize) -> [QueueBound; 4] {
        let mut bounds = [QueueBound::default(); 4];
        for (index, member) in self.queues.of(queue) {
            let Step::Cross { packets, .. } = self.stages.stages[*index].step else { continue };
            let bound = &mut bounds[member.class as usize];
            bound.load = bound.load.saturating_add(load(&member.load.arrivals, member.load.work));
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
        let samples = self.arrivals(stage, self.passages[stage].first)?.within(self.passages[stage].stay?.time);
        Some(Room { bytes: samples.saturating_mul(packets.bytes), packets: samples.saturating_mul(packets.count) })
    }
}
