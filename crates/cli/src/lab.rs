//! `thalweg lab`: the experiments of the papers, in network namespaces of their own.

mod all;

use crate::failure::{Failure, Result};
use crate::output::{Output, line, table, tell};
use crate::signals::Stop;
use clap::{Args, Subcommand};
use lab::results::Verdict;
use lab::{Document, Experiment, Feature, Lab, Options, Size};
use serde::Serialize;
use std::path::PathBuf;

/// The hidden verb of one process of an experiment.
pub(crate) const PART: &str = "lab-part";

/// Run the experiments of the papers: topologies in network namespaces, loads, measurements, figures
///
/// Needs root and iproute2. Exit 1 if a check failed, 4 if none failed and the machine was too noisy for some.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg lab run yarp-switch --quick --out results\n         thalweg lab report results"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// The experiments there are
    #[command(after_help = "Example: thalweg lab list")]
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Run one, or all
    Run(RunArguments),
    /// One HTML page of all results in a folder
    Report(ReportArguments),
}

/// Run an experiment, or `all`
///
/// Of `all`, each that does not pass at --ci runs twice more, and the verdict of most runs counts. Namespaces and processes are removed at its end, also on Ctrl-C; those of a killed run, by the next one.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg lab run yarp-switch --quick\n         thalweg lab run all --quick --out results"
)]
struct RunArguments {
    /// Name of the experiment (see `thalweg lab list`), or all
    name: String,
    #[command(flatten)]
    size: SizeArguments,
    /// Also write NAME.json, NAME.svg, NAME.md and, with all samples, NAME.csv into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Policies and priorities of the ports of rt-conference, as TOML or a DDS XML profile (docs/qos.md)
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Run only the attacks of hostile whose names contain this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Leave out a feature, to see which checks find that: marks, threads, proxies
    #[arg(long, value_name = "FEATURE", hide = true, value_parser = feature)]
    without: Option<Feature>,
    /// Of all: run each so many times, and print the margins of every check and a bound of false alarms
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Parts that may be skipped where they cannot run, by the beginnings of their names: any other is a failure
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    allow_skips: Vec<String>,
    /// Seed of the order of runs and of send times
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Number of samples.
#[derive(Args, Clone, Copy, Debug)]
#[group(multiple = false)]
struct SizeArguments {
    /// Fewer cells and repetitions: minutes instead of tens of them
    #[arg(long)]
    quick: bool,
    /// Seconds, with only the checks that so few samples can hold
    #[arg(long)]
    ci: bool,
    /// Only the shape of the results: too few samples to mean anything
    #[arg(long, hide = true)]
    tiny: bool,
}

impl SizeArguments {
    fn size(self) -> Size {
        match self {
            Self { tiny: true, .. } => Size::Tiny,
            Self { ci: true, .. } => Size::Ci,
            Self { quick: true, .. } => Size::Quick,
            Self { .. } => Size::Whole,
        }
    }
}

fn feature(name: &str) -> std::result::Result<Feature, String> {
    serde_json::from_value(name.into()).map_err(|_| "there are marks, threads, proxies".to_owned())
}

/// One HTML page of all results in a folder
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg lab report results")]
struct ReportArguments {
    /// Folder of `lab run --out`; report.html is written there, too
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Print one JSON document: what the page shows
    #[arg(long)]
    json: bool,
}

/// The process of a part. Its arguments only inform readers of the list of processes.
#[derive(Args, Debug)]
pub(crate) struct PartArguments {
    /// Name of the part
    role: Option<String>,
}

/// Plays a part, until standard input ends.
pub(crate) fn part(_: &PartArguments) -> Result {
    Stop::never()?;
    lab::play().map_err(Failure::from)
}

/// Runs a subcommand of `lab`.
pub(crate) fn run(arguments: &Arguments) -> Result {
    match &arguments.what {
        What::List { json } => list(*json),
        What::Run(arguments) => experiment(arguments),
        What::Report(arguments) => report(arguments),
    }
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    about: &'static str,
}

fn list(json: bool) -> Result {
    let listed: Vec<Listed> = lab::experiments().iter().map(|e| Listed { name: e.name(), about: e.about() }).collect();
    let rows: Vec<_> = listed.iter().map(|e| vec![e.name.to_owned(), e.about.to_owned()]).collect();
    Output { json }
        .result(&serde_json::json!({ "experiments": listed }), || table(&[("experiment", '<'), ("shows", '<')], &rows))
}

fn experiment(arguments: &RunArguments) -> Result {
    let stop = lab::Stop::by(Stop::on_signals()?.flag());
    if arguments.name == "all" {
        return all::run(arguments, &stop);
    }
    let document = document(arguments, &stop, lab::find(&arguments.name)?)?;
    Output { json: arguments.json }.result(&document, || lab::results::markdown(&document))?;
    verdict(&document)
}

/// Runs one, and writes its results where that is asked for.
fn document(arguments: &RunArguments, stop: &lab::Stop, experiment: &dyn Experiment) -> Result<Document> {
    let RunArguments { size, seed, without, .. } = *arguments;
    let (only, profile, allow_skips) =
        (arguments.only.clone(), arguments.profile.clone(), arguments.allow_skips.clone());
    let options = Options { size: size.size(), without, seed, only, profile, allow_skips };
    let program = lab::Program::this(&[PART])?;
    let document = lab::run(&Lab::open(options, stop.clone(), program, tell)?, experiment)?;
    if let Some(folder) = &arguments.out {
        lab::results::write(&document, folder)?;
    }
    Ok(document)
}

fn verdict(document: &Document) -> Result {
    let of = |verdict| {
        let checks = document.checks.iter().filter(|check| check.verdict == verdict);
        checks.map(|check| check.name.as_str()).collect::<Vec<_>>().join("; ")
    };
    let skipped: Vec<&str> = document.skipped.iter().map(|skipped| skipped.name.as_str()).collect();
    match (document.verdict, of(Verdict::Fail)) {
        (Verdict::Pass, _) => Ok(()),
        (Verdict::Inconclusive, _) => {
            Err(Failure::Inconclusive(format!("inconclusive: {}", of(Verdict::Inconclusive))))
        }
        (Verdict::Fail, failed) if !failed.is_empty() => Err(Failure::No(format!("failed: {failed}"))),
        (Verdict::Fail, _) if document.checks.is_empty() => {
            Err(Failure::No("nothing could be checked; see \"skipped\"".to_owned()))
        }
        (Verdict::Fail, _) => {
            Err(Failure::No(format!("skipped: {}; --allow-skips NAME allows it", skipped.join("; "))))
        }
    }
}

fn report(arguments: &ReportArguments) -> Result {
    let (page, documents) = lab::results::report(&arguments.folder)?;
    if arguments.json {
        return Output { json: true }.document(&serde_json::json!({ "report": page, "results": documents }));
    }
    line(&page.display().to_string())
}

impl From<lab::Error> for Failure {
    fn from(error: lab::Error) -> Self {
        let text = error.to_string();
        match error.exit_code() {
            2 => Failure::Usage(text),
            3 => Failure::System(text),
            _ => Failure::No(text),
        }
    }
}
