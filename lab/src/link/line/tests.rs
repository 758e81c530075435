//! In virtual time.

use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// All frames of a run `(arrival ns, length)` as `(number, leaves at)`, in the order in which they leave.
fn run(behaviour: Behaviour, seed: u64, arrivals: &[(u64, u64)]) -> (Vec<(usize, u64)>, Counts) {
    let mut line = Line::new(behaviour, seed);
    let mut left = Vec::new();
    for (number, (now, length)) in arrivals.iter().enumerate() {
        while let Some(leaving) = line.leave(*now) {
            left.push((leaving.frame, leaving.at));
        }
        line.arrive(*now, *length, number);
    }
    while let Some(leaving) = line.leave(u64::MAX) {
        left.push((leaving.frame, leaving.at));
    }
    (left, line.counts())
}

#[test]
fn a_line_that_does_nothing_lets_frames_leave_as_they_come() {
    let (left, counts) = run(Behaviour::default(), 1, &[(5, 100), (5, 1500), (9, 60)]);
    assert_eq!(left, [(0, 5), (1, 5), (2, 9)]);
    assert_eq!((counts.arrived, counts.released), (3, 3));
}

#[test]
fn a_stand_still_delays_what_comes_before_the_line_was_idle_again() {
    let stood = StandStill { ns: 5, to_ns: 100, drained_ns: Some(200) };
    assert_eq!([90, 95, 98, 100, 199, 200].map(|from| stood.delays(from)), [0, 0, 3, 5, 5, 0]);
    assert_eq!(StandStill { drained_ns: None, ..stood }.delays(u64::MAX), 5);
    let stood = StandStill { ns: 50, ..stood };
    assert_eq!([0, 80, 100, 150, 190, 200].map(|from| stood.left(from)), [0, 30, 50, 25, 5, 0]);
}

#[test]
fn a_rate_and_a_delay_add_up() {
    // 1250 bytes at 10 Mbit/s take 1 ms.
    let behaviour =
        Behaviour { rate: Some(10_000_000), delay: Duration::from_millis(10), queue: 2500, ..Behaviour::default() };
    let (left, counts) = run(behaviour, 1, &[(0, 1250), (0, 1250), (0, 1250), (20 * MS, 1250)]);
    assert_eq!(left, [(0, 11 * MS), (1, 12 * MS), (3, 31 * MS)]);
    assert_eq!(counts.overflowed, 1, "the third finds one in transmission and one waiting");
}

#[test]
fn bits_are_accounted_for_where_the_line_was_busy() {
    let behaviour = Behaviour { rate: Some(8_000_000), loss: 0.3, queue: 1 << 30, ..Behaviour::default() };
    let mut line = Line::new(behaviour, 7);
    for number in 0..1000 {
        line.arrive(0, 1000, number);
    }
    let (mut last, mut bits, mut time) = (None, 0, 0);
    while let Some(leaving) = line.leave(u64::MAX) {
        if let (Some(since), Some(sent)) = (last, leaving.back_to_back) {
            bits += sent;
            time += leaving.at - since;
        }
        last = Some(leaving.at);
    }
    assert_eq!(bits * 1_000_000_000 / time, 8_000_000, "lost frames use the line, too");
}

fn arrivals() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gaps = prop::collection::vec((0..2 * MS, 60..1514u64), 1..200);
    gaps.prop_map(|gaps| {
        let mut now = 0;
        let at = |(gap, length)| {
            now += gap;
            (now, length)
        };
        gaps.into_iter().map(at).collect()
    })
}

fn behaviours() -> impl Strategy<Value = Behaviour> {
    let (times, shares) = ((0..50u64, 0..20u64), (0.0..0.5, 0.0..0.5));
    let rates = (prop::option::of(100_000..1_000_000_000u64), 2000..200_000u64);
    (times, shares, rates).prop_map(|((delay, jitter), (loss, reorder), (rate, queue))| Behaviour {
        delay: Duration::from_millis(delay),
        jitter: Duration::from_millis(jitter),
        loss,
        reorder,
        rate,
        queue,
        periodic: false,
    })
}

