//! Figures and checks of a measurement, and the verdict. A check of times is inconclusive where the rounds scatter more than its margin, or
//! where the machine's host took processors away and the target is missed by no more than chance makes.

use super::ToolOptions;
use crate::bench::compare::Environment;
use crate::bench::{Error, print};
use lab::results::{Check, Verdict};
use lab::statistics::{median, quotient_interval, rounded, uncertainty};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The document of `--json`.
#[derive(Serialize)]
pub(super) struct Report {
    measurement: &'static str,
    environment: Environment,
    quick: bool,
    rounds: u32,
    seconds: f64,
    /// Medians of the rounds.
    figures: BTreeMap<&'static str, f64>,
    /// What each round found: counts, percentiles and tails.
    measured: Vec<Value>,
    checks: Vec<Judged>,
    /// Checks of times in a quick run.
    not_judged: Vec<Judged>,
    /// The part of the processors' time that the machine's host took away.
    stolen: f64,
    verdict: Verdict,
    pass: bool,
    #[serde(skip)]
    began: Ticks,
    /// The figures whose checks depend on times, and are within chance of their limits.
    #[serde(skip)]
    near: BTreeSet<&'static str>,
}

/// A check, and the figure that it judges.
#[derive(Serialize)]
struct Judged {
    figure: &'static str,
    #[serde(flatten)]
    check: Check,
}

impl Report {
    /// A report of measurements that begin now.
    pub(super) fn new(measurement: &'static str, options: &ToolOptions, seconds: f64) -> Result<Self, Error> {
        let environment = Environment::unpinned()?;
        if !options.json {
            print(&environment.line());
        }
        Ok(Self {
            measurement,
            environment,
            quick: options.quick,
            rounds: options.rounds(),
            seconds,
            figures: BTreeMap::new(),
            measured: Vec::new(),
            checks: Vec::new(),
            not_judged: Vec::new(),
            stolen: 0.0,
            verdict: Verdict::Fail,
            pass: false,
            began: Ticks::now(),
            near: BTreeSet::new(),
        })
    }

    /// Keeps what a round found.
    pub(super) fn measured(&mut self, found: Value) {
        self.measured.push(found);
    }

    /// Keeps a figure.
    pub(super) fn figure(&mut self, name: &'static str, value: f64) {
        self.figures.insert(name, rounded(value, 4));
    }

    /// A check of a count, which is judged in every run.
    pub(super) fn count(&mut self, name: &'static str, check: Check) {
        check.value.into_iter().for_each(|value| self.figure(name, value));
        self.checks.push(Judged { figure: name, check });
    }

    /// A check of the part of so many tries, whose outcomes depend on times. It is judged in every run.
    pub(super) fn part(&mut self, name: &'static str, check: Check, tries: u32) {
        let part = check.value.unwrap_or(f64::NAN);
        self.note_if_near(name, &check, (part * (1.0 - part) / f64::from(tries)).sqrt());
        self.count(name, check);
    }

    /// A check that a short run has too few samples for.
    pub(super) fn whole(&mut self, name: &'static str, check: Check) {
        self.judge(name, check);
    }

    /// A check of times: of the median of these values, with a margin that their scatter may not pass.
    pub(super) fn time(&mut self, name: &'static str, values: &[f64], margin: f64, check: impl FnOnce(f64) -> Check) {
        let (check, error) = (check(median(values)), uncertainty(values));
        self.note_if_near(name, &check, error);
        self.judge(name, check.certain_within(error, margin));
    }

    /// A check of the quotient of two medians, which is at most `limit`.
    pub(super) fn quotient(&mut self, name: &'static str, text: &str, with: &[f64], without: &[f64], limit: f64) {
        let mut state = 1_usize;
        let below = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let check = Check::at_most(text, median(with) / median(without), limit);
        self.judge(name, check.within(quotient_interval(with, without, below)));
    }

    fn judge(&mut self, name: &'static str, check: Check) {
        check.value.into_iter().for_each(|value| self.figure(name, value));
        let kept = if self.quick { &mut self.not_judged } else { &mut self.checks };
        kept.push(Judged { figure: name, check });
    }

