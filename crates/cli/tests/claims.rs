//! The gate of the claims: every experiment in its `--ci` size, where only checks count that so few samples can hold; and the same with a
//! feature left out, which must fail. Run it alone: `cargo test --release --test claims -- --test-threads=1 --show-output`.
#![allow(clippy::unwrap_used)] // all of this is test

mod support;

use serde_json::Value;
use support::Testbed;

/// A feature left out, and the experiment that must find it.
const BROKEN: [(&str, &str); 7] = [
    ("marks", "yarp-switch"),
    ("marks", "yarp-nic"),
    ("threads", "cpu-contention"),
    ("threads", "yarp-publish"),
    ("proxies", "pushpull-places"),
    ("proxies", "placement-vbns"),
    ("proxies", "placement-star"),
];

/// Runs `lab run`: its document, and its exit code; `None` where it cannot run at all, with the reason printed.
fn run(arguments: &str) -> Option<(Value, i32)> {
    let testbed = Testbed::new();
    let done = testbed.start(&format!("lab run {arguments} --json")).finish_within(HOURS);
    if done.code() == 3 {
        println!("skipped: {arguments}: because {}", done.errors.lines().last().unwrap_or_default());
        return None;
    }
    assert!(done.lines.len() == 1 && done.code() != 2, "{} {:?} {}", done.code(), done.lines, done.errors);
    Some((serde_json::from_str(&done.lines[0]).unwrap(), done.code()))
}

/// All experiments take some minutes.
const HOURS: std::time::Duration = std::time::Duration::from_secs(2 * 3600);

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().unwrap().iter().filter_map(Value::as_str)
}

#[test]
fn each_claim_holds() {
    let Some((document, code)) = run("all --ci") else { return };
    let experiments = document["experiments"].as_array().unwrap();
    for runs in experiments {
        let verdicts = texts(&runs["runs"]).collect::<Vec<_>>().join(" ");
        println!("{}: {verdicts}, {:.0} s", runs["experiment"].as_str().unwrap(), runs["seconds"].as_f64().unwrap());
        texts(&runs["wrong"]).for_each(|wrong| println!("  {wrong}"));
    }
    let of = |verdict: &str| -> Vec<&Value> {
        experiments.iter().filter(|runs| runs["verdict"] == verdict).map(|runs| &runs["experiment"]).collect()
    };
    assert!(of("fail").is_empty() && code != 1, "{:?}", of("fail"));
    // Neither a pass nor a failure: this machine cannot tell. The reader of the output must see it.
    of("inconclusive").iter().for_each(|name| println!("INCONCLUSIVE: {name}"));
    assert!(of("pass").len() * 2 > experiments.len(), "most are inconclusive: {:?}", of("inconclusive"));
}

#[test]
fn a_feature_left_out_is_found() {
    let mut found = 0;
    for (feature, experiment) in BROKEN {
        let Some((document, code)) = run(&format!("{experiment} --ci --without {feature}")) else { return };
        let checks = document["checks"].as_array().unwrap().iter();
        let red: Vec<&str> = checks.filter(|c| c["verdict"] == "fail").filter_map(|c| c["name"].as_str()).collect();
        println!("without {feature}, {experiment}: {}", red.join("; "));
        if code == 4 {
            println!("INCONCLUSIVE: without {feature}, {experiment}");
            continue;
        }
        assert!(code == 1 && !red.is_empty(), "without {feature}, {experiment} ends with {code}");
        found += 1;
    }
    assert!(found * 2 > BROKEN.len(), "most are inconclusive: {found} of {} were found", BROKEN.len());
}
