//! Samples that found no room within a subscriber's limits: counted where they arrive, and reported from time to time.

use qos::ResourceLimit;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The limits by which samples are rejected or dropped.
const LIMITS: [ResourceLimit; 5] = [
    ResourceLimit::Samples,
    ResourceLimit::SamplesPerInstance,
    ResourceLimit::Bytes,
    ResourceLimit::PeerMemory,
    ResourceLimit::NodeMemory,
];

/// Counts of samples rejected by one limit.
#[derive(Debug, Default)]
struct Count {
    most: u64,
    total: AtomicU64,
    told: AtomicU64,
}

/// Counts of samples rejected because too many wait.
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

#[cfg(test)]
mod tests {
    use super::*;

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
