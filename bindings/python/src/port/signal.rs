//! A signal for threads that wait for one subscriber: the library wakes it, they look again.

use crate::handle::lock;
use std::sync::{Arc, Condvar, Mutex};
use std::task::Wake;
use std::time::Duration;

/// A count of wake-ups.
#[derive(Default)]
pub(super) struct Signal {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Signal {
    /// The count so far: what is looked at after it may be waited for.
    pub(super) fn news(&self) -> u64 {
        *lock(&self.count)
    }

    /// Wakes all threads that wait.
    pub(super) fn tell(&self) {
        *lock(&self.count) += 1;
        self.changed.notify_all();
    }

    /// Waits until there was a wake-up since `seen`, or the time has passed.
    pub(super) fn wait(&self, seen: u64, longest: Duration) {
        // A poisoned lock guards a number that is whole.
        let _ = self.changed.wait_timeout_while(lock(&self.count), longest, |count| *count == seen);
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.tell();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.tell();
    }
}
