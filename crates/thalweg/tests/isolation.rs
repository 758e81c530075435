//! A stopped subscriber costs the others nothing (F-8): one publisher process at 1 kHz, eight subscriber processes, one
//! of them stopped, on each carrier.

#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use serde_json::Value;
use world::agent::{Agent, number};
use world::{World, figure};

const CARRIERS: [&str; 4] = ["tcp", "udp", "mcast", "shm"];

#[test]
fn a_stopped_subscriber_delays_nobody_over_tcp() {
    stopped_over("tcp", 1500);
}
#[test]
fn a_stopped_subscriber_delays_nobody_over_udp() {
    stopped_over("udp", 1500);
}
#[test]
fn a_stopped_subscriber_delays_nobody_over_mcast() {
    stopped_over("mcast", 1500);
}
#[test]
fn a_stopped_subscriber_delays_nobody_over_shm() {
    stopped_over("shm", 1500);
}

/// Paired runs on every carrier, for a quiet machine: `THALWEG_TEST_LONG=1 cargo test --release -- --ignored --nocapture paired`
#[test]
#[ignore = "takes minutes and measures: wants a quiet machine"]
fn paired_runs_of_the_other_seven() {
    if !world::long() {
        return world::skipped("THALWEG_TEST_LONG is not set");
    }
    let mut wrong = Vec::new();
    for carrier in CARRIERS {
        let pairs: Vec<Pair> = (0..5).map(|_| stopped_over(carrier, 4000)).collect();
        let ratio = |of: fn(&Pair) -> f64| world::median(pairs.iter().map(of).collect());
        let (p50, p99) = (ratio(|p| p.p50.1 / p.p50.0), ratio(|p| p.p99.1 / p.p99.0));
        let (call50, call99) = (ratio(|p| p.call_p50.1 / p.call_p50.0), ratio(|p| p.call_p99.1 / p.call_p99.0));
        figure(
            "isolation",
            format!(
                "{carrier}: medians of 5 ratios: latency p50 {p50:.3}, p99 {p99:.3}; publish p50 {call50:.3}, p99 {call99:.3}"
            ),
        );
        if p50 > 1.10 || p99 > 1.5 {
            wrong.push(carrier);
        }
    }
    assert!(wrong.is_empty(), "beyond 10 % at p50 or 1.5 at p99: {wrong:?}");
}

/// Figures before and during the stop of one subscriber.
struct Pair {
    p50: (f64, f64),
    p99: (f64, f64),
    call_p50: (f64, f64),
    call_p99: (f64, f64),
}

fn stopped_over(carrier: &str, count: u64) -> Pair {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/imu");
    let subscriber = |i| Agent::start(&world, &format!("subscriber topic=/imu name=/s{i} carriers={carrier}"));
    let mut subscribers: Vec<Agent> = (0..8).map(subscriber).collect();
    publisher.connected(8);
    subscribers.iter_mut().for_each(|s| s.connected(1));
    let run = format!("publish count={count}");
    publisher.ask("publish count=300"); // warm
    let before = segment(&mut publisher, &mut subscribers, &run, carrier);
    let mut stopped = subscribers.pop().unwrap();
    stopped.stop();
    let during = segment(&mut publisher, &mut subscribers, &run, carrier);
    stopped.go_on();
    latest_soon(&mut publisher, &mut stopped, carrier);
    let pair = |key| (number(&before.0, key), number(&during.0, key));
    let publish = |key| (number(&before.1, key), number(&during.1, key));
    let pair = Pair { p50: pair("p50"), p99: pair("p99"), call_p50: publish("p50"), call_p99: publish("p99") };
    let Pair { p50, p99, call_p50, call_p99 } = &pair;
    figure(
        "isolation",
        format!(
            "{carrier}: of the other seven p50 {p50:.1?} p99 {p99:.1?}, publish() p50 {call_p50:.1?} p99 {call_p99:.1?}, max {:.1?} (µs before, while one is stopped)",
            publish("max")
        ),
    );
    // Generous: a call that waits for the stopped subscriber waits for ever, or for a time-out.
    assert!(call_p99.1 < call_p99.0.max(100.0) * 10.0, "publish() takes longer while one is stopped: {call_p99:?}");
    pair
}

/// One run: the median figures of the seven (or eight) subscribers, and the publisher's figures. Samples that do not reach a
/// running subscriber were dropped by the policy of its own channel (the last 16 wait, so a stall of 20 ms does that)
/// and counted.
fn segment(publisher: &mut Agent, subscribers: &mut [Agent], run: &str, carrier: &str) -> (Value, Value) {
    for subscriber in subscribers.iter_mut() {
        settle(publisher, subscriber);
        subscriber.ask("reset");
    }
    let before = publisher.ask("status");
    let published = publisher.ask(run);
    let count: f64 = run.rsplit('=').next().unwrap().parse().unwrap();
    let after = publisher.ask("status");
    let mut all = Vec::new();
    for subscriber in subscribers.iter_mut() {
        settle(publisher, subscriber);
        let report = subscriber.ask("report");
        assert_eq!(number(&report, "again"), 0.0, "twice or out of order: {report}");
        let name = subscriber.ask("status")["names"][0].clone();
        let lost = |status: &Value| {
            let channels = status["channels"].as_array().unwrap().clone();
            channels.iter().find(|c| c["subscriber"] == name).map(|c| number(c, "lost")).unwrap()
        };
        let dropped = lost(&after) - lost(&before);
        if !matches!(carrier, "udp" | "mcast") {
            assert_eq!(
                number(&report, "received") + dropped,
                count,
                "{dropped} dropped, the rest is missing: {report}"
            );
        }
        assert!(number(&report, "received") > 0.9 * count, "{carrier}: {report}");
        all.push(report);
    }
    all.sort_by(|a, b| number(a, "p50").total_cmp(&number(b, "p50")));
    (all.swap_remove(all.len() / 2), published)
}

/// Waits until the subscriber has the last published sample, or (lossy carriers) no more samples come.
fn settle(publisher: &mut Agent, subscriber: &mut Agent) {
    let last = number(&publisher.ask("publish count=0"), "last");
    subscriber.ask(&format!("until last={last} ms=1000"));
}

/// The stopped subscriber gets the newest sample soon, and none twice or out of order.
fn latest_soon(publisher: &mut Agent, stopped: &mut Agent, carrier: &str) {
    let last = number(&publisher.ask("publish count=200"), "last");
    let reached = stopped.ask(&format!("until last={last} ms=5000"));
    assert!(reached["ok"] == true, "{carrier}: the latest did not come: {reached}, it was {last}");
    let report = stopped.ask("report");
    assert_eq!(number(&report, "again"), 0.0, "twice or out of order: {report}");
    figure(
        "isolation",
        format!(
            "{carrier}: the stopped one got {} of what was sent meanwhile, {} missing",
            report["received"], report["missing"]
        ),
    );
}
