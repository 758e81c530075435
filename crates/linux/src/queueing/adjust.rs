//! Changing installed queues in place: packets that wait are neither dropped nor reordered.
//!
//! | object | in place | otherwise |
//! |---|---|---|
//! | token bucket, bands, limits | changed (`tc qdisc change`) | another discipline: the device's queues are made anew |
//! | classes | added, changed, deleted one by one | |
//! | filters | those of a preference are made anew if they differ: their order counts; meanwhile packets are of class normal | |

use super::boundary::Boundary;
use super::discipline::Discipline;
use super::install::{self, Earlier, Installed, Restored};
use super::journal::{self, Before, Journal, Store};
use super::tree::{CLASS, FILTER, Handle, Node, Queues, Said};
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
/// installation. After an error, everything is as before the call; only a device that had been changed then has its queues made anew.
///
/// # Errors
/// As [`super::install`].
pub fn adjust(directory: &Path, wanted: &[Wanted]) -> Result<(Installed, Vec<Adjusted>), QueueError> {
    adjust_with(directory, wanted, &[])
}

/// The same with boundaries. Their counters go on as long as they are there.
///
/// # Errors
/// As [`super::install`].
pub fn adjust_with(
    directory: &Path,
    wanted: &[Wanted],
    boundaries: &[Boundary],
) -> Result<(Installed, Vec<Adjusted>), QueueError> {
    let store = Store::open(directory)?;
    let Some(earlier) = store.load()?.map(Earlier::of).transpose()? else {
        install::install_all(&store, wanted, boundaries)?;
        let anew = |w: &Wanted| Adjusted { device: w.device.clone(), way: Way::Anew };
        return Ok((Installed::of(directory, Vec::new()), wanted.iter().map(anew).collect()));
    };
    let devices = wanted.iter().map(|wanted| Device::of(wanted, &earlier)).collect::<Result<Vec<_>, _>>()?;
    let tables = map::tables(wanted, boundaries);
    match carry_out(&store, &earlier.journal, &devices, &tables) {
        Ok((adjusted, restored)) => Ok((Installed::of(directory, restored), adjusted)),
        Err(mut error) => {
            if let Err(second) = undo(&store, earlier, &devices, &tables) {
                error.remedy = format!("{}; what was installed before is lost, too: {second}", error.remedy);
            }
            Err(error)
        }
    }
}

/// A wanted device as it is found.
struct Device<'a> {
    wanted: &'a Wanted,
    found: Queues,
    /// Its queues before ours.
    before: Before,
    /// Ours are not on it: none, those of another program, or the device is another one of the same name.
    is_new: bool,
}

impl<'a> Device<'a> {
    fn of(wanted: &'a Wanted, earlier: &Earlier) -> Result<Self, QueueError> {
        let found = Queues::read(&wanted.device)?;
        let known = earlier.journal.devices.iter().find(|before| is_on(before, &found));
        let (before, is_new) = known.map_or_else(|| (Before::of(&found), true), |before| (before.clone(), false));
        Ok(Self { wanted, found, before, is_new })
    }

    /// Its steps; a limit of super-packets that is not wanted any more is taken back.
    fn steps(&self) -> Vec<Step> {
        let back = self.before.segments.filter(|_| self.wanted.segments.is_none());
        self.wanted.steps().into_iter().chain(back.map(Step::Segments)).collect()
    }

    fn adjust(&self) -> Result<Adjusted, QueueError> {
        let device = self.wanted.device.clone();
        let steps = self.steps();
        let Some(changes) = changes(&steps, &self.found).filter(|_| !self.is_new) else {
            install::restore_one(&self.before)?;
            install::install_one(self.wanted, self.found.index)?;
            return Ok(Adjusted { device, way: Way::Anew });
        };
        let mut socket = Socket::open()?;
        changes.iter().try_for_each(|change| change.carry_out(&mut socket, &device, self.found.index))?;
        match changes_left(&steps, &device)? {
            None => Ok(Adjusted { way: Way::InPlace(changes.iter().map(|c| c.command(&device)).collect()), device }),
            Some(left) => Err(install::differs(left)),
        }
    }
}

/// `true` if the journal has what was on this very device before our queues, which still are there.
fn is_on(before: &Before, found: &Queues) -> bool {
    (&before.device, before.index) == (&found.device, found.index) && install::is_ours(found)
}

/// The command of the first change that would still be made.
fn changes_left(steps: &[Step], device: &str) -> Result<Option<String>, QueueError> {
    let left = changes(steps, &Queues::read(device)?);
    Ok(match left.as_deref() {
        Some([]) => None,
        Some([first, ..]) => Some(first.command(device)),
        None => Some(steps[0].command(device)),
    })
}

