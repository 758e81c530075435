//! `thalweg apply` and `thalweg restore`: queues of a host, and priorities and proxies of channels, set from a file
//! or a plan, proved, and undone.
//!
//! | module | contents |
//! |---|---|
//! | [`host_file`] | the file: queues and channels of one host |
//! | [`planned`] | a plan on one of its hosts: the queues of its devices, the settings of running channels |
//! | [`flows`] | queues and rates of single flows |
//! | [`ends`] | the ends of channels after that |
//! | [`proof`] | the treatment of each class and flow after the queues were installed |
//! | [`groups`] | limits of control groups |
//! | [`channels`] | priorities and proxies of running channels, and the journal that undoes them |
//! | `all` | a plan on all its hosts, by their broker (feature `sessions`) |

#[cfg(feature = "sessions")]
mod all;
pub(crate) mod channels;
mod ends;
mod flows;
mod groups;
pub(crate) mod host_file;
pub(crate) mod planned;
mod proof;

use crate::ends::Which;
use crate::failure::{Failure, Result};
use crate::output::{line, tell};
use crate::participant::{Common, Participant};
use crate::plan::read_plan;
use channels::TakenBack;
use clap::Args;
use host_file::{Channel, HostFile};
use linux::cgroup::{self, Setting};
use linux::queueing::{self, Adjusted, Outcome, QueueError, Reason, Restored, Scheduler, Wanted, Way};
use linux::tunnel::{self, Tunnel};
use proof::{FlowRow, Row, flows_text, prove, rows_text};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use thalweg::admin::EndReport;

/// Install the queues, set the channels' priorities and place the proxies that a file or a plan describes, and prove what is effective
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg apply host.toml --dry-run\n         thalweg apply plan.toml\n         thalweg apply plan.toml --all --broker 10.0.0.1:7450 --keys keys\n\nA file:\n  [[device]]\n  name = \"eth0\"\n  rate = \"100 Mbit/s\"\n  scheduler = \"strict\"\n\n  [[channel]]\n  publisher = \"/arm/out\"\n  subscriber = \"/controller/in\"\n  class = \"high\"\n  sched = \"fifo:30\"\n  proxy = \"relay:gate\"\n\nA plan of `thalweg plan -o`: the queues of this host, where its contract names devices, and classes, threads and proxies of its channels, by topic, subscriber's port and publisher's node.\nAll keys: docs/queueing.md. `thalweg restore` undoes it."
)]
pub(crate) struct ApplyArguments {
    /// A TOML file of your own, or a plan
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print the commands that would do the same, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// The node of the plan that this host is [default: the one of this host's name]
    #[arg(long, value_name = "NODE")]
    host: Option<String>,
    /// Of a plan, only the queues of this host: on a router or switch, or before the programs have started
    #[arg(long)]
    queues: bool,
    #[cfg(feature = "sessions")]
    #[command(flatten)]
    all: all::AllArguments,
    #[command(flatten)]
    common: Common,
}

/// Undo what `thalweg apply` did on this host, or what a program left that installed queues and crashed
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg restore\n         thalweg restore --all --broker 10.0.0.1:7450 --keys keys")]
pub(crate) struct RestoreArguments {
    #[cfg(feature = "sessions")]
    #[command(flatten)]
    all: all::AllArguments,
    #[command(flatten)]
    common: Common,
}

