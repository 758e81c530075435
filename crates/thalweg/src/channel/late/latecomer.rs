//! A channel's samples at the junction of its history and its live flow.

use super::{Hold, LateJoin, Verdict};
use crate::channel::memory::Account;
use crate::channel::{Deliver, Delivery, Payload, SampleInfo};
use linux::lock::PiMutex;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// The junction of a channel's live samples and its history.
pub(crate) struct Latecomer {
    /// Held during a delivery, and shared with the next channel's junction: one thread delivers at a time, in order.
    turn: Arc<PiMutex<()>>,
    /// Not held during a delivery: a callback holds up nobody who asks.
    join: PiMutex<LateJoin<(SampleInfo, Vec<u8>)>>,
    /// The next channel's junction, if this one was handed over to it.
    next: OnceLock<Arc<Self>>,
    /// The channel's.
    account: Arc<Account>,
}

impl Latecomer {
    /// A junction for a channel that delivered samples up to `after` before it came back.
    pub(crate) fn new(after: u64, account: Arc<Account>) -> Self {
        Self::of(Arc::default(), LateJoin::new(after, HOLD), account)
    }

    /// The same, with live samples that wait already.
    pub(crate) fn with_held(
        after: u64,
        account: Arc<Account>,
        held: impl Iterator<Item = (SampleInfo, Vec<u8>)>,
    ) -> Self {
        let held = held.map(|(info, bytes)| (info.seq, bytes.len(), (info, bytes)));
        Self::of(Arc::default(), LateJoin::with_held(after, HOLD, held), account)
    }

    fn of(turn: Arc<PiMutex<()>>, join: LateJoin<(SampleInfo, Vec<u8>)>, account: Arc<Account>) -> Self {
        Self { turn, join: PiMutex::new(join), next: OnceLock::new(), account }
    }

    /// Delivers a live sample of the channel, or keeps it. `true`: the next samples need not come here.
    pub(crate) fn live(&self, subscriber_port: &dyn Deliver, delivery: Delivery<'_>) -> bool {
        self.arrived(subscriber_port, delivery, false);
        self.join.lock().is_over()
    }

    /// Delivers a sample of the channel before this one, which has ended, or keeps or drops it.
    pub(crate) fn of_earlier(&self, subscriber_port: &dyn Deliver, delivery: Delivery<'_>) {
        self.arrived(subscriber_port, delivery, true);
    }

    fn arrived(&self, subscriber_port: &dyn Deliver, delivery: Delivery<'_>, is_of_earlier: bool) {
        let _turn = self.turn.lock();
        self.pass(subscriber_port, delivery, is_of_earlier);
    }

    /// As [`Self::arrived`]; `turn` is held.
    fn pass(&self, subscriber_port: &dyn Deliver, delivery: Delivery<'_>, is_of_earlier: bool) {
        let SampleInfo { seq, received_ns, .. } = delivery.info;
        let bytes = delivery.payload.bytes();
        let keep = || (delivery.info, bytes.to_vec());
        let verdict = match is_of_earlier {
            true => self.join.lock().of_earlier(seq, bytes.len(), received_ns, keep),
            false => self.join.lock().live(seq, bytes.len(), received_ns, keep),
        };
        if verdict == Verdict::Drop
            && let Some(next) = self.next.get()
        {
            return next.pass(subscriber_port, delivery, true); // it waited for its turn longer than its channel was there
        }
        self.release(|held| subscriber_port.deliver(held));
        if let Verdict::Deliver { historical } = verdict {
            let historical = historical || delivery.info.historical;
            subscriber_port.deliver(Delivery { info: SampleInfo { historical, ..delivery.info }, ..delivery });
        }
    }

    /// Delivers a sample of the history, unless it came live.
    pub(crate) fn history(&self, subscriber_port: &dyn Deliver, info: SampleInfo, bytes: &[u8]) {
        let _turn = self.turn.lock();
        let given = self.join.lock().history(info.seq);
        self.release(|held| subscriber_port.deliver_elsewhere(held));
        if let Some(historical) = given {
            subscriber_port.deliver_elsewhere(Delivery {
                info: SampleInfo { historical, ..info },
                payload: Payload::Bytes(bytes),
                account: &self.account,
            });
        }
    }

    /// The last sample that was delivered here by the history or an earlier channel, or is about to be (0: none). The channel's own
    /// counters do not include it.
    pub(crate) fn last(&self) -> u64 {
        self.join.lock().last()
    }

    /// The samples beyond the history that are here already.
    pub(crate) fn here(&self) -> BTreeSet<u64> {
        self.join.lock().here().collect()
    }

    /// `true` if more of the history may come.
    pub(crate) fn is_under_way(&self) -> bool {
        self.join.lock().is_under_way()
    }

    /// `true` if more of the history may come, or a sample is being delivered here: others would wait for it.
    pub(crate) fn is_busy(&self) -> bool {
        self.turn.try_lock().is_none() || self.is_under_way()
    }

    /// The channel ended: as [`LateJoin::give_up`]. A sample of the history that is being delivered counts.
    pub(crate) fn give_up(&self, now: u64) -> Option<u64> {
        self.join.lock().give_up(now)
    }

    /// The end of the wait for the next channel: as [`LateJoin::waits_until`].
    pub(crate) fn waits_until(&self) -> Option<u64> {
        self.join.lock().waits_until()
    }

    /// No channel will follow: as [`LateJoin::nobody_follows`].
    pub(crate) fn nobody_follows(&self) -> bool {
        self.join.lock().nobody_follows()
    }

    /// The junction of the next channel after one that was [given up](Self::give_up): as [`LateJoin::next`].
    pub(crate) fn next(&self, after: u64, account: Arc<Account>) -> Arc<Self> {
        let mut join = self.join.lock(); // until samples that are dropped here find the next one
        let next = Arc::new(Self::of(self.turn.clone(), join.next(after), account));
        let _ = self.next.set(next.clone());
        next
    }

    /// The history is over: the waiting samples follow it. Returns the numbers that may be missing, as [`LateJoin::end`].
    pub(crate) fn end(&self, subscriber_port: &dyn Deliver) -> Option<(u64, u64)> {
        let _turn = self.turn.lock();
        let missing = self.join.lock().end();
        self.release(|held| subscriber_port.deliver_elsewhere(held));
        missing
    }

    fn release(&self, deliver: impl Fn(Delivery<'_>)) {
        let released = || self.join.lock().released();
        while let Some((info, bytes)) = released() {
            deliver(Delivery { info, payload: Payload::Bytes(&bytes), account: &self.account });
        }
    }
}

/// The limits of live samples that wait for the history, or for the next channel.
const HOLD: Hold = Hold { ns: 1_000_000_000, samples: 1024, bytes: 4 << 20 };
