//! `thalweg play` in processes of its own: files written here, as a recorder writes them.
#![allow(clippy::unwrap_used)]

use crate::support;
use mcap::records::{MessageHeader, Metadata};
use mcap::{Compression, WriteOptions, Writer};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use support::{Running, Testbed};
use thalweg::codec::{TypeDescription, to_cdr};

const MS: u64 = 1_000_000;
/// A time in 2026.
const BEGIN: u64 = 1_790_000_000_000 * MS;

#[derive(Serialize)]
struct Text {
    data: String,
}

/// A file that is being written.
struct Recorder(Writer<File>);

impl Recorder {
    fn create(path: &Path, profile: &str) -> Self {
        let options = WriteOptions::new().profile(profile).compression(Some(Compression::Zstd)).chunk_size(Some(2000));
        Self(options.create(File::create(path).unwrap()).unwrap())
    }

    /// A channel of the type of ROS 2 `std_msgs/msg/String`.
    fn strings(&mut self, topic: &str, metadata: &[(&str, &str)]) -> u16 {
        let schema = self.0.add_schema("std_msgs/msg/String", "ros2msg", b"string data\n").unwrap();
        self.channel(schema, topic, metadata)
    }

    fn channel(&mut self, schema: u16, topic: &str, metadata: &[(&str, &str)]) -> u16 {
        let metadata: BTreeMap<String, String> =
            metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.0.add_channel(schema, topic, "cdr", &metadata).unwrap()
    }

    /// The record that all files of one recording have alike.
    fn clock(&mut self, started: &str) {
        let metadata = [("monotonic_ns".to_owned(), started.to_owned())].into();
        self.0.write_metadata(&Metadata { name: "thalweg.clock".to_owned(), metadata }).unwrap();
    }

    fn sample(&mut self, channel_id: u16, sequence: u32, publish_time: u64, log_time: u64, data: &[u8]) {
        let header = MessageHeader { channel_id, sequence, log_time, publish_time };
        self.0.write_to_known_channel(&header, data).unwrap();
    }

    fn finish(mut self) {
        self.0.finish().unwrap();
    }
}

fn text(data: impl Into<String>) -> Vec<u8> {
    to_cdr(&Text { data: data.into() }).unwrap()
}

/// Starts a subscriber for so many samples, and waits until it can be found.
fn subscriber(house: &Testbed, topic: &str, count: u64) -> Running {
    let running = house.start(&format!("sub {topic} --count {count} --json"));
    house.wait_for_list("ports", |ports| ports.as_array().unwrap().iter().any(|port| port["topic"] == topic));
    running
}

/// The summary of a recorder, once it has received all that publishers sent before they ended.
fn ended(house: &Testbed, recorder: Running) -> serde_json::Value {
    house.wait_for_list("channels", |channels| channels.as_array().unwrap().is_empty());
    recorder.interrupt().json()
}

#[test]
fn a_recording_plays_with_equal_counts_types_and_order() {
    let house = Testbed::new();
    let mut file = Recorder::create(&house.path("run.mcap"), "thalweg");
    let number = TypeDescription::of::<u32>();
    let number = serde_json::to_string(&number).unwrap();
    let own = [("thalweg.publisher", "/p"), ("thalweg.type", number.as_str())];
    let (strings, numbers) = (file.strings("/word", &[("thalweg.publisher", "/q")]), file.channel(0, "/number", &own));
    let losses = file.channel(0, "/thalweg/losses", &[]);
    for at in 0..200u32 {
        let published = BEGIN + u64::from(at) * 2 * MS;
        // Each word was received before the number that was published 1 ms before it.
        file.sample(strings, at, published + MS, published + MS + 100_000, &text(format!("word {at}")));
        file.sample(numbers, at, published, published + MS + 200_000, &to_cdr(&at).unwrap());
    }
    file.sample(losses, 1, BEGIN, BEGIN, b"{}");
    file.finish();
    let (words, counts) = (subscriber(&house, "/word", 200), subscriber(&house, "/number", 200));
    let path = house.path("run.mcap").display().to_string();
    let played = house.run(&format!("play {path} --json"));
    assert!(!played.errors.contains("nobody heard it"), "{}", played.errors);
    let played = played.json();
    assert_eq!((&played["samples"], &played["slowed_ms"].is_number()), (&400.into(), &true), "{played}");
    let topics: Vec<_> =
        played["topics"].as_array().unwrap().iter().map(|row| (&row["topic"], &row["samples"])).collect();
    assert_eq!(topics, [(&"/number".into(), &200.into()), (&"/word".into(), &200.into())], "not the recorder's own");
    assert!(played["interval_error_us"]["p99"].is_number(), "{played}");
    let (words, counts) = (words.finish(), counts.finish());
    assert_eq!((words.lines.len(), counts.lines.len()), (200, 200), "{} {}", words.errors, counts.errors);
    for (at, (word, count)) in words.lines.iter().zip(&counts.lines).enumerate() {
        let value = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["data"].clone();
        assert_eq!((&value(word)["data"], &value(count)), (&format!("word {at}").into(), &at.into()));
    }
}

