//! The package `thalweg` in an interpreter: its own tests (`test_*.py`), its types, and its talk with nodes in Rust. Its examples run in
//! `examples/tests`.
//!
//! `THALWEG_PYTHON` names the interpreter; else it is `python3`. A test whose interpreter lacks something skips itself.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test

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
    assert_eq!(publisher.line(), "/publisher/position/pub1 publishes /position; stop with Ctrl-C");
    // Until the first position comes it says that there is none.
    let position = (0..100).map(|_| subscriber.line()).find(|line| line.starts_with('(') && line.ends_with(" us"));
    assert!(position.is_some(), "no position came");
}

#[test]
fn the_library_needs_no_python_to_be_built() {
    let Ok(done) = Command::new("ldd").arg(support::library()).output() else { return skipped("there is no ldd") };
    let libraries = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && libraries.contains("libc.so") && !libraries.contains("python"), "{libraries}");
}
