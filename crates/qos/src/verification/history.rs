//! The verdicts of the looks at a channel, one by one, in fixed memory: a promise that was broken once is broken.

use super::{Judged, Verdict};
use crate::quantity::show_time;
use std::time::Duration;

/// The looks at a channel that gave a verdict.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Number of looks.
    pub looks: u64,
    /// The verdict of the last one, averages included.
    pub now: Verdict,
    /// Looks that found it at risk.
    pub at_risk: Looks,
    /// Looks that found it broken.
    pub broken: Looks,
    /// The first of the worst verdicts.
    worst: Judged,
}

/// Looks with the same verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// Number of looks.
    pub count: u64,
    /// End of the first one.
    pub first: Duration,
    /// End of the last one.
    pub last: Duration,
}

impl Looks {
    fn note(&mut self, now: Duration) {
        self.first = if self.count == 0 { now } else { self.first };
        self.last = now;
        self.count = self.count.saturating_add(1);
    }
}

impl History {
    /// Records the verdict of a look that ended at `now`.
    pub(super) fn note(&mut self, now: Duration, judged: &Judged) {
        self.looks = self.looks.saturating_add(1);
        self.now = judged.verdict;
        match judged.verdict {
            Verdict::AtRisk => self.at_risk.note(now),
            Verdict::Broken => self.broken.note(now),
            Verdict::Kept | Verdict::Unknown => return,
        }
        if judged.verdict.severity() > self.worst.verdict.severity() || self.worst.because.is_empty() {
            self.worst = judged.clone();
        }
    }

    /// The verdict on the sum, or the worst of the looks if that is worse, with its time and count.
    pub(super) fn temper(&self, whole: Judged) -> Judged {
        let found = self.at_risk.count > 0 || self.broken.count > 0;
        let worse = found && self.worst.verdict.severity() > whole.verdict.severity();
        let Judged { verdict, because } = if worse { self.worst.clone() } else { whole };
        let because = match self.when(verdict) {
            Some(when) => format!("{because}; {when}"),
            None => because,
        };
        Judged { verdict, because }
    }

    fn when(&self, verdict: Verdict) -> Option<String> {
        let Looks { count, first, last } = match verdict {
            Verdict::AtRisk => self.at_risk,
            Verdict::Broken => self.broken,
            Verdict::Kept | Verdict::Unknown => return None,
        };
        let at = |time: Duration| show_time((time.as_secs_f64() * 10.0).round() * 1e5);
        let looks = self.looks;
        match count {
            0 => None,
            _ if looks == 1 => None,
            1 => Some(format!("in 1 of {looks} looks, at {}", at(first))),
            n if n == looks => Some(format!("in all {n} looks")),
            n => Some(format!("in {n} of {looks} looks, from {} to {}", at(first), at(last))),
        }
    }
}
