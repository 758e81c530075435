//! `thalweg verify`: running channels beside the promises of their plan.
#![allow(clippy::unwrap_used)]

use crate::support;
use serde_json::{Value, json};
use std::process::Command;
use support::{Done, Running, Testbed, mostly};

/// Two hosts around a third; bounds of about 40 ms, so that a busy machine keeps them nearly always.
const CONTRACT: &str = r#"
[system]
name = "small"
[[node]]
name = "base"
cpus = 2
[[node]]
name = "arm"
[[node]]
name = "head"
[[link]]
name = "arm-lan"
between = ["base", "arm"]
rate = "100 Mbit/s"
[[link]]
name = "head-lan"
between = ["base", "head"]
rate = "100 Mbit/s"
[[topic]]
name = "joints"
size = "100 B"
rate = "20 Hz"
publisher = "arm"
cpu_send = "20 ms"
[[topic]]
name = "gaze"
size = "100 B"
rate = "20 Hz"
publisher = "head"
cpu_send = "20 ms"
[[subscriber]]
topic = "joints"
node = "base"
name = "/base/joints"
cpu_receive = "20 ms"
[[subscriber]]
topic = "gaze"
node = "base"
name = "/base/gaze"
cpu_receive = "20 ms"
[placement]
delay = "bound"
"#;

/// A house with a plan.
pub fn planned() -> (Testbed, String) {
    let house = Testbed::new();
    let (contract, plan) = (house.path("system.toml"), house.path("plan.toml").display().to_string());
    std::fs::write(&contract, CONTRACT).unwrap();
    assert_eq!(house.run(&format!("plan {} -o {plan}", contract.display())).code(), 0);
    (house, plan)
}

fn document(done: &Done) -> Value {
    serde_json::from_str(done.lines.last().unwrap_or_else(|| panic!("{}", done.errors))).unwrap()
}

/// The verdicts by topic.
fn verdicts(document: &Value) -> Value {
    let channels = document["channels"].as_array().unwrap();
    channels.iter().map(|channel| (channel["topic"].as_str().unwrap().to_owned(), channel["verdict"].clone())).collect()
}

/// Measures; the verdicts are mostly these.
fn verdicts_are(house: &Testbed, arguments: &str, expected: &Value) -> Done {
    let measure = || house.run(&format!("verify {arguments} --json"));
    mostly(measure, |done| verdicts(&document(done)) == *expected)
}

pub fn pair(house: &Testbed, topic: &str, carrier: &str, subscriber: &str) -> [Running; 2] {
    let sub = house.start(&format!("sub /{topic} --port /base/{topic} --carrier {carrier} --json {subscriber}"));
    let publish = house.start(&format!("pub /{topic} --rate 20 --size 100 --carrier {carrier} --port /{topic}@x"));
    house.wait_for_list("channels", |channels| {
        channels.as_array().unwrap().iter().any(|channel| channel["topic"] == format!("/{topic}"))
    });
    [sub, publish]
}

#[test]
fn promises_are_kept_or_broken_and_the_rest_is_reported() {
    let (house, plan) = planned();
    let alone = house.run(&format!("verify {plan} --for 0.2 --json"));
    assert_eq!((alone.code(), verdicts(&document(&alone))), (1, json!({"joints": "unknown", "gaze": "unknown"})));
    assert!(alone.errors.contains("no channel of the plan could be compared"), "{}", alone.errors);

    let joints = pair(&house, "joints", "tcp", "");
    let _other = house.start("sub /joints --port /spy --carrier tcp --json");
    house.wait_for_list("channels", |channels| channels.as_array().is_some_and(|channels| channels.len() == 2));
    let done = verdicts_are(&house, &format!("{plan} --for 1"), &json!({"joints": "kept", "gaze": "unknown"}));
    assert_eq!(done.code(), 0, "{}", done.errors);
    let found = document(&done);
    let [first, second] = [0, 1].map(|index| found["channels"][index].clone());
    let (kept, absent) = if first["topic"] == "joints" { (first, second) } else { (second, first) };
    assert_eq!(
        (&kept["publisher"], &kept["publisher_port"], &kept["lost"]),
        (&json!("arm"), &json!("/joints@x"), &json!(0))
    );
    assert!(kept["worst_us"].as_f64().unwrap() > 1.0 && kept["lateness_us"].as_f64().unwrap() < 0.0, "{kept}");
    assert!(kept["latency_us"]["p99"].as_f64().unwrap() > 1.0 && absent["latency_us"].is_null(), "{kept} {absent}");
    assert_eq!((&kept["uncertainty_us"], &kept["measured"]["bytes"]), (&json!(0.0), &json!(100)));
    assert_eq!((&absent["running"], &absent["because"]), (&json!(false), &json!("not running")));
    assert_eq!(found["unplanned"], json!([{"topic": "/joints", "publisher": "/joints@x", "subscriber": "/spy"}]));
    assert_eq!(found["pass"], true);
    drop(joints);
}

