//! The former queues: written and synced before the kernel is touched, removed when they are restored. So a crash at
//! any point leaves a file from which the next start restores.
//!
//! They are restored by replaying the kernel's own messages, and compared.

use super::discipline::HTB_VERSION;
use super::map::Listed;
use super::tree::{CLASS, DISCIPLINE, FILTER, Handle, Queues, Said};
use super::{QueueError, Reason, devices};
use crate::netlink::{CREATE, REPLACE, Refusal, Socket, attribute, attributes, put, u32_at, words};
use crate::{clock, owned};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Largest journal in bytes.
const LARGEST: u64 = 16 << 20;

/// The journal of one network namespace.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// The boot it was written in; queues don't outlive one.
    pub boot: String,
    /// The process that removes the queues at its end, and the time when it started; `None`: they stay until
    /// `restore`.
    pub holder: Option<(u32, u64)>,
    /// One per device.
    pub devices: Vec<Before>,
    /// Our nft tables: family and script.
    pub tables: Vec<(String, String)>,
    /// The same as `nft` showed them after they were installed; none: nobody looked.
    #[serde(default)]
    pub listed: Listed,
}

/// A device before we touched it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Before {
    pub device: String,
    pub index: u32,
    pub length: u32,
    /// Most segments of a super-packet; `None`: the journal is from before this was in it.
    #[serde(default)]
    pub segments: Option<u32>,
    /// Disciplines, classes and filters in the kernel's form.
    pub said: Vec<(u16, Said)>,
}

impl Before {
    pub(crate) fn of(queues: &Queues) -> Self {
        let disciplines = queues.disciplines.iter().map(|d| (DISCIPLINE, d.said.clone()));
        let classes = queues.classes.iter().map(|c| (CLASS, c.said.clone()));
        let filters = queues.filters.iter().map(|f| (FILTER, f.said.clone()));
        let said = disciplines.chain(classes).chain(filters).collect();
        let (device, segments) = (queues.device.clone(), Some(queues.largest.segments));
        Self { device, index: queues.index, length: queues.length, segments, said }
    }

    /// The handle of the first discipline; 0: the kernel's own choice.
    pub(crate) fn root_handle(&self) -> Option<u32> {
        self.said.iter().find(|(kind, s)| *kind == DISCIPLINE && s.parent == Handle::ROOT.0).map(|(_, s)| s.handle)
    }
}

/// The journal of this network namespace, locked against other processes.
pub(crate) struct Store {
    path: PathBuf,
    _lock: File,
}

impl Store {
    /// Opens it in `directory`, which is made if need be, for this user only.
    pub(crate) fn open(directory: &Path) -> Result<Self, QueueError> {
        let open = || {
            owned::directory(directory)?; // a journal that others may write would let them choose this host's queues
            let path = directory.join(format!("queues-{}.json", crate::namespace::current_id()?));
            let lock = options().open(path.with_extension("lock"))?;
            rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
            Ok(Self { path, _lock: lock })
        };
        open().map_err(|error| unusable(directory, error))
    }

    /// The journal's content; `None`: no queues are installed, or only those of another boot, which are gone.
    pub(crate) fn load(&self) -> Result<Option<Journal>, QueueError> {
        let bytes = match owned::read_own(&self.path, LARGEST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(&self.path, error)),
        };
        let journal: Journal = serde_json::from_slice(&bytes).map_err(|e| unusable(&self.path, io::Error::from(e)))?;
        Ok((journal.boot == clock::boot_id()).then_some(journal))
    }

    /// Writes the journal and waits until it is on disk.
    pub(crate) fn save(&self, journal: &Journal) -> Result<(), QueueError> {
        let save = || owned::write(&self.path, &serde_json::to_vec(journal)?);
        save().map_err(|error| unusable(&self.path, error))
    }

    /// Removes the journal: no queues are installed any more.
    pub(crate) fn remove(&self) -> Result<(), QueueError> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unusable(&self.path, error)),
            _ => Ok(()),
        }
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

fn unusable(path: &Path, error: io::Error) -> QueueError {
    QueueError {
        what: format!("the journal of what was there before, {}", path.display()),
        reason: Reason::Other(error),
        remedy: "set THALWEG_RUN_DIR to a directory of your own; docs/queueing.md says how to restore by hand"
            .to_owned(),
    }
}

/// This process, as a holder.
pub(crate) fn this_process() -> Option<(u32, u64)> {
    let process = std::process::id();
    Some((process, started(process)?))
}

/// `true` if a holder still runs.
pub(crate) fn is_alive(holder: (u32, u64)) -> bool {
    started(holder.0) == Some(holder.1)
}

