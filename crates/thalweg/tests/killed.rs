//! `kill -9` of any process: the others notice and continue, and no leftovers stay behind.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use std::time::{Duration, Instant};
use world::agent::{Agent, number};
use world::{LONG, World, figure};

/// Time within which a death is noticed (about a second; a loaded machine may take longer).
const NOTICED: Duration = Duration::from_secs(3);

#[test]
fn a_killed_subscriber_over_tcp() {
    subscriber_killed("tcp");
}
#[test]
fn a_killed_subscriber_over_shm() {
    subscriber_killed("shm");
}
#[test]
fn a_killed_subscriber_over_udp() {
    subscriber_killed("udp");
}
#[test]
fn a_killed_subscriber_over_reliable_udp() {
    subscriber_killed("udp reliable=1");
}
#[test]
fn a_killed_subscriber_over_reliable_multicast() {
    subscriber_killed("mcast reliable=1");
}
#[test]
fn a_killed_publisher_over_tcp() {
    publisher_killed("tcp");
}
#[test]
fn a_killed_publisher_over_shm() {
    publisher_killed("shm");
}
#[test]
fn a_killed_publisher_over_mcast() {
    publisher_killed("mcast");
}

#[test]
fn a_killed_publisher_over_reliable_udp() {
    publisher_killed("udp reliable=1");
}
#[test]
fn a_killed_publisher_over_reliable_multicast() {
    publisher_killed("mcast reliable=1");
}

fn subscriber(world: &World, carrier: &str, number: u32) -> Agent {
    Agent::start(world, &format!("subscriber topic=/a name=/s{number} carriers={carrier}"))
}

fn publisher(world: &World, name: &str) -> Agent {
    Agent::start(world, &format!("publisher topic=/a name={name} queue=100000"))
}

fn subscriber_killed(carrier: &str) {
    let world = World::new();
    let mut publisher = publisher(&world, "/p");
    let (mut stays, dies) = (subscriber(&world, carrier, 1), subscriber(&world, carrier, 2));
    publisher.connected(2);
    // During a stream: the publisher has to notice by itself.
    publisher.tell("publish count=1000");
    assert!(stays.ask("until count=200")["ok"] == true);
    dies.kill();
    let published = publisher.answer();
    let noticed = Instant::now();
    let left = publisher.ask("left n=1 ms=3000");
    assert!(left["ok"] == true, "the dead subscriber is still connected: {left}");
    figure(
        "killed",
        format!(
            "{carrier}: the subscriber's death was known {:?} after the stream ended; calls p99 {:.1} max {:.1} µs",
            noticed.elapsed(),
            number(&published, "p99"),
            number(&published, "max")
        ),
    );
    assert!(publisher.told("the_subscriber_left", NOTICED));
    everything_came(&mut publisher, &mut stays, carrier.contains("reliable"));
    nothing_in_shared_memory(&[&publisher, &stays]);
    // A new one with the same name takes its place.
    let mut again = subscriber(&world, carrier, 2);
    publisher.connected(2);
    let last = number(&publisher.ask("publish count=50"), "last");
    assert!(again.ask(&format!("until last={last}"))["ok"] == true);
    assert_eq!(number(&again.ask("report"), "again"), 0.0);
    let sockets = world.left_behind().into_iter().filter(|name| name.ends_with(".sock")).count();
    assert_eq!(sockets, 3, "one each: {:?}", world.left_behind());
    [publisher, stays, again].into_iter().for_each(Agent::finish);
    assert_eq!(world.left_behind(), Vec::<String>::new());
}

fn publisher_killed(carrier: &str) {
    let world = World::new();
    let (dies, mut stays) = (publisher(&world, "/p"), publisher(&world, "/q"));
    let mut subscriber = subscriber(&world, carrier, 1);
    subscriber.connected(2);
    let mut dies = dies;
    dies.tell("publish count=20000");
    stays.tell("publish count=1500");
    assert!(subscriber.ask("until count=600")["ok"] == true);
    let killed = Instant::now();
    dies.kill();
    let left = subscriber.ask("left n=1 ms=3000");
    assert!(left["ok"] == true, "the dead publisher is still connected: {left}");
    figure("killed", format!("{carrier}: the publisher's death was noticed after {:?}", killed.elapsed()));
    assert!(killed.elapsed() < NOTICED);
    let last = number(&stays.answer(), "last");
    assert!(subscriber.ask(&format!("until last={last}"))["ok"] == true, "the other publisher's stream did not go on");
    nothing_in_shared_memory(&[&stays, &subscriber]);
    // A new process with the same port name: its sequence begins at 1 again, and is delivered.
    subscriber.ask("reset");
    let restarted = Instant::now();
    let mut again = publisher(&world, "/p");
    again.connected(1);
    figure(
        "killed",
        format!("{carrier}: the restarted publisher was connected {:?} after its start", restarted.elapsed()),
    );
    let published = again.ask("publish count=100");
    assert_eq!(number(&published, "sent"), 100.0, "{published}");
    let reached = subscriber.ask("until count=100");
    let report = subscriber.ask("report");
    assert!(reached["ok"] == true, "{reached} {report}");
    assert_eq!(
        (number(&report, "first"), number(&report, "last"), number(&report, "again")),
        (1.0, 100.0, 0.0),
        "{report}"
    );
    [stays, subscriber, again].into_iter().for_each(Agent::finish);
    assert_eq!(world.left_behind(), Vec::<String>::new());
}

