//! The buffer compared with a list of all samples that ever came.

use super::*;
use crate::channel::Change;
use crate::channel::buffer::Buffer;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn entry(seq: u64, size: usize) -> Entry {
    let mut buffer = Buffer::default();
    buffer.start().extend((0..size).map(|_| seq as u8));
    Entry {
        buffer: Arc::new(buffer),
        seq,
        stamp: seq,
        now: seq,
        change: Change::Written,
        historical: false,
        offered: 0,
        batch: false,
        charge: Default::default(),
    }
}

/// All samples that ever came, and those that are still here by the definition.
struct Model {
    limits: PullBuffer,
    here: BTreeMap<u64, (usize, u64)>, // size and time
    gone: (u64, u64),
    last: u64,
}

impl Model {
    fn new(limits: &PullBuffer) -> Self {
        Self { limits: limits.clone(), here: BTreeMap::new(), gone: (0, 0), last: 0 }
    }

    /// In order of the numbers.
    fn keep(&mut self, seq: u64, size: usize, now: u64) {
        self.expire(now);
        self.last = seq;
        if size as u64 > self.limits.bytes {
            return;
        }
        self.here.insert(seq, (size, now));
        let over = |here: &BTreeMap<u64, (usize, u64)>, limits: &PullBuffer| {
            let bytes: usize = here.values().map(|(size, _)| size).sum();
            here.len() > limits.samples as usize || bytes as u64 > limits.bytes
        };
        while over(&self.here, &self.limits) {
            self.drop_oldest();
        }
    }

    fn expire(&mut self, now: u64) {
        let age = self.limits.age.map_or(u64::MAX, |age| age.as_nanos() as u64);
        while self.here.first_key_value().is_some_and(|(_, (_, at))| now - at > age) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((seq, (_, at))) = self.here.pop_first() {
            self.gone = (seq, at);
        }
    }

    /// The answer, and the reasons for missing samples.
    fn answer(&mut self, query: &Query, now: u64) -> (Vec<u64>, Vec<AbsentReason>) {
        self.expire(now);
        let mut here: Vec<u64> = self.here.keys().copied().collect();
        let or_none = |found: Vec<u64>, why: AbsentReason| {
            let reasons = if found.is_empty() { vec![why] } else { Vec::new() };
            (found, reasons)
        };
        match *query {
            Query::Nth(n) => {
                here.reverse();
                let nth = here.get((n as usize).wrapping_sub(1)).copied();
                or_none(
                    nth.into_iter().collect(),
                    if n > 0 && self.gone.0 > 0 { AbsentReason::Gone } else { AbsentReason::Never },
                )
            }
            Query::Last(n) | Query::LastOfEach(n) => {
                (here.split_off(here.len().saturating_sub(n as usize)), Vec::new())
            }
            Query::Since(time) => {
                let from = now.saturating_sub(time.as_nanos() as u64);
                let found: Vec<u64> = here.into_iter().filter(|seq| self.here[seq].1 >= from).collect();
                if self.gone.0 > 0 && self.gone.1 >= from {
                    (found, vec![AbsentReason::Gone])
                } else {
                    or_none(found, AbsentReason::Never)
                }
            }
            Query::Range { first, last, .. } => {
                let found: Vec<u64> = here.into_iter().filter(|seq| (first..=last).contains(seq)).collect();
                let asked = |why: &AbsentReason| match why {
                    AbsentReason::Gone => first.max(1) <= last.min(self.gone.0),
                    AbsentReason::Never => first == 0 || last > self.last,
                    AbsentReason::Missing => {
                        let (from, to) = (first.max(self.gone.0 + 1), last.min(self.last));
                        from <= to && (from..=to).any(|seq| !self.here.contains_key(&seq))
                    }
                };
                (
                    found,
                    [AbsentReason::Gone, AbsentReason::Never, AbsentReason::Missing]
                        .into_iter()
                        .filter(asked)
                        .collect(),
                )
            }
        }
    }
}

