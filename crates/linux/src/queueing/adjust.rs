//! Changing installed queues in place: packets that wait are neither dropped nor reordered.
//!
//! | object | in place | otherwise |
//! |---|---|---|
//! | token bucket, bands, limits | changed (`tc qdisc change`) | another discipline: the device's queues are made anew |
//! | classes | added, changed, deleted one by one | |
//! | filters | added before others are deleted | |

use super::discipline::Discipline;
use super::filter::Question;
use super::install::{self, Installed};
use super::journal::{self, Before, Journal, Store};
use super::tree::{CLASS, FILTER, Handle, Queues, Said};
use super::wanted::{Step, Wanted};
use super::{QueueError, map};
use crate::clock;
use crate::netlink::{CREATE, Socket};
use std::collections::HashSet;
use std::path::Path;

/// The way in which a device got its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// These changes in the words of `tc`; none: they were there.
    InPlace(Vec<String>),
    /// Made anew: none of ours were there, or others. Packets that waited are lost.
    Anew,
}

/// A device and the way in which it got its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adjusted {
    /// The device.
    pub device: String,
    /// The way.
    pub way: Way,
}

/// Makes these the installed queues, all or none, and reads them back. Where queues of Thalweg are installed already, they are changed in
/// place; devices that are not named any more get their former queues back. The journal keeps the queues from before the first
/// installation. After an error, everything is as before the call, but devices that had been changed have their queues made anew.
///
/// # Errors
/// As [`super::install`].
pub fn adjust(directory: &Path, wanted: &[Wanted]) -> Result<(Installed, Vec<Adjusted>), QueueError> {
    let store = Store::open(directory)?;
    let earlier = store.load()?.map(install::Earlier::of).transpose()?;
    let Some(earlier) = earlier else {
        install::install_all(&store, wanted)?;
        let anew = |w: &Wanted| Adjusted { device: w.device.clone(), way: Way::Anew };
        return Ok((Installed::of(directory, Vec::new()), wanted.iter().map(anew).collect()));
    };
    match changed(&store, &earlier.journal, wanted) {
        Ok(adjusted) => {
            let gone = earlier.journal.devices.iter().filter(|before| !is_named(&before.device, wanted));
            let restored = gone.map(install::restore_one).collect::<Result<_, _>>()?;
            Ok((Installed::of(directory, restored), adjusted))
        }
        Err(mut error) => {
            if let Err(second) = earlier.again(&store) {
                error.remedy = format!("{}; what was installed before is lost, too: {second}", error.remedy);
            }
            Err(error)
        }
    }
}

fn is_named(device: &str, wanted: &[Wanted]) -> bool {
    wanted.iter().any(|one| one.device == device)
}

/// Carries out all changes. The journal is written first, and names the devices of both.
fn changed(store: &Store, earlier: &Journal, wanted: &[Wanted]) -> Result<Vec<Adjusted>, QueueError> {
    let found: Vec<Queues> = wanted.iter().map(|w| Queues::read(&w.device)).collect::<Result<_, _>>()?;
    let is_new = |queues: &&Queues| earlier.devices.iter().all(|before| before.device != queues.device);
    let maps: Vec<_> = wanted.iter().filter_map(Wanted::priority_map).collect();
    let mut journal = Journal {
        boot: clock::boot_id(),
        holder: journal::this_process(),
        devices: earlier.devices.iter().cloned().chain(found.iter().filter(is_new).map(Before::of)).collect(),
        tables: map::tables(&maps),
    };
    store.save(&journal)?;
    let pairs = wanted.iter().zip(&found);
    let adjusted = pairs.map(|(wanted, found)| one(wanted, found, earlier)).collect::<Result<_, _>>();
    let adjusted = adjusted.and_then(|adjusted| map::replace(&earlier.tables, &journal.tables).map(|()| adjusted));
    let adjusted = adjusted.inspect_err(|_| {
        // The others are made as they were by the caller. A refusal here is told by the next `restore`: the journal names the device.
        journal.devices.iter().skip(earlier.devices.len()).for_each(|before| drop(install::restore_one(before)));
    })?;
    journal.devices.retain(|before| is_named(&before.device, wanted));
    store.save(&journal)?;
    Ok(adjusted)
}

/// One device.
fn one(wanted: &Wanted, found: &Queues, earlier: &Journal) -> Result<Adjusted, QueueError> {
    let device = wanted.device.clone();
    let steps = wanted.steps();
    let Some(changes) = changes(&steps, found) else {
        if let Some(before) = earlier.devices.iter().find(|before| before.device == device) {
            install::restore_one(before)?;
        }
        install::install_one(wanted, found.index)?;
        return Ok(Adjusted { device, way: Way::Anew });
    };
    let mut socket = Socket::open()?;
    changes.iter().try_for_each(|change| change.carry_out(&mut socket, &device, found.index))?;
    install::proved(&steps, &device)?;
    Ok(Adjusted { way: Way::InPlace(changes.iter().map(|change| change.command(&device)).collect()), device })
}

/// One change in place.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Add(Step),
    Alter(Step),
    Delete(u16, Said),
}

