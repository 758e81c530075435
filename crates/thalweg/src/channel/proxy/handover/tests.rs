use super::*;
use proptest::prelude::*;

const PERIOD: u64 = 1_000_000;

/// The subscriber's samples, while flows bring theirs at these times.
struct Subscriber {
    delivered: Vec<u64>,
}

impl Subscriber {
    fn release(&mut self, handover: &mut Handover<u64>) {
        self.delivered.extend(std::iter::from_fn(|| handover.released()));
    }
    fn old(&mut self, handover: &mut Handover<u64>, seq: u64) {
        self.delivered.extend(handover.old(seq, seq * PERIOD).then_some(seq));
        self.release(handover);
    }
    fn new_one(&mut self, handover: &mut Handover<u64>, seq: u64, now: u64) {
        self.delivered.extend(handover.new_one((seq, seq * PERIOD), now, 8, || seq).then_some(seq));
        self.release(handover);
    }
}

proptest! {
    /// Two flows in virtual time, each with its delay; the new one opens at some sample. They bring their samples in any
    /// order, and the subscriber gets exactly the selected samples, in order.
    #[test]
    fn no_gap_and_nothing_twice(
        n in 1..20u32,
        opens in 50..150u64,
        delay in (0..30 * PERIOD, 0..30 * PERIOD),
    ) {
        let selection = Selection::every(n).unwrap();
        let selected = || (1..=600u64).filter(|seq| selection.takes(*seq));
        // Samples that the old flow brings before the new one opens are delivered at once. The move does not know the last of
        // these, for it is just being delivered.
        let shut = opens * PERIOD;
        let (at_once, later): (Vec<u64>, Vec<u64>) = selected().partition(|seq| seq * PERIOD + delay.0 < shut);
        let known = at_once.len().saturating_sub(2);
        let last = at_once.get(known).copied().unwrap_or(0);
        let mut arrivals: Vec<(u64, bool, u64)> = later.iter().map(|seq| (seq * PERIOD + delay.0, false, *seq)).collect();
        arrivals.extend(selected().filter(|seq| *seq >= opens).map(|seq| (seq * PERIOD + delay.1, true, seq)));
        arrivals.sort_unstable();
        let mut handover = Handover::new(selection, last, 64);
        let mut subscriber = Subscriber { delivered: at_once };
        for (now, new, seq) in arrivals {
            match new {
                false => subscriber.old(&mut handover, seq),
                true => subscriber.new_one(&mut handover, seq, now),
            }
        }
        prop_assert!(handover.is_taken_over());
        prop_assert_eq!(subscriber.delivered, selected().collect::<Vec<_>>());
    }

    /// The new flow lags, or ends at some sample because its source is cut off: no sample is left out. Until it takes over,
    /// samples come as soon as the old one brings them. It takes over only while it has caught up.
    #[test]
    fn a_flow_that_is_not_abreast_does_not_take_over(
        n in 1..20u32,
        lag in 0..1000u64,
        cut in 0..900u64,
    ) {
        let selection = Selection::every(n).unwrap();
        let selected = || (1..=900u64).filter(|seq| selection.takes(*seq));
        let mut arrivals: Vec<(u64, bool, u64)> = selected().map(|seq| (seq * PERIOD, false, seq)).collect();
        arrivals.extend(selected().filter(|seq| *seq <= cut).map(|seq| ((seq + lag) * PERIOD, true, seq)));
        arrivals.sort_unstable();
        let mut handover = Handover::new(selection, 0, 64);
        let mut subscriber = Subscriber { delivered: Vec::new() };
        for (now, new, seq) in arrivals {
            let before = handover.is_taken_over();
            match new {
                false => subscriber.old(&mut handover, seq),
                true => subscriber.new_one(&mut handover, seq, now),
            }
            if handover.is_taken_over() && !before {
                let (_, old) = handover.passed.unwrap();
                prop_assert!(old <= handover.brought.unwrap().1 + PATIENCE_NS);
            }
            if !handover.is_taken_over() && !new {
                prop_assert_eq!(subscriber.delivered.last(), Some(&seq));
            }
        }
        prop_assert!(!handover.has_gap());
        // The old one is there until the new one has taken over.
        let end = if handover.is_taken_over() { *subscriber.delivered.last().unwrap() } else { 900 };
        prop_assert_eq!(subscriber.delivered, selected().filter(|seq| *seq <= end).collect::<Vec<_>>());
        let in_time = lag * PERIOD <= PATIENCE_NS && cut >= u64::from(n);
        let never = (lag - lag.min(u64::from(n))) * PERIOD > PATIENCE_NS && cut < 600;
        prop_assert!(!(handover.is_taken_over() && never) && (handover.is_taken_over() || !in_time));
    }

    /// The new flow never delivers, and ends: all samples come by the old one.
    #[test]
    fn a_new_flow_that_fails_changes_nothing(n in 1..20u32, count in 1..100u64) {
        let selection = Selection::every(n).unwrap();
        let mut handover = Handover::new(selection, 0, 8);
        let mut subscriber = Subscriber { delivered: Vec::new() };
        let selected: Vec<u64> = (1..=count).filter(|seq| selection.takes(*seq)).collect();
        selected.iter().for_each(|seq| subscriber.old(&mut handover, *seq));
        prop_assert!(!handover.is_taken_over());
        prop_assert_eq!(subscriber.delivered, selected);
    }
}

