//! `thalweg plan`: from a contract to bounds, classes, proxies and queues, or to the reasons of a refusal.
//!
//! | module | contents |
//! |---|---|
//! | [`show`] | a plan as tables |
//! | [`explain`] | the terms of each delay, with their sources |
//! | [`export`] | its streams for a network with time-sensitive networking |
//! | [`figure`], [`map`] | the network as a picture |
//! | `recorded` | the contract with the rates and sizes of a recording (feature `recording`) |
//! | [`simulate`] | a plan in virtual time |

mod explain;
mod export;
mod figure;
mod layout;
mod map;
#[cfg(feature = "recording")]
mod recorded;
mod show;
mod simulate;

#[cfg(feature = "dashboard")]
pub(crate) use map::{Drawer, Edge, Flow, Map, Spot, percent};
#[cfg(feature = "sessions")]
pub(crate) use show::{offers, refusals};

use crate::failure::{Failure, Result};
use crate::output::{Output, line, table, tell};
use clap::Args;
use qos::contract::{Contract, check, hints};
use qos::placement::Watch;
use qos::plan::{Change, FileChange, Model, Plan, as_planned, differences, make, rewrite};
use qos::verification::{Measured, measured};
use serde::Deserialize;
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Compute from a contract how late every sample may arrive, what each link and node gets, and where proxies go; or
/// why it does not fit
///
/// Exit code 1 when it does not fit (the plan says why, and what would), or --check found something.
/// The keys of a contract: docs/planning.md.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg plan system.toml --explain\n         thalweg plan system.toml -o plan.toml\n         thalweg plan --diff old-plan.toml plan.toml\n         thalweg plan system.toml --measured verified.json"
)]
pub(crate) struct Arguments {
    /// The contract: a TOML file
    #[arg(value_name = "FILE", required_unless_present_any = ["diff", "whatif"], conflicts_with = "diff")]
    file: Option<PathBuf>,
    #[arg(long, default_value = "bound", help = models())]
    model: Model,
    /// Write the plan into this file, if everything fits
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw the network into this file (SVG): loads, bounds against deadlines, proxies
    #[arg(long, value_name = "FILE")]
    figure: Option<PathBuf>,
    /// Show the terms of each delay, and their sources
    #[arg(long)]
    explain: bool,
    /// Print its streams for a network controller instead, if everything fits
    #[arg(long, value_name = "FORM", conflicts_with_all = ["explain", "json", "check", "diff", "whatif", "simulate"])]
    export: Option<export::Form>,
    /// Only look for likely mistakes: shares below 100 %, deadlines nothing can keep, unused links …
    #[arg(long, conflicts_with_all = ["output", "figure", "explain", "diff", "whatif"])]
    check: bool,
    /// Show the changes that this contract would make instead; or (*.mcap) the rates and sizes of this recording, in the contract that is
    /// attached to it unless FILE is given
    #[arg(long, value_name = "CHANGED|RECORDING", conflicts_with = "diff")]
    whatif: Option<PathBuf>,
    /// Show the differences between two plan files
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"])]
    diff: Option<Vec<PathBuf>>,
    /// Write the sizes and execution times into the contract that `thalweg verify --json` measured, and plan anew
    #[arg(long, value_name = "VERIFIED", conflicts_with_all = ["check", "diff", "whatif"])]
    measured: Option<PathBuf>,
    /// Run the plan in virtual time for so long, with the worst known patterns of release, and show the largest delay
    /// beside each bound
    #[arg(long, value_name = "TIME", value_parser = crate::quantity::duration, conflicts_with_all = ["check", "diff", "whatif"])]
    simulate: Option<Duration>,
    /// Seed; the same one gives the same simulation
    #[arg(long, default_value_t = 1, requires = "simulate")]
    seed: u64,
    /// Print JSON: one document
    #[arg(long)]
    json: bool,
}

/// Help of `--model`.
fn models() -> String {
    let [others @ .., last] = Model::ALL.map(Model::name);
    format!("The model of delays: {} or {last}", others.join(", "))
}

