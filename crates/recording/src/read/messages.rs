//! The samples of a file, in its order.

use super::chunk::unpack;
use super::frames::{Frame, Frames};
use super::records::{CHANNEL, CHUNK, ChunkRecord, DATA_END, Directory, MESSAGE, MessageRecord, SCHEMA};
use super::{Damage, Message};
use std::collections::{BTreeSet, VecDeque};

/// The samples of a file, and its damages in their places. What can be read behind a damage follows. In memory is one chunk.
pub(super) struct FileMessages {
    frames: Frames,
    directory: Directory,
    waiting: VecDeque<Result<Message, Damage>>,
    body: Vec<u8>,
    only: Option<BTreeSet<u16>>,
    from_ns: u64,
    /// Samples that the summary counts and that were not met yet; `None`: not known any more.
    missing: Option<u64>,
}

impl FileMessages {
    pub(super) fn of(frames: Frames, directory: Directory, missing: Option<u64>) -> Self {
        let (waiting, body) = (VecDeque::new(), Vec::new());
        Self { frames, directory, waiting, body, only: None, from_ns: 0, missing }
    }

    /// Leaves out the samples of all channels but these.
    #[must_use]
    pub(super) fn only(mut self, channels: BTreeSet<u16>) -> Self {
        self.only = Some(channels);
        self
    }

    /// Skips, from now on, chunks whose samples were all received before this time.
    pub(super) fn skip_before(&mut self, log_ns: u64) {
        self.from_ns = log_ns;
        self.missing = None;
    }

    /// Reads all of it for its channels.
    pub(super) fn describe(mut self) -> Directory {
        self.only = Some(BTreeSet::new());
        self.by_ref().for_each(drop);
        self.directory
    }

    fn frame(&mut self, frame: Frame) -> Result<(), Damage> {
        let Self { frames, body, .. } = self;
        body.clear();
        match frame.opcode {
            CHUNK => {
                frames.read(frame, 16, body)?;
                if ChunkRecord::end_ns(body).is_some_and(|end| end < self.from_ns) {
                    return Ok(());
                }
                frames.read(frame, frame.length, body)?;
                self.chunk(frame)
            }
            SCHEMA | CHANNEL | MESSAGE => {
                frames.read(frame, frame.length, body)?;
                let body = std::mem::take(body);
                let taken = take(&mut self.directory, self.only.as_ref(), frame.opcode, &body);
                self.body = body;
                self.met(u64::from(frame.opcode == MESSAGE));
                self.waiting.extend(taken.map_err(|problem| frame.damage(problem))?.map(Ok));
                Ok(())
            }
            DATA_END => {
                // The summary repeats what was read, with a checksum that nobody checks here.
                frames.end();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn chunk(&mut self, frame: Frame) -> Result<(), Damage> {
        let Self { directory, waiting, body, only, .. } = self;
        let (mut damage, mut met) = (None, 0);
        let mut each = |opcode: u8, record: &[u8]| {
            met += u64::from(opcode == MESSAGE);
            match take(directory, only.as_ref(), opcode, record) {
                Ok(message) => waiting.extend(message.map(Ok)),
                Err(problem) => damage = damage.take().or(Some(problem)),
            }
        };
        let unpacked = unpack(body, &mut each);
        let problem = damage.or(unpacked.err());
        // One large chunk does not occupy its memory until the end.
        if body.capacity() > KEPT {
            *body = Vec::new();
        }
        self.met(met);
        problem.map_or(Ok(()), |problem| Err(frame.damage(problem)))
    }

    fn met(&mut self, samples: u64) {
        self.missing = self.missing.and_then(|missing| missing.checked_sub(samples));
    }

    /// The damage of a file whose records are sound and lack samples: a wrong bit in the code of a record hides it.
    fn lack(&mut self) -> Option<Result<Message, Damage>> {
        let missing = self.missing.take().filter(|missing| *missing > 0)?;
        let problem = format!("the summary counts {missing} more samples than there are");
        Some(Err(Damage::new(0, problem)))
    }
}

impl Iterator for FileMessages {
    type Item = Result<Message, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.waiting.pop_front() {
                return Some(item);
            }
            let outcome = match self.frames.next() {
                Some(Ok(frame)) => self.frame(frame),
                Some(Err(damage)) => Err(damage),
                None => return self.lack(),
            };
            if let Err(damage) = outcome {
                // Samples of a chunk come before its damage.
                self.waiting.push_back(Err(damage));
                self.missing = None;
            }
        }
    }
}

/// Takes a record: the sample in it, if it is one that is wanted.
fn take(
    directory: &mut Directory,
    only: Option<&BTreeSet<u16>>,
    opcode: u8,
    body: &[u8],
) -> Result<Option<Message>, String> {
    if opcode != MESSAGE {
        return directory.take(opcode, body).map(|()| None);
    }
    let read = MessageRecord::read(body).ok_or("a sample ends within its head")?;
    let Some(channel) = directory.channels.get(&read.channel) else {
        return Err(format!("a sample is of channel {}, which the file does not describe", read.channel));
    };
    if only.is_some_and(|only| !only.contains(&read.channel)) {
        return Ok(None);
    }
    let MessageRecord { sequence, log_ns, publish_ns, data, .. } = read;
    Ok(Some(Message { channel: channel.clone(), sequence, log_ns, publish_ns, data: data.to_vec() }))
}

/// Memory for a record that is kept for the next one.
const KEPT: usize = 16 << 20;
