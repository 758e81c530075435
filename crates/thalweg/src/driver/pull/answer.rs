//! An answer: its documents and samples, its way over a stream, sent as far as the stream takes it, and its arrival at the asking thread.
//!
//! [`Answering`] is pure: time is an argument.

use crate::channel::bucket::{Bucket, Limit};
use crate::channel::buffer::{Buffer, Pool};
use crate::channel::history::{Query, Reading};
use crate::channel::queue::{Entry, Label};
use crate::control::matching::Subject;
use crate::handshake::{self, Refused};
use crate::port::Histories;
use crate::pull::{Answer, Ended, Identity, Question};
use crate::wire::{HEADER, Header, Kind};
use socket2::Socket;
use std::collections::VecDeque;
use std::io::{self, BufReader, IoSlice, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

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

/// One item of an arriving answer.
#[derive(Debug)]
pub(super) enum Arrived {
    /// A document.
    Said(Answer),
    /// A sample: its frame's header and its bytes.
    Sample(Header, Arc<Buffer>),
}

/// Reads an answer to its end or its first error.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn read_answer(bytes: &[u8], max_message: usize) {
    let mut reader = AnswerReader::new(bytes, max_message);
    while let Ok(arrived) = reader.next() {
        if let Arrived::Sample(header, buffer) = arrived {
            assert!(buffer.payload().len() == header.length as usize && buffer.payload().len() <= max_message);
        }
    }
}

/// A stream that is read no faster than a limit says. Unread bytes wait at the sender, except for those in the sockets' buffers.
pub(super) struct Paced {
    stream: Socket,
    bucket: Option<Bucket>,
}

impl Paced {
    pub(super) fn new(stream: Socket, limit: Option<Limit>) -> Self {
        Self { stream, bucket: limit.map(Bucket::new) }
    }
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Read for Paced {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(bucket) = &mut self.bucket else { return self.stream.read(into) };
        let piece = into.len().min(PIECE);
        let count = self.stream.read(&mut into[..piece])?;
        while let Err(wait) = bucket.take(linux::clock::monotonic_ns(), count) {
            std::thread::sleep(Duration::from_nanos(wait));
        }
        Ok(count)
    }
}

/// Reader of an answer's stream.
pub(super) struct AnswerReader<R = Paced> {
    stream: BufReader<R>,
    max_message: usize,
    /// The flow of the present run, and the sequence number of its next frame.
    run: Option<(u32, u32)>,
    pool: Pool,
}

impl<R: Read> AnswerReader<R> {
    pub(super) fn new(stream: R, max_message: usize) -> Self {
        Self { stream: BufReader::with_capacity(64 << 10, stream), max_message, run: None, pool: Pool::default() }
    }

    /// The next document or sample. Each header is checked before memory is taken for its content.
    pub(super) fn next(&mut self) -> io::Result<Arrived> {
        if let Some(run) = self.run {
            if let Some(sample) = self.frame(run)? {
                return Ok(sample);
            }
            self.run = None;
        }
        let answer = self.document()?;
        if let Answer::Run(run) = &answer {
            self.run = Some((run.flow, 0));
        }
        Ok(Arrived::Said(answer))
    }

    fn document(&mut self) -> io::Result<Answer> {
        let mut bytes = vec![0; 4];
        self.stream.read_exact(&mut bytes)?;
        let length = bytes.first_chunk().map_or(0, |four| u32::from_le_bytes(*four) as usize);
        bytes.resize(4 + length.min(handshake::LARGEST), 0);
        self.stream.read_exact(&mut bytes[4..])?;
        let read = handshake::unpack(&bytes).map_err(io::Error::other)?;
        read.map(|(answer, _)| answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The next sample of the run; `None` at its end.
    fn frame(&mut self, (flow, sequence): (u32, u32)) -> io::Result<Option<Arrived>> {
        let mut head = [0; HEADER];
        self.stream.read_exact(&mut head)?;
        let header = Header::parse(&head)?;
        header.check(self.max_message, Some(flow))?;
        match header.kind {
            Kind::Message if header.sequence == sequence => {}
            Kind::End if header.length == 0 => return Ok(None),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame that does not belong to the answer")),
        }
        self.run = Some((flow, sequence.wrapping_add(1)));
        let buffer = self.pool.exclusive();
        if let Some(free) = Arc::get_mut(buffer) {
            self.stream.read_exact(free.sized(header.length as usize))?;
        }
        Ok(Some(Arrived::Sample(header, buffer.clone())))
    }
}

/// Samples and bytes of one batch. It bounds the references that an answer holds, and the time for which the port's lock is held.
const BATCH: (usize, usize) = (32, 256 << 10);
/// Bytes up to which frames of small samples are sent together.
const TOGETHER: usize = 64 << 10;
/// Size from which samples are sent without a copy.
const APART: usize = 4 << 10;
/// Sends before other answers have their turn.
const TURN: usize = 4;
/// Most bytes of one read under a limit.
const PIECE: usize = 16 << 10;
