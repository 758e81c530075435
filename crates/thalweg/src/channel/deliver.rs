//! The end of a channel's way: the port that takes its samples.

use super::SampleInfo;
use super::buffer::Buffer;
use super::memory::Account;
use linux::memory::Borrowed;
use std::sync::Arc;

/// A port as its channels see it.
pub(crate) trait Deliver: Send + Sync {
    /// Delivers a sample from a network or shared-memory channel on the receiving thread.
    fn deliver(&self, delivery: Delivery<'_>);
    /// Delivers a sample on another thread: a polled port's owner finds it in the mailbox.
    fn deliver_elsewhere(&self, delivery: Delivery<'_>);
    /// `true` if delivered samples are kept for later, and not shown to a callback at once.
    fn keeps(&self) -> bool;
    /// `true` if a full queue holds up the thread that delivers.
    fn blocks(&self) -> bool;
}

/// A sample as a channel hands it over.
pub(crate) struct Delivery<'a> {
    pub info: SampleInfo,
    pub payload: Payload<'a>,
    /// The account of the peer at the other end of the channel: waiting samples are charged to it.
    pub account: &'a Arc<Account>,
}

/// The place of a delivered sample's bytes.
pub(crate) enum Payload<'a> {
    /// Bytes in the receiving thread's buffer, valid until the delivery returns.
    Bytes(&'a [u8]),
    /// A buffer of the publishing port in this process.
    Pooled(&'a Arc<Buffer>),
    /// A place in the publisher's shared memory.
    Shared(Borrowed),
}

impl Payload<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Payload::Bytes(bytes) => bytes,
            Payload::Pooled(buffer) => buffer.payload(),
            Payload::Shared(borrowed) => borrowed,
        }
    }
}
