//! Verification: what was measured of live channels, compared with what their plan promised (F-4). Figures and time come as
//! arguments; the memory is that of the plan's channels, however long it goes on.
//!
//! | module | what it holds |
//! |---|---|
//! | [`agent`] | what to do about values that leave the contract (feature `placement`: it plans) |
//! | `find` | which live channel is which of the plan's |
//! | `judge` | kept, at risk, broken, or not to be known |
//! | `measured` | what a contract has to say to be as it was measured |
//! | `suspects` | links that all late channels cross, and no other |

#[cfg(feature = "placement")]
pub mod agent;
mod find;
mod judge;
mod measured;
mod suspects;

pub use find::{Found, Live, find};
pub use judge::{AT_RISK, Judged};
pub use measured::{Measured, measured};
pub use suspects::suspects;

use crate::plan::{Channel, Plan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How a channel keeps its promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// All of it, with room to spare.
    #[serde(rename = "kept")]
    Kept,
    /// All of it, but near the bound, or at another rate than planned.
    #[serde(rename = "at risk")]
    AtRisk,
    /// What was measured does not say.
    #[default]
    #[serde(rename = "unknown")]
    Unknown,
    /// Not all of it.
    #[serde(rename = "broken")]
    Broken,
}

impl Verdict {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Kept => "kept",
            Verdict::AtRisk => "at risk",
            Verdict::Unknown => "unknown",
            Verdict::Broken => "broken",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a plan promises of a channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Promise {
    /// The latest that a sample arrives, µs: the bound; where the model has none, the deadline.
    pub latest_us: Option<f64>,
    /// Samples per second.
    pub rate_hz: Option<f64>,
    /// So many may come at once.
    pub burst: f64,
    /// The part of samples that may be lost.
    pub loss: f64,
}

impl Promise {
    /// Of a channel of a plan.
    pub fn of(channel: &Channel) -> Self {
        Self {
            latest_us: channel.bound_us.or(channel.deadline_us),
            rate_hz: channel.rate_hz,
            burst: channel.burst.unwrap_or(1.0),
            loss: channel.loss.unwrap_or(0.0),
        }
    }
}

/// What was measured of a channel since it was looked at last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Samples that were delivered, by the channel's counters.
    pub received: u64,
    /// Samples that were lost on the way or dropped before it.
    pub lost: u64,
    /// Samples whose delay was measured.
    pub measured: u64,
    /// Of them: certainly later than promised.
    pub late: u64,
    /// Of them: after one that was published later.
    pub disordered: u64,
    /// The latest.
    pub worst: Option<Worst>,
    /// What a sample took at most.
    pub cost: Cost,
}

/// What one sample took at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Time to encode and send it, µs.
    pub send_us: f64,
    /// Time to decode it and call back, µs.
    pub receive_us: f64,
    /// Its bytes.
    pub bytes: u64,
}

impl Cost {
    /// The least of both, figure by figure.
    #[cfg(feature = "placement")]
    fn at_most(self, other: Self) -> Self {
        Self {
            send_us: self.send_us.min(other.send_us),
            receive_us: self.receive_us.min(other.receive_us),
            bytes: self.bytes.min(other.bytes),
        }
    }

    /// The most of both, figure by figure.
    fn at_least(self, other: Self) -> Self {
        Self {
            send_us: self.send_us.max(other.send_us),
            receive_us: self.receive_us.max(other.receive_us),
            bytes: self.bytes.max(other.bytes),
        }
    }
}

/// The latest sample of a channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    /// From `publish` to the end of the callback, µs.
    pub us: f64,
    /// How far that may be off, because two hosts' clocks are compared.
    pub uncertainty_us: f64,
    /// Where the time went, µs: `publish`, `queue`, `send`, `wire`, `receive`, `decode`, `callback`.
    pub stages_us: BTreeMap<String, f64>,
}

