//! A pull buffer: the last samples of one publisher, bounded by number, bytes and age; subscribers query it (P-05, P-09).
//! Pure: time is an argument.
//!
//! It shares the encoded messages with the queues and copies none. Samples are kept in the order of their numbers;
//! numbers that never came here (lost on the way, dropped by a monitor) are holes. Numbers of another incarnation are
//! unrelated: each start of a publisher has a buffer of its own.

mod instances;
mod query;
#[cfg(test)]
mod tests;

pub(crate) use instances::Instances;
pub use query::{Absent, AbsentReason, Query, QueryError};

use super::memory::{ALWAYS, Account, Charge, size_of};
use super::queue::Entry;
use qos::PullBuffer;
use std::collections::VecDeque;
use std::sync::Arc;

/// Room that a buffer has from the start, in samples; it grows to its limit as it fills.
const ROOM: usize = 256;

/// A sample with the time at which it was kept.
#[derive(Clone, Debug)]
struct Kept {
    entry: Entry,
    /// Time by the clock of the host that keeps it; never before that of a lower number.
    at: u64,
}

/// The samples of one publisher's incarnation that are still here.
#[derive(Debug)]
pub(crate) struct History {
    /// The publisher's incarnation.
    pub incarnation: u64,
    limits: PullBuffer,
    kept: VecDeque<Kept>,
    bytes: u64,
    /// The highest number that ever came; 0: none came.
    last: u64,
    /// The highest number that was here and is gone (0: none), and the time at which it was kept.
    dropped: (u64, u64),
    /// The account that pays for the samples.
    account: Option<Arc<Account>>,
}

/// Progress of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The number that is due next.
    next: u64,
    /// The last one.
    last: u64,
    /// Each number between them was asked for, so that holes are reported.
    each: bool,
    /// Requested samples that are not here.
    pub absent: Vec<Absent>,
}

impl Reading {
    /// A finished answer, for samples that were taken at once.
    pub(crate) fn nothing_more() -> Self {
        Self { next: 1, last: 0, each: false, absent: Vec::new() }
    }

    /// `true` if the answer is complete.
    pub(crate) fn is_over(&self) -> bool {
        self.next > self.last
    }
}

impl History {
    /// An empty buffer.
    pub(crate) fn new(incarnation: u64, limits: PullBuffer) -> Self {
        let room = (limits.samples as usize).min(ROOM);
        let kept = VecDeque::with_capacity(room);
        Self { incarnation, limits, kept, bytes: 0, last: 0, dropped: (0, 0), account: None }
    }

    /// The same, whose bytes are taken from this account.
    pub(crate) fn within(self, account: Arc<Account>) -> Self {
        Self { account: Some(account), ..self }
    }

    /// Keeps a sample, and drops those that are over the limits then. A duplicate is not kept twice. `false`: there is no memory
    /// for it.
    #[inline]
    pub(crate) fn keep(&mut self, mut entry: Entry, at: u64) -> bool {
        let size = entry.buffer.payload().len() as u64;
        if entry.seq <= self.dropped.0 || size > self.limits.bytes {
            self.last = self.last.max(entry.seq);
            return true;
        }
        self.expire(at);
        if self.never_holds(size) {
            self.last = self.last.max(entry.seq); // like one that is larger than the buffer
            return false;
        }
        if entry.seq <= self.last {
            return self.put_between(entry, at, size);
        }
        while self.kept.len() >= (self.limits.samples as usize).max(1) || self.bytes + size > self.limits.bytes {
            self.drop_oldest(); // before, so that the list never grows beyond its limit
        }
        self.last = entry.seq;
        let Some(charge) = self.charge(size) else {
            self.dropped = (entry.seq, at);
            return false;
        };
        entry.charge = charge;
        self.bytes += size;
        let at = self.kept.back().map_or(at, |newest| newest.at.max(at));
        self.kept.push_back(Kept { entry, at });
        true
    }

