//! The wait for the next channel, after one that ended before its history.

use super::*;

#[test]
fn the_wait_for_the_next_channel_is_as_long_as_the_hold_and_begins_with_the_end() {
    let mut late = LateJoin::new(3, HOLD);
    assert_eq!((late.live(20, 10, 10, || 20), late.waits_until()), (Verdict::Hold, None));
    assert_eq!((late.give_up(50), late.waits_until()), (Some(3), Some(150)));
    assert_eq!((late.give_up(70), late.waits_until()), (Some(3), Some(150)), "it is the same end");
    assert_eq!((late.live(21, 10, 149, || 21), released(&mut late)), (Verdict::Hold, vec![]));
    assert_eq!(late.live(22, 10, 150, || 22), Verdict::Deliver { historical: false });
    assert_eq!((released(&mut late), late.waits_until()), (vec![20, 21], None));
    assert_eq!((late.end(), late.end()), (Some((4, 19)), None), "the gap is told, once");
    assert_eq!(late.give_up(200), Some(3), "the next channel brings the rest nevertheless");
}

#[test]
fn a_channel_without_a_live_sample_waits_too() {
    let mut late = LateJoin::<u64>::new(3, HOLD);
    assert_eq!((late.give_up(50), late.waits_until()), (Some(3), Some(150)));
    assert_eq!(late.live(20, 10, 149, || 20), Verdict::Hold, "it was read after the end");
    assert_eq!((late.end(), released(&mut late)), (Some((4, 19)), vec![20]));
}

/// What waits has the room of live samples, over all channels together.
#[test]
fn samples_that_find_no_room_wait_no_longer() {
    let full = |late: &mut LateJoin<u64>| {
        assert!((22..=24).all(|seq| late.live(seq, 10, 1, || seq) == Verdict::Hold));
        assert_eq!(late.live(25, 10, 1, || 25), Verdict::Deliver { historical: false });
        assert_eq!((released(late), late.waits_until()), ((20..=24).collect::<Vec<u64>>(), None));
    };
    let mut late = given_up();
    full(&mut late);
    let mut next = late.next(5);
    assert_eq!([6, 20, 25, 26].map(|seq| next.history(seq)), [Some(true), None, None, Some(false)]);
    full(&mut given_up().next(5));
    let mut large = given_up();
    assert_eq!(large.live(22, HOLD.bytes, 1, || 22), Verdict::Deliver { historical: false });
}

#[test]
fn further_channels_do_not_prolong_the_wait_of_a_sample() {
    let mut late = given_up(); // at 0
    let mut next = late.next(5);
    assert_eq!((next.waits_until(), next.live(22, 10, 60, || 22)), (None, Verdict::Hold));
    assert_eq!((next.give_up(70), next.waits_until()), (Some(5), Some(100)));
    let mut third = next.next(5);
    assert_eq!(third.live(30, 10, 85, || 30), Verdict::Hold);
    assert!([6, 20, 21, 22].into_iter().all(|seq| third.history(seq) == Some(false)));
    assert_eq!((third.give_up(90), third.waits_until()), (Some(22), Some(190)), "the one that waits came later");
}

#[test]
fn nothing_waits_where_no_channel_will_follow() {
    let mut late = given_up();
    assert_eq!((late.nobody_follows(), late.waits_until()), (true, Some(0)));
    assert_eq!(
        (late.live(22, 10, 1, || 22), released(&mut late)),
        (Verdict::Deliver { historical: false }, vec![20, 21])
    );
    let mut open = LateJoin::new(3, HOLD);
    assert_eq!((open.live(9, 10, 0, || 9), open.nobody_follows()), (Verdict::Hold, false));
    assert_eq!((open.history(4), released(&mut open)), (Some(false), vec![]), "its own history comes");
    assert_eq!((open.give_up(10), open.waits_until()), (Some(4), Some(0)));
    let mut over = given_up();
    drop(over.next(5));
    assert!(!over.nobody_follows() && over.give_up(10).is_none(), "it was handed over");
}

/// A publisher that keeps all samples, and a subscriber whose channels end and come back at any time.
struct Outages {
    late: LateJoin<u64>,
    published: u64,
    now: u64,
    /// The last sample before the rest of the history, while no channel is open.
    ended_after: Option<u64>,
    history: VecDeque<u64>,
    got: Vec<(u64, bool)>,
}

impl Outages {
    fn step(&mut self, what: u8) {
        if self.late.waits_until().is_some_and(|until| until <= self.now) {
            self.late.end();
        }
        self.release();
        match (what, self.ended_after) {
            (0, ended) => self.publish(ended.is_none()),
            (1, None) => self.fetch(),
            (2, None) => self.ended_after = self.late.is_under_way().then(|| self.late.give_up(self.now)).flatten(),
            (3, Some(last)) => self.open(last),
            _ => {}
        }
        self.release();
    }

    fn release(&mut self) {
        self.got.extend(std::iter::from_fn(|| self.late.released()).map(|seq| (seq, false)));
    }

    fn publish(&mut self, is_open: bool) {
        self.published += 1;
        let seq = self.published;
        if is_open && let Verdict::Deliver { historical } = self.late.live(seq, 10, self.now, || seq) {
            self.release();
            self.got.push((seq, historical));
        }
    }

    fn fetch(&mut self) {
        let Some(seq) = self.history.pop_front() else {
            self.late.end();
            return;
        };
        let marked = self.late.history(seq);
        self.release();
        self.got.extend(marked.map(|marked| (seq, marked)));
    }

    fn open(&mut self, last: u64) {
        self.late = self.late.next(last);
        self.history = (last + 1..=self.published).collect();
        self.ended_after = None;
    }
}

proptest! {
    /// Whether samples wait for the next channel, are delivered before it opens, or find no room: all come once.
    #[test]
    fn over_any_number_of_channels_each_sample_comes_once(
        before in 0u64..8, steps in prop::collection::vec((0u8..4, 0u64..60), 0..80),
    ) {
        let history = (1..=before).collect();
        let late = LateJoin::new(0, HOLD);
        let mut all = Outages { late, published: before, now: 0, ended_after: None, history, got: Vec::new() };
        for (what, passed) in steps {
            all.now += passed;
            all.step(what);
        }
        let last = [3].into_iter().chain(std::iter::repeat_n(1, 200));
        last.for_each(|what| all.step(what));
        let mut numbers: Vec<u64> = all.got.iter().map(|(seq, _)| *seq).collect();
        numbers.sort_unstable();
        prop_assert_eq!(&numbers, &(1..=all.published).collect::<Vec<_>>(), "{:?}", all.got);
        let unmarked: Vec<u64> = all.got.iter().filter(|(_, marked)| !marked).map(|(seq, _)| *seq).collect();
        prop_assert!(unmarked.is_sorted(), "{:?}", all.got);
    }
}
