//! Room for a node's files and memory.

use std::io;
use std::path::Path;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_where_tests_run_and_none_where_nothing_is() {
        assert!(room(&std::env::temp_dir()).is_some_and(|room| room.bytes > 0));
        assert_eq!(room(Path::new("/nonexistent/thalweg")), None);
        assert!(shared_memory().is_ok());
    }
}
