//! Counters of a channel, the outcome of `publish` on it, and its report for tools.

use super::End;
use super::proxy::Proxied;
use crate::carrier;
use qos::ResourceLimit;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The outcome of `publish` on one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Handed to the kernel, the ring or the subscriber.
    Sent,
    /// Waits in the channel's queue.
    Queued,
    /// Waits, and older samples were dropped for it (keep-last).
    DroppedOldest {
        /// The number of dropped samples: several, if the new one is larger.
        dropped: u32,
        /// The limit that left no room beside them.
        limit: ResourceLimit,
    },
    /// Not taken: the queue is full, and its policy drops no sample, or has none left to drop; or it is too large, or beyond the contract.
    Refused {
        /// The limit that left no room for it.
        limit: ResourceLimit,
    },
    /// Lost: the network said that the peer cannot be reached now (datagrams).
    Unreachable,
    /// Not taken: the channel is broken and not yet connected again.
    NotConnected,
}

/// Counters of a channel at this end.
#[derive(Debug, Default)]
pub struct Counters {
    /// Samples sent or queued (publisher) or delivered (subscriber).
    pub samples: AtomicU64,
    /// Their payload bytes.
    pub bytes: AtomicU64,
    /// Samples lost on the way (subscriber) or dropped by the queue's policy (publisher).
    pub lost: AtomicU64,
    /// Samples that were published while the subscriber was cut off.
    pub missed: AtomicU64,
    /// The missed samples that came by a history; [`u64::MAX`] while the history is not over.
    pub made_up: AtomicU64,
    /// Sequence number of the last sample.
    pub last_seq: AtomicU64,
    /// Datagrams that were dropped because they were no frame of this flow (subscriber).
    pub malformed: AtomicU64,
    /// Samples that were not taken because the subscriber takes no messages of that size (publisher).
    pub too_large: AtomicU64,
    /// Samples that were not taken because they are beyond the contract (publisher).
    pub policed: AtomicU64,
    /// Samples that were dropped or refused because waiting samples have too many bytes (publisher).
    pub over_bytes: AtomicU64,
    /// Samples that were dropped or refused because the peer or the node holds too much (publisher).
    pub over_memory: AtomicU64,
    /// Messages that came by a retransmit (subscriber, reliable flows over datagrams; the publisher's flow counts its own).
    pub repaired: AtomicU64,
    /// Messages given up, because they could not be retransmitted in time (the same).
    pub skipped: AtomicU64,
    /// Acknowledgements sent (the same).
    pub acknowledgements: AtomicU64,
    /// Samples that its proxy left out because they could not be made smaller (where the proxy is).
    pub unscalable: AtomicU64,
    /// Losses that were reported to the subscriber's owner.
    pub(crate) told: ReportedLosses,
}

impl Counters {
    /// Samples that were not delivered on this channel: lost on the way, dropped, or missed. One thread counts, so loads and stores
    /// suffice, without a locked instruction.
    pub(crate) fn not_delivered(&self) -> u64 {
        self.lost.load(Relaxed) + self.missed.load(Relaxed).saturating_sub(self.made_up.load(Relaxed))
    }

    #[cold]
    pub(crate) fn dropped(&self, outcome: Outcome) {
        let (count, limit) = match outcome {
            Outcome::DroppedOldest { dropped, limit } => (dropped, Some(limit)),
            Outcome::Refused { limit } => (1, Some(limit)),
            _ => (1, None),
        };
        let add = |counter: &AtomicU64| counter.store(counter.load(Relaxed) + u64::from(count), Relaxed);
        add(&self.lost);
        match limit {
            Some(ResourceLimit::Bytes) => add(&self.over_bytes),
            Some(ResourceLimit::PeerMemory | ResourceLimit::NodeMemory) => add(&self.over_memory),
            _ => {}
        }
    }
}

/// The losses of a channel that were reported.
#[derive(Debug, Default)]
pub(crate) struct ReportedLosses {
    told: AtomicU64,
    /// The number lost at the previous look. Samples that were only reordered have come since.
    before: AtomicU64,
}

impl ReportedLosses {
    /// Takes the number of samples `lost` so far. Gives the number to be reported now, and the number that are certainly lost.
    pub(crate) fn look(&self, lost: u64) -> Option<(u64, u64)> {
        let certain = lost.min(self.before.swap(lost, Relaxed));
        let told = self.told.fetch_max(certain, Relaxed);
        (certain > told).then(|| (certain - told, certain))
    }
}

/// The state of a channel, for tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChannelReport {
    /// The topic.
    pub topic: String,
    /// Publisher's port name.
    pub publisher: String,
    /// Subscriber's port name.
    pub subscriber: String,
    /// The carrier.
    pub carrier: carrier::Name,
    /// The reporting end.
    pub end: End,
    /// Samples sent or delivered.
    pub samples: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Samples lost or dropped.
    pub lost: u64,
    /// Samples that wait at this end.
    pub waiting: u64,
    /// Datagrams dropped because they were no frame of this flow.
    #[serde(default, rename = "strange")]
    pub malformed: u64,
    /// Lost samples that were larger than the subscriber's `max_message`.
    #[serde(default)]
    pub too_large: u64,
    /// Lost samples that the publisher refused because they were beyond the contract.
    #[serde(default)]
    pub policed: u64,
    /// Bytes that wait at this end.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// Bytes that may wait at this end.
    #[serde(default)]
    pub most_bytes: u64,
    /// Samples that were dropped, refused or rejected at this end because waiting samples have too many bytes.
    #[serde(default)]
    pub over_bytes: u64,
    /// Samples that were dropped, refused or rejected at this end because the peer or the node holds too much.
    #[serde(default)]
    pub over_memory: u64,
    /// For reliable flows over datagrams: datagrams retransmitted (publisher), messages that came by a retransmit (subscriber).
    #[serde(default)]
    pub repaired: u64,
    /// For reliable flows over datagrams: messages given up, because they were too old to be of use or their queue's policy
    /// dropped them.
    #[serde(default)]
    pub skipped: u64,
    /// For reliable flows over datagrams: acknowledgements received (publisher) or sent (subscriber).
    #[serde(default)]
    pub acknowledgements: u64,
    /// Samples that its proxy left out because they could not be made smaller (at the end where the proxy is).
    #[serde(default)]
    pub unscalable: u64,
    /// Scaling of the channel, and its place; `None`: it is not scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxied: Option<Proxied>,
    /// At a relay's end: the port with which the relay takes these samples from their publisher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
}

impl ChannelReport {
    /// Samples that were lost between the ends, by the report of the subscriber's. Over `shm` that is none: a gap in the ring is what the
    /// publisher's end has dropped there, and counts as lost itself.
    pub fn lost_on_the_way(&self) -> u64 {
        if self.carrier == carrier::Name::Shm { 0 } else { self.lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_once_and_when_they_are_certain() {
        let told = ReportedLosses::default();
        assert_eq!([0, 3, 1].map(|lost| told.look(lost)), [None, None, Some((1, 1))], "two only came late");
        assert_eq!([5, 5, 5, 9].map(|lost| told.look(lost)), [None, Some((4, 5)), None, None]);
        assert_eq!([4, 9, 9].map(|lost| told.look(lost)), [None, None, Some((4, 9))]);
    }
}
