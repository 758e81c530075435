//! The files that belong together, and their channels.

use super::single::Single;
use super::{Channel, Damage, Message, Messages, ReadError};
use crate::file::Series;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A recording: a file with samples, or several that are read as one.
#[derive(Clone, Debug)]
pub struct Recording {
    /// By the time of their first samples.
    files: Vec<Arc<Member>>,
    channels: BTreeMap<u16, Arc<Channel>>,
    unread: Vec<ReadError>,
}

/// A file of a recording.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) file: Single,
    /// The time of receipt of its first sample. Nobody asks for that of an only file.
    pub(super) first_ns: u64,
    /// Its channels as the recording has them, by their numbers in the file.
    numbers: BTreeMap<u16, Arc<Channel>>,
}

impl Member {
    /// A sample of the file, on the channel of the recording.
    pub(super) fn numbered(&self, mut message: Message) -> Message {
        if let Some(channel) = self.numbers.get(&message.channel.id) {
            message.channel = channel.clone();
        }
        message
    }

    /// The numbers in the file of these channels of the recording.
    pub(super) fn own_numbers(&self, channels: &BTreeSet<u16>) -> BTreeSet<u16> {
        let wanted = self.numbers.iter().filter(|(_, channel)| channels.contains(&channel.id));
        wanted.map(|(number, _)| *number).collect()
    }

    /// A damage of the file, with its name.
    pub(super) fn damage(&self, damage: Damage) -> Damage {
        Damage { file: Some(self.file.path.clone()), ..damage }
    }
}

impl Recording {
    /// Opens a recording. Of one that was split the first file is enough: those that follow it by name (`run.mcap`, `run-2.mcap` …) and have
    /// its clock belong to it. Of a directory, as rosbag2 leaves it, all its files `*.mcap` do.
    ///
    /// A file that has no summary, or one that is damaged, is read once as a whole.
    ///
    /// # Errors
    /// [`ReadError`] if the file cannot be read or is no MCAP file; if a directory has none, or several recordings of ours.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        if path.is_dir() {
            return Self::of_folder(path);
        }
        let first = Single::open(path)?;
        let (mut files, mut unread) = (Vec::new(), Vec::new());
        if first.clock.is_some() {
            (files, unread) = following(path, &first);
        }
        files.insert(0, first);
        Self::of(files, unread)
    }

    /// Opens these files as one recording; no others are looked for.
    ///
    /// # Errors
    /// [`ReadError`] if one of them cannot be read, is no MCAP file, or is named twice.
    pub fn open_all(paths: &[PathBuf]) -> Result<Self, ReadError> {
        let mut named = HashSet::new();
        for path in paths {
            if !named.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone())) {
                return Err(ReadError::new(path, "is named twice: each sample is read once"));
            }
        }
        let files = paths.iter().map(|path| Single::open(path)).collect::<Result<_, _>>()?;
        Self::of(files, Vec::new())
    }

    fn of_folder(path: &Path) -> Result<Self, ReadError> {
        let entries = fs::read_dir(path).map_err(|error| ReadError::new(path, format!("cannot be read: {error}")))?;
        let is_recording = |path: &PathBuf| path.extension().is_some_and(|end| end == "mcap") && path.is_file();
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_recording).collect();
        paths.sort();
        if paths.is_empty() {
            return Err(ReadError::new(path, "is a directory without a file *.mcap"));
        }
        let files = paths.iter().map(|path| Single::open(path)).collect::<Result<Vec<_>, _>>()?;
        let clocks: HashSet<_> = files.iter().filter_map(|file| file.clock.as_ref()).collect();
        if clocks.len() > 1 {
            let problem = format!("has {} recordings: name the first file of one", clocks.len());
            return Err(ReadError::new(path, problem));
        }
        Self::of(files, Vec::new())
    }

    fn of(files: Vec<Single>, unread: Vec<ReadError>) -> Result<Self, ReadError> {
        let mut timed = Vec::with_capacity(files.len());
        let is_only = files.len() == 1;
        for file in files {
            // One chunk is read. A file without a sample comes last: its damages are told all the same.
            let first_ns = match is_only {
                true => 0,
                false => file.messages()?.find_map(Result::ok).map_or(u64::MAX, |message| message.log_ns),
            };
            timed.push((first_ns, file));
        }
        timed.sort_by_key(|(first_ns, _)| *first_ns);
        let mut numbering = Numbering::default();
        let mut members = Vec::with_capacity(timed.len());
        for (first_ns, file) in timed {
            let numbers = numbering.take(&file)?;
            members.push(Arc::new(Member { file, first_ns, numbers }));
        }
        Ok(Self { files: members, channels: numbering.channels, unread })
    }

    /// The file, or the first one.
    pub fn path(&self) -> &Path {
        self.files.first().map_or(Path::new(""), |member| member.file.path.as_path())
    }

    /// Its files, by the time of their first samples.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|member| member.file.path.as_path())
    }

    /// The profile that it states: `ros2` for rosbag2.
    pub fn profile(&self) -> &str {
        self.files.first().map_or("", |member| member.file.profile.as_str())
    }

    /// The files that were not ended in order: without an end, or with an error in the summary.
    pub fn unfinished(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().filter(|member| !member.file.finished).map(|member| member.file.path.as_path())
    }

    /// Files that belong to it by their names, and cannot be read.
    pub fn unread(&self) -> &[ReadError] {
        &self.unread
    }

    /// Its channels, by number.
    pub fn channels(&self) -> impl Iterator<Item = &Arc<Channel>> {
        self.channels.values()
    }

    /// An attached file, of the last file that has it: contract, plan or settings.
    pub fn attachment(&self, name: &str) -> Option<&[u8]> {
        self.files.iter().rev().find_map(|member| member.file.attachments.get(name)).map(Vec::as_slice)
    }

    /// Its samples, from the first one, in the order of their receipt.
    ///
    /// # Errors
    /// [`ReadError`] if the first file cannot be opened any more. A later one that cannot is a damage.
    pub fn messages(&self) -> Result<Messages, ReadError> {
        if let Some(first) = self.files.first() {
            first.file.messages()?;
        }
        Ok(Messages::of(self.files.iter().cloned()))
    }
}