/// No sample carries its cause: a chain is as late as the latest of its parts together, at most.
#[test]
fn a_chain_is_verified_by_its_parts() {
    let house = Testbed::new();
    let (contract, plan) = (house.path("system.toml"), house.path("plan.toml").display().to_string());
    let chain = "[[topic]]\nname = \"moves\"\nsize = \"100 B\"\nrate = \"20 Hz\"\npublisher = \"base\"\ncpu_send = \"10 ms\"\n\
        [[subscriber]]\ntopic = \"moves\"\nnode = \"arm\"\nname = \"/base/moves\"\ncpu_receive = \"10 ms\"\n\
        [[chain]]\nname = \"react\"\ntopics = [\"joints\", \"moves\"]\nsampled = [\"moves\"]\ndeadline = \"1 s\"\n";
    std::fs::write(&contract, CONTRACT.replace("[placement]", &format!("{chain}[placement]"))).unwrap();
    let planned = house.run(&format!("plan {} -o {plan}", contract.display()));
    assert_eq!(planned.code(), 0, "{:?} {}", planned.lines, planned.errors);
    let _joints = pair(&house, "joints", "tcp", "");
    let alone = document(&house.run(&format!("verify {plan} --for 0.5 --json")))["chains"][0].clone();
    assert_eq!((&alone["verdict"], &alone["because"]), (&json!("unknown"), &json!("a part was not measured")));
    let _moves = pair(&house, "moves", "tcp", "");
    let expected = json!({"joints": "kept", "moves": "kept", "gaze": "unknown"});
    let found = document(&verdicts_are(&house, &format!("{plan} --for 1"), &expected));
    let chain = &found["chains"][0];
    let worst = |part: usize| chain["parts"][part]["worst_us"].as_f64().unwrap();
    let sum = worst(0) + worst(1) + 50_000.0;
    assert_eq!((&chain["verdict"], &chain["parts"][1]["wait_us"]), (&json!("kept"), &json!(50_000.0)), "{chain}");
    assert!((chain["at_most_us"].as_f64().unwrap() - sum).abs() < 0.01, "{chain}");
    let text = house.run(&format!("verify {plan} --for 0.5")).lines.join("\n");
    assert!(text.contains("chains, by their parts") && text.contains("\nreact "), "{text}");
}

#[test]
fn measured_values_are_written_back_into_the_contract() {
    let (house, plan) = planned();
    let _joints = pair(&house, "joints", "tcp", "");
    let done = house.run(&format!("verify {plan} --for 1 --json"));
    let (verified, contract) = (house.path("verified.json"), house.path("system.toml"));
    std::fs::write(&verified, done.lines.join("\n")).unwrap();
    std::fs::write(&contract, CONTRACT.replace("size = \"100 B\"", "size = \"90 B\" # guessed")).unwrap();
    let done = house.run(&format!("plan {} --measured {}", contract.display(), verified.display()));
    assert!([0, 1].contains(&done.code()), "{}", done.errors);
    let text = std::fs::read_to_string(&contract).unwrap();
    assert!(text.contains("size = \"100 B\" # guessed") && text.contains("size = \"90 B\" # guessed"), "{text}");
    assert!(done.errors.contains("topic joints: cpu_send = ") && !done.errors.contains("gaze"), "{}", done.errors);
    let wrong = house.run(&format!("plan {} --measured {plan}", contract.display()));
    assert!(wrong.code() == 2 && wrong.errors.contains("verify --json"), "{}", wrong.errors);
}

#[test]
fn a_late_channel_is_named_with_its_stage_and_both_ends_are_told() {
    let (house, plan) = planned();
    let [late, _publish] = pair(&house, "joints", "udp", "--fault delay=200ms");
    let _well = pair(&house, "gaze", "tcp", "");
    let told = house.start("sub /thalweg/verification --json");
    let done =
        verdicts_are(&house, &format!("{plan} --for 1 --interval 250ms"), &json!({"joints": "broken", "gaze": "kept"}));
    assert_eq!(done.code(), 1);
    let found = document(&done);
    assert_eq!((&found["suspects"], &found["pass"]), (&json!(["arm-lan to base"]), &json!(false)), "{found}");
    let channels = found["channels"].as_array().unwrap();
    let joints = channels.iter().find(|channel| channel["topic"] == "joints").unwrap();
    assert!(joints["stage"] == "wire" && joints["late"].as_u64().unwrap() > 0, "{joints}");
    assert!(joints["lateness_us"].as_f64().unwrap() > 100_000.0, "{joints}");
    let verdict = std::iter::from_fn(|| Some(told.json_line())).find(|line| {
        let data: Value = serde_json::from_str(line["data"].as_str().unwrap()).unwrap();
        data["topic"] == "joints" && data["verdict"] == "broken" && data["was"] == "unknown"
    });
    assert!(verdict.is_some());
    let errors = late.interrupt().errors;
    assert!(errors.contains("the promise of its plan is broken: 2"), "{errors}");
}