/// Applies a file, or prints what it would do.
pub(crate) fn apply(arguments: &ApplyArguments) -> Result {
    #[cfg(feature = "sessions")]
    if arguments.all.all {
        return all::apply(arguments);
    }
    let prio = has_prio();
    let (file, mut participant) = match is_plan(&arguments.file) {
        true => of_plan(arguments, prio.unwrap_or(false))?,
        false if arguments.host.is_some() || arguments.queues => {
            return Err(Failure::Usage("--host and --queues: only with a plan of `thalweg plan -o`".to_owned()));
        }
        false => (HostFile::read(&arguments.file, prio.unwrap_or(false)).map_err(Failure::Usage)?, None),
    };
    if arguments.dry_run {
        let strict = file.devices.iter().any(|(_, wanted)| wanted.scheduler == Scheduler::Strict);
        if strict && prio.is_none() {
            tell("only root can find out whether this kernel has prio, which strict would take instead of pfifo_fast");
        }
        return dry_run(arguments, &file);
    }
    if participant.is_none() {
        participant = open(arguments, &file)?;
    }
    let directory = directory();
    let wanted: Vec<Wanted> = file.devices.iter().map(|(_, wanted)| wanted.clone()).collect();
    let there = queueing::installed(&directory).ok().flatten().is_some_and(|present| !present.devices.is_empty());
    // Queues are made on tunnels, and taken away before them.
    let made = tunnel::make(&directory, &file.borders.tunnels).map_err(failure)?;
    let (installed, adjusted) = queueing::adjust_with(&directory, &wanted, &file.borders.boundaries)
        .map_err(|e| in_file(arguments, &file, e))?;
    installed.restored.iter().for_each(|restored| tell(&format!("not in the file any more: {restored}")));
    if there {
        adjusted.iter().for_each(|one| tell(&way_text(one)));
    }
    let rows = wanted.iter().map(prove).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect::<Vec<_>>();
    let flows: Vec<FlowRow> = wanted.iter().flat_map(proof::flows).collect();
    let limited = cgroup::limit(&directory, &file.groups).map_err(groups::failure)?;
    let set = |participant| channels::apply(participant, &file.channels, &directory).map(channels::Applied::keep);
    let ends = ends::latest(participant.as_ref().map_or(Ok(Vec::new()), set)?);
    installed.keep().map_err(failure)?;
    made.keep().map_err(failure)?.iter().for_each(|change| tell(change));
    show(arguments, &rows, &flows, &ends, &limited.keep())
}

/// A device whose queues were ours before.
fn way_text(Adjusted { device, way }: &Adjusted) -> String {
    match way {
        Way::InPlace(changes) if changes.is_empty() => format!("{device}: has these queues already"),
        Way::InPlace(changes) => format!("{device}: changed in place, {} changes, no packet lost", changes.len()),
        Way::Anew => format!("{device}: made anew, packets that waited are lost"),
    }
}

/// `true` if `thalweg plan` wrote the file: it then names its contract.
fn is_plan(file: &Path) -> bool {
    let table = std::fs::read_to_string(file).ok().and_then(|text| text.parse::<toml::Table>().ok());
    table.is_some_and(|table| table.contains_key("contract"))
}

/// The queues of a plan for this host, its settings for the running channels, and the node that reaches them.
fn of_plan(arguments: &ApplyArguments, prio: bool) -> Result<(HostFile, Option<Participant>)> {
    let plan = read_plan(&arguments.file)?;
    if !plan.feasible {
        let file = arguments.file.display();
        return Err(Failure::No(format!(
            "{file}: the plan does not fit (`thalweg plan` says why): nothing is applied"
        )));
    }
    let devices = planned::queues(&plan, arguments.host.as_deref(), prio)?;
    let devices = devices.into_iter().map(|wanted| (0, wanted)).collect();
    let borders = planned::borders(&plan, arguments.host.as_deref())?;
    if arguments.queues {
        return Ok((HostFile { devices, channels: Vec::new(), groups: Vec::new(), borders }, None));
    }
    let mut participant = arguments.common.open("apply")?;
    let channels = planned::channels(&plan, &participant.settled())?;
    Ok((HostFile { devices, channels, groups: Vec::new(), borders }, Some(participant)))
}

/// The node that reaches the channels, if there are any. Their ports are looked up before anything is changed.
fn open(arguments: &ApplyArguments, file: &HostFile) -> Result<Option<Participant>> {
    if file.channels.is_empty() {
        return Ok(None);
    }
    let mut participant = arguments.common.open("apply")?;
    channels::check(&mut participant, &file.channels)?;
    Ok(Some(participant))
}

/// The directory of the journals. For root it is one place of the host: queues belong to the host, for any user that logs in as
/// root.
pub(crate) fn directory() -> PathBuf {
    let (run_dir, asked_for) = thalweg::control::run_dir();
    let of_the_host = rustix::process::geteuid().is_root() && !asked_for;
    let dir = if of_the_host { PathBuf::from("/run/thalweg") } else { run_dir };
    dir.join("applied")
}

/// `true` if the kernel has `prio`; `None` if this user may not try.
pub(crate) fn has_prio() -> Option<bool> {
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
    let wanted: Vec<Wanted> = file.devices.iter().map(|(_, wanted)| wanted.clone()).collect();
    let mut commands: Vec<String> = file.borders.tunnels.iter().flat_map(Tunnel::commands).collect();
    commands.extend(queueing::commands(&wanted, &file.borders.boundaries));
    commands.extend(cgroup::commands(&file.groups).map_err(groups::failure)?);
    commands.extend(file.channels.iter().map(|(_, channel)| set(channel)));
    if arguments.common.json {
        return arguments.common.output().document(&json!({ "commands": commands }));
    }
    line(&commands.join("\n"))
}

