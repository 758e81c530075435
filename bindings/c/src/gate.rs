//! User data of callbacks: one call at a time uses them, and none after closing.

use crate::exclusive::this_thread;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that calls use until the gate is closed; it is dropped then.
pub(crate) struct Gate<T> {
    inside: Mutex<Option<T>>,
    /// The thread that runs a call; 0: none does.
    running: AtomicUsize,
    closed: AtomicBool,
}

impl<T> Gate<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { inside: Mutex::new(Some(value)), running: AtomicUsize::new(0), closed: AtomicBool::new(false) }
    }

    /// Runs a call with the value, unless the gate is closed.
    pub(crate) fn run(&self, call: impl FnOnce(&mut T)) {
        let mut inside = self.lock();
        if let Some(value) = inside.as_mut().filter(|_| !self.closed.load(SeqCst)) {
            self.running.store(this_thread(), Relaxed);
            call(value);
            self.running.store(0, Relaxed);
        }
        if self.closed.load(SeqCst) {
            inside.take(); // the call itself closed the gate
        }
    }

    /// Closes the gate. No call runs after it, but the one that calls it: that ends first, and drops the value.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        if self.running.load(Relaxed) != this_thread() {
            drop(self.lock().take());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
