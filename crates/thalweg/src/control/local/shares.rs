//! Shares: the nodes of a host with common topics or ports find one another by the names of empty files in the run directory, so
//! that no node holds a connection to unrelated nodes. In the directory of one user these are the files of [`Marks`]; in one of
//! several users `<host>.<realm>.<node>.<marks>.shares`, or with `.` and random characters after the marks if that name is taken.
//!
//! A mark is 24 bits of the hash of a topic or of a port's name: of the node's own ports, and of those it waits for.
//! Nodes with a mark in common make a link, on which they exchange their documents. A node that changes its marks
//! reads those of all others afterwards: of two that change at the same time, the later one sees the other. Changes
//! are not announced, so a node that shares nothing costs the others nothing. Two sets of 20 marks with nothing in
//! common match by chance once in 40,000 times; that costs a link.
//!
//! Nodes with patterns, relays, those with more than [`MOST_MARKS`] marks, and those that list nodes
//! ([`Node::nodes`](crate::Node::nodes)) share with all.

use super::short_bits;
use crate::control::matching::is_pattern;
use crate::control::{Direction, Document, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Most marks of a file's name: four bytes each, and 255 are a name's most.
pub const MOST_MARKS: usize = 40;

/// The topics and names that a node shares with others, as marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shares {
    /// All nodes: it sees them, and they see it.
    All,
    /// Marks of topics and names.
    Marks(BTreeSet<u32>),
}

impl Default for Shares {
    fn default() -> Self {
        Shares::Marks(BTreeSet::new())
    }
}

impl Shares {
    /// The marks of a node with this document that waits for ports of these names.
    pub fn of<'a>(document: &Document, names: impl Iterator<Item = &'a str>) -> Self {
        let all = |direction, topic: &str| direction == Direction::Subscriber && is_pattern(topic);
        // Each port has a mark of its own, its name's.
        let many = document.ports.len() > MOST_MARKS || document.relay.is_some();
        if many || document.ports.values().any(|port| all(port.direction, &port.topic)) {
            return Shares::All;
        }
        let ports = document.ports.values().flat_map(|port| [of_topic(&port.topic), of_name(&port.name)]);
        Shares::Marks(ports.chain(names.map(of_name)).collect()).bounded()
    }

    /// These and another mark.
    pub fn with(self, mark: u32) -> Self {
        match self {
            Shares::All => Shares::All,
            Shares::Marks(mut marks) => {
                marks.insert(mark);
                Shares::Marks(marks).bounded()
            }
        }
    }

    fn bounded(self) -> Self {
        match self {
            Shares::Marks(marks) if marks.len() <= MOST_MARKS => Shares::Marks(marks),
            _ => Shares::All,
        }
    }

    /// The shares that were not among those before: nodes that have them are looked for.
    pub fn beyond(&self, before: &Shares) -> Self {
        match (self, before) {
            (_, Shares::All) => Shares::default(),
            (Shares::All, _) => Shares::All,
            (Shares::Marks(marks), Shares::Marks(known)) => Shares::Marks(marks.difference(known).copied().collect()),
        }
    }

    /// `true` if two nodes have a mark in common, or one of them shares with all.
    pub fn meet(&self, other: &Shares) -> bool {
        match (self, other) {
            (Shares::Marks(own), Shares::Marks(others)) => !own.is_disjoint(others),
            _ => true,
        }
    }

    fn encode(&self) -> String {
        match self {
            Shares::All => ALL.to_owned(),
            Shares::Marks(marks) if marks.is_empty() => NONE.to_owned(),
            Shares::Marks(marks) => marks.iter().flat_map(|mark| digits(*mark)).collect(),
        }
    }

    /// A malformed list of marks counts as all: one more link does no harm.
    fn decode(text: &str) -> Self {
        let marks = || {
            let digits: Option<Vec<u32>> = text.bytes().map(value).collect();
            let groups = digits.filter(|digits| digits.len().is_multiple_of(4))?;
            Some(groups.chunks(4).map(|four| four.iter().fold(0, |mark, digit| mark << 6 | digit)).collect())
        };
        match text {
            ALL => Shares::All,
            NONE => Shares::default(),
            _ => marks().map_or(Shares::All, Shares::Marks),
        }
    }
}

/// The mark of a topic.
pub fn of_topic(topic: &str) -> u32 {
    mark('t', topic)
}

/// The mark of a port's name.
pub fn of_name(name: &str) -> u32 {
    mark('n', name)
}

fn mark(kind: char, text: &str) -> u32 {
    (short_bits(&format!("{kind}{text}")) >> 40) as u32
}

