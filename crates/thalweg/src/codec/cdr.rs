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
mod read;
#[cfg(test)]
mod tests;

pub(super) use encode::Encoder;
pub(super) use read::{Reader, Version};

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

/// The encapsulation header written: CDR, little-endian, no options (DDSI-RTPS 2.5 §10.2; DDS-XTypes 1.3 §7.6.3.1.2).
const HEADER: [u8; 4] = [0x00, 0x01, 0x00, 0x00];

/// The deepest nesting of structs, sequences, options, enums and so on that is written or read.
pub(super) const MAX_DEPTH: usize = 64;

/// The number of elements of sequences and maps in one message that may take no bytes, such as those of a `Vec<()>`. Without a
/// limit a few hostile bytes could claim billions.
pub(super) const FREE_ELEMENTS: usize = 1024;
