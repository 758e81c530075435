//! A database in memory.

use crate::store::{Change, Database, Entry, Table};
use std::collections::BTreeMap;
use std::{fmt, io};

/// The values of each table, by name.
#[derive(Debug, Default)]
pub(super) struct Memory([BTreeMap<String, Vec<u8>>; 3]);

fn place(table: Table) -> usize {
    match table {
        Table::Parts => 0,
        Table::Crossings => 1,
        Table::Accounts => 2,
    }
}

impl Database for Memory {
    fn scan(&mut self, table: Table, after: &str, most: usize) -> io::Result<Vec<Entry>> {
        let later = self.0[place(table)].iter().filter(|(name, _)| name.as_str() > after);
        Ok(later.take(most).map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    fn get(&mut self, table: Table, names: &[String]) -> io::Result<Vec<Option<Vec<u8>>>> {
        Ok(names.iter().map(|name| self.0[place(table)].get(name).cloned()).collect())
    }

    fn write(&mut self, changes: &[Change]) -> io::Result<()> {
        for change in changes {
            match change {
                Change::Put(table, name, value) => drop(self.0[place(*table)].insert(name.clone(), value.clone())),
                Change::Remove(table, name) => drop(self.0[place(*table)].remove(name)),
                Change::RemoveUpTo(table, name) => self.0[place(*table)].retain(|known, _| known > name),
            }
        }
        Ok(())
    }

    fn damaged(&self, error: &dyn fmt::Display) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error.to_string())
    }
}
