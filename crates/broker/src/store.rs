//! What a broker keeps: its state, the sessions over several domains, and the accounts. A change is written as a whole or not at all, and survives
//! a crash once it is written. Only what has changed is written.
//!
//! | database | survives |
//! |---|---|
//! | [`Disk`]: a file (redb), of one broker | a crash of the machine |
//! | [`Etcd`]: several members of etcd, for several brokers of which one leads | the loss of less than half of the members, and of the broker that leads |

mod disk;
mod etcd;

pub use disk::Disk;
pub use etcd::{Campaign, Etcd, Lead, Tls};

use crate::accounts::{Meter, Pending};
use crate::domains::Crossing;
use crate::hosts::Kept;
use agent::accounts::{Entry as Line, Event, Head, Record};
use agent::peer::Key;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Most records that are kept: some 200 MB. Earlier ones go.
const MOST_RECORDS: u64 = if cfg!(test) { 10 } else { 500_000 };
/// The part that has the name of the accounts' last value.
const LAST: &str = "last record";
/// Sessions that are read at once: first, and at most. Etcd counts all that follow for each page: 100,000 sessions in pages of 250 took it 13 s, of 5,000
/// 2.5 s.
const PAGE: [usize; 2] = [250, 5000];
/// Bytes of sessions that are read at once, if the next ones are as large as the last.
const LARGE_PAGE: usize = 4 << 20;
/// Pages that wait to be parsed.
const PAGES: usize = 4;
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

/// The numbers of a state, and its hosts.
#[derive(Default, PartialEq, Eq, Serialize, Deserialize)]
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
    put(&mut changes, "state", &State::of(last), &State { revision, ..State::of(last) })?;
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

/// Puts a part unless it is the same as before.
fn put<T: Serialize + PartialEq>(changes: &mut Vec<Change>, name: &str, before: &T, value: &T) -> io::Result<()> {
    if before != value {
        changes.push(Change::Put(Table::Parts, name.to_owned(), serde_json::to_vec(value)?));
    }
    Ok(())
}

/// The name of a session in the table.
fn name(Key { first, session, version }: &Key) -> String {
    format!("{first}/{session}/{version:020}")
}

/// The name of a record.
fn number(record: u64) -> String {
    format!("{record:020}")
}

/// What is kept but for sessions over several domains, and the last line of the accounts.
fn read(database: &mut dyn Database) -> io::Result<(Kept, Head)> {
    let State { epoch, revision, hosts } = part(database, "state")?;
    let (plan, contract, sessions) =
        (part(database, "plan")?, part(database, "contract")?, part(database, "sessions")?);
    let (stated, links, reduction) =
        (part(database, "stated")?, part(database, "links")?, part(database, "reduction")?);
    let mut head = Head::default();
    if let Some(last) = database.get(Table::Parts, &[LAST.to_owned()])?.pop().flatten() {
        let last = text(database, last)?;
        let block = database.get(Table::Accounts, &[last])?.pop().flatten();
        let block = block.ok_or_else(|| database.damaged(&"the last record is missing"))?;
        for line in text(database, block)?.lines() {
            head.follow(line).map_err(|e| database.damaged(&e))?;
        }
    }
    let crossings = Vec::new();
    Ok((Kept { epoch, revision, plan, hosts, contract, sessions, stated, links, reduction, crossings }, head))
}

/// The sessions over several domains. A thread reads pages while this one reads what is in them.
fn crossings(database: &mut dyn Database) -> io::Result<Vec<Crossing>> {
    let (read, parsed) = std::thread::scope(|scope| {
        let (pages, found) = sync_channel::<Vec<Entry>>(PAGES);
        let reader = scope.spawn(|| read_pages(database, pages));
        let values = found.iter().flatten();
        let parsed: Result<Vec<Crossing>, _> = values.map(|(_, bytes)| serde_json::from_slice(&bytes)).collect();
        drop(found); // the reader ends, too, if a value is damaged
        (reader.join(), parsed)
    });
    let parsed = parsed.map_err(|e| database.damaged(&e))?;
    read.map_err(|_| io::Error::other("the thread that reads sessions panicked"))??;
    Ok(parsed)
}

/// Reads all pages of sessions, in order, until nobody takes them.
fn read_pages(database: &mut dyn Database, pages: SyncSender<Vec<Entry>>) -> io::Result<()> {
    let [mut most, limit] = PAGE;
    let mut after = String::new();
    loop {
        let found = match database.scan(Table::Crossings, &after, most) {
            // The next ones may be much larger than the last.
            Err(_) if most > PAGE[0] => database.scan(Table::Crossings, &after, PAGE[0])?,
            found => found?,
        };
        let Some((last, _)) = found.last() else { return Ok(()) };
        if *last <= after {
            return Err(database.damaged(&"names are not in order"));
        }
        after.clone_from(last);
        let bytes: usize = found.iter().map(|(_, value)| value.len()).sum();
        most = (LARGE_PAGE / bytes.div_ceil(found.len()).max(1)).clamp(1, limit);
        if pages.send(found).is_err() {
            return Ok(());
        }
    }
}

fn text(database: &dyn Database, bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|e| database.damaged(&e))
}

fn part<T: DeserializeOwned + Default>(database: &mut dyn Database, name: &str) -> io::Result<T> {
    let found = database.get(Table::Parts, &[name.to_owned()])?;
    found.into_iter().next().flatten().map_or_else(|| Ok(T::default()), |bytes| parsed(database, &bytes))
}

fn parsed<T: DeserializeOwned>(database: &dyn Database, bytes: &[u8]) -> io::Result<T> {
    serde_json::from_slice(bytes).map_err(|e| database.damaged(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domains::{Asker, Phase};
    use crate::planning::{Admitted, Reduction};
    use std::fs;

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
