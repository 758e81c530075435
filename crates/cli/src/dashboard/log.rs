//! What has changed, when, and by whom as far as that is known: the last entries.

use lab::statistics::rounded;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Instant;

/// Entries that are kept.
const MOST: usize = 200;

/// The subject of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// A channel opened or closed.
    Channel,
    /// The promise of a channel is kept or not.
    Promise,
    /// A priority was set.
    Setting,
    /// A session was admitted, changed, or ended.
    #[cfg(feature = "sessions")]
    Admission,
}

/// An entry.
#[derive(Clone, Debug, Serialize)]
struct Entry {
    /// Seconds since the dashboard's start.
    at_s: f64,
    /// By the wall clock of who noted it, milliseconds since 1970.
    at_unix_ms: u64,
    kind: Kind,
    text: String,
    /// Who did it; empty: not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    by: String,
}

/// The log.
#[derive(Debug)]
pub(super) struct Log {
    began: Instant,
    entries: VecDeque<Entry>,
}

impl Log {
    /// A log that begins now.
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), entries: VecDeque::new() }
    }

    /// Seconds since its begin.
    pub(super) fn at_s(&self) -> f64 {
        rounded(self.began.elapsed().as_secs_f64(), 1)
    }

    /// Adds what happened now.
    pub(super) fn note(&mut self, kind: Kind, text: String, by: &str) {
        self.note_at(linux::clock::wall_ns() / 1_000_000, kind, text, by);
    }

    /// Adds what happened at a time.
    pub(super) fn note_at(&mut self, at_unix_ms: u64, kind: Kind, text: String, by: &str) {
        if self.entries.len() == MOST {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry { at_s: self.at_s(), at_unix_ms, kind, text, by: by.to_owned() });
    }

    /// The entries, oldest first.
    pub(super) fn entries(&self) -> impl Serialize {
        &self.entries
    }
}