#[test]
fn samples_of_a_killed_publisher_that_waited_for_its_history_come_over_tcp() {
    killed_before_its_history("tcp");
}
#[test]
fn samples_of_a_killed_publisher_that_waited_for_its_history_come_over_shm() {
    killed_before_its_history("shm");
}
#[test]
fn samples_of_a_killed_publisher_that_waited_for_its_history_come_over_reliable_udp() {
    killed_before_its_history("udp reliable=1");
}

/// A node fetches one history after the other: another publisher's, whose sample is stuck in a callback, goes before.
fn killed_before_its_history(carrier: &str) {
    let world = World::new();
    let durable = |topic| Agent::start(&world, &format!("publisher topic={topic} late=1 queue=100000"));
    let (go_on, mut first) = (world.dir().join("go_on"), durable("/a0"));
    first.ask("publish count=1");
    let part = format!("subscriber topic=/a ports=2 late=1 carriers={carrier} stuck={}", go_on.display());
    let mut subscriber = Agent::start(&world, &part);
    assert!(subscriber.ask("until count=1")["ok"] == true, "the history of /a0 did not come");
    let mut dies = durable("/a1");
    dies.connected(1);
    assert_eq!(number(&dies.ask("publish count=20 hz=100000"), "last"), 20.0);
    let mut received = || {
        let status = subscriber.ask("status");
        let channels = status["channels"].as_array().unwrap().clone();
        channels.iter().any(|channel| channel["topic"] == "/a1" && number(channel, "samples") == 20.0).then_some(())
    };
    assert!(world::eventually(LONG, &mut received).is_some(), "{}", subscriber.ask("status"));
    assert_eq!(number(&subscriber.ask("report"), "received"), 1.0, "those of /a1 wait");
    dies.kill();
    assert!(subscriber.ask("left n=1")["ok"] == true, "{}", subscriber.ask("status"));
    std::fs::write(go_on, "").unwrap();
    let came = subscriber.ask("until count=21");
    let report = subscriber.ask("report");
    let account = ["received", "last", "again", "missing"].map(|key| number(&report, key));
    assert_eq!(account, [21.0, 20.0, 0.0, 0.0], "{came} {report}");
    [first, subscriber].into_iter().for_each(Agent::finish);
}

/// The remaining subscriber missed nothing: the publisher keeps all samples that wait. Best-effort datagrams may be lost in
/// the network, which is the loopback interface here: few are.
fn everything_came(publisher: &mut Agent, stays: &mut Agent, reliable: bool) {
    stays.ask("until last=1000 ms=2000");
    let report = stays.ask("report");
    let status = publisher.ask("status");
    let channel = status["channels"].as_array().unwrap().iter().find(|c| c["subscriber"] == "/s1").unwrap().clone();
    let own = stays.ask("status")["channels"][0].clone();
    let best_effort = matches!(channel["carrier"].as_str(), Some("udp" | "mcast")) && !reliable;
    let least = if best_effort { 990.0 } else { 1000.0 };
    assert!(number(&report, "received") >= least, "{channel} {report}");
    let given_up = (number(&channel, "lost"), number(&own, "skipped"), number(&report, "again"));
    assert_eq!(given_up, (0.0, 0.0, 0.0), "{channel} {own} {report}");
}

/// Asserts that there is no named memory, and no mapping of a dead process: mappings are anonymous and end with the last process.
fn nothing_in_shared_memory(living: &[&Agent]) {
    let named = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let ours: Vec<_> = named.map(|e| e.file_name()).filter(|n| n.to_string_lossy().contains("thalweg")).collect();
    assert!(ours.is_empty(), "{ours:?}");
    let mapped = |agent: &Agent| {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", agent.pid())).unwrap();
        maps.lines().filter(|l| l.contains("memfd:")).count()
    };
    // At most the living publisher's payload and the living channels' rings.
    for agent in living {
        assert!(mapped(agent) <= 2 * living.len(), "{} mappings", mapped(agent));
    }
}
