//! Engines between two programs, and bridges between realms and engines.
#![allow(clippy::unwrap_used)] // all of this is test

mod bridges;
mod conformance;
mod peers;
mod ros;
mod running;
mod tables;
mod world;
