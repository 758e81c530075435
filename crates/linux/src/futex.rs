//! Waiting on a 32-bit word, and waking the waiters (futex(2)).

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sharing of the word: within one process, or in memory shared by several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One process: the kernel needs no look-up of the memory object.
    Private,
    /// Shared memory.
    Shared,
}

impl Scope {
    fn flags(self) -> Flags {
        match self {
            Scope::Private => Flags::PRIVATE,
            Scope::Shared => Flags::empty(),
        }
    }
}

/// Waits while `*word == expected`, at most `timeout`. Returns `false` only when the time ran out;
/// a wake-up may be spurious, so callers look at the word again.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>, scope: Scope) -> bool {
    let timeout = timeout.map(timespec);
    !matches!(futex::wait(word, scope.flags(), expected, timeout.as_ref()), Err(Errno::TIMEDOUT))
}

/// As [`wait`], woken only by [`wake_bits`] calls that share a bit with `bits`.
pub fn wait_bits(word: &AtomicU32, expected: u32, timeout: Option<Duration>, bits: NonZeroU32, scope: Scope) -> bool {
    // FUTEX_WAIT_BITSET takes an absolute monotonic time.
    let until = timeout.map(|t| timespec(Duration::from_nanos(crate::clock::monotonic_ns()) + t));
    !matches!(futex::wait_bitset(word, scope.flags(), expected, until.as_ref(), bits), Err(Errno::TIMEDOUT))
}

/// Wakes up to `count` waiters; returns how many were woken.
pub fn wake(word: &AtomicU32, count: u32, scope: Scope) -> usize {
    futex::wake(word, scope.flags(), count).unwrap_or(0)
}

/// Wakes all waiters that share a bit with `bits`; returns how many were woken.
pub fn wake_bits(word: &AtomicU32, bits: NonZeroU32, scope: Scope) -> usize {
    futex::wake_bitset(word, scope.flags(), i32::MAX as u32, bits).unwrap_or(0)
}

fn timespec(d: Duration) -> Timespec {
    Timespec { tv_sec: d.as_secs() as i64, tv_nsec: d.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_wait_on_an_unchanged_word_times_out() {
        let word = AtomicU32::new(1);
        assert!(!wait(&word, 1, Some(Duration::from_millis(1)), Scope::Private));
        assert!(wait(&word, 0, Some(Duration::from_secs(60)), Scope::Private), "a changed word does not wait");
    }

    #[test]
    fn only_the_matching_bits_are_woken() {
        let word = Arc::new(AtomicU32::new(0));
        let bit = NonZeroU32::new(2).unwrap();
        let waiter = {
            let word = word.clone();
            std::thread::spawn(move || {
                while word.load(Ordering::Acquire) == 0 {
                    wait_bits(&word, 0, None, bit, Scope::Private);
                }
            })
        };
        assert_eq!(wake_bits(&word, NonZeroU32::new(1).unwrap(), Scope::Private), 0);
        word.store(1, Ordering::Release);
        while !waiter.is_finished() {
            wake_bits(&word, bit, Scope::Private);
            std::thread::yield_now();
        }
    }
}
