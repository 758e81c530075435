//! The samples between the threads that receive and the one that writes, in bounded memory. When it is full, new samples are dropped.
//!
//! The thread that writes may be stopped at any step, for as long as others want its processor, and threads that receive wait for a lock that it
//! holds. So it does little under the lock: it takes all that wait in one step, and counts the room that it gives back before.

use super::arrivals::{Arrivals, Span};
use linux::clock::monotonic_ns;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thalweg::{PortRef, SampleInfo};

/// Memory of a waiting sample besides its bytes.
const SAMPLE: u64 = 256;
/// Samples that are taken at once.
const BATCH: usize = 256;

/// A sample that waits to be written.
pub(super) struct Waiting {
    /// The topic's index.
    pub(super) topic: usize,
    pub(super) info: SampleInfo,
    pub(super) bytes: Vec<u8>,
}

impl Waiting {
    fn cost(&self) -> u64 {
        self.bytes.len() as u64 + SAMPLE
    }
}

/// The queue of all topics.
pub(super) struct Intake {
    memory: u64,
    state: Mutex<State>,
    /// Samples that the thread that writes has taken, and not yet written. Nobody else locks it.
    taken: Mutex<VecDeque<Waiting>>,
    news: Condvar,
}

/// A publisher whose samples came.
struct Publisher {
    topic: usize,
    first: SampleInfo,
    arrivals: Arrivals,
}

/// What a publisher's samples lack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lacking {
    /// The topic's index.
    pub(super) topic: usize,
    /// A sample of the publisher.
    pub(super) info: SampleInfo,
    /// Lost before they came.
    pub(super) lost: Span,
    /// Dropped here.
    pub(super) dropped: Span,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Bytes that wait or are written now.
    bytes: u64,
    /// The same by topic.
    of_topic: Vec<u64>,
    publishers: HashMap<PortRef, Publisher>,
    /// Samples that have room, and are being copied.
    copying: usize,
    /// Samples that came.
    came: u64,
    /// The recording ends with what was published by then.
    end_ns: Option<u64>,
    closed: bool,
}

impl State {
    /// `true` if no further sample will wait.
    fn is_over(&self) -> bool {
        self.closed && self.copying == 0
    }

    /// `true` if a sample has room. A topic beyond its share leaves the last eighth to the others.
    fn admits(&self, topic: usize, cost: u64, memory: u64) -> bool {
        let share = memory / self.of_topic.len().max(1) as u64;
        let own = self.of_topic.get(topic).copied().unwrap_or(0);
        let most = if own.saturating_add(cost) > share { memory - memory / 8 } else { memory };
        self.bytes.saturating_add(cost) <= most || self.bytes == 0
    }

    fn charge(&mut self, topic: usize, cost: u64) {
        self.bytes += cost;
        if let Some(own) = self.of_topic.get_mut(topic) {
            *own += cost;
        }
    }

    fn release(&mut self, topic: usize, cost: u64) {
        self.bytes = self.bytes.saturating_sub(cost);
        if let Some(own) = self.of_topic.get_mut(topic) {
            *own = own.saturating_sub(cost);
        }
    }
}

impl Intake {
    /// A queue of at most so many bytes; empty, it takes one sample of any size.
    pub(super) fn new(memory: u64) -> Self {
        Self { memory, state: Mutex::default(), taken: Mutex::default(), news: Condvar::new() }
    }

    /// A further topic; its index.
    pub(super) fn add_topic(&self) -> usize {
        let mut state = self.lock();
        state.of_topic.push(0);
        state.of_topic.len() - 1
    }

    /// Takes a sample, or drops and counts it. Called where it was received; waits for nothing but the lock. `joined_after`: see
    /// [`Arrivals::note`].
    pub(super) fn take(
        &self,
        topic: usize,
        info: &SampleInfo,
        bytes: &[u8],
        joined_after: impl FnOnce() -> Option<u64>,
    ) {
        if !self.reserve((topic, bytes.len() as u64 + SAMPLE), info, joined_after) {
            return;
        }
        // The copy is made without the lock.
        self.put(Waiting { topic, info: *info, bytes: bytes.to_vec() });
    }

    fn put(&self, sample: Waiting) {
        let mut state = self.lock();
        state.copying -= 1;
        state.waiting.push_back(sample);
        drop(state);
        self.news.notify_one();
    }

