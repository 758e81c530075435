//! The lab from the command line: the shape of its results, and no leftovers. Failed checks do not matter here: too
//! little is measured, on a machine with other work.
#![allow(clippy::unwrap_used)]

use crate::support;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use support::{Done, LONG, Running, Testbed};

/// The reason why a run is impossible here, if it is.
fn refused(done: &Done) -> Option<String> {
    (done.code() == 3).then(|| done.errors.lines().last().unwrap_or_default().to_owned())
}

/// Namespaces and folders of the lab run of this process.
fn left_by(process: u32) -> Vec<String> {
    let mark = format!("thalweg-lab-{process}-");
    let folders = [Path::new("/run/netns").to_owned(), Path::new("/dev/shm").to_owned(), std::env::temp_dir()];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten()).flatten();
    entries.filter_map(|e| e.file_name().into_string().ok()).filter(|name| name.starts_with(&mark)).collect()
}

fn assert_distribution(figures: &Value) {
    let at = |key: &str| figures[key].as_f64().unwrap_or_else(|| panic!("no {key} in {figures}"));
    let order = ["min", "p50", "p90", "p99", "p999", "max"].map(at);
    assert!(order.is_sorted() && order[0] > 0.0, "{figures}");
    assert!(at("mean") >= order[0] && at("mean") <= order[5] && at("stdev") >= 0.0, "{figures}");
}

/// The contract of `lab run --json`.
fn assert_shape(document: &Value, name: &str) {
    assert_eq!(document["experiment"], name);
    let environment = &document["environment"];
    for key in ["kernel", "clock"] {
        assert!(environment[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {environment}");
    }
    assert!(environment["cpus"].as_u64() > Some(0) && environment["seed"] == 7, "{environment}");
    assert!(!environment["qdiscs"].as_array().unwrap().is_empty() && environment["versions"]["thalweg"].is_string());
    for cell in document["cells"].as_array().unwrap() {
        let factors = &cell["factors"];
        assert!(factors["arm"] == "qos" || factors["arm"] == "normal", "{factors}");
        assert!(factors["load_percent"].is_u64() && factors["payload_bytes"].is_u64(), "{factors}");
        assert!(factors["measured"].is_string() && factors["load"].is_string(), "{factors}");
        let count = |key: &str| cell[key].as_u64().unwrap_or_else(|| panic!("no {key} in {cell}"));
        assert_eq!(count("sent"), count("received") + count("lost"), "{cell}");
        assert_eq!(count("n"), count("received"), "{cell}");
        assert!(cell["stalled"]["n"].as_u64().unwrap() <= count("n"), "{cell}");
        if count("n") > 0 {
            assert_distribution(&cell["rtt_us"]);
        }
    }
    let checks = document["checks"].as_array().unwrap();
    for check in checks {
        assert!(check["name"].is_string() && check["limit"].is_number() && check["pass"].is_boolean(), "{check}");
    }
    assert_eq!(document["pass"], checks.iter().all(|check| check["pass"] == true));
    assert!(document["skipped"].is_array());
}

#[test]
fn experiments_are_listed_and_an_unknown_one_is_answered_with_them() {
    let house = Testbed::new();
    let listed = house.run("lab list --json").json();
    let names: Vec<&str> =
        listed["experiments"].as_array().unwrap().iter().filter_map(|e| e["name"].as_str()).collect();
    assert!(names.contains(&"yarp-nic") && names.contains(&"yarp-switch"), "{names:?}");
    let done = house.run("lab run yarp-cloud");
    assert_eq!(done.code(), 2);
    assert!(names.iter().all(|name| done.errors.contains(name)), "{}", done.errors);
}

#[test]
fn a_run_has_the_promised_shape_and_leaves_nothing() {
    let house = Testbed::new();
    let out = house.path("out");
    for name in ["yarp-nic", "yarp-switch"] {
        let running = house.start(&format!("lab run {name} --tiny --seed 7 --json --out {}", out.display()));
        let process = running.child.id();
        let done = running.finish();
        if let Some(why) = refused(&done) {
            println!("skipped: a_run_has_the_promised_shape_and_leaves_nothing: because {why}");
            return;
        }
        assert_eq!(done.lines.len(), 1, "{:?} {}", done.lines, done.errors);
        let document: Value = serde_json::from_str(&done.lines[0]).unwrap();
        assert_shape(&document, name);
        let code = match document["verdict"].as_str() {
            Some("pass") => 0,
            Some("inconclusive") => 4,
            _ => 1,
        };
        assert_eq!(done.code(), code, "{}", done.errors);
        assert_eq!(left_by(process), Vec::<String>::new());
        let written = std::fs::read_to_string(out.join(format!("{name}.json"))).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), document);
        assert!(std::fs::read_to_string(out.join(format!("{name}.svg"))).unwrap().starts_with("<svg"));
        assert!(std::fs::read_to_string(out.join(format!("{name}.md"))).unwrap().contains("p99"));
        let samples = std::fs::read_to_string(out.join(format!("{name}.csv"))).unwrap();
        let count = document["cells"].as_array().unwrap().iter().map(|cell| cell["n"].as_u64().unwrap()).sum::<u64>();
        assert_eq!(samples.lines().filter(|line| line.starts_with(char::is_numeric)).count() as u64, count);
    }
    let report = house.run(&format!("lab report {} --json", out.display())).json();
    assert_eq!(report["results"], serde_json::json!(["yarp-nic", "yarp-switch"]));
    let page = std::fs::read_to_string(report["report"].as_str().unwrap()).unwrap();
    assert!(page.matches("<svg").count() == 2 && page.ends_with("</html>\n"));
}

#[test]
fn ctrl_c_ends_a_run_and_leaves_nothing() {
    let house = Testbed::new();
    let mut command = house.command("lab run yarp-switch --json");
    command.process_group(0); // as from a terminal, the parts get the signal, too
    let mut running = Running::start(command);
    let (process, group) = (running.child.id(), Pid::from_child(&running.child));
    let until = std::time::Instant::now() + LONG;
    while left_by(process).len() < 5 && running.child.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < until, "the run has not begun");
        std::thread::yield_now();
    }
    let _ = rustix::process::kill_process_group(group, Signal::INT);
    let done = running.finish();
    if let Some(why) = refused(&done) {
        println!("skipped: ctrl_c_ends_a_run_and_leaves_nothing: because {why}");
        return;
    }
    assert!(done.code() == 1 && done.lines.is_empty() && done.errors.contains("stopped"), "{}", done.errors);
    assert_eq!(left_by(process), Vec::<String>::new());
    assert!(rustix::process::test_kill_process_group(group).is_err(), "processes are left");
}

#[test]
fn a_report_of_nothing_is_refused_with_what_to_do() {
    let house = Testbed::new();
    std::fs::create_dir(house.path("empty")).unwrap();
    let done = house.run(&format!("lab report {}", house.path("empty").display()));
    assert!(done.code() == 2 && done.errors.contains("lab run"), "{}", done.errors);
    assert_eq!(house.run(&format!("lab report {}", house.path("missing").display())).code(), 2);
    std::fs::write(house.path("empty").join("yarp-nic.json"), "{\"experiment\": 1}").unwrap();
    let done = house.run(&format!("lab report {}", house.path("empty").display()));
    assert!(done.code() == 2 && done.errors.contains("yarp-nic.json"), "{}", done.errors);
}
