//! What is known of a message that was not delivered yet, and when what is missing of it is asked for.

use super::Held;
use crate::channel::reliable::{LONGEST_PAUSE_NS, RoundTrip};

/// A message from the one that is due on.
#[derive(Debug)]
pub enum Slot {
    Missing(Asking),
    /// Some fragments of this sample are in the reassembly.
    Part(u64, Asking),
    Whole(Held),
}

/// Askings of the same that follow each other as fast as answers may come.
const QUICK: u32 = 6;

/// When something is asked for, and how often it was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asking {
    /// When all that is missing is asked for.
    pub due: Option<u64>,
    /// When holes between fragments are asked for that were not asked for yet: they need not wait for the answer to others.
    pub holes_due: Option<u64>,
    /// Holes before this byte were asked for.
    pub upto: usize,
    /// How often something was asked for, and how often all.
    pub asked: u32,
    times: u32,
    pub last: u64,
    /// Of a long message, for which there was no room.
    pub crowded: bool,
}

impl Slot {
    pub fn asking(&self) -> Option<Asking> {
        match self {
            Slot::Missing(asking) | Slot::Part(_, asking) => Some(*asking),
            Slot::Whole(_) => None,
        }
    }

    pub fn set_asking(&mut self, to: Asking) {
        if let Slot::Missing(asking) | Slot::Part(_, asking) = self {
            *asking = to;
        }
    }

    /// When something is to be asked for.
    pub fn due(&self) -> Option<u64> {
        let Asking { due, holes_due, .. } = self.asking()?;
        due.into_iter().chain(holes_due).min()
    }
}

impl Asking {
    /// For the first time then.
    pub fn at(due: u64) -> Self {
        Self { due: Some(due), ..Self::default() }
    }

    /// It was asked for `all` that is missing, or for the holes only that are new; holes end before `upto`. What does not come
    /// is asked for again, all together, when the last answer ought to be here.
    pub fn again(self, now_ns: u64, pause: u64, all: bool, upto: usize) -> Self {
        let (due, holes_due, last) = (Some(now_ns + pause), None, now_ns);
        Self { due, holes_due, upto, asked: self.asked + 1, times: self.times + u32::from(all), last, ..self }
    }

    /// How long an answer is waited for. `quick`: a window bounds the answers, so that several losses of the same are no reason to
    /// ask less often.
    pub fn pause_ns(self, trip: RoundTrip, quick: bool) -> u64 {
        let times = if quick && self.times < QUICK { 0 } else { self.times.min(4) };
        trip.patience_ns().saturating_mul(1 << times).min(LONGEST_PAUSE_NS)
    }

    /// There was nothing to ask for, of all or of the holes that are new: fragments are on their way.
    pub fn later(self, all: bool) -> Self {
        Self { due: self.due.filter(|_| !all), holes_due: None, ..self }
    }
}
