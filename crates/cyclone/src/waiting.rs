//! The wait of a reader's thread for messages.

use cyclors::dds_entity_t;
use std::ffi::c_void;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Messages that wait to be taken before a reader holds up Cyclone's thread, and with it what comes.
const MOST_WAITING: usize = 4096;

/// Tells a reader's thread that messages wait. They are not taken on Cyclone's thread: a slow function would hold up discovery as well, and after
/// 10 s all peers would seem to be gone.
#[derive(Default)]
pub(crate) struct Waiting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    /// Messages that came since the thread began to take.
    came: usize,
    over: bool,
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message has come.
    pub(crate) fn count(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.came += 1;
        self.changed.notify_all();
        state
    }

    /// A message has come. Waits while too many do.
    fn tell(&self) {
        let state = self.count();
        let full = |state: &mut State| state.came > MOST_WAITING && !state.over;
        drop(self.changed.wait_while(state, full).unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits for messages; `false` at the end.
    pub(crate) fn wait(&self) -> bool {
        let none = |state: &mut State| state.came == 0 && !state.over;
        let mut state = self.changed.wait_while(self.state(), none).unwrap_or_else(PoisonError::into_inner);
        state.came = 0;
        self.changed.notify_all();
        !state.over
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state().over
    }

    pub(crate) fn end(&self) {
        self.state().over = true;
        self.changed.notify_all();
    }
}

/// Messages have come.
pub(crate) unsafe extern "C" fn available(_: dds_entity_t, waiting: *mut c_void) {
    // SAFETY: it is the reader's own, and lives until the reader is deleted.
    if let Some(waiting) = unsafe { waiting.cast::<Waiting>().as_ref() } {
        waiting.tell();
    }
}
