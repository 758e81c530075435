//! Nodes of the same host: each has a unix socket in a run directory, and a newcomer connects to all others.
//!
//! `$THALWEG_RUN_DIR`, else `$XDG_RUNTIME_DIR/thalweg`, else `/tmp/thalweg-<uid>`; below it a folder per host identity
//! (network namespaces share `/tmp`, but are hosts of their own); in it `<realm>.<node id>.sock`.

use super::NodeId;
use super::links::Source;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A node's socket in the run directory; removed when dropped.
#[derive(Debug)]
pub struct LocalEndpoint {
    folder: PathBuf,
    path: PathBuf,
    realm: String,
}

impl LocalEndpoint {
    /// Makes the socket of `node` in the user's run directory.
    ///
    /// # Errors
    /// When the directory belongs to somebody else or cannot be made, the realm's name cannot be part of a file's name, or
    /// the path is too long for a socket. The text names the path and the remedy.
    pub fn bind(realm: &str, node: NodeId) -> io::Result<(UnixListener, Self)> {
        Self::bind_in(&run_dir(), realm, node)
    }

    /// As [`LocalEndpoint::bind`], in this run directory.
    ///
    /// # Errors
    /// As [`LocalEndpoint::bind`].
    pub fn bind_in(run_dir: &Path, realm: &str, node: NodeId) -> io::Result<(UnixListener, Self)> {
        check_realm(realm)?;
        let folder = run_dir.join(folder_name(&linux::clock::host_id()));
        own_directory(run_dir)?;
        own_directory(&folder)?;
        let path = folder.join(format!("{realm}.{node}.sock"));
        // Bound under another name first: whoever sees the socket's real name can connect, so that a refused connection
        // always means that its node is dead.
        let early = folder.join(format!(".{node}"));
        let listener = UnixListener::bind(&early).map_err(|e| explain(&path, e))?;
        if let Err(error) = fs::rename(&early, &path) {
            let _ = fs::remove_file(&early);
            return Err(explain(&path, error));
        }
        Ok((listener, Self { folder, path, realm: realm.to_owned() }))
    }

    /// Where the socket is; stands in the node's document.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The sockets of all other nodes of the realm that are there now.
    pub fn others(&self) -> Source {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        Source::Sockets(entries.filter(|path| *path != self.path && self.is_peer(path)).collect())
    }

    fn is_peer(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".sock"));
        name.and_then(|n| n.rsplit_once('.')).is_some_and(|(realm, _)| realm == self.realm)
    }
}

impl Drop for LocalEndpoint {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The user's run directory.
pub fn run_dir() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("THALWEG_RUN_DIR")
        .or_else(|| set("XDG_RUNTIME_DIR").map(|dir| dir.join("thalweg")))
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/thalweg-{}", rustix::process::geteuid().as_raw())))
}

/// Checks the name of a realm, which is part of a socket's name and of keys.
///
/// # Errors
/// InvalidInput with what is allowed.
pub fn check_realm(realm: &str) -> io::Result<()> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if (1..=32).contains(&realm.len()) && realm.bytes().all(allowed) {
        return Ok(());
    }
    let shown: String = realm.chars().take(40).collect();
    let text = format!("realm {shown:?}: allowed are 1 to 32 letters, digits, '-' and '_'");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Makes `dir` for this user alone, or checks that an existing one is this user's.
fn own_directory(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(explain(dir, e)),
        _ => {}
    }
    let found = fs::symlink_metadata(dir).map_err(|e| explain(dir, e))?;
    let refuse = |what: String| {
        let text = format!("{}: {what}; set THALWEG_RUN_DIR to a directory of your own", dir.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    };
    let user = rustix::process::geteuid().as_raw();
    if !found.is_dir() {
        refuse("is no directory".to_owned())
    } else if found.uid() != user {
        refuse(format!("belongs to user {}, not to you ({user})", found.uid()))
    } else if found.mode() & 0o022 != 0 {
        refuse(format!("others may write to it (mode {:o})", found.mode() & 0o777))
    } else {
        Ok(())
    }
}

fn explain(path: &Path, error: io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::InvalidInput => "; set THALWEG_RUN_DIR to a shorter path",
        _ => "",
    };
    io::Error::new(error.kind(), format!("{}: {error}{remedy}", path.display()))
}

/// 64-bit FNV-1a of the host identity: short enough for a socket's path.
fn folder_name(host: &str) -> String {
    let hash = host.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_socket_is_seen_by_nodes_of_its_realm_and_removed_with_its_owner() {
        let dir = TempDir::new();
        let (_a_listener, a) = LocalEndpoint::bind_in(dir.path(), "lab", NodeId(1)).unwrap();
        let (_b_listener, b) = LocalEndpoint::bind_in(dir.path(), "lab", NodeId(2)).unwrap();
        let (_c_listener, _c) = LocalEndpoint::bind_in(dir.path(), "other", NodeId(3)).unwrap();
        let others = |e: &LocalEndpoint| match e.others() {
            Source::Sockets(paths) => paths,
            Source::Addresses(_) => panic!(),
        };
        assert_eq!(others(&a), [b.path()]);
        drop(b);
        assert!(others(&a).is_empty());
        let mode = fs::metadata(a.path().parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_directory_that_is_not_ones_own_is_refused_with_the_remedy() {
        let dir = TempDir::new();
        let refused = |run: &Path| LocalEndpoint::bind_in(run, "lab", NodeId(1)).unwrap_err().to_string();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused(&open).contains("others may write to it (mode 777); set THALWEG_RUN_DIR"));
        let link = dir.path().join("link");
        symlink(dir.path(), &link).unwrap();
        assert!(refused(&link).contains("is no directory"));
        if rustix::process::geteuid().is_root() {
            let foreign = dir.path().join("foreign");
            fs::create_dir(&foreign).unwrap();
            std::os::unix::fs::chown(&foreign, Some(12345), None).unwrap();
            assert!(refused(&foreign).contains("belongs to user 12345"));
        }
        assert!(refused(&dir.path().join("x".repeat(100))).contains("shorter path"));
    }

    #[test]
    fn a_realm_that_cannot_be_part_of_a_file_name_is_refused() {
        for bad in ["", "a/b", "..", "a b", &"x".repeat(33)] {
            assert!(check_realm(bad).unwrap_err().to_string().contains("1 to 32 letters"), "{bad}");
        }
        check_realm("default").unwrap();
    }
}
