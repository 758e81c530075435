//! The demo: all channels flow, and no leftovers remain after any kind of end.
#![allow(clippy::unwrap_used)]

use crate::support;
use rustix::process::{Pid, Signal};
use std::os::unix::process::CommandExt;
use std::time::Instant;
use support::{LONG, Running, Testbed};

/// Starts the demo as leader of a process group of its own, in the house.
fn start(house: &Testbed, arguments: &str) -> (Running, Pid) {
    let mut command = house.command(&format!("demo {arguments}"));
    command.process_group(0).current_dir(house.path(""));
    let running = Running::start(command);
    let group = Pid::from_child(&running.child);
    (running, group)
}

/// Network namespaces of the demo with this process number.
fn namespaces_of(process: Pid) -> Vec<String> {
    let prefix = format!("thalweg-lab-{}-", process.as_raw_nonzero());
    let all = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    all.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| name.starts_with(&prefix)).collect()
}

/// Waits until no process of the group is left, and looks for leftovers.
fn assert_gone(house: &Testbed, group: Pid) {
    let until = Instant::now() + LONG;
    while rustix::process::test_kill_process_group(group).is_ok() {
        assert!(Instant::now() < until, "processes are left");
        std::thread::yield_now();
    }
    let run = house.path("run");
    let folders = std::fs::read_dir(run).into_iter().flatten().flatten();
    let left: Vec<_> =
        folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten()).flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn all_channels_flow_and_are_counted_in_both_phases() {
    let summary = document("--seconds 2 --json --figure robot.svg");
    assert_eq!(summary["figure"], "robot.svg");
    if summary["stage"] != "link" {
        println!("skipped: all_channels_flow_and_are_counted_in_both_phases: because {}", summary["because"]);
        return;
    }
    let carriers = summary["channels"].as_array().unwrap().iter().map(|channel| &channel["carrier"]);
    assert_eq!(carriers.collect::<Vec<_>>(), ["tcp", "shm", "tcp", "shm"]);
    let steps = summary["set"].as_array().unwrap();
    let step = steps.last().unwrap();
    assert_eq!((&step["done"], step["ends"].as_array().map(Vec::len)), (&true.into(), Some(2)), "{summary}");
    assert_eq!((&step["ends"][0]["class"], &step["ends"][0]["effective"]), (&"high".into(), &true.into()), "{step}");
    let command = "thalweg set /controller/command /base/command class=high";
    // The thread has no priority only if the kernel refused it, which the demo reports.
    if let [refused, _] = steps.as_slice() {
        assert_eq!((&refused["done"], &step["command"]), (&false.into(), &command.into()), "{summary}");
        assert!(refused["because"].as_str().unwrap().contains("CAP_SYS_NICE"), "{refused}");
    } else {
        assert_eq!(step["command"], format!("{command} sched=fifo:30"), "{summary}");
        assert_eq!(step["ends"][1]["policy"], "fifo", "{step}");
    }
    let transferred = |phase: usize| summary["phases"][phase]["transfer_mbit_s"].as_f64();
    assert!(transferred(0) > Some(0.0) && transferred(1) > Some(0.0), "{summary}");
}

#[test]
fn without_root_the_processors_are_filled_and_something_is_set() {
    let summary = document("--seconds 1 --json --without-root");
    assert_eq!((&summary["stage"], summary["channels"][2]["carrier"].as_str()), (&"processors".into(), Some("shm")));
    let steps = summary["set"].as_array().unwrap();
    assert_eq!(steps.last().unwrap()["done"], true, "{summary}");
    assert!(summary["because"].as_str().unwrap().contains("--without-root") && summary["figure"].is_null());
}

/// Runs the demo to its end, checks the common parts of the document, and looks for leftovers.
fn document(arguments: &str) -> serde_json::Value {
    let house = Testbed::new();
    let (running, group) = start(&house, arguments);
    let done = running.finish();
    let summary: serde_json::Value = serde_json::from_str(&done.lines[0]).unwrap();
    // Exit code 1 is an honest answer of a busy machine: exactly where the figures say so.
    assert_eq!(done.code(), i32::from(!shows_the_effect(&summary)), "{} {summary}", done.errors);
    assert_eq!((done.lines.len(), summary["channels"].as_array().map(Vec::len)), (1, Some(4)));
    let phases: Vec<_> = summary["phases"].as_array().unwrap().iter().map(|phase| &phase["phase"]).collect();
    assert_eq!(phases, ["before", "after"]);
    let all = summary["phases"].as_array().unwrap().iter().flat_map(|phase| phase["channels"].as_array().unwrap());
    for channel in all {
        let number = |key: &str| channel[key].as_u64().unwrap();
        assert!(number("received") > 0, "{channel}");
        assert_eq!(number("sent") - number("received"), number("lost"), "{channel}");
        assert!(channel["latency_us"]["p50"].as_f64() <= channel["latency_us"]["max"].as_f64(), "{channel}");
        assert!(channel["rate_hz"].as_f64() > Some(0.0) && channel["carrier"].as_str() != Some(""), "{channel}");
    }
    assert_gone(&house, group);
    assert_eq!(namespaces_of(group), Vec::<String>::new());
    if let Some(file) = summary["figure"].as_str() {
        assert!(std::fs::read_to_string(house.path(file)).unwrap().contains("</svg>"), "{file}");
    }
    summary
}

