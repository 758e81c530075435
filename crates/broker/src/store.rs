//! What a broker keeps: its state, the sessions over several domains, and the accounts. A change is written as a whole or not at all, and survives
//! a crash once it is written. Only what has changed is written.
//!
//! | database | survives |
//! |---|---|
//! | [`Disk`]: a file (redb), of one broker | a crash of the machine |
//! | [`Etcd`]: several members of etcd, for several brokers of which one leads | the loss of less than half of the members, and of the broker that leads |

mod disk;
mod etcd;
mod values;

pub use disk::Disk;
pub use etcd::{Campaign, Etcd, Lead, Tls};

use crate::accounts::{Meter, Pending};
use crate::domains::Crossing;
use crate::hosts::Kept;
use agent::accounts::{Entry as Line, Event, Head, Record};
use agent::peer::Key;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use values::{LAST, State, crossings, name, number, parsed, put, read, text};

/// Most records that are kept: some 200 MB. Earlier ones go.
const MOST_RECORDS: u64 = if cfg!(test) { 10 } else { 500_000 };
/// Values of the accounts that are read at once.
const RECORDS: usize = 10;
/// Bytes of the accounts after which no more are read at once.
const LARGEST_READ: usize = 2 << 20;
/// Most records in one value of [`Table::Accounts`]: some 300 kB.
const TOGETHER: usize = 1000;

/// A part of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// What there is once, by name: the state, plan, contract and sessions, and the name of the last value of the accounts.
    Parts,
    /// Sessions over several domains, by domain, name and version.
    Crossings,
    /// The accounts: lines, by the number of the last one of each value, with 20 digits.
    Accounts,
}

/// A change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The value of this name.
    Put(Table, String, Vec<u8>),
    /// There is none of this name.
    Remove(Table, String),
    /// There is none of this name, or of an earlier one.
    RemoveUpTo(Table, String),
}

/// A value with its name.
pub type Entry = (String, Vec<u8>);

/// Where the values are.
pub trait Database: fmt::Debug + Send {
    /// Values whose names come after this one, in order: at most so many, and none only if there are none.
    ///
    /// # Errors
    /// They cannot be read.
    fn scan(&mut self, table: Table, after: &str, most: usize) -> io::Result<Vec<Entry>>;

    /// The values of these names.
    ///
    /// # Errors
    /// They cannot be read.
    fn get(&mut self, table: Table, names: &[String]) -> io::Result<Vec<Option<Vec<u8>>>>;

    /// Writes all of it. When it returns, it survives a crash.
    ///
    /// # Errors
    /// It is not known whether it was written: all of it or nothing.
    fn write(&mut self, changes: &[Change]) -> io::Result<()>;

    /// Most changes of one write.
    fn most(&self) -> usize {
        usize::MAX
    }

    /// A value that cannot be read, and what to do about it.
    fn damaged(&self, error: &dyn fmt::Display) -> io::Error;
}

/// A database that one broker uses.
#[derive(Debug)]
pub struct Store {
    database: Box<dyn Database>,
    /// The last write failed, and may be there all the same: its last line of the accounts, and their entries. What is there is read again before the
    /// next write.
    unsure: Option<(Head, Vec<Pending>)>,
    /// What is there.
    last: Kept,
    /// The last line of the accounts there.
    head: Head,
    meter: Arc<Mutex<Meter>>,
}

/// What is to be written, and its entries of the accounts.
type Writing = (Vec<Change>, Vec<Pending>);

impl Store {
    /// Opens the directory, which is made if it is not there, and gives what is kept in it.
    ///
    /// # Errors
    /// Another broker uses it, it cannot be written, or its file is damaged.
    pub fn open(directory: &Path) -> io::Result<(Self, Kept)> {
        Self::on(Box::new(Disk::open(directory)?))
    }

