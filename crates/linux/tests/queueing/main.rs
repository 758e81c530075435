//! Queues for real: in network namespaces, against `tc`, with packets.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test

mod adjusting;
mod boundary;
mod counters;
mod elsewhere;
mod labels;
mod leaves;
mod packets;
mod police;
mod reading;
mod restoring;
mod segments;
mod super_packets;
mod tunnels;
mod waiting;
mod world;
