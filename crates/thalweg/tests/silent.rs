//! A relay that is stopped or cut off sends no heartbeat: its subscribers find another way within seconds, lose
//! no sample that is kept, and return.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use std::time::{Duration, Instant};
use world::agent::{Agent, number};
use world::net::{A, B, TwoHosts};
use world::{LONG, World, eventually, figure, skipped};

/// Two seconds without a heartbeat, a handshake, and the delays of a loaded machine. TCP alone notices after ten, and
/// a stopped process never.
const NOTICED: Duration = Duration::from_secs(5);

/// Waits until the subscriber's only channel comes from the relay, or not; returns the time that it took.
fn comes(subscriber: &mut Agent, by_relay: bool) -> Duration {
    let begun = Instant::now();
    let fits = |subscriber: &mut Agent| {
        let channels = subscriber.ask("status")["channels"].clone();
        let all = channels.as_array().unwrap();
        all.len() == 1 && (all[0]["proxied"]["place"]["relay"] == "gate") == by_relay
    };
    let there = eventually(LONG, || fits(subscriber).then_some(()));
    assert!(there.is_some(), "by the relay: {by_relay}, never: {}", subscriber.ask("status"));
    begun.elapsed()
}

/// Samples are published while the relay goes silent and returns: each arrives once.
fn is_done_without(
    what: &str,
    (publisher, subscriber): (&mut Agent, &mut Agent),
    mut silence: impl FnMut(bool) -> Result<(), String>,
) {
    publisher.connected(1);
    comes(subscriber, true);
    publisher.tell("publish hz=200 count=2400");
    assert!(subscriber.ask("until count=50")["ok"] == true, "{what}: nothing came");
    if let Err(why) = silence(true) {
        return skipped(why);
    }
    let left = comes(subscriber, false);
    silence(false).unwrap();
    let returned = comes(subscriber, true);
    figure("silent", format!("{what}: left after {left:.2?}, returned {returned:.2?} after it was back"));
    let last = number(&publisher.answer(), "last");
    assert!(subscriber.ask(&format!("until last={last}"))["ok"] == true, "{what}: {}", subscriber.ask("status"));
    let report = subscriber.ask("report");
    assert_eq!((number(&report, "missing"), number(&report, "again")), (0.0, 0.0), "{what}: {report}");
    assert!(left < NOTICED, "{what}: left after {left:?}");
    assert!(subscriber.told("relay:gate_gives_no_sign_of_life", LONG), "{what}: nobody was told");
}

fn a_stopped_relay(carrier: &str) {
    let _waiting = world::waiting();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a late=1 queue=4096");
    let relay = Agent::start(&world, "relay node=gate relay=1");
    let part = format!("subscriber topic=/a name=/in carriers={carrier} reliable=1 late=1 proxy=relay:gate");
    let mut subscriber = Agent::start(&world, &part);
    is_done_without(&format!("stopped, {carrier}"), (&mut publisher, &mut subscriber), |stops| {
        if stops {
            relay.stop()
        } else {
            relay.go_on()
        }
        Ok(())
    });
}

#[test]
fn a_stopped_relay_is_replaced_over_tcp() {
    a_stopped_relay("tcp");
}
#[test]
fn a_stopped_relay_is_replaced_over_shm() {
    a_stopped_relay("shm");
}
#[test]
fn a_stopped_relay_is_replaced_over_reliable_udp() {
    a_stopped_relay("udp");
}

/// The relay is on a host of its own, and its link is cut silently.
#[test]
fn a_relay_behind_a_cut_link_is_replaced() {
    for carrier in ["tcp", "udp"] {
        let _waiting = world::waiting();
        let hosts = match TwoHosts::new(if carrier == "tcp" { "st" } else { "su" }) {
            Ok(hosts) => hosts,
            Err(why) => return skipped(why),
        };
        let world = World::new();
        let at = [format!("{A}:7400"), format!("{B}:7400"), format!("{B}:7401")];
        let file = world.dir().join("nodes.toml");
        std::fs::write(&file, at.iter().map(|at| format!("[[node]]\naddress = \"{at}\"\n")).collect::<String>())
            .unwrap();
        let file = file.display();
        let part = format!("relay node=gate relay=1 file={file} listen={}", at[0]);
        let _relay = Agent::start_by(&world, &part, &hosts.in_a());
        let part = format!("publisher topic=/a late=1 queue=4096 file={file} listen={}", at[1]);
        let mut publisher = Agent::start_by(&world, &part, &hosts.in_b());
        let part = format!("subscriber topic=/a name=/in carriers={carrier} reliable=1 late=1 proxy=relay:gate");
        let part = format!("{part} file={file} listen={}", at[2]);
        let mut subscriber = Agent::start_by(&world, &part, &hosts.in_b());
        let ends = (&mut publisher, &mut subscriber);
        is_done_without(&format!("cut off, {carrier}"), ends, |cut| hosts.silence(cut));
    }
}

/// No subscriber has another way: a relay's channel outlives a silence as any other does.
#[test]
fn a_silent_relay_is_kept_when_there_is_no_other_way() {
    let _waiting = world::waiting();
    let hosts = match TwoHosts::new("sn") {
        Ok(hosts) => hosts,
        Err(why) => return skipped(why),
    };
    let world = World::new();
    let at = [format!("{A}:7400"), format!("{A}:7401"), format!("{B}:7400")];
    let file = world.dir().join("nodes.toml");
    std::fs::write(&file, at.iter().map(|at| format!("[[node]]\naddress = \"{at}\"\n")).collect::<String>()).unwrap();
    let file = file.display();
    let mut publisher =
        Agent::start_by(&world, &format!("publisher topic=/a file={file} listen={}", at[0]), &hosts.in_a());
    let part = format!("relay node=gate relay=1 file={file} listen={}", at[1]);
    let _relay = Agent::start_by(&world, &part, &hosts.in_a());
    let part = format!("subscriber topic=/a carriers=tcp proxy=relay:gate file={file} listen={}", at[2]);
    let mut subscriber = Agent::start_by(&world, &part, &hosts.in_b());
    publisher.connected(1);
    comes(&mut subscriber, true);
    if let Err(why) = hosts.silence(true) {
        return skipped(why);
    }
    assert!(subscriber.told("relay:gate_gives_no_sign_of_life", LONG));
    std::thread::sleep(Duration::from_secs(3));
    hosts.silence(false).unwrap();
    let last = number(&publisher.ask("publish count=100 hz=50"), "last");
    assert!(subscriber.ask(&format!("until last={last} ms=5000"))["ok"] == true, "nothing comes any more");
    let events = subscriber.ask("status")["events"].to_string();
    assert!(!events.contains(" ended: "), "{events}");
}
