//! The metrics of `thalweg dashboard`, as Prometheus and its own checker read them.
#![allow(clippy::unwrap_used)]

use crate::dashboard::Scene;
use crate::support::{LONG, Running};
use crate::verify::{pair, planned};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;

/// `false`, with the reason printed: Prometheus is not installed.
fn is_here() -> bool {
    let found = ["promtool", "prometheus"].iter().all(|name| Command::new(name).arg("--version").output().is_ok());
    if !found {
        println!("skipped: because prometheus is not installed (apt-get install prometheus)");
    }
    found
}

/// The body of an answer.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(LONG)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text.split_once("\r\n\r\n")?.1.to_owned())
}

/// All families: with a plan, and a channel of it that runs.
#[test]
fn promtool_finds_nothing_wrong_with_the_metrics() {
    if !is_here() {
        return;
    }
    let (house, plan) = planned();
    let _joints = pair(&house, "joints", "tcp", "");
    let dashboard = house.start(&format!("dashboard --at 127.0.0.1:0 --interval 100ms --plan {plan} --json"));
    let about = dashboard.json_line();
    let address = about["page"].as_str().unwrap().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let until = Instant::now() + LONG;
    let text = loop {
        let text = get(&address, "/metrics").unwrap();
        if ["thalweg_channel_latency_seconds{", "thalweg_channel_latency_max_seconds{"]
            .iter()
            .all(|name| text.contains(name))
        {
            break text;
        }
        assert!(Instant::now() < until, "{text}");
    };
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let done = check.wait_with_output().unwrap();
    let said = [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(done.status.success() && said.is_empty(), "{said}\n{text}");
    let of_programs =
        ["thalweg_bound_seconds", "thalweg_channel_bytes_total"].map(|name| format!("{name}{{topic=\"/joints\""));
    assert!(of_programs.iter().all(|series| text.contains(series)), "topics have one name: {text}");
    let quantile = |of: &str| -> f64 {
        let is = |line: &&str| line.starts_with("thalweg_channel_latency_seconds{") && line.contains(of);
        let [line] = text.lines().filter(is).collect::<Vec<_>>()[..] else { panic!("one channel runs: {text}") };
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let [median, p99] = ["quantile=\"0.5\"", "quantile=\"0.99\""].map(quantile);
    assert!(median > 0.0 && median <= p99 && p99 < LONG.as_secs_f64(), "seconds: {text}");
}

#[test]
fn prometheus_scrapes_the_counters() {
    if !is_here() {
        return;
    }
    let scene = Scene::new("");
    let settings = scene.house.path("prometheus.yml");
    let target = &scene.address;
    let text = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: robot\n    static_configs:\n      - targets: ['{target}']\n"
    );
    std::fs::write(&settings, text).unwrap();
    let start = |name: &str| {
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", settings.display()));
        command.arg(format!("--storage.tsdb.path={}", scene.house.path(name).display()));
        command.arg(format!("--web.listen-address={at}"));
        (Running::start(command), at)
    };
    let (mut prometheus, mut at) = start("tsdb");
    let mut may_end = true;
    let query = "/api/v1/query?query=thalweg_channel_samples_total";
    let until = Instant::now() + LONG;
    let found: Value = loop {
        let answer = get(&at, query).and_then(|text| serde_json::from_str::<Value>(&text).ok()).unwrap_or_default();
        if answer["data"]["result"].as_array().is_some_and(|found| !found.is_empty()) {
            break answer;
        }
        if prometheus.has_ended() {
            assert!(may_end, "{:?}", prometheus.error_line());
            may_end = false; // the port was free, and another program may have taken it since
            (prometheus, at) = start("tsdb-again");
        }
        assert!(Instant::now() < until, "{answer}");
        std::thread::sleep(std::time::Duration::from_millis(100)); // Prometheus begins, on the same processors
    };
    let labels = &found["data"]["result"][0]["metric"];
    assert_eq!((&labels["topic"], &labels["job"]), (&"/word".into(), &"robot".into()), "{found}");
}
