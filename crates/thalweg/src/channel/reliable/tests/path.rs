//! A path that takes shorter datagrams than before, without an error message.

use super::*;

/// All messages arrive once and unchanged, whichever of their parts have arrived before.
#[test]
fn a_message_lost_for_its_length_is_cut_into_shorter_datagrams() {
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

/// Two threads find a shorter length at once. The one with the longer of the two reports last.
#[test]
fn the_shorter_of_two_lengths_stays() {
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
fn random_loss_does_not_make_datagrams_short() {
    for seed in 0..20 {
        let plan = Plan { size: 1400, count: 500, period_ns: MS, window: 1024, controlled: true, ..Plan::default() };
        let mut run = Run::new(plan, seed, network(30, 5));
        run.all();
        assert_eq!((run.most, run.delivered.len()), (MTU, 500));
    }
}

/// A subscriber without memory drops messages that arrive and requests them again: a large one, or small ones behind a missing one.
#[test]
fn messages_dropped_for_lack_of_memory_do_not_make_datagrams_short() {
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

/// No datagram, long or short, comes through for a while: messages requested meanwhile are retransmitted in vain. A
/// competing flow soon stops its retransmits; a flow with a reserved rate continues them.
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
