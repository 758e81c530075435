//! `thalweg play --check`: the figures of a recording beside those of a baseline, or a plan's promises.

use super::{Arguments, open};
use crate::failure::{Failure, Result};
use crate::output::{table, tell};
use crate::plan::read_plan;
use qos::plan::Plan;
use qos::show_time;
use recording::check::{
    Expected, MEDIAN_SAMPLES, P99_SAMPLES, Quantile, Report, Row, Run, Tolerance, Verdict, against_plan, compare,
};
use recording::read::{PLAN, Recording};
use serde::Serialize;
use std::path::{Path, PathBuf};
use thalweg::control::matching::topic_matches;

/// The document of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    file: &'a Path,
    beside: &'a [PathBuf],
    #[serde(flatten)]
    report: &'a Report,
}

/// Compares, shows the result, and answers.
pub(super) fn run(arguments: &Arguments, recording: &Recording) -> Result {
    let tolerance = Tolerance { share: arguments.tolerance, floor: arguments.floor };
    let is_plan = |file: &&PathBuf| file.extension().is_some_and(|end| end == "toml");
    let (plans, baselines): (Vec<_>, Vec<_>) = arguments.check.iter().partition(is_plan);
    let mut report = match (plans.as_slice(), baselines.as_slice()) {
        ([plan], []) => {
            let expected = Expected::of(&read_plan(plan)?);
            against_plan(&expected, &read(recording, &expected)?, tolerance)
        }
        ([], baselines) => beside(arguments, recording, baselines, tolerance)?,
        _ => return Err(Failure::Usage("--check takes one plan (*.toml), or recordings".to_owned())),
    };
    let topics = arguments.topics();
    if !topics.is_empty() {
        report = report.only(|topic| topics.iter().any(|pattern| topic_matches(pattern, topic)));
    }
    let document = Document { file: &arguments.file, beside: &arguments.check, report: &report };
    arguments.common.output().result(&document, || text(arguments, &report))?;
    if report.pass { Ok(()) } else { Err(Failure::No(String::new())) }
}

fn beside(
    arguments: &Arguments,
    recording: &Recording,
    baselines: &[&PathBuf],
    tolerance: Tolerance,
) -> Result<Report> {
    let baselines: Vec<Recording> = baselines.iter().map(|file| open(&[(*file).clone()])).collect::<Result<_>>()?;
    let mut expected = baselines.iter().chain([recording]).find_map(attached).unwrap_or_default();
    arguments.chain.iter().for_each(|chain| expected.add_chain(&chain.0));
    let before: Vec<Run> = baselines.iter().map(|one| read(one, &expected)).collect::<Result<_>>()?;
    Ok(compare(&before, &read(recording, &expected)?, tolerance))
}

/// What the attached plan promises.
fn attached(recording: &Recording) -> Option<Expected> {
    let text = std::str::from_utf8(recording.attachment(PLAN)?).ok()?;
    match Plan::from_text(text) {
        Ok(plan) => Some(Expected::of(&plan)),
        Err(wrong) => {
            tell(&format!("{}: the attached {PLAN}:{wrong}", recording.path().display()));
            None
        }
    }
}

/// Reads the figures of a recording, and says what is damaged.
fn read(recording: &Recording, expected: &Expected) -> Result<Run> {
    let run = Run::read(recording, expected).map_err(|wrong| Failure::Usage(wrong.to_string()))?;
    for damage in run.damages() {
        tell(&damage.to_string());
    }
    Ok(run)
}

fn text(arguments: &Arguments, report: &Report) -> String {
    let mut parts = vec![heading(arguments, report)];
    if !report.topics.is_empty() {
        let headers = [
            ("topic", '<'),
            ("verdict", '<'),
            ("samples", '>'),
            ("before", '>'),
            ("p50", '>'),
            ("before", '>'),
            ("p99", '>'),
            ("before", '>'),
            ("bound", '>'),
            ("late", '>'),
            ("lost", '>'),
            ("because", '<'),
        ];
        parts.push(table(&headers, &report.topics.iter().map(cells).collect::<Vec<_>>()));
    }
    parts.extend(footnote(report));
    parts.extend(report.note.clone());
    parts.join("\n\n")
}

/// The reason why a quantile of a topic that both recordings have is missing.
fn footnote(report: &Report) -> Option<String> {
    let missing = |row: &Row| row.samples.iter().all(|count| *count > 0) && !row.quantiles.contains_key("latency p99");
    report.topics.iter().any(missing).then(|| {
        format!("- in p99: fewer than {P99_SAMPLES} samples in a recording; p50 needs {MEDIAN_SAMPLES}. Record for longer to compare them")
    })
}

fn heading(arguments: &Arguments, report: &Report) -> String {
    let count = |verdict: Verdict| report.topics.iter().filter(|row| row.verdict == verdict).count();
    let verdicts = [Verdict::Kept, Verdict::Broken, Verdict::New, Verdict::Unknown];
    let counted = verdicts.map(|verdict| (count(verdict), verdict.name())).into_iter().filter(|(count, _)| *count > 0);
    let mut words: Vec<String> = counted.map(|(count, name)| format!("{count} {name}")).collect();
    if words.is_empty() {
        words.push("nothing to compare".to_owned());
    }
    let others: Vec<String> = arguments.check.iter().map(|file| file.display().to_string()).collect();
    format!("{} beside {}: {}", arguments.file.display(), others.join(", "), words.join(", "))
}

fn cells(row: &Row) -> Vec<String> {
    let quantile = |name: &str| row.quantiles.get(name).copied();
    let time = |us: Option<f64>| us.map_or("-".to_owned(), show_time);
    let now = |found: Option<Quantile>| time(found.map(|found| found.now_us));
    let before = |found: Option<Quantile>| time(found.and_then(|found| found.before_us));
    let (p50, p99) = (quantile("latency p50"), quantile("latency p99"));
    vec![
        row.topic.clone(),
        row.verdict.name().to_owned(),
        row.samples[1].to_string(),
        row.samples[0].to_string(),
        now(p50),
        before(p50),
        now(p99),
        before(p99),
        time(row.bound_us),
        row.late[1].to_string(),
        row.lost[1].to_string(),
        row.because.clone(),
    ]
}
