//! Parameters of a carrier that the two ends of a channel exchange while they open it.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Carrier parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parameters {
    /// UDP: the port this end's socket is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_port: Option<u16>,
    /// UDP: bytes that the receiver's socket buffer holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<u32>,
    /// Set for a flow that is made reliable by retransmits: the number of its first message for this subscriber. Absent:
    /// lost messages are not retransmitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
    /// The same: messages that the publisher keeps without an acknowledgement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Reliable datagrams to one subscriber: bytes of messages that it accepts beyond those delivered. Present: it
    /// sends receipts if the publisher asks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes: Option<u64>,
    /// The same: it takes several samples in one datagram.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub batches: bool,
    /// The same: messages in it may have short headers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub short_headers: bool,
    /// The same, from the publisher: acknowledgements end with a receipt, and come after this many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipts: Option<u32>,
    /// Shared memory: samples that the subscriber may hold at once besides those that wait in the ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<u32>,
    /// Multicast: group and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<SocketAddr>,
    /// Multicast, of a subscriber: the channel opens only when a probe came through.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub probe: bool,
    /// Data of added carriers, in their own format.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other: Vec<u8>,
}
