//! Nodes of the same host: each has a unix socket in a run directory, and a newcomer connects to those with which it has
//! shares in common (`shares`).
//!
//! `$THALWEG_RUN_DIR` (or `run-dir` of the configuration file), else `$XDG_RUNTIME_DIR/thalweg`, else `/tmp/thalweg-<uid>`; in it `<host>.<realm>.<node id>.sock`:
//! network namespaces share `/tmp`, but are hosts of their own. Only the first may be shared by several users: see [`Users`].

pub(crate) mod shares;
mod users;

pub use users::Users;

use shares::{Marks, Shares, SharesFile};

use super::NodeId;
use super::links::Source;
use crate::config::Configuration;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A node's socket in the run directory; removed when dropped.
#[derive(Debug)]
pub struct LocalEndpoint {
    dir: PathBuf,
    asked_for: bool,
    node: NodeId,
    path: PathBuf,
    inode: u64,
    announcement: Announcement,
    told: Option<Shares>,
    peers: String, // how the names of the sockets of its realm on this host begin
    users: Users,
}

/// The place in which a node announces its shares.
#[derive(Debug)]
enum Announcement {
    Marks(Marks),
    File(SharesFile),
}

impl Announcement {
    fn tell(&mut self, shares: &Shares, anew: bool) -> io::Result<()> {
        match self {
            Announcement::Marks(marks) => marks.tell(shares, anew),
            Announcement::File(file) => file.tell(shares).map(drop),
        }
    }

    fn is_there(&mut self) -> bool {
        match self {
            Announcement::Marks(marks) => marks.is_there(),
            Announcement::File(file) => file.is_there(),
        }
    }
}

impl LocalEndpoint {
    /// Makes the socket of `node` in the user's run directory.
    ///
    /// # Errors
    /// If the directory is not safe, is not this user's to use or cannot be made, the realm's name cannot be part of a file's
    /// name, or the path is too long for a socket. The text names the path and the remedy.
    pub fn bind(realm: &str, node: NodeId) -> io::Result<(UnixListener, Self)> {
        let (dir, asked_for) = run_dir();
        Self::make(&dir, asked_for, realm, node)
    }

    /// As [`LocalEndpoint::bind`], in this run directory, as if `THALWEG_RUN_DIR` named it.
    ///
    /// # Errors
    /// As [`LocalEndpoint::bind`].
    #[cfg(any(test, feature = "testing"))]
    pub fn bind_in(run_dir: &Path, realm: &str, node: NodeId) -> io::Result<(UnixListener, Self)> {
        Self::make(run_dir, true, realm, node)
    }

    fn make(dir: &Path, asked_for: bool, realm: &str, node: NodeId) -> io::Result<(UnixListener, Self)> {
        check_realm(realm)?;
        let (users, dir) = Users::of(dir, asked_for)?;
        let peers = format!("{}.{realm}.", short(&linux::clock::host_id()));
        let path = dir.join(format!("{peers}{node}.sock"));
        let (listener, inode) = listen(&dir, &path, node, users)?;
        let announcement = match users {
            Users::Own => Announcement::Marks(Marks::new(&dir, &peers, node)),
            _ => Announcement::File(SharesFile::new(&dir, format!("{peers}{node}"))),
        };
        Ok((listener, Self { dir, asked_for, node, path, inode, announcement, told: None, peers, users }))
    }

