//! Seeded faults, and whether `why` and `doctor` name them: each by its own name, and nothing on what is healthy.
#![allow(clippy::unwrap_used)]

mod channels;
mod host;
mod pair;
mod part;
mod space;
mod tree;
