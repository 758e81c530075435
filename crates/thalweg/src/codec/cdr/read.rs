//! The pieces of a CDR message, in either byte order and by the rules of either version.

use super::{CodecError, FREE_ELEMENTS, HEADER};

/// A position in one CDR message, whose primitive pieces it reads for the typed decoder and for those that follow a schema. Nothing is
/// read past the end, and nothing is allocated but the text of an error.
pub(in crate::codec) struct Reader<'de> {
    bytes: &'de [u8],
    /// Offset of the next byte, from the start of the message; the header's 4 bytes are behind it.
    at: usize,
    big_endian: bool,
    version: Version,
    /// Alignment of numbers of 8 bytes.
    widest: usize,
}

/// The rules by which values become bytes (DDS-XTypes 1.3 §7.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::codec) enum Version {
    /// PLAIN_CDR, as the table of the module above says.
    One,
    /// PLAIN_CDR2: numbers of 8 bytes are aligned to 4, and the length in bytes stands before a collection whose elements are
    /// not primitive.
    Two,
    /// DELIMITED_CDR: version 2 in which the length in bytes also stands before each struct.
    TwoDelimited,
}

impl<'de> Reader<'de> {
    /// Checks the encapsulation header of a message of version 1 and stands behind it.
    pub(crate) fn new(bytes: &'de [u8]) -> Result<Self, CodecError> {
        match Self::of_any_version(bytes)? {
            reader if reader.version == Version::One => Ok(reader),
            _ => Err(unexpected(bytes, "00 00 or 00 01 (CDR)")),
        }
    }

    /// Checks the encapsulation header and stands behind it.
    pub(crate) fn of_any_version(bytes: &'de [u8]) -> Result<Self, CodecError> {
        let (version, big_endian) = match bytes {
            [0x00, 0x00, _, _, ..] => (Version::One, true),
            [0x00, 0x01, _, _, ..] => (Version::One, false),
            [0x00, 0x06, _, _, ..] => (Version::Two, true),
            [0x00, 0x07, _, _, ..] => (Version::Two, false),
            [0x00, 0x08, _, _, ..] => (Version::TwoDelimited, true),
            [0x00, 0x09, _, _, ..] => (Version::TwoDelimited, false),
            _ => return Err(unexpected(bytes, "00 00, 00 01 (CDR) or 00 06 to 00 09 (CDR of version 2)")),
        };
        let widest = if version == Version::One { 8 } else { 4 };
        Ok(Self { bytes, at: ORIGIN, big_endian, version, widest })
    }

    /// The rules by which the message was written.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Offset of the next byte from the start of the message.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Bytes not yet read, padding included.
    #[inline]
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// An error at the present offset.
    #[cold]
    pub(crate) fn error(&self, problem: String) -> CodecError {
        CodecError { offset: self.at, problem }
    }

