//! The node and ports of either end, and their priority.

use super::CARRIERS;
use crate::error::{Error, Result};
use qos::priority::Changes;
use qos::{Queue, Reliability};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thalweg::admin::EndReport;
use thalweg::codec::Raw;
use thalweg::node::DiscoverySource;
use thalweg::port::{PublisherBuilder, SubscriberBuilder};
use thalweg::{Node, Publisher};

/// Settings of either role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct End {
    /// `ping` or `pong`.
    pub name: String,
    /// Realm of both.
    pub realm: String,
    /// Where it listens; `None`: both are on one host.
    pub listen: Option<SocketAddr>,
    /// The file of both nodes' addresses; `None`: both are on one host.
    pub nodes: Option<PathBuf>,
}

/// Both directions of all carriers are connected.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ready {
    pub ready: bool,
}

/// What is to become of the priority of one carrier's channels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Priority {
    /// The carrier.
    pub carrier: String,
    /// Changes, the same at all four ends.
    pub changes: Changes,
}

/// What has become of the ends of this process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Priorities {
    pub ends: Vec<EndReport>,
}

/// Largest payload, in bytes.
pub const LARGEST: usize = 4096;
/// Samples that may wait at the sender: more than are sent while a stream waits to repeat what was lost.
const WAITING: u32 = 1024;
const CONNECT: Duration = Duration::from_secs(25);
/// Pause between two looks at a channel that is to open.
const PAUSE: Duration = Duration::from_millis(5);

/// The node of an end.
pub struct Ends {
    node: Node,
    me: &'static str,
}

impl Ends {
    pub fn open(end: &End, me: &'static str) -> Result<Self> {
        let settings = thalweg::Settings {
            name: end.name.clone(),
            realm: end.realm.clone(),
            listen: end.listen.into_iter().collect(),
            discovery: end.nodes.clone().map_or(DiscoverySource::Automatic, DiscoverySource::Static),
            ..thalweg::Settings::default()
        };
        Ok(Self { node: Node::with_settings(settings)?, me })
    }

    /// `from` is who sends: `ping` or `pong`.
    pub fn publisher(&self, carrier: &str, from: &str) -> PublisherBuilder<Raw> {
        let builder = self.node.publisher(&format!("/lab/{carrier}/{from}")).named(port(self.me, carrier, from));
        builder.carriers([carrier]).queue(Queue::KeepLast(WAITING)).max_message(LARGEST as u32)
    }

    pub fn subscriber(&self, carrier: &str, from: &str) -> SubscriberBuilder<Raw> {
        let builder = self.node.subscriber(&format!("/lab/{carrier}/{from}")).named(port(self.me, carrier, from));
        let builder = builder.carriers([carrier]).max_message(LARGEST as u32);
        if carrier == "udp" { builder.reliability(Reliability::BestEffort) } else { builder }
    }

    /// Waits until the other end takes what this publisher sends.
    pub fn connected(&self, publisher: &Publisher<Raw>) -> Result {
        if publisher.wait_connected(1, CONNECT) {
            return Ok(());
        }
        Err(Error::Failed(format!("{} found no subscriber within {CONNECT:?}", publisher.name())))
    }

    /// Changes both ends of a carrier's channels that are in this process.
    pub fn set_priority(&self, priority: &Priority) -> Result<Priorities> {
        let Priority { carrier, changes } = priority;
        if !CARRIERS.contains(&carrier.as_str()) {
            return Err(Error::Usage(format!("carrier {carrier:?}: there are {}", CARRIERS.join(", "))));
        }
        let other = if self.me == "ping" { "pong" } else { "ping" };
        let set = |from: &str| {
            let (port, other) = (port(self.me, carrier, from), port(other, carrier, from));
            let until = Instant::now() + CONNECT;
            loop {
                let end = self.node.set_priority(&port, &other, changes)?;
                if !end.carrier.is_empty() {
                    return Ok(end);
                }
                // A publisher may know of the channel a moment earlier than its subscriber. One that is only stored would
                // leave the two arms of an experiment alike.
                if Instant::now() > until {
                    return Err(Error::Failed(end.note));
                }
                std::thread::sleep(PAUSE);
            }
        };
        Ok(Priorities { ends: ["ping", "pong"].into_iter().map(set).collect::<Result<_>>()? })
    }
}

/// Name of the port that `who` has on what `from` sends.
fn port(who: &str, carrier: &str, from: &str) -> String {
    format!("/{who}/{carrier}/{from}s")
}
