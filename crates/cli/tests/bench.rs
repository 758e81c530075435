//! `thalweg bench` as users start it: processes find each other, and documents have the promised keys.
#![allow(clippy::unwrap_used)] // helpers of tests, which clippy.toml exempts inside test functions only

use std::process::{Command, Output, Stdio};

fn thalweg() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.arg("bench").stdin(Stdio::null());
    command
}

fn run(arguments: &str) -> Output {
    thalweg().args(arguments.split_whitespace()).output().unwrap()
}

fn document(output: &Output) -> serde_json::Value {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!output.stdout.is_empty(), "{complaint}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The keys in the order in which they are printed.
fn keys(text: &[u8], of: &serde_json::Value) -> Vec<String> {
    let text = String::from_utf8_lossy(text).into_owned();
    let mut keys: Vec<_> = of.as_object().unwrap().keys().cloned().collect();
    keys.sort_by_key(|k| text.find(&format!("\"{k}\":")));
    keys
}

#[test]
fn latency_prints_the_promised_document_for_every_carrier() {
    for carrier in ["tcp", "udp", "unix", "shm"] {
        let output = run(&format!("latency --engine raw --carrier {carrier} --count 200 --warmup 20 --json"));
        assert!(output.status.success(), "{carrier}: {}", String::from_utf8_lossy(&output.stderr));
        let figures = document(&output);
        let wanted = ["engine", "carrier", "size", "count", "rtt_us", "cpu_us_per_message", "rss_kib"];
        assert_eq!(keys(&output.stdout, &figures), wanted);
        assert_eq!(keys(&output.stdout, &figures["rtt_us"]), ["min", "p50", "p99", "p999", "max"]);
        assert_eq!((&figures["engine"], &figures["carrier"]), (&"raw".into(), &carrier.into()));
        assert_eq!((figures["size"].as_u64(), figures["count"].as_u64()), (Some(64), Some(200)));
        let (p50, max) = (figures["rtt_us"]["p50"].as_f64().unwrap(), figures["rtt_us"]["max"].as_f64().unwrap());
        assert!(p50 > 0.0 && p50 <= max && figures["rss_kib"].as_u64().unwrap() > 0);
        assert!(figures["cpu_us_per_message"].as_f64().unwrap() > 0.0);
    }
}

/// Engines that need nothing but this program.
#[test]
#[cfg(all(feature = "zenoh", feature = "yarp"))]
fn engines_of_others_make_round_trips_and_streams() {
    let mut engines = vec!["zenoh", "ros2", "yarp"];
    engines.extend(cfg!(feature = "rtps").then_some("dds"));
    engines.extend(cfg!(feature = "zeromq").then_some("zeromq"));
    for engine in engines {
        for (mode, count) in [("latency", 200), ("throughput", 500)] {
            let output = run(&format!("{mode} --engine {engine} --count {count} --warmup 20 --json"));
            assert!(output.status.success(), "{engine} {mode}: {}", String::from_utf8_lossy(&output.stderr));
            let figures = document(&output);
            assert_eq!(figures["engine"], engine);
            let came = if mode == "latency" { &figures["count"] } else { &figures["received"] };
            assert_eq!(came.as_u64(), Some(count), "{engine} {mode}: {figures}");
        }
    }
    let refused = run("fanout --engine zenoh --count 10");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("lab run dali-single"));
}

