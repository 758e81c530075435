//! What waits in a flow: bounded, by the channel's policy.

use super::buffer::Buffer;
use crate::port::Change;
use crate::trace::{self, Step};
use crate::wire::{HISTORICAL, Header};
use qos::Queue as Policy;
use std::collections::VecDeque;
use std::sync::Arc;

/// A message that waits to be sent.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The encoded message.
    pub buffer: Arc<Buffer>,
    /// Its sample sequence number.
    pub seq: u64,
    /// Source stamp, CLOCK_MONOTONIC nanoseconds of the publisher.
    pub stamp: u64,
    /// What it says of its instance.
    pub change: Change,
    /// Later ones were published before it: it comes from a history.
    pub historical: bool,
    /// When it was offered to the flow, if its stages are measured; else 0.
    pub offered: u64,
}

/// Which sample a message is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Label {
    /// Its sequence number.
    pub seq: u64,
    /// Source stamp.
    pub stamp: u64,
    /// What it says of its instance.
    pub change: Change,
    /// Later ones came before it.
    pub historical: bool,
}

impl Label {
    /// As a frame says.
    pub fn of(header: &Header) -> Self {
        Self::with(header.sample, header.stamp_ns, header.flags)
    }

    /// With a frame's flags.
    pub fn with(seq: u64, stamp: u64, flags: u16) -> Self {
        Self { seq, stamp, change: Change::of(flags), historical: flags & HISTORICAL != 0 }
    }

    /// What a frame's flags say of it.
    pub fn flags(&self) -> u16 {
        self.change.flags() | if self.historical { HISTORICAL } else { 0 }
    }
}

impl Entry {
    /// Which sample it is.
    pub fn label(&self) -> Label {
        let Self { seq, stamp, change, historical, .. } = *self;
        Label { seq, stamp, change, historical }
    }
}

/// What [`Queue::push`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It waits.
    Queued,
    /// It waits, and the oldest was dropped for it.
    DroppedOldest,
    /// There was no room and the policy drops nothing.
    Full,
}

/// A bounded queue. Allocates once, when it is made.
#[derive(Debug)]
pub struct Queue {
    policy: Policy,
    entries: VecDeque<Entry>,
}

impl Queue {
    /// An empty queue.
    pub fn new(policy: Policy) -> Self {
        // Room for a keep-last queue at once; the others grow towards their limit as they fill (then steady again).
        Self { policy, entries: VecDeque::with_capacity((policy.limit() as usize).min(256)) }
    }

    /// Puts a message at the end, by the policy.
    pub fn push(&mut self, entry: Entry) -> Pushed {
        trace::step(Step::Push);
        if self.entries.len() < self.policy.limit() as usize {
            self.entries.push_back(entry);
            return Pushed::Queued;
        }
        match self.policy {
            Policy::KeepLast(_) => {
                self.entries.pop_front();
                self.entries.push_back(entry);
                Pushed::DroppedOldest
            }
            Policy::KeepAll(_) | Policy::Block { .. } => Pushed::Full,
        }
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    /// Drops what is older than `lifespan` nanoseconds at `now`, from the oldest on; returns how many.
    pub fn expire(&mut self, now: u64, lifespan: u64) -> usize {
        let before = self.entries.len();
        while self.entries.front().is_some_and(|entry| now.saturating_sub(entry.stamp) > lifespan) {
            self.entries.pop_front();
        }
        before - self.entries.len()
    }

    /// What waits, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Drops all that wait; returns how many.
    pub fn clear(&mut self) -> usize {
        let count = self.entries.len();
        self.entries.clear();
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(seq: u64) -> Entry {
        Entry { buffer: Arc::default(), seq, stamp: 0, change: Change::Written, historical: false, offered: 0 }
    }

    #[test]
    fn samples_expire_after_the_last_nanosecond_of_their_life() {
        let mut queue = Queue::new(Policy::KeepLast(4));
        for stamp in [100, 110, 120] {
            queue.push(Entry { stamp, ..entry(stamp) });
        }
        assert_eq!((queue.expire(130, 30), queue.expire(141, 30), queue.len()), (0, 2, 1));
        assert_eq!((queue.pop().map(|e| e.seq), queue.expire(500, 0)), (Some(120), 0));
    }

    proptest! {
        /// Against the definition: keep-last holds the last n pushed and not yet popped, the others the first n.
        #[test]
        fn each_policy_keeps_what_it_says(limit in 1u32..9, ops in prop::collection::vec(any::<bool>(), 0..200), last in any::<bool>()) {
            let policy = if last { Policy::KeepLast(limit) } else { Policy::KeepAll(limit) };
            let (mut queue, mut model, mut seq) = (Queue::new(policy), Vec::new(), 0);
            for push in ops {
                if push {
                    seq += 1;
                    let full = model.len() == limit as usize;
                    let expected = match (full, last) { (false, _) => Pushed::Queued, (_, true) => Pushed::DroppedOldest, _ => Pushed::Full };
                    prop_assert_eq!(queue.push(entry(seq)), expected);
                    if full && last { model.remove(0); }
                    if !full || last { model.push(seq); }
                } else {
                    let expected = if model.is_empty() { None } else { Some(model.remove(0)) };
                    prop_assert_eq!(queue.pop().map(|e| e.seq), expected);
                }
                prop_assert_eq!(queue.len(), model.len());
            }
        }
    }
}
