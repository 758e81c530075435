//! Recordings: samples in MCAP files, and out of them (F-15; YS-34, `yarpdatadumper` and `yarpdataplayer`).
//!
//! | module | contents |
//! |---|---|
//! | [`check`] | a recording beside another one, or beside a plan: what became slower, and where |
//! | [`play`] | samples in the order and at the times at which they were published |
//! | [`read`] | files, also without a summary, cut off or damaged |
//! | [`record`] | samples of a node's topics into files, without delaying a publisher |
//! | [`file`](mod@file) | one recording as MCAP files: chunks, schemas, metadata, splitting, the end on a full disk |
//!
//! The format of the files: docs/recording.md.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::disallowed_methods))] // tests and their helpers

pub mod check;
mod error;
pub mod file;
pub mod play;
pub mod read;
pub mod record;

pub use error::{Error, Result};
