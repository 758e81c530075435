//! Messages larger than a datagram: cut on the way out, put together on the way in. Pure; time comes as an argument.

use super::parity;
use crate::wire::{FRAGMENT_HEADER, Fragment, HEADER, Parity};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(test)]
mod tests;

/// Messages in progress per flow: the one being sent and one that reordering holds back.
const SLOTS: usize = 2;
/// Complete messages whose late duplicates are still recognised.
const REMEMBERED: usize = 4;
/// Buffers that nobody used for this many time-outs are given back.
const IDLE: u64 = 10;

/// Bytes of a message in each of its datagrams of at most `most` bytes: an even number, for the parity.
pub fn piece(most: usize) -> usize {
    (most.saturating_sub(HEADER + FRAGMENT_HEADER) & !1).max(2)
}

/// The pieces of a message of `total` bytes, as (offset, length): all `max_payload` long, the last one shorter.
/// An empty message is one empty piece.
pub fn fragments(total: usize, max_payload: usize) -> impl Iterator<Item = (usize, usize)> {
    let step = max_payload.max(1);
    (0..total.max(1)).step_by(step).map(move |offset| (offset, step.min(total - offset)))
}

/// Why a fragment was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It was here already, or its message is complete.
    Duplicate,
    /// It doesn't fit the fragments that came before it (other total, other piece length, overlap), or is over `max_message`.
    Inconsistent,
    /// The node's memory for unfinished messages is used up.
    OverBudget,
    /// It belongs to a message older than both in progress.
    Outdated,
}

/// What happened on one flow, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages put together.
    pub complete: u64,
    /// Of them, those that needed parity for lost fragments.
    pub restored: u64,
    /// Messages given up because their fragments didn't come in time.
    pub timed_out: u64,
    /// Messages given up because two newer ones were in progress.
    pub evicted: u64,
    /// Fragments dropped: no memory left in the node's budget.
    pub over_budget: u64,
    /// Fragments dropped: they don't fit their message or `max_message`.
    pub inconsistent: u64,
    /// Fragments dropped: they came twice.
    pub duplicate: u64,
    /// Fragments dropped: their message is older than both in progress.
    pub outdated: u64,
}

/// Puts fragments of one flow together. At most two messages are in progress, where nothing else is said; buffers are used again, so that equal
/// sizes allocate nothing. All reassemblies of a node share one budget of bytes.
#[derive(Debug)]
pub struct Reassembly {
    slots: Vec<Slot>,
    done: Vec<Option<u64>>,
    next_done: usize,
    last_whole: Option<usize>,
    max_message: usize,
    timeout_ns: u64,
    budget: Arc<AtomicUsize>,
    counters: Counters,
}

impl Reassembly {
    /// For messages of at most `max_message` bytes that are given up `timeout_ns` after their first fragment.
    /// `budget` holds the bytes that are left for all flows of the node.
    pub fn new(max_message: usize, timeout_ns: u64, budget: Arc<AtomicUsize>) -> Self {
        let mut this = Self::with_slots(SLOTS, max_message, timeout_ns, budget);
        this.done = vec![None; REMEMBERED];
        this
    }

