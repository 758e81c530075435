//! `thalweg doctor`: can this host keep real-time promises?
//!
//! [`judge`] makes findings from facts ([`linux::probe`]). `--fix` fixes some of them at run time, each with the command
//! that undoes it.

mod judge;

use crate::apply;
use crate::failure::{Failure, Result};
use crate::output::{Output, line};
use clap::Args;
use clap::builder::PossibleValuesParser;
use judge::{Finding, Fix, Severity, Shown};
use linux::probe::{self, Facts, Tree, scheduling};
use linux::queueing::{self, Scheduler, Wanted};
use serde::Serialize;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Say whether this host can keep real-time promises: each finding with its remedy
///
/// Exit code 1 when there is a fault. All kinds of findings: docs/diagnosis.md.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg doctor --verbose\n         sudo thalweg doctor --fix")]
pub(crate) struct Arguments {
    /// Fix what can be fixed at run time (--fix=ID,ID: only these findings), print how to undo it, and look again
    #[arg(long, value_name = "ID", num_args = 0..=1, require_equals = true, value_delimiter = ',', default_missing_value = ALL, value_parser = fixable())]
    fix: Vec<String>,
    /// Also show findings that harm nobody by themselves
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON: one document
    #[arg(long)]
    json: bool,
    /// List all kinds of findings instead, as in docs/diagnosis.md
    #[arg(long, conflicts_with_all = ["fix", "json"])]
    list: bool,
    /// Read proc and sys below this folder instead of this host's
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
}

fn fixable() -> PossibleValuesParser {
    let ids = judge::kinds().filter(|kind| kind.fixable).map(|kind| kind.id);
    PossibleValuesParser::new(ids.chain([ALL]))
}

#[derive(Serialize)]
struct Report<'a> {
    healthy: bool,
    findings: Vec<Shown<'a>>,
    notes: Vec<Shown<'a>>,
    fixed: &'a [Done],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_fixed: Vec<String>,
}

/// Examines, fixes if asked to, and reports.
pub(crate) fn run(arguments: &Arguments) -> Result {
    if arguments.list {
        return line(&table());
    }
    let tree = arguments.root.as_ref().map_or_else(Tree::host, Tree::at);
    let mut findings = examine(&tree);
    let mut fixes = Fixes::default();
    if !arguments.fix.is_empty() {
        let asked = |finding: &&Finding| arguments.fix.iter().any(|id| id == ALL || id == finding.kind.id);
        fixes = apply_fixes(&tree, findings.iter().filter(asked));
        findings = examine(&tree);
    }
    report(arguments, &findings, &fixes)?;
    if fixes.forbidden {
        return Err(Failure::System("changing this needs root: sudo thalweg doctor --fix".into()));
    }
    let fault = findings.iter().any(|finding| finding.kind.severity == Severity::Fault);
    if fault { Err(Failure::No(String::new())) } else { Ok(()) }
}

/// All findings, the worst first.
fn examine(tree: &Tree) -> Vec<Finding> {
    let facts = Facts::read(tree);
    let mut found = judge::judge(&facts);
    found.extend(judge::threads::hogs(&scheduling::hogs(tree, WATCH, judge::threads::HOGS_PERCENT)));
    if tree.is_host() {
        let present = queueing::installed(&apply::directory()).ok().flatten();
        let lands = judge::queues::read(&facts.devices);
        found.extend(judge::queues::judge(&lands, present.as_ref(), facts.network.v6));
        let (folder, refusal) = thalweg::control::check_run_dir();
        found.extend(judge::run_directory(&folder, &refusal, probe::room(&folder)));
        found.extend(judge::shared_memory(&probe::shared_memory()));
    }
    judge::sort(&mut found);
    found
}

fn report(arguments: &Arguments, findings: &[Finding], fixes: &Fixes) -> Result {
    let (notes, serious): (Vec<_>, Vec<_>) = findings.iter().partition(|f| f.kind.severity == Severity::Note);
    let report = Report {
        healthy: serious.is_empty(),
        findings: serious.iter().copied().map(Shown::from).collect(),
        notes: notes.iter().copied().map(Shown::from).collect(),
        fixed: &fixes.done,
        not_fixed: fixes.failed.clone(),
    };
    let shown = if arguments.verbose { &notes[..] } else { &[] };
    Output { json: arguments.json }.result(&report, || text(&serious, shown, notes.len(), fixes))
}

