//! Priorities of live channels: what packets and threads really get, seen from outside the library (packet capture,
//! /proc), and that nothing is lost, overtaken or connected anew by a change.
#![allow(clippy::unwrap_used)] // all of this is test

mod changes;
mod marks;
mod pair;
mod threads;