    /// The same for any database.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn on(mut database: Box<dyn Database>) -> io::Result<(Self, Kept)> {
        let (last, head) = read(&mut *database)?;
        let kept = Kept { crossings: crossings(&mut *database)?, ..last.clone() };
        Ok((Self { database, unsure: None, last, head, meter: Arc::default() }, kept))
    }

    /// What goes through sessions is counted there.
    pub fn meter(&self) -> Arc<Mutex<Meter>> {
        self.meter.clone()
    }

    /// Keeps this, but for sessions over several domains. When it returns, the state survives a crash.
    ///
    /// # Errors
    /// The state is as before or as after.
    pub fn keep(&mut self, kept: &Kept) -> io::Result<()> {
        self.write(|_, last, meter| {
            let mut changes = Vec::new();
            put(&mut changes, "state", &State::of(last), &State::of(kept))?;
            put(&mut changes, "plan", &last.plan, &kept.plan)?;
            put(&mut changes, "contract", &last.contract, &kept.contract)?;
            put(&mut changes, "stated", &last.stated, &kept.stated)?;
            put(&mut changes, "links", &last.links, &kept.links)?;
            put(&mut changes, "reduction", &last.reduction, &kept.reduction)?;
            put(&mut changes, "sessions", &last.sessions, &kept.sessions)?;
            let entries = lock(meter).of_change(last, kept);
            Ok((changes, entries))
        })?;
        self.last = Kept { crossings: Vec::new(), ..kept.clone() };
        Ok(())
    }

    /// Keeps these sessions over several domains, or forgets those that are `None`, with a revision.
    ///
    /// # Errors
    /// Each is there as before or as after.
    pub fn keep_crossings(&mut self, revision: u64, changes: &[(Key, Option<Crossing>)]) -> io::Result<()> {
        // Beside them stand the state, and three changes of the accounts.
        let most = self.database.most().saturating_sub(4).max(1);
        for some in changes.chunks(most) {
            self.write(|database, last, meter| of_crossings(database, last, meter, revision, some))?;
            self.last.revision = revision;
        }
        Ok(())
    }

    /// Notes what went through sessions that go on: those of the domain itself, and these.
    ///
    /// # Errors
    /// It is noted the next time.
    pub fn keep_interim<'a>(&mut self, crossings: impl Iterator<Item = &'a Crossing>) -> io::Result<()> {
        let mut entries = lock(&self.meter).interim(&self.last, crossings);
        while !entries.is_empty() {
            let rest = entries.split_off(entries.len().min(TOGETHER));
            self.write(|_, _, _| Ok((Vec::new(), entries)))?;
            entries = rest;
        }
        Ok(())
    }

    /// `true` if there is nothing in the accounts that the broker has not signed.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn is_signed(&mut self) -> io::Result<bool> {
        self.look_again()?;
        let Some(line) = self.accounts(self.head.number.saturating_sub(1), 1)?.pop() else { return Ok(true) };
        let last: Record = parsed(&*self.database, line.as_bytes())?;
        Ok(last.entry.event == Event::Sign)
    }

    /// Adds a signature to the accounts, made for their last line.
    ///
    /// # Errors
    /// It could not be made, or is not there, or not known to be.
    pub fn keep_signature(&mut self, make: impl FnOnce(&Head) -> Result<Line, String>) -> io::Result<()> {
        self.look_again()?;
        let entry = make(&self.head).map_err(io::Error::other)?;
        self.write(|_, _, _| Ok((Vec::new(), vec![Pending::signature(entry)])))
    }

    /// Lines of the accounts behind the record of this number, at most so many, and less if they are large; none only if there are none.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn accounts(&mut self, after: u64, most: usize) -> io::Result<Vec<String>> {
        let (mut lines, mut seen, mut bytes) = (Vec::new(), after, 0);
        while lines.len() < most && bytes < LARGEST_READ {
            let found = self.database.scan(Table::Accounts, &number(seen), RECORDS)?;
            if found.is_empty() {
                break;
            }
            for (last, block) in found {
                if bytes >= LARGEST_READ {
                    break;
                }
                bytes += block.len();
                let block = text(&*self.database, block)?;
                let number: u64 = last.parse().map_err(|e| self.database.damaged(&e))?;
                if number <= seen {
                    return Err(self.database.damaged(&"records are not in order"));
                }
                seen = number;
                let known = (after + block.lines().count() as u64).saturating_sub(seen);
                lines.extend(block.lines().skip(known as usize).map(str::to_owned));
            }
        }
        lines.truncate(most);
        Ok(lines)
    }

    /// Writes all of it, with its entries of the accounts, or nothing.
    fn write(
        &mut self,
        make: impl FnOnce(&mut dyn Database, &Kept, &Mutex<Meter>) -> io::Result<Writing>,
    ) -> io::Result<()> {
        self.look_again()?;
        let (mut changes, entries) = make(&mut *self.database, &self.last, &self.meter)?;
        let mut head = self.head.clone();
        append(&mut changes, &mut head, &entries);
        if let Err(error) = self.database.write(&changes) {
            self.unsure = Some((head, entries));
            return Err(error);
        }
        lock(&self.meter).wrote(entries);
        self.head = head;
        Ok(())
    }

    /// After a write that failed: what is there now. Its entries count if they are there.
    fn look_again(&mut self) -> io::Result<()> {
        if self.unsure.is_none() {
            return Ok(());
        }
        (self.last, self.head) = read(&mut *self.database)?;
        if let Some((_, entries)) = self.unsure.take().filter(|(head, _)| *head == self.head) {
            lock(&self.meter).wrote(entries);
        }
        Ok(())
    }
}

fn lock(meter: &Mutex<Meter>) -> MutexGuard<'_, Meter> {
    meter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The writing of sessions over several domains.
fn of_crossings(
    database: &mut dyn Database,
    last: &Kept,
    meter: &Mutex<Meter>,
    revision: u64,
    changed: &[(Key, Option<Crossing>)],
) -> io::Result<Writing> {
    let (mut changes, mut entries) = (Vec::new(), Vec::new());
    put(&mut changes, "state", &State::of(last), &State::of(last).at(revision))?;
    let names: Vec<String> = changed.iter().map(|(key, _)| name(key)).collect();
    let before = database.get(Table::Crossings, &names)?;
    let meter = lock(meter);
    for ((name, before), (_, crossing)) in names.into_iter().zip(before).zip(changed) {
        let before: Option<Crossing> = before.map(|bytes| parsed(database, &bytes)).transpose()?;
        entries.extend(meter.of_crossing(before.as_ref(), crossing.as_ref()));
        changes.push(match crossing {
            Some(crossing) => Change::Put(Table::Crossings, name, serde_json::to_vec(crossing)?),
            None => Change::Remove(Table::Crossings, name),
        });
    }
    Ok((changes, entries))
}

/// Adds lines to the accounts.
fn append(changes: &mut Vec<Change>, head: &mut Head, entries: &[Pending]) {
    let lines: Vec<String> = entries.iter().map(|pending| head.append(unix_ms(), pending.entry.clone())).collect();
    if lines.is_empty() {
        return;
    }
    changes.push(Change::Put(Table::Accounts, number(head.number), lines.join("\n").into_bytes()));
    changes.push(Change::Put(Table::Parts, LAST.to_owned(), number(head.number).into_bytes()));
    if let Some(gone) = head.number.checked_sub(MOST_RECORDS) {
        changes.push(Change::RemoveUpTo(Table::Accounts, number(gone)));
    }
}

/// The time by this machine's clock, milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
