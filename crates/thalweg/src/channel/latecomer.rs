//! Late joiners of durable publishers: a channel's live samples wait until its history has come.

use super::late::{Hold, LateJoin, Verdict};
use super::memory::Account;
use super::{Deliver, Delivery, Payload, SampleInfo};
use linux::lock::PiMutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The limits of live samples that wait for the history.
const HOLD: Hold = Hold { ns: 1_000_000_000, samples: 1024, bytes: 4 << 20 };

/// The junction of a channel's live samples and its history: one thread at a time.
pub(crate) struct Latecomer {
    join: PiMutex<LateJoin<(SampleInfo, Vec<u8>)>>,
    last_given: AtomicU64,
    /// The channel's.
    account: Arc<Account>,
}

impl Latecomer {
    /// A junction for a channel that delivered samples up to `after` before it came back.
    pub(crate) fn new(after: u64, account: Arc<Account>) -> Self {
        Self { join: PiMutex::new(LateJoin::new(after, HOLD)), last_given: AtomicU64::new(0), account }
    }

    /// The same, with live samples that wait already.
    pub(crate) fn with_held(
        after: u64,
        account: Arc<Account>,
        held: impl Iterator<Item = (SampleInfo, Vec<u8>)>,
    ) -> Self {
        let held = held.map(|(info, bytes)| (info.seq, bytes.len(), (info, bytes)));
        Self { join: PiMutex::new(LateJoin::with_held(after, HOLD, held)), last_given: AtomicU64::new(0), account }
    }

    /// Delivers a live sample of the channel, or keeps it. `true`: the next samples need not come here.
    pub(crate) fn live(&self, inlet: &dyn Deliver, delivery: Delivery<'_>) -> bool {
        let mut late = self.join.lock();
        let SampleInfo { seq, received_ns, .. } = delivery.info;
        let bytes = delivery.payload.bytes();
        let verdict = late.live(seq, bytes.len(), received_ns, || (delivery.info, bytes.to_vec()));
        self.release(&mut late, |held| inlet.deliver(held));
        if let Verdict::Deliver { historical } = verdict {
            let historical = historical || delivery.info.historical;
            inlet.deliver(Delivery { info: SampleInfo { historical, ..delivery.info }, ..delivery });
        }
        late.is_over()
    }

    /// Delivers a sample of the history, unless it came live.
    pub(crate) fn history(&self, inlet: &dyn Deliver, info: SampleInfo, bytes: &[u8]) {
        let mut late = self.join.lock();
        let given = late.history(info.seq);
        self.release(&mut late, |held| inlet.deliver_elsewhere(held));
        if let Some(historical) = given {
            self.last_given.store(info.seq, Ordering::Release);
            inlet.deliver_elsewhere(Delivery {
                info: SampleInfo { historical, ..info },
                payload: Payload::Bytes(bytes),
                account: &self.account,
            });
        }
    }

    /// The last sample that came with the history (0: none). The channel's own counters do not include it.
    pub(crate) fn last_given(&self) -> u64 {
        self.last_given.load(Ordering::Acquire)
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

    /// The history is over: the waiting samples follow it.
    pub(crate) fn end(&self, inlet: &dyn Deliver) {
        let mut late = self.join.lock();
        late.end();
        self.release(&mut late, |held| inlet.deliver_elsewhere(held));
    }

    fn release(&self, late: &mut LateJoin<(SampleInfo, Vec<u8>)>, deliver: impl Fn(Delivery<'_>)) {
        while let Some((info, bytes)) = late.released() {
            deliver(Delivery { info, payload: Payload::Bytes(&bytes), account: &self.account });
        }
    }
}