/// Carries out all changes. Until they are done, the journal names the devices and tables from before and from now.
fn carry_out(
    store: &Store,
    earlier: &Journal,
    devices: &[Device],
    tables: &[(String, String)],
) -> Result<(Vec<Adjusted>, Vec<Restored>), QueueError> {
    let new = devices.iter().filter(|device| device.is_new).map(|device| device.before.clone());
    let is_named = |before: &&Before| devices.iter().any(|device| !device.is_new && device.before == **before);
    let mut journal = Journal {
        boot: clock::boot_id(),
        holder: journal::this_process(),
        devices: new.chain(earlier.devices.iter().cloned()).collect(),
        tables: [tables, &earlier.tables].concat(),
        listed: Vec::new(),
    };
    store.save(&journal)?;
    let adjusted = devices.iter().map(Device::adjust).collect::<Result<_, _>>()?;
    journal.listed = map::replace(&earlier.tables, &earlier.listed, tables)?;
    let gone = earlier.devices.iter().filter(|before| !is_named(before) && !is_new(devices, before));
    let restored = gone.map(install::restore_one).collect::<Result<_, _>>()?;
    journal.devices = devices.iter().map(|device| device.before.clone()).collect();
    journal.tables = tables.to_vec();
    store.save(&journal)?;
    Ok((adjusted, restored))
}

/// `true` if the device that the journal names is wanted, but ours were not on it any more: there is nothing to restore.
fn is_new(devices: &[Device], before: &Before) -> bool {
    devices.iter().any(|device| device.is_new && device.found.device == before.device)
}

/// Makes all as it was before.
fn undo(store: &Store, earlier: Earlier, devices: &[Device], tables: &[(String, String)]) -> Result<(), QueueError> {
    let new = devices.iter().filter(|device| device.is_new);
    new.map(|device| install::restore_one(&device.before)).collect::<Result<Vec<_>, _>>()?;
    map::remove(tables)?;
    earlier.again(store)
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
        let (kind, flags, said) = match self {
            Change::Delete(kind, said) => (kind + 1, 0, said.clone()),
            Change::Add(step) | Change::Alter(step) => {
                let Some((kind, said)) = step.message() else { return step.take(socket, device, index) };
                (kind, if matches!(self, Change::Add(_)) { CREATE } else { 0 }, said)
            }
        };
        let answer = socket.ask(kind, flags, &said.request(index))?;
        answer.map(drop).map_err(|refusal| QueueError::refused(self.command(device), refusal))
    }

    fn command(&self, device: &str) -> String {
        match self {
            Change::Add(step) => step.command(device),
            Change::Alter(step) => {
                step.command(device).replacen(" replace ", " change ", 1).replacen(" add ", " change ", 1)
            }
            Change::Delete(CLASS, said) => format!("tc class del dev {device} classid {}", Handle(said.handle)),
            Change::Delete(_, said) => {
                format!("tc filter del dev {device} parent {} pref {}", Handle(said.parent), said.info >> 16)
            }
        }
    }
}

/// The changes from the queues that are there to these steps: filters that differ are deleted, then comes the rest in the order of the
/// steps, then classes are deleted. `None`: a discipline would have to be another one.
fn changes(steps: &[Step], found: &Queues) -> Option<Vec<Change>> {
    let differing = differing_filters(steps, found);
    let is_deleted = |parent: Handle, preference: u16| {
        differing.iter().any(|said| (Handle(said.parent), said.info >> 16) == (parent, preference.into()))
    };
    let mut changes: Vec<Change> = differing.iter().map(|said| Change::Delete(FILTER, said.clone())).collect();
    let mut rate_changed = false;
    for step in steps {
        let is_done = step.is_done(found);
        let alter = |needed: bool| needed.then(|| Change::Alter(step.clone()));
        let add = |needed: bool| needed.then(|| Change::Add(step.clone()));
        changes.extend(match step {
            Step::Discipline { parent, handle, is, .. } => {
                match found.disciplines.iter().find(|d| d.parent == *parent && d.handle.0 != 0) {
                    Some(there) if there.handle == *handle && there.is.name() == is.name() => {
                        // A token bucket that is changed sets the limit of a fifo below it, too.
                        let needed = !is_done || rate_changed && matches!(is, Discipline::Pfifo { .. });
                        rate_changed |= needed && matches!(is, Discipline::Tbf { .. });
                        alter(needed)
                    }
                    None if *parent != Handle::ROOT => add(true),
                    _ => return None,
                }
            }
            Step::Class { handle, .. } if found.class(*handle).is_none() => add(true),
            Step::Class { .. } | Step::Length(_) | Step::Segments(_) => alter(!is_done),
            Step::Filter { parent, is } => add(!is_done || is_deleted(*parent, is.preference)),
        });
    }
    changes.extend(unwanted_classes(steps, found).into_iter().map(|class| Change::Delete(CLASS, class)));
    Some(changes)
}

/// A message for each preference whose filters are others than the steps', or in another order: the first that matches decides.
fn differing_filters(steps: &[Step], found: &Queues) -> Vec<Said> {
    let mut differing: Vec<Said> = Vec::new();
    for Node { parent, is, said, .. } in &found.filters {
        let wanted = steps.iter().filter_map(|step| match step {
            Step::Filter { parent: at, is: wanted } if (at, wanted.preference) == (parent, is.preference) => {
                Some(wanted)
            }
            _ => None,
        });
        let there = found.filters_on(*parent).into_iter().filter(|filter| filter.preference == is.preference);
        // Without a number, it names all filters of the preference, and their table.
        let all = Said { handle: 0, ..said.named() };
        if !wanted.eq(there) && !differing.contains(&all) {
            differing.push(all);
        }
    }
    differing
}

/// Classes that are there and not among the steps, children before their parents; each takes the queue below it with it.
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
