//! Other middlewares behind one face ([`Engine`]; seed 004 §IV, `GlobalDataSpace`; D-01), and bridges between them and Thalweg.
//!
//! | module | contents |
//! |---|---|
//! | [`bridge`] | routes between a node's topics and those of an engine: opened on demand, by rules |
//! | `dds` | DDS, with Cyclone DDS (feature `rtps`) |
//! | [`mqtt`] | MQTT 5 (feature `mqtt`) |
//! | [`native`] | Thalweg as an engine |
//! | [`ros2`] | ROS 2 over Zenoh, as `rmw_zenoh` uses it (feature `zenoh`) |
//! | [`yarp`] | YARP (feature `yarp`) |
//! | [`zenoh`] | Zenoh (feature `zenoh`) |
//! | `zeromq` | ZeroMQ, on the system's library (feature `zeromq`) |
//! | [`engine`] | the face of every engine: publishers, subscribers, and what it enforces |
//!
//! With the feature `testing`, `testing` has the conformance suite that every engine passes.
//!
//! The seam is the port, not the carrier: a peer of another middleware cannot answer Thalweg's handshake, and inside RTPS our frames would
//! be understood by nobody. So a bridge is a node with ports of its own, and its channels keep all that channels have: marks, scheduling,
//! plans, `why`.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::disallowed_methods))] // tests and their helpers

pub mod bridge;
#[cfg(feature = "rtps")]
pub mod dds;
pub mod engine;
#[cfg(feature = "mqtt")]
pub mod mqtt;
pub mod native;
#[cfg(feature = "zenoh")]
pub mod ros2;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(feature = "yarp")]
pub mod yarp;
#[cfg(feature = "zenoh")]
pub mod zenoh;
#[cfg(feature = "zeromq")]
pub mod zeromq;

pub use bridge::Bridge;
pub use engine::{
    Abilities, Deliver, Endpoint, Engine, Error, Identity, Incompatible, MarkedUnit, Mismatches, Publisher, Refusals,
    Refused, Result, Sample, Subscriber, Support, Topic,
};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A poisoned lock means that a callback of a user panicked; what it guards is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
