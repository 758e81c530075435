//! Both ends over a simulated network, in virtual time.

mod outage;
mod path;
mod run;
mod silent;

use super::*;
use crate::carrier::sim::SimSettings;
use crate::channel::bucket::Limit;
use crate::channel::buffer::Pool;
use crate::channel::outgoing::Outgoing;
use crate::wire::feedback::Acknowledgement;
use crate::wire::{Header, Kind, datagram};
use proptest::prelude::*;
use run::{BUDGET, FLOW, MAX_MESSAGE, MOST, MS, MTU, Plan, Run, network};
use std::time::Duration;

#[test]
fn samples_arrive_once_and_in_order_over_any_network() {
    for loss in [0, 1, 10, 30] {
        for delay in [0, 5, 50] {
            for (size, count) in [(0, 200), (64, 1000), (8 << 10, 200), (100 << 10, 40)] {
                let period_ns = if size > 50_000 { 50 * MS } else { 10 * MS };
                let plan = Plan { size, count, period_ns, ..Plan::default() };
                let mut run = Run::new(plan, u64::from(loss) + delay, network(loss, delay));
                run.all();
                let what = format!(
                    "{loss} % loss, {delay} ms, {size} B: {:?} {:?}",
                    run.sender.counters(),
                    run.receiver.counters()
                );
                assert_eq!(run.samples(), (1..=count).collect::<Vec<_>>(), "{what}");
                assert_eq!((run.sender.unacknowledged(), run.receiver.counters().skipped), (0, 0), "{what}");
                if loss == 0 {
                    assert_eq!(run.sender.counters().repaired, 0, "{what}");
                    assert!(run.receiver.counters().acknowledgements <= count / 16 + 10, "{what}");
                }
                println!("{what}: {} frames", run.frames);
            }
        }
    }
}

#[test]
fn with_a_deadline_nobody_is_silent_for_long_and_nothing_stale_comes() {
    let (paths, kinds) = ([(1, 100), (20, 100), (50, 200)], [(30, false), (30, true), (5, false), (5, true)]);
    for ((delay, deadline), (loss, controlled)) in paths.into_iter().flat_map(|path| kinds.map(|kind| (path, kind))) {
        let plan = Plan { count: 6000, deadline_ns: Some(deadline * MS), controlled, ..Plan::default() };
        let mut run = Run::new(plan, 26, SimSettings { jitter: Duration::ZERO, ..network(loss, delay) });
        run.all();
        let (samples, skipped) = (run.samples(), run.receiver.counters().skipped);
        let learnt = run.delivered.iter().position(|d| d.0 > 200).unwrap();
        let silence = run.delivered[learnt..].windows(2).map(|pair| pair[1].1 - pair[0].1).max().unwrap();
        let (limit, slack) = (2 * 2 * delay * MS + plan.period_ns, 2 * MS);
        println!(
            "delay {delay} ms, {loss} % lost, controlled {controlled}: silence {} ms of {} allowed, {} skipped, {} frames, loss {:.2}",
            silence as f64 / 1e6,
            limit as f64 / 1e6,
            skipped,
            run.frames,
            run.sender.loss()
        );
        assert!(samples.is_sorted_by(|a, b| a < b));
        run.assert_all_are_accounted_for(6000);
        assert!(
            silence <= limit + slack,
            "{delay} ms: silent for {} ms, {} allowed",
            silence as f64 / 1e6,
            limit as f64 / 1e6
        );
        let oldest = run.delivered.iter().map(|d| d.1 - d.2).max().unwrap();
        assert!(oldest <= deadline * MS + delay * MS + slack, "a sample of {} ms came", oldest as f64 / 1e6);
        // Copies that leave unasked are enough: 1 in 10⁴ at most are lost with all of them, and more while the loss is learned.
        assert!(skipped <= 15, "{delay} ms, {loss} %, controlled {controlled}: {skipped} of 6000 skipped");
        assert!(run.frames < 6000 * if loss == 30 { 7 } else { 3 }, "{} frames for 6000 samples", run.frames);
    }
}

#[test]
fn keep_last_drops_the_oldest_and_nobody_waits_for_it() {
    let mut run = Run::new(
        Plan { window: 4, drops_oldest: true, count: 2000, period_ns: MS, ..Plan::default() },
        3,
        network(30, 20),
    );
    run.all();
    let (samples, counters) = (run.samples(), run.receiver.counters());
    assert!(samples.is_sorted_by(|a, b| a < b), "out of order");
    assert_eq!(samples.last(), Some(&2000), "the last four are kept until they are there");
    run.assert_all_are_accounted_for(2000);
    assert!(counters.skipped > 0);
    assert!(run.silence() < 200 * MS, "silent for {} ms", run.silence() / MS);
    assert_eq!(run.budget.used(), 0, "held memory is given back");
}