    fn reserve(
        &self,
        (topic, cost): (usize, u64),
        info: &SampleInfo,
        joined_after: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let mut state = self.lock();
        let is_after = |end_ns: u64| info.same_clock && info.source_ns > end_ns;
        if state.closed || state.end_ns.is_some_and(is_after) {
            return false;
        }
        state.came += 1;
        let admitted = state.admits(topic, cost, self.memory);
        let port = PortRef { node: info.node, port: info.port };
        let first = || Publisher { topic, first: *info, arrivals: Arrivals::default() };
        let arrivals = &mut state.publishers.entry(port).or_insert_with(first).arrivals;
        arrivals.note(info, joined_after);
        if !admitted {
            arrivals.drop_sample(info.seq);
            return false;
        }
        state.charge(topic, cost);
        state.copying += 1;
        true
    }

    /// Gives back the samples in `batch`, and takes the next ones; waits for them at most `timeout`. `false`: it is closed, and none is
    /// left.
    pub(super) fn next(&self, batch: &mut Vec<Waiting>, timeout: Duration) -> bool {
        let written = costs(batch);
        batch.clear();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        written.iter().for_each(|(topic, cost)| state.release(*topic, *cost));
        if taken.is_empty() {
            let idle = |state: &mut State| state.waiting.is_empty() && !state.is_over();
            let waited = self.news.wait_timeout_while(state, timeout, idle);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *taken, &mut state.waiting);
        }
        let is_over = state.is_over();
        drop(state);
        let count = taken.len().min(BATCH);
        batch.extend(taken.drain(..count));
        !(is_over && batch.is_empty())
    }

    /// What each publisher's samples lack since the last call.
    pub(super) fn take_losses(&self, end: bool) -> Vec<Lacking> {
        let lacking = |Publisher { topic, first, arrivals }: &mut Publisher| {
            let (lost, dropped) = arrivals.take(end);
            (lost.count + dropped.count > 0).then_some(Lacking { topic: *topic, info: *first, lost, dropped })
        };
        self.lock().publishers.values_mut().filter_map(lacking).collect()
    }

    /// The highest number of any sample that came.
    #[cfg(test)]
    pub(super) fn highest(&self) -> u64 {
        self.lock().publishers.values().map(|publisher| publisher.arrivals.highest()).max().unwrap_or(0)
    }

    /// Takes what was published before now and is on its way: until nothing has come for `quiet`, and at most for `longest`.
    pub(super) fn settle(&self, quiet: Duration, longest: Duration) {
        let until = Instant::now() + longest;
        self.lock().end_ns = Some(monotonic_ns());
        let mut before = None;
        while Instant::now() < until {
            let came = Some(self.lock().came);
            if came == before {
                return;
            }
            before = came;
            std::thread::sleep(quiet);
        }
    }

    /// Takes nothing more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_all();
    }

    /// A lock is poisoned only if a thread panicked between two whole states.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The room that samples take, by topic.