    /// A number of `N` bytes, little-endian, after the padding that aligns it; `N` is 1, 2, 4 or 8.
    #[inline]
    pub(crate) fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], CodecError> {
        let alignment = if N == 8 { self.widest } else { N };
        let start = self.at + ((self.at - ORIGIN).wrapping_neg() & (alignment - 1));
        match self.bytes.get(start..).and_then(|rest| rest.first_chunk::<N>()) {
            Some(found) => {
                self.at = start + N;
                let mut found = *found;
                if self.big_endian {
                    found.reverse();
                }
                Ok(found)
            }
            None => Err(self.early_end(what, N)),
        }
    }

    /// The next `length` bytes, not aligned.
    pub(crate) fn slice(&mut self, length: usize, what: &'static str) -> Result<&'de [u8], CodecError> {
        let found = self.bytes.get(self.at..).and_then(|rest| rest.get(..length));
        let found = found.ok_or_else(|| self.early_end(what, length))?;
        self.at += length;
        Ok(found)
    }

    /// An `u32`.
    #[inline]
    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, CodecError> {
        self.take(what).map(u32::from_le_bytes)
    }

    /// A byte that is 0 or 1.
    #[inline]
    pub(crate) fn bool(&mut self, what: &'static str) -> Result<bool, CodecError> {
        let [byte] = self.take(what)?;
        match byte {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.before(1, format!("expected {what} (0 or 1), found {other}"))),
        }
    }

    /// A Unicode scalar value in an `u32`.
    pub(crate) fn char(&mut self) -> Result<char, CodecError> {
        let scalar = self.u32("a char")?;
        char::from_u32(scalar)
            .ok_or_else(|| self.before(4, format!("expected a Unicode scalar value, found {scalar:#x}")))
    }

    /// The count of a sequence or map, limited by the remaining bytes.
    pub(crate) fn count(&mut self, what: &'static str) -> Result<usize, CodecError> {
        let count = self.u32(what)? as usize;
        if count > self.remaining().saturating_add(FREE_ELEMENTS) {
            let left = self.remaining();
            return Err(self.before(4, format!("expected {what} that fits {left} bytes, found {count}")));
        }
        Ok(count)
    }

    /// A sequence of bytes.
    pub(crate) fn bytes(&mut self) -> Result<&'de [u8], CodecError> {
        let length = self.u32("the count of a byte sequence")? as usize;
        self.slice(length, "the bytes of a sequence")
    }

    /// A string. Its NUL is required, except that some writers give an empty one the length 0.
    pub(crate) fn str(&mut self) -> Result<&'de str, CodecError> {
        let length = self.u32("the length of a string")? as usize;
        if length == 0 {
            return Ok("");
        }
        let start = self.at;
        let Some((last, text)) = self.slice(length, "a string")?.split_last() else { return Ok("") };
        if *last != 0 {
            return Err(self.before(1, format!("expected the NUL that ends a string, found {last:#04x}")));
        }
        std::str::from_utf8(text).map_err(|error| CodecError {
            offset: start + error.valid_up_to(),
            problem: format!("expected a string in UTF-8, found {:#04x}", text[error.valid_up_to()]),
        })
    }

    /// The end of a value, from its length in bytes that comes next.
    pub(crate) fn delimiter(&mut self) -> Result<usize, CodecError> {
        let length = self.u32("the length of a value")? as usize;
        match self.remaining() {
            left if length <= left => Ok(self.at + length),
            left => {
                Err(self.before(4, format!("expected the length of a value that fits {left} bytes, found {length}")))
            }
        }
    }

    /// Passes over what is left of a value that ends there.
    pub(crate) fn pass(&mut self, end: usize) -> Result<(), CodecError> {
        if self.at > end {
            let problem = format!("expected the value to end at byte {end}, as its length says, found it longer");
            return Err(self.error(problem));
        }
        self.at = end;
        Ok(())
    }

    /// Checks that only padding follows the value.
    pub(crate) fn finish(&self) -> Result<(), CodecError> {
        match self.remaining() {
            0..=MAX_TRAILING => Ok(()),
            more => Err(self.error(format!(
                "expected the end (or up to {MAX_TRAILING} bytes of padding), found {more} bytes more"
            ))),
        }
    }

    /// An error about the `length` bytes just read.
    #[cold]
    pub(crate) fn before(&self, length: usize, problem: String) -> CodecError {
        CodecError { offset: self.at - length, problem }
    }

    #[cold]
    fn early_end(&self, what: &'static str, length: usize) -> CodecError {
        self.error(format!("expected {what} ({length} bytes), found the end after {} bytes", self.remaining()))
    }
}

/// The error of an encapsulation header that is not one of those `wanted`.
#[cold]
fn unexpected(bytes: &[u8], wanted: &str) -> CodecError {
    let problem = match bytes {
        [high, low, _, _, ..] => {
            let name = encapsulation_name(u16::from_be_bytes([*high, *low]));
            format!("expected the encapsulation {wanted}, found {high:02x} {low:02x} ({name})")
        }
        _ => format!("expected an encapsulation header of 4 bytes, found {} bytes in all", bytes.len()),
    };
    CodecError { offset: 0, problem }
}

/// The representation identifiers of DDSI-RTPS 2.5 §10.2 and DDS-XTypes 1.3 §7.6.3.1.2.
fn encapsulation_name(identifier: u16) -> &'static str {
    match identifier {
        0x0000 => "CDR, big-endian",
        0x0001 => "CDR, little-endian",
        0x0002 => "parameter list CDR, big-endian",
        0x0003 => "parameter list CDR, little-endian",
        0x0004 => "XML",
        0x0006 => "XCDR version 2, big-endian",
        0x0007 => "XCDR version 2, little-endian",
        0x0008 => "delimited XCDR version 2, big-endian",
        0x0009 => "delimited XCDR version 2, little-endian",
        0x000a => "parameter list XCDR version 2, big-endian",
        0x000b => "parameter list XCDR version 2, little-endian",
        _ => "no encapsulation known here",
    }
}

/// Padding a writer may add behind the value to fill up a multiple of 4 bytes, as Cyclone DDS for Python does.
const MAX_TRAILING: usize = 3;

/// The length of the encapsulation header; alignment counts from its end.
const ORIGIN: usize = HEADER.len();
