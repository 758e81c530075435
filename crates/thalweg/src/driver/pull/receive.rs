//! An answer as it arrives over a stream: documents and frames, read on the asking thread.

use crate::channel::bucket::{Bucket, Limit};
use crate::channel::buffer::{Buffer, Pool};
use crate::handshake;
use crate::pull::Answer;
use crate::wire::{HEADER, Header, Kind};
use socket2::Socket;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::time::Duration;

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

/// Most bytes of one read under a limit.
const PIECE: usize = 16 << 10;

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
