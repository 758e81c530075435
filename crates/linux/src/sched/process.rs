//! All threads of a process at once.

use super::{Reason, SchedError, apply, put_back, read, refusal};
use qos::priority::Scheduling;
use std::collections::BTreeSet;

/// Limit of looks at a process that starts threads faster than they are found.
const MOST_LOOKS: usize = 100;

/// Sets all threads of a process, including those that start meanwhile; `None`: unchanged. 0 is the calling process.
/// Returns the number of threads that were set. Threads started later inherit the settings, except a reservation.
///
/// # Errors
/// As [`super::set`]; threads that were changed already are restored.
pub fn set_process(pid: i32, scheduling: Option<&Scheduling>, affinity: Option<&[u16]>) -> Result<usize, SchedError> {
    let mut seen = BTreeSet::new();
    let mut before = Vec::new();
    let done = (0..MOST_LOOKS).try_fold(true, |more, _| {
        if !more {
            return Ok(false);
        }
        let fresh: Vec<i32> = threads(pid)?.into_iter().filter(|tid| seen.insert(*tid)).collect();
        for tid in &fresh {
            let Ok(found) = read(*tid) else { continue }; // ended meanwhile
            match apply(*tid, scheduling, affinity) {
                Ok(()) => before.push(found),
                Err(SchedError { reason: Reason::NoSuchThread, .. }) => {}
                Err(refused) => return Err(refused),
            }
        }
        Ok(!fresh.is_empty())
    });
    match done {
        Ok(_) => Ok(before.len()),
        Err(refused) => {
            before.iter().for_each(put_back);
            Err(refused)
        }
    }
}

/// The threads a process has now.
fn threads(pid: i32) -> Result<Vec<i32>, SchedError> {
    let place = if pid == 0 { "/proc/self/task".to_owned() } else { format!("/proc/{pid}/task") };
    let listing = std::fs::read_dir(place).map_err(|error| refusal::of_process(pid, error))?;
    Ok(listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}
