//! The queue of a flow: bounded, by the channel's policy.

use super::buffer::Buffer;
use super::memory::{ALWAYS, Account, Charge, size_of};
use crate::channel::Change;
use crate::trace::{self, Step};
use crate::wire::{HISTORICAL, Header, Kind};
use qos::{Queue as Policy, ResourceLimit};
use std::collections::VecDeque;
use std::sync::Arc;

/// The longest queue that has room for all its samples from the start, and the room of a longer one at first: that of the default queue. A
/// bridge has a channel with a queue of 1,024 for each topic that comes in, and few of them ever fill.
const SHORT: u32 = 256;
const AT_FIRST: u32 = 16;

/// A message that waits to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The encoded message.
    pub buffer: Arc<Buffer>,
    /// Its sample sequence number.
    pub seq: u64,
    /// Source stamp, CLOCK_MONOTONIC nanoseconds of the publisher.
    pub stamp: u64,
    /// Time at which it was published or forwarded here, by this host's monotonic clock: a relay's stamps are by another clock.
    pub now: u64,
    /// Its statement about its instance.
    pub change: Change,
    /// Later samples were published before it: it comes from a history.
    pub historical: bool,
    /// Time at which it was offered to the flow, if its stages are measured; else 0.
    pub offered: u64,
    /// A batch: several messages, which left in one datagram.
    pub batch: bool,
    /// Its charge on the node's memory, where a channel keeps it.
    pub charge: Charge,
}

/// The sample of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Label {
    /// Its sequence number.
    pub seq: u64,
    /// Source stamp.
    pub stamp: u64,
    /// Its statement about its instance.
    pub change: Change,
    /// Later ones came before it.
    pub historical: bool,
}

impl Label {
    /// The label in a frame.
    pub(crate) fn of(header: &Header) -> Self {
        Self::with(header.sample, header.stamp_ns, header.flags)
    }

    /// With a frame's flags.
    pub(crate) fn with(seq: u64, stamp: u64, flags: u16) -> Self {
        Self { seq, stamp, change: Change::of(flags), historical: flags & HISTORICAL != 0 }
    }

    /// The label as a frame's flags.
    pub(crate) fn flags(&self) -> u16 {
        self.change.flags() | if self.historical { HISTORICAL } else { 0 }
    }
}

impl Entry {
    /// The kind of its frame, where it leaves whole.
    pub(crate) fn kind(&self) -> Kind {
        if self.batch { Kind::Batch } else { Kind::Message }
    }

    /// Its charge, in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of(self.buffer.payload().len())
    }

    /// Its label.
    pub(crate) fn label(&self) -> Label {
        let Self { seq, stamp, change, historical, .. } = *self;
        Label { seq, stamp, change, historical }
    }
}

/// The outcome of [`Queue::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It waits.
    Queued,
    /// It waits, and this many of the oldest messages were dropped for it, because of this limit.
    DroppedOldest(u32, ResourceLimit),
    /// This limit left no room, and the policy drops no message, or none was left to drop.
    Full(ResourceLimit),
}

impl Pushed {
    /// It does not wait.
    pub(crate) fn is_full(self) -> bool {
        matches!(self, Self::Full(_))
    }
}

/// A queue that is bounded in samples and bytes. Allocates once, when it is made.
#[derive(Debug)]
pub(crate) struct Queue {
    policy: Policy,
    entries: VecDeque<Entry>,
    bytes: usize,
    most_bytes: usize,
    together: usize, // bytes up to which more samples than the policy's may wait
    account: Option<Arc<Account>>,
}

impl Queue {
    /// An empty queue, bounded in samples only.
    pub(crate) fn new(policy: Policy) -> Self {
        // Room for all of a short queue at once; a long one is for bursts, and grows towards its limit as it fills (then steady again).
        let room = if policy.limit() <= SHORT { policy.limit() } else { AT_FIRST };
        let entries = VecDeque::with_capacity(room as usize);
        Self { policy, entries, bytes: 0, most_bytes: usize::MAX, together: 0, account: None }
    }

    /// The same, with at most `most_bytes`, charged to this account.
    pub(crate) fn within(self, most_bytes: usize, account: Arc<Account>) -> Self {
        Self { most_bytes, account: Some(account), ..self }
    }

    /// The same, with room for as many samples as take `together` bytes, even beyond the policy's number: they leave together.
    pub(crate) fn gathering(self, together: usize) -> Self {
        Self { together, ..self }
    }

