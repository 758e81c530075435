//! Chains over several topics, judged by their parts. No sample carries its cause, so the latest of a whole chain is not measured: it is at
//! most the sum of the latest of each part and of the waits that the contract states.

use super::{AT_RISK, Judged, Verdict, Verification};
use crate::plan::{Chain, Plan};
use crate::quantity::show_time;

/// All that is known of a chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChainFound {
    /// The verdict, with its reasons.
    pub judged: Judged,
    /// Sum of the latest of each part (clocks' uncertainty included) and the stated waits, µs; `None`: a part was not measured.
    pub at_most_us: Option<f64>,
    /// The planned channel (index) of each part.
    pub channels: Vec<Option<usize>>,
}

impl Verification {
    /// The verdict on a chain of the plan that is verified.
    pub fn chain(&self, plan: &Plan, chain: &Chain) -> ChainFound {
        let index = |part: &crate::plan::ChainPart| plan.channels.iter().position(|channel| part.is(channel));
        let channels: Vec<Option<usize>> = chain.parts.iter().map(index).collect();
        let worst = |channel: &Option<usize>| self.total((*channel)?)?.seen.worst.as_ref();
        let most = |channel: &Option<usize>| worst(channel).map(|worst| worst.us.max(0.0) + worst.uncertainty_us);
        let waits: f64 = chain.parts.iter().map(|part| part.wait_us).sum();
        let at_most_us = channels.iter().map(most).sum::<Option<f64>>().map(|sum| sum + waits);
        let parts = chain.parts.iter().zip(&channels);
        let longest = parts.clone().filter_map(|(part, channel)| {
            worst(channel).map(|worst| (worst.us - worst.uncertainty_us, part.topic.as_str()))
        });
        let longest = longest.max_by(|a, b| a.0.total_cmp(&b.0));
        let parts = parts.map(|(part, channel)| {
            let judged = channel.map(|channel| self.judged(channel)).unwrap_or_default();
            (part.topic.as_str(), judged)
        });
        let judged = judge(chain.bound_us.or(chain.deadline_us), at_most_us, longest, parts);
        ChainFound { judged, at_most_us, channels }
    }
}

/// `longest` is the part that certainly took the longest, with its µs.
fn judge<'a>(
    promised_us: Option<f64>,
    at_most_us: Option<f64>,
    longest: Option<(f64, &str)>,
    parts: impl Iterator<Item = (&'a str, Judged)>,
) -> Judged {
    let judged = |verdict, because| Judged { verdict, because };
    let Some(promised) = promised_us else {
        return judged(Verdict::Unknown, "the plan has neither bound nor deadline for it".to_owned());
    };
    if let Some((us, topic)) = longest.filter(|(us, _)| *us > promised) {
        let (us, promised) = (show_time(us), show_time(promised));
        return judged(Verdict::Broken, format!("{topic} alone took {us} of {promised} promised for the chain"));
    }
    let Some(most) = at_most_us else {
        return judged(Verdict::Unknown, "a part was not measured".to_owned());
    };
    let reason = |(topic, found): (&str, Judged)| {
        let why = if found.because.is_empty() { String::new() } else { format!(" ({})", found.because) };
        (found.verdict != Verdict::Kept).then(|| format!("{topic} is {}{why}", found.verdict))
    };
    let mut reasons: Vec<String> = parts.filter_map(reason).collect();
    if most >= AT_RISK * promised {
        let (most, promised) = (show_time(most), show_time(promised));
        reasons.insert(0, format!("at most {most} of {promised} promised, if the latest of all parts met"));
    }
    let verdict = if reasons.is_empty() { Verdict::Kept } else { Verdict::AtRisk };
    judged(verdict, reasons.join("; "))
}
