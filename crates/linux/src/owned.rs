//! Files in directories that several users may write to: read only if the right user owns them, and written so that
//! no link leads elsewhere. A name there may stand for anything: a link, a FIFO that would block, an endless file.

use rustix::fs::{Mode, OFlags, fstat, open};
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Reads a file of this user, of root, or of the owner of its directory.
///
/// # Errors
/// The kernel's error; `ELOOP` for a link; PermissionDenied if it is no regular file or another user's; FileTooLarge
/// above `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_of(path, most).map(|(bytes, _)| bytes)
}

/// Reads as [`read`] does, and returns the file's owner.
///
/// # Errors
/// As [`read`].
pub fn read_of(path: &Path, most: u64) -> io::Result<(Vec<u8>, u32)> {
    // Non-blocking: the other end of a FIFO may never come.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = open(path, flags, Mode::empty())?;
    let found = fstat(&file)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let owners = [rustix::process::geteuid().as_raw(), 0, std::fs::metadata(above)?.uid()];
    let regular = rustix::fs::FileType::from_raw_mode(found.st_mode).is_file();
    if !regular || !owners.contains(&found.st_uid) {
        let what = if regular { format!("it is user {}'s", found.st_uid) } else { "it is no regular file".to_owned() };
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    let mut bytes = Vec::new();
    File::from(file).take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {most} bytes")));
    }
    Ok((bytes, found.st_uid))
}

/// Reads as [`read`] does, from a directory that is this user's alone, as made by [`directory`].
///
/// # Errors
/// As [`read`] and [`directory`].
pub fn read_own(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    path.parent().map_or(Ok(()), check)?;
    read(path, most)
}

/// Makes a directory for this user only, if need be.
///
/// # Errors
/// PermissionDenied if it is another user's, or others may write to it; otherwise the kernel's error.
pub fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    check(path)
}

fn check(directory: &Path) -> io::Result<()> {
    let found = std::fs::symlink_metadata(directory)?;
    let user = rustix::process::geteuid().as_raw();
    match found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("not a directory of user {user} alone"))),
    }
}

/// Writes a file in such a [`directory`] and waits until it is on disk: whole or, with a reason, not at all.
///
/// # Errors
/// As [`directory`]; the kernel's error.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let above = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    directory(above)?;
    let early = path.with_extension("new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(open(&early, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&early, path)?;
    File::open(above)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn place(name: &str) -> std::path::PathBuf {
        let place = std::env::temp_dir().join(format!("thalweg-owned-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir(&place).unwrap();
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o700)).unwrap();
        place
    }

    #[test]
    fn only_files_of_the_right_owner_and_size_are_read() {
        let dir = place("read");
        let file = dir.join("file");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(read_of(&file, 5).unwrap(), (b"12345".to_vec(), rustix::process::geteuid().as_raw()));
        assert_eq!(read(&file, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        symlink(&file, dir.join("link")).unwrap();
        assert!(read(&dir.join("link"), 5).is_err());
        // No writer: opening it as a file would block for ever.
        rustix::fs::mknodat(rustix::fs::CWD, dir.join("fifo"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(read(&dir.join("fifo"), 5).unwrap_err().to_string().contains("no regular file"));
        assert!(read(&dir, 5).is_err());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
            assert!(read(&file, 5).unwrap_err().to_string().contains("user 65534's"));
        } else {
            println!("\nskipped: because only root makes files of others");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn files_that_others_may_write_and_targets_of_links_are_not_written() {
        let dir = place("write");
        let file = dir.join("journal.json");
        write(&file, b"1").unwrap();
        write(&file, b"2").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"2");
        let victim = dir.join("victim");
        std::fs::write(&victim, "whole").unwrap();
        symlink(&victim, dir.join("journal.new")).unwrap();
        assert!(write(&file, b"3").is_err());
        std::fs::remove_file(dir.join("journal.new")).unwrap();
        std::fs::remove_file(&file).unwrap();
        symlink(&victim, &file).unwrap();
        write(&file, b"4").unwrap(); // instead of the link
        assert_eq!(std::fs::read(&victim).unwrap(), b"whole");
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(write(&file, b"5").unwrap_err().to_string().contains("alone"));
        assert!(read_own(&victim, 5).unwrap_err().to_string().contains("alone") && read(&victim, 5).is_ok());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
