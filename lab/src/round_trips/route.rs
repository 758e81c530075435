//! Routes: two channels of a carrier, or bare sockets. The node and ports of either end, and their priority. The role that
//! forwards messages by bare sockets: the least that any relay costs.

use crate::error::{Error, Result};
use crate::part::{ALL_BUT_ONE_OF, Measured, NodeSettings, Orders};
use qos::priority::Changes;
use qos::{Place, Queue, Reliability};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use thalweg::admin::EndReport;
use thalweg::codec::Raw;
use thalweg::{Node, Publisher, PublisherBuilder, Subscriber, SubscriberBuilder};

/// One way there and back, with its own two channels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Route {
    /// Its name: of its topics and ports, and in [`super::Measure`].
    pub name: String,
    /// The means of transport.
    pub by: By,
}

/// The means of transport of a route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    /// Two channels of this carrier, with a proxy at this place of the one that leads there.
    Carrier {
        /// The carrier.
        carrier: String,
        /// Place of the proxy; `None`: there is none.
        proxy: Option<Place>,
        /// Bytes of a sample that come back at most: an acknowledgement has fewer than the message.
        answer: usize,
    },
    /// A ring of bare TCP sockets: the ping connects to `next`, and its messages come back to `listen`.
    Sockets {
        /// Address at which the ping listens.
        listen: SocketAddr,
        /// Address it connects to.
        next: SocketAddr,
    },
}

impl Route {
    /// Two channels of a carrier, which is also its name.
    pub(crate) fn direct(carrier: &str) -> Self {
        Self::over(carrier, carrier, None)
    }

    /// Two channels of a carrier, with a proxy there.
    pub(crate) fn over(name: &str, carrier: &str, proxy: Option<Place>) -> Self {
        Self { name: name.to_owned(), by: By::Carrier { carrier: carrier.to_owned(), proxy, answer: LARGEST } }
    }

    /// The same, with so many bytes of a sample as its acknowledgement. Bare sockets send all back.
    pub(crate) fn acknowledged_by(mut self, bytes: usize) -> Self {
        if let By::Carrier { answer, .. } = &mut self.by {
            *answer = bytes;
        }
        self
    }

    /// A ring of bare sockets.
    pub(crate) fn sockets(name: &str, listen: SocketAddr, next: SocketAddr) -> Self {
        Self { name: name.to_owned(), by: By::Sockets { listen, next } }
    }

    /// The carrier of its channels, and the most bytes that come back of a sample; `None`: it has none.
    pub(crate) fn carrier(&self) -> Option<(&str, usize)> {
        match &self.by {
            By::Carrier { carrier, answer, .. } => Some((carrier, *answer)),
            By::Sockets { .. } => None,
        }
    }

    /// Place of its proxy.
    pub(crate) fn proxy(&self) -> Option<&Place> {
        match &self.by {
            By::Carrier { proxy, .. } => proxy.as_ref(),
            By::Sockets { .. } => None,
        }
    }
}

/// The one of this name.
///
/// # Errors
/// [`Error::Usage`] with all names.
fn find<'a>(routes: &'a [Route], name: &str) -> Result<&'a Route> {
    routes.iter().find(|route| route.name == name).ok_or_else(|| {
        let names: Vec<&str> = routes.iter().map(|route| route.name.as_str()).collect();
        Error::Usage(format!("route {name:?}: there are {}", names.join(", ")))
    })
}

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
    /// Other changes for the channel that leads back.
    #[serde(default)]
    pub back: Option<Changes>,
}

/// The ends of this process after a change.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Priorities {
    pub ends: Vec<EndReport>,
}

/// Largest payload, in bytes.
pub(super) const LARGEST: usize = 8192;

/// The node and ports of an end, and their priority.
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
        let Priority { route, changes, back } = priority;
        find(&self.routes, route)?;
        let other = if self.me == "ping" { "pong" } else { "ping" };
        let set = |from: &str| {
            let (port, other) = (port(self.me, route, from), port(other, route, from));
            let changes = back.as_ref().filter(|_| from == "pong").unwrap_or(changes);
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

    /// Times of the stages, at this end, of the route's channel that leads from `from`, since the last call.
    pub(super) fn stages(&self, route: &str, from: &str) -> Result<Measured> {
        Measured::take(&self.node, &topic(route, from))
    }
}

/// The topic of the samples of `from`.
fn topic(route: &str, from: &str) -> String {
    format!("/lab/{route}/{from}")
}

/// Name of the port of the end `who` on the topic that `from` publishes.
fn port(who: &str, route: &str, from: &str) -> String {
    format!("/{who}/{route}/{from}s")
}

/// Name of the role that forwards messages by bare sockets: the least that any relay costs.
pub(crate) const FORWARD: &str = "forward";

