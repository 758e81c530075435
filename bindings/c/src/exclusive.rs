//! A lock that knows its holder: a thread that would wait for itself gets an error.

use crate::failure::{Failure, Result};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that one thread uses at a time.
pub(crate) struct Exclusive<T> {
    value: Mutex<T>,
    holder: AtomicUsize,
}

/// The use of the value, by the thread that entered.
pub(crate) struct Entered<'a, T> {
    value: MutexGuard<'a, T>,
    holder: &'a AtomicUsize,
}

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), holder: AtomicUsize::new(0) }
    }

    /// Waits until no other thread uses the value.
    pub(crate) fn enter(&self, what: &str) -> Result<Entered<'_, T>> {
        // Only this thread sets its own number, so it reads it if and only if it holds the lock.
        if self.holder.load(Relaxed) == this_thread() {
            return Err(Failure::invalid(format!(
                "{what} is in use by this very thread: publish or drop its loan first, and don't call it from within its own callback"
            )));
        }
        // After a panic the value is as consistent as its own locks keep it.
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        self.holder.store(this_thread(), Relaxed);
        Ok(Entered { value, holder: &self.holder })
    }
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Entered<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        self.holder.store(0, Relaxed); // the lock is given up after this
    }
}

/// A number of the calling thread, which no other living thread has; not 0.
pub(crate) fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.try_with(|mark| std::ptr::from_ref(mark).addr()).unwrap_or(usize::MAX)
}
