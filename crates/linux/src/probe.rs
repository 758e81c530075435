//! Facts of this host that decide whether real-time promises can be kept, as plain values, without a verdict.
//!
//! All files of the kernel are read below a [`Tree`], so that a test can build one with a fault. An unreadable value
//! is `None`: a virtual machine has no frequency governor, a container no debugfs.
//!
//! | module | facts |
//! |---|---|
//! | [`process`] | capabilities and limits of this process; the state of another |
//! | [`scheduling`] | real-time throttling, group budgets, processor quotas, real-time threads that hog |
//! | [`machine`] | governors, idle states, isolation, kernel; clock source, synchronisation, time namespace; swap, huge pages |
//! | [`devices`] | network devices: MTU, flags, errors, bridges; socket buffers, forwarding, multicast limits |
//!
//! [`room`] and [`shared_memory`] tell whether there is room for files and shared memory.

pub mod devices;
pub mod machine;
pub mod process;
pub mod scheduling;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fs, io};

/// The place of `proc` and `sys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree(PathBuf);

impl Tree {
    /// This host's own.
    pub fn host() -> Self {
        Self("/".into())
    }

    /// A tree with `proc` and `sys` below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// `true` if it is this host's own: then system calls agree with its files.
    pub fn is_host(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// The file or folder at this path, which does not start with '/'.
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// A file's text without white space around it.
    pub fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_owned())
    }

    /// A file that holds one number.
    pub fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// The names in a folder, sorted; none where there is no such folder.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

/// Everything about the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Capabilities and limits of this process.
    pub privilege: process::Privilege,
    /// Throttling and budgets.
    pub scheduling: scheduling::Scheduling,
    /// Processors and kernel.
    pub processors: machine::Processors,
    /// Clocks.
    pub clock: machine::Clock,
    /// Memory.
    pub memory: machine::Memory,
    /// Settings for all devices.
    pub network: devices::Network,
    /// Network devices of this namespace, by name.
    pub devices: Vec<devices::Device>,
}

impl Facts {
    /// Reads them all, in some milliseconds, except [`scheduling::hogs`], which has to wait.
    pub fn read(tree: &Tree) -> Self {
        Self {
            privilege: process::privilege(tree),
            scheduling: scheduling::read(tree),
            processors: machine::processors(tree),
            clock: machine::clock(tree),
            memory: machine::memory(tree),
            network: devices::network(tree),
            devices: devices::read(tree),
        }
    }
}

/// Free space of a file system for this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes.
    pub bytes: u64,
    /// Files; `u64::MAX` if there is no such limit.
    pub files: u64,
}

/// The free space at `path`; `None` if there is no such path.
pub fn room(path: &Path) -> Option<Room> {
    let left = rustix::fs::statvfs(path).ok()?;
    let files = if left.f_files == 0 { u64::MAX } else { left.f_favail };
    Some(Room { bytes: left.f_bavail.saturating_mul(left.f_frsize), files })
}

/// `true` if the kernel gives memory that can be passed to other processes (memfd_create(2)), which the carrier `shm`
/// needs.
///
/// # Errors
/// The kernel's error.
pub fn shared_memory() -> io::Result<()> {
    let memory = rustix::fs::memfd_create("thalweg-probe", rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(rustix::fs::ftruncate(memory, 4096)?)
}

/// The value behind `name:` in a text of such lines.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Numbers as the kernel lists them: `0-3,5`.
fn list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse::<u32>().ok()?.min(MOST_PROCESSORS))
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Largest processor number that is accepted.
const MOST_PROCESSORS: u32 = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(list("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(list("7"), [7]);
        assert!(list("").is_empty() && list("x-y").is_empty() && list("3-1").is_empty());
        assert!(list("0-4294967295").len() <= 8193);
    }

    #[test]
    fn this_host_has_facts() {
        let facts = Facts::read(&Tree::host());
        assert!(!facts.processors.online.is_empty() && facts.network.receive_max.is_some(), "{facts:?}");
        assert!(facts.devices.iter().any(|d| d.name == "lo" && d.loopback), "{facts:?}");
        assert!(facts.privilege.capabilities.is_some() && facts.privilege.descriptors.is_some());
    }

    #[test]
    fn an_empty_tree_has_none_and_is_no_error() {
        let facts = Facts::read(&Tree::at("/nonexistent"));
        assert_eq!(facts, Facts::default());
    }

    #[test]
    fn there_is_room_where_tests_run_and_none_where_nothing_is() {
        assert!(room(&std::env::temp_dir()).is_some_and(|room| room.bytes > 0));
        assert_eq!(room(Path::new("/nonexistent/thalweg")), None);
        assert!(shared_memory().is_ok());
    }
}
