//! A world of its own for a test: processes that play a part, network namespaces that connect them, and their
//! figures.
//!
//! A process is this test program, started again with its part in the environment; see [`agent`]. All is taken down
//! at any end of the test.
#![allow(dead_code)] // each test program uses a part of it
#![allow(clippy::unwrap_used)] // all of this is test

pub mod account;
pub mod agent;
pub mod capture;
pub mod fake;
pub mod net;
pub mod pairs;
pub mod roles;
pub mod service;
pub mod strace;
pub mod stranger;
pub mod stranger_link;
pub mod turn;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
pub use turn::{alone, beside, waiting};

/// Longest duration of anything that works.
pub const LONG: Duration = Duration::from_secs(20);

/// Printed before the names of tests, so that figures are found in the output.
pub fn figure(test: &str, text: impl std::fmt::Display) {
    println!("FIGURE {test}: {text}");
}

/// Prints the reason why a test does nothing here.
pub fn skipped(because: impl std::fmt::Display) {
    println!("\nskipped: because {because}");
}

/// `true` to run the long variants too, which take minutes and need a quiet machine.
pub fn long() -> bool {
    std::env::var_os("THALWEG_TEST_LONG").is_some()
}

/// A run directory and a realm of its own.
pub struct World {
    dir: PathBuf,
    realm: String,
    _turn: turn::Turn,
}

impl World {
    /// An empty world, which waits until no other test measures.
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let realm = format!("w{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(format!("thalweg-{realm}"));
        std::fs::create_dir(&dir).unwrap();
        Self { dir, realm, _turn: beside() }
    }

    /// The realm of its nodes.
    pub fn realm(&self) -> &str {
        &self.realm
    }

    /// Its directory; the run directory lies below.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `THALWEG_RUN_DIR` of its processes.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Names of all files below the run directory.
    pub fn left_behind(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.run_dir()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                    _ => found.push(entry.file_name().to_string_lossy().into_owned()),
                }
            }
        }
        found
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Waits until `condition` returns a value, checking every few milliseconds; `None` after `timeout`.
pub fn eventually<T>(timeout: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let until = std::time::Instant::now() + timeout;
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        if std::time::Instant::now() >= until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until this file, if one is given, is there.
pub fn wait_for(file: Option<&str>) {
    if let Some(file) = file {
        eventually(LONG, || Path::new(file).exists().then_some(()));
    }
}

/// The median.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