impl Change {
    fn carry_out(&self, socket: &mut Socket, device: &str, index: u32) -> Result<(), QueueError> {
        let answer = match self {
            Change::Add(step) => match step.message() {
                Some((kind, said)) => socket.ask(kind, CREATE, &said.request(index))?,
                None => return step.take(socket, device, index),
            },
            Change::Alter(step) => match step.message() {
                Some((kind, said)) => socket.ask(kind, 0, &said.request(index))?,
                None => return step.take(socket, device, index),
            },
            Change::Delete(kind, said) => socket.ask(kind + 1, 0, &said.request(index))?,
        };
        answer.map(drop).map_err(|refusal| QueueError::refused(self.command(device), refusal))
    }

    fn command(&self, device: &str) -> String {
        match self {
            Change::Add(step) => step.command(device).replacen(" replace ", " add ", 1),
            Change::Alter(step) => {
                step.command(device).replacen(" replace ", " change ", 1).replacen(" add ", " change ", 1)
            }
            Change::Delete(kind, said) => {
                let (handle, parent) = (Handle(said.handle), Handle(said.parent));
                match *kind {
                    CLASS => format!("tc class del dev {device} classid {handle}"),
                    _ => format!("tc filter del dev {device} parent {parent} pref {}", said.info >> 16),
                }
            }
        }
    }
}

/// The changes from the queues that are there to these steps: additions and alterations in the order of the steps, then
/// deletions, filters first. `None`: a discipline would have to be another one.
fn changes(steps: &[Step], found: &Queues) -> Option<Vec<Change>> {
    let mut changes = Vec::new();
    let mut rate_changed = false;
    for step in steps {
        let change = match step {
            Step::Discipline { parent, handle, is } => match there(found, *parent, *handle) {
                There::Same(there) if there.name() == is.name() => {
                    // A token bucket that is changed sets the limit of a fifo below it, too.
                    let anew = rate_changed && matches!(is, Discipline::Pfifo { .. });
                    let alter = anew || !step.is_done(found);
                    rate_changed |= alter && matches!(is, Discipline::Tbf { .. });
                    alter.then(|| Change::Alter(step.clone()))
                }
                There::Nothing if *parent != Handle::ROOT => Some(Change::Add(step.clone())),
                _ => return None,
            },
            Step::Class { handle, .. } if found.class(*handle).is_some() => {
                (!step.is_done(found)).then(|| Change::Alter(step.clone()))
            }
            Step::Length(_) => (!step.is_done(found)).then(|| Change::Alter(step.clone())),
            Step::Class { .. } => Some(Change::Add(step.clone())),
            Step::Filter { .. } => (!step.is_done(found)).then(|| Change::Add(step.clone())),
        };
        changes.extend(change);
    }
    changes.extend(deletions(steps, found));
    Some(changes)
}

/// The discipline at a place.
enum There<'a> {
    Same(&'a Discipline),
    Another,
    Nothing,
}

fn there(found: &Queues, parent: Handle, handle: Handle) -> There<'_> {
    match found.disciplines.iter().find(|d| d.parent == parent && d.handle.0 != 0) {
        Some(d) if d.handle == handle => There::Same(&d.is),
        Some(_) => There::Another,
        None => There::Nothing,
    }
}

/// Whatever is there and not among the steps: filters, then classes, each with the queue below it.
fn deletions(steps: &[Step], found: &Queues) -> Vec<Change> {
    let mut deletions = unwanted_filters(steps, found);
    deletions.extend(unwanted_classes(steps, found).into_iter().map(|class| Change::Delete(CLASS, class)));
    deletions
}

fn unwanted_filters(steps: &[Step], found: &Queues) -> Vec<Change> {
    let wanted =
        || steps.iter().filter_map(|s| if let Step::Filter { parent, is } = s { Some((*parent, is)) } else { None });
    let mut unwanted = Vec::new();
    for filter in found.filters.iter().filter(|filter| filter.is.question != Question::Table) {
        if wanted().any(|one| one == (filter.parent, &filter.is)) {
            continue;
        }
        let beside = wanted().any(|(parent, is)| (parent, is.preference) == (filter.parent, filter.is.preference));
        // Without a filter beside it, its table goes, too.
        let handle = if beside { filter.said.handle } else { 0 };
        let delete = Change::Delete(FILTER, Said { handle, ..filter.said.clone() }.named());
        if !unwanted.contains(&delete) {
            unwanted.push(delete);
        }
    }
    unwanted
}

/// Children before their parents.
fn unwanted_classes(steps: &[Step], found: &Queues) -> Vec<Said> {
    let wanted: HashSet<Handle> =
        steps.iter().filter_map(|s| if let Step::Class { handle, .. } = s { Some(*handle) } else { None }).collect();
    let made_by =
        |class: Handle| found.disciplines.iter().find(|d| d.handle == Handle::new(class.major(), 0)).map(|d| &d.is);
    let is_made = |class: Handle| matches!(made_by(class), Some(Discipline::Htb { .. } | Discipline::Hfsc { .. }));
    let is_unwanted = |class: Handle| class.minor() != 0 && is_made(class) && !wanted.contains(&class);
    let mut classes: Vec<_> = found.classes.iter().filter(|class| is_unwanted(class.handle)).collect();
    let depth = |mut class: Handle| {
        let mut depth = 0;
        while let Some(found) = found.class(class).filter(|_| depth < found.classes.len()) {
            (class, depth) = (found.parent, depth + 1);
        }
        depth
    };
    classes.sort_by_key(|class| std::cmp::Reverse(depth(class.handle)));
    classes.into_iter().map(|class| class.said.named()).collect()
}
