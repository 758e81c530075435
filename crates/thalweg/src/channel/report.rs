//! The state of a channel, for tools.

use super::End;
use super::proxy::Proxied;
use crate::carrier;
use serde::{Deserialize, Serialize};

/// The state of a channel, for tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    #[serde(default)]
    pub strange: u64,
    /// Lost samples that were larger than the subscriber's `max_message`.
    #[serde(default)]
    pub too_large: u64,
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
