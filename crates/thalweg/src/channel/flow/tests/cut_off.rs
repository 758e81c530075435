//! The messages that a flow whose connection broke leaves to the next one.

use super::datagrams::{Socket, flow_with};
use super::*;
use crate::carrier::Dice;

fn outlasting(policy: qos::Queue) -> (Arc<Flow>, Link, Arc<Senders>) {
    flow_of(policy, Sending::default(), None, STREAM, true)
}

fn size(dice: &mut Dice) -> usize {
    if dice.chance(0.02) { 40_000 } else { dice.around(200, 200) as usize }
}

/// Either the sending thread or another one notices that the connection broke, with any messages in flight.
#[test]
fn unacknowledged_samples_continue_in_order_over_the_next_connection() {
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let (older, broken, old_senders) = outlasting(qos::Queue::KeepAll(100_000));
        let breaks = dice.around(1500, 1400);
        for seq in 0..3000 {
            if dice.chance(0.02) {
                broken.takes(Some((dice.around(4000, 4000)) as usize));
            }
            if dice.chance(0.02) {
                broken.takes(None);
            }
            if dice.chance(0.05) {
                let taken = &mut *broken.0.lock();
                taken.acknowledged = (taken.acknowledged + taken.bytes.len()) / 2;
            }
            if dice.chance(0.01) {
                older.right.hand_over_always(dice.chance(0.5));
            }
            if seq == breaks {
                if dice.chance(0.5) { broken.close() } else { assert!(older.cut_off()) }
            }
            assert!(is_taken(publish(&older, seq, size(&mut dice), dice.chance(0.8))), "seed {seed}: {seq}");
        }
        assert!(older.cut_off() && !older.is_live());
        let (newer, link, senders) = outlasting(qos::Queue::KeepAll(100_000));
        newer.take_over(&older);
        (3000..3010).for_each(|seq| assert!(is_taken(publish(&newer, seq, 64, false))));
        wait("everything leaves", || newer.waiting() == 0);
        let acknowledged = broken.0.lock().acknowledged;
        let (arrived, samples) = (broken.samples_within(acknowledged).len() as u64, link.samples());
        let first = samples.first().copied().unwrap();
        assert!(first <= arrived, "seed {seed}: {arrived} arrived, it goes on with {first}");
        let wrong = samples.windows(2).find(|pair| pair[1] != pair[0] + 1);
        assert_eq!((wrong, samples.last()), (None, Some(&3009)), "seed {seed}: broke at {breaks}");
        assert_eq!(
            (older.dropped.load(Relaxed), newer.dropped.load(Relaxed), older.waiting()),
            (0, 0, 0),
            "seed {seed}"
        );
        older.end();
        assert_eq!(older.settings.account.used(), 0, "seed {seed}");
        senders.close();
        old_senders.close();
    }
}

/// Unacknowledged batches, one that was about to leave, and samples that waited for window and socket; over another carrier.
#[test]
fn datagrams_go_on_as_samples() {
    for seed in 0..20 {
        let (mut dice, socket) = (Dice::new(seed), Socket::default());
        let policy = qos::Queue::KeepAll(100_000);
        let (older, old_senders) = flow_with(policy, (true, dice.chance(0.5)), &socket);
        for seq in 0..2000 {
            if dice.chance(0.05) {
                socket.is_full(dice.chance(0.5));
            }
            assert!(
                is_taken(publish(&older, seq, dice.around(30, 30) as usize, dice.chance(0.8))),
                "seed {seed}: {seq}"
            );
        }
        assert!(older.cut_off());
        (2000..2100).for_each(|seq| assert_eq!(publish(&older, seq, 64, true), Outcome::Queued));
        let (newer, link, senders) = outlasting(policy);
        newer.take_over(&older);
        wait("everything leaves", || newer.waiting() == 0);
        assert!(link.samples().into_iter().eq(0..2100), "seed {seed}: {:?}", link.samples());
        assert_eq!(older.waiting() + older.bytes(), 0);
        senders.close();
        old_senders.close();
    }
}

/// A keep-last queue gives the next connection no more than its depth; no thread waits for room meanwhile.
#[test]
fn the_policy_holds_while_a_subscriber_is_cut_off() {
    let (older, broken, old_senders) = outlasting(qos::Queue::KeepLast(16));
    (0..100).for_each(|seq| assert_eq!(publish(&older, seq, 64, false), Outcome::Sent));
    broken.close();
    (100..200).for_each(|seq| assert!(is_taken(publish(&older, seq, 64, false))));
    let (newer, link, senders) = outlasting(qos::Queue::KeepLast(16));
    newer.take_over(&older);
    wait("everything leaves", || newer.waiting() == 0);
    assert!(link.samples().into_iter().eq(184..200), "{:?}", link.samples());
    senders.close();
    old_senders.close();

    let (older, _, senders) = outlasting(qos::Queue::Block { limit: 16, up_to_us: u32::MAX.into() });
    assert!(older.cut_off());
    let taken = (0..100).filter(|seq| is_taken(publish(&older, *seq, 64, false))).count();
    assert_eq!((taken, older.dropped.load(Relaxed)), (16, 84));
    senders.close();
}

/// The thread would keep its scheduling as long as the subscriber may come back.
#[test]
fn a_flow_that_is_cut_off_has_no_thread_of_its_own() {
    let (older, broken, old_senders) = outlasting(qos::Queue::KeepAll(100));
    let start = || old_senders.start_own(&older, &qos::priority::PrioritySettings::default()).unwrap();
    let own = start();
    older.move_to(Some(own.clone()));
    broken.takes(Some(0)); // it waits for room
    (0..10).for_each(|seq| assert!(is_taken(publish(&older, seq, 64, false))));
    assert!(older.cut_off() && older.own().is_none());
    let task = format!("/proc/self/task/{}", own.tid());
    wait("its thread ends", || !std::path::Path::new(&task).exists());
    older.move_to(Some(start()));
    assert!(older.own().is_none(), "nor does it get one");
    let (newer, link, senders) = outlasting(qos::Queue::KeepAll(100));
    newer.take_over(&older);
    wait("everything leaves", || newer.waiting() == 0);
    assert!(link.samples().into_iter().eq(0..10), "{:?}", link.samples());
    senders.close();
    old_senders.close();
}

#[test]
fn a_flow_that_may_lose_something_ends_with_its_connection() {
    let (flow, link, senders) = flow(qos::Queue::KeepLast(16), Sending::default());
    link.close();
    assert!(!flow.cut_off());
    assert_eq!(publish(&flow, 0, 64, false), Outcome::NotConnected);
    senders.close();
}
