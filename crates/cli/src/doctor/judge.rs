//! Findings and their remedies, and how facts become findings. Pure: no clock, no I/O.
//!
//! | module | subject |
//! |---|---|
//! | [`threads`] | priorities of threads, and their processor time |
//! | [`machine`] | response times of processors and memory |
//! | [`network`] | buffers, limits, routes; devices and bridges |
//! | [`queues`] | treatment of the classes on each device |
//!
//! Here are also the resources that the nodes of this host share: the run directory and shared memory.

pub(super) mod machine;
pub(super) mod network;
pub(super) mod queues;
pub(super) mod threads;

use linux::probe::{Facts, Room};
use serde::Serialize;
use std::io;
use std::path::Path;

/// All kinds of findings, in the order of docs/diagnosis.md.
pub(super) fn kinds() -> impl Iterator<Item = &'static Kind> {
    threads::KINDS.iter().chain(machine::KINDS).chain(network::KINDS).chain(queues::KINDS).chain(HOUSE).copied()
}

/// The findings from these facts, the worst first.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = threads::judge(facts);
    found.extend(machine::judge(facts));
    found.extend(network::judge(facts));
    found
}

/// Sorts the worst first; the order of equal ones stays.
pub(super) fn sort(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.kind.severity));
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Good to know; harmless by itself. Shown with `--verbose`.
    Note,
    /// A promise is kept only in part, or only most of the time.
    Warning,
    /// A promise cannot be kept on this host.
    Fault,
}

impl Severity {
    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Fault => "fault",
        }
    }
}

/// A kind of finding: a row of docs/diagnosis.md.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// Its name.
    pub id: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// The condition.
    pub when: &'static str,
    /// Its effect on real-time promises.
    pub why: &'static str,
    /// `true` if `--fix` has a remedy.
    pub fixable: bool,
}

/// A finding on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The kind.
    pub kind: &'static Kind,
    /// The wrong value's name, such as `net.core.rmem_max`.
    pub what: String,
    /// The value.
    pub value: String,
    /// The value that it should have.
    pub limit: String,
    /// The remedy: a command where there is one.
    pub remedy: String,
    /// The remedy of `--fix`.
    pub fix: Option<Fix>,
}

/// A remedy of `--fix` at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fix {
    /// Writes this value into each of these files of `proc` or `sys` (paths without the first '/').
    Write {
        /// The files.
        files: Vec<String>,
        /// The value.
        value: String,
    },
    /// Installs queues by class on this device.
    Queues {
        /// The device.
        device: String,
        /// Rate of its link, in Mbit/s.
        speed: u64,
    },
    /// Removes the queues that an ended process left.
    Recover,
}

impl Kind {
    /// A finding of this kind.
    pub(super) fn found(
        &'static self,
        what: impl Into<String>,
        value: impl ToString,
        limit: impl Into<String>,
    ) -> Finding {
        let (what, value, limit) = (what.into(), value.to_string(), limit.into());
        Finding { kind: self, what, value, limit, remedy: String::new(), fix: None }
    }
}

impl Finding {
    /// Adds a remedy.
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Adds a value to write, which is also the remedy.
    pub(super) fn write(mut self, files: Vec<String>, value: impl ToString) -> Self {
        let value = value.to_string();
        let commands = files.iter().map(|file| match file.strip_prefix("proc/sys/") {
            Some(name) => format!("sysctl -w {}={value}", name.replace('/', ".")),
            None => format!("echo {value} > /{file}"),
        });
        self.remedy = match files.len() {
            0..=2 => commands.collect::<Vec<_>>().join(" && "),
            _ => format!("for each processor: {}", commands.take(1).collect::<String>()),
        };
        self.fix = Some(Fix::Write { files, value });
        self
    }
}

/// A finding as JSON.
#[derive(Serialize)]
pub(super) struct Shown<'a> {
    id: &'a str,
    severity: Severity,
    what: &'a str,
    value: &'a str,
    limit: &'a str,
    why: &'a str,
    remedy: &'a str,
    fixable: bool,
}

