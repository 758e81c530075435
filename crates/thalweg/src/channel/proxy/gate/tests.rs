//! Moves that end, or are followed by the next one, while a sample is being delivered.

use super::*;
use crate::channel::Change;
use crate::channel::memory::Memory;
use crate::channel::proxy::Selection;
use crate::codec::Raw;
use crate::control::{NodeId, PortId};
use crate::event::Events;
use crate::port::{Sink, SubscriberPort};
use crate::testing::port_info;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

fn info(seq: u64) -> SampleInfo {
    let (node, port, at) = (NodeId(1), PortId(1), seq * 1_000_000);
    SampleInfo {
        node,
        port,
        incarnation: 1,
        seq,
        source_ns: at,
        received_ns: at,
        same_clock: true,
        historical: false,
        change: Change::Written,
        scaled: None,
    }
}

/// A subscriber that notes each delivered sample, and then calls a function.
struct Given {
    subscriber_port: Arc<SubscriberPort<Raw>>,
    seen: Arc<Mutex<Vec<u64>>>,
    account: Arc<Account>,
}

impl Given {
    fn new(mut then: impl FnMut(u64) + Send + 'static) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notes = seen.clone();
        let sink = Sink::<Raw>::callback(move |sample| {
            notes.lock().unwrap().push(sample.info().seq);
            then(sample.info().seq);
        });
        let (events, memory) = (Events::default(), Memory::new(1 << 20));
        let subscriber_port = Arc::new(SubscriberPort::new(port_info("/in"), sink, false, false, events, &memory));
        Self { subscriber_port, seen, account: Account::new(1 << 20) }
    }

    fn seen(&self) -> Vec<u64> {
        self.seen.lock().unwrap().clone()
    }

    /// A move that begins when these channels' old one has brought all up to `last`.
    fn moves(&self, (old, new): (&Gate, &Gate), last: u64) -> Arc<SharedHandover> {
        let handover = Handover::new(Selection::ALL, last, 64);
        let shared_handover = Arc::new(SharedHandover::new(handover, false, self.account.clone(), Box::new(|| {})));
        new.shut(Role::New, self.subscriber_port.as_ref(), shared_handover.clone());
        old.shut(Role::Old, self.subscriber_port.as_ref(), shared_handover.clone());
        shared_handover
    }

    fn comes_by(&self, gate: &Gate, seq: u64) {
        let delivery = Delivery { info: info(seq), payload: Payload::Bytes(&[7]), account: &self.account };
        gate.deliver(self.subscriber_port.as_ref(), delivery);
    }
}

/// Regression: a sample came by the new channel of a move that was given up at that moment, and also by the old one.
#[test]
fn a_move_that_is_given_up_while_a_sample_passes_is_over_or_given_up_and_not_both() {
    let given = Given::new(|_| {});
    let (old, new) = (Gate::default(), Gate::default());
    let shared_handover = given.moves((&old, &new), 10);
    given.comes_by(&old, 11);
    let (mut handover, mut kept) = (shared_handover.handover.lock(), false);
    let keep = || {
        kept = shared_handover.keep_old(); // before the verdict on the sample
        (info(12), vec![7])
    };
    assert!(!handover.new_one((12, info(12).source_ns), 0, 1, keep));
    assert!(kept && !handover.is_taken_over() && handover.released().is_none());
    drop(handover);
    (12..15).for_each(|seq| [&new, &old].into_iter().for_each(|gate| given.comes_by(gate, seq)));
    assert_eq!(given.seen(), [11, 12, 13, 14]);

    let given = Given::new(|_| {});
    let (old, new) = (Gate::default(), Gate::default());
    let shared_handover = given.moves((&old, &new), 10);
    let mut handover = shared_handover.handover.lock();
    assert!(handover.old(11, info(11).source_ns));
    handover.new_one((12, info(12).source_ns), 0, 1, || (info(12), vec![7]));
    assert!(handover.is_taken_over() && !shared_handover.keep_old(), "nobody was told of it yet");
}

