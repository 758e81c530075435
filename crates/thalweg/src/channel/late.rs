//! A late joiner's two streams: the history, and the live flow that began meanwhile. [`LateJoin`] is pure: time is an
//! argument. A [`Latecomer`] joins a channel's samples by it.
//!
//! Live samples are held until the history is over, then follow it in the order of their numbers, each once, without a gap:
//! the history is requested after the flow began, and so reaches up to it or beyond. If the history takes longer than the
//! hold, or more live samples come than may be held, live samples go first, and later samples of the history are marked
//! historical. So is a live sample that the history had already dropped and overtaken. A history of the last samples of
//! each instance has holes: samples that newer ones of their instance replaced.
//!
//! A channel may end before its history. Samples that wait then wait for the next channel, as long as live ones are held and in the same room,
//! and go on waiting there for the rest of the history. If none takes them over in this time, because the publisher is dead, they follow what
//! came of the history. The next channel, if there is one after all, leaves them out. Samples of a channel that is over may be read when the
//! next one has begun, as datagrams that wait in a socket are: they join the next one's history, which brings most of them itself.

mod latecomer;

pub(crate) use latecomer::Latecomer;

use std::collections::{BTreeSet, VecDeque};

/// The fate of a live sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The sample is delivered, after those that are [released](LateJoin::released).
    Deliver {
        /// Later samples were delivered before.
        historical: bool,
    },
    /// The sample waits.
    Hold,
    /// The sample came already, or comes by the next channel.
    Drop,
}

/// Limits on samples held back: number and time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// Nanoseconds from the first live sample.
    pub ns: u64,
    /// Samples.
    pub samples: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// The junction of the two streams; `T` is a sample that waits.
#[derive(Debug)]
pub(crate) struct LateJoin<T> {
    hold: Hold,
    stage: Stage,
    /// Number, bytes and the sample, in the order of the numbers.
    held: VecDeque<(u64, usize, T)>,
    /// The sum of all bytes in `held`.
    bytes: usize,
    /// Samples up to this one were delivered before the channel came back.
    after: u64,
    /// The lowest and the highest number that the history gave.
    given: Option<(u64, u64)>,
    /// Ranges of numbers that the history left out between them.
    holes: VecDeque<(u64, u64)>,
    /// The channel ended before its history.
    given_up: bool,
    /// The end of the wait for a next channel, and the last sample to which it applies: those that waited for this channel already.
    patience: Option<(u64, u64)>,
    /// Samples that were delivered and may be brought again: those that waited, those after the end of a channel, and those that the history
    /// had not come to.
    ahead: BTreeSet<u64>,
    /// The first live sample of this channel, which brings all that follow.
    first: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Live samples wait, at most until this time.
    Holding(Option<u64>),
    /// Live samples, from the first one on, were delivered.
    Live,
    /// The history is over.
    Ended,
    /// A live sample was delivered after the history: no more samples have to be compared.
    Over,
    /// The next channel goes on, and brings what still comes here.
    HandedOver,
}

impl<T> LateJoin<T> {
    /// The start, before any sample. Samples up to `after` were delivered on an earlier channel.
    pub(crate) fn new(after: u64, hold: Hold) -> Self {
        let (stage, held, holes) = (Stage::Holding(None), VecDeque::new(), VecDeque::new());
        let (given, given_up, patience, ahead, first) = (None, false, None, BTreeSet::new(), None);
        Self { hold, stage, held, bytes: 0, after, given, holes, given_up, patience, ahead, first }
    }

    /// The same, with live samples that wait already, and their bytes.
    pub(crate) fn with_held(after: u64, hold: Hold, held: impl Iterator<Item = (u64, usize, T)>) -> Self {
        let mut late = Self::new(after, hold);
        for (seq, size, sample) in held {
            late.bytes += size;
            late.held.push_back((seq, size, sample));
        }
        late
    }

    /// A live sample came. `keep` is called if it waits.
    pub(crate) fn live(&mut self, seq: u64, size: usize, now: u64, keep: impl FnOnce() -> T) -> Verdict {
        let verdict = self.judge(seq, size, now, keep);
        let is_ahead = self.given_up || (self.stage == Stage::Live && self.is_before_first(seq));
        if is_ahead && matches!(verdict, Verdict::Deliver { .. }) {
            self.note_ahead(seq);
        }
        verdict
    }