impl Worst {
    /// A sample that took so long, what the publisher's stages took at most, and what its own stages at the subscriber took. The
    /// rest was spent on the way: it lies between what is left and what is left where the publisher's stages took no time.
    pub fn new(us: f64, uncertainty_us: f64, sent: &BTreeMap<String, f64>, received: &BTreeMap<String, f64>) -> Self {
        let mut stages_us = BTreeMap::new();
        let mut left = us;
        for (stages, names) in [(received, &["receive", "decode", "callback"]), (sent, &["publish", "queue", "send"])] {
            for name in names {
                let took = stages.get(*name).copied().unwrap_or(0.0).clamp(0.0, left.max(0.0));
                left -= took;
                stages_us.insert((*name).to_owned(), took);
            }
        }
        stages_us.insert("wire".to_owned(), left.max(0.0));
        Self { us, uncertainty_us, stages_us }
    }

    /// The stage in which most of the time went.
    pub fn stage(&self) -> Option<&str> {
        let longest = self.stages_us.iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        longest.map(|(name, _)| name.as_str())
    }
}

/// Everything that was measured of a channel so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Total {
    /// Since this moment; `None`: it was not running yet.
    pub since: Option<Duration>,
    /// Until this one.
    pub until: Duration,
    /// The sums, and the latest sample of all.
    pub seen: Window,
}

impl Total {
    /// Samples per second; `None`: too short to say.
    pub fn rate_hz(&self) -> Option<f64> {
        let seconds = self.seconds();
        (seconds > 0.0).then(|| self.seen.received as f64 / seconds)
    }

    fn seconds(&self) -> f64 {
        self.since.map_or(0.0, |since| self.until.saturating_sub(since).as_secs_f64())
    }

    fn add(&mut self, now: Duration, window: &Window) {
        self.until = now;
        let Window { received, lost, measured, late, disordered, worst, cost } = &mut self.seen;
        *cost = cost.at_least(window.cost);
        *received = received.saturating_add(window.received);
        *lost = lost.saturating_add(window.lost);
        *measured = measured.saturating_add(window.measured);
        *late = late.saturating_add(window.late);
        *disordered = disordered.saturating_add(window.disordered);
        // By what is certain: a vague figure does not hide one that is known.
        let certain = |worst: &Option<Worst>| worst.as_ref().map_or(f64::MIN, |worst| worst.us - worst.uncertainty_us);
        if certain(&window.worst) > certain(worst) {
            worst.clone_from(&window.worst);
        }
    }
}

/// A channel that is verified.
#[derive(Clone, Debug, Default, PartialEq)]
struct Verified {
    promise: Promise,
    total: Total,
    now: Verdict,
}

/// The channels of a plan, and how they keep their promises.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verification(Vec<Verified>);

/// A channel's verdict is another than at the last look.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What it was.
    pub old: Verdict,
    /// What it is, by what was measured since the last look alone.
    pub new: Judged,
}

impl Verification {
    /// Of all channels of a plan, in its order.
    pub fn new(plan: &Plan) -> Self {
        let verified = |channel| Verified { promise: Promise::of(channel), ..Verified::default() };
        Self(plan.channels.iter().map(verified).collect())
    }

    /// What is promised of a channel.
    pub fn promise(&self, index: usize) -> Option<&Promise> {
        self.0.get(index).map(|one| &one.promise)
    }

    /// What was measured of a channel so far.
    pub fn total(&self, index: usize) -> Option<&Total> {
        self.0.get(index).map(|one| &one.total)
    }

    /// A channel was found running at `now`: what is measured counts from here.
    pub fn began(&mut self, index: usize, now: Duration) {
        if let Some(one) = self.0.get_mut(index) {
            one.total.since = one.total.since.or(Some(now));
            one.total.until = one.total.until.max(now);
        }
    }

    /// What was measured of a channel from the last look to `now`. Says if that changed its verdict.
    pub fn measured(&mut self, index: usize, now: Duration, window: &Window) -> Option<Change> {
        let Verified { promise, total, now: verdict } = self.0.get_mut(index)?;
        let since = total.since.map(|_| total.until);
        total.since = total.since.or(Some(now));
        total.add(now, window);
        let new = judge::judge(promise, &Total { since, until: now, seen: window.clone() });
        let old = std::mem::replace(verdict, new.verdict);
        (old != new.verdict).then_some(Change { old, new })
    }

    /// What all that was measured says of a channel.
    pub fn judged(&self, index: usize) -> Judged {
        self.0.get(index).map(|one| judge::judge(&one.promise, &one.total)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
