//! `thalweg bench` of the bindings, as users start it: what is counted, said and judged. No figure is judged here.
#![allow(clippy::unwrap_used)] // helpers of tests, which clippy.toml exempts inside test functions only

use crate::support::Testbed;
use serde_json::Value;
use std::process::{Command, Output};

/// A measurement of the bindings in this source tree, which are built beside the command.
fn bench(house: &Testbed, arguments: &str) -> Command {
    let mut command = house.command(&format!("bench {arguments} --json --tree"));
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    command
}

/// Its document; `None`, with the reason printed, where the binding cannot run.
fn measured(house: &Testbed, arguments: &str) -> Option<Value> {
    let output = bench(house, arguments).output().unwrap();
    if output.status.code() == Some(3) {
        println!("skipped: bench {arguments}: because {}", said(&output).lines().last().unwrap_or_default());
        return None;
    }
    assert!(output.status.success(), "{arguments}: {}", said(&output));
    Some(document(&output))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn document(output: &Output) -> Value {
    assert!(!output.stdout.is_empty(), "{}", said(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn round_trips_are_made_in_each_language_and_copies_are_counted() {
    let house = Testbed::new();
    for engine in ["python", "cpp"] {
        for (options, copies) in [
            ("--carrier tcp", None),
            ("--carrier shm", None),
            ("--carrier shm --payload checked --size 1MiB", Some(0)),
            ("--carrier shm --payload untouched", Some(0)),
            // Over tcp no memory is shared: loan and sample of both ends count, each in 8 messages. The counter counts.
            ("--carrier tcp --payload checked --size 1000", Some(4 * 8)),
        ] {
            if engine == "cpp" && !options.contains("checked") {
                continue; // each takes a run of the compiler
            }
            let line = format!("latency --engine {engine} {options} --count 30 --warmup 8");
            let Some(figures) = measured(&house, &line) else { break };
            assert_eq!((&figures["engine"], figures["count"].as_u64()), (&engine.into(), Some(30)), "{line}");
            assert_eq!(figures["copies"].as_u64(), copies, "{line}: {figures}");
            let (p50, max) = (figures["rtt_us"]["p50"].as_f64().unwrap(), figures["rtt_us"]["max"].as_f64().unwrap());
            assert!(p50 > 0.0 && p50 <= max && figures["cpu_us_per_message"].as_f64().unwrap() > 0.0, "{figures}");
        }
    }
}

#[test]
fn streams_are_received_in_each_language_and_processor_time_is_that_of_all() {
    let house = Testbed::new();
    for options in ["thalweg", "python", "cpp", "python --beside asleep", "python --beside awake"] {
        let line = format!("fanout --engine {options} --carrier shm --subscribers 2 --count 60 --warmup 5");
        let Some(figures) = measured(&house, &line) else { continue };
        assert_eq!(figures["count"].as_u64(), Some(60), "{line}");
        // The queues have room for all of them.
        assert_eq!(figures["lost"].as_u64(), Some(0), "{line}: {figures}");
        let cpu = |key: &str| figures[key].as_f64().unwrap();
        assert!(cpu("cpu_of_all_us_per_message") > cpu("cpu_us_per_message"), "{line}: {figures}");
        assert!(figures["latency_us"]["p50"].as_f64().unwrap() > 0.0, "{figures}");
    }
}

#[test]
fn a_quick_comparison_of_bindings_has_all_rows() {
    let house = Testbed::new();
    let output = bench(&house, "compare python cpp --quick --count 20").output().unwrap();
    let result = document(&output);
    let rows = result["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    let python = ["python-shm-64", "python-tcp-64", "python-shm-1m", "python-copies", "python-cpu", "python-asleep"];
    assert_eq!(names, [&python[..], &["cpp-shm-64", "cpp-tcp-64", "cpp-shm-1m"]].concat());
    let mut skipped = 0;
    for row in rows {
        if let Some(because) = row["skipped"].as_str() {
            println!("skipped: {}: because {because}", row["name"]);
            assert!(row["thalweg"].is_null() && !because.is_empty(), "{row}");
            skipped += 1;
            continue;
        }
        assert!(row["error"].is_null(), "{row}");
        assert!(row["pass"].is_null() && row["n"] == 20, "{row}");
        let least = if row["name"] == "python-copies" { -1.0 } else { 0.0 };
        assert!(row["thalweg"]["median"].as_f64().unwrap() > least, "{row}");
        assert!(row["name"] == "python-copies" || row["ratio"]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
    let code = if skipped == rows.len() { 3 } else { 0 };
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
}

/// The clock of Python's ends sleeps before it tells the time, so each trip takes 5 ms more: far more than a busy machine hides.
#[test]
fn a_slow_end_misses_its_target() {
    let house = Testbed::new();
    let slow = "import time\nreal = time.monotonic_ns\ndef slow():\n    time.sleep(0.005)\n    return real()\ntime.monotonic_ns = slow\n";
    std::fs::write(house.path("sitecustomize.py"), slow).unwrap();
    let mut command = bench(&house, "compare python-tcp-64 --rounds 3 --count 20");
    let output = command.env("PYTHONPATH", house.path("")).output().unwrap();
    if output.status.code() == Some(3) {
        return println!("skipped: a slow end: because {}", said(&output).lines().last().unwrap_or_default());
    }
    let result = document(&output);
    let row = &result["rows"][0];
    assert_eq!((output.status.code(), &row["pass"], &result["pass"]), (Some(1), &false.into(), &false.into()), "{row}");
    assert!(row["missed_by_percent"].as_f64().unwrap() > 100.0 && row["inconclusive"] == false, "{row}");
}

/// One round shows no noise, so nothing is known; and what is missing is named with the remedy.
#[test]
fn what_cannot_be_told_is_exit_4_and_what_cannot_run_is_exit_3() {
    let house = Testbed::new();
    let output = bench(&house, "compare cpp-tcp-64 --rounds 1 --count 20").output().unwrap();
    if output.status.code() != Some(3) {
        assert_eq!(output.status.code(), Some(4), "{}", said(&output));
        assert_eq!(document(&output)["rows"][0]["inconclusive"], true);
    } else {
        println!("skipped: one round: because {}", said(&output).lines().last().unwrap_or_default());
    }
    for (row, variable, remedy) in [
        ("python-tcp-64", "THALWEG_PYTHON", "THALWEG_PYTHON names another"),
        ("cpp-tcp-64", "CXX", "CXX names another"),
    ] {
        let mut command = bench(&house, &format!("compare {row} --quick"));
        let output = command.env(variable, "/does/not/exist").output().unwrap();
        // The library comes first: where it is not built, its remedy is told.
        let because = document(&output)["rows"][0]["skipped"].as_str().unwrap().to_owned();
        assert!(because.contains(remedy) || because.contains("cargo build"), "{because}");
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    }
}

#[test]
fn what_a_binding_cannot_do_is_exit_2() {
    let house = Testbed::new();
    for (arguments, says) in [
        ("latency --engine python --carrier udp", "allowed: tcp, shm"),
        ("throughput --engine cpp", "allowed: latency, fanout"),
        ("start --engine python", "allowed: latency, fanout"),
        ("fanout --engine cpp --beside asleep", "--engine python"),
        ("fanout --engine python --size 8", "at least 16"),
    ] {
        let output = bench(&house, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", said(&output));
        assert!(said(&output).contains(says), "{arguments}: {}", said(&output));
    }
}