/// A file of rosbag2: no metadata of ours, numbers that say nothing, times of publication that are those of receipt.
#[test]
fn a_file_of_rosbag_plays_a_part_of_it_and_the_time() {
    let house = Testbed::new();
    let mut file = Recorder::create(&house.path("bag.mcap"), "ros2");
    let offered = "- history: 1\n  depth: 100\n  reliability: 1\n  durability: 2\n";
    let chatter = file.strings("/chatter", &[("offered_qos_profiles", offered)]);
    let other = file.strings("/other", &[("offered_qos_profiles", "")]);
    for at in 0..100u64 {
        let time = BEGIN + at * 10 * MS;
        file.sample(chatter, 0, time, time, &text(format!("hello {at}")));
        file.sample(other, 0, time, time, &text("no"));
    }
    file.finish();
    let path = house.path("bag.mcap").display().to_string();
    let (words, time) = (subscriber(&house, "/old/chatter", 41), subscriber(&house, "/clock", 1));
    let options = "--from 200ms --until 0.6 --rate 2 --as-recorded --clock --remap chatter:=old/chatter --json";
    let played = house.run(&format!("play {path} /chatter {options}"));
    let played = played.json();
    assert_eq!((&played["samples"], played["topics"].as_array().unwrap().len()), (&41.into(), 1), "{played}");
    let words = words.finish();
    let data = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap()["data"]["data"].clone();
    let found: Vec<_> = words.lines.iter().map(data).collect();
    assert_eq!((found.first(), found.last()), (Some(&"hello 20".into()), Some(&"hello 60".into())), "{}", words.errors);
    let clock = time.json_line();
    let seconds = clock["data"]["clock"]["sec"].as_u64().unwrap();
    assert_eq!(seconds, BEGIN / 1_000_000_000, "{clock}");
}

#[test]
fn info_shows_what_is_in_a_recording() {
    let house = Testbed::new();
    let mut file = Recorder::create(&house.path("run.mcap"), "thalweg");
    let words = file.strings("/word", &[("thalweg.publisher", "/q")]);
    let losses = file.channel(0, "/thalweg/losses", &[]);
    for at in 0..11u64 {
        file.sample(words, at as u32, BEGIN + at * 100 * MS, BEGIN + at * 100 * MS, &text("x"));
    }
    let lost = r#"{"topic":"/word","publisher":"/q","first_seq":3,"last_seq":4,"count":2,"where":"network"}"#;
    file.sample(losses, 1, BEGIN, BEGIN, lost.as_bytes());
    file.finish();
    let path = house.path("run.mcap").display().to_string();
    let found = house.run(&format!("info {path} --json")).json();
    assert_eq!((&found["kind"], &found["samples"]), (&"recording".into(), &11.into()), "{found}");
    assert_eq!(found["received_ns"], serde_json::json!([BEGIN, BEGIN + 1000 * MS]));
    let [word] = &found["channels"].as_array().unwrap()[..] else {
        panic!("the recorder's own topics are no channels")
    };
    let of = |key: &str| word[key].clone();
    assert_eq!([of("topic"), of("type"), of("publisher")], ["/word", "std_msgs/msg/String", "/q"]);
    assert_eq!((of("samples"), of("rate_hz"), of("lost")), (11.into(), 10.0.into(), 2.into()));
    let shown = house.run(&format!("info {path}")).lines.join("\n");
    assert!(shown.contains("duration     1.000 s") && shown.contains("10.00 Hz"), "{shown}");
    let missing = house.run(&format!("info {}", house.path("no.mcap").display()));
    assert_eq!(missing.code(), 2, "{}", missing.errors);
}

