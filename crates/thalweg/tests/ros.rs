//! Type hashes of ROS 2 compared with those of another program: the Python package `rosbags`, for every message of Jazzy.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world::{beside, figure, skipped};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use thalweg::codec::{Definitions, Schema};

/// Prints a line of JSON for each message. Exit code 3: this Python has no such package.
///
/// `rosbags` 0.11.9 gives `char` the number of IDL's `char`, 13. In ROS 2 it is `uint8`, 3 (`rosidl_adapter`, `MSG_TYPE_TO_IDL`;
/// the hash of `std_msgs/msg/Char` in real installations agrees).
const SCRIPT: &str = r"
import json, sys
try:
    from rosbags.typesys import Stores, get_typestore, store as rules
    store = get_typestore(Stores.ROS2_JAZZY)
    rules.TIDMAP['char'] = rules.TIDMAP['uint8']
    hash_of = store.hash_rihs01
except (ImportError, AttributeError) as error:
    print(error, file=sys.stderr)
    sys.exit(3)
for name in sorted(store.fielddefs):
    text, _ = store.generate_msgdef(name, ros_version=2)
    print(json.dumps({'name': name, 'text': text, 'hash': hash_of(name)}))
";

/// The script's output, or the reason why there is none.
fn messages() -> Result<String, String> {
    let python = std::env::var("THALWEG_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(&python);
    command.arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{python} cannot be started: {error}"))?;
    child
        .stdin
        .take()
        .unwrap()
        .write_all(SCRIPT.as_bytes())
        .map_err(|error| format!("{python} reads nothing: {error}"))?;
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    match done.status.code() {
        Some(0) => Ok(String::from_utf8(done.stdout).unwrap()),
        Some(3) => Err(format!("{python} has no rosbags 0.11.9 (THALWEG_PYTHON names another): {}", said.trim())),
        _ => panic!("{python}: {} {said}", done.status),
    }
}

#[test]
fn hashes_are_those_of_rosbags() {
    let _beside = beside();
    let output = match messages() {
        Ok(output) => output,
        Err(why) => return skipped(why),
    };
    let (mut compared, mut wrong) = (0, Vec::new());
    for line in output.lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        let [name, text, hash] = ["name", "text", "hash"].map(|key| message[key].as_str().unwrap());
        let mut definitions = Definitions::new();
        definitions.add_concatenated(name, text).unwrap();
        let described = definitions.describe(name).unwrap();
        let ros = described.ros.as_ref().unwrap();
        assert_eq!((ros.name.as_str(), ros.check()), (name, Ok(())));
        assert_eq!(described.schema.as_deref().map(Schema::check), Some(Ok(())), "{name}");
        let mut again = Definitions::new();
        again.add_concatenated(name, &ros.source).unwrap();
        assert_eq!(again.describe(name).unwrap(), described, "{name}");
        compared += 1;
        if ros.type_hash != hash {
            wrong.push(format!("{name}: expected {hash}, found {}", ros.type_hash));
        }
    }
    figure("ros", format!("{compared} type hashes compared with those of rosbags"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 150, "rosbags has only {compared} messages");
}
