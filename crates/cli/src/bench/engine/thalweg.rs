//! The library as an engine: nodes, ports and channels as a user opens them.
//!
//! The two processes meet on a control [`line`] that carries the terms and the results. They find each other's ports
//! by Thalweg's own discovery, in a realm of their own. Callbacks take the samples on the receiving threads, which is
//! the fast way; the main threads sleep meanwhile.

mod fanout;
mod latency;
mod line;
mod start;
mod throughput;

use super::{Engine, Settings};
use crate::bench::Error;
use crate::bench::arguments::{Carrier, name_of};
use crate::bench::figures::{Fanout, Latency, Start, Throughput};
use baseline::{Payload, Terms, meeting, payload};
use linux::poll::wait_readable;
use qos::{Queue, Reliability};
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use thalweg::admin::Request;
use thalweg::codec::Raw;
use thalweg::{Node, Published, Publisher};
use thalweg::{PublisherBuilder, SubscriberBuilder};

const PATIENCE: Duration = Duration::from_secs(30);
/// Message of an end to the other one: its part succeeded.
const PASSED: u64 = 1;
const FAILED: u64 = 0;

/// The library.
pub(super) struct Thalweg;

impl Engine for Thalweg {
    fn name(&self) -> &'static str {
        "thalweg"
    }

    fn ping(&self, settings: &Settings) -> Result<Latency, Error> {
        check(settings, &settings.terms)?;
        let meter = match settings.carrier {
            Carrier::Local => latency::local(settings)?,
            _ => latency::ping(&settings.meeting(self.name(), "latency"), settings)?,
        };
        Ok(Latency::new(self.name(), settings, &meter))
    }

    fn pong(&self, settings: &Settings) -> Result<(), Error> {
        latency::pong(&settings.meeting(self.name(), "latency"), two_ends(settings)?)
    }

    fn send(&self, settings: &Settings) -> Result<Throughput, Error> {
        let settings = two_ends(settings)?;
        check(settings, &settings.terms)?;
        throughput::send(self.name(), settings)
    }

    fn receive(&self, settings: &Settings) -> Result<(), Error> {
        throughput::receive(&settings.meeting(self.name(), "throughput"), two_ends(settings)?)
    }

    fn start(&self, settings: &Settings) -> Result<Start, Error> {
        let settings = two_ends(settings)?;
        check(settings, &settings.terms)?;
        start::start(&settings.meeting(self.name(), "start"), self.name(), settings)
    }

    fn stand_by(&self, settings: &Settings) -> Result<(), Error> {
        start::stand_by(&settings.meeting(self.name(), "start"), two_ends(settings)?)
    }

    fn publish(&self, settings: &Settings) -> Result<Fanout, Error> {
        let settings = two_ends(settings)?;
        check(settings, &settings.terms)?;
        let meter = fanout::publish(&settings.meeting(self.name(), "fanout"), settings)?;
        Ok(Fanout::new(self.name(), settings, &meter))
    }

    fn subscribe(&self, settings: &Settings) -> Result<(), Error> {
        fanout::subscribe(&settings.meeting(self.name(), "fanout"), two_ends(settings)?)
    }
}

/// Accepts datagrams of any size: the library fragments them.
fn check(settings: &Settings, terms: &Terms) -> Result<(), Error> {
    let like = match settings.carrier {
        Carrier::Tcp => baseline::Carrier::Tcp,
        Carrier::Udp | Carrier::Shm | Carrier::Local => baseline::Carrier::Shm,
        Carrier::Unix => {
            let text = "engine \"thalweg\" has no carrier \"unix\"; allowed: tcp, udp, shm, local (latency only)";
            return Err(Error::Usage(text.to_owned()));
        }
    };
    Ok(terms.check(like)?)
}

fn two_ends(settings: &Settings) -> Result<&Settings, Error> {
    if settings.carrier == Carrier::Local {
        let text = "carrier \"local\" has both ends in one process, for latency with --role ping or both; \
                    allowed here: tcp, udp, shm";
        return Err(Error::Usage(text.to_owned()));
    }
    Ok(settings)
}

/// Sends the terms and the realm to the other end.
fn tell(control: &UnixStream, terms: &Terms) -> io::Result<()> {
    meeting::tell(control, terms)?;
    meeting::write_words(control, &[std::process::id().into()])
}

/// Receives the terms and the realm from the other end.
fn hear(control: &UnixStream, settings: &Settings) -> Result<(Terms, u64), Error> {
    let terms = meeting::hear(control)?;
    check(settings, &terms)?;
    let [realm] = meeting::read_words(control)?;
    Ok((terms, realm))
}