fn digits(mark: u32) -> [char; 4] {
    [18, 12, 6, 0].map(|shift| char::from(DIGITS[(mark >> shift & 63) as usize]))
}

/// A mark as a name.
fn text_of(mark: u32) -> String {
    digits(mark).iter().collect()
}

fn value(digit: u8) -> Option<u32> {
    DIGITS.iter().position(|of| *of == digit).map(|at| at as u32)
}

/// The file with a node's marks; removed when dropped.
#[derive(Debug)]
pub(super) struct SharesFile {
    dir: PathBuf,
    start: String, // start of its name: the name of the node's socket, without its end
    path: PathBuf,
    marks: Option<String>, // the announced marks, if the file is there
}

impl SharesFile {
    /// The file of the node whose names begin with `start`. It is not written yet.
    pub(super) fn new(dir: &Path, start: String) -> Self {
        Self { dir: dir.to_owned(), path: PathBuf::new(), start, marks: None }
    }

    /// Writes the node's marks; `false`: they are unchanged. On failure there is no file any more: all nodes link to
    /// a node without one.
    pub(super) fn tell(&mut self, shares: &Shares) -> io::Result<bool> {
        let marks = shares.encode();
        if self.marks.as_ref() == Some(&marks) && self.path.symlink_metadata().is_ok() {
            return Ok(false);
        }
        // In a directory of several users, any predictable name may be taken by another one.
        let again = format!("{marks}.{:016x}", RandomState::new().hash_one(()));
        let told = self.put(&marks).or_else(|_| self.put(&again));
        if told.is_err() {
            let _ = fs::remove_file(&self.path);
        }
        self.marks = told.is_ok().then_some(marks);
        told.map(|()| true)
    }

    /// `true` if the file is still there.
    pub(super) fn is_there(&self) -> bool {
        self.marks.is_none() || self.path.symlink_metadata().is_ok()
    }

    fn put(&mut self, marks: &str) -> io::Result<()> {
        let path = self.dir.join(format!("{}.{marks}{END}", self.start));
        if fs::rename(&self.path, &path).is_err() {
            // An existing file is never opened: a FIFO would block.
            let mut fresh = fs::OpenOptions::new();
            fresh.write(true).create_new(true).mode(0o644).open(&path)?;
            let _ = fs::remove_file(&self.path);
        }
        self.path = path;
        Ok(())
    }
}

impl Drop for SharesFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The announced shares of this realm's nodes in `dir`, by the start of their files' names after `peers`. If a node has several
/// files, as for an instant while it renames one, all count.
pub(super) fn told(dir: &Path, peers: &str) -> (Vec<NodeId>, BTreeMap<NodeId, Vec<Shares>>) {
    let (mut sockets, mut shares) = (Vec::new(), BTreeMap::<NodeId, Vec<Shares>>::new());
    let names =
        fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    for name in names {
        let Some(rest) = name.strip_prefix(peers) else { continue };
        if let Some(node) = rest.strip_suffix(".sock").and_then(node_of) {
            sockets.push(node);
        } else if let Some((node, marks)) = rest.strip_suffix(END).and_then(|rest| rest.split_once('.')) {
            let marks = marks.split_once('.').map_or(marks, |(marks, _)| marks);
            node_of(node).into_iter().for_each(|node| shares.entry(node).or_default().push(Shares::decode(marks)));
        }
    }
    (sockets, shares)
}

fn node_of(text: &str) -> Option<NodeId> {
    NodeId::try_from(text.to_owned()).ok().filter(|_| text.len() == 16)
}

/// Removes the files of a dead node beside its socket at `path`.
pub(in crate::control) fn remove_beside(path: &Path) {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else { return };
    let Some(start) = name.strip_suffix("sock") else { return };
    remove_all(dir, start.trim_end_matches('.'));
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let its = |name: &str| name.starts_with(start) && name.ends_with(END);
    let files = entries.filter(|entry| entry.file_name().to_str().is_some_and(its));
    files.for_each(|entry| drop(fs::remove_file(entry.path())));
}

/// The marks of a node in a run directory that is one user's alone: `<host>.<realm>.marks/<mark>/<node>`, an empty file
/// for each mark; removed when dropped.
///
/// A node reads only the names of the nodes that have a mark in common with it, however many others there are. With one list of all,
/// 1,000 nodes spent three quarters of their start on reading it (7.4 s on two processors, 1.7 to 3.9 s now). Not in a directory of
/// several users: the user who makes a folder first may remove the files of others from it.
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
        Self { dir: run_dir.join(format!("{peers}{FOLDER_OF_MARKS}")), node, told: BTreeSet::new(), looked: 0 }
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
        let folders = folders(&Shares::Marks(marks.clone())).into_iter().chain([FOLDER_OF_ALL.to_owned()]);
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
fn remove_all(run_dir: &Path, socket: &str) {
    let Some((peers, node)) = socket.rsplit_once('.') else { return };
    let dir = run_dir.join(format!("{peers}.{FOLDER_OF_MARKS}"));
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
        Shares::All => BTreeSet::from([FOLDER_OF_ALL.to_owned()]),
        Shares::Marks(marks) => marks.iter().map(|mark| text_of(*mark)).collect(),
    }
}

fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok())
}

const END: &str = ".shares";
const ALL: &str = "~all";
const NONE: &str = "~none";
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// The folder of nodes that share with all.
const FOLDER_OF_ALL: &str = "all";
const FOLDER_OF_MARKS: &str = "marks";
/// Number of attempts to make a folder that its last node is removing.
const TRIES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::PortId;
    use crate::testing::TempDir;
    use crate::testing::discovery::{document, port};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn marks_survive_a_file_name(marks in prop::collection::btree_set(0u32..1 << 24, 0..=MOST_MARKS)) {
            let shares = Shares::Marks(marks);
            let text = shares.encode();
            prop_assert!(text.len() <= 160 && !text.contains(['.', '/']));
            prop_assert_eq!(Shares::decode(&text), shares);
        }

        #[test]
        fn any_file_name_is_read(text in ".{0,200}") {
            let _ = Shares::decode(&text);
        }
    }

    #[test]
    fn a_foreign_file_in_its_place_does_not_stop_a_node() {
        let dir = crate::testing::TempDir::new();
        let start = format!("host.lab.{}", NodeId(1));
        let mut file = SharesFile::new(dir.path(), start.clone());
        // Opening it as a file would wait for a reader.
        let take = |shares: &Shares| {
            let fifo = dir.path().join(format!("{start}.{}{END}", shares.encode()));
            rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
            fifo
        };
        let told = || told(dir.path(), "host.lab.").1.remove(&NodeId(1)).unwrap_or_default();
        let [a, b] = ["/a", "/b"].map(|topic| shares(&[topic], &[]));
        let fifo = take(&a);
        assert!(file.tell(&a).unwrap() && !file.tell(&a).unwrap());
        fs::remove_file(fifo).unwrap();
        assert_eq!(told(), std::slice::from_ref(&a), "by another name");
        fs::remove_file(&file.path).unwrap(); // so that it cannot be renamed, as for a file of another user
        let fifo = take(&b);
        assert!(file.tell(&b).unwrap());
        fs::remove_file(fifo).unwrap();
        assert_eq!(told(), std::slice::from_ref(&b));
        let taken = file.path.clone();
        file.dir = dir.path().join("gone");
        assert!(file.tell(&a).is_err() && !taken.exists(), "it does not go on to tell what is not so");
        file.dir = dir.path().to_owned();
        assert!(file.tell(&a).unwrap());
        assert_eq!(told(), [a]);
        drop(file);
        assert_eq!(told(), []);
    }

    fn shares(topics: &[&str], names: &[&str]) -> Shares {
        let mut made = document(1);
        let ports = topics.iter().enumerate();
        let ports =
            ports.map(|(n, topic)| (PortId(n as u32), port(Direction::Subscriber, &format!("/port{n}{topic}"), topic)));
        made.ports = ports.collect();
        Shares::of(&made, names.iter().copied())
    }

    #[test]
    fn nodes_with_a_common_topic_or_name_meet() {
        assert!(shares(&["/a", "/b"], &[]).meet(&shares(&["/b", "/c"], &[])));
        assert!(!shares(&["/a", "/b"], &[]).meet(&shares(&["/c"], &[])));
        assert!(shares(&["/a"], &[]).meet(&shares(&["/x"], &["/port0/a"])), "it waits for that port");
        assert!(!shares(&[], &[]).meet(&shares(&[], &[])) && !shares(&["/port0/a"], &[]).meet(&shares(&["/a"], &[])));
        let (two, one, none) = (shares(&["/a"], &["/n"]), shares(&[], &["/n"]), shares(&[], &[]));
        assert_eq!(
            (two.beyond(&two), one.beyond(&none), Shares::All.beyond(&two)),
            (none.clone(), one.clone(), Shares::All)
        );
        assert_eq!(
            (one.beyond(&two), one.beyond(&Shares::All), two.beyond(&one).meet(&one)),
            (none.clone(), none, false)
        );
        assert!(shares(&["/**"], &[]).meet(&shares(&[], &[])), "a pattern may take anything");
        let many: Vec<String> = (0..MOST_MARKS).map(|n| format!("/t{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(shares(&many, &[]), Shares::All);
    }

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
