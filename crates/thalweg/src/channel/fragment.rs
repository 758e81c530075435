//! Messages larger than a datagram: cut on the way out, put together on the way in. Pure; time comes as an argument.

use super::memory::Account;
use super::parity;
use crate::wire::{FRAGMENT_HEADER, Fragment, HEADER, Parity};
use slot::Slot;
use std::sync::Arc;

mod slot;
#[cfg(test)]
mod tests;

/// Messages in progress per flow: the one being sent and one that reordering holds back.
const SLOTS: usize = 2;
/// Complete messages whose late duplicates are still recognised.
const REMEMBERED: usize = 4;
/// Buffers that were unused for this many time-outs are given back.
const IDLE: u64 = 10;

/// Bytes of a message in each of its datagrams of at most `most` bytes: an even number, for the parity.
pub fn piece(most: usize) -> usize {
    (most.saturating_sub(HEADER + FRAGMENT_HEADER) & !1).max(2)
}

/// The pieces of a message of `total` bytes, as (offset, length): all `max_payload` long, the last one shorter.
/// An empty message is one empty piece.
#[cfg(any(test, feature = "testing"))]
pub fn fragments(total: usize, max_payload: usize) -> impl Iterator<Item = (usize, usize)> {
    let step = max_payload.max(1);
    (0..total.max(1)).step_by(step).map(move |offset| (offset, step.min(total - offset)))
}

/// The reason why a fragment was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The fragment was here already, or its message is complete.
    Duplicate,
    /// The fragment does not fit those that came before it (other total, other piece length, overlap), or is over `max_message`.
    Inconsistent,
    /// The memory that the peer or the node may hold is used up.
    OverBudget,
    /// The fragment belongs to a message older than both in progress.
    Outdated,
}

/// Counters of one flow, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages put together.
    pub complete: u64,
    /// Messages that needed parity for lost fragments, among those put together.
    pub restored: u64,
    /// Messages given up because their fragments didn't come in time.
    pub timed_out: u64,
    /// Messages given up because two newer ones were in progress.
    pub evicted: u64,
    /// Fragments dropped: no memory left for the peer.
    pub over_budget: u64,
    /// Fragments dropped: they don't fit their message or `max_message`.
    pub inconsistent: u64,
    /// Fragments dropped: they came twice.
    pub duplicate: u64,
    /// Fragments dropped: their message is older than both in progress.
    pub outdated: u64,
}

/// Puts fragments of one flow together. By default at most two messages are in progress. Buffers are reused, so that messages of equal
/// size allocate no memory. All reassemblies of a peer share one account of bytes.
#[derive(Debug)]
pub struct Reassembly {
    slots: Vec<Slot>,
    most: usize, // slots, made when they are needed
    done: Vec<Option<u64>>,
    next_done: usize,
    last_whole: Option<usize>,
    max_message: usize,
    timeout_ns: u64,
    budget: Arc<Account>,
    counters: Counters,
}

impl Reassembly {
    /// For messages of at most `max_message` bytes that are given up `timeout_ns` after their first fragment.
    /// `budget` is the account of the peer that sends them.
    pub fn new(max_message: usize, timeout_ns: u64, budget: Arc<Account>) -> Self {
        let mut this = Self::with_slots(SLOTS, max_message, timeout_ns, budget);
        this.done = vec![None; REMEMBERED];
        this
    }

    /// As [`Reassembly::new`], with `count` messages in progress. The caller has to recognise fragments of complete messages.
    pub fn with_slots(count: usize, max_message: usize, timeout_ns: u64, budget: Arc<Account>) -> Self {
        Self {
            slots: (0..count.min(SLOTS)).map(|_| Slot::default()).collect(),
            most: count,
            done: Vec::new(),
            next_done: 0,
            last_whole: None,
            max_message,
            timeout_ns,
            budget,
            counters: Counters::default(),
        }
    }

    /// Takes one fragment of message `sample`. Gives the whole message if this was its last missing piece.
    ///
    /// # Errors
    /// [`Refused`]: the fragment was dropped and counted; the flow goes on.
    pub fn insert(&mut self, now_ns: u64, sample: u64, at: Fragment, bytes: &[u8]) -> Result<Option<&[u8]>, Refused> {
        self.expire(now_ns);
        let inserted = self.try_insert(now_ns, sample, at, bytes);
        self.inserted(sample, inserted)
    }