#[test]
fn what_cannot_be_played_exits_2_with_the_reason() {
    let house = Testbed::new();
    std::fs::write(house.path("notes.txt"), "nothing of the kind").unwrap();
    std::fs::create_dir(house.path("empty")).unwrap();
    let mut file = Recorder::create(&house.path("run.mcap"), "thalweg");
    let channel = file.strings("/word", &[]);
    file.sample(channel, 1, BEGIN, BEGIN, &text("x"));
    file.finish();
    let named = |name: &str| house.path(name).display().to_string();
    let (text, run) = (named("notes.txt"), named("run.mcap"));
    for (arguments, reason) in [
        (format!("play {text}"), "is no MCAP file: it begins with"),
        (format!("play {}", named("nothing")), "cannot be read: No such file"),
        (format!("play {}", house.path("empty").display()), "is a directory without a file *.mcap"),
        (format!("play {run} {}", named("nothing.mcap")), "nothing.mcap: cannot be read: No such file"),
        (format!("play {run} /other"), "no topic in it is /other; there are /word"),
        (format!("play {run} --from 10"), "no sample lies in this part"),
        (format!("play {run} --remap /old=/new"), "no topic that plays is /old; there are /word"),
        (format!("play {run} --remap /word"), "two topics, such as"),
        (format!("play {run} --rate 0"), "a factor from 0.001 to 1000"),
        (format!("play {run} --check {text}"), "is no MCAP file"),
        (format!("play {run} --check a.toml --check {run}"), "one plan (*.toml), or recordings"),
        (format!("play {run} --check {run} --clock"), "cannot be used with"),
    ] {
        let done = house.run(&arguments);
        assert_eq!(done.code(), 2, "{arguments}: {}", done.errors);
        assert!(done.errors.contains(reason), "{arguments}: {}", done.errors);
    }
}

/// A recorder that was killed: what is there plays, and the user is told.
#[test]
fn a_file_without_its_end_plays_as_far_as_it_goes() {
    let house = Testbed::new();
    let path = house.path("run.mcap");
    let mut file = Recorder::create(&path, "thalweg");
    let channel = file.strings("/word", &[]);
    // Words that do not pack well, so that chunks are many.
    (0..300u64).for_each(|at| {
        file.sample(channel, at as u32, BEGIN + at * MS, BEGIN + at * MS, &text(format!("{:x}", at * at * 0x9e37_79b9)))
    });
    file.finish();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let done = house.run(&format!("play {} --json --rate 10", path.display()));
    assert!(done.errors.contains("its summary is missing") && done.errors.contains("damaged: byte"), "{}", done.errors);
    assert!(done.errors.contains("nobody heard it: no subscriber of /word was there"), "{}", done.errors);
    let samples = done.json()["samples"].as_u64().unwrap();
    assert!((20..300).contains(&samples), "{samples}");
}

/// Files as `record --split` leaves them, each with half of the samples, and the numbers of channels another way round; and a third one of
/// another recording.
fn split(house: &Testbed) -> [String; 2] {
    let names = ["run.mcap", "run-2.mcap", "run-3.mcap"];
    for (number, name) in (0..).zip(names) {
        let mut file = Recorder::create(&house.path(name), "thalweg");
        file.clock(if number == 2 { "8" } else { "7" });
        let mut topics = ["/word", "/other"];
        topics.rotate_left(number as usize % 2);
        let channels = topics.map(|topic| (topic, file.strings(topic, &[("thalweg.publisher", "/p")])));
        for at in number * 100..(number + 1) * 100 {
            let time = BEGIN + u64::from(at) * 2 * MS;
            for (topic, channel) in channels {
                file.sample(channel, at, time, time + MS, &text(format!("{topic} {at}")));
            }
        }
        file.finish();
    }
    ["run.mcap", "run-2.mcap"].map(|name| house.path(name).display().to_string())
}

