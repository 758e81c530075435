//! `thalweg lab run all`: every experiment after the other, a line for each, and one page.

use super::{RunArguments, document};
use crate::failure::{Failure, Result};
use crate::output::{Output, table, tell};
use lab::results::{Check, Verdict};
use lab::{Experiment, Size};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// Runs of an experiment that does not pass at once, of which most must pass.
const MAJORITY: usize = 3;

/// The runs of one experiment.
#[derive(Default, Serialize)]
struct Runs {
    experiment: &'static str,
    verdict: Verdict,
    seconds: f64,
    /// Verdicts of its runs.
    runs: Vec<Verdict>,
    /// Checks that did not pass, and errors, of all runs.
    wrong: Vec<String>,
    /// Margins of its checks over all runs, where runs are repeated.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    margins: BTreeMap<String, Margin>,
}

/// The outcome of one check over all runs.
#[derive(Clone, Default, Serialize)]
struct Margin {
    passed: u32,
    failed: u32,
    inconclusive: u32,
    /// The values found.
    values: Vec<Option<f64>>,
    limit: f64,
    relation: String,
}

/// Runs all experiments. Exit 1 if one failed, else 4 if one was inconclusive.
pub(super) fn run(arguments: &RunArguments, stop: &lab::Stop) -> Result {
    let mut all = Vec::new();
    for experiment in lab::experiments() {
        let runs = experiment_runs(arguments, stop, *experiment)?;
        tell(&format!("{}: {:?} in {:.0} s", runs.experiment, runs.verdict, runs.seconds));
        all.push(runs);
    }
    if let Some(folder) = &arguments.out {
        lab::results::report(folder)?;
    }
    Output { json: arguments.json }.result(&serde_json::json!({ "experiments": all }), || shown(&all))?;
    verdict(&all)
}

fn experiment_runs(arguments: &RunArguments, stop: &lab::Stop, experiment: &dyn Experiment) -> Result<Runs> {
    let since = Instant::now();
    let mut runs = Runs { experiment: experiment.name(), ..Runs::default() };
    for _ in 0..arguments.repeat {
        runs.add(arguments, stop, experiment)?;
    }
    if arguments.repeat == 1 && arguments.size.size() == Size::Ci && runs.runs != [Verdict::Pass] {
        while runs.runs.len() < MAJORITY {
            runs.add(arguments, stop, experiment)?;
        }
    }
    runs.verdict = most(&runs.runs);
    runs.seconds = since.elapsed().as_secs_f64();
    if arguments.repeat == 1 {
        runs.margins.clear();
    }
    Ok(runs)
}

impl Runs {
    /// Adds a run. One that could not be made has failed; only a request to stop ends them all.
    fn add(&mut self, arguments: &RunArguments, stop: &lab::Stop, experiment: &dyn Experiment) -> Result {
        match document(arguments, stop, experiment) {
            Ok(document) => {
                self.runs.push(document.verdict);
                document.checks.iter().for_each(|check| self.count(check));
                self.wrong.extend(document.skipped.iter().map(|skipped| format!("skipped: {}", skipped.name)));
            }
            Err(failure) if stop.asked() => return Err(failure),
            Err(failure) => {
                self.runs.push(Verdict::Fail);
                self.wrong.push(failure.text().to_owned());
            }
        }
        Ok(())
    }

    fn count(&mut self, check: &Check) {
        let margin = self.margins.entry(check.name.clone()).or_default();
        match check.verdict {
            Verdict::Pass => margin.passed += 1,
            Verdict::Fail => margin.failed += 1,
            Verdict::Inconclusive => margin.inconclusive += 1,
        }
        margin.values.push(check.value);
        (margin.limit, margin.relation) = (check.limit, check.relation.clone());
        if check.verdict != Verdict::Pass {
            let found = check.value.map_or("nothing".to_owned(), |value| value.to_string());
            let Check { name, relation, limit, .. } = check;
            self.wrong.push(format!("{name}: {found}, not {relation} {limit}"));
        }
    }
}

/// The verdict of most runs; without a majority, it is inconclusive.
fn most(runs: &[Verdict]) -> Verdict {
    let count = |verdict| 2 * runs.iter().filter(|run| **run == verdict).count();
    [Verdict::Pass, Verdict::Fail]
        .into_iter()
        .find(|verdict| count(*verdict) > runs.len())
        .unwrap_or(Verdict::Inconclusive)
}

fn verdict(all: &[Runs]) -> Result {
    let of = |verdict: Verdict| -> Vec<&str> {
        all.iter().filter(|runs| runs.verdict == verdict).map(|runs| runs.experiment).collect()
    };
    match (of(Verdict::Fail), of(Verdict::Inconclusive)) {
        (failed, _) if !failed.is_empty() => Err(Failure::No(format!("failed: {}", failed.join(", ")))),
        (_, unclear) if !unclear.is_empty() => {
            Err(Failure::Inconclusive(format!("inconclusive: {}", unclear.join(", "))))
        }
        _ => Ok(()),
    }
}

fn shown(all: &[Runs]) -> String {
    let words = |verdicts: &[Verdict]| verdicts.iter().map(|v| word(*v)).collect::<Vec<_>>().join(" ");
    let row = |runs: &Runs| {
        let Runs { experiment, seconds, runs, wrong, .. } = runs;
        vec![(*experiment).to_owned(), words(runs), format!("{seconds:.0}"), wrong.join("; ")]
    };
    let heads = [("experiment", '<'), ("verdicts", '<'), ("s", '>'), ("did not pass", '<')];
    let mut text = table(&heads, &all.iter().map(row).collect::<Vec<_>>());
    for runs in all.iter().filter(|runs| !runs.margins.is_empty()) {
        text.push_str(&format!("\n{}\n{}", runs.experiment, margins(&runs.margins)));
    }
    text
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "FAIL",
        Verdict::Inconclusive => "inconclusive",
    }
}

/// A line for each check: how often it passed, and the values between which it was.
fn margins(margins: &BTreeMap<String, Margin>) -> String {
    let row = |(name, margin): (&String, &Margin)| {
        let mut values: Vec<f64> = margin.values.iter().flatten().copied().collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            values.get((share * values.len().saturating_sub(1) as f64) as usize).map_or(String::new(), f64::to_string)
        };
        let Margin { passed, failed, inconclusive, limit, relation, .. } = margin;
        let counts = [passed, failed, inconclusive].map(u32::to_string);
        let found = [at(0.0), at(0.5), at(1.0), format!("{relation} {limit}")];
        [name.clone()].into_iter().chain(counts).chain(found).collect()
    };
    let heads = [
        ("check", '<'),
        ("passed", '>'),
        ("failed", '>'),
        ("inconclusive", '>'),
        ("least", '>'),
        ("median", '>'),
        ("most", '>'),
        ("wanted", '<'),
    ];
    table(&heads, &margins.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Fail, Inconclusive, Pass};

    #[test]
    fn most_runs_decide() {
        assert_eq!(most(&[Pass]), Pass);
        assert_eq!(most(&[Fail, Pass, Pass]), Pass);
        assert_eq!(most(&[Fail, Pass, Fail]), Fail);
        assert_eq!(most(&[Fail, Pass, Inconclusive]), Inconclusive);
        assert_eq!(most(&[]), Inconclusive);
    }
}