/// The priority was set, and with it the urgent channel lost nothing, kept its rate, and was faster than before.
fn shows_the_effect(summary: &serde_json::Value) -> bool {
    let [before, after] = [0, 1].map(|phase| {
        let mut channels = summary["phases"][phase]["channels"].as_array().unwrap().iter();
        channels.find(|channel| channel["topic"] == "/robot/command").unwrap()
    });
    let number = |channel: &serde_json::Value, key: &str| channel[key].as_f64().unwrap();
    let p99 = |channel: &serde_json::Value| number(&channel["latency_us"], "p99");
    let was_set = summary["set"].as_array().unwrap().iter().any(|step| step["done"] == true);
    let kept = number(after, "lost") == 0.0 && number(after, "rate_hz") >= 0.9 * number(after, "wanted_hz");
    was_set && kept && (p99(before) <= 0.0 || p99(after) < p99(before))
}

#[test]
fn the_table_has_a_line_per_channel_and_a_verdict() {
    let house = Testbed::new();
    let (running, group) = start(&house, "--seconds 1");
    let done = running.finish();
    let text = done.lines.join("\n");
    for topic in ["/robot/imu", "/robot/camera", "/robot/command", "/robot/map"] {
        assert!(text.contains(topic), "{text}");
    }
    assert!(done.lines.last().is_some_and(|line| line.contains("samples arrived")), "{text}");
    assert!(text.contains("p99 before") && house.path("thalweg-demo.svg").exists(), "{text}");
    assert_gone(&house, group);
}

#[test]
fn an_interrupt_of_the_whole_group_ends_it_with_a_summary() {
    let house = Testbed::new();
    let (running, group) = start(&house, "--seconds 600");
    assert!(running.line().contains("topic"), "the table");
    rustix::process::kill_process_group(group, Signal::INT).unwrap();
    let done = running.finish();
    assert_eq!(done.code(), 0, "{}", done.errors);
    assert!(done.lines.last().is_some_and(|line| line.contains("interrupted")), "{:?}", done.lines);
    assert_gone(&house, group);
    assert_eq!(namespaces_of(group), Vec::<String>::new());
}

#[test]
fn the_robot_ends_with_a_killed_parent() {
    let house = Testbed::new();
    let (running, group) = start(&house, "--seconds 600");
    assert!(running.line().contains("topic"), "the table");
    running.signal(Signal::KILL);
    drop(running);
    assert_gone(&house, group);
    // The next demo removes what this one could not.
    let (next, after) = start(&house, "--seconds 1 --json");
    next.finish();
    assert_eq!((namespaces_of(group), namespaces_of(after)), (Vec::new(), Vec::new()));
}

/// Three domains admit a session: nothing of it is lost, beside other traffic; a second one is refused, with what would fit.
#[cfg(feature = "sessions")]
#[test]
fn three_domains_admit_a_session_and_refuse_a_second_one() {
    let house = Testbed::new();
    let (running, group) = start(&house, "--domains --seconds 2 --json");
    let done = running.finish();
    if done.code() == 3 {
        println!("skipped: three_domains_admit_a_session_and_refuse_a_second_one: because {}", done.errors);
        return;
    }
    assert_eq!(done.lines.len(), 1, "{:?} {}", done.lines, done.errors);
    let story: serde_json::Value = serde_json::from_str(&done.lines[0]).unwrap();
    let session = &story["session"];
    assert_eq!(
        (&session["state"], session["domains"].as_array().map(Vec::len)),
        (&"active".into(), Some(3)),
        "{story}"
    );
    assert_eq!(session["channels"][0]["set"][0], "publisher", "{story}");
    let bound = session["channels"][0]["bound_us"].as_f64().unwrap();
    assert!(story["before"]["p50_us"].as_f64().unwrap() > bound, "other traffic delays what is not reserved: {story}");
    assert!(story["after"]["sent"].as_u64() > Some(100) && story["after"]["lost"] == 0, "{story}");
    assert!(story["after"]["p50_us"].as_f64() < story["before"]["p50_us"].as_f64(), "{story}");
    // Exit code 1 is an honest answer of a machine that other tests keep busy: exactly where a sample was later than promised.
    let is_late = story["after"]["max_us"].as_f64() > Some(bound);
    assert_eq!(done.code(), i32::from(is_late), "{} {story}", done.errors);
    assert!(story["refused"][0]["offers"].as_array().is_some_and(|offers| !offers.is_empty()), "{story}");
    let cut = &story["cut"];
    assert!(cut["because"].as_str().is_some_and(|why| why.contains("domain wan: link line is down")), "{story}");
    // A link is back when it is steady.
    assert!(cut["regained_after_ms"].as_f64() >= Some(2000.0), "{story}");
    assert_gone(&house, group);
    assert!(namespaces_of(group).is_empty());
}
