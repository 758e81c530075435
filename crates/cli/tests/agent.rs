//! `thalweg verify --agent`: measured values leave the contract, and another assignment follows.
#![allow(clippy::unwrap_used)]

use crate::support;
use serde_json::{Value, json};
use support::Testbed;

/// A camera and a body share a switch's link to the pilot.
const CONTRACT: &str = r#"
[system]
name = "small"
[[node]]
name = "camera"
[[node]]
name = "body"
[[node]]
name = "pilot"
[[node]]
name = "switch"
kind = "switch"
[[link]]
between = ["camera", "switch"]
rate = "1 Gbit/s"
[[link]]
between = ["body", "switch"]
rate = "1 Gbit/s"
[[link]]
between = ["pilot", "switch"]
rate = "10 Mbit/s"
scheduler = "strict"
[[topic]]
name = "video"
size = "5000 B"
rate = "50 Hz"
publisher = "camera"
[[topic]]
name = "imu"
size = "100 B"
rate = "100 Hz"
publisher = "body"
[[subscriber]]
topic = "video"
node = "pilot"
name = "/pilot/video"
deadline = "50 ms"
[[subscriber]]
topic = "imu"
node = "pilot"
name = "/pilot/imu"
deadline = "6 ms"
[placement]
delay = "bound"
"#;

/// The decisions of an agent beside a video twice as large as declared, and the imu's class afterwards.
fn decisions(arguments: &str) -> (Vec<Value>, Value) {
    let house = Testbed::new();
    let (contract, plan) = (house.path("system.toml"), house.path("plan.toml"));
    std::fs::write(&contract, CONTRACT).unwrap();
    assert_eq!(house.run(&format!("plan {} -o {}", contract.display(), plan.display())).code(), 0);
    let _parts = [("video", 50, 10_000), ("imu", 100, 100)].map(|(topic, rate, size)| {
        let sub = house.start(&format!("sub /{topic} --port /pilot/{topic} --carrier tcp --json"));
        [sub, house.start(&format!("pub /{topic} --rate {rate} --size {size} --port /{topic}/out --carrier tcp"))]
    });
    house.wait_for_list("channels", |channels| channels.as_array().is_some_and(|channels| channels.len() == 2));
    let verify = format!("verify {} --for 3 --interval 500ms --json --agent {}", plan.display(), contract.display());
    let done = house.run(&format!("{verify} {arguments}"));
    let lines = done.lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let decisions: Vec<Value> = lines.filter(|line| !line["decision"].is_null()).collect();
    assert_eq!(decisions.len(), 1, "{:?} {}", done.lines, done.errors);
    let size = json!({"table": "topic", "name": "video", "key": "size", "value": "\"10000 B\""});
    assert_eq!(decisions[0]["contract"], json!([size]));
    assert!(done.errors.contains("it may give the classes low, normal"), "{}", done.errors);
    let class = house.run("get /imu/out /pilot/imu --json").json();
    // The agent's settings are taken back like those of `apply`.
    let restored = house.run("restore");
    let sets = decisions[0]["applied"] == true;
    assert_eq!((restored.code(), restored.lines.len()), (0, if sets { 2 } else { 1 }), "{:?}", restored.lines);
    let expected = if sets { "/imu/out with /pilot/imu: as before" } else { "nothing was applied" };
    assert!(restored.lines.iter().any(|line| line == expected), "{:?}", restored.lines);
    let after = house.run("get /imu/out /pilot/imu --json").json();
    assert!(!after.to_string().contains("\"class\":\"high\""), "{after}");
    (decisions, class)
}

#[test]
fn an_agent_proposes_and_with_consent_sets() {
    for apply in [false, true] {
        let (decisions, ends) = decisions(if apply { "--apply" } else { "" });
        let decision = &decisions[0];
        assert_eq!((&decision["decision"], &decision["applied"]), (&json!("change"), &json!(apply)), "{decision}");
        assert!(
            decision["because"].as_str().unwrap().starts_with("size of video is 10000 B, not 5000 B"),
            "{decision}"
        );
        assert_eq!(decision["settings"][0]["publisher_end"], "class=high", "{decision}");
        let text = ends.to_string();
        assert_eq!(text.contains("\"class\":\"high\""), apply, "{text}");
    }
}

#[test]
fn an_agent_keeps_to_its_limits() {
    let (decisions, ends) = decisions("--apply --classes low,normal");
    assert_eq!((&decisions[0]["decision"], &decisions[0]["settings"]), (&json!("refuse"), &json!([])));
    assert!(decisions[0]["because"].as_str().unwrap().contains("class high, which may not be given"));
    assert!(!ends.to_string().contains("\"class\":\"high\""), "{ends}");
    let house = Testbed::new();
    std::fs::write(house.path("plan.toml"), "").unwrap();
    let alone = house.run(&format!("verify {} --apply", house.path("plan.toml").display()));
    assert!(alone.code() == 2 && alone.errors.contains("--agent"), "{}", alone.errors);
}
