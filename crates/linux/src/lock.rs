//! A mutex with priority inheritance: a waiter lends its priority to the holder (futex(2), FUTEX_LOCK_PI).
//!
//! The data path uses no other lock. An uncontended lock and unlock is one atomic exchange each, no system call.

use rustix::thread::futex::{self, Flags};
use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

thread_local! {
    /// This thread's id in the kernel; 0: not asked for yet, or the process was forked since.
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// This thread's id: the kernel compares it with the lock's word. Asking costs a system call, so the answer is kept; the child
/// of fork(2), whose only thread has another id, asks again.
#[inline]
fn this_thread() -> u32 {
    match THREAD.get() {
        0 => ask_for_this_thread(),
        known => known,
    }
}

#[cold]
#[allow(unsafe_code)]
fn ask_for_this_thread() -> u32 {
    static ONCE: Once = Once::new();
    extern "C" fn forked() {
        THREAD.set(0);
    }
    // SAFETY: the handler is a function for ever, and only writes a thread-local that needs no initialisation.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(forked)); // it fails without memory only: then a child keeps its parent's id
    });
    let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    THREAD.set(me);
    me
}

static WAITS: AtomicU64 = AtomicU64::new(0);

/// Number of waits for a [`PiMutex`] in this process so far. Tests count it: the steady state must have none.
pub fn waits() -> u64 {
    WAITS.load(Ordering::Relaxed)
}

/// A mutual exclusion lock with priority inheritance. Not re-entrant: locking it twice on one thread panics.
/// It is not poisoned by a panic of its holder.
#[derive(Default)]
pub struct PiMutex<T: ?Sized> {
    owner: AtomicU32, // 0, or the holder's thread id, with FUTEX_WAITERS set by the kernel
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and only one guard exists at a time.
#[allow(unsafe_code)]
unsafe impl<T: ?Sized + Send> Send for PiMutex<T> {}
// SAFETY: as above; `&PiMutex` gives `&mut T` to one thread at a time, so `T: Send` is enough.
#[allow(unsafe_code)]
unsafe impl<T: ?Sized + Send> Sync for PiMutex<T> {}

impl<T> PiMutex<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { owner: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> PiMutex<T> {
    /// Waits until the lock is free and takes it.
    ///
    /// # Panics
    /// If this thread holds the lock already, and on a kernel without priority-inheriting futexes: our own bugs.
    #[inline]
    pub fn lock(&self) -> PiGuard<'_, T> {
        let me = this_thread();
        if self.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait_for_it();
        }
        PiGuard { lock: self, not_send: std::marker::PhantomData }
    }

    #[cold]
    fn wait_for_it(&self) {
        WAITS.fetch_add(1, Ordering::Relaxed);
        loop {
            match futex::lock_pi(&self.owner, Flags::PRIVATE, None) {
                Ok(()) => return,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(e) => panic!("cannot take a priority-inheriting lock: {e}"),
            }
        }
    }

    /// Takes the lock if it is free. Never waits.
    #[inline]
    pub fn try_lock(&self) -> Option<PiGuard<'_, T>> {
        let me = this_thread();
        self.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(PiGuard { lock: self, not_send: std::marker::PhantomData })
    }

    /// The value, without locking: the exclusive borrow proves that no other thread can reach it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Access to the value of a locked [`PiMutex`]; unlocks when dropped, on the thread that locked.
pub struct PiGuard<'a, T: ?Sized> {
    lock: &'a PiMutex<T>,
    not_send: std::marker::PhantomData<*const ()>, // the kernel wants the owner itself to unlock
}

impl<T: ?Sized> Deref for PiGuard<'_, T> {
    type Target = T;
    #[allow(unsafe_code)]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, so there is no other reference to the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for PiGuard<'_, T> {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard itself is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for PiGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let me = this_thread();
        if self.lock.owner.compare_exchange(me, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            // A thread waits (FUTEX_WAITERS is set): the kernel hands the lock to the waiter of highest priority.
            let _ = futex::unlock_pi(&self.lock.owner, Flags::PRIVATE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn four_threads_count_without_losing_one() {
        let lock = Arc::new(PiMutex::new(0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let lock = lock.clone();
                std::thread::spawn(move || (0..20_000).for_each(|_| *lock.lock() += 1))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(*lock.lock(), 80_000);
    }

    /// The kernel compares the word of a lock with the id of the thread that locks or unlocks it.
    #[test]
    #[allow(unsafe_code)]
    fn the_child_of_a_fork_locks_by_its_own_id() {
        let lock = PiMutex::new(());
        drop(lock.lock());
        // SAFETY: the child makes only system calls and calls of the lock, and ends by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let held = lock.lock();
            let own = lock.owner.load(Ordering::Relaxed) == rustix::thread::gettid().as_raw_nonzero().get() as u32;
            drop(held);
            // SAFETY: it only ends the process.
            unsafe { libc::_exit(if own { 0 } else { 1 }) }
        }
        let mut status = -1;
        // SAFETY: `status` is a live integer.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0, "the child took its parent's id for its own");
    }

    #[test]
    fn a_held_lock_is_not_taken_by_try_lock() {
        let lock = Arc::new(PiMutex::new(1));
        let held = lock.lock();
        let other = lock.clone();
        assert!(std::thread::spawn(move || other.try_lock().is_none()).join().unwrap());
        drop(held);
        assert_eq!(lock.try_lock().map(|g| *g), Some(1));
    }

    #[test]
    #[should_panic(expected = "priority-inheriting")]
    fn locking_twice_on_one_thread_is_named() {
        let lock = PiMutex::new(());
        let _held = lock.lock();
        let _again = lock.lock();
    }
}