/// The only test that uses the name known to all processes of a user, as people do.
#[test]
fn ping_and_pong_find_each_other_without_further_arguments() {
    let pong = thalweg().args(["latency", "--engine", "raw", "--carrier", "unix", "--role", "pong"]).spawn();
    let mut pong = pong.unwrap();
    let output = run("latency --engine raw --carrier unix --role ping --size 1MiB --payload checked --count 20 --json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(document(&output)["size"].as_u64(), Some(1 << 20));
    assert!(pong.wait().unwrap().success(), "the pong ends when its ping ends");
}

/// Two run directories count as two hosts, as far as unix sockets are concerned.
#[test]
fn ping_and_pong_find_each_other_by_an_address() {
    let dir = std::env::temp_dir().join(format!("thalweg-bench-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    for arguments in ["latency --carrier tcp", "latency --carrier udp", "throughput --carrier tcp"] {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let file = dir.join("nodes.toml");
        std::fs::write(&file, format!("[[node]]\naddress = \"{address}\"\n")).unwrap();
        let end = |role: &str, more: &str| {
            let line = format!("{arguments} --role {role} --discovery static:{} {more}", file.display());
            let mut command = thalweg();
            command.args(line.split_whitespace()).env("THALWEG_RUN_DIR", dir.join(role));
            command
        };
        let mut pong = end("pong", &format!("--listen {address}")).spawn().unwrap();
        let output = end("ping", "--count 200 --json").output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(document(&output)["count"].as_u64(), Some(200), "{arguments}");
        assert!(pong.wait().unwrap().success(), "the pong ends when its ping ends");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_lone_process_says_that_it_waits() {
    use std::io::{BufRead, BufReader};
    for role in ["ping", "pong"] {
        let mut command = thalweg();
        command.args(["throughput", "--engine", "raw", "--carrier", "udp", "--role", role]).stderr(Stdio::piped());
        let mut alone = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(alone.stderr.take().unwrap()).read_line(&mut line).unwrap();
        alone.kill().unwrap();
        alone.wait().unwrap();
        assert!(line.contains("waiting for the other role"), "{role}: {line}");
    }
}

#[test]
fn throughput_counts_what_arrives() {
    for arguments in ["tcp", "tcp --batched", "unix", "udp", "shm"] {
        let output = run(&format!("throughput --engine raw --carrier {arguments} --count 5000 --json"));
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        let figures = document(&output);
        let (received, lost) = (figures["received"].as_u64().unwrap(), figures["lost"].as_u64().unwrap());
        assert!(received + lost == 5000 && (lost == 0 || arguments == "udp"), "{figures}");
        assert!(figures["messages_per_second"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn fanout_reports_the_latency_of_the_last_subscriber() {
    for carrier in ["tcp", "udp", "unix", "shm"] {
        let arguments = format!("fanout --engine raw --carrier {carrier} --subscribers 3 --count 50 --warmup 5 --json");
        let output = run(&arguments);
        assert!(output.status.success(), "{carrier}: {}", String::from_utf8_lossy(&output.stderr));
        let figures = document(&output);
        assert_eq!((figures["subscribers"].as_u64(), figures["lost"].as_u64()), (Some(3), Some(0)));
        assert!(figures["latency_us"]["p50"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn the_library_plays_every_role_on_every_carrier() {
    for arguments in ["tcp", "udp", "shm --payload untouched", "local", "tcp --payload checked --size 1MiB"] {
        let output = run(&format!("latency --carrier {arguments} --count 60 --warmup 7 --json"));
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        let figures = document(&output);
        assert_eq!((&figures["engine"], figures["count"].as_u64()), (&"thalweg".into(), Some(60)));
        let (p50, max) = (figures["rtt_us"]["p50"].as_f64().unwrap(), figures["rtt_us"]["max"].as_f64().unwrap());
        assert!(p50 > 0.0 && p50 <= max && figures["rss_kib"].as_u64().unwrap() > 0, "{figures}");
    }
    for arguments in ["tcp", "tcp --batched", "udp", "shm"] {
        let output = run(&format!("throughput --carrier {arguments} --count 5000 --json"));
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        let figures = document(&output);
        let (received, lost) = (figures["received"].as_u64().unwrap(), figures["lost"].as_u64().unwrap());
        assert!(received + lost == 5000 && (lost == 0 || arguments == "udp"), "{figures}");
        assert!(figures["messages_per_second"].as_f64().unwrap() > 0.0);
    }
    for carrier in ["tcp", "udp", "shm"] {
        let output = run(&format!("fanout --carrier {carrier} --subscribers 3 --count 50 --warmup 5 --json"));
        assert!(output.status.success(), "{carrier}: {}", String::from_utf8_lossy(&output.stderr));
        let figures = document(&output);
        assert_eq!((figures["subscribers"].as_u64(), figures["lost"].as_u64()), (Some(3), Some(0)));
        assert!(figures["latency_us"]["p50"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn the_library_s_ping_and_pong_find_each_other_without_further_arguments() {
    let mut pong = thalweg().args(["latency", "--role", "pong"]).spawn().unwrap();
    let output = run("latency --role ping --size 1000 --payload checked --count 20 --json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(document(&output)["size"].as_u64(), Some(1000));
    assert!(pong.wait().unwrap().success(), "the pong ends when its ping ends");
}

#[test]
fn a_quick_comparison_runs_and_describes_itself() {
    let output = run("compare udp-64 tcp-throughput fanout-shm shm-1m --engine raw --quick --json");
    let result = document(&output);
    assert!(output.status.success(), "{result}");
    assert_eq!(keys(&output.stdout, &result), ["environment", "quick", "rows", "pass"]);
    assert!(["kernel", "cpus", "pinning", "governor", "load"].iter().all(|k| result["environment"].get(k).is_some()));
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    for row in rows {
        assert!(
            ["name", "baseline", "thalweg", "ratio", "target", "pass", "n", "rounds"]
                .iter()
                .all(|key| row.get(key).is_some())
        );
        assert!(row["ratio"]["median"].as_f64().unwrap() > 0.0 && row["pass"].is_null(), "{row}");
    }
}

#[test]
fn rows_with_a_limit_of_their_own_are_measured_without_a_baseline() {
    let output = run("compare memory threads start --quick --json");
    let result = document(&output);
    assert!(output.status.success(), "{result}");
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for (row, unit) in rows.iter().zip(["MB", "threads", "ms", "ms"]) {
        assert!(row["thalweg"]["median"].as_f64().unwrap() > 0.0 && row["baseline"].is_null(), "{row}");
        assert_eq!(row["unit"], unit);
    }
}

#[test]
fn trials_of_whole_nodes_have_rows_without_a_baseline() {
    let output = run("compare storm crowd --quick --json");
    let result = document(&output);
    assert!(output.status.success(), "{result}");
    let rows = result["rows"].as_array().unwrap();
    let units: Vec<_> = rows.iter().map(|row| row["unit"].as_str().unwrap()).collect();
    assert_eq!(units, ["s", "µs", "µs"]);
    for row in rows {
        assert!(row["thalweg"]["median"].as_f64().unwrap() > 0.0 && row["baseline"].is_null(), "{row}");
    }
    let figures = document(&run("storm --carrier tcp --no-pin --count 300 --json"));
    assert!(figures["joins"].as_u64().unwrap() >= 3 && figures["count"] == 300, "{figures}");
}

/// The report of a tool's figures in their smallest size, by the bench or with what it measures broken; times are not judged.
#[cfg(all(feature = "dashboard", feature = "recording"))]
fn report(arguments: &str) -> (serde_json::Value, Option<i32>) {
    let dir = std::env::temp_dir();
    let output = run(&format!("{arguments} --time 1s --dir {} --quick --json", dir.display()));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments}: {complaint}");
    let report = document(&output);
    assert!(report["environment"]["kernel"].is_string() && report["rounds"] == 1, "{report}");
    (report, output.status.code())
}

/// The command-line option with which a recording does not fill a file system in memory.
#[cfg(all(feature = "dashboard", feature = "recording"))]
const LITTLE: &str = "--rate 50000000";

/// The verdict of the check whose name has these words.
#[cfg(all(feature = "dashboard", feature = "recording"))]
fn verdict(report: &serde_json::Value, words: &str) -> String {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["name"].as_str().unwrap().contains(words));
    found.unwrap_or_else(|| panic!("{words}: {report}"))["verdict"].as_str().unwrap().to_owned()
}

#[cfg(all(feature = "dashboard", feature = "recording"))]
#[test]
fn the_recorder_s_samples_are_in_the_file_or_counted_and_a_broken_one_is_found() {
    let (sound, code) = report(&format!("recording {LITTLE}"));
    assert_eq!((verdict(&sound, "neither in the file").as_str(), code), ("pass", Some(0)), "{sound}");
    let times = sound["not_judged"].as_array().unwrap();
    assert_eq!(times.len(), 4, "{sound}");
    let recorded = sound["measured"].as_array().unwrap().iter().find(|round| round["recorder"] == true).unwrap();
    let published = recorded["published"]["/small"]["published"].as_u64().unwrap();
    let channel = recorded["channels"].as_array().unwrap().iter().find(|one| one["topic"] == "/small").unwrap();
    let lost: u64 = channel["lost"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(channel["samples"].as_u64().unwrap() + lost, published, "{sound}");
    let (broken, code) = report(&format!("recording {LITTLE} --broken"));
    assert_eq!((verdict(&broken, "neither in the file").as_str(), code), ("fail", Some(1)), "{broken}");
}

#[cfg(all(feature = "dashboard", feature = "recording"))]
#[test]
fn a_replay_is_measured_and_a_delay_that_is_not_there_is_not_named() {
    // A machine that stalls in the callback delays it, too: once, perhaps.
    let is_found = |(report, _): &(serde_json::Value, _)| verdict(report, "whose callback is named") == "fail";
    let first = report("replay --broken");
    let (report, code) = if is_found(&first) { first } else { report("replay --broken") };
    assert_eq!((verdict(&report, "whose callback is named").as_str(), code), ("fail", Some(1)), "{report}");
    let replay = &report["measured"][0];
    assert_eq!((&replay["played"], &replay["listened"]["count"]), (&1000.into(), &1000.into()), "{report}");
    assert_eq!(report["measured"][1]["builds"], 1, "{report}");
}

#[cfg(all(feature = "dashboard", feature = "recording"))]
#[test]
fn a_dashboard_that_nobody_looks_at_adds_no_channel() {
    let (sound, code) = report("dashboard");
    assert_eq!(verdict(&sound, "that nobody looks at"), "pass", "{sound}");
    assert_eq!((verdict(&sound, "on the page of 500").as_str(), code), ("pass", Some(0)), "{sound}");
    let (broken, code) = report("dashboard --broken");
    assert_eq!((verdict(&broken, "that nobody looks at").as_str(), code), ("fail", Some(1)), "{broken}");
}

/// The ends find each other by Zenoh, each in a network namespace.
#[cfg(feature = "zenoh")]
#[test]
fn an_outage_between_two_hosts_ends_and_is_timed() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: bench resume: because network namespaces need root");
    }
    let output = run("resume --count 2 --no-pin --json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures = document(&output);
    assert!(figures["resumed_ms"].as_f64().unwrap() > 0.0 && figures["down_s"] == 2.0, "{figures}");
    let output = run("start --hosts --count 1 --json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(document(&output)["matched_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn wrong_use_is_exit_2_and_says_what_is_allowed() {
    for (arguments, wanted) in [
        ("latency --engine raw --carrier udp --size 1MiB", "65507"),
        ("latency --engine raw --carrier local", "allowed: tcp, udp, unix, shm"),
        ("latency --carrier unix", "allowed: tcp, udp, shm, local"),
        ("throughput --carrier local", "allowed here: tcp, udp, shm"),
        ("latency --engine raw --count 0", "0 messages"),
        ("latency --engine raw --pin 1000", "--pin 1000"),
        ("throughput --engine raw --carrier shm --batched", "byte stream"),
        ("fanout --engine raw --size 8", "at least 16"),
        ("fanout --size 8", "at least 16"),
        ("compare tpc", "\"tpc\""),
        ("start --engine raw", "allowed: thalweg"),
        ("storm --engine raw", "allowed: thalweg"),
        ("crowd --carrier local", "allowed here: tcp, udp, shm"),
        #[cfg(all(feature = "dashboard", feature = "recording"))]
        ("recording --time 1us", "500ms to 1h"),
    ] {
        let output = run(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {complaint}");
        assert!(complaint.contains(wanted), "{arguments}: {complaint}");
    }
}
