//! The steps of a sample's way, as events: `docs/data-path.md` describes them, and a test compares them with a recording.
//!
//! Steps are recorded only on request. Without one, a step costs one load and a branch that is never taken.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod record;
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

/// Watchers: `RECORDING`, and the number of channel ends whose stages are measured.
static WATCHED: AtomicU32 = AtomicU32::new(0);
const RECORDING: u32 = 1 << 31;

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
