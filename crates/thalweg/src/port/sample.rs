//! Samples, as a subscriber receives them.

use crate::channel::SampleInfo;
use crate::channel::buffer::Buffer;
use crate::codec::{Decoded, Message};
use linux::memory::Borrowed;
use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;

/// A received sample, valid while the callback runs. Dereferences to the value.
pub struct Sample<'a, M: Message> {
    pub(crate) info: SampleInfo,
    pub(crate) value: Decoded<'a, M>,
}

impl<M: Message> Sample<'_, M> {
    /// Publisher, number and time stamps of the sample.
    pub fn info(&self) -> &SampleInfo {
        &self.info
    }
}

impl<M: Message> Deref for Sample<'_, M> {
    type Target = M::Value;
    fn deref(&self) -> &M::Value {
        self.value.value()
    }
}

/// The place of a waiting sample's bytes.
pub(crate) enum Storage {
    /// A pooled buffer: the subscriber's own, or (carrier `local`) the publisher's.
    Pooled(Arc<Buffer>),
    /// A place in the publisher's shared memory.
    Shared(Borrowed),
}

impl Storage {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Storage::Pooled(buffer) => buffer.payload(),
            Storage::Shared(borrowed) => borrowed,
        }
    }
}

/// A sample that was taken and may be kept. Dereferences to the value. On the carrier `shm` it borrows the publisher's memory:
/// a subscriber that keeps many samples leaves the publisher short of slots.
pub struct TakenSample<M: Message> {
    pub(crate) info: SampleInfo,
    storage: Storage,
    owned: Option<M::Owned>,
}

impl<M: Message> TakenSample<M> {
    pub(crate) fn new(info: SampleInfo, storage: Storage) -> Result<Self, crate::codec::CodecError> {
        let owned = match M::decode(storage.bytes())? {
            Decoded::Owned(value) => Some(value),
            Decoded::Borrowed(_) => None,
        };
        Ok(Self { info, storage, owned })
    }

    /// Publisher, number and time stamps of the sample.
    pub fn info(&self) -> &SampleInfo {
        &self.info
    }

    /// The value itself; `None` for codecs whose values are the received bytes ([`Raw`](crate::codec::Raw),
    /// [`Plain`](crate::codec::Plain)): access those through the sample.
    pub fn into_value(self) -> Option<M::Owned> {
        self.owned
    }

    /// The encoded bytes.
    pub fn bytes(&self) -> &[u8] {
        self.storage.bytes()
    }
}

impl<M: Message> Deref for TakenSample<M> {
    type Target = M::Value;
    fn deref(&self) -> &M::Value {
        if let Some(value) = &self.owned {
            return value.borrow();
        }
        match M::decode(self.storage.bytes()) {
            Ok(Decoded::Borrowed(value)) => value,
            // `new` found these very bytes, at this very address, to be a borrowed value, and a codec that borrows
            // looks at length and alignment only.
            _ => unreachable!("a codec changed its mind about the same bytes"),
        }
    }
}
