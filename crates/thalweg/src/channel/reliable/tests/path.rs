//! A path that takes shorter datagrams than it did, and nobody says so.

use super::*;

/// Nothing is lost, and nothing comes twice or changed, whatever part of a message is there already.
#[test]
fn what_vanishes_because_it_is_long_is_cut_anew() {
    for (loss, size, hole) in
        [(0, 1400, 1300), (0, 1400, 600), (10, 1400, 600), (0, 100 << 10, 1300), (10, 100 << 10, 600)]
    {
        let count = if size > 2000 { 40 } else { 400 };
        let plan = Plan { size, count, period_ns: 10 * MS, window: 1024, controlled: true, ..Plan::default() };
        let mut run = Run::new(plan, 5, network(loss, 5));
        run.resume_until(0, count / 2 * plan.period_ns + 3 * MS);
        let before = run.delivered.len();
        assert!(before > 0 && before < count as usize, "{before}");
        run.hole = hole;
        run.resume_at(count / 2);
        let what =
            format!("{loss} % loss, {size} B, {hole}: {:?} {:?}", run.sender.counters(), run.receiver.counters());
        assert_eq!(run.samples(), (1..=count).collect::<Vec<_>>(), "{what}");
        assert!(run.most <= hole, "{what}");
        println!("{what}: silent for {} ms", run.silence() / MS);
    }
}

/// Two threads find out at once, and the one that found more comes last.
#[test]
fn of_two_lengths_the_shorter_one_stays() {
    let mut run = Run::new(Plan { size: 10_000, controlled: true, ..Plan::default() }, 1, network(0, 1));
    run.hole = 0;
    run.resume_until(0, 15 * MS);
    [1200, 1400].into_iter().for_each(|most| run.sender.shrink(most));
    (run.plan.count, run.hole) = (1, 1200);
    run.resume_at(1);
    assert_eq!((run.most, run.samples()), (MTU, vec![1]), "no other cut was needed");
}

/// A path that loses a third of all datagrams takes long ones.
#[test]
fn who_loses_by_chance_stays_with_long_datagrams() {
    for seed in 0..20 {
        let plan = Plan { size: 1400, count: 500, period_ns: MS, window: 1024, controlled: true, ..Plan::default() };
        let mut run = Run::new(plan, seed, network(30, 5));
        run.all();
        assert_eq!((run.most, run.delivered.len()), (MTU, 500));
    }
}

/// All that a subscriber has no memory for comes, and is asked for again: a large message, and small ones that wait for one before them.
#[test]
fn what_came_and_found_no_memory_does_not_make_datagrams_short() {
    for (loss, size) in [(0, 100 << 10), (1, 100 << 10), (3, 1400)] {
        let plan = Plan { size, count: 400, period_ns: 10 * MS, window: 1024, controlled: true, ..Plan::default() };
        let mut run = Run::new(plan, 5, network(loss, 5));
        run.budget.take(BUDGET);
        run.resume_until(0, 10_000 * MS);
        let before = (run.delivered.len(), run.sender.counters());
        run.budget.give_back(BUDGET);
        run.resume_at(400);
        let what = format!("{loss} % loss, {size} B: {before:?}, {:?}", run.sender.counters());
        println!("{what}");
        assert_eq!((run.most, run.delivered.len()), (MTU, 400), "{what}");
    }
}

/// Nothing at all comes through for a while, neither long nor short: messages requested meanwhile are retransmitted in vain. A
/// flow that competes soon retransmits nothing more; one whose rate was reserved goes on.
#[test]
fn an_outage_one_way_does_not_make_datagrams_short() {
    for (size, reserved) in [(1400, None), (1400, Some(1_000_000)), (100 << 10, None), (100 << 10, Some(1_000_000))] {
        let plan = Plan { size, count: 2, period_ns: 200 * MS, window: 1024, controlled: true, ..Plan::default() };
        let mut run = Run::new(plan, 5, network(0, 5));
        run.sender.reserve(reserved);
        run.hole = 600;
        run.resume_until(0, 470 * MS); // the subscriber knows that both are missing
        run.hole = 0;
        let before = run.sender.counters().repaired;
        run.resume_until(2, 10_000 * MS);
        let repaired = run.sender.counters().repaired - before;
        run.hole = MTU;
        run.resume_at(2);
        let what = format!("{size} B, {reserved:?}: {repaired} datagrams repeated in vain");
        println!("{what}");
        assert_eq!((run.most, run.samples()), (MTU, vec![1, 2]), "{what}");
    }
}
