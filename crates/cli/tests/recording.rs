//! `record` in processes of their own: what is in the files, whatever ends the recording.
#![allow(clippy::unwrap_used)]

mod priority;
mod readers;

use crate::support;
use mcap::MessageStream;
use mcap::read::Options;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use support::{Done, LONG, Running, Testbed};

/// A recording of these topics that has begun.
fn record(house: &Testbed, file: &Path, options: &str) -> Running {
    let recorder = house.start(&format!("record {} {options} --json", file.display()));
    while !recorder.error_line().expect("it begins").starts_with("recording to") {}
    recorder
}

/// The totals of the channel of a topic in the summary: samples, bytes, and samples lost anywhere.
fn totals(summary: &Value, topic: &str) -> (u64, u64, u64) {
    let channels = summary["channels"].as_array().unwrap();
    let found: Vec<&Value> = channels.iter().filter(|channel| channel["topic"] == topic).collect();
    let [channel] = found[..] else { panic!("{topic} in {summary}") };
    let lost = channel["lost"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    (channel["samples"].as_u64().unwrap(), channel["bytes"].as_u64().unwrap(), lost)
}

/// Sequence numbers, and bytes, by topic, of the messages of a file up to its end or where it breaks off.
fn contents(file: &Path) -> BTreeMap<String, (Vec<u32>, u64)> {
    let file = std::fs::read(file).unwrap();
    let mut found: BTreeMap<String, (Vec<u32>, u64)> = BTreeMap::new();
    let Ok(messages) = MessageStream::new_with_options(&file, Options::IgnoreEndMagic.into()) else { return found };
    for message in messages.map_while(Result::ok) {
        let (numbers, bytes) = found.entry(message.channel.topic.clone()).or_default();
        numbers.push(message.sequence);
        *bytes += message.data.len() as u64;
    }
    found
}

fn published(house: &Testbed, arguments: &str) -> u64 {
    let done = house.run(&format!("pub {arguments} --wait 1 --json"));
    done.json()["published"].as_u64().unwrap()
}

/// The summary of a recording that ends on Ctrl-C, once it has received all that publishers sent before they ended.
fn ended(house: &Testbed, recorder: Running) -> Value {
    house.wait_for_list("channels", |channels| channels.as_array().unwrap().is_empty());
    recorder.interrupt().json()
}

#[test]
fn every_sample_of_a_fast_and_a_big_topic_is_recorded_or_counted() {
    let house = Testbed::new();
    let file = house.path("run.mcap");
    let recorder = record(&house, &file, "--all");
    let big = house.start("pub /big --rate 20 --size 1MiB --count 40 --wait 1");
    let fast = published(&house, "/fast --rate 1000 --count 2000");
    assert_eq!((fast, big.finish().code()), (2000, 0));
    let summary = ended(&house, recorder);
    let found = contents(&file);
    for (topic, count, size) in [("/fast", 2000, 64), ("/big", 40, 1 << 20)] {
        let (samples, bytes, lost) = totals(&summary, topic);
        let (numbers, in_file) = &found[topic];
        // The publishers waited for the recorder's channel, so it joined before their first sample.
        assert_eq!((samples + lost, bytes), (count, samples * size), "{topic}: {summary}");
        assert!(samples >= count / 2, "{topic}: {summary}");
        assert_eq!((numbers.len() as u64, *in_file), (samples, bytes), "{topic}");
        assert!(numbers.is_sorted(), "{topic}");
    }
    let bytes = std::fs::read(&file).unwrap();
    let whole = mcap::Summary::read(&bytes).unwrap().expect("a file that was ended has a summary");
    let channel = whole.channels.values().find(|channel| channel.topic == "/fast").unwrap();
    let metadata = &channel.metadata;
    assert_eq!((channel.message_encoding.as_str(), metadata["thalweg.class"].as_str()), ("cdr", "normal"));
    assert!(metadata["offered_qos_profiles"].starts_with("- history: keep_last\n"), "{metadata:?}");
    assert!(metadata["thalweg.publisher"].contains("/fast/"), "{metadata:?}");
    // One of each second and channel; seconds in which the recorder did not run are one.
    assert!(found["/thalweg/timing"].0.len() >= 2, "{:?}", found["/thalweg/timing"]);
}

#[test]
fn delays_of_each_second_and_the_clock_are_in_the_file() {
    let house = Testbed::new();
    let file = house.path("run.mcap");
    let recorder = record(&house, &file, "/a --priority normal");
    published(&house, "/a --rate 100 --count 150");
    ended(&house, recorder);
    let bytes = std::fs::read(&file).unwrap();
    let (mut count, mut stamps) = (0, Vec::new());
    for message in MessageStream::new(&bytes).unwrap().map(Result::unwrap) {
        match message.channel.topic.as_str() {
            "/thalweg/timing" => {
                let timing: Value = serde_json::from_slice(&message.data).unwrap();
                count += timing["count"].as_u64().unwrap();
                let latency = |name: &str| timing["latency_ns"][name].as_u64().unwrap();
                assert!(latency("p50") <= latency("p99") && latency("p99") <= latency("max"), "{timing}");
                assert_eq!((&timing["topic"], &timing["uncertainty_ns"]), (&"/a".into(), &0.into()), "one clock");
            }
            "/a" => stamps.push((message.publish_time, message.log_time)),
            other => assert_eq!(other, "/thalweg/losses"),
        }
    }
    assert_eq!(count, stamps.len() as u64);
    assert!(stamps.iter().all(|(published, received)| published <= received));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let ago = now.saturating_sub(Duration::from_nanos(stamps[0].0));
    assert!(ago < 4 * LONG, "stamps are those of the wall clock, {ago:?} ago");
    let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
    assert!(summary.metadata_indexes.iter().any(|record| record.name == "thalweg.clock"));
    assert!(summary.attachment_indexes.iter().any(|attached| attached.name == "settings.json"));
    let channel = summary.channels.values().find(|channel| channel.topic == "/a").unwrap();
    assert!(!channel.metadata["thalweg.carrier"].is_empty(), "{channel:?}");
}

#[test]
fn topics_that_come_later_are_recorded_if_they_fit_and_the_contract_is_kept() {
    let house = Testbed::new();
    let (file, contract) = (house.path("run.mcap"), concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/robot.toml"));
    let recorder = record(&house, &file, &format!("/a/* /b --exclude /a/no --contract {contract}"));
    for topic in ["/other", "/a/no"] {
        assert_eq!(house.run(&format!("pub {topic} --rate 100 --count 5")).code(), 0);
    }
    for topic in ["/a/x", "/b", "/a/y"] {
        assert_eq!(published(&house, &format!("{topic} --rate 100 --count 5")), 5);
    }
    let summary = ended(&house, recorder);
    let topics: Vec<&str> =
        summary["channels"].as_array().unwrap().iter().map(|c| c["topic"].as_str().unwrap()).collect();
    assert_eq!(topics, ["/a/x", "/a/y", "/b"]);
    let bytes = std::fs::read(&file).unwrap();
    let whole = mcap::Summary::read(&bytes).unwrap().unwrap();
    let attached = whole.attachment_indexes.iter().find(|attached| attached.name == "contract.toml").unwrap();
    let found = mcap::read::attachment(&bytes, attached).unwrap();
    assert_eq!(found.data[..], std::fs::read(contract).unwrap()[..]);
}

#[test]
fn a_killed_recorder_leaves_all_but_the_last_second() {
    let house = Testbed::new();
    let file = house.path("run.mcap");
    // One that gives way may write later.
    let mut recorder = record(&house, &file, "/fast --priority normal");
    let _publish = house.start("pub /fast --rate 1000 --wait 1");
    let until = Instant::now() + LONG;
    while contents(&file).get("/fast").is_none_or(|(numbers, _)| numbers.len() < 1500) {
        assert!(Instant::now() < until, "nothing is flushed");
        std::thread::sleep(Duration::from_millis(100));
    }
    recorder.child.kill().unwrap();
    recorder.child.wait().unwrap();
    let killed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let messages = MessageStream::new_with_options(&bytes, Options::IgnoreEndMagic.into()).unwrap();
    let all: Vec<_> = messages.map_while(Result::ok).collect();
    let newest = Duration::from_nanos(all.iter().map(|message| message.log_time).max().unwrap());
    assert!(killed.saturating_sub(newest) < Duration::from_secs(5), "the newest is {:?} old", killed - newest);
    let samples = all.iter().filter(|message| message.channel.topic == "/fast").count();
    assert!(samples >= 1500, "what could be read stays: {samples}");
}

#[test]
fn a_split_loses_nothing_and_each_file_stands_alone() {
    let house = Testbed::new();
    let file = house.path("run.mcap");
    let recorder = record(&house, &file, "/a --split 4MiB --compress none");
    // A file is published as fast as it is taken; a block that found no room is offered again.
    std::fs::write(house.path("blocks"), vec![7; 300 << 16]).unwrap();
    assert_eq!(published(&house, &format!("/a --file {} --size 64KiB", house.path("blocks").display())), 300);
    let summary = ended(&house, recorder);
    let (samples, ..) = totals(&summary, "/a");
    assert_eq!(samples, 300, "{summary}");
    let files: Vec<PathBuf> = summary["files"].as_array().unwrap().iter().map(|f| f.as_str().unwrap().into()).collect();
    assert!(files.len() >= 3 && files[1].ends_with("run-2.mcap"), "{files:?}");
    let mut numbers = Vec::new();
    for file in &files {
        let bytes = std::fs::read(file).unwrap();
        assert!(mcap::Summary::read(&bytes).unwrap().is_some(), "{} has an end", file.display());
        assert!(bytes.len() < 6 << 20, "{} has {} bytes", file.display(), bytes.len());
        numbers.extend(contents(file)["/a"].0.iter().copied());
    }
    assert_eq!(numbers.len() as u64, samples);
    assert!(numbers.is_sorted_by(|a, b| a < b), "in order, and none twice");
    let played = house.run(&format!("play {} --rate 100 --json", file.display())).json();
    assert_eq!(played["samples"], samples, "the first file leads to the others: {played}");
}

/// A file system with room for so much; gone when dropped.
struct Small(PathBuf);

impl Small {
    fn mount(path: PathBuf, size: &str) -> Option<Self> {
        std::fs::create_dir(&path).unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "small"]).arg(&path).output();
        mount.is_ok_and(|done| done.status.success()).then_some(Self(path))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_ends_the_recording_with_a_file_that_can_be_read() {
    let house = Testbed::new();
    let Some(small) = Small::mount(house.path("small"), "4M") else {
        return println!("skipped: because a file system of its own needs root");
    };
    let file = small.0.join("run.mcap");
    let recorder = record(&house, &file, "/a");
    let _publish = house.start("pub /a --rate 100 --size 64KiB --wait 1");
    let Done { status, lines, errors } = recorder.finish();
    assert_eq!(status.code(), Some(3), "{errors}");
    assert!(errors.contains("cannot write") && errors.contains("free space"), "{errors}");
    let summary: Value = serde_json::from_str(&lines[0]).unwrap();
    let (samples, bytes, lost) = totals(&summary, "/a");
    assert!(samples > 20 && lost > 0 && summary["channels"][0]["lost"]["disk"].as_u64() > Some(0), "{summary}");
    let found = contents(&file);
    assert_eq!((found["/a"].0.len() as u64, found["/a"].1), (samples, bytes), "{summary}");
    // What was cut off left room for the end and for the loss.
    let whole = std::fs::read(&file).unwrap();
    assert!(whole.ends_with(mcap::MAGIC));
    let last = MessageStream::new(&whole).unwrap().map(Result::unwrap).last().unwrap();
    let loss: Value = serde_json::from_slice(&last.data).unwrap();
    assert_eq!((last.channel.topic.as_str(), &loss["where"]), ("/thalweg/losses", &"disk".into()), "{loss}");
}

#[test]
fn what_cannot_be_recorded_is_refused_with_the_reason() {
    let house = Testbed::new();
    let taken = house.path("taken.mcap");
    std::fs::write(&taken, "mine").unwrap();
    let file = house.path("run.mcap").display().to_string();
    for (arguments, code, says) in [
        (file.clone(), 2, "<FILE> --all"),
        (format!("{file} -a --exclude /a*b"), 2, "a whole segment may be *"),
        (format!("{file} /a --all"), 2, "cannot be used with"),
        (format!("{file} /a*b"), 2, "a whole segment may be *"),
        (format!("{file} /a --split 5parsec"), 2, "a size of at least 1MiB"),
        (format!("{file} /a --split 10ms"), 2, "a time of at least 1s"),
        (format!("{file} /a --memory 1kB"), 2, "1MiB to 1024GiB"),
        (format!("{file} /a --compress gzip"), 2, "none, lz4 or zstd"),
        (format!("{file} /a --priority high"), 2, "normal or low"),
        (format!("{file} /a --duration 0"), 2, "a number of seconds"),
        (format!("{file} /a --plan {}", taken.display()), 2, "taken.mcap:"),
        (format!("{file} /a --contract /does/not/exist"), 2, "/does/not/exist"),
        (format!("{} /a", taken.display()), 2, "exists, and a recording overwrites nothing"),
        ("/does/not/exist/run.mcap /a".to_owned(), 3, "a folder that exists"),
    ] {
        let done = house.run(&format!("record {arguments}"));
        assert_eq!(done.code(), code, "{arguments}: {}", done.errors);
        assert!(done.errors.contains(says), "{arguments}: {}", done.errors);
    }
    assert_eq!(std::fs::read(&taken).unwrap(), b"mine");
    let done = house.run(&format!("record {file} /a --duration 200ms"));
    assert_eq!((done.code(), done.lines.len()), (0, 1), "{}", done.errors);
    assert!(mcap::Summary::read(&std::fs::read(&file).unwrap()).unwrap().is_some(), "an empty recording is whole");
}
