//! C structs as CDR and back: by the offsets of their fields. The rules of CDR are those of `thalweg::codec`, version 1.

use crate::failure::{Failure, Result, thalweg_status};
use std::sync::Arc;

/// Bytes of the header before each message: kind of encoding, and options.
pub(crate) const HEADER: usize = 4;
/// Padding that may follow a message.
const MOST_PADDING: usize = 3;

/// The fields of a C struct, in the order of the message.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Its size.
    pub bytes: usize,
    pub parts: Vec<Part>,
}

/// A field, with its offset in the struct.
#[derive(Debug)]
pub(crate) struct Part {
    pub offset: usize,
    pub content: Content,
}

/// The content of a field.
#[derive(Debug)]
pub(crate) enum Content {
    /// Numbers of `width` bytes each.
    Numbers { width: usize, count: usize },
    /// Truth values.
    Flags { count: usize },
    /// A text in an array of characters, ended by a zero.
    Text { room: usize },
    /// Structs.
    Structs { of: Arc<Layout>, count: usize },
}

impl Content {
    /// Bytes in the struct.
    pub(crate) fn extent(&self) -> Option<usize> {
        match self {
            Self::Numbers { width, count } => width.checked_mul(*count),
            Self::Flags { count } => Some(*count),
            Self::Text { room } => Some(*room),
            Self::Structs { of, count } => of.bytes.checked_mul(*count),
        }
    }
}