    /// The same with a parity piece.
    ///
    /// # Errors
    /// As [`Reassembly::insert`].
    pub fn insert_parity(
        &mut self,
        now_ns: u64,
        sample: u64,
        at: Parity,
        bytes: &[u8],
    ) -> Result<Option<&[u8]>, Refused> {
        self.expire(now_ns);
        let inserted = self.try_insert_parity(now_ns, sample, at, bytes);
        self.inserted(sample, inserted)
    }

    fn inserted(&mut self, sample: u64, inserted: Result<Option<usize>, Refused>) -> Result<Option<&[u8]>, Refused> {
        match inserted {
            Ok(None) => Ok(None),
            Ok(Some(index)) => {
                self.counters.complete += 1;
                if let Some(place) = self.done.get_mut(self.next_done) {
                    *place = Some(sample);
                    self.next_done = (self.next_done + 1) % REMEMBERED;
                }
                self.last_whole = Some(index);
                let slot = &mut self.slots[index];
                slot.sample = None;
                Ok(Some(&slot.buffer[..slot.total]))
            }
            Err(reason) => {
                *self.counter(reason) += 1;
                Err(reason)
            }
        }
    }

    /// Gives up messages that waited too long, and unused memory.
    pub fn expire(&mut self, now_ns: u64) {
        for slot in &mut self.slots {
            let age = now_ns.saturating_sub(slot.since_ns);
            if slot.sample.is_some() && age >= self.timeout_ns {
                slot.sample = None;
                self.counters.timed_out += 1;
            }
            if slot.sample.is_none() && age >= self.timeout_ns.saturating_mul(IDLE) {
                slot.release(&self.budget);
            }
        }
    }

    /// The time at which [`expire`](Self::expire) next has something to do.
    #[cfg(any(test, feature = "testing"))]
    pub fn next_deadline(&self) -> Option<u64> {
        let idle = self.timeout_ns.saturating_mul(IDLE);
        let due = |slot: &Slot| match slot.sample {
            Some(_) => Some(slot.since_ns.saturating_add(self.timeout_ns)),
            None => (slot.charged > 0).then(|| slot.since_ns.saturating_add(idle)),
        };
        self.slots.iter().filter_map(due).min()
    }

    /// Bytes of the node's memory that it holds.
    pub fn charged(&self) -> usize {
        self.slots.iter().map(Slot::charged).sum()
    }

    /// The counters so far.
    #[cfg(any(test, feature = "testing"))]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The message that became whole last, until the next fragment comes.
    pub fn finished(&self) -> Option<&[u8]> {
        let slot = self.slots.get(self.last_whole?)?;
        slot.sample.is_none().then_some(&slot.buffer[..slot.total])
    }

    /// `true` if a fragment of this message displaces no other message except those up to sample `over`, which are not waited for.
    pub fn has_room_for(&self, sample: u64, over: u64) -> bool {
        let fits = |slot: &Slot| slot.sample.is_none_or(|other| other == sample || other <= over);
        self.slots.len() < self.most || self.slots.iter().any(fits)
    }

    /// `true` if a piece of this message is missing before one that is here.
    pub fn has_hole(&self, sample: u64) -> bool {
        self.progress(sample).is_some_and(|slot| slot.received < slot.end)
    }

    /// `true` if a message was begun and is not complete.
    pub fn knows(&self, sample: u64) -> bool {
        self.progress(sample).is_some()
    }

    /// The byte after the last piece of a message that is here.
    pub fn end(&self, sample: u64) -> usize {
        self.progress(sample).map_or(0, |slot| slot.end)
    }

