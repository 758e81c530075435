//! Samples by the time at which they were published. A file has them by the time at which they came.

use crate::read::{Damage, Message, Messages};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A sample, and its time in the replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The sample.
    pub message: Message,
}

/// The samples of a file, ordered as long as they fit in memory and came within [`WINDOW_NS`] after they were published.
pub struct Ordered<I = Messages> {
    messages: I,
    waiting: BinaryHeap<Reverse<Entry>>,
    bytes: u64,
    most_bytes: u64,
    newest_ns: u64,
    number: u64,
    ended: bool,
}

impl<I: Iterator<Item = Result<Message, Damage>>> Ordered<I> {
    /// The samples of `messages`; at most `most_bytes` of them wait, and always one.
    pub fn new(messages: I, most_bytes: u64) -> Self {
        let waiting = BinaryHeap::new();
        Self { messages, waiting, bytes: 0, most_bytes, newest_ns: 0, number: 0, ended: false }
    }

    /// The samples as the file has them.
    pub fn messages(&mut self) -> &mut I {
        &mut self.messages
    }

    /// `true` if an earlier sample than the first that waits may still come.
    fn is_open(&self) -> bool {
        let first = self.waiting.peek();
        let settled = first.is_some_and(|Reverse(entry)| entry.time_ns.saturating_add(WINDOW_NS) < self.newest_ns);
        !self.ended && !settled && (first.is_none() || self.bytes < self.most_bytes)
    }

    fn take(&mut self, message: Message) {
        self.newest_ns = self.newest_ns.max(message.log_ns);
        self.number += 1;
        self.bytes = self.bytes.saturating_add(weight(&message));
        self.waiting.push(Reverse(Entry { time_ns: time_of(&message), number: self.number, message }));
    }
}

impl<I: Iterator<Item = Result<Message, Damage>>> Iterator for Ordered<I> {
    type Item = Result<Timed, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.is_open() {
            match self.messages.next() {
                Some(Ok(message)) => self.take(message),
                Some(Err(damage)) => return Some(Err(damage)),
                None => self.ended = true,
            }
        }
        let Reverse(Entry { time_ns, message, .. }) = self.waiting.pop()?;
        self.bytes = self.bytes.saturating_sub(weight(&message));
        Some(Ok(Timed { time_ns, message }))
    }
}

/// The time at which a sample is replayed: that of its publication. If it came much later (from a history, or by a clock of another
/// host that nobody compared) or is said to have come before, that of its receipt.
fn time_of(message: &Message) -> u64 {
    let Message { publish_ns, log_ns, .. } = *message;
    let sound = log_ns.checked_sub(publish_ns).is_some_and(|took| took <= WINDOW_NS);
    if sound { publish_ns } else { log_ns }
}

/// The memory of a sample.
pub(super) fn weight(message: &Message) -> u64 {
    (message.data.len() + size_of::<Timed>()) as u64
}

/// A sample that waits; the first one has the earliest time, and of several with one time the first that was read.
struct Entry {
    time_ns: u64,
    number: u64,
    message: Message,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time_ns, self.number).cmp(&(other.time_ns, other.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

/// The longest time between publication and receipt for which samples are put in order.
pub const WINDOW_NS: u64 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::tests::message;

    const S: u64 = 1_000_000_000;

    fn times(samples: &[(u64, u64)], most_bytes: u64) -> Vec<u64> {
        let messages = samples.iter().map(|(publish, log)| Ok(message(1, *publish, *log)));
        Ordered::new(messages, most_bytes).map(|timed| timed.unwrap().time_ns).collect()
    }

    #[test]
    fn samples_come_in_the_order_of_publication() {
        let samples = [(10 * S, 11 * S), (10 * S + 5, 10 * S + 6), (9 * S + 1, 11 * S), (11 * S, 11 * S)];
        assert_eq!(times(&samples, u64::MAX), [9 * S + 1, 10 * S, 10 * S + 5, 11 * S]);
    }

    #[test]
    fn a_sample_without_a_sound_stamp_has_the_time_of_its_receipt() {
        let samples = [(0, 10 * S), (99 * S, 11 * S), (11 * S, 12 * S)];
        assert_eq!(times(&samples, u64::MAX), [10 * S, 11 * S, 11 * S]);
    }

    #[test]
    fn the_memory_of_waiting_samples_is_bounded() {
        let read = std::cell::Cell::new(0);
        let messages = (0..1000).map(|number| {
            read.set(read.get() + 1);
            Ok(message(1, number, number))
        });
        let one = weight(&message(1, 0, 0));
        let mut ordered = Ordered::new(messages, 10 * one);
        for given in 1..=900 {
            ordered.next().unwrap().unwrap();
            assert!(read.get() <= given + 10, "{} read, {given} given", read.get());
        }
    }

    #[test]
    fn a_damage_is_told_in_its_place() {
        let damage = Damage::new(7, "x");
        let items = [Ok(message(1, 5, 5)), Err(damage.clone()), Ok(message(1, 6, 6))];
        let found: Vec<_> =
            Ordered::new(items.into_iter(), 1 << 20).map(|item| item.map(|timed| timed.time_ns)).collect();
        assert_eq!(found, [Err(damage), Ok(5), Ok(6)]);
    }
}
