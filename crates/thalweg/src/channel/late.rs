//! A late joiner's two streams: the history, and the live flow that began meanwhile. [`LateJoin`] is pure: time is an
//! argument. A [`Latecomer`] joins a channel's samples by it.
//!
//! Live samples are held until the history is over, then follow it in the order of their numbers, each once, without a gap:
//! the history is requested after the flow began, and so reaches up to it or beyond. If the history takes longer than the
//! hold, or more live samples come than may be held, live samples go first, and later samples of the history are marked
//! historical. So is a live sample that the history had already dropped and overtaken. A history of the last samples of
//! each instance has holes: samples that newer ones of their instance replaced.

use super::memory::Account;
use super::{Deliver, Delivery, Payload, SampleInfo};
use linux::lock::PiMutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// The sample came with the history.
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
    held: VecDeque<(u64, T)>,
    bytes: usize,
    /// Samples up to this one were delivered before the channel came back.
    after: u64,
    /// The lowest and the highest number that the history gave.
    given: Option<(u64, u64)>,
    /// Ranges of numbers that the history left out between them.
    holes: VecDeque<(u64, u64)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Live samples wait, at most until then.
    Holding(Option<u64>),
    /// Live samples from this one on were delivered.
    Live(u64),
    /// The history is over.
    Ended,
    /// A live sample was delivered after the history: no more samples have to be compared.
    Over,
}

impl<T> LateJoin<T> {
    /// The start, before any sample. Samples up to `after` were delivered on an earlier channel.
    pub(crate) fn new(after: u64, hold: Hold) -> Self {
        let (stage, held, holes) = (Stage::Holding(None), VecDeque::new(), VecDeque::new());
        Self { hold, stage, held, bytes: 0, after, given: None, holes }
    }

    /// The same, with live samples that wait already, and their bytes.
    pub(crate) fn with_held(after: u64, hold: Hold, held: impl Iterator<Item = (u64, usize, T)>) -> Self {
        let mut late = Self::new(after, hold);
        for (seq, size, sample) in held {
            late.bytes += size;
            late.held.push_back((seq, sample));
        }
        late
    }

    /// A live sample came. `keep` is called if it waits.
    pub(crate) fn live(&mut self, seq: u64, size: usize, now: u64, keep: impl FnOnce() -> T) -> Verdict {
        if seq <= self.after || self.was_given(seq) {
            return Verdict::Drop;
        }
        if self.given.is_some_and(|(_, last)| seq < last) {
            return Verdict::Deliver { historical: true };
        }
        if let Stage::Holding(until) = self.stage {
            let until = until.unwrap_or(now.saturating_add(self.hold.ns));
            if now < until && self.held.len() < self.hold.samples && self.bytes + size <= self.hold.bytes {
                self.stage = Stage::Holding(Some(until));
                self.bytes += size;
                self.held.push_back((seq, keep()));
                return Verdict::Hold;
            }
            self.stage = Stage::Live(self.held.front().map_or(seq, |(first, _)| *first));
        }
        if self.stage == Stage::Ended {
            self.stage = Stage::Over;
        }
        Verdict::Deliver { historical: false }
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
            Stage::Live(first) => seq < first,
            Stage::Ended | Stage::Over => false,
        };
        if !new || seq <= self.after || self.given.is_some_and(|(_, last)| seq <= last) {
            return None;
        }
        if let Some((_, last)) = self.given.filter(|(_, last)| last + 1 < seq) {
            if self.holes.len() >= MOST_HOLES {
                self.holes.pop_front();
            }
            self.holes.push_back((last + 1, seq - 1));
        }
        self.given = Some((self.given.map_or(seq, |(first, _)| first), seq));
        self.held.retain(|(held, _)| *held != seq);
        Some(matches!(self.stage, Stage::Live(_)))
    }

    /// The history is over, or does not come.
    pub(crate) fn end(&mut self) {
        if self.stage != Stage::Over {
            self.stage = Stage::Ended;
        }
    }

    /// More of the history may come.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::Holding(_) | Stage::Live(_))
    }

    /// The channel ended, and another one is to get the rest. Returns the last sample up to which all were delivered. `None`: no
    /// sample waits, and all that came were delivered.
    pub(crate) fn give_up(&mut self) -> Option<u64> {
        if !matches!(self.stage, Stage::Holding(_)) {
            return None;
        }
        self.held.clear();
        self.stage = Stage::Over;
        Some(self.given.map_or(self.after, |(_, last)| last.max(self.after)))
    }

    /// The next held sample that may be delivered now. During the hold, these are the samples that the history has passed.
    pub(crate) fn released(&mut self) -> Option<T> {
        let passed = |seq: u64| self.given.is_some_and(|(_, last)| seq < last);
        let (seq, _) = self.held.front()?;
        if matches!(self.stage, Stage::Holding(_)) && !passed(*seq) {
            return None;
        }
        self.held.pop_front().map(|(_, sample)| sample)
    }

    /// `true` if live samples need not come here any more.
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over && self.held.is_empty()
    }
}

