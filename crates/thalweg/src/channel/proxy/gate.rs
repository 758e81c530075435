//! The junction of two flows while a proxy moves. Channels whose proxy does not move check one flag.

use super::handover::{Handover, Verdict};
use crate::channel::memory::Account;
use crate::channel::{Deliver, Delivery, Latecomer, Payload, SampleInfo};
use linux::lock::PiMutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A channel's part in a move: the old flow or the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Old,
    New,
}

/// A channel's gate: open unless its proxy moves, its subscriber joined late and gets the history first, or it has ended.
#[derive(Default)]
pub(crate) struct Gate {
    shut: AtomicBool,
    shared_handover: PiMutex<Option<(Role, Arc<SharedHandover>)>>,
    late: PiMutex<Option<Arc<Latecomer>>>,
    /// Set when the channel has ended. Taken last where several of these locks are held.
    rest: PiMutex<Option<Rest>>,
}

/// The samples of a channel that are read after its end, as datagrams are that wait in its socket.
#[derive(Clone)]
struct Rest {
    /// Those up to this one are delivered as before …
    last: u64,
    /// … and the others with the history of the next channel, which would bring them again.
    next: Option<Arc<Latecomer>>,
}

/// The handover of the samples of both channels of a move, one thread at a time.
pub(crate) struct SharedHandover {
    handover: PiMutex<Handover<(SampleInfo, Vec<u8>)>>,
    verdict: Arc<Verdict>,
    /// The move before this one, which may still deliver on the thread of a flow that is over.
    earlier: PiMutex<Option<Arc<SharedHandover>>>,
    /// Samples that the old flow did not bring can be fetched.
    has_history: bool,
    /// The waiting place of the new flow's samples, once it took over with a gap; `None`: the missing samples would not be
    /// fetched any more.
    late: OnceLock<Option<Arc<Latecomer>>>,
    told: AtomicBool,
    /// The last sample that was delivered through the handover, or before it began.
    last: AtomicU64,
    /// The account of the new channel, by which the held samples came.
    account: Arc<Account>,
    taken_over: Box<dyn Fn() + Send + Sync>,
}

impl SharedHandover {
    /// The handover of a move to a channel with this account; `taken_over` is called once, when the new flow has taken over.
    pub(crate) fn new(
        handover: Handover<(SampleInfo, Vec<u8>)>,
        has_history: bool,
        account: Arc<Account>,
        taken_over: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        let last = AtomicU64::new(handover.last());
        let (verdict, handover) = (handover.verdict(), PiMutex::new(handover));
        let (late, earlier, told) = (OnceLock::new(), PiMutex::default(), AtomicBool::new(false));
        Self { handover, verdict, earlier, has_history, late, told, last, account, taken_over }
    }

    /// `true` if the takeover by the new flow was reported.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }

    /// The waiting place of the new flow's samples, if it took over with a gap: they follow when the gap is filled or given up.
    /// After this call no further samples begin to wait.
    pub(crate) fn late(&self) -> Option<&Arc<Latecomer>> {
        self.late.get_or_init(|| None).as_ref()
    }

    /// The old flow ended; sample `came` was the last that it brought. The new flow takes over.
    pub(crate) fn end_old(&self, came: u64) {
        if self.verdict.is_new() {
            return;
        }
        let mut handover = self.handover.lock(); // no callback runs: the old flow is over, and the new one only holds samples
        handover.old_ended(came);
        self.wait_for_gap(&mut handover);
        self.tell(&handover);
    }

    /// The old flow is idle; sample `came` was the last that it brought.
    pub(crate) fn nothing_comes(&self, came: u64, now_ns: u64) {
        let Some(mut handover) = self.handover.try_lock() else { return }; // a sample is being delivered
        handover.nothing_comes(came, now_ns);
        self.wait_for_gap(&mut handover);
        self.tell(&handover);
    }

    /// The new flow is given up. `false`: it has taken over. Waits for no sample that is being delivered.
    pub(crate) fn keep_old(&self) -> bool {
        let kept = self.verdict.keep_old();
        if let Some(mut handover) = self.handover.try_lock() {
            handover.keep_old(); // otherwise the next sample drops the held ones
        }
        kept
    }

