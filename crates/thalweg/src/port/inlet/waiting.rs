//! What waits to be taken, within the subscriber's queue and its limits (DDS 1.4, §2.2.3.18 HISTORY and §2.2.3.19
//! RESOURCE_LIMITS). Pure.
//!
//! A queue that keeps the last samples keeps those of each instance, where the port states a key; one that keeps all counts
//! the samples of all instances. What finds no room is rejected, except that the last samples take the place of older ones
//! of their instance.

use qos::{Durability, Qos, Queue, ResourceLimit};
use std::collections::{HashMap, VecDeque};

/// Instances that are reckoned with where no limit is stated.
const MOST_INSTANCES: usize = 4096;
/// Room that a queue has from the start.
const ROOM: usize = 1024;

/// Whether there is room for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There was.
    Free,
    /// There is now: the oldest of its instance was dropped.
    DroppedOldest,
    /// There is none.
    None(ResourceLimit),
}

/// Samples with the numbers of their instances, the oldest first.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    samples: VecDeque<(u64, T)>,
    most: usize,
    most_each: usize,
    keeps_last: bool,
    /// How many wait of each instance; `None`: instances are not told apart.
    of: Option<HashMap<u64, usize>>,
}

impl<T> Waiting<T> {
    /// Nothing waits; the history of a late joiner comes at once, and is not to drop itself.
    pub fn new(requested: &Qos) -> Self {
        let Qos { queue, limits, .. } = requested;
        let durable = requested.durability == Durability::TransientLocal;
        let number = |samples: u32| samples as usize;
        let depth = number(queue.limit().max(if durable { requested.history } else { 0 }));
        let keeps_last = matches!(queue, Queue::KeepLast(_));
        let tells_apart = !requested.key.is_empty();
        let instances = limits.instances.map_or(MOST_INSTANCES, number);
        let most = if keeps_last && tells_apart { depth.saturating_mul(instances) } else { depth };
        let most = most.min(limits.samples.map_or(usize::MAX, number));
        let most_each = if keeps_last { depth } else { limits.samples_per_instance.map_or(depth, number) };
        let of = (tells_apart && (keeps_last || most_each < most)).then(HashMap::new);
        Self { samples: VecDeque::with_capacity(depth.min(ROOM)), most, most_each, keeps_last, of }
    }

    /// The most that may wait: of all instances, and of one.
    pub fn limits(&self) -> (usize, usize) {
        (self.most, self.most_each)
    }

    /// Whether instances have to be told apart.
    pub fn tells_apart(&self) -> bool {
        self.of.is_some()
    }

    /// From now on there is room for so many samples of a history, if the port states no key by which they are counted.
    pub fn expect(&mut self, history: usize) {
        if self.of.is_none() && self.keeps_last {
            self.most = self.most.max(history);
            self.most_each = self.most_each.max(history);
        }
    }

    /// Makes room for a sample of this instance.
    pub fn make_room(&mut self, instance: u64) -> Room {
        let each = self.of.as_ref().map_or(self.samples.len(), |of| of.get(&instance).copied().unwrap_or(0));
        if each >= self.most_each && self.keeps_last {
            let tells_apart = self.of.is_some();
            let oldest = self.samples.iter().position(|(other, _)| !tells_apart || *other == instance);
            if let Some((instance, _)) = oldest.and_then(|at| self.samples.remove(at)) {
                self.count_down(instance);
            }
            return Room::DroppedOldest;
        }
        match () {
            () if self.samples.len() >= self.most => Room::None(ResourceLimit::Samples),
            () if each >= self.most_each => Room::None(ResourceLimit::SamplesPerInstance),
            () => Room::Free,
        }
    }

