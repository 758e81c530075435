//! A directory that one broker uses, with an embedded database (redb).

use super::{Change, Entry, Table};
use redb::{Database as File, ReadOnlyTable, ReadableDatabase, TableDefinition, TableError};
use std::fmt;
use std::fs;
use std::io;
use std::ops::Bound::{Excluded, Unbounded};
use std::path::{Path, PathBuf};

type Name = &'static str;
type Bytes = &'static [u8];

/// Memory for pages of the database: what is read is read once.
const CACHE: usize = 8 << 20;

/// The database of a directory.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    /// `None`: a write has failed, and it is opened again (redb takes nothing more after an error).
    file: Option<File>,
    /// Held as long as the broker runs.
    _lock: fs::File,
}

impl Disk {
    /// Opens the directory, which is made if it is not there.
    ///
    /// # Errors
    /// Another broker uses it, it cannot be written, or its file is damaged.
    pub fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let lock = fs::File::create(directory.join("broker.lock"))?;
        lock.try_lock().map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, "another broker uses it"))?;
        let mut disk = Self { path: directory.join("broker.redb"), file: None, _lock: lock };
        disk.file()?;
        Ok(disk)
    }

    fn file(&mut self) -> io::Result<&File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::builder().set_cache_size(CACHE).create(&self.path).map_err(damaged)?,
        };
        Ok(self.file.insert(file))
    }

    /// The values of a table; `None`: a new file has none.
    fn values(&mut self, table: Table) -> io::Result<Option<ReadOnlyTable<Name, Bytes>>> {
        let found = self.file()?.begin_read().map_err(damaged)?;
        match found.open_table(definition(table)) {
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            other => other.map(Some).map_err(damaged),
        }
    }
}

impl super::Database for Disk {
    fn scan(&mut self, table: Table, after: &str, most: usize) -> io::Result<Vec<Entry>> {
        let Some(values) = self.values(table)? else { return Ok(Vec::new()) };
        let range = values.range::<&str>((Excluded(after), Unbounded)).map_err(damaged)?;
        let mut found = Vec::new();
        for entry in range.take(most) {
            let (name, value) = entry.map_err(damaged)?;
            found.push((name.value().to_owned(), value.value().to_vec()));
        }
        Ok(found)
    }

    fn get(&mut self, table: Table, names: &[String]) -> io::Result<Vec<Option<Vec<u8>>>> {
        let Some(values) = self.values(table)? else { return Ok(vec![None; names.len()]) };
        let value = |name: &String| {
            let found = values.get(name.as_str()).map_err(damaged)?;
            Ok(found.map(|value| value.value().to_vec()))
        };
        names.iter().map(value).collect()
    }

    fn write(&mut self, changes: &[Change]) -> io::Result<()> {
        self.file()?;
        let Some(file) = self.file.take() else { return Ok(()) };
        let written = file.begin_write().map_err(io::Error::other)?;
        for change in changes {
            let (Change::Put(table, name, _) | Change::Remove(table, name) | Change::RemoveUpTo(table, name)) = change;
            let (mut values, name) = (written.open_table(definition(*table)).map_err(io::Error::other)?, name.as_str());
            match change {
                Change::Put(_, _, value) => drop(values.insert(name, value.as_slice()).map_err(io::Error::other)?),
                Change::Remove(..) => drop(values.remove(name).map_err(io::Error::other)?),
                Change::RemoveUpTo(..) => {
                    values.retain_in::<&str, _>(..=name, |_, _| false).map_err(io::Error::other)?
                }
            }
        }
        written.commit().map_err(io::Error::other)?;
        self.file = Some(file);
        Ok(())
    }

    fn damaged(&self, error: &dyn fmt::Display) -> io::Error {
        damaged(error)
    }
}

fn definition(table: Table) -> TableDefinition<'static, Name, Bytes> {
    TableDefinition::new(match table {
        Table::Parts => "parts",
        Table::Crossings => "crossings",
        Table::Accounts => "records",
    })
}

fn damaged<E: fmt::Display>(error: E) -> io::Error {
    io::Error::other(format!(
        "broker.redb cannot be read ({error}): put back a copy, or remove it; `thalweg hosts` tells which --epoch is needed then"
    ))
}
