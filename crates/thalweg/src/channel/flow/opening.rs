//! The wait for room in the window of a reliable flow, in a file of its own, so that `crates/models` compiles it alone.

use std::time::Duration;
use word::{AtomicBool, SeqCst, Word};

/// The waiting place of one publishing thread that needs room in the window for its batch; the thread that receives acknowledgements
/// wakes it. Model-checked with loom.
#[derive(Default)]
pub(super) struct Opening {
    /// Changed only by swaps, which have a single order. (Loom 0.7 lets a store come between the read and the write of a swap, and
    /// then reports a deadlock. A store is no cheaper: on x86 it is a swap.)
    waits: AtomicBool,
    opened: Word,
}

impl Opening {
    /// Sleeps until [`Opening::open`] is called, at most for the time that `closed` returns (`None`: there is room, and it does not
    /// sleep). `closed` is called after the waiter has announced itself: otherwise room made after that look would wake no thread.
    pub(super) fn wait(&self, closed: impl FnOnce() -> Option<Duration>) {
        let seen = self.opened.load();
        self.waits.swap(true, SeqCst); // before the last look
        if let Some(pause) = closed() {
            self.opened.wait(seen, pause);
        }
    }

    /// Wakes the waiting thread, after room was made.
    pub(super) fn open(&self) {
        if self.waits.swap(false, SeqCst) {
            self.opened.advance();
        }
    }
}

/// A word on whose change threads wait.
#[cfg(not(loom))]
mod word {
    use linux::futex::{self, Scope};
    use std::sync::atomic::AtomicU32;
    pub(super) use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::time::Duration;

    #[derive(Default)]
    pub(super) struct Word(AtomicU32);

    impl Word {
        pub(super) fn load(&self) -> u32 {
            self.0.load(SeqCst)
        }

        pub(super) fn wait(&self, seen: u32, pause: Duration) {
            futex::wait(&self.0, seen, Some(pause), Scope::Private);
        }

        pub(super) fn advance(&self) {
            self.0.fetch_add(1, SeqCst);
            futex::wake(&self.0, 1, Scope::Private);
        }
    }
}

/// The same in loom's memory, with a stand-in for the futex: compare and sleep in one step. It sleeps for good: were a wake-up lost,
/// loom would report a deadlock.
#[cfg(loom)]
mod word {
    use loom::sync::atomic::AtomicU32;
    pub use loom::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use loom::sync::{Condvar, Mutex};
    use std::time::Duration;

    pub struct Word(AtomicU32, Mutex<()>, Condvar);

    impl Default for Word {
        fn default() -> Self {
            Self(AtomicU32::new(0), Mutex::new(()), Condvar::new())
        }
    }

    impl Word {
        pub fn load(&self) -> u32 {
            self.0.load(SeqCst)
        }

        pub fn wait(&self, seen: u32, _pause: Duration) {
            let asleep = self.1.lock().unwrap();
            if self.0.load(SeqCst) == seen {
                drop(self.2.wait(asleep).unwrap());
            }
        }

        pub fn advance(&self) {
            self.0.fetch_add(1, SeqCst);
            let _asleep = self.1.lock().unwrap();
            self.2.notify_one();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::{Arc, Mutex};

    /// Two receipts make room, one after the other; a batch waits for each. A lock is around the window, as in a flow.
    #[test]
    fn each_receipt_that_opens_the_window_wakes_the_waiting_publisher() {
        loom::model(|| {
            let flow = Arc::new((Opening::default(), Mutex::new(0)));
            let publisher = {
                let flow = flow.clone();
                loom::thread::spawn(move || {
                    let (opening, room) = &*flow;
                    for needed in 1..=2 {
                        while *room.lock().unwrap() < needed {
                            opening.wait(|| (*room.lock().unwrap() < needed).then_some(Duration::ZERO));
                        }
                    }
                })
            };
            let (opening, room) = &*flow;
            for _ in 0..2 {
                *room.lock().unwrap() += 1;
                opening.open();
            }
            publisher.join().unwrap();
        });
    }
}
