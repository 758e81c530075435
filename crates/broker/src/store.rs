//! The broker's disk: an embedded database (redb), in which a change is written as a whole or not at all, and survives a crash of the machine once it
//! is written. Only what has changed is written.

use crate::accounts::{Meter, Pending};
use crate::domains::Crossing;
use crate::hosts::Kept;
use agent::accounts::{Entry, Head};
use agent::peer::Key;
use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// What there is once: the state, plan, contract and sessions.
const PARTS: TableDefinition<&str, &[u8]> = TableDefinition::new("parts");
/// Sessions over several domains, by [`name`].
const CROSSINGS: TableDefinition<&str, &[u8]> = TableDefinition::new("crossings");
/// The accounts: lines, by the numbers of their records.
const ACCOUNTS: TableDefinition<u64, &[u8]> = TableDefinition::new("accounts");
/// Most records that are kept: some 200 MB. Earlier ones go.
const MOST_RECORDS: u64 = if cfg!(test) { 10 } else { 500_000 };
/// Memory for pages of the database: what is read is read once.
const CACHE: usize = 8 << 20;

/// A directory that one broker uses.
#[derive(Debug)]
pub struct Store {
    file: PathBuf,
    /// `None`: it has failed, and is opened again for the next write (redb takes nothing more after an error).
    database: Option<Database>,
    /// What is on disk.
    last: Kept,
    /// The last line of the accounts there.
    head: Head,
    meter: Arc<Mutex<Meter>>,
    /// Held as long as the broker runs.
    _lock: fs::File,
}

/// The numbers of a state, and its hosts.
#[derive(Default, PartialEq, Eq, Serialize, serde::Deserialize)]
struct State {
    epoch: u64,
    revision: u64,
    hosts: Vec<String>,
}

impl State {
    fn of(kept: &Kept) -> Self {
        Self { epoch: kept.epoch, revision: kept.revision, hosts: kept.hosts.clone() }
    }
}

