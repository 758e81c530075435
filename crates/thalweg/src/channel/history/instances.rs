//! The last samples of each instance of a keyed topic, for the late joiners of a durable publisher (DDS 1.4, §2.2.3.4: the
//! depth of §2.2.3.18 counts for each instance). Pure.

use super::Entry;
use crate::channel::buffer::Buffer;
use crate::channel::memory::{ALWAYS, Account, Charge, size_of};
use qos::Qos;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Instances that are kept where no limit is stated.
const MOST_INSTANCES: u32 = 4096;
/// Room that an instance has from its first sample on; it grows to its limit as it fills.
const ROOM: usize = 16;

/// The last samples of each instance.
///
/// The samples are copies, in memory that is reused. Shared buffers, kept as long as their instances, would be scattered over
/// the publisher's pool, which looks for a free buffer one by one.
#[derive(Debug)]
pub(crate) struct Instances {
    depth: usize,
    most: usize,
    all: HashMap<u64, VecDeque<Entry>>,
    bytes: usize,
    /// Pays for them.
    account: Option<Arc<Account>>,
}

impl Instances {
    /// No samples yet. A publisher of this QoS keeps `history` samples of each instance, within its limits.
    pub(crate) fn new(offered: &Qos) -> Self {
        let depth = offered.history.max(1);
        let by_samples = offered.limits.samples.map_or(u32::MAX, |samples| samples / depth);
        let most = offered.limits.instances.unwrap_or(MOST_INSTANCES).min(by_samples).max(1);
        Self { depth: depth as usize, most: most as usize, all: HashMap::new(), bytes: 0, account: None }
    }

    /// The same, whose bytes are taken from this account.
    pub(crate) fn within(self, account: Arc<Account>) -> Self {
        Self { account: Some(account), ..self }
    }

    /// Keeps a sample of an instance. A new instance beyond the limit takes the place of one that ended, or else of the one
    /// that was silent for longest. So does a sample without memory, unless it is no larger than the sample whose place it takes,
    /// or all together are small. `false`: there is no memory for it at all.
    pub(crate) fn keep(&mut self, instance: u64, entry: &Entry) -> bool {
        let size = entry.buffer.payload().len();
        if size > ALWAYS && self.account.as_ref().is_some_and(|account| account.never_holds(size_of(size))) {
            return false; // the others stay
        }
        if self.all.len() >= self.most && !self.all.contains_key(&instance) {
            self.drop_one();
        }
        let full = self.all.get_mut(&instance).filter(|of| of.len() >= self.depth);
        if full.as_ref().and_then(|of| of.front()).is_some_and(|first| entry.seq < first.seq) {
            return true; // a monitor held it back until later samples had come
        }
        let oldest = full.and_then(VecDeque::pop_front).map(|oldest| oldest.buffer); // its memory is given back
        let freed = oldest.as_ref().map_or(0, |buffer| buffer.payload().len());
        self.bytes -= freed;
        let Some(charge) = self.charge(size, freed) else { return false };
        self.bytes += size;
        let buffer = copy(entry.buffer.payload(), oldest);
        let of = self.all.entry(instance).or_insert_with(|| VecDeque::with_capacity(self.depth.min(ROOM)));
        let at = of.partition_point(|kept| kept.seq < entry.seq);
        of.insert(at, Entry { buffer, charge, ..*entry });
        true
    }

    fn charge(&mut self, size: usize, freed: usize) -> Option<Charge> {
        loop {
            let Some(account) = &self.account else { return Some(Charge::default()) };
            match Charge::new(account, size_of(size), size <= freed || self.bytes + size <= ALWAYS) {
                Ok(charge) => return Some(charge),
                Err(_) if self.bytes == 0 => return None,
                Err(_) => self.drop_one(),
            }
        }
    }

    fn drop_one(&mut self) {
        let goes_first = |of: &VecDeque<Entry>| of.back().map(|last| (last.change == Default::default(), last.seq));
        let first = self.all.iter().min_by_key(|(_, of)| goes_first(of)).map(|(instance, _)| *instance);
        let dropped = first.and_then(|instance| self.all.remove(&instance)).into_iter().flatten();
        self.bytes -= dropped.map(|entry| entry.buffer.payload().len()).sum::<usize>();
    }

    /// References to the last `samples` of each instance, in the order of their numbers.
    pub(crate) fn last(&self, samples: usize) -> Vec<Entry> {
        let of_each = self.all.values().flat_map(|of| of.iter().skip(of.len().saturating_sub(samples)));
        let mut last: Vec<Entry> = of_each.cloned().collect();
        last.sort_unstable_by_key(|entry| entry.seq);
        last
    }
}

