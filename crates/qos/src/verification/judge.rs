//! Kept, at risk, broken, or not to be known.

use super::{Promise, Total, Verdict, Window, Worst};
use crate::quantity::show_time;

/// At risk is what takes so large a part of its bound.
pub const AT_RISK: f64 = 0.9;
/// A rate may be off by such a part of it, as clocks and looks are.
const RATE_TOLERANCE: f64 = 0.05;
/// And by so many samples, which are on their way when the counters are read.
const ON_THEIR_WAY: f64 = 2.0;

/// A verdict with its reasons.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// Why; empty where all is kept.
    pub because: String,
}

/// Judges what was measured. The worst of what its parts say, with the reasons for that.
pub(super) fn judge(promise: &Promise, total: &Total) -> Judged {
    let parts = [delay(promise, &total.seen), loss(promise, &total.seen), order(&total.seen), rate(promise, total)];
    let severity = |verdict: Verdict| {
        [Verdict::Kept, Verdict::AtRisk, Verdict::Unknown, Verdict::Broken].iter().position(|v| *v == verdict)
    };
    let verdict = parts.iter().map(|(verdict, _)| *verdict).max_by_key(|v| severity(*v)).unwrap_or_default();
    let reasons = parts.into_iter().filter(|(one, _)| *one == verdict).map(|(_, because)| because);
    let because = reasons.filter(|because| !because.is_empty()).collect::<Vec<_>>().join("; ");
    Judged { verdict, because }
}

type Part = (Verdict, String);

fn kept() -> Part {
    (Verdict::Kept, String::new())
}

fn delay(promise: &Promise, seen: &Window) -> Part {
    let Some(latest) = promise.latest_us else {
        return (Verdict::Unknown, "the plan has neither bound nor deadline for it".to_owned());
    };
    let Some(worst) = &seen.worst else {
        return (Verdict::Unknown, "no sample's delay was measured".to_owned());
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

fn loss(promise: &Promise, seen: &Window) -> Part {
    let all = seen.received.saturating_add(seen.lost);
    if seen.lost as f64 <= promise.loss * all as f64 {
        return kept();
    }
    (Verdict::Broken, format!("{} of {all} samples lost", seen.lost))
}

fn order(seen: &Window) -> Part {
    match seen.disordered {
        0 => kept(),
        n => (Verdict::Broken, format!("{n} samples came after later ones")),
    }
}

/// More than was planned breaks the assumption of every bound beside it; less is the publisher's affair, but not as planned.
fn rate(promise: &Promise, total: &Total) -> Part {
    let seconds = total.seconds();
    let Some(planned) = promise.rate_hz.filter(|_| seconds > 0.0) else { return kept() };
    let (due, came) = (planned * seconds, total.seen.received as f64);
    let says = || format!("{:.1} Hz instead of {planned:.1} Hz", came / seconds);
    if came > due * (1.0 + RATE_TOLERANCE) + promise.burst + ON_THEIR_WAY {
        (Verdict::Broken, says())
    } else if came < due * AT_RISK - promise.burst - ON_THEIR_WAY {
        (Verdict::AtRisk, says())
    } else {
        kept()
    }
}