    /// The missing parts of a message that was begun, as (first byte, byte after the last): all of them, or only those before a
    /// piece that is here.
    pub fn missing(&self, sample: u64, all: bool) -> impl Iterator<Item = (usize, usize)> + '_ {
        let slot = self.progress(sample);
        let end = slot.map_or(0, |slot| if all { slot.total } else { slot.end });
        let mut at = 0;
        std::iter::from_fn(move || {
            let slot = slot?;
            while at < end && slot.has(at) {
                at = slot.after(at);
            }
            let from = at;
            while at < end && !slot.has(at) {
                at = slot.after(at);
            }
            (from < at).then_some((from, at.min(end)))
        })
    }

    fn progress(&self, sample: u64) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.sample == Some(sample))
    }

    fn counter(&mut self, reason: Refused) -> &mut u64 {
        match reason {
            Refused::Duplicate => &mut self.counters.duplicate,
            Refused::Inconsistent => &mut self.counters.inconsistent,
            Refused::OverBudget => &mut self.counters.over_budget,
            Refused::Outdated => &mut self.counters.outdated,
        }
    }

    /// The slot that became complete, if one did.
    fn try_insert(&mut self, now_ns: u64, sample: u64, at: Fragment, bytes: &[u8]) -> Result<Option<usize>, Refused> {
        let (offset, total) = (at.offset as usize, at.total as usize);
        if total > self.max_message || offset + bytes.len() > total || (bytes.is_empty() && total > 0) {
            return Err(Refused::Inconsistent);
        }
        let index = self.slot_of(now_ns, sample, total)?;
        let slot = &mut self.slots[index];
        let mut kept = slot.insert(offset, total, bytes, &self.budget);
        // A retransmit may have to cut the message into smaller pieces: then all of it comes again.
        let repeats = self.done.is_empty();
        if repeats && kept == Err(Refused::Inconsistent) && total == slot.total && slot.is_finer(offset, bytes.len()) {
            slot.begin(now_ns, sample, total);
            kept = slot.insert(offset, total, bytes, &self.budget);
        }
        self.kept(index, kept)
    }

    /// As [`Reassembly::try_insert`]: a parity piece is as long as a fragment.
    fn try_insert_parity(
        &mut self,
        now_ns: u64,
        sample: u64,
        at: Parity,
        bytes: &[u8],
    ) -> Result<Option<usize>, Refused> {
        let (total, step) = (at.total as usize, bytes.len());
        let odd = step == 0 || step % 2 != 0 || total > self.max_message || total <= step || at.index >= at.count;
        if odd || !parity::can_be(total.div_ceil(step), at.count.into()) {
            return Err(Refused::Inconsistent);
        }
        let index = self.slot_of(now_ns, sample, total)?;
        let kept = self.slots[index].insert_parity(at, bytes, &self.budget);
        self.kept(index, kept)
    }

    /// The slot of a message that is not whole yet, or a new one for it.
    fn slot_of(&mut self, now_ns: u64, sample: u64, total: usize) -> Result<usize, Refused> {
        if self.done.contains(&Some(sample)) {
            return Err(Refused::Duplicate);
        }
        match self.slots.iter().position(|slot| slot.sample == Some(sample)) {
            Some(index) => Ok(index),
            None => self.begin(now_ns, sample, total),
        }
    }

    /// The state of the message in a slot: complete by now, perhaps with the help of parity.
    fn kept(&mut self, index: usize, kept: Result<bool, Refused>) -> Result<Option<usize>, Refused> {
        let slot = &mut self.slots[index];
        match kept {
            Ok(true) => Ok(Some(index)),
            Ok(false) if slot.restore() => {
                self.counters.restored += 1;
                Ok(Some(index))
            }
            Ok(false) => Ok(None),
            Err(reason) => {
                if slot.received == 0 && slot.parity.is_empty() {
                    slot.sample = None; // no piece of it was kept
                }
                Err(reason)
            }
        }
    }

    /// Takes a free slot, or that of the oldest message. Age is the sample's number, not its arrival: a fragment that
    /// comes late must not push out a newer message.
    fn begin(&mut self, now_ns: u64, sample: u64, total: usize) -> Result<usize, Refused> {
        if self.slots.len() < self.most && self.slots.iter().all(|slot| slot.sample.is_some()) {
            self.slots.push(Slot::default());
        }
        let free = self.slots.iter().enumerate().filter(|(_, s)| s.sample.is_none());
        // The largest free buffer first: a steady flow then uses one and never touches the other.
        let index = match free.max_by_key(|(_, s)| s.buffer.len()).map(|(i, _)| i) {
            Some(index) => index,
            None => {
                let oldest = self.slots.iter().enumerate().min_by_key(|(_, s)| s.sample).map_or(0, |(i, _)| i);
                if self.slots[oldest].sample > Some(sample) {
                    return Err(Refused::Outdated);
                }
                self.counters.evicted += 1;
                self.slots[oldest].sample = None;
                oldest
            }
        };
        let slot = &mut self.slots[index];
        slot.reserve(total, 0, &self.budget)?;
        slot.begin(now_ns, sample, total);
        Ok(index)
    }
}

impl Drop for Reassembly {
    fn drop(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.release(&self.budget));
    }
}
