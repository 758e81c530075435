//! Ports: publishers and subscribers, with their samples, and all ports of this process.

mod fan_out;
mod histories;
mod joins;
pub mod monitor;
mod policy;
mod publisher;
mod subscriber;

pub(crate) use histories::{Histories, is_kept_by_instance, kept_at_subscriber};
pub(crate) use joins::Reply;
pub use policy::PolicyCounts;
pub(crate) use policy::{Judge, News, Writer, judge_of_publisher, judge_of_subscriber};
pub(crate) use publisher::{AnyPublisher, Place, PublishState, PublisherPort, Way};
pub(crate) use subscriber::{AnySubscriber, Rejection, Sink, SubscriberPort};
pub use subscriber::{PublisherInfo, SubscriberState};

use crate::channel::buffer::Buffer;
use crate::channel::memory::Account;
use crate::channel::{Outcome, PortRef, SampleInfo};
use crate::codec::{Decoded, Message};
use linux::memory::Borrowed;
use qos::ResourceLimit;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// The outcome of `publish` on all channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The sample's sequence number, counted from 1.
    pub seq: u64,
    /// Channels on which it was sent.
    pub sent: u32,
    /// Channels on which it waits (also those that dropped an older sample for it).
    pub queued: u32,
    /// Samples that channels dropped by their policy: older ones, or this one.
    pub dropped: u32,
    /// Channels that did not take it because their queue is full and drops no samples.
    pub refused: u32,
    /// Channels that are broken or unreachable now. A killed subscriber's channel counts until its end is noticed.
    pub not_connected: u32,
    /// The limit by which a channel dropped or refused a sample; of several, the last.
    pub limit: Option<ResourceLimit>,
}

impl Published {
    #[inline]
    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Sent => self.sent += 1,
            Outcome::Queued => self.queued += 1,
            Outcome::DroppedOldest { dropped, limit } => {
                self.queued += 1;
                self.dropped += dropped;
                self.limit = Some(limit);
            }
            Outcome::Refused { limit } => {
                self.dropped += 1;
                self.refused += 1;
                self.limit = Some(limit);
            }
            Outcome::Unreachable | Outcome::NotConnected => self.not_connected += 1,
        }
    }

    /// The number of channels to which the sample was offered.
    pub fn channels(&self) -> u32 {
        self.sent + self.queued + self.refused + self.not_connected
    }
}

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

/// The receiving end of a channel of the carrier `local`, with publisher and subscriber in one process. The value itself is handed
/// over when the subscriber lets its callback run on the publisher's thread; else the encoded buffer, without copying it.
pub(crate) trait LocalChannel<M: Message>: Send + Sync {
    /// The number of earlier samples that the subscriber wants.
    fn late(&self) -> u32;
    /// Announces a history of this many samples.
    fn expect_history(&self, samples: usize);
    /// `true` if samples go to a callback, on the publisher's thread or the port's own; otherwise they wait to be taken.
    fn calls_back(&self) -> bool;
    /// `true` if the value itself is taken, on the publisher's thread.
    fn wants_value(&self) -> bool;
    /// Takes the value. If it has to wait, it is charged to the channel's account.
    fn value(&self, info: SampleInfo, value: &M::Value, account: &Arc<Account>);
    /// The same with the encoded message.
    fn buffer(&self, info: SampleInfo, buffer: &Arc<Buffer>, account: &Arc<Account>);
}

/// All ports of this process, by which channels of the carrier `local` find their other end.
pub(crate) struct LocalPorts {
    publishers: OnceLock<Mutex<HashMap<PortRef, Arc<dyn AnyPublisher>>>>,
    subscribers: OnceLock<Mutex<HashMap<PortRef, Arc<dyn AnySubscriber>>>>,
}

impl LocalPorts {
    pub(crate) fn publishers(&self) -> MutexGuard<'_, HashMap<PortRef, Arc<dyn AnyPublisher>>> {
        self.publishers.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner())
    }
    pub(crate) fn subscribers(&self) -> MutexGuard<'_, HashMap<PortRef, Arc<dyn AnySubscriber>>> {
        self.subscribers.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner())
    }
}

pub(crate) static LOCAL: LocalPorts = LocalPorts { publishers: OnceLock::new(), subscribers: OnceLock::new() };
