//! Verification: measurements of live channels against the promises of their plan (F-4). Figures and time come as arguments.
//! Memory is bounded by the plan's channels, for a run of any length.
//!
//! | module | contents |
//! |---|---|
//! | [`agent`] | decisions about values that leave the contract (feature `placement`: it plans) |
//! | `chain` | chains over several topics, by their parts |
//! | `find` | the live channel of each planned one; links that all late channels cross, and no other |
//! | `judge` | the verdict: kept, at risk, broken, or unknown; those of the looks, one by one |
//! | `measured` | changes that make a contract agree with the measurements |

#[cfg(feature = "placement")]
pub mod agent;
mod chain;
mod find;
mod judge;
mod measured;

pub use chain::ChainFound;
pub use find::{Found, Leg, Live, Over, Route, find, is_subscriber, suspects};
pub use judge::{AT_RISK, History, Judged, Looks};
pub use measured::{Measured, measured};

use crate::plan::{Channel, Plan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The verdict on a channel's promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// All of it, with room to spare.
    #[serde(rename = "kept")]
    Kept,
    /// All of it, but near the bound, or at another rate than planned.
    #[serde(rename = "at risk")]
    AtRisk,
    /// The measurements do not tell.
    #[default]
    #[serde(rename = "unknown")]
    Unknown,
    /// A part of the promise is not kept.
    #[serde(rename = "broken")]
    Broken,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Kept, Self::AtRisk, Self::Unknown, Self::Broken];

    /// The order of verdicts, from the one that needs no action.
    const fn severity(self) -> u8 {
        match self {
            Verdict::Kept => 0,
            Verdict::AtRisk => 1,
            Verdict::Unknown => 2,
            Verdict::Broken => 3,
        }
    }

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

/// A plan's promise for a channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Promise {
    /// The latest arrival of a sample, µs: the bound, or the deadline in a model without one.
    pub latest_us: Option<f64>,
    /// Samples per second.
    pub rate_hz: Option<f64>,
    /// Samples that may come at once.
    pub burst: f64,
    /// The part of samples that may be lost.
    pub loss: f64,
    /// The latest time at which the relay between sends a sample on, µs, if one is planned and has a bound.
    pub proxied_us: Option<f64>,
    /// The place of its own queue, if it has one: what its publisher sends beyond the contract is dropped there.
    pub own_queue: Option<String>,
}

impl Promise {
    /// The promise for a channel of a plan.
    pub fn of(channel: &Channel) -> Self {
        Self {
            latest_us: channel.bound_us.or(channel.deadline_us),
            rate_hz: channel.rate_hz,
            burst: channel.burst.unwrap_or(1.0),
            loss: channel.loss.filter(|part| (0.0..=1.0).contains(part)).unwrap_or(0.0),
            proxied_us: channel.proxied_us,
            own_queue: channel.own_queue.as_ref().map(|own| format!("link {} at {}", own.link, channel.publisher)),
        }
    }
}

/// Measurements of a channel since the last look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Uncertainty of its length: asking for the counters takes time, at either end of it.
    pub off: Duration,
    /// Samples that were delivered, by the channel's counters.
    pub received: u64,
    /// Samples that were lost on the way or dropped before it.
    pub lost: u64,
    /// Samples whose delay was measured.
    pub measured: u64,
    /// Samples that were certainly later than promised.
    pub late: u64,
    /// Samples that came after one that was published later.
    pub disordered: u64,
    /// The latest.
    pub worst: Option<Worst>,
    /// The largest cost of a sample.
    pub cost: Cost,
    /// Samples that left the relay between, certainly later than planned.
    pub late_at_relay: u64,
    /// The path, if it differs from the planned one.
    pub strays: Option<String>,
    /// Packets that the kernel dropped in the channel's own queue; `None`: it was not read.
    pub own_queue: Option<u64>,
}

