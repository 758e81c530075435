//! Samples that wait in a port's mailbox while they are measured: to be taken, or for the thread that runs the callbacks of
//! carrier `local`.

use super::{Arrived, Stage, Stages, callback_begun};
use crate::trace;
use linux::clock::monotonic_ns;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// The stages of the sample that this thread delivers now, if they are noted.
    static DELIVERED: RefCell<Option<Arc<Stages>>> = const { RefCell::new(None) };
}

/// Calls `deliver` for a measured sample; `true` if it waits in a mailbox now.
#[cold]
pub(crate) fn delivering(stages: &Arc<Stages>, deliver: impl FnOnce()) -> bool {
    DELIVERED.set(Some(stages.clone()));
    deliver();
    DELIVERED.take().is_none()
}

/// A measured sample's stay in a mailbox.
pub(crate) struct Stay {
    stages: Arc<Stages>,
    /// Start of its stay: in the mailbox, then out of it.
    since: u64,
    /// Time spent in the mailbox.
    waited: u64,
}

impl Stay {
    /// The sample that this thread delivers begins to wait, if it is measured.
    #[inline]
    pub(crate) fn begin() -> Option<Self> {
        if trace::is_measured() { Self::of_delivered() } else { None }
    }

    #[cold]
    fn of_delivered() -> Option<Self> {
        let stages = DELIVERED.take()?;
        Some(Self { stages, since: monotonic_ns(), waited: 0 })
    }

    /// Records that it left the mailbox.
    pub(crate) fn end(self) -> Self {
        let now = monotonic_ns();
        Self { since: now, waited: now.saturating_sub(self.since), ..self }
    }

    /// Records that it was taken.
    pub(crate) fn taken(self) {
        self.stages.note(self.since, &[(Stage::Mailbox, self.waited)]);
    }

    /// Records that it was published within this process, and its callback has returned.
    pub(crate) fn called(self, sample: Published, size: usize) {
        note_called(&self.stages, self.since, sample, size, (Stage::Mailbox, self.waited));
    }
}

/// A sample as its publisher numbered and stamped it.
#[derive(Clone, Copy)]
pub(crate) struct Published {
    pub seq: u64,
    pub at_ns: u64,
}

/// Notes the stages of a callback within the publisher's process that was to be called at `since` and has returned, and
/// the one before it.
#[cold]
pub(crate) fn note_called(stages: &Stages, since: u64, sample: Published, size: usize, before: (Stage, u64)) {
    let end = monotonic_ns();
    let begun = callback_begun(since).unwrap_or(end);
    let took = [
        before,
        (Stage::Decode, begun.saturating_sub(since)),
        (Stage::Callback, end.saturating_sub(begun)),
        (Stage::Total, end.saturating_sub(sample.at_ns)),
    ];
    let arrived = Arrived { seq: sample.seq, size, published_ns: sample.at_ns, done_ns: end };
    stages.note_arrived(&took, &arrived);
}
