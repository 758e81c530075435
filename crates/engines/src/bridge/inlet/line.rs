//! The publisher here that stands for one of the engine, or for a topic.

use super::FIRST_CHANNEL;
use super::thin::Thin;
use crate::engine::Error;
use std::time::Instant;
use thalweg::codec::Untyped;
use thalweg::{Change, Publisher};

/// Messages up to this length are remembered, for a sample that only says that its instance has ended.
const REMEMBERED: usize = 1 << 16;

pub(super) struct Line {
    pub(super) publisher: Publisher<Untyped>,
    /// Subscribers to any type have its samples from another one.
    pub(super) beside: bool,
    since: Instant,
    /// The subscribers that matched when it opened. Samples go out at once as soon as all of them have had a channel.
    expected: usize,
    ready: bool,
    /// A sample has gone by it.
    pub(super) used: bool,
    thin: Thin,
    last: Vec<u8>,
}

impl Line {
    /// Opened now. A topic of a pattern opens with its first sample.
    pub(super) fn new(publisher: Publisher<Untyped>, beside: bool, thin: Thin, expected: usize, now: Instant) -> Self {
        Self { publisher, beside, since: now, expected, ready: false, used: false, thin, last: Vec::new() }
    }

    pub(super) fn is_ready(&mut self, now: Instant) -> bool {
        let all = || self.publisher.connected() >= self.expected.max(1);
        self.ready = self.ready || all() || now.saturating_duration_since(self.since) >= FIRST_CHANNEL;
        self.ready
    }

    pub(super) fn publish(
        &mut self,
        change: Change,
        message: &[u8],
        instances: bool,
        now: Instant,
    ) -> Result<(), Error> {
        self.used = true;
        if change == Change::Written && !self.thin.passes(now) {
            return Ok(());
        }
        let published = match change {
            Change::Written => self.publisher.publish(message)?,
            Change::Disposed if message.is_empty() => self.publisher.dispose(&self.last)?,
            Change::Disposed => self.publisher.dispose(message)?,
            Change::Unregistered => self.publisher.unregister(message)?,
        };
        if instances && change == Change::Written {
            self.last.clear();
            if message.len() <= REMEMBERED {
                self.last.extend_from_slice(message);
            }
        }
        match published.refused {
            0 => Ok(()),
            refused => Err(Error::Engine(format!(
                "{refused} subscribers of {} had no room for a sample",
                self.publisher.topic()
            ))),
        }
    }
}