    /// As [`Reassembly::new`], with so many messages in progress; that a message was whole already is for the caller to know.
    pub fn with_slots(count: usize, max_message: usize, timeout_ns: u64, budget: Arc<AtomicUsize>) -> Self {
        Self {
            slots: (0..count).map(|_| Slot::default()).collect(),
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

    /// Gives up what waited too long and memory that nobody uses.
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

    /// When [`expire`](Self::expire) will have something to do next.
    pub fn next_deadline(&self) -> Option<u64> {
        let idle = self.timeout_ns.saturating_mul(IDLE);
        let due = |slot: &Slot| match slot.sample {
            Some(_) => Some(slot.since_ns.saturating_add(self.timeout_ns)),
            None => (slot.charged > 0).then(|| slot.since_ns.saturating_add(idle)),
        };
        self.slots.iter().filter_map(due).min()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The message that became whole last, until the next fragment comes.
    pub fn finished(&self) -> Option<&[u8]> {
        let slot = self.slots.get(self.last_whole?)?;
        slot.sample.is_none().then_some(&slot.buffer[..slot.total])
    }

    /// Whether a fragment of this message pushes out no other one but those up to sample `over`, which nobody waits for.
    pub fn has_room_for(&self, sample: u64, over: u64) -> bool {
        let fits = |slot: &Slot| slot.sample.is_none_or(|other| other == sample || other <= over);
        self.slots.iter().any(fits)
    }

    /// Whether a piece of this message is missing before one that is here.
    pub fn has_hole(&self, sample: u64) -> bool {
        self.progress(sample).is_some_and(|slot| slot.received < slot.end)
    }

    /// What is missing of a message that was begun, as (first byte, byte after the last): all, or only what lies before a
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
        if self.done.contains(&Some(sample)) {
            return Err(Refused::Duplicate);
        }
        let index = match self.slots.iter().position(|s| s.sample == Some(sample)) {
            Some(index) => index,
            None => self.begin(now_ns, sample, total)?,
        };
        let kept = self.slots[index].insert(offset, total, bytes, &self.budget);
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
        if self.done.contains(&Some(sample)) {
            return Err(Refused::Duplicate);
        }
        let index = match self.slots.iter().position(|s| s.sample == Some(sample)) {
            Some(index) => index,
            None => self.begin(now_ns, sample, total)?,
        };
        let kept = self.slots[index].insert_parity(at, bytes, &self.budget);
        self.kept(index, kept)
    }

    /// What became of the message in a slot: whole by now, perhaps with the help of parity.
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
                    slot.sample = None; // nothing of it was kept
                }
                Err(reason)
            }
        }
    }

    /// Takes a free slot, or that of the oldest message. Age is the sample's number, not its arrival: a fragment that
    /// comes late must not push out a newer message.
    fn begin(&mut self, now_ns: u64, sample: u64, total: usize) -> Result<usize, Refused> {
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

/// One message in progress, or a buffer that waits for one.
#[derive(Debug, Default)]
struct Slot {
    sample: Option<u64>,
    total: usize,
    step: Option<usize>, // length of every piece but the last; unknown while only the last one is here
    tail: Option<usize>, // offset of the last piece, if it is here
    received: usize,     // bytes
    end: usize,          // of the last piece that is here
    since_ns: u64,
    seen: Vec<u64>,
    buffer: Vec<u8>,
    charged: usize,
    pieces: usize,     // fragments that are here
    parity: Vec<u16>,  // numbers of the parity pieces that are here
    parity_count: u16, // of so many
    parity_bytes: Vec<u8>,
    parity_charged: usize,
}

impl Slot {
    fn begin(&mut self, now_ns: u64, sample: u64, total: usize) {
        (self.sample, self.total, self.since_ns) = (Some(sample), total, now_ns);
        (self.step, self.tail, self.received, self.end) = (None, None, 0, 0);
        (self.pieces, self.parity_count) = (0, 0);
        self.parity.clear();
        self.parity_bytes.clear();
    }

    /// Whether the piece that begins there is here.
    fn has(&self, at: usize) -> bool {
        let inner = |step| self.seen.get(at / step / 64).is_some_and(|word| word & (1u64 << (at / step % 64)) != 0);
        self.tail == Some(at) || self.step.is_some_and(inner)
    }

    /// Where the piece after it begins.
    fn after(&self, at: usize) -> usize {
        match (self.step, self.tail) {
            (Some(step), _) => (at + step).min(self.total),
            (None, Some(tail)) if at < tail => tail,
            _ => self.total,
        }
    }

    /// Makes room for `total` bytes and `words` of bitmap, paid from the budget.
    fn reserve(&mut self, total: usize, words: usize, budget: &AtomicUsize) -> Result<(), Refused> {
        let cost = total.max(self.buffer.len()) + 8 * words.max(self.seen.len());
        let more = cost.saturating_sub(self.charged);
        if more > 0 {
            let paid = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(more));
            paid.map_err(|_| Refused::OverBudget)?;
            self.charged += more;
        }
        if self.buffer.len() < total {
            self.buffer = Vec::new(); // freed first, not copied: nothing in it is needed
            self.buffer = vec![0; total];
        }
        Ok(())
    }

    fn release(&mut self, budget: &AtomicUsize) {
        budget.fetch_add(self.charged + self.parity_charged, Ordering::Relaxed);
        (self.charged, self.buffer, self.seen) = (0, Vec::new(), Vec::new());
        (self.parity_charged, self.parity_bytes, self.parity) = (0, Vec::new(), Vec::new());
    }

    /// Keeps a parity piece: no more of them than the message has fragments, paid from the budget.
    fn insert_parity(&mut self, at: Parity, bytes: &[u8], budget: &AtomicUsize) -> Result<bool, Refused> {
        let (step, known) = (bytes.len(), self.parity_count);
        let fits = self.step.unwrap_or(step) == step && (known == 0 || known == at.count);
        if at.total as usize != self.total || !fits {
            return Err(Refused::Inconsistent);
        }
        if self.parity.contains(&at.index) {
            return Err(Refused::Duplicate);
        }
        if self.step.is_none() {
            self.learn_step(step, budget)?;
        }
        let more = (self.parity_bytes.len() + step).saturating_sub(self.parity_charged);
        let paid = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(more));
        paid.map_err(|_| Refused::OverBudget)?;
        self.parity_charged += more;
        self.parity_count = at.count;
        self.parity.push(at.index);
        self.parity_bytes.extend_from_slice(bytes);
        Ok(false)
    }

    /// Whether parity makes up for all that is missing.
    fn restore(&mut self) -> bool {
        let Some(step) = self.step.filter(|_| !self.parity.is_empty()) else { return false };
        if self.pieces + self.parity.len() < self.total.div_ceil(step) {
            return false;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let pieces = self.parity.iter().map(|index| usize::from(*index)).zip(self.parity_bytes.chunks(step));
        let message = &mut buffer[..self.total];
        let restored = parity::restore(message, step, |n| self.has(n * step), self.parity_count.into(), pieces);
        self.buffer = buffer;
        if restored.is_err() {
            self.parity.clear(); // they do not fit: the fragments may still come
            self.parity_bytes.clear();
        }
        restored.is_ok()
    }

    /// Keeps one piece; true when it was the last missing one.
    fn insert(&mut self, offset: usize, total: usize, bytes: &[u8], budget: &AtomicUsize) -> Result<bool, Refused> {
        if total != self.total {
            return Err(Refused::Inconsistent);
        }
        if offset + bytes.len() == total {
            self.insert_last(offset, bytes.len())?;
        } else {
            self.insert_inner(offset, bytes.len(), budget)?;
        }
        self.buffer[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.received += bytes.len();
        self.pieces += 1;
        self.end = self.end.max(offset + bytes.len());
        Ok(self.received == total)
    }

    fn insert_last(&mut self, offset: usize, length: usize) -> Result<(), Refused> {
        if let Some(tail) = self.tail {
            return Err(if tail == offset { Refused::Duplicate } else { Refused::Inconsistent });
        }
        if self.step.is_some_and(|step| length > step || !offset.is_multiple_of(step)) {
            return Err(Refused::Inconsistent);
        }
        self.tail = Some(offset);
        Ok(())
    }

    fn insert_inner(&mut self, offset: usize, length: usize, budget: &AtomicUsize) -> Result<(), Refused> {
        if self.step.unwrap_or(length) != length || !offset.is_multiple_of(length) {
            return Err(Refused::Inconsistent);
        }
        if self.step.is_none() {
            self.learn_step(length, budget)?;
        }
        let (word, bit) = (offset / length / 64, 1u64 << (offset / length % 64));
        if self.seen[word] & bit != 0 {
            return Err(Refused::Duplicate);
        }
        self.seen[word] |= bit;
        Ok(())
    }

    /// The first inner piece says how long all of them are.
    fn learn_step(&mut self, step: usize, budget: &AtomicUsize) -> Result<(), Refused> {
        let fits = |tail: usize| tail.is_multiple_of(step) && self.total - tail <= step;
        if !self.tail.is_none_or(fits) {
            return Err(Refused::Inconsistent);
        }
        let words = self.total.div_ceil(step).div_ceil(64);
        self.reserve(self.total, words, budget)?;
        self.seen.clear();
        self.seen.resize(words, 0);
        self.step = Some(step);
        Ok(())
    }
}
