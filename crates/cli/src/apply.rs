//! `thalweg apply` and `thalweg restore`: queues of a host, and priorities and proxies of channels, set from a file
//! or a plan, proved, and undone.

pub(crate) mod channels;
pub(crate) mod host_file;
mod planned;
mod proof;

use crate::ends::Which;
use crate::failure::{Failure, Result};
use crate::output::{line, table, tell};
use crate::plan::read_plan;
use crate::session::{Common, Session};
use channels::TakenBack;
use clap::Args;
use host_file::{Channel, HostFile};
use linux::queueing::{self, Outcome, QueueError, Reason, Restored, Scheduler, Wanted};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use thalweg::admin::EndReport;

/// Install the queues, set the channels' priorities and place the proxies that a file or a plan describes, and prove what is effective
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg apply host.toml --dry-run\n         thalweg apply plan.toml\n\nA file:\n  [[device]]\n  name = \"eth0\"\n  rate = \"100 Mbit/s\"\n  scheduler = \"strict\"\n\n  [[channel]]\n  publisher = \"/arm/out\"\n  subscriber = \"/controller/in\"\n  class = \"high\"\n  sched = \"fifo:30\"\n  proxy = \"relay:gate\"\n\nA plan of `thalweg plan -o`: classes, threads and proxies of its channels, by topic, subscriber's port and publisher's node.\nAll keys: docs/queueing.md. `thalweg restore` undoes it."
)]
pub(crate) struct ApplyArguments {
    /// A TOML file of your own, or a plan
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print the commands that would do the same, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: Common,
}

/// Undo what `thalweg apply` did on this host, or what a program left that installed queues and crashed
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg restore")]
pub(crate) struct RestoreArguments {
    #[command(flatten)]
    common: Common,
}

/// Applies a file, or prints what it would do.
pub(crate) fn apply(arguments: &ApplyArguments) -> Result {
    let prio = has_prio();
    let (file, mut session) = match is_plan(&arguments.file) {
        true => of_plan(arguments)?,
        false => (HostFile::read(&arguments.file, prio.unwrap_or(false)).map_err(Failure::Usage)?, None),
    };
    if arguments.dry_run {
        let strict = file.devices.iter().any(|(_, wanted)| wanted.scheduler == Scheduler::Strict);
        if strict && prio.is_none() {
            tell("only root can find out whether this kernel has prio, which strict would take instead of pfifo_fast");
        }
        return dry_run(arguments, &file);
    }
    if session.is_none() {
        session = open(arguments, &file)?;
    }
    let directory = directory();
    let wanted: Vec<Wanted> = file.devices.iter().map(|(_, wanted)| wanted.clone()).collect();
    let installed = queueing::install(&directory, &wanted).map_err(|e| in_file(arguments, &file, e))?;
    installed.restored.iter().for_each(|restored| tell(&format!("earlier queues taken away: {restored}")));
    let rows = wanted.iter().map(proof::of).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect::<Vec<_>>();
    let set = |session| channels::apply(session, &file.channels, &directory).map(channels::Applied::keep);
    let ends = session.as_ref().map_or(Ok(Vec::new()), set)?;
    installed.keep().map_err(failure)?;
    show(arguments, &rows, &ends)
}

/// `true` if `thalweg plan` wrote the file: it then names its contract.
fn is_plan(file: &Path) -> bool {
    let table = std::fs::read_to_string(file).ok().and_then(|text| text.parse::<toml::Table>().ok());
    table.is_some_and(|table| table.contains_key("contract"))
}

/// The settings of a plan for the running channels, and the node that reaches them.
fn of_plan(arguments: &ApplyArguments) -> Result<(HostFile, Option<Session>)> {
    let plan = read_plan(&arguments.file)?;
    if !plan.feasible {
        let file = arguments.file.display();
        return Err(Failure::No(format!(
            "{file}: the plan does not fit (`thalweg plan` says why): nothing is applied"
        )));
    }
    let mut session = arguments.common.open("apply")?;
    let channels = planned::channels(&plan, &session.settled())?;
    Ok((HostFile { devices: Vec::new(), channels }, Some(session)))
}

/// The node that reaches the channels, if there are any. Their ports are looked up before anything is changed.
fn open(arguments: &ApplyArguments, file: &HostFile) -> Result<Option<Session>> {
    if file.channels.is_empty() {
        return Ok(None);
    }
    let mut session = arguments.common.open("apply")?;
    channels::check(&mut session, &file.channels)?;
    Ok(Some(session))
}

/// The directory of the journals. For root it is one place of the host: queues belong to the host, for any user that logs in as
/// root.
pub(crate) fn directory() -> PathBuf {
    let (run_dir, asked_for) = thalweg::control::local::run_dir();
    let of_the_host = rustix::process::geteuid().is_root() && !asked_for;
    let dir = if of_the_host { PathBuf::from("/run/thalweg") } else { run_dir };
    dir.join("applied")
}

