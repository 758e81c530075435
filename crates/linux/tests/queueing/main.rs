//! Queues for real: in network namespaces, against `tc`, with packets.
#![allow(clippy::unwrap_used)] // all of this is test

mod reading;
#[allow(dead_code)] // FIXME
mod world;
