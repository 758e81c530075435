//! Samples of a node's topics into files. Publishers never wait for it: a sample is copied where it arrives, or dropped and counted.
//!
//! | module | contents |
//! |---|---|
//! | `topics` | a subscriber for each topic that is wanted, and the publishers behind it |
//! | `arrivals` | the numbers of one publisher's samples: gaps, and what the recorder dropped |
//! | `intake` | the samples between the threads that receive and the one that writes, in bounded memory |
//! | `priority` | how far these threads give way to others |
//! | `storage` | the thread that writes |
//! | `tally` | the samples of one recorded channel: delays of each second, losses, totals |
//! | `settings` | the settings of the recorded publishers' channels |

#![allow(clippy::disallowed_methods)] // a recorder stamps and waits

mod arrivals;
mod intake;
mod priority;
mod settings;
mod storage;
mod tally;
#[cfg(test)]
mod tests;
mod topics;

pub use priority::Priority;
pub use tally::{Lost, Recorded};
pub use topics::request;

use crate::file::{Attachment, ClockAnchor, Limits, Output, Series};
use crate::{Error, Result};
use intake::Intake;
use linux::{clock, thread};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use storage::{SECOND_NS, Storage};
use thalweg::Node;
use topics::{Topics, Wanted};

/// Settings of a recording.
#[derive(Clone, Debug)]
pub struct Options {
    /// Topics and patterns of topics.
    pub topics: Vec<String>,
    /// Those of them that are not recorded, by the same patterns.
    pub exclude: Vec<String>,
    /// Bytes of samples that may wait for the disk.
    pub memory: u64,
    /// Priority of the threads through which they go.
    pub priority: Priority,
    /// Compression, and the size or age of a file.
    pub limits: Limits,
    /// What is attached to each file: contract and plan.
    pub attachments: Vec<Attachment>,
}

/// A recording.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The files.
    pub files: Vec<PathBuf>,
    /// The recorded channels, by topic and publisher.
    pub channels: Vec<Recorded>,
    /// The error that ended it.
    pub failure: Option<String>,
}

/// Records until it is finished, or the disk refuses.
pub struct Recorder {
    node: Node,
    topics: Arc<Topics>,
    intake: Arc<Intake>,
    storage: JoinHandle<()>,
    summary: Receiver<Summary>,
    seen: u64,
    /// When settings and clocks were asked for.
    asked_ns: u64,
    /// When losses were counted.
    counted_ns: u64,
}

/// Settings and clocks of other nodes are asked for this often, and after this time if there are new publishers.
const ASK_NS: [u64; 2] = [10_000_000_000, 500_000_000];
/// At the end, samples that are on their way are waited for until none has come for so long, and at most so long.
const SETTLE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// The types of others are walked by recursion.
const STACK: usize = 1 << 20;

impl Recorder {
    /// Creates the first file, and subscribes to the topics that exist.
    ///
    /// # Errors
    /// [`Error::Disk`] or [`Error::Usage`] if the file cannot be created.
    pub fn start(node: Node, file: &Path, options: Options) -> Result<Self> {
        let Options { topics, exclude, memory, priority, limits, attachments } = options;
        let (clock, monotonic_ns, wall_ns) = (clock::clock_id(), clock::monotonic_ns(), clock::wall_ns());
        let anchor = ClockAnchor { clock, monotonic_ns, wall_ns };
        let output = Output::create(Series::new(file), limits, anchor, attachments)?;
        let intake = Arc::new(Intake::new(memory));
        let wanted = Wanted { topics, exclude };
        let topics = Arc::new(Topics::new(node.clone(), wanted, intake.clone(), priority.receiving()));
        let storage = Storage::new(output, topics.clone(), intake.clone());
        let (tell, summary) = sync_channel(1);
        let write = move || {
            priority.begin_writing();
            drop(tell.send(storage.run()));
        };
        let scheduling = priority.writing();
        let settings =
            thread::Settings { stack: STACK, scheduling, best_effort: true, ..thread::Settings::named("record-disk") };
        let storage = thread::spawn(settings, write).map_err(|source| Error::disk(file, source))?;
        Ok(Self { node, topics, intake, storage, summary, seen: 0, asked_ns: 0, counted_ns: 0 })
    }

    /// Looks for new topics, publishers and losses; waits for news at most `timeout`. What a person should know, each once.
    pub fn turn(&mut self, timeout: Duration) -> Vec<String> {
        let seen = self.node.wait_for_changes(self.seen, timeout);
        if std::mem::replace(&mut self.seen, seen) != seen || self.asked_ns == 0 {
            self.topics.look();
        }
        let now = clock::monotonic_ns();
        if now.saturating_sub(self.counted_ns) >= SECOND_NS {
            self.counted_ns = now;
            self.topics.tell_losses();
        }
        if now.saturating_sub(self.asked_ns) >= ASK_NS[usize::from(self.topics.has_new_sources())] {
            self.asked_ns = now;
            self.topics.ask();
        }
        self.topics.take_notices()
    }

    /// `true` if the disk has refused: nothing is recorded any more.
    pub fn has_ended(&self) -> bool {
        self.storage.is_finished()
    }

    /// Ends the recording: what was published until now is received and written.
    pub fn finish(self) -> Summary {
        if !self.has_ended() {
            let [quiet, longest] = SETTLE;
            self.intake.settle(quiet, longest);
        }
        self.intake.close();
        let _ = self.storage.join(); // if it has panicked, it has sent no summary
        let panicked =
            || Summary { failure: Some("the thread that writes has panicked".to_owned()), ..Summary::default() };
        self.summary.try_recv().unwrap_or_else(|_| panicked())
    }
}