impl Layout {
    /// Appends the message of the struct at `value`.
    ///
    /// # Safety
    /// A struct of this layout is there.
    pub(crate) unsafe fn encode(&self, value: *const u8, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&[0, u8::from(cfg!(target_endian = "little")), 0, 0]);
        let body = out.len();
        // SAFETY: the caller's promise.
        unsafe { self.write(value, body, out) }
    }

    /// # Safety
    /// As [`Self::encode`].
    unsafe fn write(&self, value: *const u8, body: usize, out: &mut Vec<u8>) -> Result<()> {
        for part in &self.parts {
            // SAFETY: each part lies within the struct (`types::form::part`).
            let at = unsafe { value.add(part.offset) };
            match &part.content {
                Content::Numbers { width, count } => {
                    align(out, body, *width);
                    // SAFETY: the part has so many bytes.
                    out.extend_from_slice(unsafe { std::slice::from_raw_parts(at, width * count) });
                }
                Content::Flags { count } => {
                    // SAFETY: the part has so many bytes.
                    let flags = unsafe { std::slice::from_raw_parts(at, *count) };
                    out.extend(flags.iter().map(|flag| u8::from(*flag != 0)));
                }
                // SAFETY: the part has so many bytes.
                Content::Text { room } => unsafe { write_text(at, *room, body, out)? },
                Content::Structs { of, count } => {
                    for index in 0..*count {
                        // SAFETY: the part has so many structs.
                        unsafe { of.write(at.add(index * of.bytes), body, out)? };
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads a message into the struct at `value`, whose content is unspecified after an error.
    ///
    /// # Safety
    /// There is room for a struct of this layout.
    pub(crate) unsafe fn decode(&self, message: &[u8], value: *mut u8) -> Result<()> {
        let mut reader = Reader::new(message)?;
        // SAFETY: the caller's promise.
        unsafe { self.read(&mut reader, value)? };
        match reader.left() {
            0..=MOST_PADDING => Ok(()),
            left => Err(reader.wrong(format!("{left} bytes are left over"))),
        }
    }

    /// # Safety
    /// As [`Self::decode`].
    unsafe fn read(&self, reader: &mut Reader<'_>, value: *mut u8) -> Result<()> {
        for part in &self.parts {
            // SAFETY: each part lies within the struct (`types::form::part`).
            let at = unsafe { value.add(part.offset) };
            match &part.content {
                Content::Numbers { width, count } => {
                    let numbers = reader.numbers(*width, *count)?;
                    // SAFETY: the part has so many bytes, and the message lies elsewhere.
                    let to = unsafe { std::slice::from_raw_parts_mut(at, numbers.len()) };
                    to.copy_from_slice(numbers);
                    if reader.swap {
                        to.chunks_exact_mut(*width).for_each(<[u8]>::reverse);
                    }
                }
                Content::Flags { count } => {
                    let flags = reader.numbers(1, *count)?;
                    if let Some(flag) = flags.iter().find(|flag| **flag > 1) {
                        return Err(reader.wrong(format!("a truth value is {flag}, not 0 or 1")));
                    }
                    // SAFETY: the part has so many bytes.
                    unsafe { std::ptr::copy_nonoverlapping(flags.as_ptr(), at, flags.len()) };
                }
                // SAFETY: the part has so many bytes.
                Content::Text { room } => unsafe { read_text(reader, at, *room)? },
                Content::Structs { of, count } => {
                    for index in 0..*count {
                        // SAFETY: the part has so many structs.
                        unsafe { of.read(reader, at.add(index * of.bytes))? };
                    }
                }
            }
        }
        Ok(())
    }
}

/// # Safety
/// There are `room` bytes.
unsafe fn write_text(at: *const u8, room: usize, body: usize, out: &mut Vec<u8>) -> Result<()> {
    // SAFETY: the caller's promise. Nothing is read behind the first zero.
    let length = (0..room).find(|n| unsafe { at.add(*n).read() } == 0);
    let length = length.ok_or_else(|| Failure::invalid(format!("a text has no zero within its {room} bytes")))?;
    // SAFETY: so many bytes were read just now.
    let text = unsafe { std::slice::from_raw_parts(at, length) };
    std::str::from_utf8(text).map_err(|wrong| Failure::invalid(format!("a text is not UTF-8: {wrong}")))?;
    let counted = u32::try_from(length + 1);
    let counted = counted.map_err(|_| too_large(format!("a text of {length} bytes is no text of a message")))?;
    align(out, body, 4);
    out.extend_from_slice(&counted.to_ne_bytes());
    out.extend_from_slice(text);
    out.push(0);
    Ok(())
}

/// # Safety
/// There are `room` bytes.
unsafe fn read_text(reader: &mut Reader<'_>, at: *mut u8, room: usize) -> Result<()> {
    let text = reader.text()?;
    if text.len() >= room {
        return Err(too_large(format!("a text of {} bytes has no room in the field of {room}", text.len())));
    }
    // SAFETY: the part has room for the text and its zero.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), at, text.len());
        at.add(text.len()).write_bytes(0, room - text.len());
    }
    Ok(())
}

fn too_large(text: String) -> Failure {
    Failure::new(thalweg_status::THALWEG_TOO_LARGE, text)
}

/// Zeros up to a multiple of `width` from the start of the message's body.
fn align(out: &mut Vec<u8>, body: usize, width: usize) {
    let to = body + (out.len() - body).next_multiple_of(width);
    out.resize(to, 0);
}

/// A place in a message. Nothing is read beyond its end.
struct Reader<'a> {
    body: &'a [u8],
    at: usize,
    /// The message has the other order of bytes.
    swap: bool,
}

impl<'a> Reader<'a> {
    fn new(message: &'a [u8]) -> Result<Self> {
        let (order, body) = match message {
            [0, order @ (0 | 1), _, _, body @ ..] => (*order == 1, body),
            other => {
                let found = &other[..other.len().min(HEADER)];
                return Err(Failure::invalid(format!(
                    "expected CDR of version 1 (00 00 or 00 01), found {found:02x?}"
                )));
            }
        };
        Ok(Self { body, at: 0, swap: order != cfg!(target_endian = "little") })
    }

    fn left(&self) -> usize {
        self.body.len() - self.at
    }

    fn wrong(&self, problem: impl std::fmt::Display) -> Failure {
        Failure::invalid(format!("byte {}: {problem}", HEADER + self.at))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(length);
        let found = end.and_then(|end| self.body.get(self.at..end));
        let found = found.ok_or_else(|| self.wrong(format!("expected {length} bytes, found {}", self.left())))?;
        self.at += length;
        Ok(found)
    }

    fn numbers(&mut self, width: usize, count: usize) -> Result<&'a [u8]> {
        self.take(self.at.next_multiple_of(width) - self.at)?;
        self.take(width * count)
    }

    /// A text without its zero.
    fn text(&mut self) -> Result<&'a str> {
        let mut counted: [u8; 4] = self.numbers(4, 1)?.try_into().unwrap_or_default();
        if self.swap {
            counted.reverse();
        }
        let counted = u32::from_ne_bytes(counted) as usize;
        match self.take(counted)?.split_last() {
            Some((0, text)) if !text.contains(&0) => {
                std::str::from_utf8(text).map_err(|wrong| self.wrong(format!("a text is not UTF-8: {wrong}")))
            }
            _ => Err(self.wrong("a text has no zero at its end, or one before")),
        }
    }
}
