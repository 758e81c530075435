//! The contract: the needs of topics and their subscribers, and the network they run on (`system.toml`).
//!
//! Times are whole nanoseconds, sizes bytes, rates bit/s or Hz; references between parts are indices into [`System`]'s lists
//! and always hold, because only the reader of the file makes them.
//!
//! | module | contents |
//! |---|---|
//! | `file` | the file as it is written: tables, lines, names |
//! | `value` | values and their ranges |
//! | `read` | from the file to [`System`] |
//! | [`check`] | likely mistakes in a readable contract |

mod check;
mod file;
mod read;
mod value;

pub use check::{Finding, check};

use crate::system::System;
use std::fmt;

/// A contract file that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contract {
    /// The system it describes.
    pub system: System,
    /// The lines of its tables.
    pub lines: Lines,
    /// 64-bit FNV-1a of the text, by which a plan names its contract.
    pub hash: u64,
}

/// The lines of a file at which its tables begin, counted from 1, in the order of [`System`]'s lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Lines of `[[node]]`.
    pub nodes: Vec<usize>,
    /// Lines of `[[link]]`.
    pub links: Vec<usize>,
    /// Lines of `[[topic]]`.
    pub topics: Vec<usize>,
    /// Lines of `[[subscriber]]`.
    pub subscribers: Vec<usize>,
}

/// An error in a contract file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractError {
    /// The line, counted from 1.
    pub line: usize,
    /// Key, value and the allowed ones.
    pub problem: String,
}

impl fmt::Display for ContractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ContractError {}

impl Contract {
    /// Reads the text of a contract file. For any text, the numbers of the resulting [`System`] are within limits
    /// (times up to a day, samples up to 1 GiB, …), its references hold, and every subscriber can be reached.
    ///
    /// # Errors
    /// [`ContractError`] with line, key, value and the allowed ones.
    pub fn read(text: &str) -> Result<Self, ContractError> {
        read::read(text)
    }
}

/// 64-bit FNV-1a.
fn hash(text: &str) -> u64 {
    let step = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests;