    /// `true` if this move delivers, rather than the one before it.
    fn is_in_use(&self) -> bool {
        self.handover.try_lock().is_none() || self.earlier.lock().as_ref().is_some_and(|earlier| earlier.is_in_use())
    }

    /// Waits until samples that the move before this one had taken over are delivered.
    fn wait_for_earlier(&self) {
        let earlier = self.earlier.lock().clone();
        if let Some(earlier) = earlier {
            earlier.wait_for_earlier();
            drop(earlier.handover.lock());
            *self.earlier.lock() = None;
        }
    }

    fn tell(&self, handover: &Handover<(SampleInfo, Vec<u8>)>) {
        if handover.is_taken_over() && !self.told.swap(true, Ordering::Relaxed) {
            (self.taken_over)();
        }
    }

    /// Lets the samples that are held wait for those that the old flow did not bring.
    fn wait_for_gap(&self, handover: &mut Handover<(SampleInfo, Vec<u8>)>) {
        if handover.has_gap() {
            self.late.get_or_init(|| {
                let last = handover.last();
                self.last.store(last, Ordering::Release);
                let held = std::iter::from_fn(|| handover.released());
                Some(Arc::new(Latecomer::with_held(last, self.account.clone(), held)))
            });
        }
    }

    fn waits(&self) -> Option<&Arc<Latecomer>> {
        self.late.get().and_then(Option::as_ref)
    }

    /// Delivers a sample, held samples, or neither. `true`: this flow continues alone, and has caught up with the other one's
    /// deliveries.
    fn pass(&self, role: Role, subscriber_port: &dyn Deliver, delivery: Delivery<'_>) -> bool {
        if delivery.info.historical {
            subscriber_port.deliver(delivery); // outside the order of the two flows: only a relay's flow brings such samples
            return false;
        }
        self.wait_for_earlier();
        let mut handover = self.handover.lock();
        if self.verdict.is_old() {
            handover.keep_old();
        }
        if let Some(late) = self.waits() {
            return role == Role::New && late.live(subscriber_port, delivery);
        }
        let SampleInfo { seq, source_ns, received_ns, .. } = delivery.info;
        let keep = || (delivery.info, delivery.payload.bytes().to_vec());
        let delivers = match role {
            Role::Old => handover.old(seq, source_ns),
            Role::New => handover.new_one((seq, source_ns), received_ns, delivery.payload.bytes().len(), keep),
        };
        if self.has_history {
            self.wait_for_gap(&mut handover); // before the report: its receiver looks for waiting samples
        }
        self.tell(&handover);
        if self.waits().is_some() {
            return false;
        }
        if delivers {
            subscriber_port.deliver(delivery);
        }
        while let Some((info, bytes)) = handover.released() {
            subscriber_port.deliver(Delivery { info, payload: Payload::Bytes(&bytes), account: &self.account });
        }
        self.last.store(handover.last(), Ordering::Release);
        match role {
            Role::Old => delivers && self.verdict.is_old(),
            Role::New => handover.is_taken_over() && seq >= handover.last(),
        }
    }
}

impl Gate {
    /// From now on, samples wait for the history that a late joiner gets.
    pub(crate) fn wait_for_history(&self, late: Arc<Latecomer>) {
        *self.late.lock() = Some(late);
        self.shut.store(true, Ordering::Release);
    }

    /// `true` if a late joiner's history is still coming, or being delivered.
    pub(crate) fn has_history_under_way(&self) -> bool {
        self.late.lock().as_ref().is_some_and(|late| late.is_busy())
    }

    /// The channel ended before its history had come. Returns the last delivered sample. `None`: no part of the history is missing.
    pub(crate) fn give_up_history(&self, now_ns: u64) -> Option<u64> {
        self.late.lock().as_ref()?.give_up(now_ns)
    }

    /// No channel will follow this one, or the one that does takes over nothing. `true`: samples have waited for it, and are due.
    pub(crate) fn nobody_follows(&self) -> bool {
        self.late.lock().as_ref().is_some_and(|late| late.nobody_follows())
    }

