//! Expected results, and verdicts.

use crate::lab::Size;
use crate::statistics::rounded;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// The outcome of a check, or of a whole experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The expected result was found.
    Pass,
    /// It was not.
    #[default]
    Fail,
    /// The machine was too noisy to tell. It is no pass.
    Inconclusive,
}

impl Verdict {
    /// As a document has it.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Inconclusive => "inconclusive",
        }
    }
}

/// An expected result and the one found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Name, with the factors.
    pub name: String,
    /// The value found; `None`: there was none.
    pub value: Option<f64>,
    /// The limit that it is compared with.
    pub limit: f64,
    /// The relation: `>=` or `<=`.
    pub relation: String,
    /// `true`: the relation holds, and the verdict is [`Verdict::Pass`].
    pub pass: bool,
    /// The verdict.
    #[serde(default)]
    pub verdict: Verdict,
    /// The value with stalls of the machine, where `value` is less them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<f64>,
    /// The smallest size of a run whose samples are enough to judge it.
    #[serde(skip)]
    pub needs: Size,
    /// The reason of an inconclusive verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

impl Check {
    /// `value` must be at least `limit`. Not a number: no value was found, and the check fails.
    pub fn at_least(name: impl Into<String>, value: f64, limit: f64) -> Self {
        Self::new(name, value, limit, ">=", value >= limit)
    }

    /// `value` must be at most `limit`. Not a number: no value was found, and the check fails.
    pub fn at_most(name: impl Into<String>, value: f64, limit: f64) -> Self {
        Self::new(name, value, limit, "<=", value <= limit)
    }

    fn new(name: impl Into<String>, value: f64, limit: f64, relation: &str, holds: bool) -> Self {
        let found = value.is_finite().then(|| rounded(value, 3));
        let pass = holds && found.is_some() && limit.is_finite();
        Self {
            name: name.into(),
            value: found,
            limit: if limit.is_finite() { rounded(limit, 3) } else { 0.0 },
            relation: relation.into(),
            pass,
            verdict: if pass { Verdict::Pass } else { Verdict::Fail },
            raw: None,
            needs: Size::Ci,
            because: None,
        }
    }

    /// Judged from this size of a run on: a smaller one has too few samples to tell.
    pub fn judged_from(self, needs: Size) -> Self {
        Self { needs, ..self }
    }

    /// The value is less stalls of the machine; with them it is `raw`.
    pub fn less_stalls(self, raw: f64) -> Self {
        Self { raw: raw.is_finite().then(|| rounded(raw, 3)), ..self }
    }

    /// `true` if it passes only because stalls of the machine were taken off.
    pub fn needs_excuse(&self) -> bool {
        let holds = |raw: f64| if self.relation == "<=" { raw <= self.limit } else { raw >= self.limit };
        self.pass && self.raw.is_some_and(|raw| !holds(raw))
    }

    /// Inconclusive where the value is less certain than the margin that the limit leaves, unless it is further from the limit, on
    /// either side, than chance makes. (A limit that grew with the noise would be the easier the worse the machine is.) An uncertainty that is not
    /// a number is not known.
    pub fn certain_within(self, uncertainty: f64, margin: f64) -> Self {
        let distance = self.value.map_or(f64::NAN, |value| (value - self.limit).abs());
        if uncertainty <= margin || distance > SURELY * uncertainty || self.value.is_none() {
            return self;
        }
        if uncertainty.is_nan() {
            return self.inconclusive("too few repetitions tell how certain it is");
        }
        self.inconclusive(format!("the value is uncertain by {uncertainty:.3}, more than the margin of {margin:.3}"))
    }

    /// Judges the whole interval that holds the value with confidence: all of it keeps the limit, none of it does, or it is
    /// inconclusive. `None`: there is no interval.
    pub fn within(self, interval: Option<RangeInclusive<f64>>) -> Self {
        let Some(interval) = interval else {
            return if self.value.is_none() {
                self
            } else {
                self.inconclusive("too few repetitions tell how certain it is")
            };
        };
        let keeps = |value: f64| if self.relation == "<=" { value <= self.limit } else { value >= self.limit };
        match [*interval.start(), *interval.end()].map(keeps) {
            [true, true] | [false, false] => self,
            _ => {
                let (low, high, limit) = (interval.start(), interval.end(), self.limit);
                self.inconclusive(format!("with 95 % confidence it is {low:.3} to {high:.3}, on both sides of {limit}"))
            }
        }
    }

    /// The upper limit, which grows with what the run itself found without load, counts up to `cap`: a value that keeps the grown one alone
    /// is inconclusive. One that keeps neither fails, for it is too large on a slow machine, too.
    pub fn capped(self, cap: f64) -> Self {
        let (grown, cap) = (self.limit, rounded(cap, 3));
        if grown <= cap {
            return self;
        }
        let is_above = self.value.is_none_or(|value| value > cap);
        let check = Self { limit: cap, ..self };
        if check.pass && is_above {
            return check.inconclusive(format!("it is within {grown} only, by this run's own figures without load"));
        }
        check
    }

