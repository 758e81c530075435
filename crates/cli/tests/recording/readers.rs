//! Readers of others open the files, and find in them what was published.

use super::{ended, record, totals};
use crate::support::Testbed;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use thalweg::codec::to_cdr;

/// Prints count and bytes by topic, as two readers of others find them. Exit code 3: this Python has none.
const READERS: &str = r"
import json, sys
try:
    from mcap.reader import make_reader
    from rosbags.rosbag2 import Reader
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(3)
found = {'mcap': {}, 'rosbags': {}}
def add(reader, topic, data):
    count, size = found[reader].get(topic, (0, 0))
    found[reader][topic] = (count + 1, size + len(data))
with open(sys.argv[1], 'rb') as file:
    for schema, channel, message in make_reader(file, validate_crcs=True).iter_messages():
        add('mcap', channel.topic, message.data)
with Reader(sys.argv[1]) as reader:
    found['types'] = {c.topic: c.msgtype for c in reader.connections}
    found['qos'] = {c.topic: str(c.ext.offered_qos_profiles) for c in reader.connections}
    for connection, _, data in reader.messages():
        add('rosbags', connection.topic, data)
print(json.dumps(found))
";

#[test]
fn readers_for_python_find_the_same_counts_and_bytes() {
    let python = std::env::var("THALWEG_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    for compression in ["none", "lz4", "zstd"] {
        let house = Testbed::new();
        let file = house.path("run.mcap");
        let recorder = record(&house, &file, &format!("--all --compress {compression}"));
        let mut text = house.start("pub /text --stdin --wait 1 --json");
        let mut time = house.start("pub /time --type builtin_interfaces/msg/Time --wait 1 --json");
        (0..200).for_each(|n| text.write(&format!("line {n} {}\n", "x".repeat(n))));
        (0..100).for_each(|n| time.write(&format!("{{\"sec\": {n}, \"nanosec\": 7}}\n")));
        let published = [text, time].map(|publish| publish.finish().json()["published"].as_u64().unwrap());
        assert_eq!(published, [200, 100]);
        let summary = ended(&house, recorder);
        let mut command = Command::new(&python);
        command.args(["-c", READERS]).arg(&file).stderr(Stdio::piped());
        let done = match command.output() {
            Ok(done) if done.status.code() != Some(3) => done,
            _ => return println!("skipped: because {python} has no mcap and rosbags (THALWEG_PYTHON names another)"),
        };
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let found: Value = serde_json::from_slice(&done.stdout).unwrap();
        for (topic, published, name) in
            [("/text", 200, "thalweg/msg/String"), ("/time", 100, "builtin_interfaces/msg/Time")]
        {
            let (samples, bytes, _) = totals(&summary, topic);
            assert_eq!(samples, published, "{summary}");
            for reader in ["mcap", "rosbags"] {
                assert_eq!(found[reader][topic], json!([samples, bytes]), "{compression} {reader} {topic}");
            }
            assert_eq!(found["types"][topic], name, "{compression}");
            let policies = found["qos"][topic].as_str().unwrap();
            assert!(policies.contains("RELIABLE") && policies.contains("VOLATILE"), "{policies}");
        }
    }
}

/// `@mcap/core` unpacks nothing by itself: programs bring the code for LZ4 and Zstandard.
#[test]
fn the_reader_for_javascript_finds_every_byte() {
    let house = Testbed::new();
    let file = house.path("run.mcap");
    let recorder = record(&house, &file, "--all");
    let lines: Vec<String> = (0..200).map(|n| format!("line {n} {}", "x".repeat(n))).collect();
    let mut text = house.start("pub /text --stdin --wait 1 --json");
    lines.iter().for_each(|line| text.write(&format!("{line}\n")));
    assert_eq!(text.finish().json()["published"], 200);
    ended(&house, recorder);
    let mut command = Command::new("node");
    command.args(["-e", include_str!("reader.js")]).arg(&file);
    command.env("NODE_PATH", std::env::var("THALWEG_NODE_MODULES").unwrap_or_default());
    let Ok(done) = command.output() else {
        return println!("skipped: because node is not installed (apt-get install nodejs npm)");
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let found: Value = serde_json::from_slice(&done.stdout).unwrap();
    if found == "missing" {
        return println!("skipped: because node finds no @mcap/core (THALWEG_NODE_MODULES names its folder)");
    }
    let published: Vec<u8> = lines.iter().flat_map(|line| to_cdr(line).unwrap()).collect();
    let expected = json!([200, BASE64_STANDARD.encode(published)]);
    for reader in ["index", "stream"] {
        assert!(found[reader]["/text"] == expected, "{reader}: {}", found[reader]);
    }
}