    /// Puts a message at the end, by the policy. If the node has no memory for it, keep-last drops as many bytes of its own,
    /// so that the node holds no more than before. If it does not have as many, the new message is refused, and the others stay.
    pub(crate) fn push(&mut self, mut entry: Entry) -> Pushed {
        trace::step(Step::Push);
        let size = entry.size();
        let (full, drops) = (self.fits(size).err(), matches!(self.policy, Policy::KeepLast(_)));
        if let Some(limit) = full.filter(|_| !drops) {
            return Pushed::Full(limit);
        }
        let (free, limit) = match self.charge(size, self.bytes.saturating_add(size) <= ALWAYS) {
            Ok(charge) => {
                entry.charge = charge;
                (0, full)
            }
            Err(limit) if drops && self.bytes >= size => (size, full.or(Some(limit))),
            Err(limit) => return Pushed::Full(limit),
        };
        let dropped = self.drop_oldest(size, free);
        if free > 0 {
            entry.charge = self.charge(size, true).unwrap_or_default();
        }
        self.bytes += size;
        self.entries.push_back(entry);
        limit.map_or(Pushed::Queued, |limit| Pushed::DroppedOldest(dropped, limit))
    }

    /// Takes over the messages of another queue, and those in `before`, which left earlier; its own follow. Only keep-last drops
    /// messages beyond its limit, the oldest first. Returns how many.
    pub(crate) fn take_over(&mut self, before: Vec<Entry>, other: &mut Self) -> usize {
        let charge = |mut entry: Entry| {
            if !entry.charge.is_taken() {
                entry.charge = self.charge(entry.size(), true).unwrap_or_default();
            }
            entry
        };
        let mut entries: VecDeque<Entry> = before.into_iter().map(charge).collect();
        self.bytes += entries.iter().map(Entry::size).sum::<usize>() + std::mem::take(&mut other.bytes);
        entries.append(&mut other.entries);
        entries.append(&mut self.entries);
        self.entries = entries;
        let drops = matches!(self.policy, Policy::KeepLast(_));
        let over = |queue: &Self| {
            queue.entries.len() > queue.policy.limit() as usize
                || (queue.bytes > queue.most_bytes && queue.entries.len() > 1)
        };
        let before = self.entries.len();
        while drops && over(self) {
            self.pop();
        }
        before - self.entries.len()
    }

    /// Checks that its own limits leave room for a message of this size. The error is the limit that leaves none. An empty queue
    /// has room for one message.
    fn fits(&self, size: usize) -> Result<(), ResourceLimit> {
        let leaves_with_others = self.bytes.saturating_add(size) <= self.together;
        if self.entries.len() >= self.policy.limit() as usize && !leaves_with_others {
            return Err(ResourceLimit::Samples);
        }
        let over = self.bytes.saturating_add(size) > self.most_bytes && !self.entries.is_empty();
        if over { Err(ResourceLimit::Bytes) } else { Ok(()) }
    }

    fn charge(&self, size: usize, forced: bool) -> Result<Charge, ResourceLimit> {
        self.account.as_ref().map_or(Ok(Charge::default()), |account| Charge::new(account, size, forced))
    }

    /// Drops the oldest messages until one of this size fits, and at least `free` bytes are dropped. Returns how many.
    fn drop_oldest(&mut self, size: usize, free: usize) -> u32 {
        let (mut dropped, mut freed) = (0, 0);
        while freed < free || self.fits(size).is_err() {
            let Some(oldest) = self.pop() else { break };
            freed += oldest.size();
            dropped += 1;
        }
        dropped
    }