    fn judge(&mut self, seq: u64, size: usize, now: u64, keep: impl FnOnce() -> T) -> Verdict {
        let Some(place) = self.place(seq).filter(|_| self.stage != Stage::HandedOver) else { return Verdict::Drop };
        if self.is_overtaken(seq) {
            return Verdict::Deliver { historical: true };
        }
        self.first = self.first.or(Some(seq));
        if let Stage::Holding(until) = self.stage {
            let until = until.unwrap_or(now.saturating_add(self.hold.ns));
            if now < until && self.has_room(size) {
                self.stage = Stage::Holding(Some(until));
                return self.hold(place, (seq, size, keep()));
            }
            self.stage = Stage::Live;
        }
        if self.stage == Stage::Ended {
            self.stage = Stage::Over;
        }
        Verdict::Deliver { historical: place < self.held.len() }
    }

    /// A sample of the channel before this one came, which has ended. Unlike a live sample's, its number says nothing of those that follow.
    pub(crate) fn of_earlier(&mut self, seq: u64, size: usize, now: u64, keep: impl FnOnce() -> T) -> Verdict {
        let is_wanted = self.is_before_first(seq) && self.stage != Stage::HandedOver;
        let Some(place) = self.place(seq).filter(|_| is_wanted) else { return Verdict::Drop };
        let is_overtaken = self.is_overtaken(seq);
        let waits = matches!(self.stage, Stage::Holding(until) if until.is_none_or(|until| now < until));
        if waits && !is_overtaken && self.has_room(size) {
            return self.hold(place, (seq, size, keep()));
        }
        self.note_ahead(seq);
        Verdict::Deliver { historical: is_overtaken || self.stage != Stage::Ended || place < self.held.len() }
    }

    fn hold(&mut self, place: usize, sample: (u64, usize, T)) -> Verdict {
        self.bytes += sample.1;
        self.held.insert(place, sample);
        Verdict::Hold
    }

    /// `true` if no live sample of this channel has this number.
    fn is_before_first(&self, seq: u64) -> bool {
        self.first.is_none_or(|first| seq < first)
    }

    /// The place of a sample among those that wait; `None`: it came already.
    fn place(&self, seq: u64) -> Option<usize> {
        let came = seq <= self.after || self.was_given(seq) || self.ahead.contains(&seq);
        self.held.binary_search_by_key(&seq, |(held, ..)| *held).err().filter(|_| !came)
    }

    /// `true` if the history, or samples ahead of it, are beyond this one.
    fn is_overtaken(&self, seq: u64) -> bool {
        let later = [self.given.map(|(_, last)| last), self.ahead.last().copied()];
        later.into_iter().flatten().any(|last| seq < last)
    }

    fn has_room(&self, size: usize) -> bool {
        self.held.len() < self.hold.samples && self.bytes + size <= self.hold.bytes
    }

    fn note_ahead(&mut self, seq: u64) {
        self.ahead.insert(seq);
        if self.ahead.len() > MOST_AHEAD
            && let Some(first) = self.ahead.pop_first()
        {
            self.after = self.after.max(first);
        }
    }

    fn was_given(&self, seq: u64) -> bool {
        let within = self.given.is_some_and(|(first, last)| (first..=last).contains(&seq));
        within && !self.holes.iter().any(|(first, last)| (*first..=*last).contains(&seq))
    }

    /// A sample of the history came, with a higher number than those before. `None`: it is not delivered. `Some`: it is delivered,
    /// after those that are [released](LateJoin::released); `true`: marked historical.
    pub(crate) fn history(&mut self, seq: u64) -> Option<bool> {
        let new = match self.stage {
            Stage::Holding(_) => true,
            Stage::Live => self.is_before_first(seq),
            Stage::Ended | Stage::Over | Stage::HandedOver => false,
        };
        let came = seq <= self.after || self.given.is_some_and(|(_, last)| seq <= last) || self.ahead.contains(&seq);
        if !new || self.given_up || came {
            return None;
        }
        if let Some((_, last)) = self.given.filter(|(_, last)| last + 1 < seq) {
            if self.holes.len() >= MOST_HOLES {
                self.holes.pop_front();
            }
            self.holes.push_back((last + 1, seq - 1));
        }
        self.given = Some((self.given.map_or(seq, |(first, _)| first), seq));
        if let Ok(place) = self.held.binary_search_by_key(&seq, |(held, ..)| *held)
            && let Some((_, size, _)) = self.held.remove(place)
        {
            self.bytes -= size;
        }
        Some(self.stage == Stage::Live || self.ahead.last().is_some_and(|last| seq < *last))
    }

