//! Ports: publishers and subscribers, with their samples.

mod histories;
mod inlet;
mod joins;
mod local;
pub mod monitor;
mod outlet;
mod policy;
mod round;
mod sample;

pub(crate) use histories::{Histories, is_kept_by_instance, kept_at_subscriber};
pub(crate) use inlet::{AnyInlet, Inlet, Rejection, Sink};
pub use inlet::{PublisherInfo, SubscriberState};
pub(crate) use joins::Reply;
pub(crate) use local::LOCAL;
pub(crate) use outlet::{AnyOutlet, Outflow, Outlet, Place, Way};
pub use policy::PolicyCounts;
pub(crate) use policy::{Judge, News, Writer, judge_of_publisher, judge_of_subscriber};
pub(crate) use sample::Storage;
pub use sample::{Sample, TakenSample};

use crate::channel::Outcome;
use qos::ResourceLimit;

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