#[derive(Serialize)]
struct Proof<'a> {
    classes: &'a [Row],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    flows: &'a [FlowRow],
    channels: &'a [EndReport],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [Setting],
    effective: bool,
}

fn show(arguments: &ApplyArguments, rows: &[Row], flows: &[FlowRow], ends: &[EndReport], groups: &[Setting]) -> Result {
    // A single queue for all classes is as asked for, and no fault.
    let effective = rows.iter().all(Row::effective);
    let proof = Proof { classes: rows, flows, channels: ends, groups, effective };
    arguments.common.output().result(&proof, || {
        let limits = (!groups.is_empty()).then(|| groups::limits_text(groups));
        let single = (!flows.is_empty()).then(|| flows_text(flows));
        let tables =
            [(!rows.is_empty()).then(|| rows_text(rows)), single, limits, (!ends.is_empty()).then(|| ends::text(ends))];
        tables.into_iter().flatten().chain(["`thalweg restore` undoes it".to_owned()]).collect::<Vec<_>>().join("\n\n")
    })
}

/// Undoes what was applied.
pub(crate) fn restore(arguments: &RestoreArguments) -> Result {
    #[cfg(feature = "sessions")]
    if arguments.all.all {
        return all::restore(arguments);
    }
    let directory = directory();
    let restored = queueing::restore(&directory).map_err(failure)?;
    let tunnels: Vec<String> = tunnel::restore(&directory).map_err(failure)?.iter().map(ToString::to_string).collect();
    let groups = cgroup::restore(&directory).map_err(groups::failure)?;
    let limits: Vec<String> = groups.iter().map(groups::restored_text).collect();
    let TakenBack { told, stuck } = take_back(arguments, &directory)?;
    let outcome =
        |r: &Restored| json!({"device": r.device, "as_before": r.outcome == Outcome::AsBefore, "text": r.to_string()});
    let document = json!({"devices": restored.iter().map(outcome).collect::<Vec<_>>(), "tunnels": tunnels, "channels": told, "groups": limits});
    arguments.common.output().result(&document, || {
        let lines: Vec<String> = restored
            .iter()
            .map(ToString::to_string)
            .chain(tunnels.iter().chain(&limits).chain(&told).cloned())
            .collect();
        if lines.is_empty() { "nothing was applied".to_owned() } else { lines.join("\n") }
    })?;
    match restored.iter().find(|r| matches!(r.outcome, Outcome::Differs(_))) {
        Some(differs) => Err(Failure::No(format!("{differs}; docs/queueing.md says how to restore by hand"))),
        None if groups.iter().any(|(_, outcome)| matches!(outcome, cgroup::Outcome::Stuck(_))) => {
            Err(Failure::No(format!("{}: `thalweg restore` again when that is possible", limits.join("; "))))
        }
        None => none_stuck(stuck.len()),
    }
}

/// The settings of channels that this host's journal names.
fn take_back(arguments: &RestoreArguments, directory: &Path) -> Result<TakenBack> {
    if !channels::are_applied(directory) {
        return Ok(TakenBack::default());
    }
    let mut participant: Participant = arguments.common.open("restore")?;
    let nodes = participant.settled();
    channels::take_back(&participant, &nodes, directory)
}

fn none_stuck(stuck: usize) -> Result {
    match stuck {
        0 => Ok(()),
        _ => Err(Failure::No(format!(
            "{stuck} ends of channels are not as before: `thalweg restore` again when their programs answer"
        ))),
    }
}

fn failure(error: QueueError) -> Failure {
    Failure::System(error.to_string())
}

/// Turns a missing device into a fault of the file.
fn in_file(arguments: &ApplyArguments, file: &HostFile, error: QueueError) -> Failure {
    let Reason::NoDevice(name) = &error.reason else { return failure(error) };
    let shown = arguments.file.display();
    match file.devices.iter().find(|(line, wanted)| *line > 0 && wanted.device == *name) {
        Some((at, _)) => Failure::Usage(format!("{shown}:{at}: name = {name:?}: {error}")),
        None => Failure::Usage(format!("{shown}: {error}: the contract's `devices` names it")),
    }
}
