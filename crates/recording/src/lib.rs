//! Recordings: samples in MCAP files, and out of them (F-15; YS-34, `yarpdatadumper`).
//!
//! | module | contents |
//! |---|---|
//! | [`file`](mod@file) | one recording as MCAP files: chunks, schemas, metadata, splitting, the end on a full disk |
//! | [`record`] | samples of a node's topics into these files, without delaying a publisher |
//!
//! The format of the files: docs/recording.md.

mod error;
pub mod file;
pub mod record;

pub use error::{Error, Result};
//! Recordings: MCAP files with the samples of topics, their times and their losses.
//!
//! | module | contents |
//! |---|---|
//! | [`check`] | a recording beside another one, or beside a plan: what became slower, and where |
//! | [`play`] | samples in the order and at the times at which they were published |
//! | [`read`] | files, also without a summary, cut off or damaged |

pub mod check;
pub mod play;
pub mod read;