/// Copies the bytes to this buffer, or to a new one if the buffer is being read.
fn copy(bytes: &[u8], buffer: Option<Arc<Buffer>>) -> Arc<Buffer> {
    let mut buffer = buffer.unwrap_or_default();
    if Arc::get_mut(&mut buffer).is_none() {
        buffer = Arc::default();
    }
    if let Some(free) = Arc::get_mut(&mut buffer) {
        free.start().extend_from_slice(bytes);
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::super::tests::entry;
    use super::*;
    use crate::channel::Change;
    use proptest::prelude::*;
    use qos::ResourceLimits;

    fn of(instances: &Instances, samples: usize) -> Vec<u64> {
        let last = instances.last(samples);
        assert!(last.iter().all(|e| e.buffer.payload().iter().all(|byte| *byte == e.seq as u8)));
        last.iter().map(|entry| entry.seq).collect()
    }

    fn limited(history: u32, instances: Option<u32>, samples: Option<u32>) -> Instances {
        let limits = ResourceLimits { instances, samples, ..ResourceLimits::default() };
        Instances::new(&Qos { history, limits, ..Qos::default() })
    }

    proptest! {
        /// Compared with a list of all samples that were ever published.
        #[test]
        fn the_last_samples_of_each_instance_are_there_in_the_order_of_their_numbers(
            depth in 1_u32..5, keys in prop::collection::vec(0_u64..6, 0..80), wanted in 0_usize..7, size in 0_usize..40,
        ) {
            let mut instances = limited(depth, None, None);
            let mut read = Vec::new(); // readers hold samples that are to be overwritten
            for (seq, key) in (1..).zip(&keys) {
                instances.keep(*key, &entry(seq, size));
                if seq % 7 == 0 {
                    read.extend(instances.last(1).into_iter().map(|entry| (entry.seq, entry)));
                }
            }
            prop_assert!(read.iter().all(|(seq, held)| held.buffer.payload().iter().all(|byte| *byte == *seq as u8)));
            let most = wanted.min(depth as usize);
            let later = |seq: usize| keys[seq..].iter().filter(|key| **key == keys[seq - 1]).count();
            let model: Vec<u64> = (1..=keys.len()).filter(|seq| later(*seq) < most).map(|seq| seq as u64).collect();
            prop_assert_eq!(of(&instances, wanted), model);
        }

        /// The samples with the highest numbers stay, in any order of arrival.
        #[test]
        fn a_sample_held_back_by_a_monitor_is_put_in_its_place(depth in 1_u32..6, order in Just((1_u64..20).collect::<Vec<_>>()).prop_shuffle()) {
            let mut instances = limited(depth, None, None);
            assert!(order.iter().all(|seq| instances.keep(3, &entry(*seq, 2))));
            prop_assert_eq!(of(&instances, 9), (20 - u64::from(depth)..20).collect::<Vec<_>>());
        }
    }

    #[test]
    fn beyond_the_limit_ended_instances_give_way_and_then_the_most_silent() {
        for mut instances in [limited(2, Some(3), None), limited(2, None, Some(7))] {
            assert!((1..=3).all(|seq| instances.keep(seq, &entry(seq, 1))));
            instances.keep(3, &Entry { change: Change::Disposed, ..entry(4, 1) });
            instances.keep(4, &entry(5, 1));
            assert_eq!(of(&instances, 2), [1, 2, 5], "the third had ended");
            instances.keep(1, &entry(6, 1));
            instances.keep(5, &entry(7, 1));
            assert_eq!(of(&instances, 2), [1, 5, 6, 7]);
            assert_eq!(of(&instances, 1), [5, 6, 7]);
        }
    }

    #[test]
    fn one_that_is_too_large_for_the_memory_costs_no_other() {
        let node = Account::new(400_000);
        let mut instances = limited(1, None, None).within(Account::of(&node));
        assert!((1..=100).all(|seq| instances.keep(seq, &entry(seq, 1000))));
        assert!(!instances.keep(7, &entry(101, 200_000)), "it may have half of 400,000");
        assert_eq!(of(&instances, 1), (1..=100).collect::<Vec<_>>());
    }

    #[test]
    fn without_memory_a_sample_evicts_no_more_samples_than_it_needs() {
        let node = Account::new(400_000);
        let mut instances = limited(1, None, None).within(Account::of(&node));
        assert!((1..=200).all(|seq| instances.keep(seq, &entry(seq, 400))));
        node.take(400_000); // memory of others
        assert!((201..=600).all(|seq| instances.keep((seq - 1) % 200 + 1, &entry(seq, 400))));
        assert_eq!(of(&instances, 1), (401..=600).collect::<Vec<_>>(), "each took its own place");
        instances.keep(1, &entry(601, 600));
        assert!(instances.bytes <= ALWAYS && instances.bytes > ALWAYS - 800, "{} bytes", instances.bytes);
        assert_eq!(of(&instances, 1).last(), Some(&601));
        assert!((602..=900).all(|seq| instances.keep(seq, &entry(seq, 64))));
        assert!(instances.bytes <= ALWAYS && of(&instances, 1).ends_with(&(602..=900).collect::<Vec<_>>()));
        drop(instances);
        assert_eq!(node.used(), 400_000);
    }
}