    /// Puts a sample behind all others, after room was made for it.
    pub fn push(&mut self, instance: u64, sample: T) {
        self.samples.push_back((instance, sample));
        if let Some(of) = &mut self.of {
            *of.entry(instance).or_default() += 1;
        }
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<T> {
        let (instance, sample) = self.samples.pop_front()?;
        self.count_down(instance);
        Some(sample)
    }

    fn count_down(&mut self, instance: u64) {
        let Some(of) = &mut self.of else { return };
        if let Some(count) = of.get_mut(&instance) {
            *count -= 1;
            if *count == 0 && of.len() > MOST_INSTANCES {
                of.remove(&instance);
            }
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use qos::ResourceLimits;

    fn of(queue: Queue, key: bool, limits: ResourceLimits) -> Waiting<u32> {
        Waiting::new(&Qos { queue, limits, key: vec!["id".to_owned(); usize::from(key)], ..Qos::default() })
    }

    /// As the policies say, by looking at everything.
    fn model(waiting: &mut Vec<(u64, u32)>, queue: Queue, key: bool, limits: ResourceLimits, new: (u64, u32)) -> Room {
        let same = |other: u64| !key || other == new.0;
        let each = waiting.iter().filter(|(other, _)| same(*other)).count() as u32;
        let depth = queue.limit();
        if matches!(queue, Queue::KeepLast(_)) && each >= depth {
            let oldest = waiting.iter().position(|(other, _)| same(*other)).unwrap();
            waiting.remove(oldest);
            waiting.push(new);
            return Room::DroppedOldest;
        }
        let all = if matches!(queue, Queue::KeepAll(_)) { depth } else { u32::MAX };
        if waiting.len() as u32 >= all.min(limits.samples.unwrap_or(u32::MAX)) {
            return Room::None(ResourceLimit::Samples);
        }
        if each >= limits.samples_per_instance.unwrap_or(u32::MAX) {
            return Room::None(ResourceLimit::SamplesPerInstance);
        }
        waiting.push(new);
        Room::Free
    }

    proptest! {
        #[test]
        fn what_waits_is_what_the_policies_say(
            keeps_last: bool, key: bool, depth in 1_u32..6, more in prop::option::of(0_u32..8), each in prop::option::of(0_u32..4),
            steps in prop::collection::vec((any::<bool>(), 0_u64..4), 1..120),
        ) {
            let queue = if keeps_last { Queue::KeepLast(depth) } else { Queue::KeepAll(depth) };
            let samples = more.map(|more| depth + more);
            // As far as they do not contradict each other.
            let floor = if keeps_last { depth } else { 1 };
            let samples_per_instance = each.map(|each| (floor + each).min(samples.unwrap_or(u32::MAX)));
            let limits = ResourceLimits { samples, samples_per_instance, instances: None };
            let (mut waiting, mut list) = (of(queue, key, limits), Vec::<(u64, u32)>::new());
            for (number, (takes, instance)) in (0_u32..).zip(steps) {
                if takes {
                    let oldest = (!list.is_empty()).then(|| list.remove(0).1);
                    prop_assert_eq!(waiting.pop(), oldest);
                    continue;
                }
                let room = waiting.make_room(instance);
                prop_assert_eq!(room, model(&mut list, queue, key, limits, (instance, number)));
                if !matches!(room, Room::None(_)) {
                    waiting.push(instance, number);
                }
                prop_assert_eq!((waiting.len(), waiting.is_empty()), (list.len(), list.is_empty()));
            }
            prop_assert_eq!(std::iter::from_fn(|| waiting.pop()).collect::<Vec<_>>(), list.into_iter().map(|(_, n)| n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_history_of_a_late_joiner_has_room() {
        let durable = |key: &[&str]| {
            let key = key.iter().map(|k| (*k).to_owned()).collect();
            Waiting::<u32>::new(&Qos { durability: Durability::TransientLocal, history: 40, key, ..Qos::default() })
        };
        assert_eq!((durable(&[]).limits(), durable(&["id"]).limits()), ((40, 40), (40 * MOST_INSTANCES, 40)));
        let mut waiting = durable(&[]);
        waiting.expect(300);
        (0..300).for_each(|n| {
            assert_eq!(waiting.make_room(0), Room::Free);
            waiting.push(0, n);
        });
        assert_eq!((waiting.make_room(0), waiting.pop()), (Room::DroppedOldest, Some(1)));
    }
}
