//! Values as they stand in a database: their names, their text, and the reading of all.

use super::{Change, Database, Entry, Table};
use crate::domains::Crossing;
use crate::hosts::Kept;
use agent::accounts::Head;
use agent::peer::Key;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};

/// The part that has the name of the accounts' last value.
pub(super) const LAST: &str = "last record";
/// Sessions that are read at once: first, and at most. Etcd counts all that follow for each page: 100,000 sessions in pages of 250 took it 13 s, of 5,000
/// 2.5 s.
const PAGE: [usize; 2] = [250, 5000];
/// Bytes of sessions that are read at once, if the next ones are as large as the last.
const LARGE_PAGE: usize = 4 << 20;
/// Pages that wait to be parsed.
const PAGES: usize = 4;

/// The numbers of a state, and its hosts.
#[derive(Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    epoch: u64,
    revision: u64,
    hosts: Vec<String>,
}

impl State {
    pub(super) fn of(kept: &Kept) -> Self {
        Self { epoch: kept.epoch, revision: kept.revision, hosts: kept.hosts.clone() }
    }

    /// The same with another revision.
    pub(super) fn at(self, revision: u64) -> Self {
        Self { revision, ..self }
    }
}

/// Puts a part unless it is the same as before.
pub(super) fn put<T: Serialize + PartialEq>(
    changes: &mut Vec<Change>,
    name: &str,
    before: &T,
    value: &T,
) -> io::Result<()> {
    if before != value {
        changes.push(Change::Put(Table::Parts, name.to_owned(), serde_json::to_vec(value)?));
    }
    Ok(())
}

/// The name of a session in the table.
pub(super) fn name(Key { first, session, version }: &Key) -> String {
    format!("{first}/{session}/{version:020}")
}

/// The name of a record.
pub(super) fn number(record: u64) -> String {
    format!("{record:020}")
}

/// What is kept but for sessions over several domains, and the last line of the accounts.
pub(super) fn read(database: &mut dyn Database) -> io::Result<(Kept, Head)> {
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
pub(super) fn crossings(database: &mut dyn Database) -> io::Result<Vec<Crossing>> {
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

pub(super) fn text(database: &dyn Database, bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|e| database.damaged(&e))
}

fn part<T: DeserializeOwned + Default>(database: &mut dyn Database, name: &str) -> io::Result<T> {
    let found = database.get(Table::Parts, &[name.to_owned()])?;
    found.into_iter().next().flatten().map_or_else(|| Ok(T::default()), |bytes| parsed(database, &bytes))
}

pub(super) fn parsed<T: DeserializeOwned>(database: &dyn Database, bytes: &[u8]) -> io::Result<T> {
    serde_json::from_slice(bytes).map_err(|e| database.damaged(&e))
}
