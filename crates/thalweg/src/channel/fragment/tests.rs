use super::*;
use proptest::prelude::*;

const TIMEOUT: u64 = 100;

fn content(sample: u64, total: usize) -> Vec<u8> {
    (0..total).map(|i| (i as u64 * 7 + sample) as u8).collect()
}

fn budget(bytes: usize) -> Arc<Account> {
    Account::new(bytes)
}

fn offer(r: &mut Reassembly, now: u64, sample: u64, total: usize, piece: (usize, usize)) -> Result<bool, Refused> {
    let message = content(sample, total);
    let at = Fragment { offset: piece.0 as u32, total: total as u32 };
    let whole = r.insert(now, sample, at, &message[piece.0..piece.0 + piece.1])?;
    assert!(whole.is_none_or(|w| w == message), "a message came back changed");
    Ok(whole.is_some())
}

#[test]
fn pieces_cover_the_message_once() {
    assert_eq!(fragments(10, 4).collect::<Vec<_>>(), [(0, 4), (4, 4), (8, 2)]);
    assert_eq!(fragments(8, 4).collect::<Vec<_>>(), [(0, 4), (4, 4)]);
    assert_eq!(fragments(0, 4).collect::<Vec<_>>(), [(0, 0)]);
}

#[test]
fn any_order_completes_also_the_last_piece_first() {
    let mut r = Reassembly::new(1000, TIMEOUT, budget(10_000));
    for (sample, order) in [(1, [0, 1, 2]), (2, [2, 1, 0]), (3, [1, 2, 0]), (4, [2, 0, 1])] {
        let pieces: Vec<_> = fragments(10, 4).collect();
        let done: Vec<_> = order.iter().map(|i| offer(&mut r, 0, sample, 10, pieces[*i]).unwrap()).collect();
        assert_eq!(done, [false, false, true]);
        assert_eq!(offer(&mut r, 0, sample, 10, pieces[0]), Err(Refused::Duplicate), "after completion");
    }
    assert_eq!((r.counters().complete, r.counters().duplicate), (4, 4));
    assert_eq!(offer(&mut r, 0, 9, 0, (0, 0)), Ok(true), "an empty message");
}

#[test]
fn other_geometry_is_refused_and_the_message_still_completes() {
    let mut r = Reassembly::new(1000, TIMEOUT, budget(10_000));
    assert_eq!(offer(&mut r, 0, 1, 10, (4, 4)), Ok(false));
    for wrong in [(0, 3), (2, 4), (0, 8), (5, 5), (9, 1), (0, 10), (3, 0)] {
        assert_eq!(offer(&mut r, 0, 1, 10, wrong), Err(Refused::Inconsistent), "{wrong:?}");
    }
    assert_eq!(offer(&mut r, 0, 1, 11, (0, 4)), Err(Refused::Inconsistent), "another total");
    assert_eq!(offer(&mut r, 0, 1, 10, (4, 4)), Err(Refused::Duplicate));
    assert_eq!(offer(&mut r, 0, 1, 10, (8, 2)), Ok(false));
    assert_eq!(offer(&mut r, 0, 1, 10, (0, 4)), Ok(true));
    assert_eq!(offer(&mut r, 0, 2, 1001, (0, 4)), Err(Refused::Inconsistent), "over max_message");
}

/// A retransmit had to cut the message into smaller pieces: the larger pieces that are here are given up for them, and larger ones
/// that come late have no effect.
#[test]
fn a_message_that_is_repeated_in_smaller_pieces_becomes_whole() {
    let (old, new): (Vec<_>, Vec<_>) = (fragments(2000, 1440).collect(), fragments(2000, 1160).collect());
    for before in [&old[..1], &old[1..]] {
        for turned in [false, true] {
            let mut r = Reassembly::with_slots(2, 4000, TIMEOUT, budget(10_000));
            before.iter().for_each(|at| assert_eq!(offer(&mut r, 0, 1, 2000, *at), Ok(false)));
            // The first of them may be refused: missing pieces are requested again.
            let mut pieces = new.clone();
            if turned {
                pieces.reverse();
            }
            let whole = (0..3).any(|_| pieces.iter().any(|at| offer(&mut r, 0, 1, 2000, *at) == Ok(true)));
            assert!(whole, "{before:?} {turned}");
        }
    }
    let mut r = Reassembly::with_slots(2, 4000, TIMEOUT, budget(10_000));
    assert_eq!(offer(&mut r, 0, 1, 3000, (0, 1000)), Ok(false));
    assert_eq!(offer(&mut r, 0, 1, 3000, (0, 1440)), Err(Refused::Inconsistent));
    assert_eq!(r.missing(1, true).collect::<Vec<_>>(), [(1000, 3000)]);
}

#[test]
fn time_runs_out_and_idle_memory_goes_back() {
    let left = budget(1000);
    let mut r = Reassembly::new(1000, TIMEOUT, left.clone());
    offer(&mut r, 5, 1, 10, (0, 4)).unwrap();
    assert_eq!(r.next_deadline(), Some(105));
    r.expire(104);
    assert_eq!(r.counters().timed_out, 0);
    r.expire(105);
    assert_eq!((r.counters().timed_out, r.next_deadline()), (1, Some(5 + 10 * TIMEOUT)));
    assert!(left.used() > 0);
    r.expire(5 + 10 * TIMEOUT);
    assert_eq!((left.used(), r.next_deadline()), (0, None));
}

