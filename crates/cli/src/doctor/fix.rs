//! Fixes of `--fix` at run time, each with the command that undoes it.

use super::finding::{Finding, Fix};
use crate::apply;
use linux::probe::Tree;
use linux::queueing::{self, Scheduler, Wanted};
use serde::Serialize;
use std::fmt;
use std::io;

/// A fix that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Done {
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
pub(super) struct Fixes {
    /// Fixes that were made.
    pub done: Vec<Done>,
    /// Fixes that failed, and the reasons.
    pub failed: Vec<String>,
    /// A fix failed for want of permission.
    pub forbidden: bool,
}

/// Makes all fixes; a failure does not stop the others.
pub(super) fn apply<'a>(tree: &Tree, findings: impl Iterator<Item = &'a Finding>) -> Fixes {
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

/// Packets per band; 1000 is the default of devices.
const QUEUE: u32 = 1000;
/// Percentage of a link's rate that packets get. Preambles, checksums and gaps take the rest: 24 of 1538 bytes.
const PERCENT: u64 = 98;

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
        map: None,
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

#[cfg(test)]
mod tests {
    use super::*;

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