impl Store {
    /// Opens the directory, which is made if it is not there, and gives what is kept in it.
    ///
    /// # Errors
    /// Another broker uses it, it cannot be written, or its file is damaged.
    pub fn open(directory: &Path) -> io::Result<(Self, Kept)> {
        fs::create_dir_all(directory)?;
        let lock = fs::File::create(directory.join("broker.lock"))?;
        lock.try_lock().map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, "another broker uses it"))?;
        let file = directory.join("broker.redb");
        let database = opened(&file)?;
        let (kept, head) = read(&database)?;
        let last = Kept { crossings: Vec::new(), ..kept.clone() };
        let meter = Arc::default();
        Ok((Self { file, database: Some(database), last, head, meter, _lock: lock }, kept))
    }

    /// What goes through sessions is counted there.
    pub fn meter(&self) -> Arc<Mutex<Meter>> {
        self.meter.clone()
    }

    /// Keeps this, but for sessions over several domains. When it returns, the state survives a crash of the machine.
    ///
    /// # Errors
    /// The state from before stays.
    pub fn keep(&mut self, kept: &Kept) -> io::Result<()> {
        self.write(|Tables { parts, .. }, last, meter| {
            put(parts, "state", &State::of(last), &State::of(kept))?;
            put(parts, "plan", &last.plan, &kept.plan)?;
            put(parts, "contract", &last.contract, &kept.contract)?;
            put(parts, "stated", &last.stated, &kept.stated)?;
            put(parts, "links", &last.links, &kept.links)?;
            put(parts, "reduction", &last.reduction, &kept.reduction)?;
            put(parts, "sessions", &last.sessions, &kept.sessions)?;
            Ok(meter.of_change(last, kept))
        })?;
        self.last = Kept { crossings: Vec::new(), ..kept.clone() };
        Ok(())
    }

    /// Keeps these sessions over several domains, or forgets those that are `None`, with a revision.
    ///
    /// # Errors
    /// The state from before stays.
    pub fn keep_crossings(&mut self, revision: u64, changes: &[(Key, Option<Crossing>)]) -> io::Result<()> {
        self.write(|Tables { parts, crossings, .. }, last, meter| {
            put(parts, "state", &State::of(last), &State { revision, ..State::of(last) })?;
            let mut entries = Vec::new();
            for (key, crossing) in changes {
                let name = name(key);
                let before = crossings.get(name.as_str()).map_err(io::Error::other)?;
                let before: Option<Crossing> = before.map(|bytes| parsed(bytes.value())).transpose()?;
                entries.extend(meter.of_crossing(before.as_ref(), crossing.as_ref()));
                match crossing {
                    Some(crossing) => insert(crossings, &name, crossing)?,
                    None => drop(crossings.remove(name.as_str()).map_err(io::Error::other)?),
                }
            }
            Ok(entries)
        })?;
        self.last.revision = revision;
        Ok(())
    }

    /// Notes what went through sessions that go on: those of the domain itself, and these.
    ///
    /// # Errors
    /// It is noted the next time.
    pub fn keep_interim<'a>(&mut self, crossings: impl Iterator<Item = &'a Crossing>) -> io::Result<()> {
        let entries = self.count().interim(&self.last, crossings);
        if entries.is_empty() { Ok(()) } else { self.write(|_, _, _| Ok(entries)) }
    }

    /// Lines of the accounts behind the record of this number, at most so many.
    ///
    /// # Errors
    /// The disk.
    pub fn accounts(&mut self, after: u64, most: usize) -> io::Result<Vec<String>> {
        let database = self.opened()?;
        let database = self.database.insert(database);
        let found = database.begin_read().map_err(damaged)?;
        let lines = match found.open_table(ACCOUNTS) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            other => other.map_err(damaged)?,
        };
        let range = lines.range(after.saturating_add(1)..).map_err(damaged)?;
        range.take(most).map(|entry| entry.map_err(damaged).and_then(|(_, line)| text(line.value()))).collect()
    }

    /// The database. After an error it is opened again, and may have what could not be written all the same: that is what is on disk now.
    fn opened(&mut self) -> io::Result<Database> {
        if let Some(database) = self.database.take() {
            return Ok(database);
        }
        let database = opened(&self.file)?;
        let (kept, head) = read(&database)?;
        (self.last, self.head) = (Kept { crossings: Vec::new(), ..kept }, head);
        Ok(database)
    }

    fn count(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes all of it, with the entries of the accounts that it gives, or nothing.
    fn write(
        &mut self,
        write: impl FnOnce(&mut Tables<'_>, &Kept, &Meter) -> io::Result<Vec<Pending>>,
    ) -> io::Result<()> {
        let database = self.opened()?;
        let mut head = self.head.clone();
        let written = written(&database, |tables| {
            let entries = write(tables, &self.last, &self.count())?;
            entries.iter().try_for_each(|pending| append(&mut tables.accounts, &mut head, &pending.entry))?;
            Ok(entries)
        })?;
        self.count().wrote(written);
        (self.database, self.head) = (Some(database), head);
        Ok(())
    }
}

/// Adds a line to the accounts.
fn append(lines: &mut Table<'_, u64, &'static [u8]>, head: &mut Head, entry: &Entry) -> io::Result<()> {
    let line = head.append(unix_ms(), entry.clone());
    lines.insert(head.number, line.as_bytes()).map_err(io::Error::other)?;
    if let Some(gone) = head.number.checked_sub(MOST_RECORDS) {
        lines.remove(gone).map_err(io::Error::other)?;
    }
    Ok(())
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

fn opened(file: &Path) -> io::Result<Database> {
    Database::builder().set_cache_size(CACHE).create(file).map_err(damaged)
}

fn written<T>(database: &Database, write: impl FnOnce(&mut Tables<'_>) -> io::Result<T>) -> io::Result<T> {
    let change = database.begin_write().map_err(io::Error::other)?;
    let done = {
        let parts = change.open_table(PARTS).map_err(io::Error::other)?;
        let crossings = change.open_table(CROSSINGS).map_err(io::Error::other)?;
        let accounts = change.open_table(ACCOUNTS).map_err(io::Error::other)?;
        write(&mut Tables { parts, crossings, accounts })?
    };
    change.commit().map_err(io::Error::other)?;
    Ok(done)
}

/// The tables, while they are written.
struct Tables<'a> {
    parts: Part<'a>,
    crossings: Part<'a>,
    accounts: Table<'a, u64, &'static [u8]>,
}

type Part<'a> = Table<'a, &'static str, &'static [u8]>;

/// Writes a part unless it is the same as before.
fn put<T: Serialize + PartialEq>(table: &mut Part<'_>, name: &str, before: &T, value: &T) -> io::Result<()> {
    if before == value { Ok(()) } else { insert(table, name, value) }
}

fn insert(table: &mut Part<'_>, name: &str, value: &impl Serialize) -> io::Result<()> {
    table.insert(name, serde_json::to_vec(value)?.as_slice()).map(drop).map_err(io::Error::other)
}

/// The name of a session in the table.
fn name(Key { first, session, version }: &Key) -> String {
    format!("{first}/{session}/{version:020}")
}

/// What is kept, and the last line of the accounts.
fn read(database: &Database) -> io::Result<(Kept, Head)> {
    let found = database.begin_read().map_err(damaged)?;
    let parts = match found.open_table(PARTS) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Default::default()),
        other => other.map_err(damaged)?,
    };
    let State { epoch, revision, hosts } = part(&parts, "state")?;
    let mut crossings = Vec::new();
    for entry in found.open_table(CROSSINGS).map_err(damaged)?.iter().map_err(damaged)? {
        crossings.push(parsed(entry.map_err(damaged)?.1.value())?);
    }
    let (plan, contract, sessions) = (part(&parts, "plan")?, part(&parts, "contract")?, part(&parts, "sessions")?);
    let (stated, links, reduction) = (part(&parts, "stated")?, part(&parts, "links")?, part(&parts, "reduction")?);
    let mut head = Head::default();
    match found.open_table(ACCOUNTS) {
        Err(TableError::TableDoesNotExist(_)) => {} // of an earlier version
        lines => {
            if let Some((_, line)) = lines.map_err(damaged)?.last().map_err(damaged)? {
                head.follow(&text(line.value())?).map_err(damaged)?;
            }
        }
    }
    Ok((Kept { epoch, revision, plan, hosts, contract, sessions, stated, links, reduction, crossings }, head))
}

