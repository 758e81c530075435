//! The bytes of one file, and the names of several.

use crate::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A place for the bytes of a file.
pub trait Store: Write + Send {
    /// Cuts off what stands behind the first `length` bytes. The next byte is written there.
    ///
    /// # Errors
    /// The kernel's.
    fn cut(&mut self, length: u64) -> io::Result<()>;

    /// Waits until everything is on the disk.
    ///
    /// # Errors
    /// The kernel's: also those of earlier writes.
    fn settle(&mut self) -> io::Result<()>;
}

impl Store for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        self.seek(SeekFrom::Start(length)).map(drop)
    }

    fn settle(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Where a recording's files come from.
pub trait Files {
    /// The bytes of a file.
    type Store: Store;

    /// Creates the next file.
    ///
    /// # Errors
    /// [`Error`](crate::Error) with the file's name.
    fn next(&mut self) -> Result<(PathBuf, Self::Store)>;
}

/// Files with the name of the first and a number: `run.mcap`, `run-2.mcap`, `run-3.mcap`.
#[derive(Debug)]
pub struct Series {
    first: PathBuf,
    created: u32,
}

impl Series {
    /// A series that begins with this file.
    pub fn new(first: &Path) -> Self {
        Self { first: first.to_owned(), created: 0 }
    }

    /// The name of the file with this number, from 1.
    pub(crate) fn name(&self, number: u32) -> PathBuf {
        if number == 1 {
            return self.first.clone();
        }
        let mut name = self.first.file_stem().unwrap_or_default().to_owned();
        name.push(format!("-{number}"));
        if let Some(extension) = self.first.extension() {
            name.push(".");
            name.push(extension);
        }
        self.first.with_file_name(name)
    }
}

impl Files for Series {
    type Store = File;

    fn next(&mut self) -> Result<(PathBuf, File)> {
        let path = self.name(self.created + 1);
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(|e| Error::disk(&path, e))?;
        self.created += 1;
        Ok((path, file))
    }
}

/// A store that counts its bytes.
pub(super) struct Counted<S> {
    pub(super) store: S,
    written: Arc<AtomicU64>,
}

impl<S: Store> Counted<S> {
    /// The store, and the number of bytes that it took.
    pub(super) fn new(store: S) -> (Self, Arc<AtomicU64>) {
        let written = Arc::new(AtomicU64::new(0));
        (Self { store, written: written.clone() }, written)
    }
}

impl<S: Store> Write for Counted<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.store.write(bytes)?;
        self.written.fetch_add(count as u64, Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.store.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_files_have_a_number_before_the_extension() {
        let names = |first: &str| [1, 2, 11].map(|n| Series::new(Path::new(first)).name(n).display().to_string());
        assert_eq!(names("a/run.mcap"), ["a/run.mcap", "a/run-2.mcap", "a/run-11.mcap"]);
        assert_eq!(names("run.1"), ["run.1", "run-2.1", "run-11.1"]);
        assert_eq!(names("run"), ["run", "run-2", "run-11"]);
    }
}