fn text(serious: &[&Finding], shown: &[&Finding], notes: usize, fixes: &Fixes) -> String {
    let done = fixes.done.iter().map(ToString::to_string);
    let failed = fixes.failed.iter().map(|why| format!("not fixed {why}"));
    let found = serious.iter().chain(shown).map(ToString::to_string);
    let hidden = match notes - shown.len() {
        0 => String::new(),
        1 => "; 1 note with --verbose".into(),
        some => format!("; {some} notes with --verbose"),
    };
    let count = |severity| serious.iter().filter(|f| f.kind.severity == severity).count();
    let verdict = match (count(Severity::Fault), count(Severity::Warning)) {
        (0, 0) => format!("healthy: this host can keep real-time promises{hidden}"),
        (0, warnings) => format!("no fault, {}{hidden}", plural(warnings, "warning")),
        (faults, warnings) => format!("{}, {}{hidden}", plural(faults, "fault"), plural(warnings, "warning")),
    };
    done.chain(failed).chain(found).chain([verdict]).collect::<Vec<_>>().join("\n")
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Every kind of finding, as rows of a table in Markdown.
fn table() -> String {
    let row = |kind: &judge::Kind| {
        let fix = if kind.fixable { "yes" } else { "" };
        format!("| `{}` | {} | {} | {} | {fix} |", kind.id, kind.severity.name(), kind.when, kind.why)
    };
    judge::kinds().map(row).collect::<Vec<_>>().join("\n")
}

/// A fix that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Done {
    /// The kind of finding.
    id: &'static str,
    /// The changed value's name.
    what: String,
    /// The value before.
    before: String,
    /// The value now.
    after: String,
    /// The command that undoes it.
    undo: String,
    /// The way to keep it across a restart of the host; empty: see the host's own settings.
    keep: String,
}

/// The result of all fixes.
#[derive(Debug, Default)]
struct Fixes {
    /// Fixes that were made.
    done: Vec<Done>,
    /// Fixes that failed, and the reasons.
    failed: Vec<String>,
    /// A fix failed for want of permission.
    forbidden: bool,
}

/// Makes all fixes; a failure does not stop the others.
fn apply_fixes<'a>(tree: &Tree, findings: impl Iterator<Item = &'a Finding>) -> Fixes {
    let (mut fixes, mut wanted) = (Fixes::default(), Vec::new());
    for finding in findings {
        let id = finding.kind.id;
        match &finding.fix {
            Some(Fix::Write { files, value }) => {
                files.iter().for_each(|file| fixes.note(id, write(tree, id, file, value)));
            }
            Some(Fix::Queues { device, speed }) => wanted.push((id, device.clone(), *speed)),
            Some(Fix::Recover) => fixes.note(id, recover(id)),
            None => {}
        }
    }
    // All devices at once: a second installation would remove the first one.
    match install(&wanted) {
        Ok(done) => fixes.done.extend(done),
        Err(error) => wanted.iter().take(1).for_each(|(id, ..)| fixes.failed(id, &error)),
    }
    fixes
}

impl Fixes {
    fn note(&mut self, id: &str, result: io::Result<Done>) {
        match result {
            Ok(done) => self.done.push(done),
            Err(error) => self.failed(id, &error),
        }
    }

    fn failed(&mut self, id: &str, error: &io::Error) {
        let rights = matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem);
        self.forbidden |= rights;
        self.failed.push(format!("{id}: {error}"));
    }
}

/// Strict bands by class, below the link's rate, so that packets wait here, where classes count.
fn install(wanted: &[(&'static str, String, u64)]) -> io::Result<Vec<Done>> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let queues = wanted.iter().map(|(_, device, speed)| Wanted {
        device: device.clone(),
        rate: speed.saturating_mul(1_000_000 / 100 * PERCENT),
        queue: QUEUE,
        scheduler: Scheduler::Strict,
        segments: None,
        encapsulation: 0,
        labels: false,
        map: None,
        boundary: false,
    });
    let installed = queueing::install(&apply::directory(), &queues.collect::<Vec<_>>())?;
    installed.keep()?;
    let done = wanted.iter().map(|(id, device, speed)| Done {
        id,
        what: format!("the queue of {device}"),
        before: "without classes".into(),
        after: format!("strict bands by class at {PERCENT} % of {speed} Mbit/s"),
        undo: "thalweg restore".into(),
        keep: format!("thalweg apply at each start, with {device} in the file"),
    });
    Ok(done.collect())
}

