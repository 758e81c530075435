//! A queue in memory, without a recorder.

use super::*;
use crate::record::tests::LONG;
use std::sync::mpsc::RecvTimeoutError;
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

fn losses(intake: &Intake) -> Vec<Lacking> {
    intake.take_losses(true, |_| 0)
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
    let [Lacking { lost, dropped, .. }] = losses(&intake)[..] else { panic!("one publisher") };
    // The share of an only topic is all of the memory.
    assert_eq!((lost, dropped), (Span::default(), Span { first: 5, last: 6, count: 2 }));
    assert_eq!(taken(&intake), [1, 2, 3, 4].map(|seq| (topic, seq)));
    intake.take(topic, &sample(1, 7), &[0; 100], unknown);
    assert_eq!((taken(&intake), losses(&intake)), (vec![(topic, 7)], vec![]), "a drop is no gap");
}

#[test]
fn a_big_topic_leaves_room_to_a_small_one() {
    let intake = Intake::new(1 << 20);
    let (big, small) = (intake.add_topic(), intake.add_topic());
    (1..=2000).for_each(|seq| intake.take(big, &sample(1, seq), &[0; 1000], unknown));
    (1..=100).for_each(|seq| intake.take(small, &sample(2, seq), &[0; 8], unknown));
    let losses = losses(&intake);
    assert!(losses.iter().all(|lacking| lacking.topic == big), "{losses:?}");
    assert!(intake.bytes.load(Relaxed) <= 1 << 20);
    let (mut batch, mut came) = (Vec::new(), 0);
    while intake.next(&mut batch, Duration::ZERO) && !batch.is_empty() {
        came += batch.iter().filter(|sample| sample.topic == small).count();
    }
    assert_eq!((came, intake.bytes.load(Relaxed)), (100, 0));
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
    assert_eq!(intake.bytes.load(Relaxed), 0);
}

#[test]
fn what_waits_is_taken_in_order_and_its_room_given_back_as_it_is_written() {
    let intake = Intake::new(1 << 20);
    let (topic, count, mut batch) = (intake.add_topic(), BATCH as u64 + 2, Vec::new());
    (1..=count).for_each(|seq| intake.take(topic, &sample(1, seq), &[], unknown));
    let mut next = |intake: &Intake| {
        assert!(intake.next(&mut batch, Duration::ZERO));
        let first = batch.first().map_or(0, |sample| sample.info.seq);
        (first, batch.len(), intake.bytes.load(Relaxed))
    };
    assert_eq!(next(&intake), (1, BATCH, count * SAMPLE));
    intake.take(topic, &sample(1, count + 1), &[], unknown);
    assert_eq!(next(&intake), (BATCH as u64 + 1, 3, 3 * SAMPLE));
    assert_eq!(next(&intake), (0, 0, 0));
}

#[test]
fn a_thread_that_writes_and_stands_still_holds_up_none_that_receives() {
    let intake = Arc::new(Intake::new(1 << 20));
    let topic = intake.add_topic();
    let _held = intake.arrived(); // all that the thread that writes ever holds while samples come
    let (tell, told) = channel();
    let receiving = intake.clone();
    thread::spawn(move || {
        receiving.take(topic, &sample(1, 1), &[], unknown);
        receiving.tell_losses(losses(&receiving));
        tell.send(()).unwrap();
    });
    assert_eq!(told.recv_timeout(LONG), Ok(()));
}

#[test]
fn a_thread_that_receives_and_stands_still_holds_up_none_that_writes() {
    let intake = Arc::new(Intake::new(1 << 20));
    let topic = intake.add_topic();
    intake.take(topic, &sample(1, 1), &[], unknown);
    let _held = intake.lock();
    let (tell, told) = channel();
    let writing = intake.clone();
    thread::spawn(move || {
        let mut batch = Vec::new();
        let open = writing.next(&mut batch, Duration::ZERO);
        tell.send((open, batch.len(), writing.told_losses().len())).unwrap();
    });
    assert_eq!(told.recv_timeout(LONG), Ok((true, 1, 0)));
}

#[test]
fn a_thread_that_waits_for_samples_is_woken_by_one_and_by_the_end() {
    let intake = Arc::new(Intake::new(1 << 20));
    let topic = intake.add_topic();
    let (tell, told) = channel();
    let writing = intake.clone();
    thread::spawn(move || {
        let mut batch = Vec::new();
        while writing.next(&mut batch, 2 * LONG) {
            tell.send(batch.len()).unwrap();
        }
    });
    for seq in 1..=100 {
        intake.take(topic, &sample(1, seq), &[], unknown);
        assert_eq!(told.recv_timeout(LONG), Ok(1));
    }
    intake.close();
    assert!(told.recv_timeout(LONG).is_err_and(|why| why == RecvTimeoutError::Disconnected));
}

#[test]
fn what_is_being_copied_when_the_queue_closes_is_written() {
    let intake = Intake::new(1 << 20);
    let topic = intake.add_topic();
    let mut batch = Vec::new();
    let meanwhile = || {
        intake.close();
        assert!(intake.next(&mut batch, Duration::ZERO) && batch.is_empty());
        None
    };
    intake.take(topic, &sample(1, 1), &[], meanwhile);
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
    assert!(losses(&intake).is_empty());
}
