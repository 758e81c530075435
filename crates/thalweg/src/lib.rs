//! Real-time publish/subscribe: nodes with ports that exchange typed samples of topics, on one host or between hosts.
//!
//! ```
//! use std::time::Duration;
//! use thalweg::Node;
//!
//! let node = Node::open("example")?;
//! let mut subscriber = node.subscriber::<String>("/greeting").open()?;
//! let mut publisher = node.publisher::<String>("/greeting").open()?;
//! assert!(publisher.wait_connected(1, Duration::from_secs(5)));
//!
//! publisher.publish(&"hello".to_owned())?;
//! let sample = subscriber.wait(Duration::from_secs(5)).expect("a sample within 5 s");
//! assert_eq!((sample.as_str(), sample.info().seq), ("hello", 1));
//! # Ok::<(), thalweg::Error>(())
//! ```
//!
//! The modules in the order in which a sample meets them, and then what lies beside its way:
//!
//! | module | what it holds |
//! |---|---|
//! | [`node`] | nodes and their settings: where everything starts |
//! | [`port`] | publishers and subscribers; one sample to all channels of a port, and from all of them |
//! | [`codec`] | how a value becomes bytes and bytes a value |
//! | [`channel`] | what lies between a port and a carrier: queue, send right, flow, fragments, and which sample is new |
//! | [`wire`] | the data frame, every byte of it |
//! | [`carrier`] | how a channel travels: `local`, `shm`, `tcp`, `udp`, `mcast`, or your own |
//! | `driver` | the threads; only here are clocks read and carriers called |
//! | [`handshake`] | decides whether a channel comes to be |
//! | [`pull`] | questions to histories of other nodes |
//! | [`control`] | who is there, what they have, and calls between nodes |
//! | [`admin`] | what one node may ask of another, and YARP's administration grammar |
//! | [`profile`] | priorities of ports from a file |
//! | [`clock`] | two hosts' clocks compared |
//! | [`stages`] | where the time of a channel's samples goes |
//! | `thread` | scheduling of the user's own threads |
//! | [`trace`] | the steps of a sample's way as events |
//! | [`testing`] | conformance suites, bodies of fuzz targets, parts to build worlds from |
//!
//! `docs/data-path.md` follows one sample through them, with thread, lock and allocation at each step; `docs/terms.md` says
//! what the words mean.
pub mod admin;
pub mod carrier;
pub mod channel;
pub mod clock;
pub mod codec;
pub mod control;
mod driver;
mod error;
mod event;
pub mod handshake;
pub mod node;
pub mod port;
pub mod profile;
pub mod pull;
pub mod stages;
pub mod testing;
mod thread;
pub mod trace;
pub mod wire;

pub use channel::bucket::Limit;
pub use channel::flow::Batching;
pub use channel::history::Query;
pub use channel::parity::Redundancy;
pub use control::Network;
pub use driver::Around;
pub use error::{Error, Result};
pub use event::{Event, EventReader, Events};
pub use node::{DiscoverySource, Node, PortLimits, RelayLimits, Settings};
pub use port::{
    Client, Outcome, Published, Publisher, PullFrom, Sample, SampleInfo, Server, Subscriber, TakenSample, WaitSet,
};
pub use qos;
pub use thread::schedule_this_thread;

/// The Rust in README.md, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
