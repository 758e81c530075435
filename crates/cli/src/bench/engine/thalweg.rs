//! The library as an engine: nodes, ports and channels as a user opens them.
//!
//! The two processes meet on a control [`Line`] that carries the terms and the results. They find each other's ports
//! by Thalweg's own discovery, in a realm of their own. Callbacks take the samples on the receiving threads, which is
//! the fast way; the main threads sleep meanwhile.

mod latency;
mod streams;
pub(in crate::bench) mod trials;

pub(super) use streams::{cpu_ns, processes};

use super::{Engine, Settings, tell_alone};
use crate::bench::figures::{Fanout, Latency, Start, Throughput};
use crate::bench::{Carrier, Error, name_of};
use baseline::Terms;
use baseline::meeting::{self, Meeting, write_words};
use linux::poll::wait_readable;
use qos::{Queue, Reliability};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg::admin::Request;
use thalweg::codec::Raw;
use thalweg::{Node, Published, Publisher, PublisherBuilder, Subscriber, SubscriberBuilder};

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
        streams::send(self.name(), settings)
    }

    fn receive(&self, settings: &Settings) -> Result<(), Error> {
        streams::receive(&settings.meeting(self.name(), "throughput"), two_ends(settings)?)
    }

    fn start(&self, settings: &Settings) -> Result<Start, Error> {
        let settings = two_ends(settings)?;
        check(settings, &settings.terms)?;
        start(&settings.meeting(self.name(), "start"), self.name(), settings)
    }

    fn stand_by(&self, settings: &Settings) -> Result<(), Error> {
        stand_by(&settings.meeting(self.name(), "start"), two_ends(settings)?)
    }

    fn publish(&self, settings: &Settings) -> Result<Fanout, Error> {
        let settings = two_ends(settings)?;
        check(settings, &settings.terms)?;
        let (meter, cpu_of_others) = streams::publish(&settings.meeting(self.name(), "fanout"), settings)?;
        Ok(Fanout::new(self.name(), settings, &meter).with_cpu_of_others(&meter, cpu_of_others))
    }

    fn subscribe(&self, settings: &Settings) -> Result<(), Error> {
        streams::subscribe(&settings.meeting(self.name(), "fanout"), two_ends(settings)?)
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
pub(super) fn tell(control: &UnixStream, terms: &Terms) -> io::Result<()> {
    meeting::tell(control, terms)?;
    meeting::write_words(control, &[std::process::id().into()])
}

/// Receives the terms and the realm from the other end.
pub(super) fn hear(control: &UnixStream, settings: &Settings) -> Result<(Terms, u64), Error> {
    let terms = meeting::hear(control)?;
    check(settings, &terms)?;
    let [realm] = meeting::read_words(control)?;
    Ok((terms, realm))
}

/// Sleeps until the other end writes.
pub(super) fn hear_words<const N: usize>(control: &UnixStream) -> Result<[u64; N], Error> {
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

    /// Opens a node that listens at its host's address.
    fn at_host(role: &str, realm: u64, terms: &Terms, settings: &Settings) -> Result<Self, Error> {
        let listen = settings.host.iter().map(|host| host.listen).collect();
        let node = Node::with_settings(thalweg::Settings {
            name: format!("{role}-{}", std::process::id()),
            realm: format!("bench-{realm}"),
            listen,
            ..thalweg::Settings::default()
        })?;
        Self::open(role, realm, settings.carrier, terms, Some(node))
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
        let builder = self.node.publisher(topic).carriers([self.carrier()]);
        builder.queue(Queue::Block { limit: 16, up_to_us: 1_000_000 }).max_message(self.largest())
    }

    fn subscriber(&self, topic: &str) -> SubscriberBuilder<Raw> {
        let builder = self.node.subscriber(topic).carriers([self.carrier()]).max_message(self.largest());
        let may_lose = self.carrier == Carrier::Udp && !self.reliable;
        if may_lose { builder.reliability(Reliability::BestEffort) } else { builder }
    }

    fn carrier(&self) -> String {
        name_of(self.carrier)
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

/// The control line to the other end, in both directions: a unix socket on one host; between hosts, two topics of the
/// library itself.
struct Line {
    /// This end of the line.
    control: UnixStream,
    node: Option<Node>,
    carrying: Option<JoinHandle<()>>,
}

impl Line {
    /// Connects to the waiting passive end.
    fn join(meeting: &Meeting, mode: &str, settings: &Settings) -> Result<Self, Error> {
        if settings.reach.beyond() {
            return Self::between_hosts(mode, settings, TO_PONG, TO_PING);
        }
        Ok(Self { control: meeting.join()?, node: None, carrying: None })
    }

    /// Waits for the active end.
    fn host(meeting: &Meeting, mode: &str, settings: &Settings) -> Result<Self, Error> {
        if settings.reach.beyond() {
            return Self::between_hosts(mode, settings, TO_PING, TO_PONG);
        }
        let nobody = || Error::Peer("nobody came".to_owned());
        let control = meeting.host(1)?.pop().ok_or_else(nobody)?;
        Ok(Self { control, node: None, carrying: None })
    }

    /// The node to measure with, if the line uses one.
    fn node(&self) -> Option<Node> {
        self.node.clone()
    }

    fn between_hosts(mode: &str, settings: &Settings, out: &str, into: &str) -> Result<Self, Error> {
        let node = Node::with_settings(thalweg::Settings {
            name: format!("bench-{}", std::process::id()),
            realm: format!("bench-{mode}-{}", name_of(settings.carrier)),
            ..settings.reach.settings()
        })?;
        let (control, far) = UnixStream::pair()?;
        let publisher = node.publisher::<Raw>(out).carriers(["tcp"]).open()?;
        let mut heard = far.try_clone()?;
        let hear = move |sample: thalweg::Sample<'_, Raw>| drop(heard.write_all(&sample));
        let subscriber = node.subscriber::<Raw>(into).carriers(["tcp"]).callback(hear)?;
        if !publisher.wait_connected(1, ALONE) {
            tell_alone();
        }
        if !publisher.wait_connected(1, PATIENCE) || !subscriber.wait_connected(1, PATIENCE) {
            let mut events = node.events();
            let said: Vec<_> = std::iter::from_fn(|| events.wait(Duration::ZERO)).map(|e| e.to_string()).collect();
            return Err(Error::Peer(format!("nobody came within {PATIENCE:?}; {}", said.join("; "))));
        }
        far.set_read_timeout(Some(TICK))?;
        let thread = linux::thread::Settings::named("line");
        let carrying = linux::thread::spawn(thread, move || carry(far, publisher, &subscriber))?;
        Ok(Self { control, node: Some(node), carrying: Some(carrying) })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.control.shutdown(Shutdown::Write);
        if let Some(carrying) = self.carrying.take() {
            let _ = carrying.join();
        }
    }
}

/// Publishes all that this end writes. Reading ends when the other end does.
fn carry(mut far: UnixStream, mut publisher: Publisher<Raw>, subscriber: &Subscriber<Raw>) {
    let mut bytes = [0; 4096];
    loop {
        match far.read(&mut bytes) {
            Ok(count) if count > 0 && publisher.publish(&bytes[..count]).is_ok() => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if subscriber.connected() == 0 {
                    let _ = far.shutdown(Shutdown::Write);
                }
            }
            _ => break,
        }
    }
    publisher.close(FAREWELL);
}

/// Opens a node beside another one, and measures the time of the node and of its first channel. Then opens all other
/// channels.
fn start(meeting: &Meeting, name: &'static str, settings: &Settings) -> Result<Start, Error> {
    let terms = &settings.terms;
    raise_open_files();
    let line = Line::join(meeting, "start", settings)?;
    tell(&line.control, terms)?;
    let [_ready] = hear_words(&line.control)?;
    settings.go_to_host()?;
    let before = linux::thread::count();
    let opening = Instant::now();
    let ports = Ports::at_host("second", std::process::id().into(), terms, settings)?;
    let open = opening.elapsed();
    let opened = Instant::now();
    let subscriber = |number: u64| ports.subscriber(&topic(number)).callback(|_| {});
    let first = subscriber(0)?;
    if !first.wait_connected(1, PATIENCE) {
        return Err(Error::Peer(format!("no channel within {PATIENCE:?}")));
    }
    let matched = opened.elapsed();
    let others = (1..terms.count).map(subscriber).collect::<Result<Vec<_>, _>>()?;
    if let Some(late) = others.iter().find(|s| !s.wait_connected(1, PATIENCE)) {
        return Err(Error::Peer(format!("no channel to {} within {PATIENCE:?}", late.name())));
    }
    let own = linux::thread::count() - before;
    write_words(&line.control, &[PASSED])?;
    let [others_threads] = hear_words(&line.control)?;
    Ok(Start::new(name, settings, open, matched, others_threads.max(own as u64)))
}

/// The node that is open already, with one publisher per channel.
fn stand_by(meeting: &Meeting, settings: &Settings) -> Result<(), Error> {
    raise_open_files();
    let line = Line::host(meeting, "start", settings)?;
    let (terms, realm) = hear(&line.control, settings)?;
    settings.go_to_host()?;
    let before = linux::thread::count();
    let ports = Ports::at_host("first", realm, &terms, settings)?;
    let open = |number: u64| ports.publisher(&topic(number)).open();
    let publishers: Vec<Publisher<Raw>> = (0..terms.count).map(open).collect::<Result<_, _>>()?;
    write_words(&line.control, &[PASSED])?;
    let [word] = hear_words(&line.control)?;
    if word == FAILED {
        return Err(Error::Peer("the other node failed".to_owned()));
    }
    publishers.iter().try_for_each(|publisher| connected(publisher, 1))?;
    write_words(&line.control, &[(linux::thread::count() - before) as u64])?;
    Ok(())
}

fn topic(number: u64) -> String {
    format!("/bench/start/{number}")
}

/// A channel takes up to three descriptors.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

const PATIENCE: Duration = Duration::from_secs(30);
/// Message of an end to the other one: its part succeeded.
const PASSED: u64 = 1;
const FAILED: u64 = 0;
const TO_PING: &str = "/bench/to-ping";
const TO_PONG: &str = "/bench/to-pong";
/// Time after which a lone process prints the command that starts the other end.
const ALONE: Duration = Duration::from_secs(1);
/// Interval between checks for the end of the other process.
const TICK: Duration = Duration::from_millis(100);
/// Time for the last messages to leave.
const FAREWELL: Duration = Duration::from_secs(2);
