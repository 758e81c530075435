//! The examples do what they promise, as separate processes.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A built example: next to this test's folder. `cargo test` builds examples unless its options select less.
fn example(name: &str) -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let path = deps.parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not there: build it by cargo build --examples, with this profile", path.display());
    path
}

#[test]
fn a_scaler_of_ones_own_makes_messages_smaller() {
    let run_dir = std::env::temp_dir().join(format!("thalweg-scaler-{}", std::process::id()));
    let done = Command::new(example("scaler")).env("THALWEG_RUN_DIR", &run_dir).output().unwrap();
    let _ = std::fs::remove_dir_all(&run_dir);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.starts_with("of 144 heights 16 came: [0.0, 3.0, 6.0, 9.0, 36.0,"), "{said}{done:?}");
}

#[test]
fn the_listener_hears_the_talker() {
    let run_dir = std::env::temp_dir().join(format!("thalweg-examples-{}", std::process::id())); // without nodes of other tests
    let command = |name: &str| {
        let mut command = Command::new(example(name));
        command.env("THALWEG_RUN_DIR", &run_dir).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    };
    let mut talker = command("talker").spawn().unwrap();
    let mut listener = command("listener").arg("5").spawn().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let output = listener.stdout.take().unwrap();
    std::thread::spawn(move || tell.send(std::io::read_to_string(output)));
    let heard = told.recv_timeout(std::time::Duration::from_secs(20));
    for child in [&mut talker, &mut listener] {
        let _ = child.kill();
        child.wait().unwrap();
    }
    let _ = std::fs::remove_dir_all(&run_dir);
    let heard = heard.expect("the listener heard nothing for 20 s").unwrap();
    let numbers: Vec<u64> =
        heard.lines().map(|l| l["sample ".len()..].split(':').next().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers.len(), 5, "{heard}");
    assert!(numbers.is_sorted_by(|a, b| a < b), "{heard}");
}
