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
