//! QoS policies and quantities: promises as values. Pure: no clock, no I/O.

pub mod blocking;
pub mod contract;
pub mod network;
mod policy;
pub mod priority;
mod quantity;

pub use policy::{Class, Qos, Queue, Reliability};
pub use quantity::{QuantityError, parse_bit_rate, parse_bytes, parse_duration, parse_rate, parse_share};
