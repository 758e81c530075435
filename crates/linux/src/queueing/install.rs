//! Installing queues, and removing them so that the former ones are restored.

use super::boundary::Boundary;
use super::journal::{self, Before, Journal, Store};
use super::tree::Queues;
use super::wanted::{OURS, OURS_MAPPED, Wanted};
use super::{QueueError, Reason, devices, map};
use crate::clock;
use crate::netlink::Socket;
use std::fmt;
use std::path::{Path, PathBuf};

/// Installed queues, removed when dropped, unless kept. To be dropped by a thread in the same network namespace.
#[derive(Debug)]
#[must_use = "queues are taken away when this is dropped"]
pub struct Installed {
    directory: PathBuf,
    kept: bool,
    /// Leftovers of an earlier installation that were removed first.
    pub restored: Vec<Restored>,
}

/// The result for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The device.
    pub device: String,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome for a device's former queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They are as they were.
    AsBefore,
    /// The device is gone, and its queues with it.
    Vanished,
    /// Another program replaced ours; its queues were left alone.
    Replaced,
    /// This difference remains.
    Differs(String),
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        match &self.outcome {
            Outcome::AsBefore => write!(f, "{device}: as before"),
            Outcome::Vanished => write!(f, "{device}: the device is gone, nothing to restore"),
            Outcome::Replaced => write!(f, "{device}: somebody replaced our queues; theirs were left alone"),
            Outcome::Differs(what) => write!(f, "{device}: not quite as before: {what}"),
        }
    }
}

/// Installs queues, all or none, and reads them back. Earlier ones of Thalweg are removed first. The journal is
/// written to `directory` before anything is changed.
///
/// # Errors
/// The refused step, in the words of `tc`; everything is then as it was before the call.
pub fn install(directory: &Path, wanted: &[Wanted]) -> Result<Installed, QueueError> {
    let store = Store::open(directory)?;
    let earlier = store.load()?.map(Earlier::of).transpose()?;
    let restored = earlier.as_ref().map_or(Ok(Vec::new()), |earlier| restore_all(&store, &earlier.journal))?;
    match install_all(&store, wanted, &[]) {
        Ok(()) => Ok(Installed::of(directory, restored)),
        Err(mut error) => {
            if let Err(second) = earlier.map_or(Ok(()), |earlier| earlier.again(&store)) {
                error.remedy = format!("{}; what was installed before is lost, too: {second}", error.remedy);
            }
            Err(error)
        }
    }
}

pub(super) fn install_all(store: &Store, wanted: &[Wanted], boundaries: &[Boundary]) -> Result<(), QueueError> {
    let before: Vec<Queues> = wanted.iter().map(|w| Queues::read(&w.device)).collect::<Result<_, _>>()?;
    let journal = Journal {
        boot: clock::boot_id(),
        holder: journal::this_process(),
        devices: before.iter().map(Before::of).collect(),
        tables: map::tables(wanted, boundaries),
        listed: Vec::new(),
    };
    store.save(&journal)?;
    let queues = wanted.iter().zip(&before).try_for_each(|(w, b)| install_one(w, b.index));
    queues.and_then(|()| map::install(&journal.tables)).map_err(|mut error| {
        if let Err(second) = restore_all(store, &journal) {
            error.remedy = format!("{}; what was done could not be undone ({second}): `thalweg restore`", error.remedy);
        }
        error
    })
}

/// An earlier installation, restored if the next one fails.
pub(super) struct Earlier {
    pub(super) journal: Journal,
    installed: Vec<Before>,
}

impl Earlier {
    /// The installation of a journal; refused if another process holds it and still runs.
    pub(super) fn of(journal: Journal) -> Result<Self, QueueError> {
        if let Some(holder) = journal.holder.filter(|h| journal::is_alive(*h) && Some(*h) != journal::this_process()) {
            return Err(QueueError {
                what: format!("process {} holds the queues of this network namespace", holder.0),
                reason: Reason::Other(std::io::ErrorKind::ResourceBusy.into()),
                remedy: "wait until it ends, or `thalweg restore` to take its queues away".to_owned(),
            });
        }
        let installed = journal.devices.iter().filter_map(|b| Some(Before::of(&Queues::read(&b.device).ok()?)));
        Ok(Self { installed: installed.collect(), journal })
    }

    pub(super) fn again(self, store: &Store) -> Result<(), QueueError> {
        store.save(&self.journal)?;
        let mut socket = Socket::open()?;
        for device in &self.installed {
            let now = Queues::read(&device.device)?;
            // What is as it was keeps its packets.
            if journal::difference(device, &now).is_some() {
                journal::replay(&mut socket, device, &now)?;
            }
        }
        map::install(&self.journal.tables)
    }
}