/// The cost of one sample.
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
    /// Uncertainty from comparing two hosts' clocks.
    pub uncertainty_us: f64,
    /// Times of the stages, µs: `publish`, `queue`, `send`, `wire`, `receive`, `decode`, `callback`; over a relay `wire to relay`,
    /// `relay` and `wire from relay` instead of `wire`; within a process `publish`, `mailbox`, `decode` and `callback`, those there are.
    pub stages_us: BTreeMap<String, f64>,
}

/// Stages of a publisher, and of a subscriber.
const SENT: [&str; 3] = ["publish", "queue", "send"];
const RECEIVED: [&str; 3] = ["receive", "decode", "callback"];

impl Worst {
    /// A sample with this delay, the longest times of the publisher's stages, and the times of its own stages at the subscriber.
    /// The rest was spent on the path. The publisher's stages may have taken less, and the path as much more.
    pub fn new(us: f64, uncertainty_us: f64, sent: &BTreeMap<String, f64>, received: &BTreeMap<String, f64>) -> Self {
        let of = |stages: &BTreeMap<String, f64>, name: &str| stages.get(name).copied().unwrap_or(0.0);
        let ends = RECEIVED.map(|name| (name, of(received, name))).into_iter();
        Self::made_of(us, uncertainty_us, ends.chain(SENT.map(|name| (name, of(sent, name)))), "wire")
    }

    /// The same within a process: `publish`, which hands the sample over, took all that was not spent waiting or at the subscriber.
    pub fn within_process(us: f64, stages: &BTreeMap<String, f64>) -> Self {
        let took = ["mailbox", "decode", "callback"].map(|name| (name, stages.get(name)));
        let took = took.into_iter().filter_map(|(name, us)| Some((name, *us?)));
        Self::made_of(us, 0.0, took, "publish")
    }

    /// The same for a sample over a relay: `fed` is the latest sample that the relay got, which then waited there for this time.
    pub fn over_relay(
        us: f64,
        uncertainty_us: f64,
        fed: &Self,
        waited_us: f64,
        received: &BTreeMap<String, f64>,
    ) -> Self {
        let of = |stages: &BTreeMap<String, f64>, name: &str| stages.get(name).copied().unwrap_or(0.0);
        let at_relay = RECEIVED.map(|name| of(&fed.stages_us, name)).iter().sum::<f64>() + waited_us;
        let ends = RECEIVED.map(|name| (name, of(received, name))).into_iter();
        let before = SENT.map(|name| (name, of(&fed.stages_us, name)));
        let between = [("wire to relay", of(&fed.stages_us, "wire")), ("relay", at_relay)];
        Self::made_of(us, uncertainty_us, ends.chain(before).chain(between), "wire from relay")
    }

    /// No stage takes more than the remaining time, and `rest` takes all of it.
    fn made_of(us: f64, uncertainty_us: f64, stages: impl Iterator<Item = (&'static str, f64)>, rest: &str) -> Self {
        let (mut stages_us, mut left) = (BTreeMap::new(), us);
        for (name, took) in stages {
            let took = took.clamp(0.0, left.max(0.0));
            left -= took;
            stages_us.insert(name.to_owned(), took);
        }
        stages_us.insert(rest.to_owned(), left.max(0.0));
        Self { us, uncertainty_us, stages_us }
    }

    /// The stage in which most of the time went.
    pub fn stage(&self) -> Option<&str> {
        let longest = self.stages_us.iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        longest.map(|(name, _)| name.as_str())
    }
}

/// Everything that was measured of a channel in a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Total {
    /// Since this moment; `None`: it was not running yet.
    pub since: Option<Duration>,
    /// Until this one.
    pub until: Duration,
    /// The sums, and the latest sample of all.
    pub seen: Window,
    /// Time of the latest sample.
    pub worst_at: Duration,
}

impl Total {
    /// Samples per second; `None`: too short to say.
    pub fn rate_hz(&self) -> Option<f64> {
        let seconds = self.seconds();
        (seconds > 0.0).then(|| self.seen.received as f64 / seconds)
    }

    /// An empty total that begins at this moment.
    fn from(since: Duration) -> Self {
        Self { since: Some(since), until: since, ..Self::default() }
    }

