//! Network namespaces: the calling thread's, one by name, and a new one.

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

/// A network namespace, which exists as long as this value.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

/// Folder in which `ip netns` keeps the names.
pub const FOLDER: &str = "/run/netns";
/// Path of a thread's own namespace.
const OWN: &str = "/proc/thread-self/ns/net";

impl Namespace {
    /// The calling thread's.
    ///
    /// # Errors
    /// Without /proc.
    pub fn current() -> io::Result<Self> {
        Ok(Self { file: File::open(OWN)? })
    }

    /// The one that `ip netns add NAME` made.
    ///
    /// # Errors
    /// There is none, or it may not be opened.
    pub fn named(name: &str) -> io::Result<Self> {
        Ok(Self { file: File::open(Path::new(FOLDER).join(name))? })
    }

    /// A new namespace without a name, which contains only `lo`, down. It is removed when nothing refers to it.
    ///
    /// # Errors
    /// PermissionDenied without CAP_SYS_ADMIN.
    pub fn new() -> io::Result<Self> {
        let made = std::thread::Builder::new().name("namespace".to_owned()).spawn(|| {
            leave()?;
            Self::current()
        })?;
        made.join().unwrap_or_else(|_| Err(io::Error::other("the thread that made the namespace panicked")))
    }

    /// Runs `body` in the namespace, on a thread of its own; programs that it starts are in it, too.
    ///
    /// # Errors
    /// PermissionDenied without CAP_SYS_ADMIN.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> io::Result<T> {
        let inside = || {
            self.enter()?;
            Ok(body())
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// Moves the calling thread into the namespace. Threads that it starts later are there, too, existing ones are
    /// not: a process enters before it starts any.
    ///
    /// # Errors
    /// PermissionDenied without CAP_SYS_ADMIN.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// A path by which programs started by this process can find it (`ip link set DEV netns PATH`).
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }
}

/// Identity of the calling thread's network namespace: a number, unique while the namespace exists.
///
/// # Errors
/// Without /proc.
pub fn current_id() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(OWN)?.ino())
}

#[allow(unsafe_code)]
fn leave() -> io::Result<()> {
    // SAFETY: the network namespace has no part in memory safety, and the descriptor table stays shared.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_namespace_has_only_lo() {
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(error) => return println!("skipped: a_new_namespace_has_only_lo: because {error}"),
        };
        let outside = current_id().unwrap();
        let look = || (current_id().unwrap(), crate::net::interfaces().unwrap().is_empty());
        let (inside, devices) = namespace.run(look).unwrap();
        assert!(inside != outside && devices);
        assert_eq!(current_id().unwrap(), outside);
    }
}
