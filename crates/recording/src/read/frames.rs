//! The records of a file one by one, each skipped unless it is read. Memory is reserved for bytes that are there only.

use super::{Damage, ReadError};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// A record of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) opcode: u8,
    /// The place of its first byte in the file.
    pub(super) at: u64,
    /// The length of its body.
    pub(super) length: u64,
}

impl Frame {
    /// Its bytes before the body.
    pub(super) fn head(self) -> [u8; HEAD as usize] {
        let mut head = [self.opcode; HEAD as usize];
        head[1..].copy_from_slice(&self.length.to_le_bytes());
        head
    }

    /// A damage at its place.
    pub(super) fn damage(self, problem: impl Into<String>) -> Damage {
        Damage::new(self.at, problem)
    }
}

/// The records of a file.
pub(super) struct Frames {
    file: BufReader<File>,
    /// Length of the file when it was opened.
    length: u64,
    /// The place of the next byte that is read.
    at: u64,
    /// The place of the next record; `None`: there is none.
    next: Option<u64>,
}

impl Frames {
    /// The records of this file.
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        let unreadable = |error: std::io::Error| ReadError::new(path, format!("cannot be read: {error}"));
        let file = File::open(path).map_err(unreadable)?;
        let found = file.metadata().map_err(unreadable)?;
        if !found.is_file() {
            return Err(ReadError::new(path, "is no file"));
        }
        let mut file = BufReader::with_capacity(BUFFER, file);
        let mut magic = Vec::new();
        (&mut file).take(MAGIC.len() as u64).read_to_end(&mut magic).map_err(unreadable)?;
        if magic != MAGIC {
            let problem = format!("is no MCAP file: it begins with {magic:02x?}, an MCAP file with {MAGIC:02x?}");
            return Err(ReadError::new(path, problem));
        }
        let at = MAGIC.len() as u64;
        Ok(Self { file, length: found.len(), at, next: Some(at) })
    }

    /// The next record. After a damage there is none, as its end is not known.
    pub(super) fn next(&mut self) -> Option<Result<Frame, Damage>> {
        let at = self.next.take().filter(|at| *at < self.length)?;
        let frame = self.frame(at);
        if let Ok(Frame { opcode, length, .. }) = frame {
            // Behind the footer is the magic only.
            self.next = (opcode != super::records::FOOTER).then(|| at.saturating_add(HEAD).saturating_add(length));
        }
        Some(frame)
    }

    /// Gives no further record.
    pub(super) fn end(&mut self) {
        self.next = None;
    }

    fn frame(&mut self, at: u64) -> Result<Frame, Damage> {
        let damage = |problem: String| Damage::new(at, problem);
        let unread = |error: std::io::Error| damage(format!("cannot be read: {error}"));
        self.file.seek_relative(at.cast_signed().wrapping_sub(self.at.cast_signed())).map_err(unread)?;
        self.at = at;
        let mut head = [0; HEAD as usize];
        let left = self.length.saturating_sub(at);
        let Some(left) = left.checked_sub(HEAD) else {
            return Err(damage(format!("the file ends within the head of a record, after {left} of {HEAD} bytes")));
        };
        self.file.read_exact(&mut head).map_err(unread)?;
        self.at += HEAD;
        let [opcode, length @ ..] = head;
        let length = u64::from_le_bytes(length);
        match opcode {
            0 | 0x10..super::records::FIRST_OWN => Err(damage(format!("no record has the code {opcode:#04x}"))),
            _ if length > left => {
                Err(damage(format!("a record of {length} bytes is cut off after {left}, at the end of the file")))
            }
            _ => Ok(Frame { opcode, at, length }),
        }
    }

    /// Reads the body of the record that [`next`](Self::next) gave last, on from what `into` has of it already, until there are `length`
    /// bytes.
    pub(super) fn read(&mut self, frame: Frame, length: u64, into: &mut Vec<u8>) -> Result<(), Damage> {
        let length = length.min(frame.length);
        if length > LARGEST {
            return Err(frame.damage(format!("a record of {length} bytes is over the limit of {LARGEST}")));
        }
        let missing = length.saturating_sub(into.len() as u64);
        let read = (&mut self.file).take(missing).read_to_end(into);
        let read = read.map_err(|error| frame.damage(format!("cannot be read: {error}")))? as u64;
        self.at += read;
        if read < missing {
            return Err(frame.damage("the file became shorter while it was read"));
        }
        Ok(())
    }
}

/// The bytes of a record before its body: a code, and a length of 64 bits.
const HEAD: u64 = 9;
/// The first bytes of every MCAP file.
const MAGIC: &[u8] = mcap::MAGIC;
/// Bytes that are read at once.
const BUFFER: usize = 256 << 10;
/// The largest record that is read: a message of a GiB, the largest of a topic, in a chunk of its own.
pub(super) const LARGEST: u64 = (1 << 30) + (1 << 20);
