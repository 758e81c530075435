//! One file: its channels, attachments, and whether it has an end.

use super::frames::{Frame, Frames};
use super::messages::FileMessages;
use super::records::{self, ATTACHMENT, CHANNEL, DATA_END, Directory, FOOTER, HEADER, METADATA, SCHEMA, STATISTICS};
use super::{CONTRACT, Damage, PLAN, ReadError};
use crate::file::CLOCK;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A file with samples.
#[derive(Clone, Debug)]
pub(super) struct Single {
    pub(super) path: PathBuf,
    pub(super) profile: String,
    pub(super) directory: Directory,
    pub(super) attachments: BTreeMap<String, Vec<u8>>,
    /// The clock of its recorder, which all files of one recording state alike, and no others.
    pub(super) clock: Option<BTreeMap<String, String>>,
    /// Its recorder ended it in order: it has an end, and no error in its summary.
    pub(super) finished: bool,
    /// Its number of samples, by a sound summary.
    samples: Option<u64>,
}

impl Single {
    /// Opens a file. If it has no summary, or one that is damaged, all of it is read once.
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        let mut walk = Walk::default();
        let mut frames = Frames::open(path)?;
        while let Some(Ok(frame)) = frames.next() {
            // What is damaged here is damaged when the samples are read, and told then.
            let _ = walk.take(&mut frames, frame);
        }
        let finished = walk.ended;
        let is_complete = walk.is_complete();
        let samples = walk.counts.map(|(samples, _)| samples).filter(|_| finished);
        let Walk { profile, directory, attachments, clock, .. } = walk;
        let directory = match is_complete {
            true => directory,
            false => FileMessages::of(Frames::open(path)?, Directory::default(), None).describe(),
        };
        Ok(Self { path: path.to_owned(), profile, directory, attachments, clock, finished, samples })
    }

    /// Its samples, from the first one.
    pub(super) fn messages(&self) -> Result<FileMessages, ReadError> {
        Ok(FileMessages::of(Frames::open(&self.path)?, self.directory.clone(), self.samples))
    }
}

/// A walk over the records of a file that skips its chunks: the summary repeats the channels that are in them.
#[derive(Default)]
struct Walk {
    profile: String,
    directory: Directory,
    attachments: BTreeMap<String, Vec<u8>>,
    clock: Option<BTreeMap<String, String>>,
    /// The numbers of samples and of channels.
    counts: Option<(u64, u32)>,
    /// The checksum of the summary so far.
    summary: Option<crc32fast::Hasher>,
    ended: bool,
}

impl Walk {
    fn take(&mut self, frames: &mut Frames, frame: Frame) -> Result<(), Damage> {
        let wanted = matches!(frame.opcode, HEADER | SCHEMA | CHANNEL | FOOTER | STATISTICS)
            || (matches!(frame.opcode, ATTACHMENT | METADATA) && frame.length <= LARGEST_ATTACHMENT);
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
            METADATA if wanted => {
                let clock = records::metadata(&body).filter(|(name, _)| name == CLOCK);
                self.clock = self.clock.take().or(clock.map(|(_, values)| values));
            }
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
