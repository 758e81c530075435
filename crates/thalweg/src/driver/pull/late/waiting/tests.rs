//! Samples that wait, from the end of their channel to their delivery, in virtual time.

use super::*;
use crate::channel::memory::Account;
use crate::channel::{Change, Deliver, Delivery, Latecomer, Payload, SampleInfo};
use crate::control::{NodeId, PortId};
use std::sync::{Arc, Mutex};

const MS: u64 = 1_000_000;

/// A subscriber that notes the numbers of its samples.
#[derive(Default)]
struct Seen(Mutex<Vec<u64>>);

impl Deliver for Seen {
    fn deliver(&self, delivery: Delivery<'_>) {
        self.0.lock().unwrap().push(delivery.info.seq);
    }
    fn deliver_elsewhere(&self, delivery: Delivery<'_>) {
        self.deliver(delivery);
    }
    fn keeps(&self) -> bool {
        false
    }
    fn blocks(&self) -> bool {
        false
    }
}

impl Waits for Arc<Latecomer> {
    fn until(&self) -> Option<u64> {
        self.waits_until()
    }
}

fn info(seq: u64, received_ns: u64) -> SampleInfo {
    SampleInfo {
        node: NodeId(1),
        port: PortId(1),
        incarnation: 1,
        seq,
        source_ns: 0,
        received_ns,
        same_clock: true,
        historical: false,
        change: Change::Written,
        scaled: None,
    }
}

/// The subscriber, and the thread that fetches its histories.
struct End {
    seen: Seen,
    waiting: Waiting<Arc<Latecomer>>,
    account: Arc<Account>,
}

impl End {
    fn new() -> Self {
        Self { seen: Seen::default(), waiting: Waiting::default(), account: Account::new(1 << 20) }
    }

    fn seen(&self) -> Vec<u64> {
        self.seen.0.lock().unwrap().clone()
    }

    fn live(&self, late: &Latecomer, seq: u64, now: u64) {
        late.live(&self.seen, Delivery { info: info(seq, now), payload: Payload::Bytes(&[7]), account: &self.account });
    }

    /// A channel that ended at this time, while this sample waited for its history.
    fn given_up(&mut self, seq: u64, now: u64) -> Arc<Latecomer> {
        let late = Arc::new(Latecomer::new(0, self.account.clone()));
        self.live(&late, seq, now);
        assert_eq!(late.give_up(now), Some(0));
        self.waiting.add(late.clone());
        late
    }

    fn next(&self, late: &Latecomer) -> Arc<Latecomer> {
        late.next(0, self.account.clone())
    }

    /// The next channel's history brings samples up to this one, and is over.
    fn fetched(&mut self, late: &Arc<Latecomer>, last: u64, now: u64) {
        (1..=last).for_each(|seq| late.history(&self.seen, info(seq, now), &[7]));
        self.waiting.add(late.clone());
        self.looks(now);
    }

    fn looks(&mut self, now: u64) {
        for late in self.waiting.due(now) {
            late.end(&self.seen);
        }
    }
}

/// Regression: sample 3 came before samples 1 and 2, which the next channel's history brought.
#[test]
fn samples_wait_for_the_next_channel_and_follow_its_history() {
    let mut end = End::new();
    let first = end.given_up(3, 0);
    end.looks(999 * MS);
    assert!(end.seen().is_empty(), "the next channel may come");
    let next = end.next(&first);
    end.looks(1_000 * MS);
    assert!(end.waiting.is_empty() && end.seen().is_empty(), "it has taken them over");
    [3, 4].into_iter().for_each(|seq| end.live(&next, seq, 1_001 * MS));
    end.fetched(&next, 3, 1_500 * MS);
    assert_eq!((end.seen(), end.waiting.next_deadline()), (vec![1, 2, 3, 4], None));
}

#[test]
fn without_a_next_channel_samples_follow_after_a_second() {
    let mut end = End::new();
    let late = end.given_up(3, 200 * MS);
    assert_eq!(end.waiting.next_deadline(), Some(1_200 * MS));
    end.live(&late, 4, 1_199 * MS); // read after the end, as datagrams are
    end.looks(1_199 * MS);
    assert!(end.seen().is_empty());
    end.looks(1_200 * MS);
    end.live(&late, 5, 1_201 * MS);
    assert_eq!((end.seen(), end.waiting.is_empty()), (vec![3, 4, 5], true));
    let next = end.next(&late);
    end.live(&next, 6, 1_300 * MS);
    end.fetched(&next, 5, 1_400 * MS);
    assert_eq!(end.seen(), [3, 4, 5, 1, 2, 6], "one that comes after all brings the rest, once");
}

/// Each wait is over in its own time, whichever began first, and a wait that ends early does so at the next look.
#[test]
fn several_wait_at_the_same_time() {
    let mut end = End::new();
    let (early, late) = (end.given_up(1, 0), end.given_up(2, 300 * MS));
    let third = end.given_up(3, 600 * MS);
    assert_eq!(end.waiting.next_deadline(), Some(1_000 * MS));
    assert!(third.nobody_follows());
    assert_eq!(end.waiting.next_deadline(), Some(0));
    end.looks(700 * MS);
    assert_eq!((end.seen(), end.waiting.next_deadline()), (vec![3], Some(1_000 * MS)));
    end.looks(1_000 * MS);
    assert_eq!((end.seen(), early.waits_until(), late.waits_until()), (vec![3, 1], None, Some(1_300 * MS)));
    end.looks(1_300 * MS);
    assert_eq!(end.seen(), [3, 1, 2]);
}

#[test]
fn a_second_channel_that_ends_meanwhile_does_not_prolong_the_wait() {
    for comes_back in [false, true] {
        let mut end = End::new();
        let first = end.given_up(3, 0);
        let second = end.next(&first);
        end.live(&second, 5, 500 * MS);
        assert_eq!(second.give_up(700 * MS), Some(0));
        end.waiting.add(second.clone());
        end.looks(999 * MS);
        assert_eq!((end.seen(), end.waiting.next_deadline()), (vec![], Some(1_000 * MS)));
        if comes_back {
            let third = end.next(&second);
            end.looks(1_000 * MS);
            end.fetched(&third, 5, 1_100 * MS);
            assert_eq!(end.seen(), [1, 2, 3, 4, 5]);
        } else {
            end.looks(1_000 * MS);
            assert_eq!(end.seen(), [3, 5]);
        }
    }
}
