//! A recording over several files. The next one is open, with everything it needs, before the last one ends.

use super::disk::{Files, Store};
use super::metadata::{CLOCK, ClockAnchor, LOSSES, Loss, TIMING, Timing, json_schema};
use super::writer::{ChannelText, Compression, Profile, Stamped, Writer};
use crate::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The size or age at which a file ends and the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// At this many bytes.
    Bytes(u64),
    /// After this time.
    Time(Duration),
}

/// Settings of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The compression of chunks.
    pub compression: Compression,
    /// When the next file begins; `None`: all is in one file.
    pub split: Option<Split>,
}

/// A file within each file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its name.
    pub name: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// The file that is written now.
struct Current<S: Store> {
    writer: Writer<S>,
    begun_ns: u64,
    /// The numbers of the channels in this file.
    numbers: Vec<u16>,
    timing: u16,
    losses: u16,
}

/// The files of one recording.
pub struct Output<F: Files> {
    files: F,
    limits: Limits,
    anchor: ClockAnchor,
    attachments: Vec<Attachment>,
    channels: Vec<ChannelText>,
    paths: Vec<PathBuf>,
    /// The first file, until its profile is known.
    first: Option<F::Store>,
    current: Option<Current<F::Store>>,
    /// Messages of [`TIMING`] and [`LOSSES`] so far.
    reports: u32,
}

impl<F: Files> Output<F> {
    /// Creates the first file. It has no contents before [`Output::begin`].
    ///
    /// # Errors
    /// [`Error`] with the file's name.
    pub fn create(mut files: F, limits: Limits, anchor: ClockAnchor, attachments: Vec<Attachment>) -> Result<Self> {
        let (path, store) = files.next()?;
        let (channels, paths, first) = (Vec::new(), vec![path], Some(store));
        Ok(Self { files, limits, anchor, attachments, channels, paths, first, current: None, reports: 0 })
    }

    /// The recorder's clock.
    pub fn anchor(&self) -> &ClockAnchor {
        &self.anchor
    }

    /// The files so far.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The file that is written now.
    pub fn path(&self) -> &Path {
        self.paths.last().map(PathBuf::as_path).unwrap_or(Path::new(""))
    }

    /// Begins the first file, unless it was. `now_ns` is of the monotonic clock, here and below.
    ///
    /// # Errors
    /// The store's.
    pub fn begin(&mut self, profile: Profile, now_ns: u64) -> io::Result<()> {
        if let Some(store) = self.first.take() {
            self.current = Some(self.file(store, profile, now_ns)?);
        }
        Ok(())
    }

    fn file(&self, store: F::Store, profile: Profile, now_ns: u64) -> io::Result<Current<F::Store>> {
        let writer = Writer::create(store, profile, self.limits.compression)?;
        let mut current = Current { writer, begun_ns: now_ns, numbers: Vec::new(), timing: 0, losses: 0 };
        match self.head(&mut current, profile, now_ns) {
            Ok(()) => Ok(current),
            Err(error) => {
                current.writer.cut_off(&[]);
                Err(error)
            }
        }
    }

    /// Writes what every file has from its beginning.
    fn head(&self, current: &mut Current<F::Store>, profile: Profile, now_ns: u64) -> io::Result<()> {
        let writer = &mut current.writer;
        writer.metadata(CLOCK, self.anchor.values())?;
        for Attachment { name, media_type, data } in &self.attachments {
            writer.attach(name, media_type, self.anchor.wall(now_ns), data)?;
        }
        current.timing = writer.channel(&reports(TIMING, profile))?;
        current.losses = writer.channel(&reports(LOSSES, profile))?;
        for channel in &self.channels {
            current.numbers.push(writer.channel(channel)?);
        }
        writer.flush()
    }

    /// Adds a channel, to this file and all further ones; gives its index.
    ///
    /// # Errors
    /// The store's.
    pub fn add(&mut self, channel: ChannelText) -> io::Result<usize> {
        let current = self.current.as_mut().ok_or_else(not_begun)?;
        current.numbers.push(current.writer.channel(&channel)?);
        self.channels.push(channel);
        Ok(self.channels.len() - 1)
    }

    /// Writes a sample of a channel.
    ///
    /// # Errors
    /// The store's.
    pub fn write(&mut self, channel: usize, stamped: Stamped, data: &[u8]) -> io::Result<()> {
        let current = self.current.as_mut().ok_or_else(not_begun)?;
        let number = current.numbers.get(channel).copied().ok_or_else(not_begun)?;
        current.writer.write(number, stamped, data)
    }