/// The junction of a channel's live samples and its history: one thread at a time.
pub(crate) struct Latecomer {
    join: PiMutex<LateJoin<(SampleInfo, Vec<u8>)>>,
    last_given: AtomicU64,
    /// The channel's.
    account: Arc<Account>,
}

impl Latecomer {
    /// A junction for a channel that delivered samples up to `after` before it came back.
    pub(crate) fn new(after: u64, account: Arc<Account>) -> Self {
        Self { join: PiMutex::new(LateJoin::new(after, HOLD)), last_given: AtomicU64::new(0), account }
    }

    /// The same, with live samples that wait already.
    pub(crate) fn with_held(
        after: u64,
        account: Arc<Account>,
        held: impl Iterator<Item = (SampleInfo, Vec<u8>)>,
    ) -> Self {
        let held = held.map(|(info, bytes)| (info.seq, bytes.len(), (info, bytes)));
        Self { join: PiMutex::new(LateJoin::with_held(after, HOLD, held)), last_given: AtomicU64::new(0), account }
    }

    /// Delivers a live sample of the channel, or keeps it. `true`: the next samples need not come here.
    pub(crate) fn live(&self, subscriber_port: &dyn Deliver, delivery: Delivery<'_>) -> bool {
        let mut late = self.join.lock();
        let SampleInfo { seq, received_ns, .. } = delivery.info;
        let bytes = delivery.payload.bytes();
        let verdict = late.live(seq, bytes.len(), received_ns, || (delivery.info, bytes.to_vec()));
        self.release(&mut late, |held| subscriber_port.deliver(held));
        if let Verdict::Deliver { historical } = verdict {
            let historical = historical || delivery.info.historical;
            subscriber_port.deliver(Delivery { info: SampleInfo { historical, ..delivery.info }, ..delivery });
        }
        late.is_over()
    }

    /// Delivers a sample of the history, unless it came live.
    pub(crate) fn history(&self, subscriber_port: &dyn Deliver, info: SampleInfo, bytes: &[u8]) {
        let mut late = self.join.lock();
        let given = late.history(info.seq);
        self.release(&mut late, |held| subscriber_port.deliver_elsewhere(held));
        if let Some(historical) = given {
            self.last_given.store(info.seq, Ordering::Release);
            subscriber_port.deliver_elsewhere(Delivery {
                info: SampleInfo { historical, ..info },
                payload: Payload::Bytes(bytes),
                account: &self.account,
            });
        }
    }

    /// The last sample that came with the history (0: none). The channel's own counters do not include it.
    pub(crate) fn last_given(&self) -> u64 {
        self.last_given.load(Ordering::Acquire)
    }

    /// `true` if more of the history may come, as it may during a callback. Never waits for a callback.
    pub(crate) fn is_under_way(&self) -> bool {
        self.join.try_lock().is_none_or(|late| late.is_under_way())
    }

    /// The channel ended: as [`LateJoin::give_up`]. `None` also while a callback runs: then the history continues and brings the
    /// remaining samples, and the next channel brings those that follow.
    pub(crate) fn give_up(&self) -> Option<u64> {
        self.join.try_lock()?.give_up()
    }

    /// The history is over: the waiting samples follow it.
    pub(crate) fn end(&self, subscriber_port: &dyn Deliver) {
        let mut late = self.join.lock();
        late.end();
        self.release(&mut late, |held| subscriber_port.deliver_elsewhere(held));
    }

    fn release(&self, late: &mut LateJoin<(SampleInfo, Vec<u8>)>, deliver: impl Fn(Delivery<'_>)) {
        while let Some((info, bytes)) = late.released() {
            deliver(Delivery { info, payload: Payload::Bytes(&bytes), account: &self.account });
        }
    }
}

/// The most holes that are remembered, the last ones: live samples are among the newest. Samples in earlier holes count as
/// delivered.
const MOST_HOLES: usize = 1024;

/// The limits of live samples that wait for the history.
const HOLD: Hold = Hold { ns: 1_000_000_000, samples: 1024, bytes: 4 << 20 };

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ops::RangeInclusive;

    const HOLD: Hold = Hold { ns: 100, samples: 5, bytes: 1000 };

    /// A publisher's history keeps `depth` samples. A subscriber joins after `before` of them, requests the history a little later
    /// and gets both streams in any interleaving.
    fn join(before: u64, meanwhile: u64, after: u64, depth: u64, order: &[(bool, u64)]) -> Vec<(u64, bool)> {
        let asked = before + meanwhile;
        meet(before + 1..=asked + after, (asked.saturating_sub(depth) + 1..=asked).collect(), order)
    }

