//! From evidence to problems, the cause first. Pure.
//!
//! | module | subject |
//! |---|---|
//! | [`meeting`] | existence of both ports, and their match |
//! | [`opening`] | a channel that is wanted and not open |
//! | [`flowing`] | an open channel: silent, dropping, losing |
//! | [`priority`] | settings without effect |

mod flowing;
mod meeting;
mod opening;
mod priority;

use super::evidence::{End, Evidence, Said};
use super::problem::Problem;
use serde::Serialize;
use std::fmt;

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Diagnosis {
    /// The answer in one line.
    pub verdict: String,
    /// The problems, the cause first.
    pub problems: Vec<Problem>,
    /// The evidence that was used.
    pub evidence: Vec<Line>,
    /// Longest time in µs that a sample waits for packets of lower classes at its outgoing device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocking_us: Option<f64>,
}

/// A piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    /// The subject.
    pub about: &'static str,
    /// The observation.
    pub says: String,
}

impl Diagnosis {
    fn line(&mut self, about: &'static str, says: impl Into<String>) {
        self.evidence.push(Line { about, says: says.into() });
    }

    fn problem(&mut self, problem: impl IntoIterator<Item = Problem>) {
        self.problems.extend(problem);
    }
}

/// Both ends, and the reports of both nodes.
struct Both<'a> {
    publisher: &'a End,
    subscriber: &'a End,
    sent: &'a Said,
    received: &'a Said,
}

/// Judges from the outside to the inside, and stops where no more can be seen.
pub(super) fn judge(evidence: &Evidence) -> Diagnosis {
    let mut found = Diagnosis::default();
    let healthy = examine(evidence, &mut found);
    let [publisher, subscriber] = &evidence.asked;
    found.verdict = match found.problems.first() {
        Some(problem) => problem.what.clone(),
        None => healthy.unwrap_or_else(|| format!("{publisher} → {subscriber}: nothing is wrong")),
    };
    found
}

/// Fills in problems and evidence. Returns the verdict if the channel works.
fn examine(evidence: &Evidence, found: &mut Diagnosis) -> Option<String> {
    let (publisher, subscriber) = meeting::ports(evidence, found)?;
    let (sent, received) = meeting::answers(evidence, (publisher, subscriber), found)?;
    let both = Both { publisher, subscriber, sent, received };
    let open = sent.channel.as_ref().zip(received.channel.as_ref());
    let Some(((_, out), (_, taken))) = open.filter(|((_, out), (_, taken))| out.carrier == taken.carrier) else {
        if meeting::belong_together(&both, found) {
            opening::judge(&both, found);
        }
        return None;
    };
    opening::carrier(&both, &taken.carrier, found);
    let rate = flowing::judge(&both, evidence.watched, found);
    priority::judge(&both, found);
    let lost = out.lost + taken.lost;
    Some(format!("{} → {} over {}: healthy, {rate}, {lost} lost", out.publisher, out.subscriber, out.carrier))
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.verdict)?;
        for problem in &self.problems {
            if problem.what != self.verdict {
                write!(f, "\n\n{}", problem.what)?;
            }
            write!(f, "\n  problem      {}\n  remedy       {}", problem.kind.id, problem.remedy)?;
        }
        if !self.evidence.is_empty() {
            f.write_str("\n")?;
        }
        self.evidence.iter().try_for_each(|line| write!(f, "\n  {:<12} {}", line.about, line.says))
    }
}

#[cfg(test)]
mod tests;
