//! Waiting samples, within the subscriber's queue and its limits (DDS 1.4, §2.2.3.18 HISTORY and §2.2.3.19
//! RESOURCE_LIMITS). Pure.
//!
//! A keep-last queue keeps the last samples of each instance if the port states a key; a keep-all queue counts the samples of
//! all instances. A sample that finds no room is rejected, except that in a keep-last queue it replaces older ones of its
//! instance.

use qos::{Durability, Qos, Queue, ResourceLimit};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Room for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There was.
    Free,
    /// There is room now: this many of the oldest were dropped, because of this limit.
    DroppedOldest(u32, ResourceLimit),
    /// There is none.
    None(ResourceLimit),
}

/// A waiting sample of this instance, with the bytes that it counts for.
#[derive(Debug)]
struct Place<T> {
    instance: u64,
    size: usize,
    sample: T,
}

/// Samples with the numbers of their instances, the oldest first.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    samples: VecDeque<Place<T>>,
    /// Samples for which memory is made at once.
    room: usize,
    bytes: usize,
    most_bytes: usize,
    most: usize,
    most_each: usize,
    keeps_last: bool,
    /// The number of waiting samples of each instance; `None`: instances are not told apart.
    of: Option<HashMap<u64, usize>>,
}

impl<T> Waiting<T> {
    /// An empty queue. The history of a late joiner comes at once, so the depth has room for all of it. `takes_all`: all samples will wait
    /// here, and there is memory for them from the start; else from the first one on that waits.
    pub(super) fn new(requested: &Qos, takes_all: bool) -> Self {
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
        let most_bytes = usize::try_from(requested.queue_bytes()).unwrap_or(usize::MAX);
        let room = depth.min(ROOM);
        Self {
            samples: VecDeque::with_capacity(if takes_all { room } else { 0 }),
            room,
            bytes: 0,
            most_bytes,
            most,
            most_each,
            keeps_last,
            of,
        }
    }

    /// The most that may wait: of all instances, and of one.
    pub(super) fn limits(&self) -> (usize, usize) {
        (self.most, self.most_each)
    }

    /// Bytes that may wait.
    pub(super) fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// `true` if instances have to be told apart.
    pub(super) fn tells_apart(&self) -> bool {
        self.of.is_some()
    }

    /// From now on there is room for this many samples of a history, if the port has no key by which they are counted.
    pub(super) fn expect(&mut self, history: usize) {
        if self.of.is_none() && self.keeps_last {
            self.most = self.most.max(history);
            self.most_each = self.most_each.max(history);
        }
    }

    /// Makes room for a sample of this instance, which counts for `size` bytes; `memory`: the node has none for it.
    ///
    /// In a keep-last queue a sample takes the place of older ones: of its instance by number, of any instance by bytes and memory.
    /// If as many bytes are dropped for it, the node needs no memory for it. If there are not as many, it is rejected.
    pub(super) fn make_room(&mut self, instance: u64, size: usize, memory: Option<ResourceLimit>) -> Room {
        if !self.keeps_last || (memory.is_some() && self.bytes < size) {
            let limit = self.has_room(instance, size).err().filter(|_| !self.keeps_last).or(memory);
            return limit.map_or(Room::Free, Room::None);
        }
        let (mut dropped, mut freed, mut first) = (0, 0, None);
        while let Some(limit) = self.has_room(instance, size).err().or(memory.filter(|_| freed < size)) {
            let Some(bytes) = self.drop_for(instance, limit) else { return Room::None(limit) };
            (dropped, freed, first) = (dropped + 1, freed + bytes, first.or(Some(limit)));
        }
        first.map_or(Room::Free, |limit| Room::DroppedOldest(dropped, limit))
    }

    fn has_room(&self, instance: u64, size: usize) -> Result<(), ResourceLimit> {
        let each = self.of.as_ref().map_or(self.samples.len(), |of| of.get(&instance).copied().unwrap_or(0));
        match () {
            () if each >= self.most_each && self.keeps_last => Err(ResourceLimit::SamplesPerInstance),
            () if self.samples.len() >= self.most => Err(ResourceLimit::Samples),
            () if each >= self.most_each => Err(ResourceLimit::SamplesPerInstance),
            () if self.bytes.saturating_add(size) > self.most_bytes && !self.samples.is_empty() => {
                Err(ResourceLimit::Bytes)
            }
            () => Ok(()),
        }
    }

    /// Drops the oldest sample that counts for this limit, and gives its bytes. For the limit of all instances there is none: a
    /// new sample does not push out another instance's.
    fn drop_for(&mut self, instance: u64, limit: ResourceLimit) -> Option<usize> {
        let at = match limit {
            ResourceLimit::Samples => return None,
            ResourceLimit::SamplesPerInstance if self.of.is_some() => {
                self.samples.iter().position(|place| place.instance == instance)?
            }
            _ => 0,
        };
        let place = self.samples.remove(at)?;
        self.left(&place);
        Some(place.size)
    }

    /// Makes memory for samples that will come: who brings them does not make it then.
    pub(super) fn prepare(&mut self) {
        if self.samples.capacity() == 0 {
            self.samples.reserve(self.room);
        }
    }