/// The further files of a recording that was split, as far as their numbers follow each other; and those of them that cannot be read.
fn following(path: &Path, first: &Single) -> (Vec<Single>, Vec<ReadError>) {
    let (series, mut files, mut unread) = (Series::new(path), Vec::new(), Vec::new());
    for number in 2.. {
        let path = series.name(number);
        if !path.exists() {
            break;
        }
        match Single::open(&path) {
            Ok(file) if file.clock == first.clock => files.push(file),
            // The record of the clock is damaged: all that is known is the name.
            Ok(file) if file.clock.is_none() => {
                unread
                    .push(ReadError::new(&path, "has no clock of its recorder: name it, if it belongs to the others"));
            }
            // Another recording, which has taken the name.
            Ok(_) => break,
            Err(error) => unread.push(error),
        }
    }
    (files, unread)
}

/// The channels of all files. Equal ones of two files are one; one file's own stay apart.
#[derive(Default)]
struct Numbering {
    channels: BTreeMap<u16, Arc<Channel>>,
    /// The same by all that they say but the number.
    known: HashMap<Channel, Arc<Channel>>,
    /// No number below is free.
    next: u16,
}

impl Numbering {
    fn take(&mut self, file: &Single) -> Result<BTreeMap<u16, Arc<Channel>>, ReadError> {
        let (mut numbers, mut fresh) = (BTreeMap::new(), Vec::new());
        for (number, channel) in &file.directory.channels {
            let text = Channel { id: 0, ..(**channel).clone() };
            let numbered = match self.known.get(&text) {
                Some(known) => known.clone(),
                None => {
                    let numbered = self.add(channel).ok_or_else(|| {
                        ReadError::new(&file.path, "and the files before it have more than 65,536 channels")
                    })?;
                    fresh.push((text, numbered.clone()));
                    numbered
                }
            };
            numbers.insert(*number, numbered);
        }
        self.known.extend(fresh);
        Ok(numbers)
    }

    /// Keeps the channel's number if it is free.
    fn add(&mut self, channel: &Arc<Channel>) -> Option<Arc<Channel>> {
        let numbered = match self.channels.contains_key(&channel.id) {
            false => channel.clone(),
            true => {
                while self.channels.contains_key(&self.next) {
                    self.next = self.next.checked_add(1)?;
                }
                Arc::new(Channel { id: self.next, ..(**channel).clone() })
            }
        };
        self.channels.insert(numbered.id, numbered.clone());
        Some(numbered)
    }
}
