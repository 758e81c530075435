//! The examples do what they promise, as separate processes.
#![allow(clippy::unwrap_used)]

use std::io::BufRead;
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

/// The programs that `thalweg new rust` writes.
#[test]
fn a_new_project_keeps_its_promise() {
    let run_dir = std::env::temp_dir().join(format!("thalweg-new-{}", std::process::id()));
    let start = |name: &str| {
        let mut command = Command::new(example(name));
        command.env("THALWEG_RUN_DIR", &run_dir).stdin(Stdio::null()).stdout(Stdio::piped());
        Ended(command.spawn().unwrap())
    };
    let (publisher, mut subscriber) = (start("new_publisher"), start("new_subscriber"));
    let lines = std::io::BufReader::new(subscriber.0.stdout.take().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
    // Until the first position comes it says that there is none.
    let heard = std::iter::from_fn(|| told.recv_timeout(std::time::Duration::from_secs(20)).ok());
    let position = heard.take(100).find(|line| line.starts_with('(') && line.ends_with(" us"));
    drop((publisher, subscriber));
    let _ = std::fs::remove_dir_all(&run_dir);
    assert!(position.is_some(), "no position came");
}

/// A process that does not outlive its test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