#[test]
fn an_old_flow_that_falls_silent_is_not_waited_for_long() {
    let mut handover = Handover::new(Selection::ALL, 10, 64);
    let mut subscriber = Subscriber { delivered: Vec::new() };
    subscriber.new_one(&mut handover, 13, 0);
    subscriber.new_one(&mut handover, 14, PATIENCE_NS);
    assert!(subscriber.delivered.is_empty(), "11 and 12 may still come");
    subscriber.new_one(&mut handover, 15, PATIENCE_NS + 2 * PERIOD + 1);
    assert_eq!(subscriber.delivered, [13, 14, 15]);
    subscriber.old(&mut handover, 11); // too late
    assert_eq!(subscriber.delivered, [13, 14, 15]);
}

#[test]
fn held_samples_are_bounded_and_an_ended_flow_is_not_waited_for() {
    let mut handover = Handover::new(Selection::ALL, 10, 3);
    let mut subscriber = Subscriber { delivered: Vec::new() };
    (13..16).for_each(|seq| subscriber.new_one(&mut handover, seq, 0));
    assert_eq!(subscriber.delivered, [13, 14, 15]);
    let mut handover = Handover::new(Selection::ALL, 10, 3);
    subscriber.delivered.clear();
    subscriber.new_one(&mut handover, 13, 0);
    handover.old_ended(12);
    subscriber.release(&mut handover);
    subscriber.new_one(&mut handover, 14, 0);
    assert_eq!(subscriber.delivered, [13, 14]);
}

/// A gap is reported where samples may be missing, so that they can be fetched.
#[test]
fn a_gap_is_told_and_only_one_that_there_may_be() {
    let begun = |last| Handover::new(Selection::ALL, last, 3);
    let mut complete = begun(10);
    let mut subscriber = Subscriber { delivered: Vec::new() };
    subscriber.new_one(&mut complete, 12, 0);
    subscriber.old(&mut complete, 11);
    let (mut ended, mut full, mut late) = (begun(10), begun(10), begun(10));
    ended.old_ended(11);
    (13..16).for_each(|seq| subscriber.new_one(&mut full, seq, 0));
    subscriber.new_one(&mut late, 13, 0);
    late.nothing_comes(11, PATIENCE_NS + 1);
    let told = [&complete, &ended, &full, &late].map(|handover| (handover.is_taken_over(), handover.has_gap()));
    assert_eq!(told, [(true, false), (true, true), (true, true), (true, true)]);
    assert_eq!((ended.last(), late.last()), (11, 11));
}