proptest! {
    #[test]
    fn every_frame_is_accounted_for(behaviour in behaviours(), seed: u64, frames in arrivals()) {
        let (left, counts) = run(behaviour, seed, &frames);
        prop_assert_eq!(counts.arrived, frames.len() as u64);
        prop_assert_eq!(counts.arrived, counts.overflowed + counts.lost + counts.released);
        prop_assert_eq!(left.len() as u64, counts.released);
        prop_assert!(left.windows(2).all(|pair| pair[0].1 <= pair[1].1), "released by time");
    }

    #[test]
    fn the_same_seed_gives_the_same_run(behaviour in behaviours(), seed: u64, frames in arrivals()) {
        prop_assert_eq!(run(behaviour, seed, &frames), run(behaviour, seed, &frames));
    }

    #[test]
    fn no_frame_is_early_and_none_overtakes_unless_asked(behaviour in behaviours(), seed: u64, frames in arrivals()) {
        let behaviour = Behaviour { reorder: 0.0, ..behaviour };
        let (left, _) = run(behaviour, seed, &frames);
        let least = nanoseconds(behaviour.delay.saturating_sub(behaviour.jitter));
        for (number, at) in &left {
            prop_assert!(*at >= frames[*number].0 + least);
        }
        prop_assert!(left.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order, whatever the jitter");
    }

    #[test]
    fn the_rate_is_never_exceeded(rate in 1_000_000..1_000_000_000u64, seed: u64, frames in arrivals()) {
        let behaviour = Behaviour { rate: Some(rate), queue: 1 << 40, ..Behaviour::default() };
        let (left, _) = run(behaviour, seed, &frames);
        // From any frame to any later one: at least the transmission time of the frames in between.
        for pair in left.windows(2) {
            let bits = frames[pair[1].0].1 * 8;
            let least = u128::from(bits) * 1_000_000_000 / u128::from(rate);
            prop_assert!(u128::from(pair[1].1 - pair[0].1) >= least);
        }
    }

    #[test]
    fn a_full_queue_holds_no_more_than_it_may(queue in 1514..50_000u64, seed: u64, frames in arrivals()) {
        let behaviour = Behaviour { rate: Some(1_000_000), queue, ..Behaviour::default() };
        let (left, _) = run(behaviour, seed, &frames);
        for (number, at) in left {
            // An accepted frame waits for at most the queue, and is then sent itself: 8 µs a byte.
            prop_assert!(at - frames[number].0 <= (queue + 1) * 8000, "frame {}", number);
        }
    }

    #[test]
    fn losses_come_near_the_share(seed: u64) {
        let frames: Vec<(u64, u64)> = (0..20_000).map(|n| (n * 1000, 100)).collect();
        let (_, counts) = run(Behaviour { loss: 0.1, reorder: 0.05, ..Behaviour::default() }, seed, &frames);
        // Six standard deviations of a binomial distribution.
        prop_assert!((1745..=2255).contains(&counts.lost), "{:?}", counts);
        prop_assert!((715..=1085).contains(&counts.reordered), "{:?}", counts);
    }
}

#[test]
fn a_steady_sender_is_one_frame_ahead_and_a_burst_more() {
    // 8 Gbit/s: a byte in a nanosecond.
    let mut even = RateExcess::new(Some(8_000_000_000));
    (1..100).for_each(|n| even.left(n * 1000, 1000));
    assert_eq!(even.most(), 1000);
    even.left(99_500, 1000);
    even.left(99_600, 1000);
    assert_eq!(even.most(), 2400, "1000 at 99,000, and 2000 within 600 ns");
    let mut none = RateExcess::new(None);
    (0..100).for_each(|_| none.left(5, 1000));
    assert_eq!(none.most(), 0);
}