    /// `true` if there is no memory for a message of this size even if all others went: then they stay.
    fn never_holds(&self, size: u64) -> bool {
        let account = self.account.as_ref().filter(|_| size > ALWAYS as u64);
        account.is_some_and(|account| account.never_holds(size_of(size as usize)))
    }

    /// Takes memory for a message of this size, from the oldest ones if there is no other; `None`: they do not have enough.
    #[inline]
    fn charge(&mut self, size: u64) -> Option<Charge> {
        loop {
            let Some(account) = &self.account else { return Some(Charge::default()) };
            match Charge::new(account, size_of(size as usize), self.bytes + size <= ALWAYS as u64) {
                Ok(charge) => return Some(charge),
                Err(_) if self.kept.is_empty() => return None,
                Err(_) => self.drop_oldest(),
            }
        }
    }

    #[cold]
    fn put_between(&mut self, mut entry: Entry, at: u64, size: u64) -> bool {
        let Some(charge) = self.charge(size).filter(|_| entry.seq > self.dropped.0) else { return false };
        entry.charge = charge;
        let Err(place) = self.kept.binary_search_by_key(&entry.seq, |kept| kept.entry.seq) else { return true };
        let after = place.checked_sub(1).and_then(|before| self.kept.get(before)).map_or(0, |before| before.at);
        let before = self.kept.get(place).map_or(u64::MAX, |next| next.at);
        self.bytes += size;
        self.kept.insert(place, Kept { entry, at: at.min(before).max(after) });
        while self.kept.len() > self.limits.samples as usize || self.bytes > self.limits.bytes {
            self.drop_oldest();
        }
        true
    }

    /// Drops samples that are too old.
    pub(crate) fn expire(&mut self, now: u64) {
        let Some(age) = self.limits.age else { return };
        let oldest = now.saturating_sub(nanoseconds(age));
        while self.kept.front().is_some_and(|kept| kept.at < oldest) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(gone) = self.kept.pop_front() {
            self.bytes -= gone.entry.buffer.payload().len() as u64;
            self.dropped = (gone.entry.seq, gone.at);
        }
    }

