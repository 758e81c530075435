//! MCAP files: their channels, attachments and samples.
//!
//! A file may come from a recorder that was killed, from a full disk, or from somebody else. Without a summary it is read through once for
//! its channels. A chunk whose checksum is wrong is left out, and reading goes on behind it; where the length of a record is wrong, the
//! file ends. Nothing in a file makes more memory be reserved than it has bytes, but for packed chunks, whose sizes have a limit.
//!
//! | module | contents |
//! |---|---|
//! | `chunk` | the records in a chunk |
//! | `cursor` | fields of a record, with every length checked |
//! | `frames` | the records of a file |
//! | `merged` | the samples of all files of a recording, in the order of their receipt |
//! | `messages` | the samples of a file |
//! | `records` | the fields of each record |
//! | `recording` | the files that belong together, and their channels |
//! | `single` | one file: its channels, attachments, and whether it has an end |

mod chunk;
mod cursor;
mod frames;
mod merged;
mod messages;
mod recording;
mod records;
mod single;
#[cfg(test)]
pub(crate) mod tests;

pub use merged::Messages;
pub use recording::Recording;

use crate::file::{CHANGE, ENDED_TOPIC};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg::Change;

/// The type of a channel's samples, as the file describes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schema {
    /// Its name, such as `std_msgs/msg/String`.
    pub name: String,
    /// The language of the description, such as `ros2msg`.
    pub encoding: String,
    /// The description.
    pub data: Vec<u8>,
}

/// A channel of a file: the samples of one topic, in our recordings of one publisher.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Channel {
    /// Its number in the recording: in the file, unless another file before it has the number.
    pub id: u16,
    /// Its topic.
    pub topic: String,
    /// The encoding of its samples, such as `cdr`.
    pub encoding: String,
    /// Their type.
    pub schema: Option<Arc<Schema>>,
    /// More, by key: [`CLASS`], [`OFFERED_QOS`], [`PUBLISHER`], [`QOS`], [`SUBSCRIBER`], [`TYPE`].
    pub metadata: BTreeMap<String, String>,
}

impl Channel {
    /// What the recorder itself wrote, not a program: [`TIMING`] and [`LOSSES`].
    pub fn is_own(&self) -> bool {
        self.topic == TIMING || self.topic == LOSSES
    }

    /// The statement of its samples about their instances: in our recordings the ends of instances are channels of their own.
    pub fn change(&self) -> Change {
        match self.metadata.get(CHANGE).map(String::as_str) {
            Some("disposed") => Change::Disposed,
            Some("unregistered") => Change::Unregistered,
            _ => Change::Written,
        }
    }

    /// The topic on which its samples were published: that of the instances if these are ends of them, else its own.
    pub fn published_topic(&self) -> &str {
        let of_ends = self.metadata.get(ENDED_TOPIC).filter(|_| self.change() != Change::Written);
        of_ends.unwrap_or(&self.topic)
    }

    /// The name of the port that published its samples; empty: the file does not say.
    pub fn publisher(&self) -> &str {
        self.metadata.get(PUBLISHER).map_or("", String::as_str)
    }
}

/// Metadata of a channel: the priority class of its samples.
pub const CLASS: &str = "thalweg.class";
/// Metadata of a channel: the QoS of its publisher, in rosbag2's form.
pub const OFFERED_QOS: &str = "offered_qos_profiles";
/// Metadata of a channel: the name of the port that published.
pub const PUBLISHER: &str = "thalweg.publisher";
/// Metadata of a channel: the QoS of its publisher in JSON.
pub const QOS: &str = "thalweg.qos";
/// Metadata of a channel: the name of the port that recorded.
pub const SUBSCRIBER: &str = "thalweg.subscriber";
/// Metadata of a channel: its type's description in JSON, for types that no schema of MCAP can tell.
pub const TYPE: &str = "thalweg.type";
/// The topic of the recorder's own figures of latency.
pub const TIMING: &str = "/thalweg/timing";
/// The topic of the recorder's counts of lost samples.
pub const LOSSES: &str = "/thalweg/losses";
/// The attached contract.
pub const CONTRACT: &str = "contract.toml";
/// The attached plan.
pub const PLAN: &str = "plan.toml";

/// A sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its channel.
    pub channel: Arc<Channel>,
    /// The low 32 bits of its number at its publisher.
    pub sequence: u32,
    /// The time of receipt, nanoseconds since 1970.
    pub log_ns: u64,
    /// The time of publication, nanoseconds since 1970.
    pub publish_ns: u64,
    /// The encoded message.
    pub data: Vec<u8>,
}

/// A part of a file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file; `None` as long as only one is read.
    pub file: Option<PathBuf>,
    /// The place of its record in the file.
    pub at: u64,
    /// The problem.
    pub problem: String,
}

impl Damage {
    /// A damage at this place of the file that is read.
    pub(crate) fn new(at: u64, problem: impl Into<String>) -> Self {
        Self { file: None, at, problem: problem.into() }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        write!(f, "damaged: byte {}: {}", self.at, self.problem)
    }
}

/// A file that cannot be read at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    path: PathBuf,
    problem: String,
}

impl ReadError {
    fn new(path: &Path, problem: impl Into<String>) -> Self {
        Self { path: path.to_owned(), problem: problem.into() }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for ReadError {}
