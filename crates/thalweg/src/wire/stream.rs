//! Cutting a byte stream into frames, in the buffer the bytes were read into.

use super::{HEADER, Header, Kind, WireError};
use std::ops::Range;

/// Size of a parser's buffer from its first bytes on, to which it also shrinks back.
pub const INITIAL: usize = 64 * 1024;
/// After this many frames in a row that would fit the initial buffer, a grown one is freed: rare enough that a port
/// with mixed sizes keeps its buffer, soon enough that one big message does not hold memory for hours.
const CALM: u32 = 1000;
/// Less room than this behind a partial frame and it is moved to the front, so that reads stay large.
const LEAST_ROOM: usize = INITIAL / 2;

/// A complete frame inside a [`StreamParser`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRef {
    /// Its header, already checked.
    pub header: Header,
    /// The place of its payload; valid until the next call of [`StreamParser::space`]. See [`StreamParser::payload`].
    pub range: Range<usize>,
}

/// An incremental parser over one contiguous buffer. Read into [`space`](Self::space), report the amount with
/// [`filled`](Self::filled), then call [`next`](Self::next) until it returns `None`. Pure: no clock, no I/O.
///
/// A frame that begins at offset 0 is never copied, except its first part when the buffer has to grow for it. After the
/// first message of a size nothing is allocated.
#[derive(Debug)]
pub struct StreamParser {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    room: usize, // how much of the buffer is read into: the largest frame lately, so that equal frames begin at 0
    max_message: usize,
    flow: Option<u32>,
    calm: u32,
}

impl StreamParser {
    /// A parser for messages of at most `max_message` bytes, of the agreed `flow` if it is known already.
    pub fn new(max_message: usize, flow: Option<u32>) -> Self {
        // The buffer is made with the first bytes: of a thousand channels of a bridge most are silent, and zeroed memory that was in use
        // before is resident.
        Self { buffer: Vec::new(), start: 0, end: 0, room: INITIAL, max_message, flow, calm: 0 }
    }

    /// Sets the flow id that all further frames must have.
    #[cfg(any(test, feature = "testing"))]
    pub fn expect_flow(&mut self, flow: u32) {
        self.flow = Some(flow);
    }

    /// The place for the next bytes. Never empty once [`next`](Self::next) returned `None`; earlier ranges end here.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.shrink();
            if self.buffer.is_empty() {
                self.buffer = vec![0; INITIAL];
            }
        } else {
            self.make_room(self.frame_bytes());
        }
        &mut self.buffer[self.end..self.room]
    }

    /// Says that `n` bytes were read into [`space`](Self::space).
    pub fn filled(&mut self, n: usize) {
        debug_assert!(n <= self.room - self.end, "more bytes than there was space");
        self.end = (self.end + n).min(self.room);
    }

    /// The next complete frame, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`WireError`], and the same again on every later call: after a wrong frame a byte stream has no more boundaries.
    #[allow(clippy::should_implement_trait)] // it would have to borrow the buffer
    pub fn next(&mut self) -> Result<Option<FrameRef>, WireError> {
        let held = &self.buffer[self.start..self.end];
        if held.len() < HEADER {
            return Ok(None);
        }
        let header = Header::parse(held)?;
        header.check(self.max_message, self.flow)?;
        if header.kind == Kind::Batch {
            return Err(WireError::Kind(header.kind as u8));
        }
        let frame = HEADER + header.length as usize;
        if held.len() < frame {
            return Ok(None);
        }
        let range = self.start + HEADER..self.start + frame;
        self.start += frame;
        self.calm = if frame > INITIAL { 0 } else { self.calm.saturating_add(1) };
        Ok(Some(FrameRef { header, range }))
    }

    /// The bytes of a frame's payload.
    pub fn payload(&self, range: Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    /// Bytes held of a frame that isn't complete. More than 0 when the stream ends: it was cut off.
    pub fn partial(&self) -> usize {
        self.end - self.start
    }

    /// Memory that the buffer takes now; none before the first bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Memory that [`space`](Self::space) would make it take: more than now for the rest of a large message.
    pub fn wanted(&self) -> usize {
        match self.start == self.end {
            true => self.capacity(),
            false => self.capacity().max(self.size_for(self.frame_bytes())),
        }
    }

    /// The length of the partial frame, as far as it is known. A malformed header asks for nothing: `next` refuses it.
    fn frame_bytes(&self) -> usize {
        match Header::parse(&self.buffer[self.start..self.end]) {
            Ok(h) if h.check(self.max_message, self.flow).is_ok() => HEADER + h.length as usize,
            _ => HEADER,
        }
    }

    fn make_room(&mut self, frame: usize) {
        if frame > self.buffer.len() {
            return self.grow(frame);
        }
        self.room = self.room.max(frame);
        let little = self.room - self.end < LEAST_ROOM && frame <= INITIAL;
        if self.start > 0 && (self.start + frame > self.room || little) {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }

    /// A larger buffer; received bytes are copied once. Grows in steps of the initial size, so that slowly growing
    /// sizes do not allocate each time.
    fn grow(&mut self, frame: usize) {
        let mut larger = vec![0; self.size_for(frame)];
        let held = self.end - self.start;
        larger[..held].copy_from_slice(&self.buffer[self.start..self.end]);
        (self.buffer, self.start, self.end, self.room) = (larger, 0, held, frame);
    }

    fn size_for(&self, frame: usize) -> usize {
        frame.next_multiple_of(INITIAL).min(HEADER.saturating_add(self.max_message).max(frame))
    }

    fn shrink(&mut self) {
        if self.calm >= CALM && self.room > INITIAL {
            self.room = INITIAL;
            if self.buffer.len() > INITIAL {
                self.buffer = vec![0; INITIAL];
            }
        }
    }
}