/// Queues that are installed in this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// On these devices.
    pub devices: Vec<String>,
    /// The process that should have removed them is gone.
    pub orphaned: bool,
}

/// The installed queues of this network namespace, without a change. `directory`: as for [`install`].
///
/// # Errors
/// The journal cannot be read.
pub fn installed(directory: &Path) -> Result<Option<Present>, QueueError> {
    if !directory.exists() {
        return Ok(None);
    }
    let present = |journal: Journal| Present {
        orphaned: journal.holder.is_some_and(|holder| !journal::is_alive(holder)),
        devices: journal.devices.into_iter().map(|before| before.device).collect(),
    };
    Ok(Store::open(directory)?.load()?.map(present))
}

/// Removes the installed queues of this network namespace, from any program. `directory`: as for [`install`].
///
/// # Errors
/// The refused step; the journal stays for another attempt.
pub fn restore(directory: &Path) -> Result<Vec<Restored>, QueueError> {
    let store = Store::open(directory)?;
    store.load()?.map_or(Ok(Vec::new()), |journal| restore_all(&store, &journal))
}

/// Restores as [`restore`] does, but only leftovers of a process that is gone: for the start of programs that install
/// queues.
///
/// # Errors
/// As [`restore`].
pub fn recover(directory: &Path) -> Result<Vec<Restored>, QueueError> {
    let store = Store::open(directory)?;
    match store.load()? {
        Some(journal) if journal.holder.is_some_and(|holder| !journal::is_alive(holder)) => {
            restore_all(&store, &journal)
        }
        _ => Ok(Vec::new()),
    }
}

impl Installed {
    pub(super) fn of(directory: &Path, restored: Vec<Restored>) -> Self {
        Self { directory: directory.to_owned(), kept: false, restored }
    }

    /// Leaves the queues until [`restore`].
    ///
    /// # Errors
    /// The journal cannot be written; the queues are then removed.
    pub fn keep(mut self) -> Result<(), QueueError> {
        let store = Store::open(&self.directory)?;
        if let Some(mut journal) = store.load()? {
            journal.holder = None;
            store.save(&journal)?;
        }
        self.kept = true;
        Ok(())
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        if !self.kept {
            // A refused step cannot be reported any more; the journal then stays.
            let _ = restore(&self.directory);
        }
    }
}

pub(super) fn install_one(wanted: &Wanted, index: u32) -> Result<(), QueueError> {
    let (mut socket, steps) = (Socket::open()?, wanted.steps());
    steps.iter().try_for_each(|step| step.take(&mut socket, &wanted.device, index))?;
    let found = Queues::read(&wanted.device)?;
    match steps.iter().find(|step| !step.is_done(&found)) {
        None => Ok(()),
        Some(step) => Err(differs(step.command(&wanted.device))),
    }
}

/// The queues were read back, and this command would still change them.
pub(super) fn differs(command: String) -> QueueError {
    QueueError {
        what: command,
        reason: Reason::Differs("the kernel took it, but shows something else".to_owned()),
        remedy: "`tc -d qdisc show` and `tc -d class show` say what".to_owned(),
    }
}

/// `true` if Thalweg made the first discipline.
pub(super) fn is_ours(queues: &Queues) -> bool {
    queues.root().is_some_and(|root| [OURS, OURS_MAPPED].contains(&root.handle.major()))
}

fn restore_all(store: &Store, journal: &Journal) -> Result<Vec<Restored>, QueueError> {
    map::remove(&journal.tables)?;
    let restored: Vec<Restored> = journal.devices.iter().map(restore_one).collect::<Result<_, _>>()?;
    store.remove()?;
    Ok(restored)
}

pub(super) fn restore_one(before: &Before) -> Result<Restored, QueueError> {
    let told = |outcome| Ok(Restored { device: before.device.clone(), outcome });
    let mut socket = Socket::open()?;
    // Another device may have got the name since.
    match devices::numbered(&mut socket, before.index)? {
        Some(device) if device.name == before.device => {}
        _ => return told(Outcome::Vanished),
    }
    let found = Queues::read(&before.device)?;
    if journal::difference(before, &found).is_none() {
        return told(Outcome::AsBefore);
    }
    if !is_ours(&found) && found.root().map(|root| root.handle.0) != before.root_handle() {
        // The limit of super-packets was ours all the same.
        journal::restore_segments(&mut socket, before, &found)?;
        return told(Outcome::Replaced);
    }
    let refused = journal::replay(&mut socket, before, &found)?;
    let differs = journal::difference(before, &Queues::read(&before.device)?);
    told(match (refused, differs) {
        (_, None) => Outcome::AsBefore,
        (Some(refused), _) => Outcome::Differs(refused),
        (None, Some(difference)) => Outcome::Differs(difference),
    })
}
