//! `why` between real processes.

use super::{answer, part};
use crate::support::{LONG, Running, Testbed};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Instant;

/// The document of `why`, and its exit code.
fn why(house: &Testbed, ports: &str) -> (Value, i32) {
    let done = house.run(&format!("why {ports} --json"));
    let report = done.lines.first().map_or(Value::Null, |line| serde_json::from_str(line).unwrap());
    (report, done.code())
}

/// Asks until the first problem is this one: counters need a moment.
fn until_named(house: &Testbed, ports: &str, id: &str) -> Value {
    let until = Instant::now() + LONG;
    loop {
        let began = Instant::now();
        let (report, code) = why(house, ports);
        let took = began.elapsed();
        if report["problems"][0]["id"] == id {
            assert_eq!((code, &report["healthy"]), (1, &json!(false)), "{report}");
            assert_eq!(report["verdict"], report["problems"][0]["what"], "{report}");
            assert_ne!(report["problems"][0]["remedy"], "", "{report}");
            answer::told("why", id, took);
            return report;
        }
        assert!(Instant::now() < until, "{id} is not named: {report}");
    }
}

fn until_open(house: &Testbed) {
    house.wait_for_list("channels", |channels| channels[0]["received"].as_u64() > Some(0));
}

fn healthy_pair(house: &Testbed) -> [Running; 2] {
    let pair = [house.start("pub /a --port /out --rate 100"), house.start("sub /a --port /in --json")];
    until_open(house);
    pair
}

#[test]
fn a_healthy_channel_of_any_carrier_has_no_problem() {
    for carrier in ["shm", "tcp", "udp", "mcast"] {
        let house = Testbed::new();
        let publish = house.start(&format!("pub /a --port /out --rate 200 --carrier {carrier}"));
        let subscribe = house.start(&format!("sub /a --port /in --json --carrier {carrier}"));
        until_open(&house);
        for _ in 0..3 {
            let (report, code) = why(&house, "/out /in");
            assert_eq!((code, &report["problems"], &report["healthy"]), (0, &json!([]), &json!(true)), "{report}");
            assert!(report["verdict"].as_str().unwrap().contains(&format!("over {carrier}: healthy")), "{report}");
        }
        drop((publish, subscribe));
    }
}

#[test]
fn wrong_names_are_distinguished_from_ports_elsewhere() {
    let house = Testbed::new();
    let _pair = healthy_pair(&house);
    let _lab = house.start("sub /a --port /lab/in --realm lab --json");
    assert!(until_named(&house, "/uot /in", "no-port")["problems"][0]["remedy"].as_str().unwrap().contains("/out"));
    until_named(&house, "/in /out", "direction");
    until_named(&house, "/out /lab/in", "other-realm");
    assert_eq!(why(&house, "out in").1, 0, "relative names");
    assert_eq!(why(&house, "out/ /in").1, 2);
    assert_eq!(house.run("why /out").code(), 2);
}

/// A port on another host that claims an earlier start does not take the name of a port of this host.
#[test]
fn why_and_set_use_the_port_that_lookups_find_of_two_with_one_name() {
    let (house, elsewhere) = (Testbed::new(), Testbed::new());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nodes = house.path("nodes.toml");
    std::fs::write(&nodes, format!("[[node]]\naddress = \"127.0.0.1:{port}\"\n")).unwrap();
    let beyond = format!("--discovery static:{}", nodes.display());
    let first = format!("pub /a --port /out --rate 100 --name aaa --listen 127.0.0.1:{port} {beyond}");
    let _first = elsewhere.start(&first);
    elsewhere.wait_for_list("ports", |ports| ports.as_array().is_some_and(|p| p.len() == 1));
    let _pair = [house.start("pub /a --port /out --rate 100 --name here"), house.start("sub /a --port /in --json")];
    until_open(&house);
    let report = until_named(&house, &format!("/out /in {beyond}"), "name-twice");
    assert!(report["verdict"].as_str().unwrap().contains("of node here"), "{report}");
    let set = house.run(&format!("set /out /in class=high {beyond} --json"));
    assert_eq!(set.json()["ends"].as_array().map(Vec::len), Some(2), "the other one has no such channel");
}

#[test]
fn changes_by_an_administrator_are_remembered() {
    let house = Testbed::new();
    let _pair = healthy_pair(&house);
    assert_eq!(house.run("disconnect /out /in").code(), 0);
    let apart = until_named(&house, "/out /in", "apart");
    assert_eq!(apart["problems"][0]["remedy"], "thalweg connect /out /in");
    assert_eq!(house.run("connect /out /in").code(), 0);
    assert_eq!(why(&house, "/out /in").1, 0);
}