    fn note_if_near(&mut self, name: &'static str, check: &Check, error: f64) {
        if is_near(check, error) {
            self.near.insert(name);
        }
    }

    /// Prints all of it, and answers.
    pub(super) fn end(mut self, options: &ToolOptions) -> Result<bool, Error> {
        self.stolen = rounded(self.began.stolen(), 4);
        if self.stolen > STOLEN && !self.quick {
            let because = format!("the machine's host took {:.1} % of the processors' time", self.stolen * 100.0);
            for judged in &mut self.checks {
                if judged.check.verdict == Verdict::Fail && self.near.contains(judged.figure) {
                    judged.check = judged.check.clone().inconclusive(because.clone());
                }
            }
        }
        let any = |verdict| self.checks.iter().any(|judged| judged.check.verdict == verdict);
        self.verdict = match () {
            () if any(Verdict::Fail) => Verdict::Fail,
            () if any(Verdict::Inconclusive) => Verdict::Inconclusive,
            () => Verdict::Pass,
        };
        self.pass = self.verdict == Verdict::Pass;
        match options.json {
            true => print(&serde_json::to_string(&self).map_err(|wrong| Error::System(wrong.to_string()))?),
            false => print(&self.text()),
        }
        match self.verdict {
            Verdict::Pass => Ok(true),
            Verdict::Fail => Ok(false),
            Verdict::Inconclusive => Err(Error::Noisy("the machine was too noisy to tell".to_owned())),
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![format!("{}: {} rounds of {} s", self.measurement, self.rounds, self.seconds)];
        lines.extend(self.measured.iter().map(|found| format!("  {found}")));
        lines.extend(self.figures.iter().map(|(name, value)| format!("  {name:<24} {value}")));
        let line = |check: &Check, verdict: &str| {
            let value = check.value.map_or("nothing".to_owned(), |value| value.to_string());
            let because = check.because.as_deref().map_or(String::new(), |because| format!(": {because}"));
            format!("  {}: {value} {} {}: {verdict}{because}", check.name, check.relation, check.limit)
        };
        lines.extend(self.checks.iter().map(|Judged { check, .. }| line(check, word(check.verdict))));
        let unjudged = |check: &Check| line(&Check { because: None, ..check.clone() }, "not judged");
        lines.extend(self.not_judged.iter().map(|Judged { check, .. }| unjudged(check)));
        lines.join("\n")
    }
}

/// `true` if chance alone may have moved the value, with this standard error, to the other side of its limit.
fn is_near(check: &Check, error: f64) -> bool {
    check.value.is_some_and(|value| (value - check.limit).abs() <= SURELY * error)
}

/// A verdict for people.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "met",
        Verdict::Fail => "MISSED",
        Verdict::Inconclusive => "inconclusive",
    }
}

/// Processor time of the whole machine, in ticks: all, and what its host took away.
#[derive(Clone, Copy, Default)]
struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    fn now() -> Self {
        Self::of(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The first line of `/proc/stat` (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal; guests are in the first two.
    fn of(text: &str) -> Self {
        let numbers = text.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
        let ticks: Vec<u64> = numbers.filter_map(|number| number.parse().ok()).collect();
        Self { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    /// The part that was taken away since then.
    fn stolen(self) -> f64 {
        let now = Self::now();
        now.stolen.saturating_sub(self.stolen) as f64 / now.all.saturating_sub(self.all).max(1) as f64
    }
}

/// The part of the processors' time whose loss makes a missed target inconclusive.
const STOLEN: f64 = 0.01;
/// So many standard errors from a limit are no chance.
const SURELY: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_number() {
        let Ticks { all, stolen } = Ticks::of("cpu  10 20 30 40 50 60 70 80 5 5\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
        assert_eq!((all, stolen), (360, 80));
        assert_eq!(Ticks::of("").all, 0);
    }

    #[test]
    fn only_a_near_miss_is_excused_by_stolen_time() {
        let check = |value| Check::at_most("p99", value, 100.0);
        assert!(is_near(&check(102.0), 1.0) && !is_near(&check(104.0), 1.0));
        assert!(!is_near(&check(102.0), f64::NAN) && !is_near(&check(f64::NAN), 1.0));
    }
}
