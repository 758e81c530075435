//! A sender thread of one flow: while its channel has scheduling or processors of its own, every sample is handed over to
//! it, so that the channel's priority governs and not the publishing thread's.
//!
//! The thread waits on a word: [`WORK`] brings the send right along, [`LEAVE`] ends the thread. A right that it still has then
//! goes to the thread of the flow's class.

use crate::channel::flow::{Drained, Flow};
use linux::futex::{self, Scope};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Access to a flow's own sender thread.
pub(crate) struct Own {
    word: AtomicU32,
    tid: AtomicU32,
}

const WORK: u32 = 1;
const LEAVE: u32 = 2;
/// Time after which a full socket is looked at again even without an event: the thread may have to leave.
const FULL_PAUSE: Duration = Duration::from_millis(20);

impl Own {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU32::new(0), tid: AtomicU32::new(0) }
    }

    /// The id of its thread, once the thread has started.
    pub(crate) fn tid(&self) -> i32 {
        self.tid.load(Ordering::Relaxed) as i32
    }

    pub(super) fn started(&self, tid: i32) {
        self.tid.store(tid as u32, Ordering::Relaxed);
    }

    /// Gives the thread the flow's send right. Callers of this and of the end of the thread hold the flow's lock on it, so that
    /// no right comes after the end. The wake-up may follow without that lock.
    pub(crate) fn give(&self) {
        self.word.fetch_or(WORK, Ordering::Release);
    }

    pub(crate) fn leave(&self) {
        self.word.fetch_or(LEAVE, Ordering::Release);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        futex::wake(&self.word, 1, Scope::Private);
    }

    /// The thread's work.
    pub(super) fn run(&self, flow: &Arc<Flow>, stop: &AtomicBool) {
        let mut holds = false;
        loop {
            let word = self.word.fetch_and(!WORK, Ordering::AcqRel);
            holds |= word & WORK != 0;
            if stop.load(Ordering::Relaxed) {
                return;
            }
            if word & LEAVE != 0 {
                if holds {
                    flow.pass_on();
                }
                return;
            }
            if !holds {
                futex::wait(&self.word, 0, None, Scope::Private);
                continue;
            }
            match flow.drain() {
                Drained::Empty => holds = false,
                Drained::Blocked => flow.wait_room(FULL_PAUSE),
                Drained::Pause(pause) => {
                    if !pause.is_zero() {
                        futex::wait(&self.word, 0, Some(pause), Scope::Private);
                    }
                }
            }
        }
    }
}