fn recover(id: &'static str) -> io::Result<Done> {
    let restored = queueing::recover(&apply::directory())?;
    let after: Vec<String> = restored.iter().map(ToString::to_string).collect();
    let (what, before) = ("queues of a process that is gone".into(), "left behind".into());
    Ok(Done { id, what, before, after: after.join("; "), undo: "none is needed".into(), keep: String::new() })
}

/// Writes a value, and checks that the kernel took it.
fn write(tree: &Tree, id: &'static str, file: &str, value: &str) -> io::Result<Done> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("/{file}: {error}"));
    let before = present(tree, file).ok_or_else(|| named(io::ErrorKind::NotFound.into()))?;
    std::fs::write(tree.path(file), value).map_err(named)?;
    let after = present(tree, file).unwrap_or_default();
    if after != value {
        return Err(named(io::Error::other(format!("{value} was written, and it is {after}"))));
    }
    let (what, undo, keep) = match file.strip_prefix("proc/sys/") {
        Some(path) => {
            let name = path.replace('/', ".");
            let keep = format!("echo '{name} = {value}' >> /etc/sysctl.d/60-thalweg.conf");
            (name.clone(), format!("sysctl -w {name}={before}"), keep)
        }
        None => (format!("/{file}"), format!("echo {before} > /{file}"), String::new()),
    };
    Ok(Done { id, what, before, after, undo, keep })
}

/// A file's value; of several words, the one in brackets (`always [madvise] never`).
fn present(tree: &Tree, file: &str) -> Option<String> {
    let text = tree.text(file)?;
    let chosen = text.split_once('[').and_then(|(_, rest)| Some(rest.split_once(']')?.0.to_owned()));
    Some(chosen.unwrap_or(text))
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, what, before, after, undo, keep } = self;
        write!(f, "fixed    {id}: {what} was {before}, is {after} until the next start\n         undo    {undo}")?;
        if keep.is_empty() { Ok(()) } else { write!(f, "\n         keep    {keep}") }
    }
}

/// All that can be fixed.
const ALL: &str = "all";
/// Time during which threads are watched for one that never waits.
const WATCH: Duration = Duration::from_millis(150);
/// Packets per band; 1000 is the default of devices.
const QUEUE: u32 = 1000;
/// Percentage of a link's rate that packets get. Preambles, checksums and gaps take the rest: 24 of 1538 bytes.
const PERCENT: u64 = 98;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_lists_every_kind_of_finding() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/diagnosis.md");
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(&table()), "docs/diagnosis.md should have this table:\n{}", table());
    }

    #[test]
    fn no_two_kinds_have_one_name() {
        let mut names: Vec<&str> = judge::kinds().map(|kind| kind.id).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn the_verdict_counts_and_says_what_is_hidden() {
        let kind = judge::kinds().find(|kind| kind.severity == Severity::Note).unwrap();
        let note = kind.found("x", 1, "2").remedy("y");
        let none = Fixes::default();
        assert_eq!(text(&[], &[], 0, &none), "healthy: this host can keep real-time promises");
        assert!(text(&[], &[], 1, &none).ends_with("; 1 note with --verbose"));
        assert!(text(&[], &[&note], 1, &none).contains("x: 1 (should be: 2)"));
    }

    #[test]
    fn a_value_is_written_and_its_undo_named() {
        let root = std::env::temp_dir().join(format!("thalweg-fix-{}", std::process::id()));
        std::fs::create_dir_all(root.join("proc/sys/net/core")).unwrap();
        std::fs::write(root.join("proc/sys/net/core/rmem_max"), "65536\n").unwrap();
        let done = write(&Tree::at(&root), "receive-buffer", "proc/sys/net/core/rmem_max", "4194304").unwrap();
        assert_eq!((done.before.as_str(), done.undo.as_str()), ("65536", "sysctl -w net.core.rmem_max=65536"));
        assert_eq!(std::fs::read_to_string(root.join("proc/sys/net/core/rmem_max")).unwrap(), "4194304");
        let missing = write(&Tree::at(&root), "x", "proc/sys/net/core/none", "1").unwrap_err();
        assert!(missing.to_string().contains("/proc/sys/net/core/none"), "{missing}");
        std::fs::remove_dir_all(root).unwrap();
    }
}
