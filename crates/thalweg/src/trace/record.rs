//! A recording of steps, for tests: the thread of each step, and the cost up to it.

use super::{RECORDING, Step, WATCHED};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// One step that was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The step.
    pub step: Step,
    /// Name of the thread that took it; empty for one without a name.
    pub thread: String,
    /// The value of the probe when the step began.
    pub probe: u64,
}

struct Record {
    taken: Vec<Taken>,
    probe: fn() -> u64,
}

static RECORD: Mutex<Record> = Mutex::new(Record { taken: Vec::new(), probe: || 0 });

/// Records the next `most` steps of this process; `probe` is called at each, on its thread (a count of allocations, say;
/// the recorder's own allocation for a thread's name comes after it).
pub fn start(most: usize, probe: fn() -> u64) {
    *RECORD.lock().unwrap_or_else(PoisonError::into_inner) = Record { taken: Vec::with_capacity(most), probe };
    WATCHED.fetch_or(RECORDING, Ordering::SeqCst);
}

/// Ends the recording and returns its steps, in order.
pub fn stop() -> Vec<Taken> {
    WATCHED.fetch_and(!RECORDING, Ordering::SeqCst);
    std::mem::take(&mut RECORD.lock().unwrap_or_else(PoisonError::into_inner).taken)
}

pub(super) fn note(step: Step) {
    let mut record = RECORD.lock().unwrap_or_else(PoisonError::into_inner);
    let probe = (record.probe)();
    if record.taken.len() < record.taken.capacity() {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        record.taken.push(Taken { step, thread, probe });
    }
}
