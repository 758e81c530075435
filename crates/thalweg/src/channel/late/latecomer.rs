//! A channel's samples at the junction of its history and its live flow.

use super::{Hold, LateJoin, Verdict};
use crate::channel::memory::Account;
use crate::channel::{Deliver, Delivery, Payload, SampleInfo};
use linux::lock::PiMutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The junction of a channel's live samples and its history: one thread at a time.
pub(crate) struct Latecomer {
    join: PiMutex<LateJoin<(SampleInfo, Vec<u8>)>>,
    last: AtomicU64,
    /// The channel's.
    account: Arc<Account>,
}

impl Latecomer {
    /// A junction for a channel that delivered samples up to `after` before it came back.
    pub(crate) fn new(after: u64, account: Arc<Account>) -> Self {
        Self { join: PiMutex::new(LateJoin::new(after, HOLD)), last: AtomicU64::new(0), account }
    }

    /// The same, with live samples that wait already.
    pub(crate) fn with_held(
        after: u64,
        account: Arc<Account>,
        held: impl Iterator<Item = (SampleInfo, Vec<u8>)>,
    ) -> Self {
        let held = held.map(|(info, bytes)| (info.seq, bytes.len(), (info, bytes)));
        Self { join: PiMutex::new(LateJoin::with_held(after, HOLD, held)), last: AtomicU64::new(0), account }
    }

    /// Delivers a live sample of the channel, or keeps it. `true`: the next samples need not come here.
    pub(crate) fn live(&self, subscriber_port: &dyn Deliver, delivery: Delivery<'_>) -> bool {
        let mut late = self.join.lock();
        let SampleInfo { seq, received_ns, .. } = delivery.info;
        let bytes = delivery.payload.bytes();
        let verdict = late.live(seq, bytes.len(), received_ns, || (delivery.info, bytes.to_vec()));
        self.release(&mut late, |held| subscriber_port.deliver(held));
        if let Verdict::Deliver { historical } = verdict {
            let historical = historical || delivery.info.historical;
            subscriber_port.deliver(Delivery { info: SampleInfo { historical, ..delivery.info }, ..delivery });
        }
        late.is_over()
    }

    /// Delivers a sample of the history, unless it came live.
    pub(crate) fn history(&self, subscriber_port: &dyn Deliver, info: SampleInfo, bytes: &[u8]) {
        let mut late = self.join.lock();
        let given = late.history(info.seq);
        self.release(&mut late, |held| subscriber_port.deliver_elsewhere(held));
        if let Some(historical) = given {
            self.last.fetch_max(info.seq, Ordering::Release);
            subscriber_port.deliver_elsewhere(Delivery {
                info: SampleInfo { historical, ..info },
                payload: Payload::Bytes(bytes),
                account: &self.account,
            });
        }
    }

    /// The last sample that was delivered here by the history or an earlier channel (0: none). The channel's own counters do not
    /// include it.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// The samples beyond the history that are here already.
    pub(crate) fn here(&self) -> BTreeSet<u64> {
        self.join.lock().here().collect()
    }

    /// `true` if more of the history may come, as it may during a callback. Never waits for a callback.
    pub(crate) fn is_under_way(&self) -> bool {
        self.join.try_lock().is_none_or(|late| late.is_under_way())
    }

    /// The channel ended: as [`LateJoin::give_up`]. `None` also while a callback runs: then the history continues and brings the
    /// remaining samples, and the next channel brings those that follow.
    pub(crate) fn give_up(&self) -> Option<u64> {
        self.join.try_lock()?.give_up()
    }

    /// The junction of the next channel after one that was [given up](Self::give_up): as [`LateJoin::next`]. `None` while a callback runs.
    pub(crate) fn next(&self, after: u64, account: Arc<Account>) -> Option<Self> {
        let join = self.join.try_lock()?.next(after);
        let last = AtomicU64::new(join.ahead.last().copied().unwrap_or(0));
        Some(Self { join: PiMutex::new(join), last, account })
    }

    /// The history is over: the waiting samples follow it. Returns the numbers that may be missing, as [`LateJoin::end`].
    pub(crate) fn end(&self, subscriber_port: &dyn Deliver) -> Option<(u64, u64)> {
        let mut late = self.join.lock();
        let missing = late.end();
        self.release(&mut late, |held| subscriber_port.deliver_elsewhere(held));
        missing
    }

    fn release(&self, late: &mut LateJoin<(SampleInfo, Vec<u8>)>, deliver: impl Fn(Delivery<'_>)) {
        while let Some((info, bytes)) = late.released() {
            self.last.fetch_max(info.seq, Ordering::Release);
            deliver(Delivery { info, payload: Payload::Bytes(&bytes), account: &self.account });
        }
    }
}

/// The limits of live samples that wait for the history.
const HOLD: Hold = Hold { ns: 1_000_000_000, samples: 1024, bytes: 4 << 20 };
