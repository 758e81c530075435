//! Codecs: encoding and decoding of values.
//!
//! | message type | bytes on the wire | receiving side |
//! |---|---|---|
//! | any `T: Serialize + DeserializeOwned` | CDR little-endian with its 4-byte encapsulation header, as ROS 2 encodes | an owned `T` |
//! | [`Plain<T>`] | the memory of a plain-old-data struct | a view into the received buffer when it is aligned, else a copy |
//! | [`Raw`] | the bytes themselves | a view into the received buffer |
//! | [`Untyped`] | an encoded message of a type that is known at run time | a view |
//!
//! A publisher and a subscriber compare their [`TypeDescription`]s. Where one holds a [`Schema`], tools that do not know
//! the type read and write its samples as JSON ([`to_json`], [`from_json`]). Messages of other writers are read in either byte
//! order; [`transcode()`] turns those of CDR version 2 into ones that every subscriber reads. [`Definitions`] reads ROS 2's `.msg`,
//! `.srv` and `.action` files: the schemas and type hashes of their types. [`Idl`] reads `.idl` files: schemas and keys.

mod cdr;
mod dynamic;
mod fields;
mod idl;
mod ros;
#[cfg(test)]
mod samples;
mod schema;
mod transcode;

pub use cdr::{from_cdr, to_cdr, to_cdr_into};
pub use dynamic::{from_json, to_json};
pub use fields::{FieldError, Fields, PathProblem};
pub(crate) use fields::{PolicyFields, WHOLE_TOPIC, topic_number};
pub use idl::{Idl, IdlError};
pub use ros::{Definitions, RosError, RosType};
pub use schema::{Field, Schema, SchemaError, TypeDescription, Variant};
pub use transcode::transcode;

use bytemuck::PodCastError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A type that a topic can carry.
pub trait Message: 'static {
    /// The type of the values that `publish` takes and a sample shows.
    type Value: ?Sized + 'static;
    /// An owned value, for codecs that cannot show the received bytes themselves.
    type Owned: Borrow<Self::Value> + Send + 'static;

    /// Name, hash and (where known) structure of the type; compared when a publisher and a subscriber match.
    fn description() -> Arc<TypeDescription>;

    /// Appends the encoded value to `out`, which may already hold other bytes: they change neither the encoded bytes nor
    /// their alignment.
    ///
    /// # Errors
    /// [`CodecError`] when the value cannot be represented (a 128-bit integer, a flattened struct …); `out` is then as it was.
    fn encode(value: &Self::Value, out: &mut Vec<u8>) -> Result<(), CodecError>;

    /// The encoded bytes without copying, for codecs whose values already are their bytes.
    fn as_bytes(_value: &Self::Value) -> Option<&[u8]> {
        None
    }

    /// Reads a value from exactly these bytes.
    ///
    /// # Errors
    /// [`CodecError`] when the bytes are no such value; never panics, and allocates at most a small multiple of their length.
    fn decode(bytes: &[u8]) -> Result<Decoded<'_, Self>, CodecError>;
}

/// A decoded value: a view into the received bytes, or a value of its own.
pub enum Decoded<'a, M: Message + ?Sized> {
    /// The received bytes are the value.
    Borrowed(&'a M::Value),
    /// The value was built from the bytes.
    Owned(M::Owned),
}

impl<M: Message + ?Sized> Decoded<'_, M> {
    /// The value, wherever it lies.
    pub fn value(&self) -> &M::Value {
        match self {
            Decoded::Borrowed(value) => value,
            Decoded::Owned(value) => value.borrow(),
        }
    }
}

/// An error of encoding or decoding: the expected, the found, and the position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecError {
    /// Byte offset where it went wrong (0 when encoding).
    pub offset: usize,
    /// The expectation and the finding.
    pub problem: String,
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.offset, self.problem)
    }
}

impl std::error::Error for CodecError {}

/// Messages of plain bytes.
pub enum Raw {}

impl Message for Raw {
    type Value = [u8];
    type Owned = Vec<u8>;

    fn description() -> Arc<TypeDescription> {
        Arc::new(TypeDescription::opaque("bytes"))
    }
    fn encode(value: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(value);
        Ok(())
    }
    fn as_bytes(value: &[u8]) -> Option<&[u8]> {
        Some(value)
    }
    fn decode(bytes: &[u8]) -> Result<Decoded<'_, Self>, CodecError> {
        Ok(Decoded::Borrowed(bytes))
    }
}

/// The message type of ports that take or give encoded messages of a type that is known at run time: tools, recorders, bridges. A
/// subscriber of it takes any type; a publisher of it states its type with
/// [`described`](crate::PublisherBuilder::described).
pub enum Untyped {}

impl Message for Untyped {
    type Value = [u8];
    type Owned = Vec<u8>;