fn text(bytes: &[u8]) -> io::Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(damaged)
}

fn part<T: DeserializeOwned + Default>(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
    name: &str,
) -> io::Result<T> {
    let found = table.get(name).map_err(damaged)?;
    found.map_or_else(|| Ok(T::default()), |bytes| parsed(bytes.value()))
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    serde_json::from_slice(bytes).map_err(damaged)
}

fn damaged(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!(
        "broker.redb cannot be read ({error}): put back a copy, or remove it; `thalweg hosts` tells which --epoch is needed then"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domains::{Asker, Phase};
    use crate::planning::{Admitted, Reduction};
    use agent::accounts::Event;

    /// A directory of a test.
    struct Directory(std::path::PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("thalweg-store-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        /// What a broker finds that starts after the machine stopped now.
        fn after_a_crash(&self) -> Kept {
            let other = Self(self.0.with_extension("crash"));
            let _ = fs::remove_dir_all(&other.0);
            fs::create_dir_all(&other.0).unwrap();
            fs::copy(self.0.join("broker.redb"), other.0.join("broker.redb")).unwrap();
            Store::open(&other.0).unwrap().1
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn crossing(session: &str, version: u64) -> (Key, Option<Crossing>) {
        let key = Key { first: "robot".into(), session: session.into(), version };
        let text = serde_json::json!({
            "key": key, "passed": [], "asker": Asker { owner: "ann".into(), ..Asker::default() },
            "flows": [], "menus": [], "legs": [], "phase": Phase::Committed,
        });
        (key, Some(serde_json::from_value(text).unwrap()))
    }

    #[test]
    fn what_is_kept_survives_a_crash_and_is_found_by_one_broker_at_a_time() {
        let directory = Directory::new("kept");
        let (mut store, kept) = Store::open(&directory.0).unwrap();
        assert_eq!(kept, Kept::default());
        let (plan, hosts) = (Some("plan".into()), vec!["a".into()]);
        let links = [("wire".to_owned(), 0)].into();
        let reduction = Reduction { because: "link wire is down".into(), ..Reduction::default() };
        let kept = Kept { epoch: 3, revision: 7, plan, hosts, links, reduction, ..Kept::default() };
        store.keep(&kept).unwrap();
        assert_eq!(directory.after_a_crash(), kept);
        let less = Kept { revision: 8, plan: None, ..kept };
        store.keep(&less).unwrap();
        assert_eq!(directory.after_a_crash(), less);
        assert_eq!(Store::open(&directory.0).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(store);
        assert_eq!(Store::open(&directory.0).unwrap().1, less);
    }

    #[test]
    fn sessions_come_and_go_one_by_one() {
        let directory = Directory::new("crossings");
        let (mut store, _) = Store::open(&directory.0).unwrap();
        store.keep(&Kept { epoch: 1, revision: 1, contract: Some("contract".into()), ..Kept::default() }).unwrap();
        let all = [crossing("one", 9), crossing("one", 10), crossing("two", 1)];
        store.keep_crossings(2, &all).unwrap();
        let found = directory.after_a_crash();
        assert_eq!((found.epoch, found.revision, found.contract.as_deref()), (1, 2, Some("contract")));
        assert_eq!(
            found.crossings.iter().map(|one| &one.key).collect::<Vec<_>>(),
            all.iter().map(|(key, _)| key).collect::<Vec<_>>()
        );
        store.keep_crossings(3, &[(all[0].0.clone(), None), crossing("three", 1)]).unwrap();
        let found = directory.after_a_crash();
        assert_eq!(
            found.crossings.iter().map(|one| one.key.session.as_str()).collect::<Vec<_>>(),
            ["one", "three", "two"]
        );
        // What else is kept leaves them as they are.
        store.keep(&Kept { epoch: 1, revision: 4, ..Kept::default() }).unwrap();
        assert_eq!(directory.after_a_crash().crossings, found.crossings);
    }

    /// The records of a store, as an audit reads them: what happened to which session.
    fn records(store: &mut Store) -> Vec<(u64, Event, String)> {
        let mut head = Head::default();
        let lines = store.accounts(0, 1000).unwrap();
        let read = |line: &String| {
            let record = head.follow(line).unwrap();
            (record.number, record.entry.event, record.entry.session)
        };
        lines.iter().map(read).collect()
    }

    #[test]
    fn what_happens_to_sessions_is_in_the_accounts_with_the_change_itself() {
        let directory = Directory::new("accounts");
        let (mut store, _) = Store::open(&directory.0).unwrap();
        let with = |names: &[&str]| {
            let session = |name: &&str| Admitted { name: (*name).into(), owner: "ann".into(), ..Admitted::default() };
            Kept { epoch: 1, sessions: names.iter().map(session).collect(), ..Kept::default() }
        };
        store.keep(&with(&["camera"])).unwrap();
        let robot = crossing("one", 9);
        store.keep_crossings(2, std::slice::from_ref(&robot)).unwrap();
        store.keep_crossings(2, std::slice::from_ref(&robot)).unwrap(); // the same again
        drop(store);
        let (mut store, _) = Store::open(&directory.0).unwrap();
        store.keep(&with(&[])).unwrap();
        store.keep_interim(robot.1.iter()).unwrap(); // what is not known to be on disk is in none
        store.keep_crossings(3, &[(robot.0, None)]).unwrap();
        let (camera, one) = ("camera".to_owned(), "robot/one/9".to_owned());
        let all = [
            (1, Event::Start, camera.clone()),
            (2, Event::Start, one.clone()),
            (3, Event::Stop, camera.clone()),
            (4, Event::Stop, one),
        ];
        assert_eq!(records(&mut store), all);
        // The last ones are kept, and fit together.
        for _ in 0..6 {
            store.keep(&with(&["camera"])).unwrap();
            store.keep(&with(&[])).unwrap();
        }
        let left = records(&mut store);
        assert_eq!((left.len(), left[0].0, left[9].clone()), (10, 7, (16, Event::Stop, camera)));
        assert_eq!(store.accounts(14, 1).unwrap().len(), 1);
    }

    #[test]
    fn a_damaged_file_is_named() {
        let directory = Directory::new("damaged");
        drop(Store::open(&directory.0).unwrap());
        fs::write(directory.0.join("broker.redb"), "{").unwrap();
        let error = Store::open(&directory.0).unwrap_err().to_string();
        assert!(error.contains("broker.redb cannot be read") && error.contains("--epoch"), "{error}");
    }
}