#[test]
fn files_that_were_split_play_as_one_recording() {
    let house = Testbed::new();
    let [first, second] = split(&house);
    let words = subscriber(&house, "/word", 200);
    let played = house.run(&format!("play {first} --json")).json();
    assert_eq!(played["samples"], 400, "{played}");
    assert_eq!(played["topics"].as_array().unwrap().len(), 2, "one publisher for a topic of both files: {played}");
    let words = words.finish();
    let value = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap()["data"]["data"].clone();
    let found: Vec<_> = words.lines.iter().map(value).collect();
    let expected: Vec<serde_json::Value> = (0..200).map(|at| format!("/word {at}").into()).collect();
    assert_eq!(found, expected, "each once, in order: {}", words.errors);
    for (arguments, samples) in [
        (format!("{first} {second}"), 400),
        (format!("{second} {first} /word"), 200),
        (format!("{second} /other"), 100),
        (first.clone(), 400),
    ] {
        let played = house.run(&format!("play {arguments} --rate 100 --json")).json();
        assert_eq!(played["samples"], samples, "{arguments}: {played}");
    }
    let check = house.run(&format!("play {first} --check {second} --check {first} --json")).json();
    assert_eq!(check["topics"][0]["samples"], serde_json::json!([300, 200]), "{check}");
    let all = house.run(&format!("play {}", house.path("").display()));
    assert!(all.code() == 2 && all.errors.contains("has 2 recordings: name the first file of one"), "{}", all.errors);
    std::fs::remove_file(house.path("run-3.mcap")).unwrap();
    let folder = house.run(&format!("play {} --rate 100 --json", house.path("").display())).json();
    assert_eq!(folder["samples"], 400, "{folder}");
    let twice = house.run(&format!("play {first} {first}"));
    assert!(twice.code() == 2 && twice.errors.contains("run.mcap: is named twice"), "{}", twice.errors);
}

#[test]
fn a_damaged_second_file_is_named_and_the_rest_plays() {
    let house = Testbed::new();
    let [first, second] = split(&house);
    let sound = std::fs::read(&second).unwrap();
    // Within the first chunk, behind the first bytes of Zstandard.
    let at = sound.windows(4).position(|four| four == [0x28, 0xb5, 0x2f, 0xfd]).unwrap() + 20;
    let mut wrong = sound;
    wrong[at..at + 8].iter_mut().for_each(|byte| *byte ^= 0xff);
    std::fs::write(&second, &wrong).unwrap();
    let done = house.run(&format!("play {first} --rate 100 --json"));
    assert!(done.errors.contains(&format!("{second}: damaged: byte")), "{}", done.errors);
    assert!(!done.errors.contains(&format!("{first}:")), "{}", done.errors);
    let samples = done.json()["samples"].as_u64().unwrap();
    assert!((200..400).contains(&samples), "{samples}");
    let check = house.run(&format!("play {first} --check {first}"));
    assert!(check.errors.contains(&format!("{second}: damaged: byte")), "{}", check.errors);
    // A recorder that was killed before it wrote a byte of it.
    std::fs::write(&second, "").unwrap();
    let done = house.run(&format!("play {first} --rate 100 --json"));
    assert!(done.errors.contains(&format!("{second}: is no MCAP file")), "{}", done.errors);
    assert_eq!(done.json()["samples"], 200);
}

