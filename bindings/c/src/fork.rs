//! Forks of the process. A child has no threads of its parent's nodes, and locks that they held stay locked: it may not touch them.

use crate::failure::{Failure, Result, thalweg_status};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The number of forks between the first process with a handle and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
}

/// The process in which a handle was opened.
pub(crate) struct Born(u32);

impl Born {
    /// In this one.
    pub(crate) fn here() -> Self {
        WATCH.call_once(|| {
            // SAFETY: the function may run in a child of any thread: it adds to a number. Without memory for it forks are not seen.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self(FORKS.load(Relaxed))
    }

    pub(crate) fn is_here(&self) -> bool {
        self.0 == FORKS.load(Relaxed)
    }

    pub(crate) fn check(&self) -> Result<()> {
        const ELSEWHERE: Failure = Failure::constant(
            thalweg_status::THALWEG_CLOSED,
            c"the handle was opened before fork(2), and stays with the parent: fork first, or exec(3) in the child",
        );
        if self.is_here() { Ok(()) } else { Err(ELSEWHERE) }
    }
}
