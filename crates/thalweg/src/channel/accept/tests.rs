//! Numbers in order, out of order, and wrong ones.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[test]
fn order_gap_late_and_duplicate_are_told_apart_across_the_wrap() {
    let mut accept = Accept::new(Some(u32::MAX - 1), true);
    assert_eq!(accept.frame(u32::MAX - 1), Arrival::InOrder);
    assert_eq!(accept.frame(2), Arrival::Gap(3));
    assert_eq!(accept.frame(0), Arrival::Late);
    assert_eq!(accept.frame(0), Arrival::Duplicate);
    assert_eq!(accept.frame(3), Arrival::InOrder);
    let want = Counters { received: 4, lost: 2, duplicates: 1, reordered: 1, outdated: 0 };
    assert_eq!((accept.counters(), accept.next_frame()), (want, Some(4)));
}

#[test]
fn before_the_first_frame_and_behind_the_window_nothing_is_corrected() {
    let mut accept = Accept::new(None, true);
    assert_eq!(accept.frame(5), Arrival::InOrder);
    assert_eq!(accept.frame(4), Arrival::Duplicate);
    assert_eq!((accept.frame(5 + 5000), accept.frame(5 + 5001)), (Arrival::Ahead, Arrival::Gap(4999)));
    assert_eq!(accept.frame(6), Arrival::Duplicate, "outside of the window");
    assert_eq!(accept.frame(5000), Arrival::Late);
    assert_eq!(accept.counters().lost, 4998);
}

#[test]
fn a_keep_alive_shows_that_the_last_frames_were_lost_and_they_may_still_come() {
    let mut accept = Accept::new(Some(0), true);
    accept.frame(0);
    assert_eq!((accept.announced(1), accept.announced(3), accept.announced(3)), (0, 2, 0));
    assert_eq!(accept.frame(2), Arrival::Late);
    assert_eq!(accept.counters().lost, 1);
}

#[test]
fn samples_overtaken_after_a_new_mark_are_lost_and_counted() {
    let mut accept = Accept::new(Some(0), true);
    // 3 and 4 left with a higher mark and came before 1 and 2, which waited in the lower band.
    let arrived = [0, 3, 4, 1, 2, 5];
    let delivered: Vec<u32> =
        arrived.into_iter().filter(|n| accept.frame(*n).is_new() && accept.sample(u64::from(*n) + 1)).collect();
    assert_eq!(delivered, [0, 3, 4, 5]);
    let want = Counters { received: 6, lost: 2, duplicates: 0, reordered: 2, outdated: 2 };
    assert_eq!(accept.counters(), want);
}

#[test]
fn after_a_resumed_flow_only_newer_samples_are_delivered() {
    let mut ordered = Accept::new(Some(0), true);
    ordered.resume_after(10);
    let delivered: Vec<_> = [9, 10, 11, 13, 12, 14].map(|s| ordered.sample(s)).into();
    assert_eq!(delivered, [false, false, true, true, false, true]);
    assert_eq!((ordered.last_sample(), ordered.counters().outdated), (Some(14), 3));
    let mut unordered = Accept::new(Some(0), false);
    unordered.resume_after(10);
    let delivered: Vec<_> = [9, 11, 13, 12, 12].map(|s| unordered.sample(s)).into();
    assert_eq!(delivered, [false, true, true, true, false]);
    assert_eq!(unordered.last_sample(), Some(13));
}

proptest! {
    #[test]
    fn counters_agree_with_a_set(first: u32, steps in prop::collection::vec(-40i32..60, 1..300)) {
        let mut accept = Accept::new(Some(first), false);
        let (mut seen, mut at, mut newest, mut again) = (BTreeSet::new(), 0i64, -1i64, 0);
        for step in steps {
            at = (at + i64::from(step)).max(0);
            let arrival = accept.frame(first.wrapping_add(at as u32));
            if at > newest || newest - at < WINDOW as i64 {
                prop_assert_eq!(arrival.is_new(), seen.insert(at));
            }
            again += u64::from(!arrival.is_new());
            newest = newest.max(at);
        }
        let counters = accept.counters();
        prop_assert_eq!(counters.received, seen.len() as u64);
        prop_assert_eq!(counters.duplicates, again);
        prop_assert_eq!(counters.lost, (newest + 1) as u64 - seen.len() as u64);
    }
}

#[test]
fn a_sample_of_a_history_is_new_unless_it_was_delivered_before_the_flow_resumed() {
    let mut accept = Accept::new(Some(0), true);
    accept.resume_after(4);
    assert!(accept.sample(9) && accept.historical(5) && accept.historical(8));
    assert!(!accept.historical(4));
    assert!(!accept.sample(9) && accept.sample(10), "the order of the others stays");
}

/// Frames and samples, from 0 on; delivers them as `Inbound` does.
struct Flow {
    accept: Accept,
    delivered: Vec<u64>,
}

impl Flow {
    fn new(count: u32) -> Self {
        let mut flow = Self { accept: Accept::new(None, true), delivered: Vec::new() };
        (0..count).for_each(|n| assert!(flow.takes(n, u64::from(n) + 1)));
        flow
    }

    fn takes(&mut self, frame: u32, sample: u64) -> bool {
        let taken = self.accept.frame(frame).is_new() && self.accept.sample(sample);
        if taken {
            self.delivered.push(sample);
        }
        taken
    }

    /// Asserts that the flow continues without a trace of the wrong number.
    fn goes_on(&mut self, from: u32) {
        (from..from + 50).for_each(|n| assert!(self.takes(n, u64::from(n) + 1), "{n}: {:?}", self.accept.counters()));
    }
}