    fn description() -> Arc<TypeDescription> {
        Arc::new(TypeDescription::any())
    }
    fn encode(value: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        Raw::encode(value, out)
    }
    fn as_bytes(value: &[u8]) -> Option<&[u8]> {
        Some(value)
    }
    fn decode(bytes: &[u8]) -> Result<Decoded<'_, Self>, CodecError> {
        Ok(Decoded::Borrowed(bytes))
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Message for T {
    type Value = T;
    type Owned = T;

    fn description() -> Arc<TypeDescription> {
        Arc::new(TypeDescription::of::<T>())
    }
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        to_cdr_into(value, out)
    }
    fn decode(bytes: &[u8]) -> Result<Decoded<'_, Self>, CodecError> {
        from_cdr(bytes).map(Decoded::Owned)
    }
}

/// A topic of plain-old-data values, sent as they lie in memory: nothing is encoded, and a subscriber sees the received
/// bytes themselves when they are aligned for `T` (in shared memory they always are), else one copy.
///
/// There is no header and no byte order on the wire. So the type's hash covers its name, size, alignment and the byte
/// order of the host, and a host of the other order does not match. The names and types of its fields are not known:
/// two versions of one struct that agree in size and alignment match, so give a changed struct a new name.
pub struct Plain<T>(PhantomData<T>);

impl<T: bytemuck::Pod + Send> Message for Plain<T> {
    type Value = T;
    type Owned = T;

    fn description() -> Arc<TypeDescription> {
        Arc::new(TypeDescription::plain::<T>())
    }
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(bytemuck::bytes_of(value));
        Ok(())
    }
    fn as_bytes(value: &T) -> Option<&[u8]> {
        Some(bytemuck::bytes_of(value))
    }
    fn decode(bytes: &[u8]) -> Result<Decoded<'_, Self>, CodecError> {
        match bytemuck::try_from_bytes(bytes) {
            Ok(value) => Ok(Decoded::Borrowed(value)),
            Err(PodCastError::TargetAlignmentGreaterAndInputNotAligned) if bytes.len() == size_of::<T>() => {
                Ok(Decoded::Owned(bytemuck::pod_read_unaligned(bytes)))
            }
            Err(_) => Err(wrong_length::<T>(bytes.len())),
        }
    }
}

/// The error of a message that is not as long as a `T`; its offset is where the shorter of the two ends.
fn wrong_length<T>(found: usize) -> CodecError {
    let expected = size_of::<T>();
    let name = TypeDescription::plain::<T>().name;
    CodecError {
        offset: found.min(expected),
        problem: format!("expected {expected} bytes (one {name}), found {found} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Four = Plain<[u32; 4]>;

    /// A buffer of bytes and the offset in it that is a multiple of 4.
    fn aligned(buffer: &[u8]) -> usize {
        buffer.as_ptr().align_offset(4)
    }

    #[test]
    fn aligned_bytes_are_the_value() {
        let mut buffer = [0u8; 24];
        let start = aligned(&buffer);
        let value = [1, 2, 3, 0xffff_fffe];
        let mut encoded = Vec::new();
        Four::encode(&value, &mut encoded).unwrap();
        assert_eq!(Some(encoded.as_slice()), Four::as_bytes(&value));
        buffer[start..start + 16].copy_from_slice(&encoded);
        let decoded = Four::decode(&buffer[start..start + 16]).unwrap();
        assert!(matches!(decoded, Decoded::Borrowed(found) if *found == value));
    }

    #[test]
    fn other_bytes_are_copied() {
        let mut buffer = [0u8; 24];
        let start = aligned(&buffer) + 1;
        buffer[start] = 7;
        let decoded = Four::decode(&buffer[start..start + 16]).unwrap();
        assert!(matches!(decoded, Decoded::Owned([7, 0, 0, 0])));
    }

    #[test]
    fn a_wrong_length_names_both() {
        for (length, offset) in [(0, 0), (15, 15), (17, 16), (32, 16)] {
            let error = Four::decode(&[0; 32][..length]).err().unwrap();
            assert_eq!(error.offset, offset);
            assert_eq!(error.problem, format!("expected 16 bytes (one [u32; 4]), found {length} bytes"));
        }
    }

    #[test]
    fn the_description_tells_types_apart() {
        let description = Four::description();
        assert_eq!(description.name, "[u32; 4]");
        assert_eq!(description.schema, None);
        assert!(description.accepts(&Four::description()));
        for other in [Plain::<[u32; 5]>::description(), Plain::<[i32; 4]>::description()] {
            assert!(!description.accepts(&other));
        }
        assert!(!description.accepts(&TypeDescription::opaque("[u32; 4]")));
        assert!(TypeDescription::any().accepts(&description));
    }
}
