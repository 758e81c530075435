//! The node and ports of either end, and their priority.

use super::route::{self, ALL_BUT_ONE_OF, Route};
use crate::error::{Error, Result};
use crate::part::node::NodeSettings;
use crate::part::stages::Measured;
use qos::priority::Changes;
use qos::{Place, Queue, Reliability};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use thalweg::admin::EndReport;
use thalweg::codec::Raw;
use thalweg::{Node, Publisher, Subscriber};
use thalweg::{PublisherBuilder, SubscriberBuilder};

/// Settings of either role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct End {
    /// Its node.
    pub node: NodeSettings,
    /// All routes.
    pub routes: Vec<Route>,
}

/// Both directions of all routes are connected.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    pub ready: bool,
}

/// A change of the priority of one route's channels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Priority {
    /// The route.
    pub route: String,
    /// Changes, the same at all four ends.
    pub changes: Changes,
}

/// The ends of this process after a change.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Priorities {
    pub ends: Vec<EndReport>,
}

/// Largest payload, in bytes.
pub(super) const LARGEST: usize = 8192;
/// Samples that may wait at the sender: more than are sent while a stream repeats a lost segment.
const WAITING: u32 = 1024;
const CONNECT: Duration = Duration::from_secs(25);
/// Pause between two looks at a channel that is to open.
const PAUSE: Duration = Duration::from_millis(5);

/// The node of an end.
pub(super) struct Ends {
    node: Node,
    me: &'static str,
    routes: Vec<Route>,
}

impl Ends {
    pub(super) fn open(end: &End, me: &'static str) -> Result<Self> {
        Ok(Self { node: end.node.open()?, me, routes: end.routes.clone() })
    }

    /// `from` is the sender: `ping` or `pong`.
    pub(super) fn publisher(&self, route: &str, carrier: &str, from: &str) -> PublisherBuilder<Raw> {
        let builder = self.node.publisher(&topic(route, from)).named(port(self.me, route, from));
        builder.carriers([carrier]).queue(Queue::KeepLast(WAITING)).max_message(LARGEST as u32)
    }

    pub(super) fn subscriber(&self, route: &str, carrier: &str, from: &str) -> SubscriberBuilder<Raw> {
        let builder = self.node.subscriber(&topic(route, from)).named(port(self.me, route, from));
        let builder = builder.carriers([carrier]).max_message(LARGEST as u32);
        if carrier == "udp" { builder.reliability(Reliability::BestEffort) } else { builder }
    }

    /// With a proxy at this place.
    pub(super) fn proxied(builder: SubscriberBuilder<Raw>, place: Option<&Place>) -> SubscriberBuilder<Raw> {
        match place {
            None => builder,
            Some(place) => builder.rate(ALL_BUT_ONE_OF - 1, ALL_BUT_ONE_OF).proxy(place.clone()),
        }
    }

    /// Waits until the other end takes this publisher's samples.
    pub(super) fn connected(&self, publisher: &Publisher<Raw>) -> Result {
        if publisher.wait_connected(1, CONNECT) {
            return Ok(());
        }
        Err(Error::Failed(format!("{} found no subscriber within {CONNECT:?}", publisher.name())))
    }

    /// Waits until a subscriber's proxy is where it is wanted: a relay that was found late is moved to.
    pub(super) fn placed(&self, subscriber: &Subscriber<Raw>, place: Option<&Place>) -> Result {
        let Some(place) = place else { return Ok(()) };
        let there = || {
            let channels = subscriber.channels();
            channels.len() == 1 && channels[0].proxied.as_ref().is_some_and(|proxied| proxied.place == *place)
        };
        if self.node.wait_until(CONNECT, there) {
            return Ok(());
        }
        let found: Vec<String> = subscriber
            .channels()
            .iter()
            .map(|c| c.proxied.as_ref().map_or("whole".into(), ToString::to_string))
            .collect();
        Err(Error::Failed(format!("{}: no proxy at {place} within {CONNECT:?}, but {found:?}", subscriber.name())))
    }

    /// Changes both ends of a route's channels that are in this process.
    pub(super) fn set_priority(&self, priority: &Priority) -> Result<Priorities> {
        let Priority { route, changes } = priority;
        route::find(&self.routes, route)?;
        let other = if self.me == "ping" { "pong" } else { "ping" };
        let set = |from: &str| {
            let (port, other) = (port(self.me, route, from), port(other, route, from));
            let until = Instant::now() + CONNECT;
            loop {
                let end = self.node.set_priority(&port, &other, changes)?;
                if !end.carrier.as_str().is_empty() {
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

    /// Times of the stages of a route's forward channel at this end, since the last call.
    pub(super) fn stages(&self, route: &str) -> Result<Measured> {
        Measured::take(&self.node, &topic(route, "ping"))
    }
}

/// The topic of the samples of `from`.
pub(crate) fn topic(route: &str, from: &str) -> String {
    format!("/lab/{route}/{from}")
}

/// Name of the port of the end `who` on the topic that `from` publishes.
fn port(who: &str, route: &str, from: &str) -> String {
    format!("/{who}/{route}/{from}s")
}