/// Ends of instances are played, and what is played is recorded again.
#[test]
fn ends_of_instances_are_played_and_recorded() {
    let house = Testbed::new();
    let qos = serde_json::to_string(&qos::Qos { key: vec!["data".to_owned()], ..qos::Qos::default() }).unwrap();
    let own = [("thalweg.publisher", "/p"), ("thalweg.qos", qos.as_str())];
    let of_ends = |change| [own[0], own[1], ("thalweg.change", change), ("thalweg.topic", "/word")];
    let mut file = Recorder::create(&house.path("a.mcap"), "thalweg");
    let words = file.strings("/word", &own);
    let disposed = file.strings("/thalweg/disposed/word", &of_ends("disposed"));
    let unregistered = file.strings("/thalweg/unregistered/word", &of_ends("unregistered"));
    for (at, (channel, word)) in
        (0..).zip([(words, "a"), (words, "b"), (disposed, "a"), (words, "c"), (unregistered, "b")])
    {
        let time = BEGIN + u64::from(at) * 50 * MS;
        file.sample(channel, at, time, time, &text(word));
    }
    file.finish();
    let (first, again) = (house.path("a.mcap").display().to_string(), house.path("b.mcap").display().to_string());
    let changes = |listener: Running| -> Vec<String> {
        let one = |line: &String| {
            let shown: serde_json::Value = serde_json::from_str(line).unwrap();
            format!("{} {}", shown["change"].as_str().unwrap_or("written"), shown["data"]["data"].as_str().unwrap())
        };
        listener.finish().lines.iter().map(one).collect()
    };
    let expected = ["written a", "written b", "disposed a", "written c", "unregistered b"];
    // A recorder subscribes to topics that exist, and a replay waits for subscribers that exist: so the topic exists before it.
    let other = house.start("pub /word --stdin");
    let (listener, recorder) = (subscriber(&house, "/word", 5), house.start(&format!("record {again} /word --json")));
    let subscribers = |topic: &serde_json::Value| topic["subscribers"].as_array().unwrap().len();
    house.wait_for_list("topics", |topics| topics.as_array().unwrap().iter().any(|topic| subscribers(topic) == 2));
    drop(other);
    let played = house.run(&format!("play {first} --json")).json();
    let row = &played["topics"][0];
    assert_eq!((&row["topic"], &row["samples"], &row["ended"]), (&"/word".into(), &3.into(), &2.into()), "{played}");
    assert_eq!(changes(listener), expected);
    let recorded = ended(&house, recorder);
    let channel = &recorded["channels"][0];
    assert_eq!((&channel["samples"], &channel["ended"]), (&3.into(), &2.into()), "{recorded}");
    let listener = subscriber(&house, "/word", 5);
    house.run(&format!("play {again} --as-recorded --json")).json();
    assert_eq!(changes(listener), expected, "as recorded");
    let bytes = std::fs::read(&again).unwrap();
    let ends: Vec<_> = mcap::MessageStream::new(&bytes)
        .unwrap()
        .map(Result::unwrap)
        .filter(|message| message.channel.topic == "/thalweg/disposed/word")
        .map(|message| message.data.into_owned())
        .collect();
    assert_eq!(ends, [text("a")], "readers of others find the end as a message of its type");
}

/// /pose and /map 400 times, the first one received after `took` and a little that differs.
fn run(house: &Testbed, name: &str, took: u64) -> String {
    recorded(house, name, took, 400)
}

/// The same so many times.
fn recorded(house: &Testbed, name: &str, took: u64, samples: u64) -> String {
    let path = house.path(name);
    let mut file = Recorder::create(&path, "thalweg");
    let channels = ["/pose", "/map"].map(|topic| file.strings(topic, &[("thalweg.publisher", "/p")]));
    for at in 0..samples {
        let published = BEGIN + at * 10 * MS;
        let scatter = at * 7919 % 97 * 1000;
        file.sample(channels[0], at as u32, published, published + took + scatter, &text("x"));
        file.sample(channels[1], at as u32, published, published + MS / 2 + scatter, &text("y"));
    }
    file.finish();
    path.display().to_string()
}

#[test]
fn a_check_names_the_topic_and_the_stage_of_what_became_slower() {
    let house = Testbed::new();
    let (baseline, equal, slow) = (run(&house, "a", MS / 2), run(&house, "b", MS / 2), run(&house, "c", 5 * MS / 2));
    let passes = house.run(&format!("play {equal} --check {baseline} --json"));
    assert_eq!(passes.json()["pass"], true);
    let fails = house.run(&format!("play {slow} --check {baseline} --check {equal}"));
    assert_eq!(fails.code(), 1, "{:?}", fails.lines);
    assert!(fails.lines[0].ends_with("1 kept, 1 broken"), "{:?}", fails.lines);
    let row = fails.lines.iter().find(|line| line.starts_with("/pose")).unwrap();
    assert!(row.contains("broken") && row.contains("network: latency p50"), "{row}");
    let tolerated = house.run(&format!("play {slow} --check {baseline} --tolerance 500%"));
    assert_eq!(tolerated.code(), 0, "{:?}", tolerated.lines);
    let other = house.run(&format!("play {slow} /map --check {baseline}"));
    assert_eq!(other.code(), 0, "{:?}", other.lines);
}

#[test]
fn a_check_says_why_a_figure_is_missing() {
    let house = Testbed::new();
    let (short, long) = (recorded(&house, "a", MS / 2, 199), run(&house, "b", MS / 2));
    let told = |file: &str| {
        let done = house.run(&format!("play {file} --check {long}"));
        done.lines.iter().any(|line| line.starts_with("- in p99: fewer than 200 samples in a recording"))
    };
    assert!(told(&short) && !told(&long));
}

