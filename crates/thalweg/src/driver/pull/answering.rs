//! The content of one answer: the sequence of its documents and samples. No I/O; time is an argument.

use crate::channel::history::{Query, Reading};
use crate::channel::queue::Entry;
use crate::control::matching::Subject;
use crate::handshake::Refused;
use crate::port::Histories;
use crate::pull::{Answer, Ended, Identity, Question};
use std::collections::VecDeque;
use std::sync::Arc;

/// Samples and bytes of one batch. It bounds the references that an answer holds, and the time for which the port's lock is held.
const BATCH: (usize, usize) = (32, 256 << 10);

/// The next item of an answer.
pub(crate) enum Item {
    /// A document.
    Say(Answer),
    /// A sample of the run that began last.
    Sample(Entry),
    /// The end: no further item follows.
    End,
}

/// An answer.
pub(crate) struct Answering {
    histories: Arc<Histories>,
    question: Question,
    left: VecDeque<Identity>,
    flow: u32,
    run: Option<RunOf>,
    over: bool,
}

struct RunOf {
    publisher: Identity,
    reading: Reading,
    batch: VecDeque<Entry>,
    too_large: u64,
}

impl Answering {
    /// Begins an answer. The frames of its first run carry `flow`, those of the next ones the numbers after it.
    ///
    /// # Errors
    /// The port keeps only samples of a type that the asking peer cannot read.
    pub(crate) fn new(histories: Arc<Histories>, question: Question, flow: u32) -> Result<Self, Refused> {
        let (mut found, unreadable) = histories.sources(&question);
        if let Query::Range { incarnation: Some(asked), .. } = question.query
            && found.iter().any(|source| source.incarnation == asked)
        {
            found.retain(|source| source.incarnation == asked); // other incarnations have no samples of this range
        }
        if let Some(offered) = unreadable.filter(|_| found.is_empty()) {
            let requested = question.message.name;
            let remedy = format!("pull with type {}, or untyped", offered.name);
            return Err(Refused {
                policy: Subject::Type.into(),
                offered: offered.name,
                requested,
                remedy,
                others: Vec::new(),
            });
        }
        Ok(Self { histories, question, left: found.into(), flow, run: None, over: false })
    }

    /// The next item.
    pub(crate) fn next(&mut self, now: u64) -> Item {
        if let Some(run) = &mut self.run {
            if let Some(sample) = run.next(&self.histories, self.question.max_message as usize) {
                return Item::Sample(sample);
            }
            let ended = Ended { absent: std::mem::take(&mut run.reading.absent), too_large: run.too_large };
            self.run = None;
            return Item::Say(Answer::Ended(ended));
        }
        while let Some(publisher) = self.left.pop_front() {
            let begun = self.histories.ask(publisher, &self.question.query, now, self.flow);
            if let Some((run, reading, batch)) = begun {
                self.flow = self.flow.wrapping_add(1);
                self.run = Some(RunOf { publisher, reading, batch: batch.into(), too_large: 0 });
                return Item::Say(Answer::Run(run));
            }
        }
        if std::mem::replace(&mut self.over, true) { Item::End } else { Item::Say(Answer::Over) }
    }
}

impl RunOf {
    fn next(&mut self, histories: &Histories, largest: usize) -> Option<Entry> {
        loop {
            if let Some(entry) = self.batch.pop_front() {
                if entry.buffer.payload().len() <= largest {
                    return Some(entry);
                }
                self.too_large += 1;
                continue;
            }
            if self.reading.is_over() {
                return None;
            }
            let mut batch = Vec::with_capacity(BATCH.0);
            if !histories.read(self.publisher, &mut self.reading, BATCH, &mut batch) {
                return None; // another publisher took its place
            }
            self.batch = batch.into();
        }
    }
}
