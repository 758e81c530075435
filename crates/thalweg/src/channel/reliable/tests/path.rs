//! Paths: one that takes shorter datagrams than before, without an error message; and one that is slower than the publisher, with
//! congestion control, flow control and retransmits together, in virtual time.

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

/// Bytes per second of a line of 100 Mbit/s.
const LINE: u64 = 12_500_000;

/// Publishes `count` samples of `size` bytes at once over the line. Gives the run and the time that it took.
fn saturate(size: usize, count: u64, loss: f64, trip_ms: u64) -> (Run, u64) {
    let network = SimSettings {
        loss,
        delay: Duration::from_millis(trip_ms) / 2,
        rate_bytes_per_s: Some(LINE),
        queue_bytes: ((LINE * trip_ms / 1000) as usize).max(40_000),
        ..Default::default()
    };
    let plan = Plan { size, count, period_ns: 1000, window: 1024, controlled: true, ..Plan::default() };
    let mut run = Run::new(plan, 9, network);
    run.all();
    let took = run.delivered.last().map_or(u64::MAX, |last| last.1);
    (run, took)
}

#[test]
fn all_samples_arrive_and_the_line_is_full() {
    println!("size, round trip in ms, loss: goodput of the line, datagrams retransmitted per lost one, congestion");
    for (size, count) in [(1000, 8_000), (64 << 10, 160), (1 << 20, 10)] {
        for (round_trip, loss, least) in [(1, 0.0, 0.8), (1, 0.1, 0.3), (50, 0.0, 0.6), (50, 0.05, 0.25)] {
            let (run, took) = saturate(size, count, loss, round_trip);
            assert_eq!(run.samples(), (1..=count).collect::<Vec<_>>(), "{size} B, {round_trip} ms, {loss}");
            let goodput = (size as u64 * count) as f64 / (took as f64 / 1e9) / LINE as f64;
            let counters = run.network.counters();
            let gone = (counters.lost + counters.overflowed).max(1);
            let times = run.sender.counters().repaired as f64 / gone as f64;
            let congestion = run.sender.congestion();
            println!("{size:>8} {round_trip:>3} {loss:<5}: {goodput:.2}  {times:.2}  {congestion:?} {counters:?}");
            assert!(goodput > least, "{size} B, {round_trip} ms, {loss}: {goodput} of the line");
            // Each range is retransmitted once per round trip. A retransmit is lost again, or its acknowledgement is.
            assert!(times < 1.6 || gone < 20, "{size} B, {round_trip} ms, {loss}: {times} repetitions for each loss");
        }
    }
}

/// A keep-last publisher that overruns its line drops samples in its queue. Samples that have left arrive.
#[test]
fn a_queue_that_drops_goes_on_delivering() {
    let network = SimSettings {
        delay: Duration::from_millis(5),
        rate_bytes_per_s: Some(LINE),
        queue_bytes: 100_000,
        ..Default::default()
    };
    let plan = Plan {
        size: 1 << 19,
        count: 100,
        period_ns: 50 * MS,
        window: 16,
        drops_oldest: true,
        controlled: true,
        ..Plan::default()
    };
    let mut run = Run::new(plan, 5, network);
    run.all();
    assert!(run.delivered.len() >= 95, "{} of 100: {:?}", run.delivered.len(), run.sender.counters());
}