#[test]
fn after_an_outage_a_flow_is_back_within_a_second_without_stale_data() {
    let plan = Plan { count: 2000, deadline_ns: Some(50 * MS), drops_oldest: true, ..Plan::default() };
    let mut run = Run::new(plan, 5, network(0, 5));
    let cut = |run: &mut Run, loss| run.network.set(SimSettings { mtu: MTU, ..network(loss, 5) });
    run.plan.count = 500;
    run.all();
    cut(&mut run, 100);
    // Ten seconds of silence: messages of that time are of no use any more.
    run.plan.count = 1500;
    run.resume_until(500, 15_000 * MS);
    cut(&mut run, 0);
    run.plan.count = 2000;
    run.resume_at(1500);
    let back = run.delivered.iter().find(|d| d.0 > 500).unwrap();
    assert!(back.0 >= 1494, "stale sample {}", back.0);
    assert!(back.1 <= 15_100 * MS, "back at {} ms", back.1 / MS);
    assert_eq!(run.samples().last(), Some(&2000));
    run.assert_all_are_accounted_for(2000);
}

/// 1080p pictures in JPEG at 10 Hz take 60 % of 20 Mbit/s; 5 % of the datagrams are lost each way. Missing parts of a
/// picture are requested and retransmitted while the rest of it is still on its way.
#[test]
fn pictures_over_a_narrow_link_that_loses_are_whole_before_the_next_one() {
    let network = SimSettings {
        loss: 0.05,
        delay: Duration::from_millis(10),
        rate_bytes_per_s: Some(2_500_000),
        queue_bytes: 1_500_000,
        ..Default::default()
    };
    for (controlled, usual) in [(false, 100), (true, 150)] {
        let plan = Plan {
            size: 150_000,
            count: 600,
            period_ns: 100 * MS,
            window: 4,
            drops_oldest: true,
            lifespan_ns: Some(250 * MS),
            controlled,
            ..Plan::default()
        };
        let mut run = Run::new(plan, 5, network);
        run.all();
        let mut ages: Vec<u64> = run.delivered.iter().map(|d| (d.1 - d.2) / 1000).collect();
        ages.sort_unstable();
        let [p50, p90] = [ages[ages.len() / 2], ages[ages.len() * 9 / 10]];
        let repaired = run.sender.counters().repaired;
        println!(
            "controlled {controlled}: {} of 600 pictures, p50 {p50} µs, p90 {p90} µs, {repaired} datagrams repeated, {} frames, {:?}",
            ages.len(),
            run.frames,
            run.sender.congestion()
        );
        run.assert_all_are_accounted_for(600);
        assert!(p50 < usual * 1000, "controlled {controlled}: p50 {p50} µs");
        assert!(ages.len() > 560, "controlled {controlled}: {} of 600", ages.len());
        // 5 % of the fragments, retransmits that are lost again, and a few fragments that were still on their way.
        assert!(repaired < run.frames / 12, "controlled {controlled}: {repaired} of {} frames", run.frames);
    }
}