impl<'a> From<&'a Finding> for Shown<'a> {
    fn from(finding: &'a Finding) -> Self {
        let Finding { kind, what, value, limit, remedy, fix } = finding;
        let fixable = fix.is_some();
        Self { id: kind.id, severity: kind.severity, what, value, limit, why: kind.why, remedy, fixable }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, what, value, limit, remedy, .. } = self;
        writeln!(f, "{:<8} {}: {what}: {value} (should be: {limit})", kind.severity.name(), kind.id)?;
        write!(f, "         why     {}\n         remedy  {remedy}", kind.why)
    }
}

/// Kinds of findings about resources that the nodes of this host share.
const HOUSE: &[&Kind] = &[&RUN_DIRECTORY, &RUN_DIRECTORY_FULL, &SHARED_MEMORY];

const RUN_DIRECTORY: Kind = Kind {
    id: "run-directory",
    severity: Severity::Fault,
    when: "the run directory is no directory, or is not safe for this user to use",
    why: "no node opens: they find each other by sockets in this directory",
    fixable: false,
};
const RUN_DIRECTORY_FULL: Kind = Kind {
    id: "run-directory-full",
    severity: Severity::Fault,
    when: "the run directory's file system has no room for another socket",
    why: "no further node opens on this host",
    fixable: false,
};
const SHARED_MEMORY: Kind = Kind {
    id: "shared-memory",
    severity: Severity::Fault,
    when: "memfd_create(2) is refused",
    why: "the carrier shm cannot be used: samples between processes take the slower way over sockets",
    fixable: false,
};

/// Judges the run directory: its permissions, and its free space.
pub(super) fn run_directory(path: &Path, refusal: &io::Result<()>, room: Option<Room>) -> Option<Finding> {
    let what = format!("the run directory {}", path.display());
    if let Err(refusal) = refusal {
        let text = refusal.to_string();
        let (why, remedy) = text.rsplit_once("; ").unwrap_or((&text, "set THALWEG_RUN_DIR to a directory of your own"));
        return Some(RUN_DIRECTORY.found(what, format!("refused ({why})"), "safe to use").remedy(remedy));
    }
    let room = room.filter(|room| room.bytes < LEAST_BYTES || room.files < LEAST_FILES)?;
    let value = format!("full ({} KiB, {} files left)", room.bytes >> 10, room.files);
    let remedy = "free some, or set THALWEG_RUN_DIR to a directory of your own elsewhere";
    Some(RUN_DIRECTORY_FULL.found(what, value, "with room").remedy(remedy))
}

/// Judges shared memory.
pub(super) fn shared_memory(tried: &io::Result<()>) -> Option<Finding> {
    let refusal = tried.as_ref().err()?;
    let found = SHARED_MEMORY.found("memfd_create(2)", format!("refused ({refusal})"), "allowed");
    Some(found.remedy("allow it in the container's system call filter (seccomp), or raise its memory limit"))
}

const LEAST_FILES: u64 = 16;
const LEAST_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_directory_must_be_usable_and_have_room() {
        let id = |refusal, room| run_directory(Path::new("/run/x"), &refusal, room).map(|found| found.kind.id);
        let room = |bytes| Some(Room { bytes, files: u64::MAX });
        assert_eq!((id(Ok(()), None), id(Ok(()), room(1 << 30))), (None, None));
        assert_eq!(id(Ok(()), room(0)), Some("run-directory-full"));
        let refused = io::Error::other("/run/x: belongs to user 8; set THALWEG_RUN_DIR to a directory of your own");
        let found = run_directory(Path::new("/run/x"), &Err(refused), None).unwrap();
        assert_eq!(found.remedy, "set THALWEG_RUN_DIR to a directory of your own");
        assert!(shared_memory(&Err(io::ErrorKind::PermissionDenied.into())).is_some());
    }
}
