//! A publisher that is faster than its path: congestion control, flow control and retransmits together, in virtual time.

use super::*;

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
    println!("size, trip ms, loss: goodput of the line, datagrams per lost one repeated, congestion");
    for (size, count) in [(1000, 8_000), (64 << 10, 160), (1 << 20, 10)] {
        for (trip, loss, least) in [(1, 0.0, 0.8), (1, 0.1, 0.3), (50, 0.0, 0.6), (50, 0.05, 0.25)] {
            let (run, took) = saturate(size, count, loss, trip);
            assert_eq!(run.samples(), (1..=count).collect::<Vec<_>>(), "{size} B, {trip} ms, {loss}");
            let goodput = (size as u64 * count) as f64 / (took as f64 / 1e9) / LINE as f64;
            let counters = run.network.counters();
            let gone = (counters.lost + counters.overflowed).max(1);
            let times = run.sender.counters().repaired as f64 / gone as f64;
            let congestion = run.sender.congestion();
            println!("{size:>8} {trip:>3} {loss:<5}: {goodput:.2}  {times:.2}  {congestion:?} {counters:?}");
            assert!(goodput > least, "{size} B, {trip} ms, {loss}: {goodput} of the line");
            // Each range is retransmitted once per round trip. A retransmit is lost again, or its acknowledgement is.
            assert!(times < 1.6 || gone < 20, "{size} B, {trip} ms, {loss}: {times} repetitions for each loss");
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