    /// The number of samples here.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Their payload bytes.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lowest and the highest number that are here.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        Some((self.kept.front()?.entry.seq, self.kept.back()?.entry.seq))
    }

    /// Begins an answer to a query. Its samples are taken with [`History::read`].
    pub(crate) fn ask(&mut self, query: &Query, now: u64) -> Reading {
        self.expire(now);
        let count = self.kept.len() as u64;
        match *query {
            Query::Nth(n) if (1..=count).contains(&n) => {
                let seq = self.seq_at((count - n) as usize);
                self.found(seq, seq, Vec::new())
            }
            Query::Nth(n) => {
                let why = if n > 0 && self.dropped.0 > 0 { AbsentReason::Gone } else { AbsentReason::Never };
                self.nothing(why, query::nth(n))
            }
            // Without a key the topic is one instance.
            Query::Last(n) | Query::LastOfEach(n) => {
                let first = self.seq_at(count.saturating_sub(n) as usize);
                if n == 0 || count == 0 {
                    Reading::nothing_more() // a query for all that there is has no absent samples
                } else {
                    self.found(first, self.last_here(), Vec::new())
                }
            }
            Query::Since(time) => self.ask_since(now.saturating_sub(nanoseconds(time)), time),
            Query::Range { incarnation: Some(other), first, last } if other != self.incarnation => {
                let why = if other < self.incarnation { AbsentReason::Gone } else { AbsentReason::Never };
                self.nothing(why, format!("{other}:{}", query::range(first, last)))
            }
            Query::Range { first, last, .. } => self.ask_range(first, last),
        }
    }

    fn ask_since(&self, from: u64, time: std::time::Duration) -> Reading {
        let asked = format!("the last {time:?}");
        let mut absent = Vec::new();
        if self.dropped.0 > 0 && self.dropped.1 >= from {
            absent.push(self.absent(AbsentReason::Gone, asked.clone()));
        }
        let index = self.kept.partition_point(|kept| kept.at < from);
        if index < self.kept.len() {
            return self.found(self.seq_at(index), self.last_here(), absent);
        }
        if absent.is_empty() {
            absent.push(self.absent(AbsentReason::Never, asked));
        }
        Reading { next: 1, last: 0, each: false, absent }
    }

    /// Samples below the lowest number here are gone, those above the highest never were; holes show when the range is read.
    fn ask_range(&self, first: u64, last: u64) -> Reading {
        if first > last {
            return self.nothing(AbsentReason::Never, query::range(first, last));
        }
        let mut absent = Vec::new();
        let (mut next, mut until) = (first, last);
        if first == 0 {
            absent.push(self.absent(AbsentReason::Never, "0".to_owned()));
            next = 1;
        }
        if next <= self.dropped.0.min(until) {
            absent.push(self.absent(AbsentReason::Gone, query::range(next, until.min(self.dropped.0))));
            next = self.dropped.0.saturating_add(1);
        }
        if until > self.last && next <= until {
            absent.push(self.absent(AbsentReason::Never, query::range(next.max(self.last.saturating_add(1)), until)));
            until = self.last;
        }
        Reading { next, last: until, each: true, absent }
    }

    /// Takes references to the next samples of an answer, as many as fit: at least one, unless it is over.
    pub(crate) fn read(&self, reading: &mut Reading, samples: usize, bytes: usize, into: &mut Vec<Entry>) {
        if reading.next <= reading.last && reading.next <= self.dropped.0 {
            let gone = query::range(reading.next, self.dropped.0.min(reading.last));
            reading.absent.push(self.absent(AbsentReason::Gone, gone)); // dropped after the query
            reading.next = self.dropped.0.saturating_add(1);
        }
        let mut left = bytes;
        let from = self.kept.partition_point(|kept| kept.entry.seq < reading.next);
        for kept in self.kept.range(from..) {
            let size = kept.entry.buffer.payload().len();
            if kept.entry.seq > reading.last || into.len() >= samples.max(1) || (size > left && !into.is_empty()) {
                break;
            }
            self.tell_hole(reading, kept.entry.seq.saturating_sub(1));
            left = left.saturating_sub(size);
            reading.next = kept.entry.seq.saturating_add(1);
            into.push(kept.entry.clone());
            if kept.entry.seq == reading.last {
                (reading.next, reading.last) = (1, 0); // also for the highest possible number
                return;
            }
        }
        if into.is_empty() {
            self.tell_hole(reading, reading.last);
            (reading.next, reading.last) = (1, 0);
        }
    }

    /// Reports the numbers from the next one to `to`, which never came here.
    fn tell_hole(&self, reading: &mut Reading, to: u64) {
        if !reading.each || reading.next > to {
            return;
        }
        let hole = query::range(reading.next, to);
        match reading.absent.iter_mut().find(|absent| absent.why == AbsentReason::Missing) {
            Some(told) => {
                told.more = told.more.saturating_add(to - reading.next).saturating_add(1); // the numbers are a peer's
            }
            None => reading.absent.push(self.absent(AbsentReason::Missing, hole)),
        }
    }

    fn seq_at(&self, index: usize) -> u64 {
        self.kept.get(index).map_or(0, |kept| kept.entry.seq)
    }

    fn last_here(&self) -> u64 {
        self.kept.back().map_or(0, |kept| kept.entry.seq)
    }

    fn found(&self, next: u64, last: u64, absent: Vec<Absent>) -> Reading {
        Reading { next, last, each: false, absent }
    }

    fn nothing(&self, why: AbsentReason, asked: String) -> Reading {
        Reading { next: 1, last: 0, each: false, absent: vec![self.absent(why, asked)] }
    }

    fn absent(&self, why: AbsentReason, asked: String) -> Absent {
        let Self { incarnation, last, .. } = *self;
        Absent { why, asked, more: 0, incarnation, here: self.range(), last }
    }
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