    /// Takes the oldest.
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.size();
        Some(entry)
    }

    /// Drops messages older than `lifespan` nanoseconds at `now`, from the oldest on. Returns how many.
    pub(crate) fn expire(&mut self, now: u64, lifespan: u64) -> usize {
        let before = self.entries.len();
        while self.entries.front().is_some_and(|entry| now.saturating_sub(entry.now) > lifespan) {
            self.pop();
        }
        before - self.entries.len()
    }

    /// The waiting messages, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The number that wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Their charge, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// `true` if none waits.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Drops all that wait; returns how many.
    pub(crate) fn clear(&mut self) -> usize {
        let count = self.entries.len();
        self.entries.clear();
        self.bytes = 0;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::HEADER;
    use proptest::prelude::*;

    fn entry(seq: u64) -> Entry {
        Entry {
            buffer: Arc::default(),
            seq,
            stamp: 0,
            now: 0,
            change: Change::Written,
            historical: false,
            offered: 0,
            batch: false,
            charge: Charge::default(),
        }
    }

    #[test]
    fn samples_expire_after_the_last_nanosecond_of_their_life() {
        let mut queue = Queue::new(Policy::KeepLast(4));
        for now in [100, 110, 120] {
            queue.push(Entry { now, ..entry(now) });
        }
        assert_eq!((queue.expire(130, 30), queue.expire(141, 30), queue.len()), (0, 2, 1));
        assert_eq!((queue.pop().map(|e| e.seq), queue.expire(500, 0)), (Some(120), 0));
    }

    fn sized(seq: u64, size: usize) -> Entry {
        let mut buffer = Buffer::default();
        buffer.start().resize(HEADER + size, 0);
        Entry { buffer: Arc::new(buffer), ..entry(seq) }
    }

    /// The definition: waiting messages with their sizes. Keep-last drops the oldest until the new one fits; other policies take the
    /// new one if it fits.
    struct Model {
        waits: VecDeque<(u64, usize)>,
        most: (usize, usize, usize), // samples, bytes, bytes of the node
        last: bool,
    }

    impl Model {
        fn bytes(&self) -> usize {
            self.waits.iter().map(|(_, size)| size).sum()
        }

        fn full(&self, size: usize) -> Option<ResourceLimit> {
            match () {
                () if self.waits.len() >= self.most.0 => Some(ResourceLimit::Samples),
                () if self.bytes() + size > self.most.1 && !self.waits.is_empty() => Some(ResourceLimit::Bytes),
                () => None,
            }
        }

        fn push(&mut self, seq: u64, size: usize, others: usize) -> Pushed {
            let (full, before) = (self.full(size), self.bytes());
            let over = before + size > ALWAYS && others + before + size > self.most.2;
            let memory = over.then_some(ResourceLimit::NodeMemory);
            let Some(limit) = full.or(memory) else {
                self.waits.push_back((seq, size));
                return Pushed::Queued;
            };
            if !self.last {
                return Pushed::Full(limit);
            }
            if over && before < size {
                return Pushed::Full(ResourceLimit::NodeMemory);
            }
            let mut dropped = 0;
            while self.full(size).is_some() || (over && before - self.bytes() < size) {
                dropped += u32::from(self.waits.pop_front().is_some());
            }
            self.waits.push_back((seq, size));
            Pushed::DroppedOldest(dropped, limit)
        }
    }

    #[test]
    fn large_messages_take_the_place_of_several_and_one_always_fits() {
        let account = Account::new(1 << 30);
        let mut queue = Queue::new(Policy::KeepLast(100)).within(10_000, account.clone());
        (1..=30).for_each(|seq| assert!(!queue.push(sized(seq, 1000 - 256)).is_full()));
        assert_eq!((queue.len(), queue.bytes(), account.used()), (10, 10_000, 10_000));
        assert_eq!(queue.push(sized(31, 5_100 - 256)), Pushed::DroppedOldest(6, ResourceLimit::Bytes));
        assert_eq!(queue.push(sized(32, 90_000)), Pushed::DroppedOldest(5, ResourceLimit::Bytes), "alone, it has room");
        assert_eq!(queue.pop().map(|entry| entry.seq), Some(32));
        assert_eq!((queue.bytes(), account.used()), (0, 0));
    }

    proptest! {
        /// Each policy by samples, bytes and the node's memory together, compared with the definition.
        #[test]
        fn each_policy_keeps_what_it_says(
            limit in 1u32..9, most_bytes in 1usize..60_000, memory in 1usize..400_000, policy in 0..3,
            ops in prop::collection::vec((any::<bool>(), 0usize..40_000, 0usize..200_000), 0..200),
        ) {
            let policy = match policy {
                0 => Policy::KeepLast(limit),
                1 => Policy::KeepAll(limit),
                _ => Policy::Block { limit, up_to_us: 1 },
            };
            let account = Account::new(memory);
            let mut queue = Queue::new(policy).within(most_bytes, account.clone());
            let last = matches!(policy, Policy::KeepLast(_));
            let mut model = Model { waits: VecDeque::new(), most: (limit as usize, most_bytes, memory), last };
            for (seq, (push, size, others)) in (1..).zip(ops) {
                if push {
                    account.take(others);
                    prop_assert_eq!(queue.push(sized(seq, size)), model.push(seq, size_of(size), others));
                    account.give_back(others);
                } else {
                    prop_assert_eq!(queue.pop().map(|e| e.seq), model.waits.pop_front().map(|(seq, _)| seq));
                }
                prop_assert_eq!((queue.len(), queue.bytes(), account.used()), (model.waits.len(), model.bytes(), model.bytes()));
            }
            queue.clear();
            prop_assert_eq!((queue.bytes(), account.used()), (0, 0));
        }
    }
}
