//! Named network namespaces, as `ip netns` makes them: entering one.

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Where `ip netns` keeps the names.
pub const FOLDER: &str = "/run/netns";

/// Where the namespace with this name is.
///
/// # Errors
/// InvalidInput for a name that is no file name.
pub fn path(name: &str) -> io::Result<PathBuf> {
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no name of a namespace")));
    }
    Ok(Path::new(FOLDER).join(name))
}

/// Moves the calling thread into the named network namespace. Threads that it starts from then on are there, too; others
/// stay where they are, so a process enters before it starts any.
///
/// # Errors
/// InvalidInput for a name that cannot be one, NotFound when there is no such namespace, PermissionDenied without
/// CAP_SYS_ADMIN.
pub fn enter(name: &str) -> io::Result<()> {
    let file = rustix::fs::open(path(name)?, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_one_and_a_missing_one_are_refused() {
        for bad in ["", ".", "..", "a/b", "/run/netns/a"] {
            assert_eq!(enter(bad).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{bad:?}");
        }
        assert_eq!(enter("no-such-namespace").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
