//! The selection of a rule (`scale`, `separation`), which the publisher here makes: the engine's publishers know of no such thing.

use qos::{Qos, Scale};
use std::time::{Duration, Instant};
use thalweg::proxy::Selection;

pub(super) struct Thin {
    selection: Selection,
    separation: Option<Duration>,
    number: u64,
    passed: Option<Instant>,
}

impl Thin {
    pub(super) fn of(qos: &Qos) -> Self {
        let selection = match qos.scale {
            Scale::Every(every) => Selection::rate(1, every.max(1)),
            Scale::Rate { p, q } => Selection::rate(p, q),
            Scale::Millihertz(_) => Ok(Selection::ALL), // `separation` says the same of a stream whose rate nobody states
        };
        Self { selection: selection.unwrap_or(Selection::ALL), separation: qos.separation, number: 0, passed: None }
    }

    pub(super) fn passes(&mut self, now: Instant) -> bool {
        self.number += 1;
        let far = self
            .separation
            .zip(self.passed)
            .is_none_or(|(least, passed)| now.saturating_duration_since(passed) >= least);
        let passes = far && self.selection.takes(self.number);
        if passes && self.separation.is_some() {
            self.passed = Some(now);
        }
        passes
    }
}