#[test]
fn a_check_beside_a_plan_finds_what_is_later_than_its_bound() {
    let house = Testbed::new();
    let plan = qos::plan::Plan {
        channels: vec![qos::plan::Channel {
            topic: "pose".into(),
            publisher: "p".into(),
            subscriber: "/s".into(),
            bound_us: Some(1000.0),
            rate_hz: Some(100.0),
            scale: 1,
            ..qos::plan::Channel::default()
        }],
        feasible: true,
        ..qos::plan::Plan::default()
    };
    std::fs::write(house.path("plan.toml"), plan.to_text()).unwrap();
    let (kept, late) = (run(&house, "a", MS / 2), run(&house, "b", 2 * MS));
    let check = |file: &str| house.run(&format!("play {file} --check {}", house.path("plan.toml").display()));
    let done = check(&kept);
    assert_eq!(done.code(), 0, "{:?}", done.lines);
    let done = check(&late);
    assert_eq!(done.code(), 1, "{:?}", done.lines);
    let row = done.lines.iter().find(|line| line.starts_with("/pose")).unwrap();
    assert!(row.contains("network: 399 of 399 samples later than 1 ms"), "{row}");
}

#[test]
fn a_plan_is_made_with_the_rates_and_sizes_of_a_recording() {
    let house = Testbed::new();
    let contract = "[system]\nname = \"t\"\n[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n[[link]]\nname = \"l\"\nbetween = [\"a\", \"b\"]\n\
                    rate = \"10 Mbit/s\"\n[[topic]]\nname = \"pose\"\nsize = \"64 B\"\nrate = \"50 Hz\"\npublisher = \"a\"\n\
                    [[subscriber]]\ntopic = \"pose\"\nnode = \"b\"\ndeadline = \"100 ms\"\n";
    let path = house.path("run.mcap");
    let mut file = Recorder::create(&path, "thalweg");
    let channel = file.strings("/pose", &[]);
    let message = text("x".repeat(991));
    (0..101u64).for_each(|at| file.sample(channel, at as u32, BEGIN + at * 10 * MS, BEGIN + at * 10 * MS, &message));
    file.0
        .attach(&mcap::Attachment {
            log_time: BEGIN,
            create_time: BEGIN,
            name: "contract.toml".to_owned(),
            media_type: "application/toml".to_owned(),
            data: contract.as_bytes().into(),
        })
        .unwrap();
    file.finish();
    let done = house.run(&format!("plan --whatif {} --json", path.display()));
    assert!(done.errors.contains("topic pose: size = \"1000 B\"\ntopic pose: rate = \"100 Hz\""), "{}", done.errors);
    let found = done.json();
    let rate = |plan: &str| found[plan]["channels"][0]["rate_hz"].as_f64().unwrap();
    assert_eq!((rate("old"), rate("new")), (50.0, 100.0));
    let run = run(&house, "bare.mcap", MS);
    let without = house.run(&format!("plan --whatif {run}"));
    assert_eq!(without.code(), 2);
    assert!(without.errors.contains("contract.toml is not attached: name it"), "{}", without.errors);
    std::fs::write(house.path("system.toml"), contract).unwrap();
    let named = house.run(&format!("plan {} --whatif {run} --json", house.path("system.toml").display()));
    assert!(named.errors.contains("topic pose: size = \"10 B\""), "{}", named.errors);
}

#[test]
fn what_was_recorded_plays_and_passes_beside_itself() {
    let house = Testbed::new();
    let path = house.path("run.mcap").display().to_string();
    let recorder = house.start(&format!("record {path} /a --json"));
    house.wait_for_list("nodes", |nodes| !nodes.as_array().unwrap().is_empty());
    let mut publish = house.command("pub /a --rate 200 --count 100 --wait 1 --json");
    publish.args(["--policy", "queue=keep-all 4096"]); // a busy machine costs no sample
    assert_eq!(Running::start(publish).finish().json()["published"], 100);
    let recorded = ended(&house, recorder);
    assert_eq!(recorded["channels"][0]["samples"], 100, "{recorded}");
    let listener = subscriber(&house, "/a", 100);
    let played = house.run(&format!("play {path} --as-recorded --json")).json();
    assert_eq!(played["samples"], 100, "{played}");
    assert_eq!(listener.finish().lines.len(), 100);
    let check = house.run(&format!("play {path} --check {path} --json")).json();
    assert_eq!(
        (&check["pass"], &check["topics"][0]["samples"]),
        (&true.into(), &serde_json::json!([100, 100])),
        "{check}"
    );
}
