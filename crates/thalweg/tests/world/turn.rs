//! Scheduling of the tests. A test that measures, or counts for the whole machine, runs alone; tests that mostly wait
//! run beside each other without a limit; of all others twice as many as there are processors: they take a tenth of them.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Alone,
    Waiting,
    Beside,
}

impl Kind {
    /// Largest number of them at the same time.
    fn most(self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Waiting => usize::MAX,
            Self::Beside => 2 * std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// The running tests, all of one kind.
static RUNNING: Mutex<(Kind, usize)> = Mutex::new((Kind::Alone, 0));
static ENDED: Condvar = Condvar::new();

thread_local! {
    /// Turns that this thread's test has.
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

/// A test's turn, until it is dropped. It then prints its duration, for `./test`, which lists the longest.
#[must_use]
pub struct Turn {
    began: Option<Instant>,
}

/// Waits until no other test runs. A test that measures calls this first.
pub fn alone() -> Turn {
    assert_eq!(TAKEN.get(), 0, "a test that runs alone says so before it does anything else");
    take(Kind::Alone)
}

/// Waits until all running tests mostly wait. A test that mostly waits calls this first.
pub fn waiting() -> Turn {
    assert_eq!(TAKEN.get(), 0, "a test that mostly waits says so before it does anything else");
    take(Kind::Waiting)
}

/// Waits until only tests of no special kind run. Within a test that has a turn it does nothing.
pub fn beside() -> Turn {
    take(Kind::Beside)
}

fn take(kind: Kind) -> Turn {
    let first = TAKEN.replace(TAKEN.get() + 1) == 0;
    if first {
        enter(kind);
    }
    Turn { began: first.then(Instant::now) }
}

fn enter(kind: Kind) {
    let full = |(running, count): &mut (Kind, usize)| *count > 0 && (*running != kind || *count >= kind.most());
    let mut now = ENDED.wait_while(running(), full).unwrap_or_else(PoisonError::into_inner);
    *now = (kind, now.1 + 1);
}

fn running() -> MutexGuard<'static, (Kind, usize)> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.set(TAKEN.get().saturating_sub(1));
        if let Some(began) = self.began {
            println!("TOOK {:.1} s", began.elapsed().as_secs_f64());
            running().1 -= 1;
            ENDED.notify_all();
        }
    }
}