    /// `true` if the socket is still where others look for it.
    pub fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode)
    }

    /// Makes the socket again at its place, after the run directory was emptied or replaced.
    ///
    /// # Errors
    /// As [`LocalEndpoint::bind`].
    pub fn renew(&mut self) -> io::Result<UnixListener> {
        self.users = Users::of(&self.dir, self.asked_for)?.0;
        let (listener, inode) = listen(&self.dir, &self.path, self.node, self.users)?;
        self.inode = inode;
        self.told = self.told.take().filter(|told| self.announcement.tell(told, true).is_ok());
        Ok(listener)
    }

    /// Announces to the others of the realm on this host the shares of this node.
    ///
    /// # Errors
    /// The run directory takes no file; then no share is announced.
    pub fn tell(&mut self, shares: &Shares) -> io::Result<()> {
        let anew = self.told.take().is_none();
        self.announcement.tell(shares, anew)?;
        self.told = Some(shares.clone());
        Ok(())
    }

    /// Checks whether the node's marks were removed, for example by a program that cleans `/tmp` of empty files; then
    /// they count as not written.
    pub fn look_at_told(&mut self) {
        if !self.announcement.is_there() {
            self.told = None;
        }
    }

    /// The announced shares of this node, if there are any.
    pub fn told(&self) -> Option<&Shares> {
        self.told.as_ref()
    }

    /// The other nodes of the realm on this host that share this, as far as they tell.
    pub fn sharing(&self, shares: &Shares) -> Vec<NodeId> {
        if let (Announcement::Marks(told), Shares::Marks(marks)) = (&self.announcement, shares) {
            return told.sharing(marks);
        }
        let (nodes, told) = shares::told(&self.dir, &self.peers);
        let meets = |node: &NodeId| told.get(node).is_none_or(|told| told.iter().any(|told| shares.meet(told)));
        nodes.into_iter().filter(|node| *node != self.node && meets(node)).collect()
    }

    /// The sockets of these nodes.
    pub fn sockets_of(&self, nodes: &[NodeId]) -> Source {
        let path = |node: &NodeId| self.dir.join(format!("{}{node}.sock", self.peers));
        Source::Sockets(nodes.iter().map(path).collect(), self.users)
    }

    /// Path of the socket, which stands in the node's document.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The users that may connect to it, and to whose nodes this one connects.
    pub fn users(&self) -> Users {
        self.users
    }

    /// The connections that are kept for its realm on this host.
    pub fn kept(&self) -> super::kept::Kept {
        super::kept::Kept::new(&self.dir, &self.peers)
    }

    /// The sockets of all other nodes of the realm that are there now.
    #[cfg(any(test, feature = "testing"))]
    pub fn others(&self) -> Source {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let paths = entries.filter(|path| *path != self.path && self.is_peer(path)).collect();
        Source::Sockets(paths, self.users)
    }

    #[cfg(any(test, feature = "testing"))]
    fn is_peer(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".sock"));
        name.and_then(|n| n.strip_prefix(&self.peers)).is_some_and(|node| !node.contains('.'))
    }
}

impl Drop for LocalEndpoint {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Listens at `path`, which admits these users, and returns the socket's inode, too.
fn listen(dir: &Path, path: &Path, node: NodeId, users: Users) -> io::Result<(UnixListener, u64)> {
    // Bound under another name first: a visible socket always accepts connections, so a refused connection means that
    // its node is dead.
    let early = dir.join(format!(".{node}"));
    let listener = bind(&early).map_err(|e| explain(path, e))?;
    let inode = users.let_in(&early).and_then(|()| fs::symlink_metadata(&early)).map(|found| found.ino());
    match inode.and_then(|inode| fs::rename(&early, path).map(|()| inode)) {
        Ok(inode) => Ok((listener, inode)),
        Err(error) => {
            let _ = fs::remove_file(&early);
            Err(explain(path, error))
        }
    }
}

/// Connections that may wait to be accepted. Newcomers wait behind those of a process that connects in a loop: the system's default of
/// 4096 took 1.6 s.
const BACKLOG: i32 = 128;

fn bind(path: &Path) -> io::Result<UnixListener> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    socket.bind(&socket2::SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Connects to the unix socket at this path. Where as many wait as may, this one waits with them, in turn, for at most 20 ms; an attempt
/// that does not wait finds no room while a process connects in a loop.
///
/// # Errors
/// The kernel's; [`io::ErrorKind::WouldBlock`]: too many wait.
pub(crate) fn connect(path: &Path) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    socket.set_write_timeout(Some(IN_TURN))?;
    socket.connect(&socket2::SockAddr::unix(path)?)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

const IN_TURN: Duration = Duration::from_millis(20);

/// The user's run directory, and whether the environment (`THALWEG_RUN_DIR`) or the configuration file asked for it.
pub fn run_dir() -> (PathBuf, bool) {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let otherwise = || PathBuf::from(format!("/tmp/thalweg-{}", rustix::process::geteuid().as_raw()));
    // Whoever opens a node reports an error in the configuration.
    match Configuration::read().ok().and_then(|given| given.get("run-dir").map(|dir| PathBuf::from(&dir.text))) {
        Some(dir) => (dir, true),
        None => (set("XDG_RUNTIME_DIR").map_or_else(otherwise, |dir| dir.join("thalweg")), false),
    }
}

/// The realms that have a node on this host, as their sockets in the run directory show, sorted. A node that was killed may
/// have left its socket.
pub fn realms() -> Vec<String> {
    let host = format!("{}.", short(&linux::clock::host_id()));
    let entries = fs::read_dir(run_dir().0).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let realm = |name: String| Some(name.strip_prefix(&host)?.strip_suffix(".sock")?.split_once('.')?.0.to_owned());
    names.filter_map(realm).collect::<BTreeSet<String>>().into_iter().collect()
}

/// Processes of this host that hold the socket of a node of `realm` which is none of `known`: they are starting or ending,
/// or stopped. Never waits.
pub fn silent_processes(realm: &str, known: &[NodeId]) -> Vec<u32> {
    let start = format!("{}.{realm}.", short(&linux::clock::host_id()));
    let known: BTreeSet<String> = known.iter().map(|node| format!("{start}{node}.sock")).collect();
    let entries = fs::read_dir(run_dir().0).into_iter().flatten().flatten();
    let of_realm = |name: &str| name.starts_with(&start) && name.ends_with(".sock") && !known.contains(name);
    let others = entries.filter(|entry| entry.file_name().to_str().is_some_and(of_realm));
    others.filter_map(|entry| holder(&entry.path()).ok()).collect()
}

/// The process that listens at `path`.
fn holder(path: &Path) -> io::Result<u32> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&socket2::SockAddr::unix(path)?)?;
    linux::socket::peer_process(&socket)
}