    /// Inconclusive, for this reason.
    pub fn inconclusive(self, because: impl Into<String>) -> Self {
        Self { pass: false, verdict: Verdict::Inconclusive, because: Some(because.into()), ..self }
    }
}

/// So many standard errors from a limit are no chance.
const SURELY: f64 = 3.0;

/// The verdict of all checks: none may fail, and there must be one.
pub(super) fn of_all(checks: &[Check]) -> Verdict {
    match () {
        () if checks.is_empty() || checks.iter().any(|check| check.verdict == Verdict::Fail) => Verdict::Fail,
        () if checks.iter().any(|check| check.verdict == Verdict::Inconclusive) => Verdict::Inconclusive,
        () => Verdict::Pass,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_passes_fails_or_is_inconclusive() {
        let check = |value| Check::at_most("ratio", value, 1.03);
        assert_eq!(check(1.02).certain_within(0.01, 0.03).verdict, Verdict::Pass);
        assert_eq!(check(1.04).certain_within(0.01, 0.03).verdict, Verdict::Fail);
        assert_eq!(check(1.02).certain_within(0.04, 0.03).verdict, Verdict::Inconclusive);
        assert_eq!(check(1.04).certain_within(f64::NAN, 0.03).verdict, Verdict::Inconclusive);
        assert_eq!(check(1.10).certain_within(0.04, 0.03).verdict, Verdict::Inconclusive, "by chance, perhaps");
        assert_eq!(
            check(1.20).certain_within(0.04, 0.03).verdict,
            Verdict::Fail,
            "noise does not hide a clear failure"
        );
        assert_eq!(check(0.85).certain_within(0.04, 0.03).verdict, Verdict::Pass, "nor what clearly keeps the limit");
        assert_eq!(check(0.95).certain_within(0.04, 0.03).verdict, Verdict::Inconclusive);
        assert_eq!(check(f64::NAN).certain_within(f64::NAN, 0.03).verdict, Verdict::Fail, "nothing was measured");
    }

    #[test]
    fn an_interval_on_both_sides_of_the_limit_is_inconclusive() {
        let check = |value| Check::at_most("ratio", value, 1.3);
        assert_eq!(check(1.1).within(Some(1.0..=1.25)).verdict, Verdict::Pass);
        assert_eq!(check(1.6).within(Some(1.4..=1.8)).verdict, Verdict::Fail);
        assert_eq!(check(1.2).within(Some(1.0..=1.4)).verdict, Verdict::Inconclusive);
        assert_eq!(check(1.2).within(None).verdict, Verdict::Inconclusive);
        assert_eq!(check(f64::NAN).within(None).verdict, Verdict::Fail, "nothing was measured");
        assert_eq!(Check::at_least("ratio", 2.0, 1.0).within(Some(0.9..=3.0)).verdict, Verdict::Inconclusive);
    }

    #[test]
    fn a_limit_does_not_grow_beyond_its_cap() {
        let check = |value, limit| Check::at_most("p99", value, limit).capped(600.0);
        assert_eq!((check(500.0, 900.0).verdict, check(500.0, 900.0).limit), (Verdict::Pass, 600.0));
        assert_eq!(check(700.0, 900.0).verdict, Verdict::Inconclusive);
        assert!(!check(700.0, 900.0).pass);
        assert_eq!(check(1000.0, 900.0).verdict, Verdict::Fail, "the easier limit is not kept either");
        assert_eq!((check(500.0, 550.0).verdict, check(500.0, 550.0).limit), (Verdict::Pass, 550.0));
        assert_eq!(check(580.0, 550.0).verdict, Verdict::Fail);
        assert_eq!(check(f64::NAN, 900.0).verdict, Verdict::Fail, "nothing was measured");
        assert_eq!(check(500.0, f64::NAN).verdict, Verdict::Fail, "nothing was measured without load");
    }

    #[test]
    fn only_a_value_that_was_beyond_the_limit_needs_an_excuse() {
        let check = |less, raw| Check::at_most("max", less, 100.0).less_stalls(raw);
        assert!(!check(90.0, 95.0).needs_excuse() && check(90.0, 105.0).needs_excuse());
        assert!(!check(101.0, 105.0).needs_excuse(), "it fails anyway");
    }

    #[test]
    fn one_failure_is_the_verdict_and_nothing_is_no_pass() {
        let (pass, fail) = (Check::at_most("a", 1.0, 2.0), Check::at_most("b", 3.0, 2.0));
        let unsure = pass.clone().inconclusive("noise");
        assert_eq!(of_all(&[]), Verdict::Fail);
        assert_eq!(of_all(&[pass.clone(), unsure.clone(), fail]), Verdict::Fail);
        assert_eq!(of_all(&[pass.clone(), unsure]), Verdict::Inconclusive);
        assert_eq!(of_all(&[pass]), Verdict::Pass);
    }
}
