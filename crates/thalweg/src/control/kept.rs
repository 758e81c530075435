//! Connections that an administrator wants to last (YS-33): one small file each in the run directory, so that they
//! are made again whenever both ports exist, in any order of restarts.
//!
//! They are kept per host and realm until they are disconnected, or the run directory is emptied (a restart of the host).

#![allow(clippy::disallowed_methods)] // a temporary file is named by the time

use crate::carrier;
use qos::priority::PrioritySettings;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Most connections that are kept in a directory, and most bytes of one.
const MOST: usize = 4096;
const LONGEST: u64 = 4096;

/// A connection that lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The publisher's port name.
    pub publisher: String,
    /// The subscriber's port name.
    pub subscriber: String,
    /// The carrier; `None`: as `auto` picks.
    pub carrier: Option<carrier::Name>,
    /// The priority of both ends, from the first sample on, unless a channel's own was set; default: none.
    #[serde(default)]
    pub priority: PrioritySettings,
}

/// The connections of a realm on this host.
#[derive(Clone, Debug)]
pub struct Kept {
    dir: PathBuf,
    prefix: String,
}

impl Kept {
    /// The connections in `dir` whose files begin with `prefix`.
    pub(super) fn new(dir: &Path, prefix: &str) -> Self {
        Self { dir: dir.to_owned(), prefix: prefix.to_owned() }
    }

    /// All connections of this user, root or the directory's owner, each with its user. Unreadable files are left
    /// alone.
    pub fn all(&self) -> Vec<(Connection, u32)> {
        self.paths().filter_map(|path| read(&path)).collect()
    }

    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mine = |name: &str| name.starts_with(&self.prefix) && name.ends_with(END);
        entries.filter(move |e| e.file_name().to_str().is_some_and(mine)).map(|e| e.path()).take(MOST)
    }

    /// Keeps a connection, instead of one between the same ports.
    ///
    /// # Errors
    /// If the file cannot be written, or 4096 are kept already.
    pub fn keep(&self, connection: &Connection) -> io::Result<()> {
        let path = self.path(&connection.publisher, &connection.subscriber);
        if !path.exists() && self.paths().count() >= MOST {
            let text = format!("{MOST} connections are kept in {} already: disconnect some", self.dir.display());
            return Err(io::Error::other(text));
        }
        let early = path.with_extension(format!("{}-{}", std::process::id(), linux::clock::monotonic_ns()));
        let text = serde_json::to_vec(connection)?;
        fs::File::create_new(&early)
            .and_then(|mut file| file.write_all(&text))
            .and_then(|()| fs::rename(&early, &path))
            .inspect_err(|_| drop(fs::remove_file(&early)))
            .map_err(|e| io::Error::new(e.kind(), format!("cannot keep the connection in {}: {e}", path.display())))
    }

    /// Forgets a connection; `false`: it was not kept.
    pub fn forget(&self, publisher: &str, subscriber: &str) -> bool {
        fs::remove_file(self.path(publisher, subscriber)).is_ok()
    }

    /// One file per user, so that users of a shared directory do not replace each other's.
    fn path(&self, publisher: &str, subscriber: &str) -> PathBuf {
        let names = super::local::short(&format!("{publisher}\n{subscriber}"));
        let user = rustix::process::geteuid().as_raw();
        self.dir.join(format!("{}{names}-{user}{END}", self.prefix))
    }
}

const END: &str = ".connection";

fn read(path: &Path) -> Option<(Connection, u32)> {
    let (bytes, user) = linux::owned::read_of(path, LONGEST).ok()?;
    Some((serde_json::from_slice(&bytes).ok()?, user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn connections_are_kept_until_they_are_forgotten() {
        let dir = TempDir::new();
        let (kept, other) = (Kept::new(dir.path(), "host.lab."), Kept::new(dir.path(), "host.other."));
        let connection = |carrier: Option<&str>| Connection {
            publisher: "/out".into(),
            subscriber: "/in".into(),
            carrier: carrier.map(Into::into),
            priority: PrioritySettings { socket_priority: carrier.map(|_| 6), ..PrioritySettings::default() },
        };
        kept.keep(&connection(None)).unwrap();
        kept.keep(&connection(Some("udp"))).unwrap();
        fs::write(dir.path().join("host.lab.x.connection"), "no JSON").unwrap();
        // Opening it as a file would wait for a writer.
        let fifo = dir.path().join("host.lab.y.connection");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!((kept.all(), other.all()), (vec![(connection(Some("udp")), own)], vec![]));
        assert!(kept.forget("/out", "/in") && !kept.forget("/out", "/in") && kept.all().is_empty());
        (0..MOST).for_each(|n| fs::write(kept.path("/out", &n.to_string()), "").unwrap());
        assert!(kept.keep(&connection(None)).unwrap_err().to_string().contains("4096 connections"));
        let gone = Kept::new(&dir.path().join("gone"), "a.");
        assert!(gone.keep(&connection(None)).unwrap_err().to_string().contains("cannot keep"));
    }
}