/// A new flow took over behind the old one, and the next moves were given up before it caught up.
#[test]
fn a_flow_that_has_not_caught_up_delivers_nothing_twice_when_the_next_moves_are_given_up() {
    for more in 0..3 {
        let given = Given::new(|_| {});
        let [first, second, third] = [(); 3].map(|()| Gate::default());
        given.moves((&first, &second), 10);
        [11, 12].into_iter().for_each(|seq| given.comes_by(&first, seq));
        given.comes_by(&second, 11);
        for _ in 0..more {
            let last = second.last().max(11); // the channel's own counter has this number
            assert!(given.moves((&second, &third), last).keep_old());
        }
        [12, 13, 14].into_iter().for_each(|seq| given.comes_by(&second, seq));
        assert_eq!(given.seen(), [11, 12, 13, 14], "{more} more");
        assert!(!second.shut.load(Ordering::Relaxed));
    }
}

/// Samples that a flow still delivers after its end are older than those of a channel that moves again meanwhile.
#[test]
fn samples_of_a_move_come_before_those_of_the_next_move() {
    for _ in 0..20 {
        let ((tell, told), (let_go, may_go)) = (channel(), channel::<()>());
        let given = Given::new(move |seq| {
            if seq == 12 {
                tell.send(()).unwrap();
                may_go.recv_timeout(LONG).unwrap();
            }
        });
        let [first, second, third] = [(); 3].map(|()| Gate::default());
        given.moves((&first, &second), 10);
        [12, 13].into_iter().for_each(|seq| given.comes_by(&second, seq)); // held
        std::thread::scope(|scope| {
            scope.spawn(|| given.comes_by(&first, 11)); // and 12 and 13
            told.recv_timeout(LONG).unwrap();
            given.moves((&second, &third), 13);
            let waits = linux::lock::waits();
            scope.spawn(|| given.comes_by(&second, 14));
            let until = Instant::now() + LONG;
            while linux::lock::waits() == waits && Instant::now() < until {
                std::thread::yield_now();
            }
            let_go.send(()).unwrap();
        });
        assert_eq!(given.seen(), [11, 12, 13, 14]);
    }
}

/// Regression: samples that a socket had when its channel ended came once more by the history of the next channel.
#[test]
fn samples_that_are_read_after_the_end_of_their_channel_come_once() {
    let given = Given::new(|_| {});
    let subscriber_port: &dyn Deliver = &*given.subscriber_port;
    let gate = Gate::default();
    given.comes_by(&gate, 1);
    gate.ended();
    given.comes_by(&gate, 2);
    let next = gate.followed_by(|| 3, |last| Arc::new(Latecomer::new(last, given.account.clone())));
    (3..=5).for_each(|seq| given.comes_by(&gate, seq));
    assert_eq!(given.seen(), [1, 2, 3], "3 was counted before the next channel began");
    (3..=4).for_each(|seq| next.history(subscriber_port, info(seq), &[7]));
    next.end(subscriber_port);
    given.comes_by(&gate, 4);
    assert_eq!(given.seen(), [1, 2, 3, 4, 5]);
}

#[test]
fn the_gate_of_a_channel_that_ended_stays_shut() {
    let given = Given::new(|_| {});
    let (gate, late) = (Gate::default(), Arc::new(Latecomer::new(0, given.account.clone())));
    gate.wait_for_history(late.clone());
    late.end(&*given.subscriber_port);
    gate.ended();
    given.comes_by(&gate, 1);
    assert_eq!((given.seen(), gate.shut.load(Ordering::Relaxed)), (vec![1], true));
}

/// Regression: the history of a channel that ended meanwhile went on, beside that of the next channel.
#[test]
fn a_channel_may_end_while_a_sample_of_its_history_is_in_the_callback() {
    let ((tell, told), (let_go, may_go)) = (channel(), channel::<()>());
    let given = Given::new(move |seq| {
        if seq == 2 {
            tell.send(()).unwrap();
            may_go.recv_timeout(LONG).unwrap();
        }
    });
    let (gate, late) = (Gate::default(), Arc::new(Latecomer::new(0, given.account.clone())));
    gate.wait_for_history(late.clone());
    given.comes_by(&gate, 5);
    let fetch = |late: &Latecomer, first: u64| {
        (first..=4).for_each(|seq| late.history(&*given.subscriber_port, info(seq), &[7]));
        late.end(&*given.subscriber_port);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| fetch(&late, 1));
        told.recv_timeout(LONG).unwrap();
        gate.ended();
        assert_eq!(gate.give_up_history(info(5).received_ns), Some(2));
        let next = gate.next_history(2, given.account.clone()).unwrap();
        let_go.send(()).unwrap();
        given.comes_by(&gate, 6); // as one that has waited for the callback
        fetch(&next, 3);
    });
    assert_eq!(given.seen(), [1, 2, 3, 4, 5, 6]);
}
