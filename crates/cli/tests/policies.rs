//! Policies on the command line: matching, reports at both ends, explanations, profiles.
#![allow(clippy::unwrap_used)]

use crate::support;
use serde_json::json;
use support::{Running, Testbed};

/// A publisher and a subscriber of one topic with these options, once both are known.
fn pair(publish: &str, subscribe: &str) -> (Testbed, Running, Running) {
    let house = Testbed::new();
    let publisher = house.start(&format!("pub /a --port /out --rate 100 {publish}"));
    let subscriber = house.start(&format!("sub /a --port /in --json {subscribe}"));
    house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|p| p.len() == 2));
    (house, publisher, subscriber)
}

#[test]
fn each_mismatch_is_explained_and_reported_at_both_ends() {
    let (house, publisher, subscriber) =
        pair("--deadline 50ms --best-effort", "--deadline 20ms --reliable --policy destination-order=by-source");
    let why = house.run("why /out /in --json");
    assert_eq!(why.code(), 1, "{}", why.errors);
    let found: serde_json::Value = serde_json::from_str(&why.lines[0]).unwrap();
    let problems = found["problems"].as_array().unwrap();
    let what: Vec<&str> = problems.iter().map(|p| p["what"].as_str().unwrap()).collect();
    assert!(what[0].starts_with("reliability: /out offers best-effort, /in requests reliable"), "{what:?}");
    assert!(what[1].starts_with("deadline: /out offers 50ms, /in requests 20ms"), "{what:?}");
    assert!(what[2].starts_with("destination-order: /out offers by-reception"), "{what:?}");
    let listed = house.run("list --qos --json").json();
    let policies: Vec<_> = listed["mismatches"].as_array().unwrap().iter().map(|m| m["policy"].clone()).collect();
    assert_eq!(policies, [json!("reliability"), json!("deadline"), json!("destination-order")]);
    let text = house.run("list --qos").lines.join("\n");
    assert!(text.contains("deadline 50ms") && text.contains("offer 20ms or shorter at the publisher"), "{text}");
    assert!(house.run("info /in").lines.join("\n").contains("deadline     20ms"));
    for end in [publisher.interrupt(), subscriber.interrupt()] {
        assert!(end.errors.contains("deadline offered 50ms, requested 20ms"), "{}", end.errors);
    }
}

#[test]
fn a_declared_fallback_matches_with_a_warning() {
    let (house, publisher, subscriber) = pair("--best-effort", "--reliable --policy fallback=reliability");
    subscriber.json_line();
    let why = house.run("why /out /in");
    assert_eq!(why.code(), 0, "{:?}", why.lines);
    drop(publisher);
    let errors = subscriber.interrupt().errors;
    assert!(errors.contains("match by fallback only: reliability offered best-effort"), "{errors}");
}

#[test]
fn partitions_keep_ports_apart_silently() {
    let (house, publisher, subscriber) = pair("--partition left", "--partition right");
    let why = house.run("why /out /in").lines.join("\n");
    assert!(why.contains("partition: /out offers left, /in requests right"), "{why}");
    let other = house.start("sub /a --json --partition left --partition up");
    other.json_line();
    for end in [publisher.interrupt(), subscriber.interrupt()] {
        // A stalled machine breaks off attempts to connect, which is reported.
        assert!(end.errors.lines().all(|line| line.contains("ended without a word")), "{}", end.errors);
    }
}

#[test]
fn policies_that_contradict_each_other_are_refused_with_both_values() {
    let house = Testbed::new();
    for (arguments, says) in [
        ("sub /a --deadline 10ms --policy separation=20ms", "deadline 10ms contradicts separation 20ms"),
        (
            "pub /a --transient-local --policy history=9 --policy samples=16 --policy samples-per-instance=4",
            "contradicts",
        ),
        ("pub /a --lifespan 0s", "lifespan 0ns"),
        ("pub /a --policy strength=1", "strength 1 contradicts ownership shared"),
        ("sub /a --policy colour=red", "destination-order"),
        ("sub /a --policy lease=1", "ns us ms s"),
    ] {
        let done = house.run(arguments);
        assert_eq!(done.code(), 2, "{arguments}: {}", done.errors);
        assert!(done.errors.contains(says), "{arguments}: {}", done.errors);
    }
}

#[test]
fn a_profile_states_policies_by_topic() {
    let house = Testbed::new();
    let profile = "[[port]]\nreliability = 'best-effort'\n[[port]]\ntopic = '/a'\ndeadline = '50 ms'\n";
    std::fs::write(house.path("robot.toml"), profile).unwrap();
    let file = house.path("robot.toml").display().to_string();
    let _publisher = house.start(&format!("pub /a --port /out --profile {file}"));
    let _other = house.start(&format!("pub /b --port /other --profile {file} --deadline 1s"));
    house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|p| p.len() == 2));
    let listed = house.run("list --qos --json").json();
    let stated = |n: usize| ["reliability", "deadline"].map(|name| listed["ports"][n]["stated"][name].clone());
    assert_eq!(stated(0), ["best-effort", "1s"]);
    assert_eq!(stated(1), ["best-effort", "50ms"]);
}

#[test]
fn a_profile_of_dds_needs_no_change_of_the_program() {
    let house = Testbed::new();
    let profile = "<dds><qos_library name='L'><qos_profile name='P'><datawriter_qos topic_filter='a'><deadline><period>\
                   <sec>2</sec></period></deadline><user_data/></datawriter_qos></qos_profile></qos_library></dds>";
    std::fs::write(house.path("robot.xml"), profile).unwrap();
    let file = house.path("robot.xml").display().to_string();
    let publisher = house.start(&format!("pub /a --port /out --profile {file}"));
    let _other = house.start(&format!("pub /b --port /other --profile {file}"));
    house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|p| p.len() == 2));
    let listed = house.run("list --qos --json").json();
    let deadline = |n: usize| listed["ports"][n]["stated"]["deadline"].clone();
    assert_eq!((deadline(0), deadline(1)), (json!(null), json!("2s")));
    let errors = publisher.interrupt().errors;
    assert!(errors.contains("robot.xml:1: user_data: has no meaning here"), "{errors}");
}
