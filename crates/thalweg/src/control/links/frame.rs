//! Frames of a control link: length (u32, little-endian, of the body), kind (u8), body. A kind with its highest bit set is
//! continued by the next frame. A peer's bytes are not kept beyond [`MESSAGE_LIMIT`].

use crate::control::{Change, Document, NodeId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Version of the control-link protocol.
pub const VERSION: u32 = 1;
/// Most bytes of one frame's body.
pub const FRAME_LIMIT: usize = 1 << 20;
/// Most bytes of a message of several frames.
pub const MESSAGE_LIMIT: usize = 4 << 20;
/// Most bytes of a first message: a stranger gets no more.
pub(crate) const HELLO_LIMIT: usize = 4 << 10;
const HEADER: usize = 5;
const CONTINUED: u8 = 0x80;

/// The first message in each direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// [`VERSION`] of the sender.
    pub version: u32,
    /// Its realm.
    #[serde(default)]
    pub realm: String,
    /// The sender's id.
    #[serde(default)]
    pub node: Option<NodeId>,
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The sender's identity; JSON.
    Hello = 1,
    /// The sender's document; JSON.
    Document = 2,
    /// A change of it; JSON.
    Change = 3,
    /// Asks for the document; empty.
    Refresh = 4,
    /// A call: its number (u64, little-endian) and the question.
    Call = 5,
    /// An answer: the call's number and the answer.
    Answer = 6,
    /// The sender closes the link; the reason as text.
    Bye = 7,
}

/// A message as received.
#[derive(Debug)]
pub(crate) enum Message {
    /// See [`Kind::Hello`].
    Hello(Hello),
    /// See [`Kind::Document`].
    Document(Box<Document>),
    /// See [`Kind::Change`].
    Change(Change),
    /// See [`Kind::Refresh`].
    Refresh,
    /// See [`Kind::Call`].
    Call(u64, Vec<u8>),
    /// See [`Kind::Answer`].
    Answer(u64, Vec<u8>),
    /// See [`Kind::Bye`].
    Bye(String),
}

/// Bytes that are no message of this protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Appends a message made of `parts`, in as many frames as it needs.
pub(crate) fn write(kind: Kind, parts: &[&[u8]], out: &mut Vec<u8>) {
    let mut left: usize = parts.iter().map(|p| p.len()).sum();
    out.reserve(left + HEADER);
    let mut room = begin(kind, left, out);
    for mut part in parts.iter().copied() {
        while !part.is_empty() {
            if room == 0 {
                room = begin(kind, left, out);
            }
            let (now, later) = part.split_at(part.len().min(room));
            out.extend_from_slice(now);
            (room, left, part) = (room - now.len(), left - now.len(), later);
        }
    }
}

/// Writes a header for the part of `left` bytes that fits; returns its length.
fn begin(kind: Kind, left: usize, out: &mut Vec<u8>) -> usize {
    let length = left.min(FRAME_LIMIT);
    let flag = if left > length { CONTINUED } else { 0 };
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.push(kind as u8 | flag);
    length
}

/// Takes received bytes apart into messages.
pub(crate) struct Reader {
    bytes: Vec<u8>,
    start: usize,
    /// Kind and bytes so far of a message whose last frame is still to come.
    partial: Option<(u8, Vec<u8>)>,
    limit: usize,
}

impl Reader {
    /// A reader that takes no more than a hello yet.
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), start: 0, partial: None, limit: HELLO_LIMIT }
    }

    /// The peer is known: takes messages of full size from now on.
    pub(crate) fn trust(&mut self) {
        self.limit = MESSAGE_LIMIT;
    }

    /// Bytes that are held of messages which are not complete.
    pub(crate) fn unfinished(&self) -> usize {
        self.bytes.len() - self.start + self.partial.as_ref().map_or(0, |(_, whole)| whole.len())
    }

    /// Adds received bytes. Call [`Reader::next`] until it returns `None` before adding more.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.start));
        self.bytes.extend_from_slice(bytes);
    }

    /// Gives memory back when everything was taken: a link that was busy once holds no megabyte for ever.
    pub(crate) fn rest(&mut self) {
        if self.start == self.bytes.len() {
            (self.start, self.bytes) = (0, Vec::new());
        }
    }

    /// The next whole message, if there is one.
    ///
    /// # Errors
    /// [`Malformed`]; the link is of no use then.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, Malformed> {
        while let Some((kind, body)) = self.frame()? {
            let (start, end) = (body.start, body.end);
            self.start = end;
            if kind & CONTINUED == 0 && self.partial.is_none() {
                return parse(kind, &self.bytes[start..end]).map(Some);
            }
            let (first, mut whole) = self.partial.take().unwrap_or((kind & !CONTINUED, Vec::new()));
            if first != kind & !CONTINUED {
                return Err(Malformed(format!("a message of kind {first} continued by one of kind {kind}")));
            }
            whole.extend_from_slice(&self.bytes[start..end]);
            if kind & CONTINUED == 0 {
                return parse(first, &whole).map(Some);
            }
            self.partial = Some((first, whole));
        }
        Ok(None)
    }

    /// Kind and size of the next message, if its last frame is there.
    pub(crate) fn peek(&self) -> Option<(u8, usize)> {
        let (mut at, mut size) = (self.start, self.partial.as_ref().map_or(0, |(_, whole)| whole.len()));
        loop {
            let (head, rest) = self.bytes.get(at..)?.split_first_chunk::<HEADER>()?;
            let [a, b, c, d, kind] = *head;
            let length = u32::from_le_bytes([a, b, c, d]) as usize;
            size = size.saturating_add(length);
            // A frame over the limit is refused when it is taken.
            if length > FRAME_LIMIT || kind & CONTINUED == 0 && rest.len() >= length {
                return Some((kind & !CONTINUED, size.min(MESSAGE_LIMIT)));
            }
            if rest.len() < length {
                return None;
            }
            at += HEADER + length;
        }
    }

    /// Kind and place of the next whole frame, if it is there.
    fn frame(&self) -> Result<Option<(u8, std::ops::Range<usize>)>, Malformed> {
        let rest = &self.bytes[self.start..];
        let Some((&[a, b, c, d, kind], rest)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let before = self.partial.as_ref().map_or(0, |(_, whole)| whole.len());
        let most = FRAME_LIMIT.min(self.limit.saturating_sub(before));
        if length > most {
            return Err(Malformed(format!("a frame of {length} bytes where {most} are allowed")));
        }
        if !(1..=7).contains(&(kind & !CONTINUED)) {
            return Err(Malformed(format!("unknown kind of frame {kind}")));
        }
        if length == 0 && kind & CONTINUED != 0 {
            return Err(Malformed("an empty frame that is continued".to_owned()));
        }
        let begin = self.start + HEADER;
        Ok((rest.len() >= length).then_some((kind, begin..begin + length)))
    }
}

