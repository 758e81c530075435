//! Real-time publish/subscribe.
pub mod carrier;
pub mod channel;
pub mod codec;
pub mod control;
pub mod testing;
pub mod wire;