/// The subscriber already has the beginning of a picture, and misses a part of it, while the socket still takes the end.
#[test]
fn missing_parts_of_a_message_are_retransmitted_once_all_of_it_has_left() {
    let mut run = Run::new(Plan { size: 10_000, ..Plan::default() }, 1, network(0, 1));
    let (entry, sequence) = (run.message(MS, 1), run.sequence);
    let mut writer = crate::wire::feedback::Writer::default();
    writer.push(crate::wire::feedback::Gap { first: sequence, count: 1, from: 1000, to: 1500 });
    let kind = Kind::Acknowledgement;
    let head = Header { length: 0, kind, flags: 0, flow: FLOW, sequence, sample: 0, stamp_ns: 0 };
    let bytes = writer.finish(head, sequence.wrapping_add(1), 0).to_vec();
    let (header, payload) = datagram(&bytes, MAX_MESSAGE, Some(FLOW)).unwrap();
    let said = Acknowledgement::parse(payload).unwrap();
    run.sender.acknowledge(2 * MS, 1, sequence.wrapping_add(1), &header, &said).unwrap();
    assert!(run.sender.poll(2 * MS).is_none(), "it has not left");
    assert_eq!(run.sender.sent(3 * MS, sequence, entry), Some(3 * MS));
    assert!(matches!(run.sender.poll(3 * MS), Some(Action::Retransmit { bytes, .. }) if bytes == (1000..1500)));
    assert!(run.sender.poll(3 * MS).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_network_and_window(seed: u64, loss in 0u32..40, delay in 0u64..30, size in 0usize..20_000, window in 1usize..100, period in 0u64..20, controlled: bool) {
        let plan = Plan { count: 60, size, window, period_ns: period * MS + 1, controlled, ..Plan::default() };
        let mut run = Run::new(plan, seed, network(loss, delay));
        run.all();
        prop_assert_eq!(run.samples(), (1..=60).collect::<Vec<_>>());
    }

    /// Both ends count the same number of messages given up, for age or for newer messages.
    #[test]
    fn both_ends_agree_on_what_was_given_up(
        seed: u64, loss in 0u32..45, delay in 0u64..30, size in 0usize..6000, window in 1usize..20, period in 0u64..20,
        drops_oldest: bool, controlled: bool, deadline in prop::option::of(5u64..100), lifespan in prop::option::of(5u64..100),
    ) {
        let (deadline_ns, lifespan_ns) = (deadline.map(|ms| ms * MS), lifespan.map(|ms| ms * MS));
        let period_ns = period * MS + 1;
        let plan =
                Plan { count: 60, size, window, period_ns, drops_oldest, deadline_ns, lifespan_ns, controlled };
        let mut run = Run::new(plan, seed, network(loss, delay));
        run.all();
        run.assert_all_are_accounted_for(60);
    }

    #[test]
    fn hostile_feedback_is_harmless(said in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>(), 1u32..5000), 1..50)) {
        let mut run = Run::new(Plan { count: 20, ..Plan::default() }, 1, network(100, 0));
        for (sequence, first, seen, count) in said {
            let entry = run.message(1, 1);
            run.waiting.push_back(entry);
            run.send_waiting(1);
            let mut writer = crate::wire::feedback::Writer::default();
            writer.push(crate::wire::feedback::Gap::messages(first, count));
            let head = Header { length: 0, kind: Kind::KeepAlive, flags: 4, flow: FLOW, sequence, sample: 9, stamp_ns: 1 };
            let bytes = writer.finish(head, seen, 0).to_vec();
            let (header, payload) = datagram(&bytes, MAX_MESSAGE, Some(FLOW)).unwrap();
            let said = Acknowledgement::parse(payload).unwrap();
            let _ = run.sender.acknowledge(2, 1, run.sequence, &header, &said);
            run.receiver.keep_alive(2, &header);
            let _ = (run.receiver.ready(3), run.sender.next_deadline(), run.receiver.next_deadline());
            let _ = run.receiver.acknowledgement(3, &run.reassembly);
        }
        let mut now = 4;
        while let Some(at) = run.sender.next_deadline().filter(|at| *at < 10_000 * MS) {
            now = at.max(now + 1);
            while run.sender.poll(now).is_some() {}
        }
    }
}

#[test]
fn a_path_that_loses_a_third_each_way_delivers() {
    let plan = Plan { count: 60, size: 9782, window: 16, period_ns: 5 * MS + 1, controlled: true, ..Plan::default() };
    let mut run = Run::new(plan, 6254943093354023195, network(37, 27));
    assert_eq!(run.all().samples(), (1..=60).collect::<Vec<_>>());
}

/// Regression: keep-alives, which all have one name, were counted as in flight for good. The window stayed full, and no message
/// left.
#[test]
fn keep_alives_that_are_lost_do_not_fill_the_window() {
    let plan = Plan { count: 60, size: 10333, window: 6, period_ns: 7 * MS + 1, controlled: true, ..Plan::default() };
    let mut run = Run::new(plan, 12926567961377174101, network(39, 0));
    assert_eq!(run.all().samples(), (1..=60).collect::<Vec<_>>());
}

/// No other message was unacknowledged, and the datagram that asked for a receipt was lost.
#[test]
fn a_sender_that_waits_for_a_receipt_with_a_partly_sent_message_asks_again() {
    let plan = Plan { count: 60, size: 11350, window: 4, period_ns: 2 * MS + 1, controlled: true, ..Plan::default() };
    let mut run = Run::new(plan, 17330028303017922076, network(21, 25));
    assert_eq!(run.all().samples(), (1..=60).collect::<Vec<_>>());
}

#[test]
fn as_the_rfc_computes_it() {
    let mut round_trip = RoundTrip::default();
    assert_eq!(round_trip.patience_ns(), INITIAL_NS + GRANULARITY_NS);
    round_trip.measured(100_000_000);
    assert_eq!(round_trip.patience_ns(), 300_000_000);
    round_trip.measured(180_000_000);
    assert_eq!((round_trip.smoothed_ns(), round_trip.variation), (110_000_000, 57_500_000));
    (0..200).for_each(|_| round_trip.measured(1_000));
    assert_eq!((round_trip.smoothed_ns() / 1000, round_trip.patience_ns() / 100_000), (1, 10));
}
