//! A publishing thread that waits with a batch until the window opens, and who wakes it. Model-checked with loom.

use std::time::Duration;
use word::{AtomicBool, SeqCst, Word};

/// The waiting place of one thread that needs room in the window; the thread that hears of room wakes it.
#[derive(Default)]
pub(super) struct Opening {
    /// Changed by swaps alone, which are in one order. (Loom 0.7 lets a store come between what a swap reads and what it writes, and
    /// reports a deadlock. A store costs as much: on x86 it is a swap.)
    waits: AtomicBool,
    opened: Word,
}

impl Opening {
    /// Sleeps until [`Opening::open`] is called, for as long as `closed` says, unless it says that there is room. It is called when
    /// whoever makes room knows of the waiter: else room that comes after it looked would wake nobody.
    pub(super) fn wait(&self, closed: impl FnOnce() -> Option<Duration>) {
        let seen = self.opened.load();
        self.waits.swap(true, SeqCst); // before the last look
        if let Some(pause) = closed() {
            self.opened.wait(seen, pause);
        }
    }

    /// There is room: who waits is woken.
    pub(super) fn open(&self) {
        if self.waits.swap(false, SeqCst) {
            self.opened.advance();
        }
    }
}

/// A word of which threads wait that it changes.
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