    /// Writes the delays of a second.
    ///
    /// # Errors
    /// The store's.
    pub fn timing(&mut self, timing: &Timing, now_ns: u64) -> io::Result<()> {
        let stamped = self.next_report(now_ns);
        let current = self.current.as_mut().ok_or_else(not_begun)?;
        current.writer.write(current.timing, stamped, &json(timing)?)
    }

    /// Writes a loss.
    ///
    /// # Errors
    /// The store's.
    pub fn loss(&mut self, loss: &Loss, now_ns: u64) -> io::Result<()> {
        let stamped = self.next_report(now_ns);
        let current = self.current.as_mut().ok_or_else(not_begun)?;
        current.writer.write(current.losses, stamped, &json(loss)?)
    }

    fn next_report(&mut self, now_ns: u64) -> Stamped {
        self.reports = self.reports.wrapping_add(1);
        let at_ns = self.anchor.wall(now_ns);
        Stamped { sequence: self.reports, log_ns: at_ns, publish_ns: at_ns }
    }

    /// Attaches a file to this one and all further ones. It replaces one of the same name.
    ///
    /// # Errors
    /// The store's.
    pub fn attach(&mut self, attachment: Attachment, now_ns: u64) -> io::Result<()> {
        let at_ns = self.anchor.wall(now_ns);
        if let Some(current) = &mut self.current {
            current.writer.attach(attachment.name, attachment.media_type, at_ns, &attachment.data)?;
        }
        self.attachments.retain(|other| other.name != attachment.name);
        self.attachments.push(attachment);
        Ok(())
    }

    /// `true` if a flush is due by the size of the chunk.
    pub fn is_full(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.writer.is_full())
    }

    /// Makes everything so far readable.
    ///
    /// # Errors
    /// The store's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.current.as_mut().map_or(Ok(()), |current| current.writer.flush())
    }

    /// `true` if the next file is due.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let due = |current: &Current<F::Store>| match self.limits.split {
            Some(Split::Bytes(most)) => current.writer.length() >= most,
            Some(Split::Time(longest)) => u128::from(now_ns.saturating_sub(current.begun_ns)) >= longest.as_nanos(),
            None => false,
        };
        self.current.as_ref().is_some_and(due)
    }

    /// Begins the next file, and ends the one before. If there can be no next file, the recording continues in this one to its end.
    ///
    /// # Errors
    /// [`Error`] with the name of the file. Nothing is lost by it.
    pub fn split(&mut self, profile: Profile, now_ns: u64) -> Result<()> {
        let next = self.files.next().and_then(|(path, store)| {
            let file =
                self.file(store, profile, now_ns).map_err(|source| Error::Disk { file: path.clone(), source })?;
            Ok((path, file))
        });
        let (path, file) = next.inspect_err(|_| self.limits.split = None)?;
        let before = self.current.replace(file);
        // To wait for the disk here would hold up samples.
        let ended = before.map_or(Ok(0), |before| before.writer.finish(false));
        let ended = ended.map_err(|source| Error::Disk { file: self.path().to_owned(), source });
        self.paths.push(path);
        ended.map(drop)
    }

    /// Ends the last file.
    ///
    /// # Errors
    /// The store's. All samples up to the last flush are in the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.current.take().map_or(Ok(0), |current| current.writer.finish(true)).map(drop)
    }

    /// Ends the last file after an error: with these losses, if there is room for them.
    pub fn cut_off(mut self, losses: &[Loss], now_ns: u64) {
        let stamped: Vec<(Stamped, Vec<u8>)> =
            losses.iter().filter_map(|loss| Some((self.next_report(now_ns), json(loss).ok()?))).collect();
        if let Some(Current { writer, losses, .. }) = self.current.take() {
            let last: Vec<_> = stamped.into_iter().map(|(stamped, data)| (losses, stamped, data)).collect();
            writer.cut_off(&last);
        }
    }
}

/// The channel of the reports on this topic. Tools for ROS 2 refuse a file with schemas of JSON, so a file for them has none.
fn reports(topic: &str, profile: Profile) -> ChannelText {
    let schema = (profile == Profile::Thalweg).then(|| json_schema(topic));
    ChannelText { topic: topic.to_owned(), schema, encoding: "json", metadata: BTreeMap::new() }
}

fn json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(io::Error::from)
}

fn not_begun() -> io::Error {
    io::Error::other("the file has not begun")
}
