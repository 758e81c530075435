//! Proxies between processes: the cost of a scaled subscriber on the link and at its publisher, and a relay that is
//! killed.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use std::collections::BTreeMap;
use std::process::Command;
use world::agent::{Agent, number};
use world::capture::Capture;
use world::net::{A, B, TwoHosts};
use world::strace::{Strace, sum};
use world::{LONG, World, eventually, figure, skipped};

/// Bytes that left host `a` so far.
fn sent_bytes(hosts: &TwoHosts) -> f64 {
    let [program, rest @ ..] = hosts.in_a();
    let counter = Command::new(program).args(rest).args(["cat", "/sys/class/net/veth/statistics/tx_bytes"]).output();
    String::from_utf8(counter.unwrap().stdout).unwrap().trim().parse().unwrap()
}

/// For a subscriber of every n-th sample a publisher's host sends the n-th part (P-04). Headers and acknowledgements
/// of both, and messages of the nodes, come on top.
#[test]
fn a_tenth_of_the_samples_is_a_tenth_of_the_traffic() {
    let _alone = world::alone();
    let hosts = match TwoHosts::new("sc") {
        Ok(hosts) => hosts,
        Err(why) => return skipped(why),
    };
    for carrier in ["tcp", "udp", "mcast"] {
        let world = World::new();
        let file = world.dir().join("nodes.toml");
        let at = [format!("{A}:7400"), format!("{B}:7401")];
        std::fs::write(&file, at.iter().map(|a| format!("[[node]]\naddress = \"{a}\"\n")).collect::<String>()).unwrap();
        let file = file.display();
        let part = format!("publisher topic=/a file={file} listen={}", at[0]);
        let mut publisher = Agent::start_by(&world, &part, &hosts.in_a());
        let mut bytes = |wanted: &str| {
            let part = format!("subscriber topic=/a name=/in carriers={carrier} {wanted} file={file} listen={}", at[1]);
            let mut subscriber = Agent::start_by(&world, &part, &hosts.in_b());
            subscriber.connected(1);
            publisher.connected(1);
            let before = sent_bytes(&hosts);
            publisher.ask("publish count=1000 hz=2000 size=1200");
            let last = number(&publisher.ask("publish count=10 hz=10 size=1200"), "last");
            let sent = sent_bytes(&hosts) - before;
            drop(subscriber);
            assert_eq!(publisher.ask("left")["ok"], true);
            (sent, last)
        };
        let (all, _) = bytes("");
        let (tenth, _) = bytes("every=10");
        let (late, _) = bytes("every=10 proxy=subscriber");
        let percent = |part: f64| 100.0 * part / all;
        let (tenth, late) = (percent(tenth), percent(late));
        figure(
            "scaled",
            format!("{carrier}: every 10th is {tenth:.1} % of all on the link, at the subscriber {late:.1} %"),
        );
        assert!((9.0..12.0).contains(&tenth) && (95.0..105.0).contains(&late), "{carrier}: {tenth} % and {late} %");
    }
}

/// For a subscriber of every tenth sample the publisher makes a tenth of the system calls (P-04): an unwanted sample
/// costs none. The lab measures the processor time of both (`pushpull-places`), where it can be judged.
#[test]
fn a_tenth_of_the_samples_is_a_tenth_of_the_system_calls() {
    const SAMPLES: u64 = 2000;
    let _alone = world::alone();
    for carrier in ["tcp", "udp"] {
        let world = World::new();
        let mut publisher = Agent::start(&world, "publisher topic=/a");
        let part = format!("subscriber topic=/a name=/in carriers={carrier} every=10");
        let mut subscriber = Agent::start(&world, &part);
        subscriber.connected(1);
        publisher.connected(1);
        publisher.ask("publish count=100");
        let counting = match Strace::attach(publisher.number("status", "thread") as i64) {
            Ok(counting) => counting,
            Err(why) => return skipped(why),
        };
        let published = publisher.ask(&format!("publish count={SAMPLES} hz=1000"));
        let calls = counting.finish();
        let sends = sum(&calls, &["sendto", "sendmsg", "write", "futex"]).0;
        figure("scaled", format!("{carrier}, every 10th of {SAMPLES} samples: {calls:?}"));
        // Waiting samples leave in one call; answers of the part are a few writes.
        assert!((SAMPLES / 20..=SAMPLES / 10 + 5).contains(&sends), "{carrier}: {sends} calls: {calls:?}, {published}");
    }
}

/// Over multicast each scaled stream has a group of its own, and is sent there once for any number of members (Table
/// 2).
#[test]
fn each_scaled_stream_is_sent_once_to_a_group_of_its_own() {
    let _alone = world::alone();
    let capture = match Capture::start(&[7; 64]) {
        Ok(capture) => capture,
        Err(why) => return skipped(why),
    };
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a");
    let subscribe = |every| Agent::start(&world, &format!("subscriber topic=/a carriers=mcast every={every}"));
    let mut subscribers: Vec<Agent> = [1, 10, 4, 10].into_iter().map(subscribe).collect();
    publisher.connected(4);
    subscribers.iter_mut().for_each(|subscriber| subscriber.connected(1));
    publisher.ask("publish count=200 hz=500");
    let sent = || {
        let mut groups = BTreeMap::<u16, usize>::new();
        let packets = capture.packets().into_iter().filter(|packet| !packet.tcp && packet.sample.is_some());
        packets.for_each(|packet| *groups.entry(packet.ports.1).or_default() += 1);
        let mut sent: Vec<usize> = groups.into_values().collect();
        sent.sort_unstable();
        sent
    };
    // Each packet of the loopback interface is captured when it leaves and when it arrives.
    let once = eventually(LONG, || (sent() == [2 * 20, 2 * 50, 2 * 200]).then_some(()));
    assert!(once.is_some(), "{:?}", sent());
}

/// A relay is killed while samples flow, and started again: the subscriber continues, and returns to it.
#[test]
fn a_killed_relay_is_replaced() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a name=/out");
    let relay = Agent::start(&world, "relay node=gate relay=1");
    let mut subscriber = Agent::start(&world, "subscriber topic=/a name=/in carriers=tcp proxy=relay:gate every=2");
    let at_relay = |subscriber: &mut Agent| {
        let channel = subscriber.ask("status")["channels"][0].clone();
        channel["proxied"]["place"]["relay"] == "gate"
    };
    assert!(eventually(LONG, || at_relay(&mut subscriber).then_some(())).is_some(), "{}", subscriber.ask("status"));
    let last = number(&publisher.ask("publish count=200 hz=1000"), "last");
    assert_eq!(subscriber.ask(&format!("until last={last}"))["ok"], true);
    relay.kill();
    let fell_back = || (!at_relay(&mut subscriber) && subscriber.number("status", "connected") == 1.0).then_some(());
    assert!(eventually(LONG, fell_back).is_some());
    publisher.connected(1);
    let last = number(&publisher.ask("publish count=200 hz=1000"), "last");
    assert_eq!(subscriber.ask(&format!("until last={last}"))["ok"], true);
    let relay = Agent::start(&world, "relay node=gate relay=1");
    publisher.tell("publish count=4000 hz=1000"); // a move needs samples
    assert!(eventually(LONG, || at_relay(&mut subscriber).then_some(())).is_some(), "{}", subscriber.ask("status"));
    let last = number(&publisher.answer(), "last");
    assert_eq!(subscriber.ask(&format!("until last={last}"))["ok"], true);
    let account = subscriber.ask("report");
    figure("scaled", format!("relay killed and back: {account}"));
    assert_eq!(number(&account, "again"), 0.0, "{account}");
    drop(relay);
}
