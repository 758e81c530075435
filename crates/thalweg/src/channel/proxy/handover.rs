//! Moving a proxy while samples flow: a new flow opens beside the old one, and its samples are held until the old one has
//! delivered all before them. Pure: time is an argument.
//!
//! All samples that the selections take are delivered, once: a sample is delivered only if it is newer than the last one,
//! from either flow. The new flow takes over when it has caught up with the old one: a flow that lags, or whose source is
//! cut off, brings no sample that the old one does not bring sooner. If the new flow fails first, the old one continues.

use super::Selection;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Time that the old flow has to bring missing samples, besides two periods of the stream: a round trip, and a pause of a
/// thread that has a sample in its hands. Later ones count as lost. A flow that lags more is not abreast.
pub const PATIENCE_NS: u64 = 200_000_000;
/// Bytes of samples that one move may hold: 64 MiB.
pub const MOST_HELD: usize = 64 << 20;

/// The state of one move. `T` is a held sample.
#[derive(Debug)]
pub struct Handover<T> {
    old: Selection,
    new: Selection,
    /// The new flow brings all that it selects after this one.
    after: u64,
    last: u64,
    held: VecDeque<Held<T>>,
    /// Bytes of these.
    bytes: usize,
    depth: usize,
    /// Number and stamp of the last sample of the old flow that passed since the move began …
    passed: Option<(u64, u64)>,
    /// … and of the new.
    brought: Option<(u64, u64)>,
    stage: Stage,
    verdict: Arc<Verdict>,
}

/// The flow that continues. It is decided once, by the first caller. A move is given up without the handover's lock, which is
/// held while a sample is delivered: a new flow that took over meanwhile would deliver the old one's samples, too.
#[derive(Debug, Default)]
pub struct Verdict(AtomicU8);

const OLD: u8 = 1;
const NEW: u8 = 2;

impl Verdict {
    /// Decides for the old flow. `false`: the new one has already taken over.
    pub fn keep_old(&self) -> bool {
        self.say(OLD)
    }

    /// `true` if the new flow was given up.
    pub fn is_old(&self) -> bool {
        self.0.load(Ordering::Acquire) == OLD
    }

    /// `true` if the new flow has taken over.
    pub fn is_new(&self) -> bool {
        self.0.load(Ordering::Acquire) == NEW
    }

    fn say(&self, flow: u8) -> bool {
        let said = self.0.compare_exchange(0, flow, Ordering::AcqRel, Ordering::Acquire);
        said.is_ok() || said == Err(flow)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Both flows bring samples.
    Both,
    /// The new flow has taken over; with a gap: before the old one had brought all that it may have had.
    New { gap: bool },
    /// The old one goes on alone.
    Old,
}

#[derive(Debug)]
struct Held<T> {
    seq: u64,
    stamp_ns: u64,
    received_ns: u64,
    size: usize,
    sample: T,
}

impl<T> Handover<T> {
    /// A move away from a flow with the selection `old` that has delivered up to `last`, or just now one sample more. At most
    /// `depth` samples and [`MOST_HELD`] bytes are held.
    pub fn new(old: Selection, last: u64, depth: usize) -> Self {
        let (held, bytes, depth) = (VecDeque::new(), 0, depth.max(1));
        let (stage, verdict) = (Stage::Both, Arc::default());
        Self { old, new: old, after: 0, last, held, bytes, depth, passed: None, brought: None, stage, verdict }
    }

    /// The same, to a flow that brings the samples of `selection` after sample `after`.
    pub fn with_new_selection(self, selection: Selection, after: u64) -> Self {
        Self { new: selection, after, ..self }
    }

    /// Takes a sample of the old flow. `true`: it is delivered, before any sample of [`Handover::released`].
    pub fn old(&mut self, seq: u64, stamp_ns: u64) -> bool {
        if self.passed.is_none() {
            // One more may have been delivered while the move began; the flow is in order.
            self.last = self.last.max(self.old.last_before(seq));
        }
        self.passed = Some((seq, stamp_ns));
        // Samples behind the first held one come by the new flow, in its order.
        if self.held.front().is_some_and(|first| seq >= first.seq) && self.is_abreast() {
            self.take_over(false);
        }
        if (self.is_taken_over() && seq > self.after) || seq <= self.last {
            return false;
        }
        self.last = seq;
        self.let_go(seq); // drops held samples only if the new flow lags
        self.take_over_if_complete();
        true
    }

