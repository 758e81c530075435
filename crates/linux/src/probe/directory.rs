//! A directory that a node wants to use.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A directory's owner, mode and room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// It is a directory (not a file, not a link).
    pub is_directory: bool,
    /// Its owner.
    pub owner: u32,
    /// Its permission bits.
    pub mode: u32,
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Files that may still be made; `u64::MAX` where the file system has no such limit.
    pub free_files: u64,
}

/// Looks at it; `None`: there is none.
///
/// # Errors
/// What lstat(2) and statvfs(2) say.
pub fn read(path: &Path) -> io::Result<Option<Directory>> {
    let status = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        status => status?,
    };
    let room = rustix::fs::statvfs(path)?;
    Ok(Some(Directory {
        is_directory: status.is_dir(),
        owner: status.uid(),
        mode: status.mode() & 0o7777,
        free_bytes: room.f_bavail.saturating_mul(room.f_frsize),
        free_files: if room.f_files == 0 { u64::MAX } else { room.f_favail },
    }))
}

/// Whether the kernel gives memory that can be passed to other processes (memfd_create(2)), as the carrier `shm` needs it.
///
/// # Errors
/// What the kernel says.
pub fn shared_memory() -> io::Result<()> {
    let memory = rustix::fs::memfd_create("thalweg-probe", rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(rustix::fs::ftruncate(memory, 4096)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_directory_is_one_and_a_missing_one_is_none() {
        let root = read(Path::new("/")).unwrap().unwrap();
        assert!(root.is_directory && root.owner == 0 && root.mode & 0o700 != 0, "{root:?}");
        assert_eq!(read(Path::new("/nonexistent/thalweg")).unwrap(), None);
        assert!(shared_memory().is_ok());
    }
}