/// A broken promise stays broken, with its worst case, stage, time and count. The present state is reported apart.
#[test]
fn a_promise_once_broken_is_broken_at_the_end() {
    let (house, plan) = planned();
    let joints = || pair(&house, "joints", "udp", "");
    let measure = || {
        let well = joints();
        let verify = house.start(&format!("verify {plan} --watch --interval 250ms --json"));
        let until = |fits: &dyn Fn(&Value) -> bool| {
            std::iter::from_fn(|| Some(verify.json_line())).find(|look| fits(&look["channels"][0])).unwrap()
        };
        let is = |key: &'static str, verdict: &'static str| move |channel: &Value| channel[key] == verdict;
        until(&is("now", "kept"));
        // Stopped until that is noticed, for much longer than the bound: samples published meanwhile come late.
        well[0].signal(rustix::process::Signal::STOP);
        until(&is("now", "at risk"));
        well[0].signal(rustix::process::Signal::CONT);
        until(&is("now", "broken"));
        until(&is("now", "kept"));
        let done = verify.interrupt();
        let found = document(&done);
        let channel = &found["channels"][0];
        assert_eq!((done.code(), &found["pass"], &channel["verdict"]), (1, &json!(false), &json!("broken")), "{found}");
        assert!(channel["worst_us"].as_f64().unwrap() > 300_000.0 && channel["late"].as_u64().unwrap() > 0, "{found}");
        assert!(!channel["stage"].is_null() && channel["lateness_us"].as_f64().unwrap() > 0.0, "{found}");
        let (looks, broken) = (channel["looks"].as_u64().unwrap(), &channel["broken"]);
        let because = channel["because"].as_str().unwrap();
        assert!(because.contains(&format!(" of {looks} looks, ")), "{found}");
        assert!(broken["first_s"].as_f64().unwrap() <= channel["worst_at_s"].as_f64().unwrap(), "{found}");
        found
    };
    mostly(measure, |found| {
        let channel = &found["channels"][0];
        channel["now"] == "kept" && channel["broken"]["looks"].as_u64() < channel["looks"].as_u64()
    });
}

/// A time namespace stands for another host: its monotonic clock began at another time.
#[test]
fn figures_between_two_clocks_are_within_the_stated_uncertainty() {
    let (house, plan) = planned();
    let _sub = house.start("sub /joints --port /base/joints --carrier tcp --json");
    let publish = house.command("pub /joints --rate 20 --size 100 --carrier tcp --port /joints@x");
    let apart = ["--time", "--fork", "--kill-child", "--monotonic", "5000", "--"];
    let can = Command::new("unshare").args(apart).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!(
            "skipped: verify between two clocks because no time namespace can be made: run as root, with util-linux"
        );
        return;
    }
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(apart).arg(publish.get_program()).args(publish.get_args());
    elsewhere.envs(publish.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let _publish = Running::start(elsewhere);
    house.wait_for_list("channels", |channels| channels.as_array().is_some_and(|channels| channels.len() == 1));
    let done = verdicts_are(&house, &format!("{plan} --for 1"), &json!({"joints": "kept", "gaze": "unknown"}));
    let found = document(&done);
    let joints = found["channels"].as_array().unwrap().iter().find(|channel| channel["topic"] == "joints").unwrap();
    let [worst, uncertain] = ["worst_us", "uncertainty_us"].map(|key| joints[key].as_f64().unwrap());
    assert!(uncertain > 0.0 && uncertain < 40_000.0, "{joints}");
    assert!(worst.abs() < 1e6, "5000 s were not taken off: {joints}");
}

#[test]
fn a_watch_shows_each_look_and_an_invalid_plan_is_refused() {
    let (house, plan) = planned();
    let _joints = pair(&house, "joints", "tcp", "");
    let done = house.run(&format!("verify {plan} --watch --for 1 --interval 250ms --json"));
    assert!(done.lines.len() >= 3, "{:?}", done.lines);
    let text = house.run(&format!("verify {plan} --for 0.3"));
    assert!(text.lines[2].contains("verdict") && text.lines[2].contains("now"), "{:?}", text.lines);
    assert!(
        text.lines[0].starts_with("small (contract ") && text.lines[0].contains("1 not running"),
        "{:?}",
        text.lines
    );
    let none = house.run("verify /does/not/exist.toml");
    assert!(none.code() == 2 && none.errors.contains("cannot be read"), "{}", none.errors);
}
