//! An answer on its way over a stream: documents and frames, sent as far as the stream takes them.

use super::answering::{Answering, Item};
use crate::channel::queue::{Entry, Label};
use crate::handshake;
use crate::pull::Answer;
use crate::wire::{HEADER, Header, Kind};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes up to which frames of small samples are sent together.
const TOGETHER: usize = 64 << 10;
/// Size from which samples are sent without a copy.
const APART: usize = 4 << 10;
/// Sends before other answers have their turn.
const TURN: usize = 4;

/// An answer and its stream.
pub(super) struct AnswerStream {
    pub stream: OwnedFd,
    answering: Answering,
    flow: u32,
    sequence: u32,
    /// Documents and frames of small samples; then one large sample.
    head: Vec<u8>,
    body: Option<Entry>,
    sent: usize,
    over: bool,
}

/// The outcome of a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// All has left.
    Over,
    /// More bytes remain; the stream may take them.
    More,
    /// The stream is full; `true`: some bytes were sent in this turn.
    Full(bool),
}

impl AnswerStream {
    pub(super) fn new(stream: OwnedFd, answering: Answering) -> Self {
        let head = Vec::with_capacity(TOGETHER + APART + HEADER);
        Self { stream, answering, flow: 0, sequence: 0, head, body: None, sent: 0, over: false }
    }

    /// Sends the bytes that the stream takes at once, at most a turn's worth.
    pub(super) fn turn(&mut self, now: u64) -> io::Result<Turn> {
        let mut moved = false;
        for _ in 0..TURN {
            if self.is_sent() {
                self.fill(now)?;
                if self.is_sent() {
                    return Ok(Turn::Over);
                }
            }
            let body = self.body.as_ref().map_or(&[][..], |entry| entry.buffer.payload());
            let head = self.head.get(self.sent..).unwrap_or_default();
            let rest = body.get(self.sent.saturating_sub(self.head.len())..).unwrap_or_default();
            let parts = [IoSlice::new(head), IoSlice::new(rest)];
            match linux::socket::send_parts(self.stream.as_fd(), &parts) {
                Ok(taken) => (self.sent, moved) = (self.sent + taken, true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Full(moved)),
                Err(error) => return Err(error),
            }
        }
        Ok(Turn::More)
    }

    fn is_sent(&self) -> bool {
        self.sent >= self.head.len() + self.body.as_ref().map_or(0, |entry| entry.buffer.payload().len())
    }

    /// Prepares the next piece to send.
    fn fill(&mut self, now: u64) -> io::Result<()> {
        self.head.clear();
        (self.body, self.sent) = (None, 0);
        while !self.over && self.body.is_none() && self.head.len() < TOGETHER {
            match self.answering.next(now) {
                Item::Say(answer) => self.say(&answer)?,
                Item::Sample(entry) => self.add(entry),
                Item::End => self.over = true,
            }
        }
        Ok(())
    }

    fn say(&mut self, answer: &Answer) -> io::Result<()> {
        match answer {
            Answer::Run(run) => (self.flow, self.sequence) = (run.flow, 0),
            Answer::Ended(_) => self.emit(Kind::End, 0, Label::default()),
            Answer::Over | Answer::Refused(_) => {}
        }
        self.head.extend(handshake::pack(answer).map_err(io::Error::other)?);
        Ok(())
    }

    fn add(&mut self, entry: Entry) {
        let payload = entry.buffer.payload();
        self.emit(Kind::Message, payload.len(), entry.label());
        self.sequence = self.sequence.wrapping_add(1);
        if payload.len() < APART {
            self.head.extend_from_slice(payload);
        } else {
            self.body = Some(entry);
        }
    }

    fn emit(&mut self, kind: Kind, length: usize, label: Label) {
        let mut head = [0; HEADER];
        let (flow, sequence) = (self.flow, self.sequence);
        let (length, flags) = (length as u32, label.flags());
        let Label { seq: sample, stamp: stamp_ns, .. } = label;
        Header { length, kind, flags, flow, sequence, sample, stamp_ns }.emit(&mut head);
        self.head.extend_from_slice(&head);
    }
}