/// From where to where.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Hop {
    /// Its own address.
    pub listen: SocketAddr,
    /// The address it connects to.
    pub next: SocketAddr,
}

/// Plays the role: one connection in, one out, each message as it comes.
pub(crate) fn play_forward(mut orders: Orders) -> Result {
    let Hop { listen, next } = orders.settings()?;
    let listener = TcpListener::bind(listen)?;
    linux::thread::spawn(linux::thread::Settings::named("forward"), move || {
        let forwarded = accept(&listener).and_then(|from| pass(from, connect(next)?));
        if let Err(error) = forwarded {
            crate::part::tell(&error);
        }
    })?;
    orders.say(&json!({"listens": listen}))?;
    while orders.wait::<Value>()?.is_some() {}
    Ok(())
}

/// Takes one connection.
pub(super) fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let stream = listener.accept()?.0;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects as soon as the other end listens.
pub(super) fn connect(to: SocketAddr) -> Result<TcpStream> {
    let until = Instant::now() + LISTEN;
    loop {
        match TcpStream::connect(to) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(e) if e.kind() == ErrorKind::ConnectionRefused && Instant::now() < until => std::thread::sleep(PAUSE),
            Err(e) => return Err(Error::Failed(format!("{to}: {e}"))),
        }
    }
}

/// Passes on message by message, until either side ends.
fn pass(from: TcpStream, mut to: TcpStream) -> Result {
    let mut messages = Messages::of(from);
    while let Some(message) = messages.next()? {
        to.write_all(message)?;
    }
    Ok(())
}

/// Messages of a stream, each with its length in front. One call of the system for each where they come one by one.
pub(super) struct Messages {
    from: TcpStream,
    bytes: Box<[u8]>,
    begin: usize,
    end: usize,
}

impl Messages {
    /// Reads the messages of this stream.
    pub(super) fn of(from: TcpStream) -> Self {
        Self { from, bytes: vec![0; BUFFER].into_boxed_slice(), begin: 0, end: 0 }
    }

    /// The next message with its length; `None`: there will be no more.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        let whole = loop {
            let had = &self.bytes[self.begin..self.end];
            let whole = had.first_chunk::<4>().map(|length| (u32::from_le_bytes(*length) as usize).saturating_add(4));
            match whole {
                Some(whole) if whole > BUFFER => {
                    return Err(Error::Failed(format!("a message of {whole} bytes: at most {BUFFER} are forwarded")));
                }
                Some(whole) if whole <= had.len() => break whole,
                _ if !self.more()? => return Ok(None),
                _ => {}
            }
        };
        let message = self.begin..self.begin + whole;
        self.begin += whole;
        Ok(Some(&self.bytes[message]))
    }

    /// Reads available bytes, behind the rest of the message before. `false`: there will be no more.
    fn more(&mut self) -> Result<bool> {
        self.bytes.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        match self.from.read(&mut self.bytes[self.end..])? {
            0 if self.end > 0 => Err(Error::Failed("a message ended half-way".into())),
            0 => Ok(false),
            had => {
                self.end += had;
                Ok(true)
            }
        }
    }
}

/// Samples that may wait at the sender: more than are sent while a stream repeats a lost segment.
const WAITING: u32 = 1024;
const CONNECT: Duration = Duration::from_secs(25);
/// Pause between two looks at a channel that is to open.
const PAUSE: Duration = Duration::from_millis(5);
/// Time for the next one to listen.
const LISTEN: Duration = Duration::from_secs(20);
/// Largest message with its length, in bytes.
const BUFFER: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_however_they_were_cut_and_lying_lengths_are_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = connect(listener.local_addr().unwrap()).unwrap();
        let mut messages = Messages::of(accept(&listener).unwrap());
        let sizes = [0_u32, 1, 8192, 3, 8192];
        let message = |size: &u32| [&size.to_le_bytes()[..], &vec![*size as u8; *size as usize]].concat();
        let all: Vec<u8> = sizes.iter().flat_map(message).collect();
        let writer = std::thread::spawn(move || {
            all.chunks(1000).for_each(|part| sender.write_all(part).unwrap());
            sender.write_all(&u32::MAX.to_le_bytes()).unwrap();
        });
        for size in sizes {
            assert_eq!(messages.next().unwrap().unwrap(), message(&size));
        }
        assert!(messages.next().is_err());
        writer.join().unwrap();
    }

    #[test]
    fn a_stream_ends_between_messages_or_it_is_said() {
        for (bytes, whole) in [(&[][..], true), (&[9, 0][..], false), (&[9, 0, 0, 0, 1][..], false)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut sender = connect(listener.local_addr().unwrap()).unwrap();
            let mut messages = Messages::of(accept(&listener).unwrap());
            sender.write_all(bytes).unwrap();
            drop(sender);
            assert_eq!(matches!(messages.next(), Ok(None)), whole, "{bytes:?}");
        }
    }
}