#[test]
fn stopped_processes_are_named_with_how_to_go_on() {
    let house = Testbed::new();
    let [publish, subscribe] = healthy_pair(&house);
    for process in [&publish, &subscribe] {
        process.signal(Signal::STOP);
        let report = until_named(&house, "/out /in", "node-stopped");
        let remedy = format!("kill -CONT {}", process.child.id());
        assert_eq!(report["problems"][0]["remedy"], remedy.as_str(), "{report}");
        let listed = house.run("list --json");
        assert!(listed.errors.contains(&remedy), "{}", listed.errors);
        assert_eq!(listed.json()["stopped"], serde_json::json!([process.child.id()]));
        process.signal(Signal::CONT);
    }
}

#[test]
fn policies_that_stand_between_are_named() {
    for (publish, subscribe, id) in [
        ("pub /a --best-effort", "sub /a --reliable", "reliability"),
        ("pub /a", "sub /b", "topic"),
        ("pub /a --carrier tcp", "sub /a --carrier shm", "carrier"),
    ] {
        let house = Testbed::new();
        let _publish = house.start(&format!("{publish} --port /out"));
        let _subscribe = house.start(&format!("{subscribe} --port /in --json"));
        house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|p| p.len() == 2));
        until_named(&house, "/out /in", id);
    }
    let house = Testbed::new();
    let _parts = [part::start(&house, "numbers"), part::start(&house, "texts")];
    house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|p| p.len() == 2));
    let report = until_named(&house, "/out /in", "type");
    assert!(report["verdict"].as_str().unwrap().contains("u32"), "{report}");
}

#[test]
fn a_publisher_that_says_nothing_is_named() {
    let house = Testbed::new();
    let _parts = [part::start(&house, "silent"), part::start(&house, "slow")];
    house.wait_for_list("channels", |channels| channels.as_array().is_some_and(|c| c.len() == 1));
    until_named(&house, "/out /in", "silent");
}

#[test]
fn samples_that_get_lost_in_a_process_are_found_there() {
    for (publisher, subscriber, id) in
        [("floods", "slow", "slow-callback"), ("floods", "lazy", "not-taken"), ("large", "narrow", "too-large")]
    {
        let house = Testbed::new();
        let _parts = [part::start(&house, publisher), part::start(&house, subscriber)];
        house.wait_for_list("channels", |channels| channels.as_array().is_some_and(|c| c.len() == 1));
        until_named(&house, "/out /in", id);
    }
}

#[test]
fn samples_that_get_lost_on_the_way_are_found_there() {
    let house = Testbed::new();
    let _publish = house.start("pub /a --port /out --rate 500 --carrier udp --fault loss=20%");
    let _subscribe = house.start("sub /a --port /in --json --carrier udp");
    until_open(&house);
    let report = until_named(&house, "/out /in", "lost");
    assert_eq!(report["problems"].as_array().map(Vec::len), Some(1), "{report}");
}

#[test]
fn a_queue_that_overflows_at_the_publisher_is_named_with_its_policy() {
    let house = Testbed::new();
    let _publish = house.start("pub /a --port /out --rate 500 --size 20000 --carrier tcp --fault rate=1Mbit/s");
    let _subscribe = house.start("sub /a --port /in --json --carrier tcp");
    until_open(&house);
    let report = until_named(&house, "/out /in", "queue-full");
    assert!(report["verdict"].as_str().unwrap().contains("keep-last 16"), "{report}");
}

#[test]
fn effective_settings_are_no_problem() {
    let house = Testbed::new();
    let _pair = healthy_pair(&house);
    let set = house.run("set /out /in sched=fifo:10 class=high");
    if set.code() == 3 || set.errors.contains("CAP_SYS_NICE") {
        return println!("skipped: set: because a real-time priority needs CAP_SYS_NICE");
    }
    for carrier in ["shm", "tcp"] {
        assert_eq!(house.run(&format!("connect /out /in --carrier {carrier}")).code(), 0);
        let (report, code) = why(&house, "/out /in");
        assert_eq!((code, &report["problems"]), (0, &json!([])), "{carrier}: {report}");
        let evidence = report["evidence"].as_array().unwrap().iter();
        let receiving = evidence.filter(|line| line["about"] == "receiving").map(|line| line["says"].as_str().unwrap());
        assert!(receiving.collect::<String>().contains("fifo:10"), "{carrier}: {report}");
    }
}
