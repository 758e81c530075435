//! Proxies: stages that scale a stream in time (every n-th sample) or in space (smaller pictures), at the publisher, at
//! the subscriber or at a relay (P-02, P-03, P-07). Pure.
//!
//! Scaling and its place are stated when a flow opens (`Request`), not in each sample. A proxy
//! never changes a sample's identity: port, incarnation, sequence number and time stamp stay those of its source.

mod changes;
mod gate;
pub mod handover;
mod picture;
pub mod scaler;
mod selection;

pub use changes::{ProxyChangeError, ProxyChanges};
pub(crate) use gate::{Gate, Passage, Role};
pub use picture::{Picture, PictureError};
pub use selection::{Selection, SelectionError};

use crate::channel::Channel;
use crate::control::NodeId;
use qos::{Place, Qos, Scale};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Scaling that a subscriber wants of a stream, and its place (P-08).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Proxy {
    /// The samples wanted.
    #[serde(skip_serializing_if = "Selection::is_all")]
    pub selection: Selection,
    /// Pictures of at most this size; point sets of at most as many points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub picture: Option<Picture>,
    /// The place.
    pub place: Place,
}

impl Proxy {
    /// The scaling that a subscriber's QoS asks for. A rate in hertz needs the publisher's period, which is the deadline that
    /// it offers; without one, all samples come.
    pub fn of(qos: &Qos, period: Option<Duration>) -> Self {
        let selection = match qos.scale {
            Scale::Every(n) => Selection::every(n),
            Scale::Rate { p, q } => Selection::rate(p, q),
            Scale::Millihertz(rate) => Ok(period.map_or(Selection::ALL, |period| Selection::of_rate(rate, period))),
        };
        let picture = qos.picture.and_then(Picture::of);
        Self { selection: selection.unwrap_or_default(), picture, place: qos.place.clone() }
    }

    /// The scaling that a channel within a process does.
    pub(crate) fn made(channel: &Channel) -> Self {
        let place = channel.proxied.as_ref().map(|proxied| proxied.place.clone()).unwrap_or_default();
        Self { selection: channel.selection, picture: None, place }
    }

    /// `true` if the stream arrives whole, directly from its publisher.
    pub fn is_nothing(&self) -> bool {
        self.selection.is_all() && self.picture.is_none() && !self.place_is_relay()
    }

    /// `true` if it is at a relay.
    pub fn place_is_relay(&self) -> bool {
        matches!(self.place, Place::Relay(_))
    }

    /// A number that distinguishes the scaling besides the selection, and its relay; 0: there is none. Both ends of a
    /// multicast flow compute it, so that each scaled stream has a group of its own (Table 2 of the paper).
    pub(crate) fn number_of(&self) -> u64 {
        let picture = self.picture.map_or(0, |picture| u64::from(picture.width) << 16 | u64::from(picture.height));
        let name = self.place.relays().flat_map(str::bytes);
        // FNV-1a
        let relay = name.fold(0, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        picture ^ relay.rotate_left(23)
    }

    /// The selection of samples that are sent to a subscriber that asked for this proxy.
    pub fn sent(proxy: Option<&Self>) -> Selection {
        proxy.filter(|proxy| proxy.place != Place::Subscriber).map_or(Selection::ALL, |proxy| proxy.selection)
    }
}

/// A channel's proxy: its place and its scaling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proxied {
    /// The place.
    pub place: Place,
    /// The provenance that its samples carry.
    #[serde(flatten)]
    pub provenance: Provenance,
}

impl fmt::Display for Proxied {
    /// `every 10th sample at publisher`, as tools show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Provenance { selection, picture, .. } = self.provenance;
        match (selection.is_all(), picture) {
            (true, None) => f.write_str("whole")?,
            (true, Some(picture)) => write!(f, "{picture}")?,
            (false, None) => write!(f, "every {selection}")?,
            (false, Some(picture)) => write!(f, "every {selection}, {picture}")?,
        }
        write!(f, " at {}", self.place)
    }
}

/// Scaling of a stream on its way: the selection and picture, the first sample and the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The samples let through.
    #[serde(default, skip_serializing_if = "Selection::is_all")]
    pub selection: Selection,
    /// The largest picture that was let through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<Picture>,
    /// The first sample to which this may apply.
    pub from: u64,
    /// The node that has the proxy.
    pub node: NodeId,
}
