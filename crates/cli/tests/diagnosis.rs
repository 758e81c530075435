//! Seeded faults: `why` and `doctor` name each of them, and find nothing wrong with a healthy channel or host.
#![allow(clippy::unwrap_used)]

mod answer;
mod channels;
mod host;
mod pair;
mod part;
mod space;
mod tree;
