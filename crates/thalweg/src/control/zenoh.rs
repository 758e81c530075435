//! Zenoh.
