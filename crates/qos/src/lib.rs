//! QoS policies and quantities: promises as values. Pure: no clock, no I/O.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::disallowed_methods))] // tests and their helpers

pub mod admission;
pub mod analysis;
pub mod assignment;
pub mod blocking;
pub mod contract;
pub mod control;
pub mod expression;
pub mod gathering;
mod nearest;
pub mod network;
#[cfg(feature = "placement")]
pub mod placement;
pub mod plan;
mod policy;
pub mod priority;
mod quantity;
pub mod simulate;
pub mod system;
#[cfg(feature = "placement")]
pub mod testing;
pub mod verification;

pub use expression::Filter;
pub use nearest::{distance, nearest};
pub use policy::{
    Contradiction, DestinationOrder, Durability, Liveliness, LivelinessKind, Mismatch, Ownership, Place, PlaceError,
    PolicyError, PolicyName, PullBuffer, QUEUE_BYTES, Qos, Queue, Reliability, ResourceLimit, ResourceLimits,
    SAMPLE_BYTES, Scale, fnmatch, match_qos, partitions_meet,
};
pub use priority::Class;
pub use quantity::{
    QuantityError, parse_bit_rate, parse_bytes, parse_duration, parse_rate, parse_share, show_bit_rate, show_time,
};
