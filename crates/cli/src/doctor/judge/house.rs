//! Resources that the nodes of this host share: the run directory and shared memory.

use crate::doctor::finding::Severity::Fault;
use crate::doctor::finding::{Finding, Kind};
use linux::probe::Room;
use std::io;
use std::path::Path;

/// All kinds of this module.
pub(crate) const KINDS: &[&Kind] = &[&RUN_DIRECTORY, &RUN_DIRECTORY_FULL, &SHARED_MEMORY];

const RUN_DIRECTORY: Kind = Kind {
    id: "run-directory",
    severity: Fault,
    when: "the run directory is no directory, or is not safe for this user to use",
    why: "no node opens: they find each other by sockets in this directory",
    fixable: false,
};
const RUN_DIRECTORY_FULL: Kind = Kind {
    id: "run-directory-full",
    severity: Fault,
    when: "the run directory's file system has no room for another socket",
    why: "no further node opens on this host",
    fixable: false,
};
const SHARED_MEMORY: Kind = Kind {
    id: "shared-memory",
    severity: Fault,
    when: "memfd_create(2) is refused",
    why: "the carrier shm cannot be used: samples between processes take the slower way over sockets",
    fixable: false,
};

const LEAST_FILES: u64 = 16;
const LEAST_BYTES: u64 = 64 << 10;

/// Judges the run directory: its permissions, and its free space.
pub(crate) fn run_directory(path: &Path, refusal: &io::Result<()>, room: Option<Room>) -> Option<Finding> {
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
pub(crate) fn shared_memory(tried: &io::Result<()>) -> Option<Finding> {
    let refusal = tried.as_ref().err()?;
    let found = SHARED_MEMORY.found("memfd_create(2)", format!("refused ({refusal})"), "allowed");
    Some(found.remedy("allow it in the container's system call filter (seccomp), or raise its memory limit"))
}

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