#[test]
fn a_flow_that_is_given_up_has_not_taken_over_and_never_does() {
    let mut handover = Handover::new(Selection::ALL, 10, 3);
    let mut subscriber = Subscriber { delivered: Vec::new() };
    subscriber.new_one(&mut handover, 13, 0);
    assert!(handover.keep_old());
    (14..20).for_each(|seq| subscriber.new_one(&mut handover, seq, 0));
    handover.old_ended(10);
    assert!(!handover.is_taken_over());
    (11..15).for_each(|seq| subscriber.old(&mut handover, seq));
    assert_eq!(subscriber.delivered, [11, 12, 13, 14]);
    let mut handover = Handover::<u64>::new(Selection::ALL, 10, 3);
    handover.old_ended(10);
    assert!(!handover.keep_old(), "it has taken over");
}

/// While no sample comes, a new flow that lacks samples of the old one does not take over.
#[test]
fn a_flow_that_lacks_what_was_brought_does_not_take_over_while_nothing_comes() {
    let mut handover = Handover::new(Selection::ALL, 10, 8).with_new_selection(Selection::every(5).unwrap(), 7);
    handover.nothing_comes(12, 0);
    assert!(!handover.is_taken_over(), "10 was published, and the new flow has up to 7 only");
    let mut subscriber = Subscriber { delivered: Vec::new() };
    subscriber.new_one(&mut handover, 10, 0);
    handover.nothing_comes(12, 0);
    assert!(handover.is_taken_over(), "of 11 and 12 it brings nothing");
}

/// The publisher is silent. The move still ends, if the new flow brings all samples that the old one did not.
#[test]
fn a_move_ends_while_nothing_comes_unless_something_would_be_left_out() {
    let every_third = Selection::every(3).unwrap();
    let (mut missing, mut complete) = (
        Handover::new(every_third, 3, 8).with_new_selection(every_third, 8),
        Handover::new(every_third, 3, 8).with_new_selection(every_third, 8),
    );
    missing.nothing_comes(3, 0);
    assert!(!missing.is_taken_over(), "6 is on its way");
    let mut subscriber = Subscriber { delivered: vec![3] };
    subscriber.old(&mut missing, 6);
    missing.nothing_comes(6, 0);
    assert!(missing.is_taken_over());
    subscriber.new_one(&mut missing, 9, 0);
    assert_eq!(subscriber.delivered, [3, 6, 9]);
    // A sample that the old flow delivered beside the gate comes by the new one, too: once.
    let mut subscriber = Subscriber { delivered: vec![3, 6, 9] };
    subscriber.new_one(&mut complete, 9, 0);
    complete.nothing_comes(9, 0);
    assert!(complete.is_taken_over());
    subscriber.new_one(&mut complete, 12, 0);
    assert_eq!(subscriber.delivered, [3, 6, 9, 12]);
}

#[test]
fn large_samples_are_held_within_bounds() {
    let mut handover = Handover::new(Selection::ALL, 10, 1024);
    for seq in 13..16 {
        handover.new_one((seq, seq * PERIOD), 0, MOST_HELD / 3, || seq);
    }
    assert!(!handover.is_taken_over());
    handover.new_one((16, 16 * PERIOD), 0, MOST_HELD / 3, || 16);
    assert!(handover.has_gap());
    assert_eq!(std::iter::from_fn(|| handover.released()).collect::<Vec<_>>(), [13, 14, 15, 16]);
    assert_eq!(handover.bytes, 0);
}

/// Stamps are a peer's: any two may be as far apart as there are numbers.
#[test]
fn stamps_at_their_extremes_are_only_late() {
    let mut handover = Handover::new(Selection::ALL, 0, 64);
    for (seq, stamp) in [(5, 0), (6, u64::MAX), (7, 0), (8, u64::MAX)] {
        assert!(!handover.new_one((seq, stamp), seq, 8, || seq) && handover.old(seq - 4, stamp));
    }
}
