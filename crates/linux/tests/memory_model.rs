//! Random sequences of operations against a model, and two threads at full speed, with every byte verified.
#![allow(clippy::unwrap_used)] // clippy.toml exempts test functions only, not their helpers

use linux::memory::{Arena, Borrowed, Meta, Policy, Pushed, RingReader, RingWriter, TakeError};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Duration;
use thalweg_linux as linux;

const DEPTH: usize = 3;
const HOLD: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    Push { len: usize, keep_last: bool },
    Take,
    GiveBack(usize),
    Collect,
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0usize..2000, any::<bool>()).prop_map(|(len, keep_last)| Step::Push { len, keep_last }),
        6 => Just(Step::Take),
        4 => any::<usize>().prop_map(Step::GiveBack),
        1 => Just(Step::Collect),
        1 => Just(Step::Kill),
    ];
    proptest::collection::vec(step, 1..200)
}

struct Bench {
    arena: Arena,
    ring: RingWriter,
    reader: RingReader,
    waiting: VecDeque<(u64, usize)>,
    held: Vec<(u64, usize, Borrowed)>,
    seq: u64,
}

fn fill(bytes: &mut [u8], seq: u64) {
    bytes.iter_mut().enumerate().for_each(|(i, b)| *b = (seq as usize).wrapping_mul(31).wrapping_add(i) as u8);
}

fn intact(bytes: &[u8], seq: u64) -> bool {
    bytes.iter().enumerate().all(|(i, b)| *b == (seq as usize).wrapping_mul(31).wrapping_add(i) as u8)
}

fn channel(arena: &Arena, depth: usize, hold: usize) -> (RingWriter, RingReader) {
    let (ring, fd) = RingWriter::create(depth as u32, hold as u32, 5).unwrap();
    let reader = RingReader::attach(arena.payload_fd(), fd.as_fd()).unwrap();
    (ring, reader)
}

impl Bench {
    fn new() -> Self {
        let arena = Arena::create(Arena::capacity_for(DEPTH + HOLD + 1, 2000), 2000).unwrap();
        let (ring, reader) = channel(&arena, DEPTH, HOLD);
        Self { arena, ring, reader, waiting: VecDeque::new(), held: Vec::new(), seq: 0 }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Push { len, keep_last } => self.push(len, keep_last),
            Step::Take => self.take(),
            Step::GiveBack(which) if !self.held.is_empty() => {
                let index = which % self.held.len();
                self.held.swap_remove(index);
            }
            Step::GiveBack(_) => {}
            Step::Collect => drop(self.ring.collect(&mut self.arena).unwrap()),
            Step::Kill => self.kill(),
        }
        assert!(self.held.iter().all(|(seq, len, bytes)| bytes.len() == *len && intact(bytes, *seq)));
    }

    fn push(&mut self, len: usize, keep_last: bool) {
        self.ring.collect(&mut self.arena).unwrap();
        assert_eq!(self.ring.out(), self.waiting.len() + self.held.len());
        assert_eq!(self.arena.borrowed(), self.ring.out());
        let full = self.waiting.len() == DEPTH;
        assert_eq!(self.ring.has_room(), !full);
        self.seq += 1;
        let loan = self.arena.loan(len).unwrap();
        fill(self.arena.bytes_mut(&loan), self.seq);
        let sample = self.arena.seal(loan);
        let policy = if keep_last { Policy::KeepLast } else { Policy::Refuse };
        let meta = Meta { seq: self.seq, stamp_ns: len as u64, flow_seq: self.seq as u32, kind: 7 };
        let pushed = self.ring.push(&mut self.arena, &sample, meta, policy);
        self.arena.release(sample);
        match (full, keep_last) {
            (true, false) => return assert_eq!(pushed, Pushed::Full),
            (true, true) => {
                assert_eq!(pushed, Pushed::SentDroppedOldest(1));
                self.waiting.pop_front();
            }
            _ => assert_eq!(pushed, Pushed::Sent),
        }
        self.waiting.push_back((self.seq, len));
    }

    fn take(&mut self) {
        let taken = self.reader.try_borrow();
        if self.held.len() == HOLD {
            return assert_eq!(taken.unwrap_err(), TakeError::TooManyHeld { limit: HOLD as u32 });
        }
        let expected = self.waiting.pop_front();
        let taken = taken.unwrap();
        assert_eq!(taken.as_ref().map(|t| (t.meta().seq, t.len(), t.meta().kind)), expected.map(|(s, l)| (s, l, 7)));
        self.held.extend(taken.zip(expected).map(|(t, (seq, len))| (seq, len, t)));
    }

    fn kill(&mut self) {
        self.held.clear(); // its process would be gone
        self.waiting.clear();
        self.ring.release_all(&mut self.arena);
        assert_eq!(self.arena.borrowed(), 0);
        (self.ring, self.reader) = channel(&self.arena, DEPTH, HOLD);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_sequence_of_operations_agrees_with_the_model(steps in steps()) {
        let mut bench = Bench::new();
        steps.iter().for_each(|step| bench.step(step));
    }
}

