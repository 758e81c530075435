//! The package `thalweg` in an interpreter: its own tests (`test_*.py`), its examples, its types, and its talk with nodes in Rust.
//!
//! `THALWEG_PYTHON` names the interpreter; else it is `python3`. A test whose interpreter lacks something skips itself.
#![allow(clippy::unwrap_used)] // all of this is test

mod peers;
mod support;
mod walk;

use std::process::Command;
use support::{Package, Python, output, skipped};

/// Runs one file of tests.
fn unittest(module: &str) {
    let Some(python) = Python::find(&[]) else { return };
    let package = Package::new();
    let mut command = python.command(&package);
    command.args(["-m", "unittest", "-v", module]).current_dir(support::root().join("tests"));
    let said = output(command);
    if said.contains("skipped 'because this Python has no numpy'") {
        skipped(format!("{python} has no numpy (THALWEG_PYTHON names another)"));
    }
}

#[test]
fn values_and_their_bytes() {
    unittest("test_types");
}

#[test]
fn ports_and_services() {
    unittest("test_ports");
}

#[test]
fn ends_and_forks() {
    unittest("test_process");
}

#[test]
fn pages() {
    unittest("test_pages");
}

#[test]
fn types_are_strict() {
    let Some(python) = Python::find(&["mypy", "numpy"]) else { return };
    let package = Package::new();
    let mut command = python.command(&package);
    command.args(["-m", "mypy", "--strict", "--cache-dir"]).arg(package.path("mypy")).env("MYPYPATH", support::root());
    command.arg(support::root().join("thalweg")).args(support::examples());
    output(command);
}

#[test]
fn examples_do_what_they_say() {
    let Some(python) = Python::find(&["numpy"]) else { return };
    let package = Package::new();
    let run = |name: &str| output(python.example(&package, name));
    assert_eq!(run("service").trim(), "2 + 3 = 5");
    let images = run("image_shm");
    assert!(images.lines().count() == 3 && images.contains("image 3: 6220800 bytes after "), "{images}");
    let mut listener = support::Program::start(python.example(&package, "listener"));
    let mut talker = support::Program::start(python.example(&package, "talker"));
    for program in [&mut talker, &mut listener] {
        (0..3).for_each(|_| drop(program.line()));
    }
    let told = run("set_priority");
    assert!(told.contains("publisher: ") && told.contains("effective: ") && told.contains("subscriber: "), "{told}");
    let mut session = python.example(&package, "join_session");
    let alone = session.output().unwrap();
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(alone.status.code() == Some(1) && said.contains("session teleop: no agent answers"), "{said}");
}

/// What `thalweg new python` writes.
#[test]
fn a_new_project_keeps_its_promise() {
    let Some(python) = Python::find(&[]) else { return };
    let package = Package::new();
    let start = |name: &str| {
        let mut command = python.command(&package);
        command.arg(support::root().join(format!("../../crates/cli/templates/python/{name}.py")));
        command.env("THALWEG_RUN_DIR", package.path("run"));
        support::Program::start(command)
    };
    let (mut publisher, mut subscriber) = (start("publisher"), start("subscriber"));
    assert_eq!(publisher.line(), "/publisher/position publishes /position; stop with Ctrl-C");
    // Until the first position comes it says that there is none.
    let position = (0..100).map(|_| subscriber.line()).find(|line| line.starts_with('(') && line.ends_with(" us"));
    assert!(position.is_some(), "no position came");
}

#[test]
fn examples_are_short() {
    for example in support::examples() {
        let lines = std::fs::read_to_string(&example).unwrap().lines().count();
        assert!(lines <= 20, "{} has {lines} lines", example.display());
    }
    assert_eq!(support::examples().len(), 10);
}

#[test]
fn the_library_needs_no_python_to_be_built() {
    let Ok(done) = Command::new("ldd").arg(support::library()).output() else { return skipped("there is no ldd") };
    let libraries = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && libraries.contains("libc.so") && !libraries.contains("python"), "{libraries}");
}
