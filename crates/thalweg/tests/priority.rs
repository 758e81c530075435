//! Priorities of live channels: the effect on packets and threads, seen from outside the library (packet capture,
//! /proc), without loss, overtaking or reconnection by a change.
#![allow(clippy::unwrap_used)] // all of this is test

mod changes;
mod inversion;
mod marks;
mod pair;
mod threads;
