//! Samples: what a subscriber is given.

use super::Change;
use crate::channel::buffer::Buffer;
use crate::channel::proxy::Provenance;
use crate::codec::{Decoded, Message};
use crate::control::{NodeId, PortId};
use linux::memory::Borrowed;
use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;

/// Who published a sample, which one it is, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleInfo {
    /// The publishing node.
    pub node: NodeId,
    /// The publishing port.
    pub port: PortId,
    /// Incarnation of the publishing node: grows with each start.
    pub incarnation: u64,
    /// Sequence number, given once by `publish`, counted from 1.
    pub seq: u64,
    /// When it was published: CLOCK_MONOTONIC nanoseconds of the publisher's host.
    pub source_ns: u64,
    /// When this process received it: CLOCK_MONOTONIC nanoseconds of this host.
    pub received_ns: u64,
    /// Both stamps come from the same clock, so that their difference is the latency.
    pub same_clock: bool,
    /// It was pulled; or its port joined late, and has samples already that were published later.
    pub historical: bool,
    /// What it says of its instance: its value, or that it ends.
    pub change: Change,
    /// How a proxy on the way scaled the stream, from which sample on, and at which node; `None`: none did.
    pub scaled: Option<Provenance>,
}

impl SampleInfo {
    /// Nanoseconds from `publish` to reception; `None` when the two clocks differ and the offset is not known.
    pub fn latency_ns(&self) -> Option<u64> {
        self.same_clock.then(|| self.received_ns.saturating_sub(self.source_ns))
    }
}

/// A received sample, valid while the callback runs. Dereferences to the value.
pub struct Sample<'a, M: Message> {
    pub(crate) info: SampleInfo,
    pub(crate) value: Decoded<'a, M>,
}

impl<M: Message> Sample<'_, M> {
    /// Who published it, which one it is, and when.
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

/// Where the bytes of a waiting sample lie.
pub(crate) enum Storage {
    /// In a pooled buffer: the subscriber's own, or (carrier `local`) the publisher's.
    Pooled(Arc<Buffer>),
    /// In the publisher's shared memory.
    Shared(Borrowed),
}

impl Storage {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Storage::Pooled(buffer) => buffer.payload(),
            Storage::Shared(borrowed) => borrowed,
        }
    }
}

/// A sample that was taken and may be kept. Dereferences to the value. On the carrier `shm` it borrows the publisher's
/// memory: who keeps many of them makes the publisher's slots scarce.
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

    /// Who published it, which one it is, and when.
    pub fn info(&self) -> &SampleInfo {
        &self.info
    }

    /// The value itself; `None` for codecs whose values are the received bytes ([`Raw`](crate::codec::Raw),
    /// [`Plain`](crate::codec::Plain)): look at those through the sample.
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
