//! Marks of nodes in a run directory that is one user's alone: `<host>.<realm>.marks/<mark>/<node>`, an empty file
//! for each mark. A node reads only the names of the nodes that have a mark in common with it, however many others
//! there are. With one list of all, 1,000 nodes spent three quarters of their start on reading it (7.4 s on two
//! processors, 1.7 to 3.9 s now).
//!
//! Not in a directory of several users: the user who makes a folder first may remove the files of others from it.

use super::shares::{Shares, text_of};
use crate::control::NodeId;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The folder of nodes that share with all.
const ALL: &str = "all";
const END: &str = "marks";
/// Number of attempts to make a folder that its last node is removing.
const TRIES: usize = 100;

/// The marks of a node; removed when dropped.
#[derive(Debug)]
pub(super) struct Marks {
    dir: PathBuf,
    node: NodeId,
    told: BTreeSet<String>,
    looked: usize,
}

impl Marks {
    /// The marks of a node of this realm, by the start of its nodes' names. None is written yet.
    pub(super) fn new(run_dir: &Path, peers: &str, node: NodeId) -> Self {
        Self { dir: run_dir.join(format!("{peers}{END}")), node, told: BTreeSet::new(), looked: 0 }
    }

    /// Writes the node's marks; `anew`: all of them, since they may have been removed.
    pub(super) fn tell(&mut self, shares: &Shares, anew: bool) -> io::Result<()> {
        let wanted = folders(shares);
        let before = std::mem::take(&mut self.told);
        self.told = before.union(&wanted).cloned().collect(); // files of a failure in between are removed, too
        wanted.iter().filter(|mark| anew || !before.contains(*mark)).try_for_each(|mark| self.add(mark))?;
        before.difference(&wanted).for_each(|mark| self.remove(mark));
        self.told = wanted;
        Ok(())
    }

    /// `true` if the marks are still there. One is checked each time: a program that cleans a directory removes all in the end.
    pub(super) fn is_there(&mut self) -> bool {
        self.looked = self.looked.wrapping_add(1);
        let mark = self.told.iter().nth(self.looked % self.told.len().max(1));
        mark.is_none_or(|mark| self.dir.join(mark).join(self.node.to_string()).symlink_metadata().is_ok())
    }

    /// The other nodes that have one of these marks, or share with all.
    pub(super) fn sharing(&self, marks: &BTreeSet<u32>) -> Vec<NodeId> {
        let folders = folders(&Shares::Marks(marks.clone())).into_iter().chain([ALL.to_owned()]);
        let nodes = folders.flat_map(|mark| names(&self.dir.join(mark)).filter_map(|name| NodeId::try_from(name).ok()));
        let nodes: BTreeSet<NodeId> = nodes.filter(|node| *node != self.node).collect();
        nodes.into_iter().collect()
    }

    fn add(&self, mark: &str) -> io::Result<()> {
        let folder = self.dir.join(mark);
        let file = folder.join(self.node.to_string());
        for _ in 0..TRIES {
            match File::create(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => make(&folder)?,
                made => return made.map(drop),
            }
        }
        File::create(&file).map(drop)
    }

    fn remove(&self, mark: &str) {
        remove(&self.dir.join(mark), &self.node.to_string());
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        self.told.iter().for_each(|mark| self.remove(mark));
        let _ = fs::remove_dir(&self.dir); // unless another node is left
    }
}

/// Removes the marks of a dead node, whose socket's name without its end was this.
pub(super) fn remove_all(run_dir: &Path, socket: &str) {
    let Some((peers, node)) = socket.rsplit_once('.') else { return };
    let dir = run_dir.join(format!("{peers}.{END}"));
    names(&dir).for_each(|mark| remove(&dir.join(mark), node));
}

fn remove(folder: &Path, node: &str) {
    if fs::remove_file(folder.join(node)).is_ok() {
        let _ = fs::remove_dir(folder); // unless another node uses it
    }
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        // The file was removed since, or the folder above was: the next attempt makes it.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => Ok(()),
        made => made,
    }
}

fn folders(shares: &Shares) -> BTreeSet<String> {
    match shares {
        Shares::All => BTreeSet::from([ALL.to_owned()]),
        Shares::Marks(marks) => marks.iter().map(|mark| text_of(*mark)).collect(),
    }
}

fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    fn marks(marks: &[u32]) -> Shares {
        Shares::Marks(marks.iter().copied().collect())
    }

    fn seen(by: &Marks, of: &[u32]) -> Vec<u64> {
        by.sharing(&of.iter().copied().collect()).into_iter().map(|node| node.0).collect()
    }

    #[test]
    fn a_node_sees_those_with_a_mark_in_common_and_those_that_share_with_all() {
        let dir = TempDir::new();
        let [mut a, mut b, mut c] = [1, 2, 3].map(|node| Marks::new(dir.path(), "host.lab.", NodeId(node)));
        let other = Marks::new(dir.path(), "host.other.", NodeId(4));
        a.tell(&marks(&[1, 2]), false).unwrap();
        b.tell(&marks(&[2, 3]), false).unwrap();
        c.tell(&Shares::All, false).unwrap();
        assert_eq!((seen(&a, &[1, 2]), seen(&a, &[1]), seen(&a, &[])), (vec![2, 3], vec![3], vec![3]));
        assert_eq!((seen(&b, &[3]), seen(&other, &[2])), (vec![3], vec![]));
        b.tell(&marks(&[3]), false).unwrap();
        c.tell(&marks(&[1]), false).unwrap();
        assert_eq!((seen(&a, &[1, 2]), seen(&a, &[3])), (vec![3], vec![2]));
        drop((b, c));
        assert_eq!(seen(&a, &[1, 2, 3]), Vec::<u64>::new());
        drop(a);
        assert_eq!(names(dir.path()).count(), 0, "nothing is left");
    }

    #[test]
    fn marks_that_were_removed_are_told_anew_and_those_of_the_dead_are_removed() {
        let dir = TempDir::new();
        let [mut a, mut b] = [1, 2].map(|node| Marks::new(dir.path(), "host.lab.", NodeId(node)));
        a.tell(&marks(&[1, 2]), false).unwrap();
        b.tell(&marks(&[1]), false).unwrap();
        remove_all(dir.path(), &format!("host.lab.{}", NodeId(1)));
        assert_eq!((seen(&b, &[1, 2]), names(&b.dir).count()), (vec![], 1));
        a.tell(&marks(&[1, 2]), false).unwrap();
        assert_eq!(seen(&b, &[1, 2]), Vec::<u64>::new(), "it believes that it told them");
        assert!(!a.is_there() && b.is_there());
        a.tell(&marks(&[1, 2]), true).unwrap();
        assert!(a.is_there() && a.is_there());
        assert_eq!(seen(&b, &[1, 2]), [1]);
    }

    #[test]
    fn a_folder_that_others_make_and_remove_takes_marks() {
        let dir = TempDir::new();
        let come_and_go = |node: u64| {
            (0..300).for_each(|_| {
                let mut marks_of = Marks::new(dir.path(), "host.lab.", NodeId(node));
                marks_of.tell(&marks(&[1, 2]), false).unwrap();
            });
        };
        std::thread::scope(|scope| (1..4).for_each(|node| drop(scope.spawn(move || come_and_go(node)))));
    }
}