/// `true` if the kernel has `prio`; `None` if this user may not try.
fn has_prio() -> Option<bool> {
    queueing::probe().ok().map(|found| found.contains(&("prio", true)))
}

fn dry_run(arguments: &ApplyArguments, file: &HostFile) -> Result {
    let set = |c: &Channel| {
        let end = match c.end {
            Which::Both => "",
            Which::Publisher => " --end publisher",
            Which::Subscriber if c.changes.is_empty() => "",
            Which::Subscriber => " --end subscriber",
        };
        format!("thalweg set {} {} {}{end}", c.publisher, c.subscriber, c.words.join(" "))
    };
    let mut commands: Vec<String> = file.devices.iter().flat_map(|(_, wanted)| wanted.commands()).collect();
    commands.extend(file.channels.iter().map(|(_, channel)| set(channel)));
    if arguments.common.json {
        return arguments.common.output().document(&json!({ "commands": commands }));
    }
    line(&commands.join("\n"))
}

#[derive(Serialize)]
struct Proof<'a> {
    classes: &'a [proof::Row],
    channels: &'a [EndReport],
    effective: bool,
}

fn show(arguments: &ApplyArguments, rows: &[proof::Row], ends: &[EndReport]) -> Result {
    // A single queue for all classes is as asked for, and no fault.
    let effective = rows.iter().all(proof::Row::effective);
    let proof = Proof { classes: rows, channels: ends, effective };
    arguments.common.output().result(&proof, || {
        let tables = [(!rows.is_empty()).then(|| proof::text(rows)), (!ends.is_empty()).then(|| ends_text(ends))];
        tables.into_iter().flatten().chain(["`thalweg restore` undoes it".to_owned()]).collect::<Vec<_>>().join("\n\n")
    })
}

fn ends_text(ends: &[EndReport]) -> String {
    let headers =
        [("channel", '<'), ("end", '<'), ("thread", '<'), ("mark", '<'), ("lands in", '<'), ("effective", '<')];
    let row = |end: &EndReport| {
        let thread = match end.tid {
            Some(tid) => format!("{tid}: {} {}", end.policy, end.priority),
            None => "-".to_owned(),
        };
        let mark = end.dscp.map_or("-".to_owned(), |dscp| dscp.to_string());
        let effective = if end.effective { "yes".to_owned() } else { format!("no: {}", end.because) };
        let channel = format!("{} → {}", end.publisher, end.subscriber);
        vec![channel, end.end.clone(), thread, mark, end.band.clone(), effective]
    };
    table(&headers, &ends.iter().map(row).collect::<Vec<_>>())
}

/// Undoes what was applied.
pub(crate) fn restore(arguments: &RestoreArguments) -> Result {
    let directory = directory();
    let restored = queueing::restore(&directory).map_err(failure)?;
    let TakenBack { told, stuck } = if channels::are_applied(&directory) {
        let mut session: Session = arguments.common.open("restore")?;
        let nodes = session.settled();
        channels::take_back(&session, &nodes, &directory)?
    } else {
        TakenBack::default()
    };
    let outcome =
        |r: &Restored| json!({"device": r.device, "as_before": r.outcome == Outcome::AsBefore, "text": r.to_string()});
    let document = json!({"devices": restored.iter().map(outcome).collect::<Vec<_>>(), "channels": told});
    arguments.common.output().result(&document, || {
        let lines: Vec<String> = restored.iter().map(ToString::to_string).chain(told.iter().cloned()).collect();
        if lines.is_empty() { "nothing was applied".to_owned() } else { lines.join("\n") }
    })?;
    match restored.iter().find(|r| matches!(r.outcome, Outcome::Differs(_))) {
        Some(differs) => Err(Failure::No(format!("{differs}; docs/queueing.md says how to restore by hand"))),
        None if stuck > 0 => Err(Failure::No(format!(
            "{stuck} ends of channels are not as before: `thalweg restore` again when their programs answer"
        ))),
        None => Ok(()),
    }
}

fn failure(error: QueueError) -> Failure {
    Failure::System(error.to_string())
}

/// Turns a missing device into a fault of the file.
fn in_file(arguments: &ApplyArguments, file: &HostFile, error: QueueError) -> Failure {
    let Reason::NoDevice(name) = &error.reason else { return failure(error) };
    let at = file.devices.iter().find(|(_, wanted)| wanted.device == *name).map_or(0, |(line, _)| *line);
    Failure::Usage(format!("{}:{at}: name = {name:?}: {error}", arguments.file.display()))
}
