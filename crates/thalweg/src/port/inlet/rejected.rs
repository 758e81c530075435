//! Samples that found no room within a subscriber's limits: counted where they arrive, told from time to time.

use qos::ResourceLimit;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What was rejected by one limit.
#[derive(Debug, Default)]
struct Count {
    most: u32,
    total: AtomicU64,
    told: AtomicU64,
}

/// What was rejected because too many samples wait.
#[derive(Debug)]
pub(crate) struct Rejected {
    samples: Count,
    each: Count,
}

/// Samples that were rejected by a limit since this was told last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub limit: ResourceLimit,
    pub most: u32,
    pub rejected: u64,
    /// By this limit, in all.
    pub total: u64,
}

impl Rejected {
    /// Nothing yet, where at most so many samples wait: of all instances, and of one.
    pub fn new((samples, each): (usize, usize)) -> Self {
        let count = |most: usize| Count { most: u32::try_from(most).unwrap_or(u32::MAX), ..Count::default() };
        Self { samples: count(samples), each: count(each) }
    }

    /// There was no room for a sample.
    #[cold]
    pub fn note(&self, limit: ResourceLimit) {
        let count = if limit == ResourceLimit::SamplesPerInstance { &self.each } else { &self.samples };
        count.total.fetch_add(1, Relaxed);
    }

    /// How many in all.
    pub fn total(&self) -> u64 {
        self.samples.total.load(Relaxed) + self.each.total.load(Relaxed)
    }

    /// What was not told yet, by limit.
    pub fn tell(&self) -> impl Iterator<Item = Rejection> {
        let all = [(ResourceLimit::Samples, &self.samples), (ResourceLimit::SamplesPerInstance, &self.each)];
        all.into_iter().filter_map(|(limit, count)| {
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
        let rejected = Rejected::new((9, 4));
        let came = [ResourceLimit::Samples, ResourceLimit::SamplesPerInstance, ResourceLimit::Samples];
        came.into_iter().for_each(|limit| rejected.note(limit));
        let told: Vec<_> = rejected.tell().map(|r| (r.limit, r.most, r.rejected, r.total)).collect();
        assert_eq!(told, [(ResourceLimit::Samples, 9, 2, 2), (ResourceLimit::SamplesPerInstance, 4, 1, 1)]);
        assert_eq!((rejected.tell().count(), rejected.total()), (0, 3));
        rejected.note(ResourceLimit::Samples);
        assert_eq!(rejected.tell().map(|r| (r.rejected, r.total)).collect::<Vec<_>>(), [(1, 3)]);
    }
}