    /// Puts a sample behind all others, after room was made for it.
    pub(super) fn push(&mut self, instance: u64, size: usize, sample: T) {
        self.prepare(); // at once, and not again and again while a burst comes
        self.samples.push_back(Place { instance, size, sample });
        self.bytes += size;
        if let Some(of) = &mut self.of {
            *of.entry(instance).or_default() += 1;
        }
    }

    /// Takes the oldest.
    pub(super) fn pop(&mut self) -> Option<T> {
        let place = self.samples.pop_front()?;
        self.left(&place);
        Some(place.sample)
    }

    fn left(&mut self, place: &Place<T>) {
        self.bytes -= place.size;
        self.count_down(place.instance);
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

    /// Their bytes, as counted.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of waiting samples.
    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    /// `true` if none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

/// Counts of samples rejected by one limit.
#[derive(Debug, Default)]
struct Count {
    most: u64,
    total: AtomicU64,
    told: AtomicU64,
}

/// Counts of samples that found no room: they are counted where they arrive, and reported from time to time.
#[derive(Debug)]
pub(crate) struct Rejected {
    by: [Count; LIMITS.len()],
}

/// Samples that were rejected by a limit since the last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub limit: ResourceLimit,
    pub most: u64,
    pub rejected: u64,
    /// By this limit, in all.
    pub total: u64,
}

impl Rejected {
    /// Empty counts, with the limits: waiting samples of all instances and of one, waiting bytes, and the memory of the node.
    pub(crate) fn new((samples, each): (usize, usize), bytes: usize, memory: usize) -> Self {
        let count = |most: usize| Count { most: most as u64, ..Count::default() };
        Self { by: [samples, each, bytes, memory / 2, memory].map(count) }
    }

    /// Counts a sample that found no room.
    #[cold]
    pub(crate) fn note(&self, limit: ResourceLimit) {
        if let Some((_, count)) = LIMITS.iter().zip(&self.by).find(|(of, _)| **of == limit) {
            count.total.fetch_add(1, Relaxed);
        }
    }

    /// Counts samples that gave way to others by this limit. Limits of number are not reported: a keep-last queue is meant to
    /// drop older samples.
    #[cold]
    pub(crate) fn note_dropped(&self, limit: ResourceLimit, count: u64) {
        let by_number = matches!(limit, ResourceLimit::Samples | ResourceLimit::SamplesPerInstance);
        if let Some((_, by)) = LIMITS.iter().zip(&self.by).find(|(of, _)| **of == limit && !by_number) {
            by.total.fetch_add(count, Relaxed);
        }
    }

    /// Samples rejected by bytes, and by the memory of the peer or the node, in all.
    pub(crate) fn by_memory(&self) -> (u64, u64) {
        let [.., bytes, peer, node] = self.by.each_ref().map(|count| count.total.load(Relaxed));
        (bytes, peer + node)
    }

    /// The number in all.
    pub(crate) fn total(&self) -> u64 {
        self.by.iter().map(|count| count.total.load(Relaxed)).sum()
    }