    /// The history is over, or does not come. Returns the first and the last number that may be missing because it broke off with its
    /// channel.
    pub(crate) fn end(&mut self) -> Option<(u64, u64)> {
        let broke_off = self.given_up && matches!(self.stage, Stage::Holding(_) | Stage::Live);
        if !matches!(self.stage, Stage::Over | Stage::HandedOver) {
            self.stage = Stage::Ended;
        }
        let missing = self.last_given().saturating_add(1);
        let ahead = self.ahead.range(missing..).next().copied();
        let held = self.held.front().map(|(seq, ..)| *seq);
        let beyond = ahead.into_iter().chain(held).min().map(|seq| (missing, seq.saturating_sub(1)));
        beyond.filter(|(first, last)| broke_off && first <= last)
    }

    /// More of the history may come.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.given_up && matches!(self.stage, Stage::Holding(_) | Stage::Live)
    }

    /// The channel ended, and another one is to get the rest: from now on samples wait for it. Returns the last sample up to which all were
    /// delivered, also if this is called again. `None`: no sample waits, and all that came were delivered.
    pub(crate) fn give_up(&mut self, now: u64) -> Option<u64> {
        if matches!(self.stage, Stage::Holding(_)) && !self.given_up {
            let had_begun = self.patience.filter(|(_, last)| self.last_given() < *last);
            let until = had_begun.map_or(now.saturating_add(self.hold.ns), |(until, _)| until);
            (self.given_up, self.stage) = (true, Stage::Holding(Some(until)));
        }
        (self.given_up && self.stage != Stage::HandedOver).then(|| self.last_given())
    }

    /// The end of the wait for the next channel; `None`: nothing waits for one.
    pub(crate) fn waits_until(&self) -> Option<u64> {
        match self.stage {
            Stage::Holding(until) if self.given_up => until,
            _ => None,
        }
    }

    /// No channel will follow: a wait for one is over, and none begins. `true`: there was one.
    pub(crate) fn nobody_follows(&mut self) -> bool {
        self.patience = Some((0, u64::MAX));
        let waited = self.waits_until().is_some();
        if waited {
            self.stage = Stage::Holding(Some(0));
        }
        waited
    }

    /// The last sample of the history, or of an earlier channel.
    fn last_given(&self) -> u64 {
        self.given.map_or(self.after, |(_, last)| last.max(self.after))
    }

    /// The junction of the next channel, which delivers what follows sample `after`.
    pub(crate) fn next(&mut self, after: u64) -> Self {
        let mut next = Self::new(after.max(self.after), self.hold);
        next.patience = self.waits_until().zip(self.held.back().map(|(seq, ..)| *seq));
        next.held = std::mem::take(&mut self.held);
        next.bytes = std::mem::take(&mut self.bytes);
        next.ahead = self.ahead.split_off(&next.after.saturating_add(1));
        self.stage = Stage::HandedOver;
        next
    }

    /// The last sample that the history or an earlier channel delivered here (0: none), or that waits and is due.
    pub(crate) fn last(&self) -> u64 {
        let due = self.held.back().filter(|_| !matches!(self.stage, Stage::Holding(_)));
        let last = [due.map(|(seq, ..)| *seq), self.given.map(|(_, last)| last), self.ahead.last().copied()];
        last.into_iter().flatten().max().unwrap_or(0)
    }

    /// The samples beyond the history that are here already.
    pub(crate) fn here(&self) -> impl Iterator<Item = u64> {
        self.ahead.iter().copied().chain(self.held.iter().map(|(seq, ..)| *seq))
    }

    /// The next held sample that may be delivered now. During the hold, these are the samples that the history has passed.
    pub(crate) fn released(&mut self) -> Option<T> {
        let passed = |seq: u64| self.given.is_some_and(|(_, last)| seq < last);
        let (seq, ..) = self.held.front()?;
        if matches!(self.stage, Stage::Holding(_)) && !passed(*seq) {
            return None;
        }
        let (seq, size, sample) = self.held.pop_front()?;
        self.bytes -= size;
        self.note_ahead(seq);
        Some(sample)
    }

    /// `true` if live samples need not come here any more.
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over && self.held.is_empty() && !self.given_up
    }
}

/// The most holes that are remembered, the last ones: live samples are among the newest. Samples in earlier holes count as
/// delivered.
const MOST_HOLES: usize = 1024;
/// The most samples after the end of channels that are remembered, the last ones: all before them count as delivered.
const MOST_AHEAD: usize = 4096;

#[cfg(test)]
mod tests;
