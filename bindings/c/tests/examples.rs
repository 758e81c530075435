//! The examples in C: each is short, and does what it says, with the others.

use crate::support::{Bench, Running, has, root};
use std::path::PathBuf;

fn source(name: &str) -> PathBuf {
    root().join("examples/c").join(name).with_extension("c")
}

#[test]
fn each_example_is_short() {
    let mut seen = 0;
    for file in std::fs::read_dir(root().join("examples/c")).unwrap().map(|file| file.unwrap().path()) {
        let text = std::fs::read_to_string(&file).unwrap();
        let (_, body) = text.split_once("\nint main").unwrap_or_else(|| panic!("{} has no main", file.display()));
        let lines = body.lines().skip(1).take_while(|line| *line != "}").filter(|line| !line.trim().is_empty()).count();
        assert!((1..=20).contains(&lines), "{}: {lines} lines", file.display());
        seen += 1;
    }
    assert_eq!(seen, 6);
}

#[test]
fn a_listener_hears_a_talker_and_its_priority_is_set() {
    if !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = |name| bench.compile(&source(name));
    let mut listener = Running::start(&mut bench.command(&program("listener")));
    let mut talker = Running::start(&mut bench.command(&program("talker")));
    assert!(talker.line().starts_with("sample 1:"));
    let heard = listener.line();
    assert!(heard.starts_with("x ") && heard.contains(" after ") && heard.ends_with(" us, from /talker"), "{heard}");
    let set = program("set_priority");
    let done = bench.run(&set, ["/talker", "/listener", "class=high"]);
    let effect = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success() && effect.lines().count() == 2, "{effect}");
    assert!(effect.starts_with("publisher ") && effect.contains("subscriber "), "{effect}");
    let done = bench.run(&set, ["/talker", "/nobody", "class=high"]);
    let errors = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(1) && errors.contains("not found: no port /nobody is known"), "{errors}");
    let done = bench.run(&set, ["/talker", "/listener", "class=best"]);
    let errors = String::from_utf8(done.stderr).unwrap();
    assert!(
        errors.contains("invalid argument") && errors.contains("low, normal (norm), high or critical (crit)"),
        "{errors}"
    );
    assert!(listener.line().starts_with("x "));
}

#[test]
fn an_image_is_written_and_read_in_place() {
    if has("cc") {
        let bench = Bench::new();
        let done = bench.run(&bench.compile(&source("image_shm")), [""; 0]);
        let said = String::from_utf8(done.stdout).unwrap();
        assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
        assert!(said.starts_with("1048576 bytes, the last is 255"), "{said}");
    }
}

#[test]
fn a_service_answers() {
    if has("cc") {
        let bench = Bench::new();
        let done = bench.run(&bench.compile(&source("service")), [""; 0]);
        let said = String::from_utf8(done.stdout).unwrap();
        assert!(done.status.success() && said == "2 + 3 = 5\n", "{said}{}", String::from_utf8_lossy(&done.stderr));
    }
}

/// With an agent it is tested where the agent is: here the library says what is missing.
#[test]
fn a_session_takes_an_agent() {
    if has("cc") {
        let bench = Bench::new();
        let done = bench.run(&bench.compile(&source("join_session")), ["teleop", "/video"]);
        let errors = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{errors}");
        assert!(errors.contains("session teleop: no agent answers at") && errors.contains("thalweg agent"), "{errors}");
    }
}
