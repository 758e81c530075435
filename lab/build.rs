//! Passes the commit that is built on to the documents of experiments.

use std::path::Path;
use std::process::Command;

fn main() {
    let git = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let commit =
        git.ok().filter(|done| done.status.success()).map(|done| String::from_utf8_lossy(&done.stdout).into_owned());
    println!("cargo:rustc-env=THALWEG_COMMIT={}", commit.as_deref().unwrap_or("unknown").trim());
    // Each commit, and each change of branch, is a line of this file.
    let log = Path::new("../.git/logs/HEAD");
    println!("cargo:rerun-if-changed={}", if log.exists() { log } else { Path::new("build.rs") }.display());
}
