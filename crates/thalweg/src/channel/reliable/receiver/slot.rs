//! The state of a message that was not delivered yet, and the time to ask for its missing parts.

use super::Held;
use crate::channel::reliable::{LONGEST_PAUSE_NS, RoundTrip};

/// The state of a message at or behind the next one.
#[derive(Debug)]
pub(super) enum Slot {
    Missing(Asking),
    /// Some fragments of this sample are in the reassembly.
    Part(u64, Asking),
    Whole(Held),
}

/// The number of requests for the same parts that follow each other at the pace of answers.
const QUICK: u32 = 6;

/// The time of the next request, and the number of requests so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asking {
    /// The time to ask for all missing parts.
    pub due: Option<u64>,
    /// The time to ask for new holes between fragments: they need not wait for the answer to others.
    pub holes_due: Option<u64>,
    /// Holes before this byte were asked for.
    pub upto: usize,
    /// The number of requests, and of those for all parts.
    pub asked: u32,
    times: u32,
    pub last: u64,
    /// `true` for a long message for which there was no room.
    pub crowded: bool,
}

impl Slot {
    pub(super) fn asking(&self) -> Option<Asking> {
        match self {
            Slot::Missing(asking) | Slot::Part(_, asking) => Some(*asking),
            Slot::Whole(_) => None,
        }
    }

    pub(super) fn set_asking(&mut self, to: Asking) {
        if let Slot::Missing(asking) | Slot::Part(_, asking) = self {
            *asking = to;
        }
    }

    /// The time of the next request.
    pub(super) fn due(&self) -> Option<u64> {
        let Asking { due, holes_due, .. } = self.asking()?;
        due.into_iter().chain(holes_due).min()
    }
}

impl Asking {
    /// For the first time then.
    pub(super) fn at(due: u64) -> Self {
        Self { due: Some(due), ..Self::default() }
    }

    /// Notes a request for `all` missing parts, or only for the new holes; holes end before `upto`. Parts that do not come are
    /// requested again, all together, when the last answer ought to be here.
    pub(super) fn again(self, now_ns: u64, pause: u64, all: bool, upto: usize) -> Self {
        let (due, holes_due, last) = (Some(now_ns + pause), None, now_ns);
        Self { due, holes_due, upto, asked: self.asked + 1, times: self.times + u32::from(all), last, ..self }
    }

    /// The longest wait for an answer. `quick`: a window bounds the answers, so that repeated losses of the same parts are no
    /// reason for fewer requests.
    pub(super) fn pause_ns(self, trip: RoundTrip, quick: bool) -> u64 {
        let times = if quick && self.times < QUICK { 0 } else { self.times.min(4) };
        trip.patience_ns().saturating_mul(1 << times).min(LONGEST_PAUSE_NS)
    }

    /// Postpones a request (`all`: for all parts, otherwise for new holes), because fragments are on their way.
    pub(super) fn later(self, all: bool) -> Self {
        Self { due: self.due.filter(|_| !all), holes_due: None, ..self }
    }
}
