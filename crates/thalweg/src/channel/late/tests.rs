//! Both streams in any interleaving, and channels that end before their history.

mod next_channel;

use super::*;
use proptest::prelude::*;
use std::ops::RangeInclusive;

const HOLD: Hold = Hold { ns: 100, samples: 5, bytes: 1000 };

/// A publisher's history keeps `depth` samples. A subscriber joins after `before` of them, requests the history a little later
/// and gets both streams in any interleaving.
fn join(before: u64, meanwhile: u64, after: u64, depth: u64, order: &[(bool, u64)]) -> Vec<(u64, bool)> {
    let asked = before + meanwhile;
    let history = (asked.saturating_sub(depth) + 1..=asked).collect();
    meet(LateJoin::new(0, HOLD), before + 1..=asked + after, history, order)
}

/// The outcome of both streams in any interleaving.
fn meet(
    mut late: LateJoin<u64>,
    live: RangeInclusive<u64>,
    mut history: VecDeque<u64>,
    order: &[(bool, u64)],
) -> Vec<(u64, bool)> {
    let mut live: VecDeque<u64> = live.collect();
    let (mut got, mut now, mut ended) = (Vec::new(), 0, false);
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
        let got = meet(LateJoin::new(0, HOLD), live.clone(), history.clone(), &order);
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

/// What is delivered now.
fn released(late: &mut LateJoin<u64>) -> Vec<u64> {
    std::iter::from_fn(|| late.released()).collect()
}

/// A channel that joined after sample 3: samples 20 and 21 wait, 4 and 5 came by the history, and then the channel ends.
fn given_up() -> LateJoin<u64> {
    let mut late = LateJoin::new(3, HOLD);
    assert_eq!([20, 21].map(|seq| late.live(seq, 10, 0, || seq)), [Verdict::Hold; 2]);
    assert_eq!((late.history(4), late.history(5), late.is_under_way()), (Some(false), Some(false), true));
    assert_eq!((late.give_up(0), late.is_under_way(), late.give_up(50)), (Some(5), false, Some(5)));
    assert_eq!((late.history(6), released(&mut late)), (None, vec![]), "the rest is the next channel's");
    late
}

#[test]
fn samples_that_wait_as_the_publisher_dies_follow_what_came_of_the_history() {
    let mut late = given_up();
    assert_eq!(late.live(22, 10, 1, || 22), Verdict::Hold, "datagrams are read to the last");
    assert_eq!((late.end(), released(&mut late)), (Some((6, 19)), vec![20, 21, 22]));
    assert_eq!((late.end(), late.history(6), late.is_over()), (None, None, false));
}

#[test]
fn no_gap_is_told_of_a_history_that_came_up_to_the_waiting_samples() {
    let mut late = LateJoin::new(3, HOLD);
    assert_eq!((late.live(5, 10, 0, || 5), late.history(4), late.give_up(0)), (Verdict::Hold, Some(false), Some(4)));
    assert_eq!((late.end(), released(&mut late)), (None, vec![5]));
    let mut in_order = LateJoin::new(3, HOLD);
    assert_eq!(
        (in_order.live(9, 10, 0, || 9), in_order.end(), released(&mut in_order)),
        (Verdict::Hold, None, vec![9])
    );
    assert_eq!(in_order.give_up(0), None, "its history was over");
}

#[test]
fn samples_that_wait_go_on_waiting_on_the_next_channel() {
    let mut late = given_up();
    let mut next = late.next(5);
    assert_eq!((late.live(22, 10, 1, || 22), late.end(), released(&mut late)), (Verdict::Drop, None, vec![]));
    assert_eq!(next.here().collect::<Vec<_>>(), [20, 21]);
    assert_eq!([21, 23, 22].map(|seq| next.live(seq, 10, 1, || seq)), [Verdict::Drop, Verdict::Hold, Verdict::Hold]);
    assert_eq!([5, 6, 20].map(|seq| next.history(seq)), [None, Some(false), Some(false)]);
    assert_eq!((next.end(), released(&mut next)), (None, vec![21, 22, 23]));
}

#[test]
fn samples_that_could_wait_no_longer_are_left_out_by_the_next_channel() {
    let mut late = given_up();
    late.end();
    assert_eq!(released(&mut late), [20, 21]);
    let mut next = late.next(5);
    assert_eq!([6, 20, 22].map(|seq| next.history(seq)), [Some(true), None, Some(false)]);
    let verdicts = [Verdict::Drop, Verdict::Deliver { historical: true }, Verdict::Hold];
    assert_eq!([21, 19, 23].map(|seq| next.live(seq, 10, 2, || seq)), verdicts);
}

#[test]
fn a_sample_that_waits_no_longer_leaves_its_room_to_others() {
    let mut late = LateJoin::new(0, HOLD);
    let hold = |late: &mut LateJoin<u64>, seq| late.live(seq, HOLD.bytes, 0, || seq);
    assert_eq!((hold(&mut late, 2), late.history(2), hold(&mut late, 4)), (Verdict::Hold, Some(false), Verdict::Hold));
    assert_eq!((late.history(5), released(&mut late), hold(&mut late, 7)), (Some(false), vec![4], Verdict::Hold));
    assert_eq!((late.give_up(0), late.end(), released(&mut late)), (Some(5), Some((6, 6)), vec![7]));
    assert_eq!(hold(&mut late.next(5), 8), Verdict::Hold);
}

#[test]
fn the_samples_that_are_left_out_are_bounded() {
    let mut late = LateJoin::new(0, HOLD);
    assert_eq!((late.live(2, 10, 0, || 2), late.give_up(0)), (Verdict::Hold, Some(0)));
    late.end();
    assert_eq!(released(&mut late), [2]);
    let most = MOST_AHEAD as u64;
    assert!((3..=most + 2).all(|seq| late.live(seq, 10, 1, || seq) == Verdict::Deliver { historical: false }));
    let mut next = late.next(0);
    assert_eq!(next.here().count(), MOST_AHEAD);
    assert_eq!([1, 2, 3, most + 3].map(|seq| next.history(seq)), [None, None, None, Some(false)]);
}

proptest! {
    /// The publisher lives: whether samples wait for the next channel or are delivered before it opens, all come once.
    #[test]
    fn a_channel_after_one_that_ended_before_its_history_brings_the_rest(
        before in 0u64..8, came in 0u64..5, given in 0u64..8, follow_at_once in any::<bool>(), meanwhile in 0u64..4,
        asked in 0u64..5, after in 0u64..6, order in prop::collection::vec((any::<bool>(), 0u64..60), 0..40),
    ) {
        let (mut late, mut got) = (LateJoin::new(0, HOLD), Vec::new());
        for seq in before + 1..=before + came {
            prop_assert_eq!(late.live(seq, 10, 0, || seq), Verdict::Hold);
        }
        for seq in 1..=given.min(before + came) {
            let marked = late.history(seq);
            got.extend(released(&mut late).into_iter().map(|seq| (seq, false)));
            got.extend(marked.map(|marked| (seq, marked)));
        }
        let last = late.give_up(0).unwrap();
        if follow_at_once {
            late.end();
            got.extend(released(&mut late).into_iter().map(|seq| (seq, false)));
        }
        let (first, asked) = (before + came + meanwhile + 1, before + came + meanwhile + asked);
        got.extend(meet(late.next(last), first..=asked + after, (last + 1..=asked).collect(), &order));
        let mut numbers: Vec<u64> = got.iter().map(|(seq, _)| *seq).collect();
        numbers.sort_unstable();
        prop_assert_eq!(&numbers, &(1..=asked + after).collect::<Vec<_>>(), "{:?}", got);
        let unmarked: Vec<u64> = got.iter().filter(|(_, marked)| !marked).map(|(seq, _)| *seq).collect();
        prop_assert!(unmarked.is_sorted(), "{:?}", got);
    }
}

#[test]
fn samples_of_the_channel_before_that_are_read_late_join_the_history() {
    let (drop, hold) = (Verdict::Drop, Verdict::Hold);
    let mut late = LateJoin::new(3, HOLD);
    assert_eq!([3, 5, 7].map(|seq| late.of_earlier(seq, 10, 0, || seq)), [drop, hold, hold]);
    assert_eq!(late.live(9, 10, 0, || 9), hold);
    assert_eq!([4, 5, 6].map(|seq| late.history(seq)), [Some(false); 3]);
    assert_eq!([5, 6, 9, 8].map(|seq| late.of_earlier(seq, 10, 0, || seq)), [drop, drop, drop, hold]);
    assert_eq!((late.end(), released(&mut late)), (None, vec![7, 8, 9]));
}

#[test]
fn samples_of_the_channel_before_that_its_history_does_not_keep_come_once_and_are_marked_after_later_ones() {
    let deliver = |historical| Verdict::Deliver { historical };
    let mut late = LateJoin::new(3, HOLD);
    assert_eq!((late.end(), late.of_earlier(5, 10, 0, || 5)), (None, deliver(false)));
    assert_eq!([5, 6].map(|seq| late.live(seq, 10, 0, || seq)), [Verdict::Drop, deliver(false)]);
    let verdicts = [deliver(true), Verdict::Drop, Verdict::Drop];
    assert_eq!([4, 5, 6].map(|seq| late.of_earlier(seq, 10, 0, || seq)), verdicts);
}

/// Regression: the channel ended before they were delivered, and the next one brought them again.
#[test]
fn samples_that_are_due_count_as_delivered() {
    let mut next = given_up().next(5);
    assert_eq!((next.last(), next.history(6), next.last()), (0, Some(false), 6));
    next.end();
    assert_eq!((next.last(), released(&mut next), next.last()), (21, vec![20, 21], 21));
}

proptest! {
    /// The thread of the channel before reads on, while the next one brings both streams, from a history of any depth.
    #[test]
    fn with_samples_of_the_channel_before_each_comes_once(
        earlier in 0u64..6, left_out in 0u64..4, meanwhile in 0u64..4, after in 0u64..6, depth in 0u64..12,
        order in prop::collection::vec((0_usize..3, 0u64..60), 0..40),
    ) {
        let (mut late, mut got, mut now) = (LateJoin::new(2, HOLD), Vec::new(), 0);
        let first = 2 + earlier + left_out + 1;
        let asked = first - 1 + meanwhile;
        let all: [Vec<u64>; 3] = [
            (3..=2 + earlier).collect(),
            (first..=asked + after).collect(),
            (asked.saturating_sub(depth) + 1..=asked).collect(),
        ];
        let mut streams = all.clone().map(VecDeque::from);
        let rest = (0..120).map(|step| (step % 3, 1));
        for (stream, passed) in order.into_iter().chain(rest) {
            now += passed;
            let (next, mut marked) = (streams[stream].pop_front(), None);
            match (stream, next) {
                (2, None) => {
                    late.end();
                }
                (2, Some(seq)) => marked = late.history(seq),
                (_, Some(seq)) => {
                    let verdict = match stream {
                        0 => late.of_earlier(seq, 10, now, || seq),
                        _ => late.live(seq, 10, now, || seq),
                    };
                    if let Verdict::Deliver { historical } = verdict {
                        marked = Some(historical);
                    }
                }
                (_, None) => {}
            }
            got.extend(released(&mut late).into_iter().map(|seq| (seq, false)));
            got.extend(next.zip(marked));
        }
        let mut numbers: Vec<u64> = got.iter().map(|(seq, _)| *seq).collect();
        numbers.sort_unstable();
        let expected: BTreeSet<u64> = all.into_iter().flatten().filter(|seq| *seq > 2).collect();
        prop_assert_eq!(numbers, expected.into_iter().collect::<Vec<_>>(), "{:?}", got);
        let unmarked: Vec<u64> = got.iter().filter(|(_, marked)| !marked).map(|(seq, _)| *seq).collect();
        prop_assert!(unmarked.is_sorted(), "{:?}", got);
    }
}
