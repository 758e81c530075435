//! Verdicts: kept, at risk, broken, or not to be known; and the verdicts of the looks at a channel, one by one, in fixed memory.

use super::{Promise, Total, Verdict, Window, Worst};
use crate::quantity::{show_share, show_time};
use std::cmp::Ordering;
use std::time::Duration;

/// Part of its bound from which on a delay is at risk.
pub const AT_RISK: f64 = 0.9;
/// A rate may be off by such a part of it, as clocks and looks are.
const RATE_TOLERANCE: f64 = 0.05;
/// Losses that are as unlikely as this by the plan break it.
const SURPRISE: f64 = 1e-4;
/// Samples by which a rate may also be off: they are on their way when the counters are read.
const ON_THEIR_WAY: f64 = 2.0;

/// A verdict with its reasons.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason; empty if all is kept.
    pub because: String,
}

/// Judges the measurements of a part of the whole time, or of all of it: the worst verdict on delay, loss, order, rate,
/// route and own queue, with its reasons. What is dropped in that is a reason beside a worse verdict, too. Promises on average are judged over the whole
/// time only: [`on_average`].
pub(super) fn judge(promise: &Promise, part: &Total, whole: &Total) -> Judged {
    let (seen, all) = (&part.seen, &whole.seen);
    let parts = [delay(promise, seen, all), loss(promise, seen), order(seen), rate(promise, part), route(seen)];
    let own = own_queue(promise, seen);
    let verdicts = parts.iter().chain([&own]).map(|(verdict, _)| *verdict);
    let verdict = verdicts.max_by_key(|v| v.severity()).unwrap_or_default();
    let reasons = parts.into_iter().filter(|(one, _)| *one == verdict).map(|(_, because)| because);
    let reasons = reasons.chain(Some(own.1));
    let because = reasons.filter(|because| !because.is_empty()).collect::<Vec<_>>().join("; ");
    Judged { verdict, because }
}

/// Judges the promised mean loss over all measurements. With few samples there is no verdict. Unlike that of a look, the verdict is
/// not final: a mean that was too high at first may be kept in the end.
pub(super) fn on_average(promise: &Promise, whole: &Total) -> Judged {
    let Window { received, lost, .. } = whole.seen;
    let sent = received.saturating_add(lost);
    if promise.loss <= 0.0 || chance_of(lost as f64, sent as f64, promise.loss) > SURPRISE {
        return Judged { verdict: Verdict::Kept, because: String::new() };
    }
    let planned = show_share(promise.loss);
    Judged { verdict: Verdict::Broken, because: format!("{lost} of {sent} samples lost, {planned} are planned") }
}

/// Upper bound on the probability that at least `lost` of `sent` samples are lost at a mean loss of `part` (Hoeffding 1963, theorem 1).
fn chance_of(lost: f64, sent: f64, part: f64) -> f64 {
    if lost <= part * sent {
        return 1.0;
    }
    let seen = lost / sent;
    let rest = if seen < 1.0 { (1.0 - seen) * ((1.0 - seen) / (1.0 - part)).ln() } else { 0.0 };
    (-sent * (seen * (seen / part).ln() + rest)).exp()
}

impl Judged {
    /// The worse of two; both reasons if they are equally bad.
    pub(super) fn and(self, other: Self) -> Self {
        match self.verdict.severity().cmp(&other.verdict.severity()) {
            Ordering::Greater => self,
            Ordering::Less => other,
            Ordering::Equal => {
                let reasons = [self.because, other.because].into_iter().filter(|because| !because.is_empty());
                Self { verdict: self.verdict, because: reasons.collect::<Vec<_>>().join("; ") }
            }
        }
    }
}

/// `true` if no sample came, and none had to by the planned rate.
pub(super) fn says_nothing(promise: &Promise, total: &Total) -> bool {
    let Window { received, lost, measured, .. } = total.seen;
    received == 0 && lost == 0 && measured == 0 && promise.rate_hz.is_some() && rate(promise, total) == kept()
}

type Part = (Verdict, String);

fn kept() -> Part {
    (Verdict::Kept, String::new())
}