fn costs(batch: &[Waiting]) -> BTreeMap<usize, u64> {
    let mut costs = BTreeMap::new();
    for sample in batch {
        *costs.entry(sample.topic).or_default() += sample.cost();
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::LONG;
    use thalweg::Change;
    use thalweg::control::{NodeId, PortId};

    fn sample(port: u32, seq: u64) -> SampleInfo {
        SampleInfo {
            node: NodeId(1),
            port: PortId(port),
            incarnation: 1,
            seq,
            source_ns: 0,
            received_ns: 0,
            same_clock: true,
            historical: false,
            change: Change::Written,
            scaled: None,
        }
    }

    fn unknown() -> Option<u64> {
        None
    }

    fn taken(intake: &Intake) -> Vec<(usize, u64)> {
        let mut batch = Vec::new();
        intake.next(&mut batch, Duration::ZERO);
        let found = batch.iter().map(|sample| (sample.topic, sample.info.seq)).collect();
        intake.next(&mut batch, Duration::ZERO);
        found
    }

    #[test]
    fn a_full_queue_drops_the_new_sample_and_counts_it() {
        let intake = Intake::new(4 * (100 + SAMPLE));
        let topic = intake.add_topic();
        (1..=6).for_each(|seq| intake.take(topic, &sample(1, seq), &[0; 100], unknown));
        let [Lacking { lost, dropped, .. }] = intake.take_losses(true)[..] else { panic!("one publisher") };
        // The share of an only topic is all of the memory.
        assert_eq!((lost, dropped), (Span::default(), Span { first: 5, last: 6, count: 2 }));
        assert_eq!(taken(&intake), [1, 2, 3, 4].map(|seq| (topic, seq)));
        intake.take(topic, &sample(1, 7), &[0; 100], unknown);
        assert_eq!((taken(&intake), intake.take_losses(true)), (vec![(topic, 7)], vec![]), "a drop is no gap");
    }

    #[test]
    fn a_big_topic_leaves_room_to_a_small_one() {
        let intake = Intake::new(1 << 20);
        let (big, small) = (intake.add_topic(), intake.add_topic());
        (1..=2000).for_each(|seq| intake.take(big, &sample(1, seq), &[0; 1000], unknown));
        (1..=100).for_each(|seq| intake.take(small, &sample(2, seq), &[0; 8], unknown));
        let losses = intake.take_losses(true);
        assert!(losses.iter().all(|lacking| lacking.topic == big), "{losses:?}");
        let state = intake.lock();
        assert_eq!(state.waiting.iter().filter(|sample| sample.topic == small).count(), 100);
        assert!(state.bytes <= 1 << 20);
    }

    #[test]
    fn an_empty_queue_takes_a_sample_of_any_size_and_a_closed_one_none() {
        let intake = Intake::new(10);
        let topic = intake.add_topic();
        intake.take(topic, &sample(1, 1), &[0; 100], unknown);
        intake.close();
        intake.take(topic, &sample(1, 2), &[], unknown);
        let mut batch = Vec::new();
        assert!(intake.next(&mut batch, Duration::ZERO) && batch.len() == 1, "what was taken is written");
        assert!(!intake.next(&mut batch, Duration::ZERO) && batch.is_empty());
        assert_eq!(intake.lock().bytes, 0);
    }

    #[test]
    fn what_waits_is_taken_in_one_step_and_its_room_given_back_as_it_is_written() {
        let intake = Intake::new(1 << 20);
        let (topic, count, mut batch) = (intake.add_topic(), BATCH as u64 + 2, Vec::new());
        (1..=count).for_each(|seq| intake.take(topic, &sample(1, seq), &[], unknown));
        let mut next = |intake: &Intake| {
            assert!(intake.next(&mut batch, Duration::ZERO));
            let state = intake.lock();
            (batch.len(), state.waiting.len(), state.bytes)
        };
        assert_eq!(next(&intake), (BATCH, 0, count * SAMPLE));
        intake.take(topic, &sample(1, count + 1), &[], unknown);
        assert_eq!(next(&intake), (2, 1, 3 * SAMPLE), "those that came first");
        assert_eq!(next(&intake), (1, 0, SAMPLE));
        assert_eq!(next(&intake), (0, 0, 0));
    }

    #[test]
    fn what_is_being_copied_when_the_queue_closes_is_written() {
        let intake = Intake::new(1 << 20);
        let (topic, info, mut batch) = (intake.add_topic(), sample(1, 1), Vec::new());
        assert!(intake.reserve((topic, SAMPLE), &info, unknown));
        intake.close();
        assert!(intake.next(&mut batch, Duration::ZERO) && batch.is_empty());
        intake.put(Waiting { topic, info, bytes: Vec::new() });
        assert!(intake.next(&mut batch, Duration::ZERO) && batch.len() == 1);
        assert!(!intake.next(&mut batch, Duration::ZERO));
    }

    #[test]
    fn the_end_is_by_the_time_of_publication() {
        let intake = Intake::new(1 << 20);
        let topic = intake.add_topic();
        intake.settle(Duration::ZERO, LONG);
        intake.take(topic, &sample(1, 1), &[], unknown);
        intake.take(topic, &SampleInfo { source_ns: u64::MAX, ..sample(1, 2) }, &[], unknown);
        intake.take(topic, &SampleInfo { source_ns: u64::MAX, same_clock: false, ..sample(2, 7) }, &[], unknown);
        assert_eq!(taken(&intake), [(topic, 1), (topic, 7)], "the clock of the last one is another");
        assert!(intake.take_losses(true).is_empty());
    }
}
