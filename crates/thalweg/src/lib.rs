//! Real-time publish/subscribe.
pub mod admin;
pub mod carrier;
pub mod channel;
pub mod codec;
pub mod control;
mod driver;
mod error;
mod event;
pub mod handshake;
pub mod node;
pub mod port;
pub mod testing;
pub mod wire;

pub use channel::flow::Batching;
pub use error::{Error, Result};
pub use event::{Event, EventReader, Events};
pub use node::{DiscoverySource, Node, Settings};
pub use port::{Client, Outcome, Published, Publisher, Sample, SampleInfo, Server, Subscriber, TakenSample};