/// The run directory that a node of this process would use, and the obstacle if there is one. A missing directory is
/// no obstacle.
pub fn check_run_dir() -> (PathBuf, io::Result<()>) {
    let (dir, asked_for) = run_dir();
    let refusal = if dir.symlink_metadata().is_ok() { Users::of(&dir, asked_for).map(|_| ()) } else { Ok(()) };
    (dir, refusal)
}

/// Checks the name of a realm, which is part of a socket's name and of keys.
///
/// # Errors
/// InvalidInput with the allowed names.
pub fn check_realm(realm: &str) -> io::Result<()> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if (1..=32).contains(&realm.len()) && realm.bytes().all(allowed) {
        return Ok(());
    }
    let shown: String = realm.chars().take(40).collect();
    let text = format!("realm {shown:?}: allowed are 1 to 32 letters, digits, '-' and '_'");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn explain(path: &Path, error: io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::InvalidInput => "; set THALWEG_RUN_DIR to a shorter path",
        _ => "",
    };
    io::Error::new(error.kind(), format!("{}: {error}{remedy}", path.display()))
}

/// 64-bit FNV-1a of a text: short enough for a socket's path.
pub(crate) fn short(text: &str) -> String {
    format!("{:016x}", short_bits(text))
}

fn short_bits(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_socket_is_seen_by_nodes_of_its_realm_and_removed_with_its_owner() {
        let dir = TempDir::new();
        let (_a_listener, a) = LocalEndpoint::bind_in(dir.path(), "lab", NodeId(1)).unwrap();
        let (_b_listener, b) = LocalEndpoint::bind_in(dir.path(), "lab", NodeId(2)).unwrap();
        let (_c_listener, _c) = LocalEndpoint::bind_in(dir.path(), "other", NodeId(3)).unwrap();
        let others = |e: &LocalEndpoint| match e.others() {
            Source::Sockets(paths, _) => paths,
            Source::Addresses(_) => panic!(),
        };
        assert_eq!(others(&a), [b.path()]);
        drop(b);
        assert!(others(&a).is_empty());
        let (_d_listener, d) = LocalEndpoint::bind_in(&dir.path().join("new"), "lab", NodeId(4)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(d.path().parent().unwrap()), mode(d.path())), (0o700, 0o600));
    }

    #[test]
    fn a_socket_that_was_removed_is_made_anew_at_its_place() {
        let dir = TempDir::new();
        let run = dir.path().join("run");
        let (_old, mut endpoint) = LocalEndpoint::bind_in(&run, "lab", NodeId(1)).unwrap();
        assert!(endpoint.is_there());
        fs::remove_dir_all(&run).unwrap();
        assert!(!endpoint.is_there());
        let listener = endpoint.renew().unwrap();
        assert!(endpoint.is_there());
        let _here = std::os::unix::net::UnixStream::connect(endpoint.path()).unwrap();
        listener.accept().unwrap();
        drop(endpoint);
        assert_eq!(fs::read_dir(&run).unwrap().count(), 0);
    }

    #[test]
    fn a_path_that_is_too_long_is_refused_with_the_remedy() {
        let dir = TempDir::new();
        let refused = LocalEndpoint::bind_in(&dir.path().join("x".repeat(100)), "lab", NodeId(1)).unwrap_err();
        assert!(refused.to_string().contains("shorter path"));
    }

    #[test]
    fn a_realm_that_cannot_be_part_of_a_file_name_is_refused() {
        for bad in ["", "a/b", "..", "a b", &"x".repeat(33)] {
            assert!(check_realm(bad).unwrap_err().to_string().contains("1 to 32 letters"), "{bad}");
        }
        check_realm("default").unwrap();
    }
}