/// Publishes `count` samples at full speed while another thread reads; returns the numbers of sent and dropped ones.
fn stress(policy: Policy, count: u64) -> (u64, u64, u64) {
    let mut arena = Arena::create(Arena::capacity_for(16 + 4 + 1, 1024), 1024).unwrap();
    let (mut ring, mut reader) = channel(&arena, 16, 4);
    let reading = std::thread::spawn(move || {
        let (mut got, mut last) = (0, 0);
        let mut kept = VecDeque::new();
        loop {
            let closed = reader.writer_closed();
            match reader.try_borrow() {
                Ok(Some(sample)) => {
                    let seq = sample.meta().seq;
                    assert!(seq > last && intact(&sample, seq), "sample {seq} after {last}");
                    (got, last) = (got + 1, seq);
                    kept.push_back(sample);
                }
                Ok(None) if closed => return (got, kept.iter().filter(|s| !intact(s, s.meta().seq)).count()),
                Ok(None) => drop(reader.wait(Duration::from_millis(100))),
                Err(TakeError::TooManyHeld { .. }) => {
                    let oldest = kept.pop_front().unwrap();
                    assert!(intact(&oldest, oldest.meta().seq), "changed while it was held");
                }
                Err(e) => panic!("{e}"),
            }
        }
    });
    let (mut sent, mut dropped) = (0, 0);
    for seq in 1..=count {
        let loan = loop {
            match arena.loan((seq % 1000) as usize) {
                Ok(loan) => break loan,
                Err(_) => drop(ring.collect(&mut arena).unwrap()),
            }
        };
        fill(arena.bytes_mut(&loan), seq);
        let sample = arena.seal(loan);
        loop {
            let asked = ring.room().ask();
            match ring.push(&mut arena, &sample, Meta { seq, ..Meta::default() }, policy) {
                Pushed::Sent => break sent += 1,
                Pushed::SentDroppedOldest(n) => break (sent, dropped) = (sent + 1, dropped + u64::from(n)),
                Pushed::Full => assert!(ring.room().wait(asked, Duration::from_secs(20)), "room was not told"),
                other => panic!("{other:?}"),
            }
        }
        arena.release(sample);
        arena.wake(ring.reader_waits());
    }
    ring.close(&mut arena);
    let (got, spoilt) = reading.join().unwrap();
    assert_eq!(spoilt, 0);
    ring.withdraw(&mut arena).unwrap();
    assert_eq!(arena.borrowed(), 0);
    (sent, dropped, got)
}

#[test]
fn two_threads_lose_nothing_when_a_full_ring_refuses() {
    assert_eq!(stress(Policy::Refuse, 200_000), (200_000, 0, 200_000));
}

#[test]
fn two_threads_account_for_each_sample_with_keep_last() {
    let (sent, dropped, got) = stress(Policy::KeepLast, 200_000);
    assert_eq!((sent, dropped + got), (200_000, 200_000));
}