    /// The outcome of both streams in any interleaving.
    fn meet(live: RangeInclusive<u64>, mut history: VecDeque<u64>, order: &[(bool, u64)]) -> Vec<(u64, bool)> {
        let mut live: VecDeque<u64> = live.collect();
        let (mut late, mut got, mut now, mut ended) = (LateJoin::new(0, HOLD), Vec::new(), 0, false);
        let mut steps = order.iter().copied().chain(std::iter::repeat_n((true, 1), 200));
        let rest = std::iter::repeat_n((false, 1), 200);
        for (from_history, passed) in steps.by_ref().chain(rest) {
            now += passed;
            if from_history && !ended {
                match history.pop_front() {
                    Some(seq) => {
                        let given = late.history(seq);
                        got.extend(std::iter::from_fn(|| late.released()).map(|seq| (seq, false)));
                        got.extend(given.map(|marked| (seq, marked)));
                    }
                    None => {
                        late.end();
                        ended = true;
                    }
                }
                got.extend(std::iter::from_fn(|| late.released()).map(|seq| (seq, false)));
            } else if let Some(seq) = live.pop_front() {
                let verdict = late.live(seq, 10, now, || seq);
                got.extend(std::iter::from_fn(|| late.released()).map(|seq| (seq, false)));
                if let Verdict::Deliver { historical } = verdict {
                    got.push((seq, historical));
                }
            }
        }
        assert!(late.is_over() || live.is_empty());
        got
    }

    proptest! {
        #[test]
        fn each_sample_comes_once_none_is_missing_and_order_is_kept_but_for_those_that_are_marked(
            before in 0u64..12, meanwhile in 0u64..6, after in 0u64..12, depth in 0u64..12,
            order in prop::collection::vec((any::<bool>(), 0u64..60), 0..40),
        ) {
            let got = join(before, meanwhile, after, depth, &order);
            let mut numbers: Vec<u64> = got.iter().map(|(seq, _)| *seq).collect();
            numbers.sort_unstable();
            let first = (before + 1).min((before + meanwhile).saturating_sub(depth) + 1);
            prop_assert_eq!(&numbers, &(first..=before + meanwhile + after).collect::<Vec<_>>());
            let unmarked: Vec<u64> = got.iter().filter(|(_, marked)| !marked).map(|(seq, _)| *seq).collect();
            prop_assert!(unmarked.is_sorted(), "{:?}", got);
        }
    }

    proptest! {
        /// A history of the last samples of each instance: each joiner gets these, and all live samples.
        #[test]
        fn with_instances_each_sample_comes_once_too(
            keys in prop::collection::vec(0_u8..5, 0..40), before in 0_usize..30, meanwhile in 0_usize..8, depth in 1_usize..4,
            order in prop::collection::vec((any::<bool>(), 0u64..60), 0..60),
        ) {
            let before = before.min(keys.len());
            let asked = (before + meanwhile).min(keys.len());
            let later = |seq: usize| keys[seq..asked].iter().filter(|key| **key == keys[seq - 1]).count();
            let history: VecDeque<u64> = (1..=asked).filter(|seq| later(*seq) < depth).map(|seq| seq as u64).collect();
            let live = before as u64 + 1..=keys.len() as u64;
            let got = meet(live.clone(), history.clone(), &order);
            let mut numbers: Vec<u64> = got.iter().map(|(seq, _)| *seq).collect();
            numbers.sort_unstable();
            let mut all: Vec<u64> = history.into_iter().filter(|seq| !live.contains(seq)).chain(live.clone()).collect();
            all.sort_unstable();
            prop_assert_eq!(numbers, all);
            let unmarked: Vec<u64> = got.iter().filter(|(_, marked)| !marked).map(|(seq, _)| *seq).collect();
            prop_assert!(unmarked.is_sorted(), "{:?}", got);
        }
    }

    #[test]
    fn a_history_in_time_comes_first_and_a_late_one_is_marked() {
        assert!(join(5, 0, 3, 5, &[(false, 0), (true, 50)]).iter().all(|(_, marked)| !marked));
        let late = join(5, 0, 3, 5, &[(false, 0), (true, 0), (false, 200)]);
        assert_eq!(late[..3], [(1, false), (6, false), (7, false)]);
        assert_eq!(late.iter().filter(|(_, marked)| *marked).map(|(seq, _)| *seq).collect::<Vec<_>>(), [2, 3, 4, 5]);
    }

    #[test]
    fn samples_that_wait_already_wait_for_the_history_too() {
        let mut late = LateJoin::with_held(3, HOLD, [(6, 10, 6), (7, 10, 7)].into_iter());
        assert_eq!((late.released(), late.live(8, 10, 0, || 8)), (None, Verdict::Hold));
        assert_eq!([3, 4, 5, 6].map(|seq| late.history(seq)), [None, Some(false), Some(false), Some(false)]);
        late.end();
        assert_eq!(std::iter::from_fn(|| late.released()).collect::<Vec<_>>(), [7, 8]);
    }

    #[test]
    fn a_channel_that_ends_before_its_history_leaves_the_rest_to_the_next() {
        let mut late = LateJoin::new(3, HOLD);
        assert_eq!(late.live(20, 10, 0, || 20), Verdict::Hold);
        assert_eq!((late.history(4), late.history(5), late.is_under_way()), (Some(false), Some(false), true));
        assert_eq!((late.give_up(), late.is_under_way()), (Some(5), false), "20 waited, and was not delivered");
        late.end();
        assert_eq!((late.released(), late.history(6), late.give_up()), (None, None, None));
        let mut over = LateJoin::<u64>::new(3, HOLD);
        assert_eq!(over.history(4), Some(false));
        over.end();
        assert_eq!(over.give_up(), None);
    }
}
