//! The steps of a sample's way, as events: `docs/data-path.md` describes them, and a test compares them with a recording.
//!
//! Steps are recorded only on request. Without one, a step costs one load and a branch that is never taken.

pub mod stages;

use std::sync::atomic::{AtomicU32, Ordering};

/// A step, named by its verb. The numbers are those of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// 1: the user publishes.
    Publish,
    /// 2: the value becomes bytes.
    Encode,
    /// 3: the message is put into the queue or the send buffer.
    Push,
    /// 4: the next message to send is taken from there.
    Next,
    /// 5: the frame's header is written.
    Emit,
    /// 6: the carrier takes the bytes.
    Send,
    /// 7: bytes came from the carrier.
    Receive,
    /// 8: a whole message is found in them.
    Parse,
    /// 9: the message is checked for being new.
    Accept,
    /// 10: it is handed to the port.
    Deliver,
    /// 11: bytes become a value.
    Decode,
    /// 12: the user's callback is called.
    Callback,
    /// 12: the user takes the sample.
    Take,
}

/// Records a step, if recording is on.
#[inline(always)]
pub(crate) fn step(step: Step) {
    if WATCHED.load(Ordering::Relaxed) != 0 {
        note(step);
    }
}

#[cold]
fn note(step: Step) {
    let watched = WATCHED.load(Ordering::Relaxed);
    if step == Step::Callback && watched != RECORDING {
        stages::begin_callback();
    }
    #[cfg(any(test, feature = "testing"))]
    if watched & RECORDING != 0 {
        record::note(step);
    }
}

/// `true` if the stages of any channel end are measured.
#[inline(always)]
pub(crate) fn is_measured() -> bool {
    WATCHED.load(Ordering::Relaxed) & !RECORDING != 0
}

/// Counts one more, or one fewer, channel end whose stages are measured.
pub(crate) fn measure(more: bool) {
    if more {
        WATCHED.fetch_add(1, Ordering::SeqCst);
    } else {
        WATCHED.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Watchers: `RECORDING`, and the number of channel ends whose stages are measured.
static WATCHED: AtomicU32 = AtomicU32::new(0);
const RECORDING: u32 = 1 << 31;

/// A recording of steps, for tests: the thread of each step, and the cost up to it.
#[cfg(any(test, feature = "testing"))]
pub(crate) mod record {
    use super::{RECORDING, Step, WATCHED};
    use std::sync::atomic::Ordering;
    use std::sync::{Mutex, PoisonError};

    /// One step that was taken.
    #[derive(Clone, Debug)]
    pub struct Taken {
        /// The step.
        pub step: Step,
        /// Name of the thread that took it; empty for one without a name.
        pub thread: String,
        /// The value of the probe when the step began.
        pub probe: u64,
    }

    struct Record {
        taken: Vec<Taken>,
        probe: fn() -> u64,
    }

    static RECORD: Mutex<Record> = Mutex::new(Record { taken: Vec::new(), probe: || 0 });

    /// Records the next `most` steps of this process; `probe` is called at each, on its thread (a count of allocations, say;
    /// the recorder's own allocation for a thread's name comes after it).
    pub fn start(most: usize, probe: fn() -> u64) {
        *RECORD.lock().unwrap_or_else(PoisonError::into_inner) = Record { taken: Vec::with_capacity(most), probe };
        WATCHED.fetch_or(RECORDING, Ordering::SeqCst);
    }

    /// Ends the recording and returns its steps, in order.
    pub fn stop() -> Vec<Taken> {
        WATCHED.fetch_and(!RECORDING, Ordering::SeqCst);
        std::mem::take(&mut RECORD.lock().unwrap_or_else(PoisonError::into_inner).taken)
    }

    pub(super) fn note(step: Step) {
        let mut record = RECORD.lock().unwrap_or_else(PoisonError::into_inner);
        let probe = (record.probe)();
        if record.taken.len() < record.taken.capacity() {
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            record.taken.push(Taken { step, thread, probe });
        }
    }
}
