//! `thalweg verify` over a relay: the bound applies to the whole route, and a delay is blamed on the right side of
//! the relay.
#![allow(clippy::unwrap_used)]

use crate::support;
use serde_json::{Value, json};
use std::time::Instant;
use support::{LONG, Running, Testbed, mostly};

/// The proxy has to be between: it cannot be at either end. Bounds of about 100 ms, which a busy machine nearly
/// always keeps.
const CONTRACT: &str = r#"
[system]
name = "row"
[[node]]
name = "camera"
cpus = 4
proxy = false
[[node]]
name = "gate"
cpus = 4
[[node]]
name = "desk"
cpus = 4
proxy = false
[[link]]
name = "first"
between = ["camera", "gate"]
rate = "100 Mbit/s"
[[link]]
name = "second"
between = ["gate", "desk"]
rate = "100 Mbit/s"
[[topic]]
name = "cam"
size = "100 B"
rate = "20 Hz"
publisher = "camera"
cpu_send = "30 ms"
[[subscriber]]
topic = "cam"
node = "desk"
name = "/in"
scale = 2
cpu_receive = "30 ms"
[placement]
delay = "bound"
cpu_proxy = "30 ms"
"#;

/// A camera, a relay and a desk; frames are delayed on arrival.
fn start(house: &Testbed, relay: &str, desk: &str) -> [Running; 3] {
    let parts = [
        house.start(&format!("relay --name gate {relay}")),
        house.start(&format!(
            "sub /cam --name desk --port /in --every 2 --proxy relay:gate --carrier udp --json {desk}"
        )),
        house.start("pub /cam --name camera --port /out --rate 20 --size 100 --carrier udp"),
    ];
    house.wait_for_list("channels", |channels| {
        let mut channels = channels.as_array().unwrap().iter();
        channels.any(|channel| channel["over"].as_str().is_some_and(|over| over.starts_with("/gate/proxy")))
    });
    parts
}

fn plan(house: &Testbed) -> String {
    let (contract, plan) = (house.path("system.toml"), house.path("plan.toml"));
    std::fs::write(&contract, CONTRACT).unwrap();
    let done = house.run(&format!("plan {} -o {}", contract.display(), plan.display()));
    assert_eq!(done.code(), 0, "{:?} {}", done.lines, done.errors);
    plan.display().to_string()
}

/// A measurement and its exit code.
fn verify(house: &Testbed, plan: &str) -> (Value, i32) {
    let done = house.run(&format!("verify {plan} --for 1 --json"));
    let found = serde_json::from_str(done.lines.last().unwrap_or_else(|| panic!("{}", done.errors))).unwrap();
    (found, done.code())
}

#[test]
fn a_route_over_a_relay_keeps_the_bound_of_the_whole() {
    let house = Testbed::new();
    let plan = plan(&house);
    let [relay, _desk, _camera] = start(&house, "", "");
    let kept = |(found, code): &(Value, i32)| *code == 0 && found["channels"][0]["verdict"] == "kept";
    let (found, _) = mostly(|| verify(&house, &plan), kept);
    let channel = &found["channels"][0];
    assert!(channel["relay_port"].as_str().unwrap().starts_with("/gate/proxy"), "{found}");
    assert_eq!(
        (&found["unplanned"], &found["suspects"]),
        (&json!([]), &json!([])),
        "the way to the relay is part of it"
    );
    let stages = channel["stages_us"].as_object().unwrap();
    for stage in
        ["publish", "queue", "send", "wire to relay", "relay", "wire from relay", "receive", "decode", "callback"]
    {
        assert!(stages.contains_key(stage), "{stage}: {found}");
    }
    let sum: f64 = stages.values().map(|us| us.as_f64().unwrap()).sum();
    assert!((sum - channel["worst_us"].as_f64().unwrap()).abs() < 1.0, "{found}");
    // Without its relay the route differs from the planned one.
    drop(relay);
    let gone = Instant::now();
    let mut looks = std::iter::from_fn(|| (gone.elapsed() < LONG).then(|| verify(&house, &plan).0));
    let found = looks.find(|found| found["channels"][0]["now"] == "at risk").expect("the route is the same");
    let because = found["channels"][0]["because"].as_str().unwrap();
    assert!(because.contains("directly, not over relay gate as planned"), "{found}");
}

#[test]
fn a_delay_is_blamed_on_its_side_of_the_relay() {
    for (relay, desk, stage, link) in [
        ("", "--fault delay=400ms", "wire from relay", "second to desk"),
        ("--fault delay=400ms", "", "wire to relay", "first to gate"),
    ] {
        let house = Testbed::new();
        let plan = plan(&house);
        let _parts = start(&house, relay, desk);
        let blamed = |(found, code): &(Value, i32)| {
            *code == 1 && found["channels"][0]["stage"] == stage && found["suspects"] == json!([link])
        };
        let (found, _) = mostly(|| verify(&house, &plan), blamed);
        let channel = &found["channels"][0];
        assert!(channel["verdict"] == "broken" && channel["lateness_us"].as_f64().unwrap() > 200_000.0, "{found}");
    }
}
