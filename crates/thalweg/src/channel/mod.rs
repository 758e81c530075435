//! Channels: pure state machines between ports and carriers.

pub mod accept;
pub mod fragment;
