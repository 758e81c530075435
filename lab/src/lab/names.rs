//! Names of what a run makes. Each tells whose it is, so that what a killed run left can be told from what is in use.

use crate::error::{Error, Result};
use crate::iproute::ip;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const PREFIX: &str = "thalweg-lab";

/// What the names of one run begin with: the process, and when it started (numbers of processes come again).
#[derive(Clone, Debug)]
pub struct Mark(String);

impl Mark {
    /// Of this process.
    ///
    /// # Errors
    /// [`Error::System`] without a readable `/proc`.
    pub fn of_this_process() -> Result<Self> {
        let me = std::process::id();
        let started = started(me).ok_or_else(|| Error::System("/proc/self/stat cannot be read; mount /proc".into()))?;
        Ok(Self(format!("{PREFIX}-{me}-{started}")))
    }

    /// A name for `what` that nothing else has.
    pub fn name(&self, what: &str) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        format!("{}-{}-{what}", self.0, COUNT.fetch_add(1, Relaxed))
    }
}

/// When a process started, in clock ticks since boot; `None`: there is no such process.
fn started(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may hold spaces and parentheses; field 22 is the 20th after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether a name is one of ours, and its run is over.
fn is_left_over(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('-')) else { return false };
    let mut numbers = rest.split('-').map(str::parse::<u64>);
    let (Some(Ok(process)), Some(Ok(since))) = (numbers.next(), numbers.next()) else { return false };
    u32::try_from(process).ok().and_then(started) != Some(since)
}

fn left_over_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().into_string().ok()).filter(|name| is_left_over(name)).collect()
}

/// Removes what killed runs left: their namespaces, with all that is in them, and their folders. Returns how many there were.
pub fn sweep() -> usize {
    let namespaces = left_over_in(Path::new(linux::namespace::FOLDER));
    let gone = namespaces.iter().filter(|name| ip(&["netns", "delete", name]).is_ok()).count();
    let temporary = std::env::temp_dir();
    let folders = left_over_in(&temporary);
    gone + folders.iter().filter(|name| fs::remove_dir_all(temporary.join(name)).is_ok()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_runs_that_are_over_are_left_over() {
        let me = std::process::id();
        let mark = Mark::of_this_process().unwrap();
        assert!(!is_left_over(&mark.name("h1")));
        assert_ne!(mark.name("h1"), mark.name("h1"));
        // The same number, started at another time: somebody else.
        assert!(is_left_over(&format!("{PREFIX}-{me}-1-0-h1")));
        for other in ["h1", "thalweg-lab", "thalweg-lab-x-1-0-h1", "thalweg-lab-1", "my-thalweg-lab-1-1-0-h1"] {
            assert!(!is_left_over(other), "{other}");
        }
    }
}
