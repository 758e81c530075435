//! Limits on other programs' processor time: quota and processors of control groups (cgroups(7)), by version 2 (`cpu.max`, `cpuset.cpus`) or,
//! for a controller that a machine has only there, version 1 (`cpu.cfs_quota_us`, `cpuset.cpus`).
//!
//! The former contents of all files are written to a journal before anything is changed, and written back byte by byte. A quota binds
//! ordinary threads only: real-time ones are not counted.

use crate::owned;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The wanted limits of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// The group's path below the mount, such as `system.slice`.
    pub group: String,
    /// Processor time in microseconds of each [`PERIOD_US`], on all processors together.
    pub quota_us: Option<u64>,
    /// The processors that it may use, such as `0-1,3`.
    pub cpus: Option<String>,
}

/// The period of quotas, the kernel's default.
pub const PERIOD_US: u64 = 100_000;

/// A file of a group, and text for it: a limit, or what was there before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The file.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
}

/// The refused limit, the reason and the remedy.
#[derive(Debug)]
pub struct CgroupError {
    /// The limit, such as `cpu quota of system.slice`.
    pub what: String,
    /// The reason.
    pub reason: Reason,
}

/// The reason of a refusal.
#[derive(Debug)]
pub enum Reason {
    /// No mounted hierarchy has the controller.
    NoController(&'static str),
    /// There is no such group in the hierarchy that has the controller, or its parent does not pass the controller on to it.
    NoGroup(PathBuf),
    /// The kernel refused to read or write a file.
    Kernel(PathBuf, io::Error),
    /// The kernel took the text, and now has another one.
    ReadBack(PathBuf, String),
    /// The journal cannot be used.
    Journal(PathBuf, io::Error),
}

impl fmt::Display for CgroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.what)?;
        match &self.reason {
            Reason::NoController(name) => write!(
                f,
                "this machine has no `{name}` controller, in cgroup v2 or v1; the kernel needs CONFIG_CFS_BANDWIDTH (cpu) or \
                 CONFIG_CPUSETS (cpuset)"
            ),
            Reason::NoGroup(file) => write!(
                f,
                "there is no {}: make the group, or give it the controller (`echo +cpu +cpuset > …/cgroup.subtree_control` of its parent)",
                file.display()
            ),
            Reason::Kernel(file, error) => {
                write!(f, "{}: {error}; it takes root, and processors that the group above has", file.display())
            }
            Reason::ReadBack(file, found) => {
                write!(f, "{} has {found:?} now: another program sets it", file.display())
            }
            Reason::Journal(file, error) => {
                write!(f, "{}: {error}; set THALWEG_RUN_DIR to a directory of your own", file.display())
            }
        }
    }
}

impl std::error::Error for CgroupError {}

/// Limits that were set; taken back when dropped, unless kept.
#[derive(Debug)]
pub struct Limited {
    former: Vec<Setting>,
    journal: PathBuf,
    kept: bool,
    /// The limits as the kernel has them.
    pub settings: Vec<Setting>,
}

impl Limited {
    /// Leaves them until [`restore`].
    pub fn keep(mut self) -> Vec<Setting> {
        self.kept = true;
        std::mem::take(&mut self.settings)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        if !self.kept && put_back(&self.former).iter().all(|(_, done)| done.is_ok()) {
            let _ = std::fs::remove_file(&self.journal);
        }
    }
}

/// Sets all limits, or none. Those of an earlier call are taken back first.
///
/// # Errors
/// The first limit that cannot be set; nothing is changed then.
pub fn limit(directory: &Path, wanted: &[Limit]) -> Result<Limited, CgroupError> {
    restore(directory)?;
    let journal = directory.join(JOURNAL);
    let mut limited = Limited { former: Vec::new(), journal, kept: wanted.is_empty(), settings: Vec::new() };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let settings = wanted.iter().map(|one| settings(one, &mounts)).collect::<Result<Vec<_>, _>>()?.concat();
    for (what, Setting { file, .. }) in &settings {
        let text = std::fs::read_to_string(file).map_err(|error| absent(what, file, error))?;
        limited.former.push(Setting { file: file.clone(), text });
    }
    if !settings.is_empty() {
        let bytes = serde_json::to_vec(&limited.former).map_err(io::Error::from);
        let written = bytes.and_then(|bytes| owned::write(&limited.journal, &bytes));
        written.map_err(|error| unusable(&limited.journal, error))?;
    }
    for (what, setting) in settings {
        limited.settings.push(set(&what, setting)?);
    }
    Ok(limited)
}

