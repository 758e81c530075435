//! Samples that wait in a port's mailbox while they are measured: to be taken, or for the thread that runs the callbacks of
//! carrier `local`.

use super::{Stage, Stages, callback_begun};
use crate::trace;
use linux::clock::monotonic_ns;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// Where the stages of the sample are noted that this thread delivers now, if they are.
    static DELIVERED: RefCell<Option<Arc<Stages>>> = const { RefCell::new(None) };
}

/// Calls what delivers a sample that is measured.
#[cold]
pub(crate) fn delivering<T>(stages: &Arc<Stages>, deliver: impl FnOnce() -> T) -> T {
    DELIVERED.set(Some(stages.clone()));
    let done = deliver();
    DELIVERED.take(); // it may have waited nowhere
    done
}

/// A measured sample's stay in a mailbox.
pub(crate) struct Stay {
    stages: Arc<Stages>,
    /// Since when: in the mailbox, then out of it.
    since: u64,
}

impl Stay {
    /// The sample that this thread delivers begins to wait, if it is measured.
    #[inline]
    pub fn begin() -> Option<Self> {
        if trace::is_measured() { Self::of_delivered() } else { None }
    }

    #[cold]
    fn of_delivered() -> Option<Self> {
        let stages = DELIVERED.take()?;
        Some(Self { stages, since: monotonic_ns() })
    }

    /// It is taken.
    pub fn end(self) -> Self {
        let now = monotonic_ns();
        self.stages.note(now, &[(Stage::Mailbox, now.saturating_sub(self.since))]);
        Self { since: now, ..self }
    }

    /// It was published at `source` within this process, and its callback has returned.
    pub fn called(self, source: u64) {
        note_called(&self.stages, self.since, source, &[]);
    }
}

/// Notes the stages of a callback within the publisher's process that was to be called at `since` and has returned, and
/// those before it.
#[cold]
pub(crate) fn note_called(stages: &Stages, since: u64, source: u64, before: &[(Stage, u64)]) {
    let end = monotonic_ns();
    let begun = callback_begun(since).unwrap_or(end);
    let took = [
        (Stage::Decode, begun.saturating_sub(since)),
        (Stage::Callback, end.saturating_sub(begun)),
        (Stage::Total, end.saturating_sub(source)),
    ];
    stages.note(end, before);
    stages.note(end, &took);
}