/// Sleeps until the other end writes.
fn hear_words<const N: usize>(control: &UnixStream) -> Result<[u64; N], Error> {
    while !wait_readable(control, Some(PATIENCE))? {}
    meeting::read_words(control).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::Peer("the other process left before the end".to_owned()),
        _ => error.into(),
    })
}

/// A node for one role and the settings of its ports.
struct Ports {
    node: Node,
    carrier: Carrier,
    size: usize,
    reliable: bool,
}

impl Ports {
    /// Opens a node of this process in the realm of the measurement, or takes the one that `found` the other end.
    fn open(role: &str, realm: u64, carrier: Carrier, terms: &Terms, found: Option<Node>) -> Result<Self, Error> {
        let size = terms.size;
        if let Some(node) = found {
            return Ok(Self { node, carrier, size, reliable: false });
        }
        let settings = thalweg::Settings {
            name: format!("{role}-{}", std::process::id()),
            realm: format!("bench-{realm}"),
            ..thalweg::Settings::default()
        };
        Ok(Self { node: Node::with_settings(settings)?, carrier, size, reliable: false })
    }

    /// Retransmits lost samples if `reliable`.
    fn reliable(self, reliable: bool) -> Self {
        Self { reliable, ..self }
    }

    /// Switches on the measurement of stages at this end, for every sample of its channels.
    fn measure(&self, topics: [&str; 2]) -> Result<(), Error> {
        for topic in topics {
            let request = Request::Measure { topic: topic.to_owned(), every: 1 };
            self.node.ask(self.node.id(), &request, PATIENCE)?;
        }
        Ok(())
    }

    fn publisher(&self, topic: &str) -> PublisherBuilder<Raw> {
        let builder = self.node.publisher(topic).carriers([name_of(self.carrier)]);
        builder.queue(Queue::Block { limit: 16, up_to_us: 1_000_000 }).max_message(self.largest())
    }

    fn subscriber(&self, topic: &str) -> SubscriberBuilder<Raw> {
        let builder = self.node.subscriber(topic).carriers([name_of(self.carrier)]).max_message(self.largest());
        let may_lose = self.carrier == Carrier::Udp && !self.reliable;
        if may_lose { builder.reliability(Reliability::BestEffort) } else { builder }
    }

    fn largest(&self) -> u32 {
        u32::try_from(self.size).unwrap_or(u32::MAX)
    }
}

/// Waits until `publisher` has all its channels.
fn connected(publisher: &Publisher<Raw>, count: usize) -> Result<(), Error> {
    if publisher.wait_connected(count, PATIENCE) {
        return Ok(());
    }
    let (topic, found) = (publisher.topic(), publisher.connected());
    Err(Error::Peer(format!("{found} of {count} subscribers of {topic} were connected within {PATIENCE:?}")))
}

/// Checks that a sample is on its way to all of `count` subscribers.
#[inline]
fn taken(published: Published, count: u32) -> Result<(), Error> {
    if published.sent + published.queued == count {
        return Ok(());
    }
    Err(Error::Peer(format!("a sample was not taken for all of {count} subscribers: {published:?}")))
}

/// A publisher, and its work on the payload of one message after the other.
struct Turn {
    publisher: Publisher<Raw>,
    payload: Payload,
    copies_out: bool,
    own: Vec<u8>, // where a payload is copied from, and to when it was received in memory that the peer shares
    number: u64,
}

impl Turn {
    fn new(publisher: Publisher<Raw>, terms: &Terms, carrier: Carrier) -> Self {
        let copies_out = carrier == Carrier::Shm && terms.payload == Payload::Copied;
        Self { publisher, payload: terms.payload, copies_out, own: vec![0; terms.size], number: 0 }
    }

    #[inline]
    fn send(&mut self) -> Result<(), Error> {
        let published = match self.payload {
            Payload::Copied => self.publisher.publish(&self.own)?,
            Payload::Untouched => self.publisher.loan(self.own.len())?.publish()?,
            Payload::Checked => {
                let mut loan = self.publisher.loan(self.own.len())?;
                payload::fill(loan.bytes_mut(), self.number);
                loan.publish()?
            }
        };
        taken(published, 1)
    }

    #[inline]
    fn receive(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() != self.own.len() {
            return Err(Error::Peer(format!("a message has {} bytes, not {}", bytes.len(), self.own.len())));
        }
        if self.copies_out {
            self.own.copy_from_slice(bytes);
        }
        if self.payload == Payload::Checked { Ok(payload::verify(bytes, self.number)?) } else { Ok(()) }
    }
}