/// Takes the limits of [`limit`] back. For each file: its path, and what became of it.
///
/// # Errors
/// The journal cannot be read.
pub fn restore(directory: &Path) -> Result<Vec<(PathBuf, Outcome)>, CgroupError> {
    let journal = directory.join(JOURNAL);
    let former: Vec<Setting> = match owned::read_own(&journal, LARGEST) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| unusable(&journal, error.into()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unusable(&journal, error)),
    };
    let done = put_back(&former);
    if done.iter().all(|(_, done)| done.is_ok()) {
        let _ = std::fs::remove_file(&journal);
    }
    let outcome =
        |(file, done): (PathBuf, io::Result<Outcome>)| (file, done.unwrap_or_else(|e| Outcome::Stuck(e.to_string())));
    Ok(done.into_iter().map(outcome).collect())
}

/// A file after its limit was taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has its former text, byte by byte.
    AsBefore,
    /// The group is gone, and its limits with it.
    Gone,
    /// It cannot be written: the journal keeps it for the next time.
    Stuck(String),
}

/// The commands that set the same.
pub fn commands(wanted: &[Limit]) -> Result<Vec<String>, CgroupError> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let settings = wanted.iter().map(|one| settings(one, &mounts)).collect::<Result<Vec<_>, _>>()?.concat();
    Ok(settings.into_iter().map(|(_, Setting { file, text })| format!("echo {text:?} > {}", file.display())).collect())
}

/// Name of the journal: control groups belong to the host, not to a network namespace.
const JOURNAL: &str = "cgroups.json";
/// Largest journal that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// The newest change first.
fn put_back(former: &[Setting]) -> Vec<(PathBuf, io::Result<Outcome>)> {
    let one = |Setting { file, text }: &Setting| {
        if !file.exists() {
            return Ok(Outcome::Gone);
        }
        // An empty set of processors means the parent's. An empty write does nothing.
        std::fs::write(file, if text.is_empty() { "\n" } else { text })?;
        let found = std::fs::read_to_string(file)?;
        if found == *text { Ok(Outcome::AsBefore) } else { Err(io::Error::other(format!("it is {found:?} now"))) }
    };
    former.iter().rev().map(|setting| (setting.file.clone(), one(setting))).collect()
}

fn set(what: &str, setting: Setting) -> Result<Setting, CgroupError> {
    let Setting { file, text } = setting;
    let refused = |reason| CgroupError { what: what.to_owned(), reason };
    std::fs::write(&file, &text).map_err(|error| refused(Reason::Kernel(file.clone(), error)))?;
    let found = std::fs::read_to_string(&file).map_err(|error| refused(Reason::Kernel(file.clone(), error)))?;
    let found = found.trim_end().to_owned();
    // The kernel joins neighbouring processors: 0,1 is 0-1.
    if found != text && numbers(&found) != numbers(&text) {
        return Err(refused(Reason::ReadBack(file, found)));
    }
    Ok(Setting { file, text: found })
}