fn answered(history: &mut History, query: &Query, now: u64, batch: usize) -> (Vec<u64>, Vec<AbsentReason>) {
    let (mut reading, mut all) = (history.ask(query, now), Vec::new());
    while !reading.is_over() {
        let mut some = Vec::new();
        history.read(&mut reading, batch, 1000, &mut some);
        assert!(some.len() <= batch && some.iter().all(|e| e.buffer.payload().iter().all(|b| *b == e.seq as u8)));
        all.extend(some.into_iter().map(|e| e.seq));
    }
    let mut why: Vec<AbsentReason> = reading.absent.iter().map(|absent| absent.why).collect();
    why.sort_by_key(|why| *why as u8);
    why.dedup();
    (all, why)
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

fn any_query(random: &mut Random, last: u64) -> Query {
    let near = |random: &mut Random| (last + 4).saturating_sub(random.below(40));
    match random.below(7) {
        0 => Query::latest(),
        1 => Query::Nth(random.below(24)),
        2 => Query::Last(random.below(24)),
        3 => Query::Since(Duration::from_nanos(random.below(300))),
        4 => Query::seq(near(random)),
        5 => Query::LastOfEach(random.below(24)),
        _ => {
            let (a, b) = (near(random), near(random));
            Query::range(a.min(b)..=a.max(b))
        }
    }
}

/// The target: 10⁶ operations in virtual time, with limits of all three kinds, holes, and restarts.
#[test]
fn a_million_operations_answer_as_the_model_does() {
    let mut random = Random(4);
    let mut operations = 0;
    while operations < 1_000_000 {
        let limits = PullBuffer {
            samples: 1 + random.below(20) as u32,
            bytes: 1 + random.below(120),
            age: (random.below(2) == 0).then(|| Duration::from_nanos(random.below(200))),
            ..PullBuffer::default()
        };
        let start = [0, u64::from(u32::MAX) - 40, u64::MAX - 500][random.below(3) as usize];
        let (mut history, mut model) = (History::new(9, limits.clone()), Model::new(&limits));
        let (mut seq, mut now) = (start, 1_000);
        for _ in 0..200 {
            operations += 1;
            now += random.below(30);
            if random.below(3) > 0 {
                seq += 1 + u64::from(random.below(8) == 0); // sometimes a hole
                let size = random.below(30) as usize;
                history.keep(entry(seq, size), now);
                model.keep(seq, size, now);
            } else {
                let query = any_query(&mut random, seq.max(40));
                let batch = 1 + random.below(5) as usize;
                let found = answered(&mut history, &query, now, batch);
                assert_eq!(found, model.answer(&query, now), "{query:?} at {now} of {history:?}");
            }
            assert!(history.len() <= limits.samples as usize && history.bytes() <= limits.bytes);
        }
    }
}

proptest! {
    /// While an answer is read in pieces, samples are published: each number that was asked for is answered once, in
    /// order, or reported as gone.
    #[test]
    fn a_sample_published_meanwhile_is_answered_once_or_reported_gone(
        samples in 1u32..12, before in 0u64..30, first in 1u64..30, span in 0u64..30,
        steps in prop::collection::vec((0u64..6, 1usize..4), 0..40),
    ) {
        let mut history = History::new(1, PullBuffer { samples, ..PullBuffer::default() });
        assert!((1..=before).all(|seq| history.keep(entry(seq, 1), seq)));
        let (mut seq, mut got) = (before, Vec::new());
        let mut reading = history.ask(&Query::range(first..=first + span), 100);
        for (publish, batch) in steps {
            for _ in 0..publish {
                seq += 1;
                history.keep(entry(seq, 1), seq);
            }
            let mut some = Vec::new();
            if !reading.is_over() {
                history.read(&mut reading, batch, 100, &mut some);
            }
            got.extend(some.into_iter().map(|e| e.seq));
        }
        while !reading.is_over() {
            let mut some = Vec::new();
            history.read(&mut reading, 3, 100, &mut some);
            got.extend(some.into_iter().map(|e| e.seq));
        }
        let mut accounted = got.clone();
        for absent in &reading.absent {
            let (from, to) = absent.asked.split_once("..").unwrap_or((&absent.asked, &absent.asked));
            accounted.extend(from.parse::<u64>().unwrap()..=to.parse().unwrap());
        }
        prop_assert!(got.is_sorted());
        accounted.sort_unstable();
        prop_assert_eq!(accounted, (first..=first + span).collect::<Vec<_>>());
    }

    /// Samples come in any order: the kept ones are within the limits, in the order of their numbers, and include the
    /// newest.
    #[test]
    fn samples_that_come_late_are_put_in_their_place(
        samples in 1u32..9, seqs in prop::collection::vec(1u64..30, 1..60),
    ) {
        let mut history = History::new(1, PullBuffer { samples, ..PullBuffer::default() });
        for (at, seq) in seqs.iter().enumerate() {
            history.keep(entry(*seq, 1), at as u64);
            let (all, _) = answered(&mut history, &Query::Last(100), at as u64, 3);
            prop_assert!(all.len() <= samples as usize && all.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert_eq!(all.last(), seqs[..=at].iter().max());
            let times: Vec<u64> = history.kept.iter().map(|kept| kept.at).collect();
            prop_assert!(times.is_sorted());
        }
    }

    #[test]
    fn a_range_is_read_as_it_is_written(first in 0u64..1000, span in 0u64..1000, incarnation in prop::option::of(any::<u64>())) {
        let last = first + span;
        let start = incarnation.map_or(String::new(), |of| format!("{of}:"));
        prop_assert_eq!(format!("{start}{first}..{last}").parse(), Ok(Query::Range { incarnation, first, last }));
    }

    #[test]
    fn no_text_makes_the_parser_fail(text in ".{0,40}") {
        let _ = text.parse::<Query>();
    }
}

#[test]
fn an_absent_sample_is_reported_with_the_range_that_is_here() {
    let mut history = History::new(7, PullBuffer { samples: 64, ..PullBuffer::default() });
    let say = |history: &mut History, query: &Query| {
        let mut reading = history.ask(query, 1000);
        history.read(&mut reading, 100, 100_000, &mut Vec::new());
        reading.absent.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(say(&mut history, &Query::latest()), "never was: nothing was published yet (asked for the 1st latest)");
    assert!((1..=108).filter(|seq| *seq != 50).all(|seq| history.keep(entry(seq, 1), seq)));
    assert_eq!(say(&mut history, &Query::seq(12)), "gone: 12 was dropped, 44..108 are here");
    assert_eq!(say(&mut history, &Query::seq(200)), "never was: the last is 108 (asked for 200)");
    assert_eq!(say(&mut history, &Query::Nth(200)), "gone: the 200th latest was dropped, 44..108 are here");
    assert_eq!(say(&mut history, &Query::seq(108)), "");
    assert!(say(&mut history, &Query::seq(50)).starts_with("never came here: 50, lost"));
    let other = |incarnation| Query::Range { incarnation: Some(incarnation), first: 3, last: 4 };
    assert!(say(&mut history, &other(6)).starts_with("gone: 6:3..4 was another start of the publisher, now is 7"));
    assert!(say(&mut history, &other(8)).starts_with("never was: 8:3..4, the incarnation is 7"));
    assert_eq!(say(&mut history, &other(7)), "gone: 3..4 was dropped, 44..108 are here");
    for wrong in ["", "5..3", "a", "1..", "..4", "1:", "-1", "1:2:3", "18446744073709551616"] {
        assert!(wrong.parse::<Query>().is_err(), "{wrong:?}");
    }
}

#[test]
fn the_oldest_go_where_the_node_has_no_memory_and_what_is_small_stays() {
    use crate::channel::memory::{ALWAYS, Account};
    let node = Account::new(400_000);
    let kept = || Account::of(&node);
    let mut history = History::new(7, PullBuffer { samples: 64, ..PullBuffer::default() }).within(kept());
    assert!((1..=9).all(|seq| history.keep(entry(seq, 60_000), seq)));
    assert_eq!((history.range(), history.bytes()), (Some((7, 9)), 180_000), "half of what the node may hold");
    assert_eq!(node.used(), 3 * (60_000 + 256));
    let absent = history.ask(&Query::Range { incarnation: Some(7), first: 1, last: 9 }, 10).absent;
    assert_eq!(absent.iter().map(|absent| absent.why).collect::<Vec<_>>(), [AbsentReason::Gone]);
    assert!(!history.keep(entry(10, 200_000), 10), "it may have half of 400,000");
    assert_eq!(history.range(), Some((7, 9)), "one that is too large for the memory costs no other");
    let mut small = History::new(7, PullBuffer { samples: 64, ..PullBuffer::default() }).within(kept());
    node.take(400_000);
    assert!((1..=70).all(|seq| small.keep(entry(seq, 1000), seq)));
    assert_eq!((small.len(), small.bytes() <= ALWAYS as u64), (64, true), "what is small does not ask");
    node.give_back(400_000);
    drop((history, small));
    assert_eq!(node.used(), 0);
}
