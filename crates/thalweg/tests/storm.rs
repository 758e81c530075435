//! Endless joins and leaves cost `publish` nothing (U-43): at 1 kHz it stays short and allocates nothing.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use world::agent::{Agent, number};
use world::{World, figure};

#[test]
fn other_processes_join_and_leave() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a");
    let mut stays = Agent::start(&world, "subscriber topic=/a name=/stays carriers=tcp");
    let mut storms: Vec<Agent> = (0..2).map(|_| Agent::start(&world, "subscriber topic=/other")).collect();
    publisher.connected(1);
    publisher.ask("publish count=300");
    let calm = publisher.ask("publish count=1000");
    storms[0].tell("storm storm=tcp topic=/a pause_us=5000 ms=4500");
    storms[1].tell("storm storm=shm topic=/a pause_us=5000 ms=4500");
    let wild = publisher.ask("publish count=4000");
    let cycles: Vec<f64> = storms.iter().map(|s| number(&s.answer(), "cycles")).collect();
    tell("other processes", &calm, &wild, &format!("{cycles:?} joins over tcp, shm"));
    assert!(cycles.iter().all(|n| *n > 100.0), "there was no storm: {cycles:?}");
    check(&wild);
    stays.ask(&format!("until last={} ms=3000", number(&wild, "last")));
    assert_eq!(number(&stays.ask("report"), "again"), 0.0);
}

#[test]
fn threads_of_the_publishing_process_join_and_leave() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a");
    publisher.ask("publish count=300 storm=local topic=/a pause_us=2000");
    let calm = publisher.ask("publish count=500");
    for carrier in ["local", "tcp", "shm"] {
        let wild = publisher.ask(&format!("publish count=2000 storm={carrier} topic=/a pause_us=2000"));
        tell("own threads", &calm, &wild, &format!("{} joins over {carrier}", wild["cycles"]));
        check(&wild);
    }
}

fn tell(who: &str, calm: &serde_json::Value, wild: &serde_json::Value, storm: &str) {
    figure(
        "storm",
        format!(
            "{who}, {storm}: publish() p50 {} p99 {} max {} µs, {} allocations, {} lock waits (calm: p50 {} p99 {})",
            wild["p50"], wild["p99"], wild["max"], wild["allocations"], wild["waits"], calm["p50"], calm["p99"]
        ),
    );
}

/// The target is 50 µs at p99 on a quiet machine (`bench compare storm`); here it only must not wait.
fn check(wild: &serde_json::Value) {
    assert_eq!(number(wild, "allocations"), 0.0, "publish() allocated: {wild}");
    assert!(number(wild, "p99") < 5000.0, "publish() waits: {wild}");
}
