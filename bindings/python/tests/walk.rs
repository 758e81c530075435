//! The walk of docs/first-steps.md: its programs talk, and its contract finds them. Whether the promise is kept is not judged: machines of
//! tests are busy.

use crate::support::{Package, Program, Python, output, root, skipped};
use std::path::PathBuf;
use std::process::Command;

/// The command, which cargo builds for the whole workspace, but not for this program alone.
fn command() -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap();
    let command = program.ancestors().nth(2).unwrap().join("thalweg");
    if !command.exists() {
        skipped("the command is not built (cargo build --release -p thalweg-cli)");
        return None;
    }
    Some(command)
}

#[test]
fn first_steps_lead_to_a_measured_promise() {
    let Some(python) = Python::find(&[]) else { return };
    let package = Package::new();
    let start = |name: &str| Program::start(python.example(&package, name));
    let (_camera, _imu, mut viewer, mut balance) = (start("camera"), start("imu"), start("viewer"), start("balance"));
    let (seen, said) = (viewer.line(), balance.line());
    assert!(seen.ends_with(" images of 2764800 bytes"), "{seen}");
    assert!(said.starts_with("angle ") && said.ends_with(" ms"), "{said}");
    let Some(command) = command() else { return };
    let thalweg = |arguments: &[&str]| {
        let mut thalweg = Command::new(&command);
        thalweg.args(arguments).current_dir(root().join("../..")).env("THALWEG_RUN_DIR", package.path("run"));
        thalweg
    };
    let plan = package.path("plan.toml");
    let plan = plan.to_str().unwrap();
    output(thalweg(&["plan", "examples/first-steps.toml", "-o", plan]));
    // Exit code 1: a promise was broken.
    let verified = thalweg(&["verify", plan, "--for", "2s", "--json"]).output().unwrap();
    let found = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(matches!(verified.status.code(), Some(0 | 1)), "{verified:?}");
    assert_eq!(found.matches(r#""running":true"#).count(), 2, "{found}");
}