#[test]
fn a_third_message_pushes_out_the_oldest_and_an_older_one_nothing() {
    let mut r = Reassembly::new(1000, TIMEOUT, budget(10_000));
    for sample in [5, 6, 7] {
        offer(&mut r, 0, sample, 10, (0, 4)).unwrap();
    }
    assert_eq!(offer(&mut r, 0, 5, 10, (4, 4)), Err(Refused::Outdated));
    for sample in [6, 7] {
        offer(&mut r, 0, sample, 10, (4, 4)).unwrap();
        assert_eq!(offer(&mut r, 0, sample, 10, (8, 2)), Ok(true));
    }
    assert_eq!((r.counters().evicted, r.counters().outdated, r.counters().complete), (1, 1, 2));
}

#[test]
fn the_node_budget_holds_over_all_flows_and_equal_sizes_pay_once() {
    let left = budget(150);
    let mut one = Reassembly::new(1000, TIMEOUT, left.clone());
    let mut two = Reassembly::new(1000, TIMEOUT, left.clone());
    for sample in 0..20 {
        fragments(100, 30).for_each(|piece| assert!(offer(&mut one, 0, sample, 100, piece).is_ok()));
    }
    assert_eq!(left.used(), 100 + 8, "a buffer and a word of bitmap");
    assert_eq!(offer(&mut two, 0, 1, 100, (0, 30)), Err(Refused::OverBudget));
    assert_eq!(two.counters().over_budget, 1);
    drop(one);
    assert_eq!(offer(&mut two, 0, 1, 100, (0, 30)), Ok(false));
    drop(two);
    assert_eq!(left.used(), 0);
}

proptest! {
    /// Against brute force: a message completes exactly when its last distinct piece arrives, if it was never pushed out.
    #[test]
    fn completes_exactly_when_all_pieces_were_seen(
        total in 0usize..600, step in 1usize..200, picks in prop::collection::vec((0usize..2, any::<prop::sample::Index>()), 0..80),
    ) {
        let mut r = Reassembly::new(600, TIMEOUT, budget(10_000));
        let pieces: Vec<_> = fragments(total, step).collect();
        let mut seen = [vec![false; pieces.len()], vec![false; pieces.len()]];
        for (message, pick) in picks {
            let i = pick.index(pieces.len());
            let complete_before = seen[message].iter().all(|s| *s);
            let again = std::mem::replace(&mut seen[message][i], true);
            let complete = seen[message].iter().all(|s| *s);
            let want = if complete_before || again { Err(Refused::Duplicate) } else { Ok(complete) };
            prop_assert_eq!(offer(&mut r, 0, message as u64, total, pieces[i]), want);
        }
    }

    #[test]
    fn arbitrary_fragments_never_panic_and_stay_in_the_budget(
        all in prop::collection::vec((0u64..4, 0u32..100, 0u32..100, 0usize..50, 0u64..50), 0..100),
    ) {
        let left = budget(150);
        let mut r = Reassembly::new(90, TIMEOUT, left.clone());
        let mut now = 0;
        for (sample, offset, total, length, step) in all {
            now += step;
            let _ = r.insert(now, sample, Fragment { offset, total }, &vec![0; length]);
            prop_assert!(left.used() <= 150);
        }
        drop(r);
        prop_assert_eq!(left.used(), 0);
    }
}

/// A message of three pieces of 4 bytes and one parity piece of each.
fn parity(sample: u64, total: usize, count: usize) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    parity::Encoder::default().encode(&content(sample, total), 4, count, &mut pieces).unwrap();
    pieces.chunks(4).map(<[u8]>::to_vec).collect()
}

#[test]
fn parity_makes_up_for_lost_pieces_whichever_come_first() {
    for order in [[0, 2, 3], [3, 0, 2], [2, 3, 1], [1, 3, 0]] {
        let mut r = Reassembly::new(1000, TIMEOUT, budget(10_000));
        let (message, pieces, extra) = (content(1, 10), fragments(10, 4).collect::<Vec<_>>(), parity(1, 10, 1));
        let mut whole = Vec::new();
        for which in order {
            let came = match pieces.get(which) {
                Some((from, length)) => {
                    let at = Fragment { offset: *from as u32, total: 10 };
                    r.insert(0, 1, at, &message[*from..from + length]).unwrap().map(<[u8]>::to_vec)
                }
                None => {
                    let at = Parity { index: 0, count: 1, total: 10 };
                    r.insert_parity(0, 1, at, &extra[0]).unwrap().map(<[u8]>::to_vec)
                }
            };
            whole.push(came);
        }
        assert_eq!(whole, [None, None, Some(message)], "{order:?}");
        assert_eq!((r.counters().complete, r.counters().restored), (1, 1));
    }
}

#[test]
fn parity_that_does_not_fit_is_refused_and_paid_for() {
    let left = budget(1000);
    let mut r = Reassembly::new(1000, TIMEOUT, left.clone());
    let mut offer = |total, index, count, length: usize| {
        r.insert_parity(0, 1, Parity { index, count, total }, &vec![7; length]).map(|whole| whole.is_some())
    };
    assert_eq!(offer(10, 0, 2, 4), Ok(false));
    for (total, index, count, length) in [
        (10, 2, 2, 4),
        (10, 1, 3, 4),
        (10, 1, 2, 6),
        (12, 1, 2, 4),
        (10, 1, 2, 3),
        (10, 1, 2, 0),
        (10, 1, 2, 10),
        (2000, 1, 2, 4),
    ] {
        assert_eq!(offer(total, index, count, length), Err(Refused::Inconsistent), "{total} {index} {count} {length}");
    }
    assert_eq!(offer(10, 0, 2, 4), Err(Refused::Duplicate));
    assert_eq!(left.used(), 10 + 8 + 4);
    drop(r);
    assert_eq!(left.used(), 0);
}
