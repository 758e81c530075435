//! `thalweg doctor`: can this host keep real-time promises?
//!
//! | module | contents |
//! |---|---|
//! | [`finding`] | findings and their remedies |
//! | [`judge`] | from facts ([`linux::probe`]) to findings, pure |
//! | [`fix`] | fixes of `--fix` |

mod finding;
mod fix;
mod judge;

use crate::apply;
use crate::failure::{Failure, Result};
use crate::output::{Output, line};
use clap::Args;
use clap::builder::PossibleValuesParser;
use finding::{Finding, Severity, Shown};
use linux::probe::{self, Facts, Tree, scheduling};
use linux::queueing;
use serde::Serialize;
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

/// All that can be fixed.
const ALL: &str = "all";

fn fixable() -> PossibleValuesParser {
    let ids = judge::kinds().filter(|kind| kind.fixable).map(|kind| kind.id);
    PossibleValuesParser::new(ids.chain([ALL]))
}

/// Time during which threads are watched for one that never waits.
const WATCH: Duration = Duration::from_millis(150);

#[derive(Serialize)]
struct Report<'a> {
    healthy: bool,
    findings: Vec<Shown<'a>>,
    notes: Vec<Shown<'a>>,
    fixed: &'a [fix::Done],
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
    let mut fixes = fix::Fixes::default();
    if !arguments.fix.is_empty() {
        let asked = |finding: &&Finding| arguments.fix.iter().any(|id| id == ALL || id == finding.kind.id);
        fixes = fix::apply(&tree, findings.iter().filter(asked));
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
        let (folder, refusal) = thalweg::control::local::check_run_dir();
        found.extend(judge::house::run_directory(&folder, &refusal, probe::room(&folder)));
        found.extend(judge::house::shared_memory(&probe::shared_memory()));
    }
    judge::sort(&mut found);
    found
}

fn report(arguments: &Arguments, findings: &[Finding], fixes: &fix::Fixes) -> Result {
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

fn text(serious: &[&Finding], shown: &[&Finding], notes: usize, fixes: &fix::Fixes) -> String {
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
    let row = |kind: &finding::Kind| {
        let fix = if kind.fixable { "yes" } else { "" };
        format!("| `{}` | {} | {} | {} | {fix} |", kind.id, kind.severity.name(), kind.when, kind.why)
    };
    judge::kinds().map(row).collect::<Vec<_>>().join("\n")
}

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
        let none = fix::Fixes::default();
        assert_eq!(text(&[], &[], 0, &none), "healthy: this host can keep real-time promises");
        assert!(text(&[], &[], 1, &none).ends_with("; 1 note with --verbose"));
        assert!(text(&[], &[&note], 1, &none).contains("x: 1 (should be: 2)"));
    }
}
