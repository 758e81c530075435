//! CDR, as ROS 2 puts it on the wire: written little-endian, read in either byte order.
//!
//! The rules are those of OMG CDR (formal/2002-06-51 §15.3), which DDS-XTypes 1.3 §7.4 calls XCDR version 1, PLAIN_CDR:
//!
//! | value | bytes |
//! |---|---|
//! | message | the encapsulation header `00 01 00 00` (CDR, little-endian, no options), then the value |
//! | number | in the byte order of the header, aligned to its own size (at most 8), counted from behind the header; padding is 0 |
//! | `bool` | one byte, 0 or 1 |
//! | `String` | `u32` length with the final NUL, the UTF-8 bytes, NUL |
//! | `Vec`, set, bytes | `u32` count, then the elements |
//! | array, tuple, struct | the elements in order, without a count |
//! | `()`, unit struct | nothing |
//! | `enum` | `u32` index of the variant in its declaration, then its contents |
//!
//! These have no counterpart in a ROS 2 message, and only Thalweg reads them:
//!
//! | value | bytes |
//! |---|---|
//! | `Option` | one byte, 0 or 1, then the value if 1 (as XCDR version 2 does, §7.4.3.5) |
//! | map | `u32` count, then key and value in turn |
//! | `char` | its Unicode scalar value as `u32` (ROS 2's `char` is an `u8`: use that) |
//! | `enum` whose variants have contents | as above |
//!
//! Serde hands over a `Vec<u8>` byte by byte; a field that uses `serialize_bytes` gives the same bytes in one copy, which
//! pays for pictures and the like.
//!
//! An empty ROS 2 message has one hidden field; write it as `struct Empty { structure_needs_at_least_one_member: u8 }`.
//!
//! Refused when encoding: 128-bit integers, fields left out by `skip_serializing_if` and flattened structs (a reader
//! could not know), more than [`MAX_DEPTH`] levels, more than [`FREE_ELEMENTS`] elements that take no bytes.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub(super) use encode::Encoder;

use super::CodecError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encodes a value as one CDR message, in a buffer of its own.
///
/// # Errors
/// As [`to_cdr_into`].
pub fn to_cdr<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CodecError> {
    let mut out = Vec::new();
    to_cdr_into(value, &mut out)?;
    Ok(out)
}

/// Appends a value as one CDR message, header included, to `out`.
///
/// The content of `out` neither changes nor shifts the alignment, which counts from behind this message's header.
/// Nothing is allocated except by growing `out`: none at all once it has the capacity.
///
/// # Errors
/// [`CodecError`] for a value that CDR cannot carry: a 128-bit integer, a field left out by `skip_serializing_if`,
/// a flattened struct, too deep a nesting, a length beyond `u32`. `out` is then as it was.
pub fn to_cdr_into<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
    append_message(out, |encoder| value.serialize(encoder))
}

/// Appends one CDR message whose value `write` writes; on an error, `out` is as it was.
pub(super) fn append_message(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Encoder<'_>) -> Result<(), CodecError>,
) -> Result<(), CodecError> {
    let start = out.len();
    out.extend_from_slice(&HEADER);
    let result = write(&mut Encoder::new(out));
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Decodes a value from exactly one CDR message, header included.
///
/// The last two bytes of the header (options) and up to 3 bytes of padding behind the value are ignored. The function
/// never panics. A sequence may not claim more elements than bytes remain, plus 1024 in the whole message that take
/// no bytes. Room is reserved for one element per 8 remaining bytes (and serde never reserves more than 1 MiB at once). So
/// allocations are a small multiple of the message's length; the factor depends on the size of a `T` in memory
/// compared with its encoding.
///
/// # Errors
/// [`CodecError`] with the offset from the start of `bytes`, what was expected and what was found: another encapsulation
/// than CDR of version 1 (of version 2: use [`transcode`](super::transcode())), an early end, more than 3 bytes left over, a `bool` that is neither 0
/// nor 1, a string without its NUL or not in UTF-8, no such variant, nesting beyond 64 levels, a type that only a
/// self-describing format can carry (`#[serde(untagged)]`, `#[serde(flatten)]`).
pub fn from_cdr<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let mut decoder = decode::Decoder::new(Reader::new(bytes)?);
    match T::deserialize(&mut decoder) {
        Ok(value) => decoder.finish().map(|()| value),
        Err(error) => Err(decoder.locate(error)),
    }
}

/// A custom `Serialize` or `Deserialize` reports an error without an offset; [`from_cdr`] adds the offset at which it stopped.
impl serde::ser::Error for CodecError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self { offset: 0, problem: message.to_string() }
    }
}

/// See above.
impl serde::de::Error for CodecError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self { offset: 0, problem: message.to_string() }
    }
}

/// The error of a nesting beyond [`MAX_DEPTH`].
pub(super) fn too_deep(offset: usize) -> CodecError {
    CodecError { offset, problem: format!("expected at most {MAX_DEPTH} levels of nesting, found more") }
}

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
    /// PLAIN_CDR, as this module's table says.
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

/// The encapsulation header written: CDR, little-endian, no options (DDSI-RTPS 2.5 §10.2; DDS-XTypes 1.3 §7.6.3.1.2).
const HEADER: [u8; 4] = [0x00, 0x01, 0x00, 0x00];

/// The deepest nesting of structs, sequences, options, enums and so on that is written or read.
pub(super) const MAX_DEPTH: usize = 64;

/// The number of elements of sequences and maps in one message that may take no bytes, such as those of a `Vec<()>`. Without a
/// limit a few hostile bytes could claim billions.
pub(super) const FREE_ELEMENTS: usize = 1024;

/// Padding a writer may add behind the value to fill up a multiple of 4 bytes, as Cyclone DDS for Python does.
const MAX_TRAILING: usize = 3;

/// The length of the encapsulation header; alignment counts from its end.
const ORIGIN: usize = HEADER.len();
