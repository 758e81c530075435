//! Passes the commit that is built on to the documents of experiments; `-dirty` is behind it if the measured code differs from the commit.

use std::path::Path;
use std::process::Command;

/// The code that experiments measure, from here.
const MEASURED: [&str; 4] = ["src", "../crates/linux", "../crates/qos", "../crates/thalweg"];

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let changed = git(&[&["status", "--porcelain", "--"], &MEASURED[..]].concat());
    let dirty = if changed.is_none_or(|files| files.is_empty()) { "" } else { "-dirty" };
    println!("cargo:rustc-env=THALWEG_COMMIT={}{dirty}", commit.as_deref().unwrap_or("unknown"));
    // Each commit, and each change of branch, is a line of the log.
    for path in MEASURED.iter().chain(&["build.rs", "../.git/logs/HEAD"]) {
        if Path::new(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

/// The output of git without the spaces around it; `None` if it fails or there is none.
fn git(arguments: &[&str]) -> Option<String> {
    let done = Command::new("git").args(arguments).output().ok()?;
    done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
}