fn parse(kind: u8, body: &[u8]) -> Result<Message, Malformed> {
    Ok(match kind {
        1 => Message::Hello(json("hello", body)?),
        2 => Message::Document(Box::new(json("document", body)?)),
        3 => Message::Change(json("change", body)?),
        4 => Message::Refresh,
        5 => numbered(body).map(|(id, rest)| Message::Call(id, rest))?,
        6 => numbered(body).map(|(id, rest)| Message::Answer(id, rest))?,
        _ => Message::Bye(String::from_utf8_lossy(body).chars().take(200).collect()),
    })
}

fn json<T: for<'a> Deserialize<'a>>(what: &str, body: &[u8]) -> Result<T, Malformed> {
    serde_json::from_slice(body).map_err(|e| Malformed(format!("a {what} that cannot be read: {e}")))
}

fn numbered(body: &[u8]) -> Result<(u64, Vec<u8>), Malformed> {
    let (id, rest) = body.split_first_chunk::<8>().ok_or_else(|| Malformed("a call without a number".to_owned()))?;
    Ok((u64::from_le_bytes(*id), rest.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_all(reader: &mut Reader, bytes: &[u8], piece: usize) -> Result<Vec<Message>, Malformed> {
        let mut messages = Vec::new();
        for part in bytes.chunks(piece) {
            reader.feed(part);
            while let Some(message) = reader.next()? {
                messages.push(message);
            }
        }
        Ok(messages)
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_neither_panic_nor_pile_up(bytes in prop::collection::vec(any::<u8>(), 0..2000), piece in 1usize..100) {
            let mut reader = Reader::new();
            reader.trust();
            let _ = read_all(&mut reader, &bytes, piece);
            prop_assert!(reader.bytes.len() <= bytes.len());
        }
    }

    #[test]
    fn a_message_of_several_frames_arrives_whole() {
        let big: Vec<u8> = (0..2_500_000u32).map(|n| n as u8).collect();
        let mut bytes = Vec::new();
        write(Kind::Call, &[&7u64.to_le_bytes(), &big], &mut bytes);
        write(Kind::Refresh, &[], &mut bytes);
        assert_eq!(bytes.len(), big.len() + 8 + 4 * HEADER);
        let mut reader = Reader::new();
        reader.trust();
        let messages = read_all(&mut reader, &bytes, 64 << 10).unwrap();
        assert!(matches!(&messages[..], [Message::Call(7, got), Message::Refresh] if *got == big));
    }

    #[test]
    fn malformed_messages_are_named() {
        let of = |bytes: &[u8]| read_all(&mut Reader::new(), bytes, 4096).unwrap_err().0;
        assert!(of(&[0xff, 0xff, 0xff, 0xff, 2]).contains("4294967295 bytes where 4096 are allowed"));
        assert!(of(&[0, 0, 0, 0, 99]).contains("unknown kind of frame 99"));
        assert!(of(&[2, 0, 0, 0, 1, b'{', b'x']).contains("hello that cannot be read"));
        assert!(of(&[0, 0, 0, 0, 0x82]).contains("empty frame"));
        assert!(of(&[1, 0, 0, 0, 0x82, 0, 0, 0, 0, 0, 3]).contains("continued by"));
        assert!(of(&[3, 0, 0, 0, 5, 0, 0, 0]).contains("without a number"));
    }

    #[test]
    fn continued_frames_end_at_the_limit() {
        let mut bytes = Vec::new();
        write(Kind::Document, &[&vec![b' '; MESSAGE_LIMIT + 1]], &mut bytes);
        let mut reader = Reader::new();
        reader.trust();
        assert!(read_all(&mut reader, &bytes, 64 << 10).unwrap_err().0.contains("0 are allowed"));
    }
}
