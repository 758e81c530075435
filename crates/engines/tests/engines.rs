//! Engines between two programs, and bridges between realms and engines.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test
#![cfg_attr(not(any(feature = "zenoh", feature = "zeromq")), allow(dead_code))] // what tests of other engines share

mod conformance;
mod crowded;
mod manual;
mod program;
mod running;
mod tables;
mod world;

#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "mqtt")]
mod mqtt_world;

#[cfg(feature = "zenoh")]
mod bridges;
#[cfg(feature = "rtps")]
mod dds;
#[cfg(feature = "zenoh")]
mod marks;
#[cfg(feature = "zenoh")]
mod peers;
#[cfg(feature = "zenoh")]
mod ros;
#[cfg(all(feature = "mqtt", feature = "zenoh"))]
mod transit;
#[cfg(feature = "yarp")]
mod yarp;
#[cfg(feature = "zenoh")]
mod zenoh_world;
#[cfg(feature = "zeromq")]
mod zeromq;
#[cfg(feature = "zeromq")]
mod zmtp;
