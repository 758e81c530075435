//! A thread that reads the samples of a replay before they are due.

use super::ordered::{Ordered, Timed, WINDOW_NS, weight};
use crate::read::{Damage, ReadError, Recording};
use linux::thread::Settings;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The part of a recording that is replayed.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The channels.
    pub channels: BTreeSet<u16>,
    /// From so many nanoseconds after the first sample.
    pub from_ns: u64,
    /// As far as so many nanoseconds after the first sample; `None`: to the end.
    pub until_ns: Option<u64>,
    /// Again and again.
    pub repeat: bool,
}

/// The samples of a replay, read ahead.
pub struct Ahead {
    parts: Receiver<Result<Timed, Damage>>,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    bytes: AtomicU64,
    closed: AtomicBool,
}

/// A replay that cannot start.
#[derive(Debug)]
pub enum AheadError {
    /// The file cannot be read.
    Read(ReadError),
    /// There is no thread.
    Thread(std::io::Error),
}

impl fmt::Display for AheadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "no thread to read ahead: {error}"),
        }
    }
}

impl std::error::Error for AheadError {}

impl Ahead {
    /// Begins to read.
    ///
    /// # Errors
    /// [`AheadError`].
    pub fn start(recording: &Recording, part: Part) -> Result<Self, AheadError> {
        let (tell, parts) = channel();
        let shared = Arc::new(Shared::default());
        let mut reader = Reader { recording: recording.clone(), part, tell, shared: shared.clone() };
        reader.recording.messages().map_err(AheadError::Read)?;
        let settings = Settings { stack: STACK, ..Settings::named("read-ahead") };
        let thread = linux::thread::spawn(settings, move || reader.run()).map_err(AheadError::Thread)?;
        Ok(Self { parts, shared, thread })
    }
}

/// Samples and damages of the file in their places. Waits for the next one.
impl Iterator for Ahead {
    type Item = Result<Timed, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.parts.recv().ok()?;
        if let Ok(timed) = &item {
            self.shared.bytes.fetch_sub(weight(&timed.message), Ordering::Relaxed);
            self.thread.thread().unpark();
        }
        Some(item)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }
}

struct Reader {
    recording: Recording,
    part: Part,
    tell: Sender<Result<Timed, Damage>>,
    shared: Arc<Shared>,
}

impl Reader {
    fn run(&mut self) {
        let mut lap = Lap::default();
        // A file without a sample would be read for ever.
        while self.lap(&mut lap).is_some() && self.part.repeat && lap.samples > 0 {
            lap = lap.following();
        }
    }

    /// Reads the file once; `None` if nobody wants more.
    fn lap(&mut self, lap: &mut Lap) -> Option<()> {
        let messages = match self.recording.messages() {
            Ok(messages) => messages.only(self.part.channels.clone()),
            Err(error) => {
                // It could be opened before: it was removed, or a lap before this one was the last.
                let damage = Damage::new(0, error.to_string());
                return self.tell.send(Err(damage)).ok();
            }
        };
        let mut ordered = Ordered::new(messages, SORTED);
        while let Some(item) = ordered.next() {
            let timed = match item {
                Ok(timed) => timed,
                Err(damage) => {
                    // The first lap has told it.
                    if lap.offset_ns == 0 {
                        self.tell.send(Err(damage)).ok()?;
                    }
                    continue;
                }
            };
            let begin = *lap.begin_ns.get_or_insert(timed.time_ns);
            let from = begin.saturating_add(self.part.from_ns);
            if timed.time_ns < from {
                ordered.messages().skip_before(from.saturating_sub(WINDOW_NS));
                continue;
            }
            if self.part.until_ns.is_some_and(|until| timed.time_ns > begin.saturating_add(until)) {
                return Some(());
            }
            self.give(lap.place(timed))?;
        }
        Some(())
    }

    /// Gives a sample away, when there is room.
    fn give(&mut self, timed: Timed) -> Option<()> {
        while self.shared.bytes.load(Ordering::Relaxed) >= AHEAD {
            if self.shared.closed.load(Ordering::Acquire) {
                return None;
            }
            std::thread::park();
        }
        if self.shared.closed.load(Ordering::Acquire) {
            return None;
        }
        self.shared.bytes.fetch_add(weight(&timed.message), Ordering::Relaxed);
        self.tell.send(Ok(timed)).ok()
    }
}

/// A time through the file.
#[derive(Default)]
struct Lap {
    /// The time of the file's first sample.
    begin_ns: Option<u64>,
    /// The first and the last time that was given away, without the offset.
    given_ns: Option<(u64, u64)>,
    samples: u64,
    /// What the times of this lap are later by.
    offset_ns: u64,
}

impl Lap {
    fn place(&mut self, mut timed: Timed) -> Timed {
        let (first, last) = self.given_ns.unwrap_or((timed.time_ns, timed.time_ns));
        self.given_ns = Some((first, last.max(timed.time_ns)));
        self.samples += 1;
        timed.time_ns = timed.time_ns.saturating_add(self.offset_ns);
        timed
    }

    /// The lap behind this one: its first sample follows the last one after the mean interval.
    fn following(&self) -> Self {
        let lasted = self.given_ns.map_or(0, |(first, last)| last - first);
        let interval = lasted.checked_div(self.samples.saturating_sub(1)).unwrap_or(ALONE_NS).max(1);
        Self { offset_ns: self.offset_ns.saturating_add(lasted).saturating_add(interval), ..Self::default() }
    }
}

/// Bytes of samples that are put in order.
const SORTED: u64 = 64 << 20;
/// Bytes of samples that are ready. The last one may go beyond.
const AHEAD: u64 = 64 << 20;
/// Stack of the thread: Zstandard's contexts are on the heap.
const STACK: usize = 512 << 10;
/// The interval of a single sample that is repeated.
const ALONE_NS: u64 = 1_000_000_000;