/// Plans, checks or compares.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let output = Output { json: arguments.json };
    if let Some([old, new]) = arguments.diff.as_deref() {
        let changes = differences(&read_plan(old)?, &read_plan(new)?);
        return output.result(&json!({ "changes": changes }), || changes_text(&changes));
    }
    #[cfg(feature = "recording")]
    if let Some(recording) = arguments.whatif.as_deref().filter(|file| recorded::is_recording(file)) {
        return recorded::what_if(arguments, recording);
    }
    let Some(file) = &arguments.file else { return Err(Failure::Usage("no contract is named".to_owned())) };
    if let Some(verified) = &arguments.measured {
        write_back(file, verified)?;
    }
    let contract = read(file)?;
    if arguments.check {
        return lint(output, file, &contract);
    }
    let plan = planned(&contract, arguments.model);
    if let Some(changed) = &arguments.whatif {
        return what_if(arguments, &plan, &planned(&read(changed)?, arguments.model));
    }
    write(arguments, &contract, &plan)?;
    if let Some(form) = arguments.export.filter(|_| plan.feasible) {
        return line(export::text(form, &contract, &plan).trim_end());
    }
    if let Some(duration) = arguments.simulate {
        let simulation = simulate::run(&as_planned(&contract.system, &plan), &plan, duration, arguments.seed)?;
        let mut document = serde_json::to_value(&plan).map_err(std::io::Error::from)?;
        document["simulation"] = json!(simulation);
        output.result(&document, || format!("{}\n\n{}", show::verdict(&plan), simulation.text()))?;
        simulation.answer()?;
        return answer(&plan);
    }
    output.result(&plan, || if arguments.explain { explain::text(&plan) } else { show::text(&plan) })?;
    answer(&plan)
}

/// Exit code 1 if the plan does not fit; the reasons were printed already.
fn answer(plan: &Plan) -> Result {
    if plan.feasible { Ok(()) } else { Err(Failure::No(String::new())) }
}

fn read(file: &Path) -> Result<Contract> {
    Contract::read(&text_of(file)?).map_err(|e| Failure::Usage(format!("{}:{e}", file.display())))
}

/// Reads a plan file.
pub(crate) fn read_plan(file: &Path) -> Result<Plan> {
    Plan::from_text(&text_of(file)?).map_err(|e| Failure::Usage(format!("{}:{e}", file.display())))
}

/// Largest file that is read: twice the size of a contract with as many tables as are allowed.
const LARGEST: u64 = 64 << 20;

/// The text of a file that a user names.
pub(crate) fn text_of(file: &Path) -> Result<String> {
    let name = file.display();
    let read = || {
        let mut bytes = Vec::new();
        std::fs::File::open(file)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|e: std::io::Error| Failure::Usage(format!("{name}: cannot be read: {e}")))?;
    if bytes.len() as u64 > LARGEST {
        return Err(Failure::Usage(format!("{name}: too large: allowed are {} MiB", LARGEST >> 20)));
    }
    String::from_utf8(bytes).map_err(|e| {
        let (good, bad) = e.as_bytes().split_at(e.utf8_error().valid_up_to());
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        let byte = bad.first().copied().unwrap_or_default();
        Failure::Usage(format!("{name}:{line}: a byte 0x{byte:02x} is no text: allowed is UTF-8"))
    })
}

fn planned(contract: &Contract, model: Model) -> Plan {
    make(contract, model, &mut Clock::new())
}

/// The planner's clock.
pub(crate) struct Clock {
    began: Instant,
}

impl Clock {
    /// Starts the clock of a planning run.
    pub(crate) fn new() -> Self {
        Self { began: Instant::now() }
    }
}

impl Watch for Clock {
    fn elapsed(&mut self) -> Duration {
        self.began.elapsed()
    }
}

/// The system of a contract's file.
#[cfg(feature = "dashboard")]
pub(crate) fn read_system(file: &Path) -> Result<qos::system::System> {
    Ok(read(file)?.system)
}