    fn seconds(&self) -> f64 {
        self.since.map_or(0.0, |since| self.until.saturating_sub(since).as_secs_f64())
    }

    fn add(&mut self, now: Duration, window: &Window) {
        self.since = self.since.or(Some(now));
        self.until = now;
        let Window { off, received, lost, measured, late, disordered, worst, cost, late_at_relay, strays, own_queue } =
            &mut self.seen;
        *off = (*off).max(window.off);
        *cost = cost.at_least(window.cost);
        *received = received.saturating_add(window.received);
        *lost = lost.saturating_add(window.lost);
        *measured = measured.saturating_add(window.measured);
        *late = late.saturating_add(window.late);
        *disordered = disordered.saturating_add(window.disordered);
        *late_at_relay = late_at_relay.saturating_add(window.late_at_relay);
        *own_queue = match (*own_queue, window.own_queue) {
            (Some(before), Some(more)) => Some(before.saturating_add(more)),
            (before, more) => before.or(more),
        };
        *strays = window.strays.clone().or(strays.take());
        // By certain figures: a vague one does not hide a known one.
        let certain = |worst: &Option<Worst>| worst.as_ref().map_or(f64::MIN, |worst| worst.us - worst.uncertainty_us);
        if certain(&window.worst) > certain(worst) {
            worst.clone_from(&window.worst);
            self.worst_at = now;
        }
    }
}

/// A channel that is verified.
#[derive(Clone, Debug, Default, PartialEq)]
struct Verified {
    promise: Promise,
    total: Total,
    /// Since the last look with a verdict.
    open: Total,
    history: History,
}

/// The channels of a plan, and their verdicts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verification(Vec<Verified>);

/// A channel's verdict is another than at the last look.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The verdict before.
    pub old: Verdict,
    /// The verdict now, by the measurements since the last look alone.
    pub new: Judged,
}

impl Verification {
    /// The verification of all channels of a plan, in its order.
    pub fn new(plan: &Plan) -> Self {
        let verified = |channel| Verified { promise: Promise::of(channel), ..Verified::default() };
        Self(plan.channels.iter().map(verified).collect())
    }

    /// The promise for a channel.
    pub fn promise(&self, index: usize) -> Option<&Promise> {
        self.0.get(index).map(|one| &one.promise)
    }

    /// All measurements of a channel so far.
    pub fn total(&self, index: usize) -> Option<&Total> {
        self.0.get(index).map(|one| &one.total)
    }

    /// The verdicts of the looks at a channel.
    pub fn history(&self, index: usize) -> Option<&History> {
        self.0.get(index).map(|one| &one.history)
    }

    /// Marks a channel as found running at `now`: its measurements begin here.
    pub fn began(&mut self, index: usize, now: Duration) {
        if let Some(one) = self.0.get_mut(index) {
            one.total.since = one.total.since.or(Some(now));
            one.total.until = one.total.until.max(now);
            one.open = Total::from(now);
        }
    }

    /// Adds the measurements of a channel from the last look to `now`. Gives the change of its verdict, if there is one. A look without
    /// samples is judged together with the next one, unless some were due.
    pub fn measured(&mut self, index: usize, now: Duration, window: &Window) -> Option<Change> {
        let Verified { promise, total, open, history } = self.0.get_mut(index)?;
        total.add(now, window);
        open.add(now, window);
        if judge::says_nothing(promise, open) {
            return None;
        }
        let look = judge::judge(promise, &std::mem::replace(open, Total::from(now)), total);
        let old = history.now;
        history.note(now, &look);
        let new = look.and(judge::on_average(promise, total));
        history.now = new.verdict;
        (old != new.verdict).then_some(Change { old, new })
    }

    /// The verdict on all measurements of a channel: no better than the worst of its looks, because sums forget. It
    /// includes the time and the count of the worst. An average is over the whole time.
    pub fn judged(&self, index: usize) -> Judged {
        let judged = |Verified { promise, total, history, .. }: &Verified| {
            history.temper(judge::judge(promise, total, total)).and(judge::on_average(promise, total))
        };
        self.0.get(index).map(judged).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
