//! The broker's file: replaced as a whole, so that a crash leaves the old or the new state.

use crate::hosts::Kept;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Largest file that is read.
const LARGEST: u64 = 64 << 20;

/// A directory that one broker uses.
#[derive(Debug)]
pub struct Store {
    file: PathBuf,
    /// Held as long as the broker runs.
    _lock: fs::File,
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
        let file = directory.join("broker.json");
        let kept = match fs::File::open(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::default(),
            Err(error) => return Err(error),
            Ok(opened) => read(opened)?,
        };
        Ok((Self { file, _lock: lock }, kept))
    }

    /// Keeps this. When it returns, the state survives a crash of the machine.
    ///
    /// # Errors
    /// The state from before stays.
    pub fn keep(&self, kept: &Kept) -> io::Result<()> {
        let fresh = self.file.with_extension("new");
        let mut opened = fs::File::create(&fresh)?;
        opened.write_all(&serde_json::to_vec(kept)?)?;
        opened.sync_all()?;
        fs::rename(&fresh, &self.file)?;
        self.file.parent().map_or(Ok(()), |parent| fs::File::open(parent)?.sync_all())
    }
}

fn read(opened: fs::File) -> io::Result<Kept> {
    let mut text = Vec::new();
    opened.take(LARGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("broker.json is larger than {LARGEST} bytes")));
    }
    let damaged = |e| {
        io::Error::other(format!(
            "broker.json is damaged ({e}): put back a copy, or remove it; `thalweg hosts` tells which --epoch is needed then"
        ))
    };
    serde_json::from_slice(&text).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writing the new file, its rename, and what comes after them: whatever is there when the broker dies, the next one finds a whole state.
    #[test]
    fn a_crash_at_any_byte_leaves_the_old_state_or_the_new_one() {
        let directory = std::env::temp_dir().join(format!("thalweg-store-crash-{}", std::process::id()));
        let states = [1, 2].map(|revision| Kept { revision, plan: Some("plan".into()), ..Kept::default() });
        let (store, _) = Store::open(&directory).unwrap();
        store.keep(&states[0]).unwrap();
        drop(store);
        let next = serde_json::to_vec(&states[1]).unwrap();
        for length in 0..=next.len() {
            fs::write(directory.join("broker.new"), &next[..length]).unwrap();
            assert_eq!(Store::open(&directory).unwrap().1, states[0], "{length} bytes written");
        }
        fs::rename(directory.join("broker.new"), directory.join("broker.json")).unwrap();
        assert_eq!(Store::open(&directory).unwrap().1, states[1], "renamed");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_is_kept_is_found_by_the_next_broker_and_one_at_a_time() {
        let directory = std::env::temp_dir().join(format!("thalweg-store-{}", std::process::id()));
        let (store, kept) = Store::open(&directory).unwrap();
        assert_eq!(kept, Kept::default());
        let (plan, hosts) = (Some("plan".into()), vec!["a".into()]);
        let kept = Kept { epoch: 3, revision: 7, plan, hosts, ..Kept::default() };
        store.keep(&kept).unwrap();
        assert_eq!(Store::open(&directory).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(store);
        assert_eq!(Store::open(&directory).unwrap().1, kept);
        fs::write(directory.join("broker.json"), "{").unwrap();
        assert!(Store::open(&directory).unwrap_err().to_string().contains("damaged"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
