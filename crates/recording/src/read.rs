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
//! | `messages` | the samples of a file |
//! | `records` | the fields of each record |

mod chunk;
mod cursor;
mod frames;
mod messages;
mod records;
#[cfg(test)]
pub(crate) mod tests;

pub use messages::Messages;

use frames::{Frame, Frames};
use records::{ATTACHMENT, CHANNEL, DATA_END, Directory, FOOTER, HEADER, SCHEMA, STATISTICS};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The type of a channel's samples, as the file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Its name, such as `std_msgs/msg/String`.
    pub name: String,
    /// The language of the description, such as `ros2msg`.
    pub encoding: String,
    /// The description.
    pub data: Vec<u8>,
}

/// A channel of a file: the samples of one topic, in our recordings of one publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its number in the file.
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
    /// The place of its record in the file.
    pub at: u64,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.at, self.problem)
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

/// A file with samples.
#[derive(Clone, Debug)]
pub struct Recording {
    path: PathBuf,
    profile: String,
    directory: Directory,
    attachments: BTreeMap<String, Vec<u8>>,
    finished: bool,
    /// Its number of samples, by a sound summary.
    samples: Option<u64>,
}

impl Recording {
    /// Opens a file. If it has no summary, or one that is damaged, all of it is read once.
    ///
    /// # Errors
    /// [`ReadError`] if it cannot be read or is no MCAP file.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let mut walk = Walk::default();
        let mut frames = Frames::open(path)?;
        while let Some(Ok(frame)) = frames.next() {
            // What is damaged here is damaged when the samples are read, and told then.
            let _ = walk.take(&mut frames, frame);
        }
        let finished = walk.ended;
        let directory = match walk.is_complete() {
            true => walk.directory,
            false => Messages::of(Frames::open(path)?, Directory::default(), None).describe(),
        };
        let samples = walk.counts.map(|(samples, _)| samples).filter(|_| finished);
        let (profile, attachments) = (walk.profile, walk.attachments);
        Ok(Self { path: path.to_owned(), profile, directory, attachments, finished, samples })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The profile that it states: `ros2` for rosbag2.
    pub fn profile(&self) -> &str {
        &self.profile
    }

    /// Its recorder ended it in order: it has an end, and no error in its summary.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Its channels, by number.
    pub fn channels(&self) -> impl Iterator<Item = &Arc<Channel>> {
        self.directory.channels.values()
    }

    /// An attached file: contract, plan or settings.
    pub fn attachment(&self, name: &str) -> Option<&[u8]> {
        self.attachments.get(name).map(Vec::as_slice)
    }

    /// Its samples, from the first one.
    ///
    /// # Errors
    /// [`ReadError`] if the file cannot be opened any more.
    pub fn messages(&self) -> Result<Messages, ReadError> {
        Ok(Messages::of(Frames::open(&self.path)?, self.directory.clone(), self.samples))
    }
}

/// A walk over the records of a file that skips its chunks: the summary repeats the channels that are in them.
#[derive(Default)]
struct Walk {
    profile: String,
    directory: Directory,
    attachments: BTreeMap<String, Vec<u8>>,
    /// The numbers of samples and of channels.
    counts: Option<(u64, u32)>,
    /// The checksum of the summary so far.
    summary: Option<crc32fast::Hasher>,
    ended: bool,
}

impl Walk {
    fn take(&mut self, frames: &mut Frames, frame: Frame) -> Result<(), Damage> {
        let wanted = matches!(frame.opcode, HEADER | SCHEMA | CHANNEL | FOOTER | STATISTICS)
            || (frame.opcode == ATTACHMENT && frame.length <= LARGEST_ATTACHMENT);
        let mut body = Vec::new();
        if wanted || self.summary.is_some() {
            frames.read(frame, frame.length, &mut body)?;
        }
        self.hash(frame, &body);
        match frame.opcode {
            HEADER => self.profile = records::profile(&body).unwrap_or_default(),
            STATISTICS => self.counts = records::counts(&body),
            DATA_END => self.summary = Some(crc32fast::Hasher::new()),
            FOOTER => self.ended = self.summary_is_sound(&body),
            ATTACHMENT if wanted => {
                let kept = records::attachment(&body).filter(|(name, _)| ATTACHED.contains(&name.as_str()));
                self.attachments.extend(kept.map(|(name, data)| (name, data.to_vec())));
            }
            _ => return self.directory.take(frame.opcode, &body).map_err(|problem| frame.damage(problem)),
        }
        Ok(())
    }

    fn hash(&mut self, frame: Frame, body: &[u8]) {
        let Some(hasher) = &mut self.summary else { return };
        hasher.update(&frame.head());
        // The footer's own checksum is its last field.
        let length = if frame.opcode == FOOTER { body.len().saturating_sub(4) } else { body.len() };
        hasher.update(&body[..length]);
    }

    fn summary_is_sound(&self, footer: &[u8]) -> bool {
        let saved = records::summary_crc(footer);
        let found = self.summary.as_ref().map(|hasher| hasher.clone().finalize());
        found.zip(saved).is_some_and(|(found, saved)| saved == 0 || saved == found)
    }

    /// There is a summary with all channels.
    fn is_complete(&self) -> bool {
        let channels = self.counts.map(|(_, channels)| channels);
        self.ended && channels == u32::try_from(self.directory.channels.len()).ok()
    }
}

/// Attachments that are kept.
const ATTACHED: [&str; 3] = [CONTRACT, PLAN, "settings.json"];
/// The largest attachment that is read.
const LARGEST_ATTACHMENT: u64 = 64 << 20;