#[test]
fn a_frame_with_the_greatest_sample_number_silences_nobody() {
    // The last number is the frame with which the flow continues: the wrong one took the place of the frame before it.
    let wrong = [(10, u64::MAX, 11), (11, u64::MAX, 12), (5000, u64::MAX, 10), (10, 1 << 63, 11), (10, 1 << 20, 11)];
    for (frame, sample, next) in wrong {
        let mut flow = Flow::new(10);
        let taken = flow.takes(frame, sample);
        assert_eq!(taken, sample < 1 << 32, "{sample}");
        flow.goes_on(next);
        assert_eq!(flow.accept.last_sample(), flow.delivered.last().copied(), "{sample}: nothing of it resumes");
    }
}

#[test]
fn a_sequence_far_ahead_or_far_behind_silences_nobody() {
    for jump in [1025, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, u32::MAX - 5000] {
        let mut flow = Flow::new(10);
        flow.takes(10u32.wrapping_add(jump), 11);
        flow.goes_on(11);
        assert!(flow.accept.counters().lost <= 1, "{jump}: {:?}", flow.accept.counters());
    }
}

#[test]
fn a_wrong_first_frame_silences_nobody() {
    for (frame, sample) in [(1 << 30, 11), (u32::MAX - 9, u64::MAX), (10, u64::MAX), (3 << 30, 1 << 40)] {
        let mut flow = Flow::new(0);
        assert!(flow.takes(frame, sample));
        flow.goes_on(11);
    }
}

/// A bit of the numbers flips now and then: the flipped frame may be lost, and so may the frame whose number it got.
#[test]
fn a_flipped_bit_costs_two_frames_at_most() {
    // A sample number that is wrong by up to 1024 is believed, and costs that many samples.
    for bit in (0..32).chain(42..96) {
        let mut flow = Flow::new(2000);
        let mut missed = 0;
        for n in 2000..6000u32 {
            let (mut frame, mut sample) = (n, u64::from(n) + 1);
            match bit {
                _ if n % 100 != 0 => {}
                0..32 => frame ^= 1 << bit,
                _ => sample ^= 1 << (bit - 32),
            }
            missed += u32::from(!flow.takes(frame, sample));
        }
        assert!(missed <= 80, "bit {bit}: {missed} of 4000, {:?}", flow.accept.counters());
    }
}

#[test]
fn genuine_jumps_are_delivered_at_once_and_counted_with_the_next_frame() {
    let mut flow = Flow::new(10);
    // An outage of 90,000 frames and as many samples.
    assert!(flow.takes(90_010, 90_011) && flow.accept.counters().lost == 0);
    assert!(flow.takes(90_011, 90_012) && flow.accept.counters().lost == 90_000);
    // An every 5000th sample.
    (1..100).for_each(|n| assert!(flow.takes(90_011 + n, 100_000 + 5000 * u64::from(n))));
    assert_eq!(flow.accept.counters().lost, 90_000);
    // A jump further than any flow leaves out, twice.
    assert!(!flow.takes(90_111, 1 << 50) && flow.takes(90_112, (1 << 50) + 1));
    assert_eq!(flow.accept.counters().lost, 90_001);
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Next,
    Lose(u32),
    Wrong(u32, u64),
}

fn event() -> impl Strategy<Value = Event> {
    let far = (1u32 << 13)..(u32::MAX - (1 << 13));
    prop_oneof![
        6 => Just(Event::Next),
        1 => (1u32..3000).prop_map(Event::Lose),
        1 => (far, any::<u64>()).prop_map(|(frame, sample)| Event::Wrong(frame, sample)),
    ]
}

proptest! {
    /// The model: every genuine frame is delivered once, with any single wrong frames in between. A frame missing between
    /// two genuine ones is lost.
    #[test]
    fn every_genuine_frame_of_a_flow_with_single_wrong_ones_is_delivered(
        first: u32, events in prop::collection::vec(event(), 1..200), begun in 0u64..1 << 40,
    ) {
        let mut accept = Accept::new(None, true);
        let (mut at, mut lost, mut wrong, mut was_wrong, mut after_jump) = (0u32, 0u64, 0u64, false, false);
        let mut take = |frame: u32, sample: u64| accept.frame(frame).is_new() && accept.sample(sample);
        for n in 0..2 {
            prop_assert!(take(first.wrapping_add(n), begun + u64::from(n) + 1));
            at += 1;
        }
        for event in events {
            match event {
                Event::Lose(count) => {
                    wrong += u64::from(after_jump); // a second jump before the first was believed
                    at += count;
                    lost += u64::from(count);
                }
                // Two wrong frames in a row would be believed. One right behind a jump delays by a frame that the jump is believed.
                Event::Wrong(frame, sample) if !was_wrong && !after_jump => {
                    // A position too far ahead to be believed, or behind.
                    let sample = begun.wrapping_add(sample);
                    if sample.abs_diff(begun + u64::from(at)) > 1 << 13 {
                        take(first.wrapping_add(at).wrapping_add(frame), sample);
                        (was_wrong, wrong) = (true, wrong + 1);
                    }
                    continue;
                }
                Event::Wrong(..) => continue,
                Event::Next => {}
            }
            after_jump = matches!(event, Event::Lose(_));
            let taken = take(first.wrapping_add(at), begun + u64::from(at) + 1);
            prop_assert!(taken, "{at}");
            (at, was_wrong) = (at + 1, false);
        }
        for _ in 0..2 {
            prop_assert!(take(first.wrapping_add(at), begun + u64::from(at) + 1));
            at += 1;
        }
        let counted = accept.counters().lost;
        prop_assert!(counted.abs_diff(lost) <= wrong, "{counted} instead of {lost}");
    }
}
