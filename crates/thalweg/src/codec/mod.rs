//! Codecs: encoding and decoding of values.
//!
//! | message type | bytes on the wire | receiving side |
//! |---|---|---|
//! | any `T: Serialize + DeserializeOwned` | CDR little-endian with its 4-byte encapsulation header, as ROS 2 encodes | an owned `T` |
//! | [`Plain<T>`] | the memory of a plain-old-data struct | a view into the received buffer when it is aligned, else a copy |
//! | [`Raw`] | the bytes themselves | a view into the received buffer |
//! | [`Untyped`] | (subscribers only) any type | a view |
//!
//! A publisher and a subscriber compare their [`TypeDescription`]s. Where one holds a [`Schema`], tools that do not know
//! the type read and write its samples as JSON ([`to_json`], [`from_json`]).

mod cdr;
mod dynamic;
mod fields;
mod plain;
#[cfg(test)]
mod samples;
mod schema;
mod sought;

pub use cdr::{from_cdr, to_cdr, to_cdr_into};
pub use dynamic::{from_json, to_json};
pub use fields::{FieldError, Fields, PathProblem};
pub use plain::Plain;
pub use schema::{Field, Schema, SchemaError, TypeDescription, Variant};
pub(crate) use sought::{Sought, WHOLE_TOPIC, topic_number};

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::fmt;
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

/// The message type of subscribers that take topics of any type and want their bytes: tools, recorders, bridges.
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
