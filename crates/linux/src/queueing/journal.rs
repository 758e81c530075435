//! The former queues: written and synced before the kernel is touched, removed when they are restored. So a crash at
//! any point leaves a file from which the next start restores.

use super::tree::{Queues, Said};
use super::{QueueError, Reason, tree};
use crate::{clock, owned};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Largest journal in bytes.
const LARGEST: u64 = 16 << 20;

/// The journal of one network namespace.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// The boot it was written in; queues don't outlive one.
    pub boot: String,
    /// The process that removes the queues at its end, and the time when it started; `None`: they stay until
    /// `restore`.
    pub holder: Option<(u32, u64)>,
    /// One per device.
    pub devices: Vec<Before>,
    /// Our nft tables: family and script.
    pub tables: Vec<(String, String)>,
}

/// A device before we touched it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Before {
    pub device: String,
    pub index: u32,
    pub length: u32,
    /// Disciplines, classes and filters in the kernel's form.
    pub said: Vec<(u16, Said)>,
}

impl Before {
    pub(crate) fn of(queues: &Queues) -> Self {
        let disciplines = queues.disciplines.iter().map(|d| (tree::DISCIPLINE, d.said.clone()));
        let classes = queues.classes.iter().map(|c| (tree::CLASS, c.said.clone()));
        let filters = queues.filters.iter().map(|f| (tree::FILTER, f.said.clone()));
        let said = disciplines.chain(classes).chain(filters).collect();
        Self { device: queues.device.clone(), index: queues.index, length: queues.length, said }
    }
}

/// The journal of this network namespace, locked against other processes.
pub(crate) struct Store {
    path: PathBuf,
    _lock: File,
}

impl Store {
    /// Opens it in `directory`, which is made if need be, for this user only.
    pub(crate) fn open(directory: &Path) -> Result<Self, QueueError> {
        let open = || {
            owned::directory(directory)?; // a journal that others may write would let them choose this host's queues
            let path = directory.join(format!("queues-{}.json", crate::namespace::current_id()?));
            let lock = options().open(path.with_extension("lock"))?;
            rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
            Ok(Self { path, _lock: lock })
        };
        open().map_err(|error| unusable(directory, error))
    }

    /// The journal's content; `None`: no queues are installed, or only those of another boot, which are gone.
    pub(crate) fn load(&self) -> Result<Option<Journal>, QueueError> {
        let bytes = match owned::read_own(&self.path, LARGEST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(&self.path, error)),
        };
        let journal: Journal = serde_json::from_slice(&bytes).map_err(|e| unusable(&self.path, io::Error::from(e)))?;
        Ok((journal.boot == clock::boot_id()).then_some(journal))
    }

    /// Writes the journal and waits until it is on disk.
    pub(crate) fn save(&self, journal: &Journal) -> Result<(), QueueError> {
        let save = || owned::write(&self.path, &serde_json::to_vec(journal)?);
        save().map_err(|error| unusable(&self.path, error))
    }

    /// Removes the journal: no queues are installed any more.
    pub(crate) fn remove(&self) -> Result<(), QueueError> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unusable(&self.path, error)),
            _ => Ok(()),
        }
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

fn unusable(path: &Path, error: io::Error) -> QueueError {
    QueueError {
        what: format!("the journal of what was there before, {}", path.display()),
        reason: Reason::Other(error),
        remedy: "set THALWEG_RUN_DIR to a directory of your own; docs/queueing.md says how to restore by hand"
            .to_owned(),
    }
}

/// This process, as a holder.
pub(crate) fn this_process() -> Option<(u32, u64)> {
    let process = std::process::id();
    Some((process, started(process)?))
}

/// `true` if a holder still runs.
pub(crate) fn is_alive(holder: (u32, u64)) -> bool {
    started(holder.0) == Some(holder.1)
}

/// Start time of a process, in ticks since boot (proc(5), `stat` field 22).
fn started(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_comes_back_as_it_was_saved() {
        let directory = std::env::temp_dir().join(format!("thalweg-journal-{}", std::process::id()));
        let store = Store::open(&directory).unwrap();
        assert_eq!(store.load().unwrap(), None);
        let said = Said { name: "pfifo".to_owned(), options: Some(vec![1, 2]), ..Said::default() };
        let before = Before { device: "eth0".to_owned(), index: 2, length: 1000, said: vec![(36, said)] };
        let mut journal =
            Journal { boot: clock::boot_id(), holder: this_process(), devices: vec![before], tables: vec![] };
        store.save(&journal).unwrap();
        assert_eq!(store.load().unwrap().as_ref(), Some(&journal));
        journal.boot = "another".to_owned();
        store.save(&journal).unwrap();
        assert_eq!(store.load().unwrap(), None, "queues don't outlive a boot");
        std::fs::write(&store.path, "{").unwrap();
        assert!(store.load().unwrap_err().to_string().contains("restore by hand"));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_holder_is_a_process_and_its_start() {
        let own = this_process().unwrap();
        assert!(is_alive(own) && !is_alive((own.0, own.1 + 1)));
    }
}