/// Start time of a process, in ticks since boot (proc(5), `stat` field 22).
fn started(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Kinds with explicitly made classes; others make theirs themselves.
const CLASSFUL: [&str; 4] = ["htb", "hfsc", "drr", "qfq"];
/// Hash tables of `u32` from here on are made by the kernel.
const OWN_TABLES: u32 = 0x800;

/// Restores the device's queues, as far as the kernel accepts; returns what it refused.
pub(crate) fn replay(socket: &mut Socket, before: &Before, now: &Queues) -> Result<Option<String>, QueueError> {
    let index = before.index;
    // The length first: the kernel's own queue is made with it.
    if now.length != before.length {
        devices::set_length(socket, index, before.length)?;
    }
    restore_segments(socket, before, now)?;
    if now.root().is_some_and(|root| root.handle.0 != 0) {
        let root = Said { parent: Handle::ROOT.0, ..Said::default() };
        let answer = socket.ask(DISCIPLINE + 1, 0, &root.request(index))?;
        answer.map_err(|r| QueueError::refused(format!("tc qdisc del dev {} root", before.device), r))?;
    }
    let mut refused = None;
    for (kind, said) in in_order(&before.said) {
        let answer = tell(socket, kind, said, index)?;
        let why = answer.err().map(|r| format!("{} {}: {}", said.name, Handle(said.handle), io::Error::from(r)));
        refused = refused.or(why);
    }
    Ok(refused)
}

/// Restores the limit of super-packets.
pub(crate) fn restore_segments(socket: &mut Socket, before: &Before, now: &Queues) -> Result<(), QueueError> {
    match before.segments.filter(|segments| *segments != now.largest.segments) {
        Some(segments) => devices::set_segments(socket, before.index, segments, false),
        None => Ok(()),
    }
}

/// Replays one message. Newer disciplines want their options marked as nested, older ones do not know the mark. A
/// filter's number may be taken differently: better another number than no filter.
fn tell(socket: &mut Socket, kind: u16, said: &Said, index: u32) -> io::Result<Result<(), Refusal>> {
    let flags = if said.parent == Handle::ROOT.0 && kind == DISCIPLINE { REPLACE } else { CREATE };
    let told = prepared(kind, said);
    let Err(first) = socket.ask(kind, flags, &told.request(index))? else { return Ok(Ok(())) };
    let other = match kind {
        FILTER => Said { handle: 0, ..told }.request(index),
        _ => told.request_nested(index),
    };
    Ok(socket.ask(kind, flags, &other)?.map(drop).map_err(|_| first))
}

/// The messages to replay, parents before children, filters at last by number, as the kernel numbered them.
fn in_order(said: &[(u16, Said)]) -> Vec<(u16, &Said)> {
    let told = |(kind, said): &&(u16, Said)| match *kind {
        DISCIPLINE => said.handle != 0,
        CLASS => CLASSFUL.contains(&&said.name[..]) && Handle(said.handle).minor() != 0,
        _ => true,
    };
    let (mut filters, mut left): (Vec<_>, Vec<_>) =
        said.iter().filter(told).map(|(kind, said)| (*kind, said)).partition(|(kind, _)| *kind == FILTER);
    filters.retain(|(_, s)| !(s.name == "u32" && s.handle & 0xf_ffff == 0 && s.handle >> 20 >= OWN_TABLES));
    filters.sort_by_key(|(_, said)| said.handle);
    let mut ordered: Vec<(u16, &Said)> = Vec::new();
    while !left.is_empty() {
        let (next, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(|(kind, said)| is_ready(*kind, said, &ordered));
        if next.is_empty() {
            break; // children of the kernel's own disciplines, which it makes again by itself
        }
        ordered.extend(next);
        left = rest;
    }
    ordered.into_iter().chain(filters).collect()
}

/// `true` if its parent was replayed.
fn is_ready(kind: u16, said: &Said, told: &[(u16, &Said)]) -> bool {
    const DISCIPLINE_PART: u32 = 0xffff_0000;
    let is_told = |parent: u32| {
        told.iter().any(|(kind, s)| {
            let makes_classes = *kind == DISCIPLINE && !CLASSFUL.contains(&&s.name[..]);
            s.handle == parent || (makes_classes && s.handle == parent & DISCIPLINE_PART)
        })
    };
    match (kind, said.parent == Handle::ROOT.0) {
        (CLASS, true) => is_told(said.handle & DISCIPLINE_PART), // a class of no class
        (_, true) => true,
        _ => is_told(said.parent),
    }
}

/// The kernel's message as a request: parts of it are read-only.
fn prepared(kind: u16, said: &Said) -> Said {
    let options = said.options.as_deref().unwrap_or_default();
    let kept = match (kind, &said.name[..]) {
        (DISCIPLINE, "htb") => {
            rewritten(options, |number, payload| match (number, u32_at(payload, 4), u32_at(payload, 8)) {
                (2, Some(quantum), Some(default)) => Some(words([HTB_VERSION, quantum, default, 0, 0])),
                _ => Some(payload.to_vec()),
            })
        }
        (DISCIPLINE, "codel" | "fq_codel") => rewritten(options, |number, payload| match u32_at(payload, 0) {
            Some(us) if number == 1 || number == 3 => Some(words([codel_time(us)])),
            _ => Some(payload.to_vec()),
        }),
        (DISCIPLINE, "sfq") => default_limit(options),
        (FILTER, "flower") => rewritten(options, |number, payload| match number {
            22 => settable(payload),
            86 => None, // in how many devices' hardware
            _ => Some(payload.to_vec()),
        }),
        (FILTER, "matchall") => rewritten(options, |number, payload| match number {
            3 => settable(payload),
            4 => None, // counters
            _ => Some(payload.to_vec()),
        }),
        (FILTER, "u32") => rewritten(options, |number, payload| match number {
            9 | 12 => None, // counters, padding
            11 => settable(payload),
            _ => Some(payload.to_vec()),
        }),
        _ => return said.clone(),
    };
    Said { options: Some(kept), ..said.clone() }
}

/// CoDel keeps times in units of 1024 ns, and loses up to two microseconds: the value to write so that it reads `us`
/// again.
fn codel_time(us: u32) -> u32 {
    let said = |told: u32| ((u64::from(told) * 1000) >> 10 << 10) / 1000;
    (us..=us.saturating_add(2)).find(|told| said(*told) == u64::from(us)).unwrap_or(us)
}

/// A filter's flags without "in hardware": `TCA_CLS_FLAGS_SKIP_HW`, `_SKIP_SW` and `_VERBOSE` remain.
fn settable(flags: &[u8]) -> Option<Vec<u8>> {
    const SETTABLE: u32 = 1 | 2 | 16;
    u32_at(flags, 0).map(|flags| words([flags & SETTABLE]))
}

/// SFQ has more flows than places only if the number of places was not set; 0 leaves it unset.
fn default_limit(options: &[u8]) -> Vec<u8> {
    let (limit, mut kept) = (8..12, options.to_vec());
    if u32_at(options, 16) > u32_at(options, limit.start) {
        kept.get_mut(limit).into_iter().for_each(|bytes| bytes.fill(0));
    }
    kept
}

fn rewritten(options: &[u8], change: impl Fn(u16, &[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut kept = Vec::new();
    for (number, payload) in attributes(options) {
        change(number, payload).iter().for_each(|payload| put(&mut kept, number, payload));
    }
    kept
}

/// The first difference between the former and the present queues, except counters.
pub(crate) fn difference(before: &Before, now: &Queues) -> Option<String> {
    let now = Before::of(now);
    if now.length != before.length {
        return Some(format!("txqueuelen is {}, was {}", now.length, before.length));
    }
    if before.segments.is_some() && now.segments != before.segments {
        let [now, was] = [&now, before].map(|one| one.segments.unwrap_or_default());
        return Some(format!("gso_max_segs is {now}, was {was}"));
    }
    let lacking = |a: &Before, b: &Before| {
        a.said
            .iter()
            .find(|one| !b.said.iter().any(|other| same(one, other)))
            .map(|(_, s)| format!("{} {}", s.name, Handle(s.handle)))
    };
    lacking(before, &now)
        .map(|what| format!("{what} is gone or changed"))
        .or_else(|| lacking(&now, before).map(|what| format!("{what} is new")))
}

fn same(one: &(u16, Said), other: &(u16, Said)) -> bool {
    let ((kind, a), (other_kind, b)) = (one, other);
    let place = |s: &Said| (s.handle, s.parent, s.name.clone(), s.sizes.clone());
    // `info` of a class is the handle of its child, which is compared itself.
    let info = *kind != FILTER || a.info == b.info;
    kind == other_kind && place(a) == place(b) && info && steady(*kind, a) == steady(*kind, b)
}

/// The options without counters.
fn steady(kind: u16, said: &Said) -> Option<Vec<u8>> {
    match (kind, &said.name[..]) {
        (DISCIPLINE, "htb") => {
            attribute(said.options.as_deref()?, 2).and_then(|init| init.get(4..12)).map(<[u8]>::to_vec)
        }
        (FILTER, _) => prepared(kind, said).options,
        _ => said.options.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_comes_back_as_it_was_saved() {
        let directory = std::env::temp_dir().join(format!("thalweg-journal-{}", std::process::id()));
        let store = Store::open(&directory).unwrap();
        assert_eq!(store.load().unwrap(), None);
        let said = Said { name: "pfifo".to_owned(), options: Some(vec![1, 2]), ..Said::default() };
        let before = Before {
            device: "eth0".to_owned(),
            index: 2,
            length: 1000,
            segments: Some(65_535),
            said: vec![(36, said)],
        };
        let mut journal = Journal {
            boot: clock::boot_id(),
            holder: this_process(),
            devices: vec![before],
            tables: vec![],
            listed: vec![],
        };
        store.save(&journal).unwrap();
        assert_eq!(store.load().unwrap().as_ref(), Some(&journal));
        journal.boot = "another".to_owned();
        store.save(&journal).unwrap();
        assert_eq!(store.load().unwrap(), None, "queues don't outlive a boot");
        std::fs::write(&store.path, "{").unwrap();
        assert!(store.load().unwrap_err().to_string().contains("restore by hand"));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_holder_is_a_process_and_its_start() {
        let own = this_process().unwrap();
        assert!(is_alive(own) && !is_alive((own.0, own.1 + 1)));
    }

    #[test]
    fn codel_says_again_what_it_said() {
        for us in [1u32, 2999, 4999, 69_999, 99_999] {
            let said = ((u64::from(codel_time(us)) * 1000) >> 10 << 10) / 1000;
            assert_eq!(said, u64::from(us));
        }
    }
}
