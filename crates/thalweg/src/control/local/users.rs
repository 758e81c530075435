//! Users of a run directory: its owner alone, or those whom its mode admits.
//!
//! | directory | users |
//! |---|---|
//! | of this user, not writable for others | this user |
//! | named by `THALWEG_RUN_DIR`, sticky, group may write (`1770`) | its group, its owner, and root |
//! | named by `THALWEG_RUN_DIR`, sticky, all may write (`1777`) | every user of this host |
//!
//! It is sticky, so that only the directory's owner removes or replaces another user's socket; no folder above it may belong
//! to another user. The kernel keeps strangers from the sockets by their mode. Besides, each end asks the kernel for the user
//! at the other one.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o002;
const NOT_ONLY_OWNER_WRITES: u32 = 0o022;

/// The users that may use a run directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// This user.
    Own,
    /// The members of a group, the directory's owner, and root.
    Group {
        /// The owner's number.
        owner: u32,
        /// The group's number.
        group: u32,
    },
    /// Every user of this host.
    Everybody,
}

impl Users {
    /// Makes `dir` for this user alone, or finds the permitted users of an existing one; `shared`: it may be shared.
    /// Returns its real path as well.
    ///
    /// # Errors
    /// If it is not safe to use, or not this user's to use. The text names the path, the defect and the remedy.
    pub(super) fn of(dir: &Path, shared: bool) -> io::Result<(Self, PathBuf)> {
        match DirBuilder::new().recursive(true).mode(0o700).create(dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(super::explain(dir, e)),
            _ => {}
        }
        let found = fs::symlink_metadata(dir).map_err(|e| super::explain(dir, e))?;
        let real = fs::canonicalize(dir).map_err(|e| super::explain(dir, e))?;
        let users = if shared { by_mode(&real, &found) } else { private(&found) };
        users.map(|users| (users, real)).map_err(|what| {
            let text = format!("{}: {what}; set THALWEG_RUN_DIR to a directory of your own", dir.display());
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        })
    }

    /// Lets only these users connect to the socket at `path`.
    pub(super) fn let_in(self, path: &Path) -> io::Result<()> {
        let mode = match self {
            Users::Own => 0o600,
            Users::Group { group, .. } => {
                chown(path, None, Some(group))?;
                0o660
            }
            Users::Everybody => 0o666,
        };
        fs::set_permissions(path, Permissions::from_mode(mode))
    }

    /// Checks whether the process at the other end of a connected unix socket is one of them.
    ///
    /// # Errors
    /// PermissionDenied with the user's number and what it lacks; otherwise the kernel's error.
    pub fn admit(self, peer: impl AsFd) -> io::Result<()> {
        let (user, own) = (linux::socket::peer_user(&peer)?, this_user());
        let lacks = match self {
            _ if user == own => return Ok(()),
            Users::Everybody => return Ok(()),
            // Root passes any mode: its node opens there, and would otherwise meet no other node.
            Users::Group { .. } if user == 0 => return Ok(()),
            Users::Own => format!("the run directory is user {own}'s alone"),
            Users::Group { owner, group } if user == owner || linux::socket::peer_groups(&peer)?.contains(&group) => {
                return Ok(());
            }
            Users::Group { owner, group } => format!("the run directory is for user {owner} and group {group}"),
        };
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("user {user} may not take part: {lacks}")))
    }
}

fn private(found: &Metadata) -> Result<Users, String> {
    let user = this_user();
    if !found.is_dir() {
        Err("is no directory".to_owned())
    } else if found.uid() != user {
        Err(format!("belongs to user {}, not to you ({user})", found.uid()))
    } else if found.mode() & NOT_ONLY_OWNER_WRITES != 0 {
        Err(format!("others may write to it (mode {:o})", found.mode() & 0o7777))
    } else {
        Ok(Users::Own)
    }
}

