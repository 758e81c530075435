//! `thalweg lab run all`: every experiment after the other, a line for each, and one page.

use super::{RunArguments, document};
use crate::failure::{Failure, Result};
use crate::output::{Output, table, tell};
use lab::results::{Check, Verdict};
use lab::statistics::largest_probability;
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

/// The outcome of all experiments.
#[derive(Serialize)]
struct Outcome {
    experiments: Vec<Runs>,
    /// Of repeated runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    alarms: Option<Alarms>,
}

/// Failures of repeated runs where all claims hold, so that each is a false alarm. A round is a run of every experiment.
#[derive(Serialize)]
struct Alarms {
    rounds: u64,
    /// Rounds in which an experiment failed.
    alarmed: u64,
    /// With 95 % confidence no larger part of all rounds does.
    at_most: f64,
    /// Nor of the gate's runs, in which an experiment fails by two of three runs: then two of three rounds have a failure at least.
    gate_at_most: f64,
}

impl Alarms {
    /// Of rounds that are independent of each other. One that was broken off does not count.
    fn of(all: &[Runs]) -> Self {
        let rounds = all.iter().map(|runs| runs.runs.len()).min().unwrap_or(0);
        let has_failed = |round: &usize| all.iter().any(|runs| runs.runs[*round] == Verdict::Fail);
        let (alarmed, rounds) = ((0..rounds).filter(has_failed).count() as u64, rounds as u64);
        let at_most = largest_probability(alarmed, rounds);
        Self { rounds, alarmed, at_most, gate_at_most: at_most * at_most * (3.0 - 2.0 * at_most) }
    }
}

/// Runs all experiments. Exit 1 if one failed, else 4 if one was inconclusive.
pub(super) fn run(arguments: &RunArguments, stop: &lab::Stop) -> Result {
    let all = lab::experiments().iter();
    let mut experiments: Vec<Runs> =
        all.map(|experiment| Runs { experiment: experiment.name(), ..Runs::default() }).collect();
    for number in 1..=arguments.repeat {
        match round(arguments, stop, &mut experiments) {
            // What whole rounds have found is shown.
            Err(_) if stop.asked() && number > 1 => break,
            once => once?,
        }
    }
    if let Some(folder) = &arguments.out {
        lab::results::report(folder)?;
    }
    let alarms = (arguments.repeat > 1).then(|| Alarms::of(&experiments));
    if alarms.is_none() {
        experiments.iter_mut().for_each(|runs| runs.margins.clear());
    }
    let outcome = Outcome { experiments, alarms };
    Output { json: arguments.json }.result(&outcome, || shown(&outcome))?;
    verdict(&outcome.experiments)
}

/// Runs each experiment once; in the gate, one that does not pass runs until most runs decide.
fn round(arguments: &RunArguments, stop: &lab::Stop, all: &mut [Runs]) -> Result {
    for (experiment, runs) in lab::experiments().iter().zip(all) {
        let since = Instant::now();
        runs.add(arguments, stop, *experiment)?;
        if arguments.repeat == 1 && arguments.size.size() == Size::Ci && runs.runs != [Verdict::Pass] {
            while runs.runs.len() < MAJORITY {
                runs.add(arguments, stop, *experiment)?;
            }
        }
        runs.verdict = most(&runs.runs);
        let seconds = since.elapsed().as_secs_f64();
        runs.seconds += seconds;
        tell(&format!("{}: {:?} in {seconds:.0} s", runs.experiment, runs.verdict));
    }
    Ok(())
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
            let Check { name, relation, limit, because, .. } = check;
            self.wrong.push(match because {
                Some(because) => format!("{name}: {found}, wanted {relation} {limit}, inconclusive: {because}"),
                None => format!("{name}: {found}, not {relation} {limit}"),
            });
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

fn shown(Outcome { experiments: all, alarms }: &Outcome) -> String {
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
    text.extend(alarms.iter().map(told));
    text
}

fn told(alarms: &Alarms) -> String {
    let Alarms { rounds, alarmed, at_most, gate_at_most } = alarms;
    let [one, gate] = [at_most, gate_at_most].map(|part| part.recip().floor());
    format!(
        "\nAn experiment failed in {alarmed} of {rounds} rounds: with 95 % confidence in at most one of {one}, and by two of three runs, as \
         the gate judges, in at most one of {gate} (wanted: 200).\n"
    )
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

    fn runs(verdicts: &[Verdict]) -> Runs {
        Runs { runs: verdicts.to_vec(), ..Runs::default() }
    }

    #[test]
    fn so_many_rounds_without_a_failure_show_that_one_in_200_gates_alarms() {
        let alarms = |rounds: usize| Alarms::of(&[runs(&vec![Pass; rounds]), runs(&vec![Inconclusive; rounds])]);
        assert!(alarms(71).gate_at_most < 1.0 / 200.0 && alarms(70).gate_at_most > 1.0 / 200.0);
        assert!(alarms(598).at_most < 1.0 / 200.0 && alarms(597).at_most > 1.0 / 200.0);
        assert!(told(&alarms(71)).contains("0 of 71 rounds: with 95 % confidence in at most one of 24"));
        assert_eq!((alarms(0).rounds, alarms(0).gate_at_most), (0, 1.0));
    }

    #[test]
    fn a_round_with_failures_is_one_alarm() {
        let mut failing = vec![Pass; 71];
        failing[3] = Fail;
        let found = Alarms::of(&[runs(&failing), runs(&failing), runs(&[Pass; 71])]);
        assert_eq!((found.rounds, found.alarmed), (71, 1));
        assert!(found.gate_at_most > 1.0 / 200.0, "one failure is too many for so few rounds");
        let broken_off = Alarms::of(&[runs(&[Pass, Pass, Fail]), runs(&[Pass, Fail])]);
        assert_eq!((broken_off.rounds, broken_off.alarmed), (2, 1));
    }

    #[test]
    fn what_did_not_pass_is_told_with_the_reason_if_it_is_inconclusive() {
        let mut runs = Runs::default();
        let check = Check::at_most("p99", 3.0, 2.0);
        [check.clone(), check.inconclusive("noise"), Check::at_most("p50", 1.0, 2.0)]
            .iter()
            .for_each(|one| runs.count(one));
        assert_eq!(runs.wrong, ["p99: 3, not <= 2", "p99: 3, wanted <= 2, inconclusive: noise"]);
    }

    #[test]
    fn most_runs_decide() {
        assert_eq!(most(&[Pass]), Pass);
        assert_eq!(most(&[Fail, Pass, Pass]), Pass);
        assert_eq!(most(&[Fail, Pass, Fail]), Fail);
        assert_eq!(most(&[Fail, Pass, Inconclusive]), Inconclusive);
        assert_eq!(most(&[]), Inconclusive);
    }
}