    /// Takes a sample of `size` bytes of the new flow. `true`: it is delivered. `keep` makes the held sample.
    pub fn new_one(&mut self, (seq, stamp_ns): (u64, u64), now_ns: u64, size: usize, keep: impl FnOnce() -> T) -> bool {
        self.brought = Some((seq, stamp_ns));
        if self.is_taken_over() && self.held.is_empty() && seq > self.last {
            self.last = seq;
            return true;
        }
        if seq > self.last && self.held.back().is_none_or(|newest| seq > newest.seq) && self.stage != Stage::Old {
            self.bytes += size;
            self.held.push_back(Held { seq, stamp_ns, received_ns: now_ns, size, sample: keep() });
        }
        self.take_over_if_complete();
        if self.held.len() >= self.depth || self.bytes >= MOST_HELD || self.is_late(now_ns) {
            self.take_over(true);
        }
        false
    }

    /// Takes over if the old flow is complete: it has delivered the last sample before the first held one, or is ahead of the
    /// new flow. Its deliveries are certain once a sample of it passed here.
    fn take_over_if_complete(&mut self) {
        let behind = self.held.front().is_none_or(|first| self.last >= self.old.last_before(first.seq));
        if behind && self.is_abreast() {
            self.take_over(false);
        }
    }

    /// `true` if both flows bring samples, and those of the new flow are not much older.
    fn is_abreast(&self) -> bool {
        let stamps = self.passed.zip(self.brought);
        stamps.is_some_and(|((_, old), (_, new))| old.saturating_sub(new) <= PATIENCE_NS)
    }

    fn take_over(&mut self, gap: bool) {
        if self.stage == Stage::Both && self.verdict.say(NEW) {
            self.stage = Stage::New { gap };
        }
        self.keep_old(); // if that was decided meanwhile
    }

    /// The old flow is idle now; sample `came` was the last that it delivered. The new flow takes over if it has shown that it
    /// has all samples before its first and brings all that follow, or if a sample that it brought waits for too long.
    pub fn nothing_comes(&mut self, came: u64, now_ns: u64) {
        self.last = self.last.max(came);
        self.let_go(came);
        let has = self.brought.map_or(0, |(seq, _)| seq).max(self.after);
        let complete = came >= self.old.last_before(self.after.saturating_add(1));
        match self.held.front() {
            None if complete && has >= self.new.last_before(came.saturating_add(1)) => self.take_over(false),
            Some(first) if now_ns.saturating_sub(first.received_ns) > PATIENCE_NS => self.take_over(true),
            _ => {}
        }
    }

    /// The old flow ended, and `came` was the last that it delivered: the new one takes over at once.
    pub fn old_ended(&mut self, came: u64) {
        if self.stage == Stage::Both {
            self.last = self.last.max(came);
            self.let_go(came);
        }
        self.take_over(true);
    }

    /// Drops held samples that the old flow delivered.
    fn let_go(&mut self, delivered: u64) {
        while self.held.front().is_some_and(|first| first.seq <= delivered) {
            self.oldest();
        }
    }

    /// Takes the oldest held sample.
    fn oldest(&mut self) -> Option<Held<T>> {
        let held = self.held.pop_front()?;
        self.bytes -= held.size;
        Some(held)
    }

    /// The new flow is given up. `false`: it has taken over already.
    pub fn keep_old(&mut self) -> bool {
        if self.stage == Stage::Both && self.verdict.keep_old() {
            self.stage = Stage::Old;
            (self.held, self.bytes) = (VecDeque::new(), 0);
        }
        self.stage == Stage::Old
    }

    /// The decision between the flows.
    pub fn verdict(&self) -> Arc<Verdict> {
        self.verdict.clone()
    }

    /// The last sample that was delivered.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// `true` if the new flow has taken over.
    pub fn is_taken_over(&self) -> bool {
        matches!(self.stage, Stage::New { .. })
    }

    /// `true` if it took over before the old flow had brought all that it may have had.
    pub fn has_gap(&self) -> bool {
        self.stage == Stage::New { gap: true }
    }

    /// The held samples that are to be delivered now, the oldest first, one at each call.
    pub fn released(&mut self) -> Option<T> {
        if !self.is_taken_over() {
            return None;
        }
        let last = self.last;
        let held = std::iter::from_fn(|| self.oldest()).find(|held| held.seq > last)?;
        self.last = held.seq;
        Some(held.sample)
    }

    /// `true` if two periods and the patience have passed since the first held sample.
    fn is_late(&self, now_ns: u64) -> bool {
        let (Some(first), Some(newest)) = (self.held.front(), self.held.back()) else { return false };
        let between = newest.stamp_ns.saturating_sub(first.stamp_ns) / (self.held.len() as u64 - 1).max(1);
        let periods = between.saturating_mul(2); // from the stamps of a peer, which may have any value
        self.held.len() > 1 && now_ns.saturating_sub(first.received_ns) > periods.saturating_add(PATIENCE_NS)
    }
}

#[cfg(test)]
mod tests;
