//! Real-time publish/subscribe.
pub mod carrier;
pub mod codec;
pub mod control;
#[cfg(test)]
mod testing;