/// The numbers of a list such as `0-2,5`; of other text none.
fn numbers(list: &str) -> Option<Vec<u32>> {
    let span = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    Some(list.split(',').map(span).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
}

/// The files of a group and their texts.
fn settings(wanted: &Limit, mounts: &str) -> Result<Vec<(String, Setting)>, CgroupError> {
    let mut all = Vec::new();
    let group = &wanted.group;
    if let Some(quota) = wanted.quota_us {
        let what = format!("cpu quota of {group}");
        match hierarchy(mounts, "cpu") {
            Some((top, true)) => {
                all.push((
                    what,
                    Setting { file: top.join(group).join("cpu.max"), text: format!("{quota} {PERIOD_US}") },
                ));
            }
            Some((top, false)) => {
                // The quota first goes without limit: neither may be out of the kernel's range with the other's old value.
                let file = |name: &str| top.join(group).join(name);
                all.push((what.clone(), Setting { file: file("cpu.cfs_period_us"), text: PERIOD_US.to_string() }));
                all.push((what, Setting { file: file("cpu.cfs_quota_us"), text: quota.to_string() }));
            }
            None => return Err(CgroupError { what, reason: Reason::NoController("cpu") }),
        }
    }
    if let Some(cpus) = &wanted.cpus {
        let what = format!("processors of {group}");
        let Some((top, _)) = hierarchy(mounts, "cpuset") else {
            return Err(CgroupError { what, reason: Reason::NoController("cpuset") });
        };
        all.push((what, Setting { file: top.join(group).join("cpuset.cpus"), text: cpus.clone() }));
    }
    Ok(all)
}

/// The mount of the hierarchy with a controller, and whether it is version 2.
fn hierarchy(mounts: &str, controller: &str) -> Option<(PathBuf, bool)> {
    let of = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let version = kind.next().map(str::to_owned)?;
        let options = kind.nth(1).unwrap_or_default().to_owned();
        Some((version, PathBuf::from(mount.split(' ').nth(4)?), options))
    };
    let mounts: Vec<_> = mounts.lines().filter_map(of).collect();
    let unified = mounts.iter().find(|(version, ..)| version == "cgroup2");
    let has = |top: &Path| {
        let controllers = std::fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default();
        controllers.split_whitespace().any(|name| name == controller)
    };
    if let Some((_, top, _)) = unified.filter(|(_, top, _)| has(top)) {
        return Some((top.clone(), true));
    }
    let old = |(version, _, options): &&(String, PathBuf, String)| {
        version == "cgroup" && options.split(',').any(|name| name == controller)
    };
    mounts.iter().find(old).map(|(_, top, _)| (top.clone(), false))
}

fn absent(what: &str, file: &Path, error: io::Error) -> CgroupError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => Reason::NoGroup(file.to_owned()),
        _ => Reason::Kernel(file.to_owned(), error),
    };
    CgroupError { what: what.to_owned(), reason }
}

fn unusable(file: &Path, error: io::Error) -> CgroupError {
    CgroupError { what: "the journal of control groups".to_owned(), reason: Reason::Journal(file.to_owned(), error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_found_where_it_is() {
        let mounts = "30 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      41 31 0:38 / /nowhere/unified rw,relatime - cgroup2 cgroup2 rw\n";
        assert_eq!(hierarchy(mounts, "cpu"), Some(("/sys/fs/cgroup/cpu,cpuacct".into(), false)));
        assert_eq!(hierarchy(mounts, "cpuset"), None);
        let limit = Limit { group: "hogs".into(), quota_us: Some(5000), cpus: None };
        let texts =
            |mounts| settings(&limit, mounts).map(|all| all.into_iter().map(|(_, s)| s.text).collect::<Vec<_>>());
        assert_eq!(texts(mounts).unwrap(), ["100000", "5000"]);
        let refused = texts("").unwrap_err();
        assert!(refused.to_string().contains("cpu quota of hogs: this machine has no `cpu` controller"), "{refused}");
        let place = std::env::temp_dir().join(format!("thalweg-cgroup2-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("cgroup.controllers"), "cpuset cpu\n").unwrap();
        let unified = format!("{mounts}42 31 0:39 / {} rw - cgroup2 cgroup2 rw\n", place.display());
        // The first mount of version 2 counts; a machine has one.
        assert_eq!(
            hierarchy(unified.split_once('\n').unwrap().1.split_once('\n').unwrap().1, "cpu"),
            Some((place.clone(), true))
        );
        std::fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn lists_of_processors_are_equal_by_their_numbers() {
        assert_eq!(numbers("0,1"), numbers("0-1"));
        assert_ne!(numbers("0"), numbers("0-1"));
        assert_eq!(numbers("5000 100000"), None);
    }
}
