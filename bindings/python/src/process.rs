//! The process: the end of the interpreter, forks, and calls without the interpreter's lock.
//!
//! Python 3.11 ends a thread that asks for the interpreter's lock after the interpreter has ended, by unwinding it: no frame of Rust survives
//! that. So every call that gives up the lock, or calls back into Python, is counted. At exit, while threads still run, all nodes are
//! closed, which ends all waits; further calls are refused, and the exit waits until those that are counted have returned. The counter
//! and the refusal are read and written with the interpreter's lock.

use crate::error::{ClosedError, ForkedError};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The interpreter is about to end.
static ENDED: AtomicBool = AtomicBool::new(false);
/// Calls inside this module's care.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Forks between the first process with Python and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The longest wait for other threads at exit, in milliseconds.
const PATIENCE_MS: u32 = 5000;

/// The process in which something was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth(u64);

impl Birth {
    pub(crate) fn here() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// `true` in the process in which it was opened.
    pub(crate) fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    /// Refuses a call in a forked process: the threads of the node are not there.
    pub(crate) fn check(self) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        let text = "the node was opened before this process was forked, and its threads did not come along: open nodes after \
                    the fork, or start processes with multiprocessing's \"spawn\"";
        Err(ForkedError::new_err(text))
    }
}

/// A call that may give the interpreter's lock up or call back into Python.
pub(crate) struct Inside(());

impl Inside {
    /// Refuses it when the interpreter is about to end.
    pub(crate) fn enter(_: Python<'_>) -> PyResult<Self> {
        if ENDED.load(Ordering::Relaxed) {
            return Err(ClosedError::new_err("the interpreter is about to end: all nodes are closed"));
        }
        INSIDE.fetch_add(1, Ordering::Relaxed);
        Ok(Self(()))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::Release);
    }
}

/// Runs `work` without the interpreter's lock.
pub(crate) fn away<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let _inside = Inside::enter(py)?;
    Ok(py.detach(work))
}

/// As [`away`], from a destructor: at the interpreter's end it gives no lock up.
pub(crate) fn drop_away(work: impl FnOnce() + Send) {
    // A destructor runs with the lock; the interpreter is asked for it again, which costs nothing.
    let _ = Python::try_attach(|py| match Inside::enter(py) {
        Ok(_inside) => py.detach(work),
        Err(_) => work(),
    });
}

/// Refuses further calls.
pub(crate) fn refuse() {
    ENDED.store(true, Ordering::Relaxed);
}

/// Waits until no other thread is in a call, for a few seconds at most.
pub(crate) fn settle() {
    for _ in 0..PATIENCE_MS {
        if INSIDE.load(Ordering::Acquire) == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Notes that this process was forked: `thalweg` registers it with `os.register_at_fork`.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    INSIDE.store(0, Ordering::Relaxed); // threads that did not come along
}
