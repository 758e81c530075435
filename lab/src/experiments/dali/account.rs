//! What a program's callbacks note of an input.

use super::sample::Stamps;
use crate::stalls::Timed;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Samples that are kept of each input; memory for them is taken before.
const MOST: usize = 1 << 15;

/// Arrivals of one input since the last report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Arrivals {
    /// Publication, and time from there to the callback, of each sample.
    pub samples: Vec<Timed>,
    /// The same from the publication of what each was made of, of those that were.
    pub chains: Vec<Timed>,
    /// Samples that came twice, or after a later one.
    pub again: u64,
    /// Messages that were not whole.
    pub damaged: u64,
}

/// The account of an input.
pub(super) struct Account {
    noted: Mutex<Noted>,
    /// Publication of the last sample since the run began; 0: none came.
    last_ns: AtomicU64,
}

struct Noted {
    arrivals: Arrivals,
    /// The number of the last sample.
    last: u64,
    /// The beginning of the run: what was published before is of none.
    from_ns: u64,
}

impl Account {
    pub(super) fn new() -> Arc<Self> {
        let noted = Noted { arrivals: room(), last: 0, from_ns: 0 };
        Arc::new(Self { noted: Mutex::new(noted), last_ns: AtomicU64::new(0) })
    }

    /// A run begins: samples published before it, which may still come, count no more and nothing is made of them.
    pub(super) fn begin(&self, from_ns: u64) {
        let mut noted = self.lock();
        noted.from_ns = from_ns;
        let of_run = |timed: &Timed| timed.from_ns >= from_ns;
        noted.arrivals.samples.retain(of_run);
        noted.arrivals.chains.retain(of_run);
        if self.last_ns.load(Relaxed) < from_ns {
            self.last_ns.store(0, Relaxed);
        }
    }

    pub(super) fn note(&self, message: &[u8], now_ns: u64) {
        let mut guard = self.lock();
        let Noted { arrivals, last, from_ns } = &mut *guard;
        let Some(Stamps { number, published_ns, origin_ns }) = Stamps::read(message) else {
            arrivals.damaged += 1;
            return;
        };
        if published_ns < *from_ns {
            return;
        }
        if number <= *last {
            arrivals.again += 1;
            return;
        }
        *last = number;
        self.last_ns.store(published_ns, Relaxed);
        let since = |from_ns: u64| Timed { from_ns, ns: now_ns.saturating_sub(from_ns) };
        if arrivals.samples.len() < MOST {
            arrivals.samples.push(since(published_ns));
            arrivals.chains.extend((origin_ns > 0 && origin_ns >= *from_ns).then(|| since(origin_ns)));
        }
    }

    /// What came since it was last taken.
    pub(super) fn take(&self) -> Arrivals {
        std::mem::replace(&mut self.lock().arrivals, room())
    }

    /// Publication of the last sample of the run; 0: none came.
    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn room() -> Arrivals {
    Arrivals { samples: Vec::with_capacity(MOST), ..Arrivals::default() }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn come(account: &Account, number: u64, published_ns: u64, origin_ns: u64) {
        let mut message = sample::message(64);
        Stamps { number, published_ns, origin_ns }.write(&mut message);
        account.note(&message, 1000);
    }

    fn timed(from_ns: u64, ns: u64) -> Timed {
        Timed { from_ns, ns }
    }

    #[test]
    fn a_sample_counts_once_and_a_chain_from_its_origin() {
        let account = Account::new();
        come(&account, 1, 900, 0);
        come(&account, 1, 900, 0);
        come(&account, 3, 950, 400);
        come(&account, 2, 920, 0);
        account.note(&[0; 3], 1000);
        let Arrivals { samples, chains, again, damaged } = account.take();
        assert_eq!((samples, chains), (vec![timed(900, 100), timed(950, 50)], vec![timed(400, 600)]));
        assert_eq!((again, damaged, account.last_ns()), (2, 1, 950));
        assert!(account.take().samples.is_empty());
    }

    #[test]
    fn what_was_published_before_a_run_is_not_of_it() {
        let account = Account::new();
        come(&account, 1, 700, 600);
        account.begin(800);
        assert_eq!(account.last_ns(), 0, "nothing is made of it");
        come(&account, 2, 790, 0); // comes late
        come(&account, 3, 810, 790); // made of one from before the run
        come(&account, 4, 900, 850);
        let Arrivals { samples, chains, again, .. } = account.take();
        assert_eq!((samples, chains, again), (vec![timed(810, 190), timed(900, 100)], vec![timed(850, 150)], 0));
    }

    #[test]
    fn what_came_before_the_order_to_begin_and_is_of_the_run_stays() {
        let account = Account::new();
        come(&account, 1, 850, 0);
        account.begin(800);
        assert_eq!((account.last_ns(), account.take().samples), (850, vec![timed(850, 150)]));
    }
}
