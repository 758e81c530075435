//! A stopped subscriber costs the others nothing (F-8): one publisher process at 1 kHz, eight subscriber processes, one
//! of them stopped, on each carrier.

#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use serde_json::Value;
use world::agent::{Agent, number};
use world::pairs::{Delays, LOOSE, Pairs, STRICT};
use world::{World, figure};

const CARRIERS: [&str; 4] = ["tcp", "udp", "mcast", "shm"];
/// Pairs of runs.
const PAIRS: usize = 5;
/// More than a connection, a socket or a ring holds: what comes next finds the stopped subscriber's full.
const FILL: &str = "publish count=400 size=65536 hz=100000";

#[test]
fn a_stopped_subscriber_delays_nobody_over_tcp() {
    delays_nobody("tcp");
}
#[test]
fn a_stopped_subscriber_delays_nobody_over_udp() {
    delays_nobody("udp");
}
#[test]
fn a_stopped_subscriber_delays_nobody_over_mcast() {
    delays_nobody("mcast");
}
#[test]
fn a_stopped_subscriber_delays_nobody_over_shm() {
    delays_nobody("shm");
}

/// Positive control of these tests: a publisher that waits up to 2 ms for a full channel delays all.
#[test]
fn a_stopped_subscriber_of_a_publisher_that_blocks_delays_all() {
    let late = stopped_over("tcp", "block=16 block_us=2000", 400).beyond("isolation", "tcp, blocking", LOOSE);
    let seen = |name| late.iter().any(|figure| figure.contains(name));
    assert!(seen("latency p50") && seen("publish() p50"), "{late:#?}");
}

fn delays_nobody(carrier: &str) {
    let late = stopped_over(carrier, "", 400).beyond("isolation", carrier, LOOSE);
    assert!(late.is_empty(), "while one is stopped: {late:#?}");
}

/// Paired runs on every carrier, for a quiet machine: `THALWEG_TEST_LONG=1 cargo test --release -- --ignored --nocapture paired`
#[test]
#[ignore = "takes minutes and measures: wants a quiet machine"]
fn paired_runs_of_the_other_seven() {
    if !world::long() {
        return world::skipped("THALWEG_TEST_LONG is not set");
    }
    let beyond = |carrier: &&str| stopped_over(carrier, "", 4000).beyond("isolation", carrier, STRICT);
    let wrong: Vec<String> = CARRIERS.iter().flat_map(beyond).collect();
    assert!(wrong.is_empty(), "beyond 10 % at p50 or 1.5 at p99: {wrong:#?}");
}

/// The delays of seven subscribers while the eighth runs, and while it is stopped.
fn stopped_over(carrier: &str, words: &str, count: u64) -> Pairs {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, &format!("publisher topic=/imu {words}"));
    let subscriber = |i| Agent::start(&world, &format!("subscriber topic=/imu name=/s{i} carriers={carrier}"));
    let joined = |i| {
        let mut subscriber = subscriber(i);
        subscriber.connected(1);
        subscriber
    };
    let mut subscribers: Vec<Agent> = (0..8).map(joined).collect();
    publisher.connected(8);
    let run = format!("publish count={count}");
    publisher.ask("publish count=300"); // warm
    // The first of the eight: a publisher that waits for it has not yet sent to the others.
    let mut eighth = subscribers.remove(0);
    let mut stands = false;
    let mut set = |publisher: &mut Agent, stopped: bool| match (std::mem::replace(&mut stands, stopped), stopped) {
        (false, true) => {
            eighth.stop();
            publisher.ask(FILL);
        }
        (true, false) => {
            eighth.go_on();
            latest_soon(publisher, &mut eighth, carrier);
        }
        _ => {}
    };
    let pairs = Pairs::measure(PAIRS, |stopped| {
        set(&mut publisher, stopped);
        let (report, published) = segment(&mut publisher, &mut subscribers, &run, carrier);
        let [p50, p99] = ["p50", "p99"].map(|key| number(&report, key));
        let [call_p50, call_p99] = ["p50", "p99"].map(|key| number(&published, key));
        Delays { p50, p99, call_p50, call_p99 }
    });
    set(&mut publisher, false);
    pairs
}

/// One run: the median figures of the seven subscribers, and the publisher's figures. Samples that do not reach a running
/// subscriber were dropped by the policy of its own channel (the last 16 wait, so a stall of 20 ms does that)
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
    assert!(number(&report, "missing") > 0.0, "{carrier}: nothing was full: {report}");
    figure(
        "isolation",
        format!(
            "{carrier}: the stopped one got {} of what was sent meanwhile, {} missing",
            report["received"], report["missing"]
        ),
    );
}