fn write(arguments: &Arguments, contract: &Contract, plan: &Plan) -> Result {
    let into = |file: &Path, text: String| {
        std::fs::write(file, text).map_err(|e| Failure::System(format!("{}: cannot be written: {e}", file.display())))
    };
    if let Some(file) = &arguments.figure {
        into(file, figure::draw(&contract.system, plan))?;
    }
    match &arguments.output {
        Some(file) if plan.feasible => into(file, plan.to_text()),
        Some(file) => {
            tell(&format!("{}: not written: not everything fits", file.display()));
            Ok(())
        }
        None => Ok(()),
    }
}

/// The part of a document of `thalweg verify --json` that is used here.
#[derive(Deserialize)]
struct Verified {
    channels: Vec<Measured>,
}

/// Writes measured values back into the contract's file, and reports each change.
fn write_back(file: &Path, verified: &Path) -> Result {
    let text = text_of(verified)?;
    // With --watch there are several documents; the last one is complete.
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let seen: Verified = serde_json::from_str(last).map_err(|e| {
        Failure::Usage(format!("{}: {e}: allowed is what `thalweg verify --json` writes", verified.display()))
    })?;
    let changes = measured(&read(file)?.system, &seen.channels);
    let changed = rewrite(&text_of(file)?, &changes).map_err(|e| Failure::Usage(format!("{}:{e}", file.display())))?;
    replace(file, &changed)?;
    let said = |FileChange { table, name, key, value }: &FileChange| tell(&format!("{table} {name}: {key} = {value}"));
    changes.iter().for_each(said);
    if changes.is_empty() {
        tell(&format!("{}: as measured already, or nothing of it was measured", file.display()));
    }
    Ok(())
}

/// Replaces the file atomically.
fn replace(file: &Path, text: &str) -> Result {
    let failed = |e| Failure::System(format!("{}: cannot be written: {e}", file.display()));
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, file)).map_err(failed)
}

fn lint(output: Output, file: &Path, contract: &Contract) -> Result {
    let (findings, hints) = (check(contract), hints(contract));
    output.result(&json!({ "ok": findings.is_empty(), "findings": findings, "hints": hints }), || {
        let said = |f: &qos::contract::Finding| format!("{}:{}: {}: {}", file.display(), f.line, f.what, f.because);
        let hint = |h: &qos::contract::Hint| {
            format!("{}:{}: hint: topics {}: {}", file.display(), h.line, h.topics.join(", "), h.because)
        };
        let lines: Vec<String> = findings.iter().map(said).chain(hints.iter().map(hint)).collect();
        if lines.is_empty() { format!("{}: nothing found", file.display()) } else { lines.join("\n") }
    })?;
    if findings.is_empty() { Ok(()) } else { Err(Failure::No(String::new())) }
}

fn what_if(arguments: &Arguments, old: &Plan, new: &Plan) -> Result {
    let changes = differences(old, new);
    if arguments.json {
        let document = json!({ "changes": changes, "old": old, "new": new });
        Output { json: true }.document(&document)?;
    } else {
        line(&format!(
            "now:     {}\nchanged: {}\n\n{}",
            show::verdict(old),
            show::verdict(new),
            changes_text(&changes)
        ))?;
        if !new.refusals.is_empty() {
            line(&format!("\n{}", show::refusals(&new.refusals)))?;
        }
    }
    answer(new)
}

fn changes_text(changes: &[Change]) -> String {
    if changes.is_empty() {
        return "nothing differs".to_owned();
    }
    let row = |change: &Change| {
        let (old, new) = match (change.old.as_str(), change.new.as_str()) {
            ("", new) => ("(new)".to_owned(), new.to_owned()),
            (old, "") => (old.to_owned(), "(gone)".to_owned()),
            (old, new) => (old.to_owned(), new.to_owned()),
        };
        vec![change.what.clone(), change.key.to_owned(), old, new]
    };
    let rows: Vec<Vec<String>> = changes.iter().map(row).collect();
    table(&[("what", '<'), ("value", '<'), ("old", '<'), ("new", '<')], &rows)
}