/// `real` has no symbolic link in it.
fn by_mode(real: &Path, found: &Metadata) -> Result<Users, String> {
    let (owner, group, mode) = (found.uid(), found.gid(), found.mode() & 0o7777);
    if !found.is_dir() || mode & NOT_ONLY_OWNER_WRITES == 0 {
        return private(found);
    }
    if mode & STICKY == 0 {
        return Err(format!("others may write to it (mode {mode:o}); make it sticky (chmod +t) to share it"));
    }
    if let Some(above) = replaceable(real, owner).map_err(|e| e.to_string())? {
        return Err(format!("somebody else could replace it, who may write to {}", above.display()));
    }
    let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    if rustix::fs::accessat(rustix::fs::CWD, real, access, rustix::fs::AtFlags::EACCESS).is_err() {
        let user = this_user();
        return Err(format!("user {user} may not use it: it is for user {owner} and group {group} (mode {mode:o})"));
    }
    Ok(if mode & OTHERS_WRITE != 0 { Users::Everybody } else { Users::Group { owner, group } })
}

/// The folder above `dir`, if there is one, in which a user other than root, this one and the directory's owner could
/// put another directory in its place.
fn replaceable(dir: &Path, owner: u32) -> io::Result<Option<PathBuf>> {
    for above in dir.ancestors().skip(1) {
        let found = fs::metadata(above)?;
        let kept = found.mode() & NOT_ONLY_OWNER_WRITES == 0 || found.mode() & STICKY != 0;
        if !kept || ![0, this_user(), owner].contains(&found.uid()) {
            return Ok(Some(above.to_owned()));
        }
    }
    Ok(None)
}

fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixStream;

    fn directory(within: &TempDir, name: &str, mode: u32) -> PathBuf {
        let dir = within.path().join(name);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
        dir
    }

    fn refused(dir: &Path, shared: bool) -> String {
        Users::of(dir, shared).unwrap_err().to_string()
    }

    #[test]
    fn a_sticky_directory_that_was_asked_for_is_shared_as_its_mode_says() {
        let temp = TempDir::new();
        let group = directory(&temp, "group", 0o1770);
        let owner = this_user();
        let expected = Users::Group { owner, group: fs::metadata(&group).unwrap().gid() };
        assert_eq!(Users::of(&group, true).unwrap().0, expected);
        assert_eq!(Users::of(&directory(&temp, "all", 0o1777), true).unwrap().0, Users::Everybody);
        assert_eq!(Users::of(&directory(&temp, "own", 0o755), true).unwrap().0, Users::Own);
        assert_eq!(Users::of(&temp.path().join("new"), true).unwrap().0, Users::Own);
        assert!(refused(&group, false).contains("others may write to it (mode 1770); set THALWEG_RUN_DIR"));
    }

    #[test]
    fn a_directory_that_is_not_safe_is_refused_with_the_remedy() {
        let temp = TempDir::new();
        assert!(refused(&directory(&temp, "loose", 0o770), true).contains("(mode 770); make it sticky (chmod +t)"));
        let link = temp.path().join("link");
        symlink(directory(&temp, "aim", 0o1770), &link).unwrap();
        assert!(refused(&link, true).contains("is no directory"));
        let open = directory(&temp, "open", 0o777);
        let below = open.join("below");
        fs::create_dir(&below).unwrap();
        fs::set_permissions(&below, Permissions::from_mode(0o1770)).unwrap();
        assert!(refused(&below, true).contains("could replace it, who may write to"), "{}", refused(&below, true));
        if rustix::process::geteuid().is_root() {
            let foreign = directory(&temp, "foreign", 0o700);
            chown(&foreign, Some(12345), None).unwrap();
            assert!(refused(&foreign, true).contains("belongs to user 12345"));
        }
    }

    #[test]
    fn a_peer_of_the_same_user_is_always_admitted() {
        let (a, _b) = UnixStream::pair().unwrap();
        for users in [Users::Own, Users::Group { owner: 0, group: 0 }, Users::Everybody] {
            users.admit(&a).unwrap();
        }
    }
}
