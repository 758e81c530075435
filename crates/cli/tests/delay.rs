//! `delay`: stages of a sample, and latencies between hosts with different clocks.
#![allow(clippy::unwrap_used)]

use crate::support;
use serde_json::Value;
use std::process::Command;
use support::{Running, Testbed};

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {value}"))
}

/// The stages of the only channel of /imu, after 200 samples of 100 bytes.
fn stages(carrier: &str) -> Value {
    let house = Testbed::new();
    let _sub = house.start(&format!("sub /imu --carrier {carrier} --json"));
    house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|ports| !ports.is_empty()));
    let _publish = house.start("pub /imu --rate 500 --size 100 --wait 1");
    house.wait_for_list("channels", |channels| channels.as_array().is_some_and(|channels| !channels.is_empty()));
    let done = house.run("delay /imu --stages --count 200 --json");
    assert_eq!(done.code(), 0, "{}", done.errors);
    let channel = done.json()["channels"][0].clone();
    assert_eq!((channel["carrier"].as_str(), channel["every"].as_u64()), (Some(carrier), Some(1)), "{channel}");
    channel
}

#[test]
fn the_stages_of_a_channel_are_all_of_its_latency() {
    for carrier in ["tcp", "udp", "shm"] {
        let channel = stages(carrier);
        let mean = |stage: &str| number(&channel, &format!("/stages_us/{stage}/mean"));
        let received = if carrier == "udp" { mean("receive") } else { 0.0 };
        let wire = number(&channel, "/wire_mean_us");
        let parts = [mean("publish"), mean("queue"), mean("send"), wire, received, mean("decode"), mean("callback")];
        // The two ends are asked one after the other, so one may have measured one sample more.
        let (sum, total) = (parts.iter().sum::<f64>(), mean("total"));
        assert!((sum - total).abs() < 1.0, "{carrier}: {parts:?} are {sum}, not {total}");
        assert!(parts.iter().all(|part| *part >= 0.0 || *part == wire) && total > 1.0, "{carrier}: {parts:?}");
        assert!(mean("queue") == 0.0, "{carrier}: sent inline");
        let figures = &channel["stages_us"]["total"];
        assert!(number(figures, "/n") >= 200.0 && number(figures, "/p50") <= number(figures, "/p9999"), "{figures}");
    }
}

/// A relay makes two channels. The one from it shows the way to it, and the relay's own stages.
#[test]
fn a_stream_that_a_relay_hosts_has_stages_at_the_relay_too() {
    let house = Testbed::new();
    let _relay = house.start("relay --name gate");
    let _sub = house.start("sub /imu --carrier tcp --json --port /in --proxy relay:gate");
    house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|ports| !ports.is_empty()));
    let _publish = house.start("pub /imu --rate 500 --wait 1 --port /out");
    let from_relay = |channel: &Value| channel["proxied"]["place"]["relay"] == "gate";
    house.wait_for_list("channels", |channels| channels.as_array().is_some_and(|all| all.iter().any(from_relay)));
    let done = house.run("delay /imu --stages --count 50 --json");
    assert_eq!(done.code(), 0, "{}", done.errors);
    let channels = done.json()["channels"].as_array().unwrap().clone();
    let of = |relay: bool| channels.iter().find(|channel| channel["relay"] == relay).unwrap();
    for stage in ["publish", "queue", "send", "decode", "callback", "transit", "total"] {
        assert!(number(of(true), &format!("/stages_us/{stage}/n")) > 0.0, "{stage}: {channels:?}");
    }
    assert_eq!((of(true)["publisher"].as_str(), of(true)["subscriber"].as_str()), (Some("/out"), Some("/in")));
    assert!(of(false)["subscriber"].as_str().unwrap().starts_with("/gate/proxy"), "{channels:?}");
    let text = house.run("delay /imu --stages --count 50").lines.join("\n");
    assert!(text.contains("/out -> /in over tcp from a relay") && text.contains("\nto relay "), "{text}");
}

#[test]
fn samples_that_wait_for_a_thread_show_it() {
    let house = Testbed::new();
    let _sub = house.start("sub /imu --carrier tcp --json --port /in");
    house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|ports| !ports.is_empty()));
    let _publish = house.start("pub /imu --rate 500 --wait 1 --port /out");
    house.wait_for_list("channels", |channels| channels.as_array().is_some_and(|channels| !channels.is_empty()));
    // A channel with an affinity has a thread of its own, and so a queue.
    let set = house.run("set /out /in affinity=0");
    assert_eq!(set.code(), 0, "{}", set.errors);
    let done = house.run("delay /imu --stages --sample 2 --count 50 --json");
    let queue = number(&done.json()["channels"][0], "/stages_us/queue/mean");
    assert!(queue > 0.0, "{queue}");
}

#[test]
fn a_topic_without_samples_is_reported() {
    let house = Testbed::new();
    let done = house.run("delay /nothing --stages --seconds 0.2");
    assert_eq!(done.code(), 1);
    assert!(done.errors.contains("has no channel to measure"), "{}", done.errors);
}

/// A time namespace stands for another host: its monotonic clock began at another time.
#[test]
fn latencies_between_two_clocks_are_within_the_stated_uncertainty() {
    let house = Testbed::new();
    let publish = house.command("pub /imu --rate 500");
    let mut apart = Command::new("unshare");
    apart.args(["--time", "--fork", "--kill-child", "--monotonic", "5000", "--"]).arg(publish.get_program());
    apart.args(publish.get_args()).envs(publish.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let can = Command::new("unshare").args(["--time", "--fork", "--monotonic", "5000", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!(
            "skipped: latencies between two clocks because no time namespace can be made: run as root, with util-linux"
        );
        return;
    }
    let _publish = Running::start(apart);
    house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|ports| !ports.is_empty()));
    let done = house.run("delay /imu --count 500 --json");
    assert_eq!(done.code(), 0, "{}", done.errors);
    let found: Value = serde_json::from_str(done.lines.last().unwrap()).unwrap();
    let (p50, uncertain) = (number(&found, "/latency_us/p50"), number(&found, "/clock_uncertainty_us"));
    assert!(uncertain > 0.0 && uncertain < 100_000.0, "{found}");
    assert!(p50 < 1e6, "5000 s were not taken off: {found}");
}
