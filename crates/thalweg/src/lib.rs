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
//! The modules, each of which uses only those below it (`docs/rooms.toml`):
//!
//! | module | contents |
//! |---|---|
//! | `node` | nodes, publishers and subscribers as users hold them: where everything starts |
//! | `driver` | the threads of a node: control and readers |
//! | `settings` | the settings of a node |
//! | `session` | whether a broker has admitted the session that a port is part of |
//! | [`admin`] | requests between nodes, and YARP's administration grammar |
//! | `port` | one sample to all channels of a port, and from all of them; histories, policies, monitors |
//! | `pull` | questions to histories of other nodes |
//! | `handshake` | decides whether a channel opens |
//! | `event` | events of a node: matches, losses, warnings |
//! | `channel` | the unit of priority, from a port to a carrier: queue, send right, flow, sender threads, fragments, and which sample is new |
//! | [`control`] | the directory of nodes and their ports, and calls between nodes |
//! | `trace` | the steps of a sample's way as events, and where its time goes ([`stages`]) |
//! | [`carrier`] | the transports of a channel: `local`, `shm`, `tcp`, `udp`, `mcast`, or your own |
//! | [`codec`] | encoding and decoding of values |
//! | `wire` | the data frame, every byte of it |
//!
//! Beside them: [`config`] (settings from the environment and a file), [`profile`] (priorities of ports from a file), [`clock`] (two hosts' clocks compared), `thread` (scheduling of the
//! user's own threads), [`bottle`] (YARP's nested lists), `guard` (panics of the library's threads), and, with the feature `testing`,
//! `testing` (conformance suites, bodies of fuzz targets, and what tests outside need of the private modules).
//!
//! Public are [`Node`] and what it gives, and the modules with a link in this page; the others are the library's own.
//!
//! `docs/data-path.md` follows one sample through them, with thread, lock and allocation at each step; `docs/terms.md` is the
//! glossary.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::disallowed_methods))] // tests and their helpers

pub mod admin;
pub mod bottle;
pub mod carrier;
mod channel;
pub mod clock;
pub mod codec;
pub mod config;
pub mod control;
mod driver;
mod error;
mod event;
mod guard;
mod handshake;
mod node;
mod port;
pub mod profile;
mod pull;
mod session;
mod settings;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod thread;
mod trace;
mod wire;

pub use carrier::Around;
pub use channel::bucket::Limit;
pub use channel::flow::Batching;
pub use channel::history::{Absent, AbsentReason, Query, QueryError};
pub use channel::parity::Redundancy;
pub use channel::{Change, ChannelReport, InstanceReport, InstanceState, Outcome, PortRef, SampleInfo, proxy};
pub use control::Network;
pub use error::{Error, Result};
pub use event::{Event, EventReader, Events};
pub use node::{
    Body, Client, Descriptor, Loan, Mode, Node, Origin, OwnedLoan, Publisher, PublisherBuilder, PullFrom, Pulled,
    Remote, Server, Subscriber, SubscriberBuilder, WaitSet, Waitable,
};
pub use port::{PolicyCounts, Published, PublisherInfo, Sample, SubscriberState, TakenSample, monitor};
pub use qos;
pub use session::{Admission, AgentSocket, Asking, Question};
pub use settings::{DiscoverySource, PortLimits, RelayLimits, Settings};
pub use thread::schedule_this_thread;
pub use trace::stages;

/// The Rust in README.md, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

/// The Rust in the pages, as tests. A page with Rust that is not here fails crates/cli/tests/documents.rs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/administration.md")]
#[doc = include_str!("../../../docs/pull.md")]
#[doc = include_str!("../../../docs/sessions.md")]
#[doc = include_str!("../../../docs/types.md")]
pub struct Pages;