fn delay(promise: &Promise, seen: &Window, all: &Window) -> Part {
    let Some(latest) = promise.latest_us else {
        return (Verdict::Unknown, "the plan has neither bound nor deadline for it".to_owned());
    };
    let Some(worst) = &seen.worst else {
        return match seen.received {
            0 if all.measured > 0 => kept(), // missing samples are a matter of the rate
            0 => (Verdict::Unknown, "no sample came".to_owned()),
            _ => (Verdict::Unknown, "no sample's delay was measured".to_owned()),
        };
    };
    let (least, most) = (worst.us - worst.uncertainty_us, worst.us + worst.uncertainty_us);
    let says = || {
        format!("{} of {} promised{}{}", show_time(worst.us.max(0.0)), show_time(latest), stage(worst), clocks(worst))
    };
    if least > latest {
        let late = if seen.late > 1 { format!(", {} samples late", seen.late) } else { String::new() };
        (Verdict::Broken, format!("{}{late}", says()))
    } else if most < AT_RISK * latest {
        kept()
    } else if least < AT_RISK * latest && most > latest {
        (Verdict::Unknown, says())
    } else {
        (Verdict::AtRisk, says())
    }
}

fn stage(worst: &Worst) -> String {
    worst.stage().map(|stage| format!(", most of it in {stage}")).unwrap_or_default()
}

fn clocks(worst: &Worst) -> String {
    match worst.uncertainty_us {
        us if us > 0.0 => format!(", clocks compared to ± {}", show_time(us)),
        _ => String::new(),
    }
}

/// Loss. Where a plan expects none, each one is too many.
fn loss(promise: &Promise, seen: &Window) -> Part {
    let Window { received, lost, .. } = *seen;
    if lost == 0 || promise.loss > 0.0 {
        return kept();
    }
    (Verdict::Broken, format!("{lost} of {} samples lost", received.saturating_add(lost)))
}

fn order(seen: &Window) -> Part {
    match seen.disordered {
        0 => kept(),
        n => (Verdict::Broken, format!("{n} samples came after later ones")),
    }
}

/// A bound holds for the planned way.
fn route(seen: &Window) -> Part {
    match &seen.strays {
        None => kept(),
        Some(how) => (Verdict::AtRisk, format!("it goes {how}: no bound covers that")),
    }
}

/// Its own queue lets pass what the contract says: what is dropped there is more.
fn own_queue(promise: &Promise, seen: &Window) -> Part {
    let dropped = seen.own_queue.unwrap_or(0);
    let Some(place) = promise.own_queue.as_ref().filter(|_| dropped > 0) else { return kept() };
    (
        Verdict::AtRisk,
        format!("{dropped} packets dropped in its own queue before {place}: more is sent than the contract says"),
    )
}

/// Rate. A higher one than planned breaks the assumption of every bound beside it. A lower one is the publisher's affair, but not as
/// planned, unless the loss may be as high. Samples that were published earlier and came now do not count as excess: as many as
/// the latest sample's delay holds.
fn rate(promise: &Promise, total: &Total) -> Part {
    let (seconds, seen) = (total.seconds(), &total.seen);
    let Some(planned) = promise.rate_hz.filter(|_| seconds > 0.0) else { return kept() };
    let off = seen.off.as_secs_f64();
    let on_its_way = seen.worst.as_ref().map_or(0.0, |worst| worst.us.max(0.0) / 1e6);
    let came = seen.received as f64;
    let says = || match seen.received {
        0 => format!("no sample came, where {:.0} were due", planned * seconds),
        _ => format!("{:.1} Hz instead of {planned:.1} Hz", came / seconds),
    };
    if came > planned * (seconds + off + on_its_way) * (1.0 + RATE_TOLERANCE) + promise.burst + ON_THEIR_WAY {
        (Verdict::Broken, says())
    } else if came < planned * (1.0 - promise.loss) * (seconds - off) * AT_RISK - promise.burst - ON_THEIR_WAY {
        (Verdict::AtRisk, says())
    } else {
        kept()
    }
}

/// The looks at a channel that gave a verdict: a promise that was broken once is broken.
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
