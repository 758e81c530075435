//! The samples of all files of a recording, in the order of their receipt. A file is open from its first sample to its last one, so that of
//! files that follow each other one is open, or two.

use super::messages::FileMessages;
use super::recording::Member;
use super::{Damage, Message};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// The samples of a recording, and its damages in their places, each with its file. What can be read behind a damage follows. In memory is
/// one chunk of each open file.
pub struct Messages {
    /// Files that are not open yet, by the time of their first sample.
    closed: VecDeque<Arc<Member>>,
    open: Vec<Opened>,
    only: Option<BTreeSet<u16>>,
    from_ns: u64,
}

/// A file that is read.
struct Opened {
    member: Arc<Member>,
    messages: FileMessages,
    /// Its next sample; `None` before that is read.
    next: Option<Message>,
    ended: bool,
}

impl Messages {
    /// The samples of these files, in the order of their first samples.
    pub(super) fn of(files: impl Iterator<Item = Arc<Member>>) -> Self {
        Self { closed: files.collect(), open: Vec::new(), only: None, from_ns: 0 }
    }

    /// Leaves out the samples of all channels but these. To be called before the first sample is taken.
    #[must_use]
    pub fn only(mut self, channels: BTreeSet<u16>) -> Self {
        self.only = Some(channels);
        self
    }

    /// Skips, from now on, chunks whose samples were all received before this time.
    pub fn skip_before(&mut self, log_ns: u64) {
        self.from_ns = log_ns;
        self.open.iter_mut().for_each(|opened| opened.messages.skip_before(log_ns));
    }

    fn open(&self, member: Arc<Member>) -> Result<Opened, Damage> {
        let unreadable = |error: super::ReadError| member.damage(Damage::new(0, error.problem));
        let mut messages = member.file.messages().map_err(unreadable)?;
        if let Some(only) = &self.only {
            messages = messages.only(member.own_numbers(only));
        }
        if self.from_ns > 0 {
            messages.skip_before(self.from_ns);
        }
        Ok(Opened { member, messages, next: None, ended: false })
    }

    /// The open file with the earliest sample, and the time of that.
    fn earliest(&self) -> Option<(usize, u64)> {
        let times = self.open.iter().enumerate().filter_map(|(at, opened)| Some((at, opened.next.as_ref()?.log_ns)));
        times.min_by_key(|(_, log_ns)| *log_ns)
    }
}

impl Opened {
    /// Reads the next sample, unless it is there.
    fn advance(&mut self) -> Result<(), Damage> {
        if self.next.is_none() && !self.ended {
            match self.messages.next() {
                Some(Ok(message)) => self.next = Some(self.member.numbered(message)),
                Some(Err(damage)) => return Err(self.member.damage(damage)),
                None => self.ended = true,
            }
        }
        Ok(())
    }
}

impl Iterator for Messages {
    type Item = Result<Message, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            for opened in &mut self.open {
                if let Err(damage) = opened.advance() {
                    return Some(Err(damage));
                }
            }
            self.open.retain(|opened| !opened.ended);
            let earliest = self.earliest();
            let is_due = |member: &Arc<Member>| earliest.is_none_or(|(_, log_ns)| member.first_ns <= log_ns);
            if self.closed.front().is_some_and(is_due) {
                let opened = self.closed.pop_front().map(|member| self.open(member));
                match opened {
                    Some(Ok(opened)) => self.open.push(opened),
                    Some(Err(damage)) => return Some(Err(damage)),
                    None => {}
                }
                continue;
            }
            let (at, _) = earliest?;
            return self.open[at].next.take().map(Ok);
        }
    }
}