    /// The junction for the channel after this one, whose history was given up.
    pub(crate) fn next_history(&self, after: u64, account: Arc<Account>) -> Option<Arc<Latecomer>> {
        Some(self.late.lock().as_ref()?.next(after, account))
    }

    /// The channel ended. Samples that are still read are delivered until the next channel begins.
    pub(crate) fn ended(&self) {
        *self.rest.lock() = Some(Rest { last: u64::MAX, next: None });
        self.shut.store(true, Ordering::Release);
    }

    /// The next channel begins. `last`: the last sample that this channel has counted, and may be about to deliver. `next` makes the next
    /// channel's junction from it: later samples of this channel go there.
    pub(crate) fn followed_by(
        &self,
        last: impl FnOnce() -> u64,
        next: impl FnOnce(u64) -> Arc<Latecomer>,
    ) -> Arc<Latecomer> {
        let mut rest = self.rest.lock(); // a thread counts a sample before it looks here
        let last = last();
        let next = next(last);
        *rest = Some(Rest { last, next: Some(next.clone()) });
        self.shut.store(true, Ordering::Release);
        next
    }

    /// From now on, samples go through `shared_handover`. A subscriber that joined just before gets no history any more.
    pub(crate) fn shut(&self, role: Role, subscriber_port: &dyn Deliver, shared_handover: Arc<SharedHandover>) {
        if let Some(late) = self.late.lock().take() {
            late.end(subscriber_port);
        }
        let mut present = self.shared_handover.lock();
        if let Some((Role::New, before)) = present.take()
            && before.is_in_use()
        {
            *shared_handover.earlier.lock() = Some(before);
        }
        *present = Some((role, shared_handover));
        self.shut.store(true, Ordering::Release);
    }

    /// The last sample that the channel's history or its last move delivered, by either flow. The channel itself may be
    /// behind.
    pub(crate) fn last(&self) -> u64 {
        let moved = self
            .shared_handover
            .lock()
            .as_ref()
            .map_or(0, |(_, shared_handover)| shared_handover.last.load(Ordering::Acquire));
        let late = self.late.lock().clone();
        late.map_or(0, |late| late.last()).max(moved)
    }

    fn open(&self) {
        let rest = self.rest.lock();
        if rest.is_none() {
            self.shut.store(false, Ordering::Release);
        }
    }

    /// This move is over; the next one may have begun.
    fn open_after(&self, shared_handover: &Arc<SharedHandover>) {
        let present = self.shared_handover.lock();
        if present.as_ref().is_some_and(|(_, present)| Arc::ptr_eq(present, shared_handover)) {
            self.open();
        }
    }

    /// Delivers a sample of the channel. A sample of a history is compared with the samples that the late joiner got.
    #[inline]
    pub(crate) fn deliver(&self, subscriber_port: &dyn Deliver, delivery: Delivery<'_>) {
        if delivery.info.historical || self.shut.load(Ordering::Acquire) {
            self.pass(subscriber_port, delivery)
        } else {
            subscriber_port.deliver(delivery)
        }
    }

    #[cold]
    fn pass(&self, subscriber_port: &dyn Deliver, delivery: Delivery<'_>) {
        let rest = self.rest.lock().clone().filter(|rest| delivery.info.seq > rest.last);
        if let Some(next) = rest.and_then(|rest| rest.next) {
            return next.of_earlier(subscriber_port, delivery);
        }
        let late = self.late.lock().clone();
        if let Some(late) = late {
            let over = late.live(subscriber_port, delivery);
            let present = self.late.lock(); // none: a move shut the gate meanwhile
            if over && present.is_some() {
                self.open();
            }
            return;
        }
        let Some((role, shared_handover)) = self.shared_handover.lock().clone() else {
            return subscriber_port.deliver(delivery);
        };
        if shared_handover.pass(role, subscriber_port, delivery) {
            self.open_after(&shared_handover); // by the thread of the flow itself: it delivers the following samples alone
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.shut.load(Ordering::Relaxed) { "shut" } else { "open" })
    }
}

#[cfg(test)]
mod tests;