    /// The rejections not yet reported, by limit.
    pub(crate) fn tell(&self) -> impl Iterator<Item = Rejection> {
        LIMITS.into_iter().zip(&self.by).filter_map(|(limit, count)| {
            let total = count.total.load(Relaxed);
            let rejected = total - count.told.swap(total, Relaxed).min(total);
            (rejected > 0).then_some(Rejection { limit, most: count.most, rejected, total })
        })
    }
}

/// The default limit of instances.
const MOST_INSTANCES: usize = 4096;
/// The most samples for which a queue has room before they come.
const ROOM: usize = 1024;

/// The limits by which samples are rejected or dropped.
const LIMITS: [ResourceLimit; 5] = [
    ResourceLimit::Samples,
    ResourceLimit::SamplesPerInstance,
    ResourceLimit::Bytes,
    ResourceLimit::PeerMemory,
    ResourceLimit::NodeMemory,
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use qos::ResourceLimits;

    /// A sample of the model: its instance, number and size.
    type One = (u64, u32, usize);

    /// The policies' definition, by brute force. `most`: the bytes that may wait, and those that the node has.
    fn model(waiting: &mut Vec<One>, qos: &Qos, most: (usize, usize), new: One) -> Room {
        let same = |other: u64| qos.key.is_empty() || other == new.0;
        let keeps_last = matches!(qos.queue, Queue::KeepLast(_));
        let (depth, limits) = (qos.queue.limit(), qos.limits);
        let all = if keeps_last { u32::MAX } else { depth };
        let own = |waiting: &[One]| waiting.iter().map(|(.., size)| size).sum::<usize>();
        let before = own(waiting);
        let memory = (before + new.2 > most.1).then_some(ResourceLimit::NodeMemory);
        if let Some(limit) = memory.filter(|_| keeps_last && before < new.2) {
            return Room::None(limit);
        }
        let (mut dropped, mut first) = (0, None);
        loop {
            let each = waiting.iter().filter(|(other, ..)| same(*other)).count() as u32;
            let (limit, oldest) = if keeps_last && each >= depth {
                (ResourceLimit::SamplesPerInstance, waiting.iter().position(|(other, ..)| same(*other)))
            } else if waiting.len() as u32 >= all.min(limits.samples.unwrap_or(u32::MAX)) {
                (ResourceLimit::Samples, None)
            } else if each >= limits.samples_per_instance.unwrap_or(u32::MAX) {
                (ResourceLimit::SamplesPerInstance, None)
            } else if own(waiting) + new.2 > most.0 && !waiting.is_empty() {
                (ResourceLimit::Bytes, Some(0))
            } else if let Some(limit) = memory.filter(|_| !keeps_last || before - own(waiting) < new.2) {
                (limit, Some(0))
            } else {
                waiting.push(new);
                return first.map_or(Room::Free, |limit| Room::DroppedOldest(dropped, limit));
            };
            let Some(oldest) = oldest.filter(|_| keeps_last) else { return Room::None(limit) };
            waiting.remove(oldest);
            (dropped, first) = (dropped + 1, first.or(Some(limit)));
        }
    }

    proptest! {
        #[test]
        fn the_waiting_samples_are_those_of_the_policies(
            keeps_last: bool, key: bool, depth in 1_u32..6, more in prop::option::of(0_u32..8), each in prop::option::of(0_u32..4),
            most in (1_usize..60, 10_usize..80),
            steps in prop::collection::vec((any::<bool>(), 0_u64..4, 1_usize..20), 1..120),
        ) {
            let queue = if keeps_last { Queue::KeepLast(depth) } else { Queue::KeepAll(depth) };
            let samples = more.map(|more| depth + more);
            // Limits count as far as they do not contradict each other.
            let floor = if keeps_last { depth } else { 1 };
            let samples_per_instance = each.map(|each| (floor + each).min(samples.unwrap_or(u32::MAX)));
            let limits = ResourceLimits { samples, samples_per_instance, bytes: Some(most.0 as u64), ..Default::default() };
            let qos = Qos { queue, limits, key: vec!["id".to_owned(); usize::from(key)], ..Qos::default() };
            let (mut waiting, mut list) = (Waiting::new(&qos, true), Vec::<One>::new());
            for (number, (takes, instance, size)) in (0_u32..).zip(steps) {
                if takes {
                    let oldest = (!list.is_empty()).then(|| list.remove(0).1);
                    prop_assert_eq!(waiting.pop(), oldest);
                    continue;
                }
                let memory = (waiting.bytes() + size > most.1).then_some(ResourceLimit::NodeMemory);
                let room = waiting.make_room(instance, size, memory);
                prop_assert_eq!(room, model(&mut list, &qos, most, (instance, number, size)));
                if !matches!(room, Room::None(_)) {
                    waiting.push(instance, size, number);
                }
                prop_assert_eq!((waiting.len(), waiting.is_empty()), (list.len(), list.is_empty()));
                prop_assert_eq!(waiting.bytes(), list.iter().map(|(.., size)| size).sum::<usize>());
            }
            let left = list.into_iter().map(|(_, n, _)| n).collect::<Vec<_>>();
            prop_assert_eq!(std::iter::from_fn(|| waiting.pop()).collect::<Vec<_>>(), left);
        }
    }

    #[test]
    fn the_history_of_a_late_joiner_has_room() {
        let durable = |key: &[&str]| {
            let key = key.iter().map(|k| (*k).to_owned()).collect();
            let qos = Qos { durability: Durability::TransientLocal, history: 40, key, ..Qos::default() };
            Waiting::<u32>::new(&qos, true)
        };
        assert_eq!((durable(&[]).limits(), durable(&["id"]).limits()), ((40, 40), (40 * MOST_INSTANCES, 40)));
        let mut waiting = durable(&[]);
        waiting.expect(300);
        (0..300).for_each(|n| {
            assert_eq!(waiting.make_room(0, 1, None), Room::Free);
            waiting.push(0, 1, n);
        });
        let dropped = Room::DroppedOldest(1, ResourceLimit::SamplesPerInstance);
        assert_eq!((waiting.make_room(0, 1, None), waiting.pop()), (dropped, Some(1)));
    }

    #[test]
    fn rejections_are_told_once_with_their_limit() {
        let rejected = Rejected::new((9, 4), 1000, 8000);
        let came = [ResourceLimit::Samples, ResourceLimit::PeerMemory, ResourceLimit::Samples];
        came.into_iter().for_each(|limit| rejected.note(limit));
        let told: Vec<_> = rejected.tell().map(|r| (r.limit, r.most, r.rejected, r.total)).collect();
        assert_eq!(told, [(ResourceLimit::Samples, 9, 2, 2), (ResourceLimit::PeerMemory, 4000, 1, 1)]);
        assert_eq!((rejected.tell().count(), rejected.total()), (0, 3));
        rejected.note(ResourceLimit::Samples);
        assert_eq!(rejected.tell().map(|r| (r.rejected, r.total)).collect::<Vec<_>>(), [(1, 3)]);
    }
}
