//! The descriptors that the control thread watches, and the publisher's end of channels, whose streams are among them.

use super::control::Control;
use super::handshake_client::ClientHandshake;
use super::heartbeat::Asking;
use super::incoming::{Incoming, Progress as Served};
use super::matching::Pair;
use super::probe::Probing;
use super::start::random;
use crate::channel::{Channel, PortRef};
use crate::control::links::farewell;
use crate::control::{NodeId, Peer};
use linux::poll::{Poller, Readiness};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A descriptor that the loop watches.
pub(crate) enum Entry {
    Tcp(TcpListener),
    Unix(UnixListener),
    Incoming(Incoming),
    ClientHandshake(Box<ClientHandshake>),
    /// A subscriber that is to receive a probe first.
    Probing(Box<Probing>),
    /// Reports changes of the host's interfaces.
    Interfaces(linux::net::Changes),
    /// The publisher's end of a channel. If the stream ends, the subscriber has left.
    Served(Arc<TcpStream>, Option<Arc<Channel>>),
    ServedUnix(Arc<OwnedFd>, Option<Arc<Channel>>),
    /// Like `Served`, for a stream that also carries a channel in the other direction, whose reader receives what arrives. The time is set
    /// if this channel carries the answers: it is the time of its opening.
    Shared(Arc<TcpStream>, Option<Arc<Channel>>, Option<Instant>),
    /// The subscriber's end of a channel that does not read its stream. If the stream ends, the publisher has left.
    Held(Arc<OwnedFd>, Arc<Channel>),
    /// A stream on which this node asks for signs of life.
    Asking(Asking),
    /// A stream on which a peer asks this node for signs of life of a publisher that it serves.
    Asked(OwnedFd, PortRef, Peer),
}

impl Entry {
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Entry::Tcp(fd) => fd.as_fd(),
            Entry::Unix(fd) => fd.as_fd(),
            Entry::Incoming(incoming) => incoming.stream.as_fd(),
            Entry::ClientHandshake(handshake) => handshake.descriptor(),
            Entry::Probing(probing) => probing.descriptor(),
            Entry::Interfaces(changes) => changes.as_fd(),
            Entry::Served(stream, _) => stream.as_fd(),
            Entry::ServedUnix(fd, _) => fd.as_fd(),
            Entry::Shared(stream, ..) => stream.as_fd(),
            Entry::Held(fd, _) => fd.as_fd(),
            Entry::Asking(asking) => asking.stream.as_fd(),
            Entry::Asked(fd, ..) => fd.as_fd(),
        }
    }
}

/// The count of connections of users who may not use the run directory.
const STRANGERS: &str = "connections of users who may not use the run directory";

/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The reason for which the stream of a channel ended at the publisher. `broken` is the kernel's error; `failed`: sending failed.
fn why_ended(failed: bool, broken: Option<std::io::Error>) -> String {
    match broken {
        None if !failed => "the subscriber left".to_owned(),
        // A process that ends with unread data resets its connection. So does a host that has given the connection up. If sending failed,
        // the sending thread got the reason.
        None => "the subscriber left, or was cut off".to_owned(),
        // A reset after the end of the stream was received (RFC 9293 §3.10.7.4: in CLOSE-WAIT). Linux reports EPIPE then.
        Some(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            "the subscriber left: it closed the connection before it had read everything".to_owned()
        }
        Some(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
            "the subscriber left, or was cut off: it reset the connection".to_owned()
        }
        Some(error) => format!("cut off from the subscriber: {error}"),
    }
}

/// The handshakes that this node began, while they are watched. They are counted, because each of a thousand wanted channels asks whether
/// another one may begin.
#[derive(Default)]
pub(super) struct Handshakes {
    /// Those over TCP, by the publisher's node.
    elsewhere: BTreeMap<NodeId, usize>,
    /// Those whose channels will need a reader thread each.
    threads: usize,
}

impl Handshakes {
    fn began(&mut self, handshake: &ClientHandshake) {
        self.threads += usize::from(handshake.wants_thread());
        if handshake.is_elsewhere() {
            *self.elsewhere.entry(handshake.pair.0.node).or_default() += 1;
        }
    }

    fn ended(&mut self, handshake: &ClientHandshake) {
        self.threads -= usize::from(handshake.wants_thread());
        let node = handshake.pair.0.node;
        if let Some(count) = self.elsewhere.get_mut(&node).filter(|_| handshake.is_elsewhere()) {
            *count -= 1;
            if *count == 0 {
                self.elsewhere.remove(&node);
            }
        }
    }

    /// Those over TCP: all, and those with this node.
    pub(super) fn elsewhere(&self, node: NodeId) -> (usize, usize) {
        (self.elsewhere.values().sum(), self.elsewhere.get(&node).copied().unwrap_or(0))
    }

    /// Those whose channels will need a reader thread each.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }
}

/// The descriptors that the loop watches, by their place.
pub(super) struct Descriptors {
    pub poller: Poller,
    entries: Vec<Option<Entry>>,
    handshakes: Handshakes,
}

impl Descriptors {
    pub(super) fn new(poller: Poller) -> Self {
        Self { poller, entries: Vec::new(), handshakes: Handshakes::default() }
    }

    pub(super) fn handshakes(&self) -> &Handshakes {
        &self.handshakes
    }

    /// Watches one more; its place, or `None` if the kernel refuses it.
    pub(super) fn add(&mut self, entry: Entry, readiness: Readiness) -> Option<usize> {
        let index = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        self.poller.add(entry.descriptor(), index as u64, readiness).ok()?;
        if index == self.entries.len() {
            self.entries.push(None);
        }
        if let Entry::ClientHandshake(handshake) = &entry {
            self.handshakes.began(handshake);
        }
        self.entries[index] = Some(entry);
        Some(index)
    }

    /// Ends watching the descriptor at this place, and hands it over.
    pub(super) fn take(&mut self, index: usize) -> Option<Entry> {
        let entry = self.entries.get_mut(index)?.take()?;
        let _ = self.poller.remove(entry.descriptor());
        if let Entry::ClientHandshake(handshake) = &entry {
            self.handshakes.ended(handshake);
        }
        Some(entry)
    }

    pub(super) fn get(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Entry> {
        self.entries.get_mut(index)?.as_mut()
    }

    /// All of them with their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Entry)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| Some((index, entry.as_ref()?)))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten()
    }

    /// The place of the first for which this is true.
    pub(super) fn position(&self, is: impl Fn(&Entry) -> bool) -> Option<usize> {
        self.iter().find(|(_, entry)| is(entry)).map(|(index, _)| index)
    }

    /// Waits for something else at this descriptor.
    pub(super) fn change(&self, index: usize, readiness: Readiness) -> io::Result<()> {
        self.get(index).map_or(Ok(()), |entry| self.poller.change(entry.descriptor(), index as u64, readiness))
    }

    /// Doesn't look at the descriptor at this place for now; `false`: there is none, or the kernel refuses.
    pub(super) fn pause(&mut self, index: usize) -> bool {
        self.get(index).is_some_and(|entry| self.poller.remove(entry.descriptor()).is_ok())
    }

    /// Looks at a descriptor again that was paused.
    pub(super) fn resume(&mut self, index: usize, readiness: Readiness) {
        if let Some(entry) = self.get(index) {
            let _ = self.poller.add(entry.descriptor(), index as u64, readiness); // a new one is there already
        }
    }

    /// Places that are or were in use.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// A channel of these two ports other than the one with number `but`, if this node serves it over a TCP stream.
    pub(super) fn older(&self, (publisher, subscriber): Pair, but: u64) -> Option<(usize, Arc<Channel>)> {
        let same =
            |channel: &Channel| channel.publisher == publisher && channel.subscriber == subscriber && channel.id != but;
        let of = |(index, entry)| match entry {
            &(Entry::Served(_, Some(ref channel)) | Entry::Shared(_, Some(ref channel), _)) => {
                Some((index, channel.clone()))
            }
            _ => None,
        };
        self.iter().filter_map(of).find(|(_, channel)| same(channel))
    }
}

impl Control {
    pub(super) fn watch(&mut self, entry: Entry, readiness: Readiness) -> Option<usize> {
        self.descriptors.add(entry, readiness)
    }

    /// Watches for the end of a channel at the publisher's side.
    pub(super) fn watch_served(&mut self, entry: Entry, channel: Arc<Channel>) -> Option<usize> {
        let entry = match entry {
            Entry::Served(stream, _) => Entry::Served(stream, Some(channel)),
            Entry::ServedUnix(stream, _) => Entry::ServedUnix(stream, Some(channel)),
            Entry::Shared(stream, _, since) => {
                return self.watch(Entry::Shared(stream, Some(channel), since), Readiness::RDHUP);
            }
            other => other,
        };
        self.watch(entry, Readiness::IN | Readiness::RDHUP)
    }

    pub(super) fn unwatch(&mut self, index: usize) -> Option<Entry> {
        self.descriptors.take(index)
    }

    pub(super) fn entry_ready(&mut self, index: usize) {
        match self.descriptors.get(index) {
            Some(Entry::Tcp(_) | Entry::Unix(_)) => self.accept_some(index),
            Some(Entry::Incoming(_)) => self.incoming_ready(index),
            Some(Entry::ClientHandshake(_)) => self.handshake_ready(index),
            Some(Entry::Probing(_)) => self.probing_ready(index),
            Some(Entry::Interfaces(_)) => self.interfaces_changed(index),
            Some(Entry::Served(..) | Entry::ServedUnix(..) | Entry::Shared(..)) => self.served_stream_ended(index),
            Some(Entry::Held(..)) => self.held_ended(index),
            Some(Entry::Asking(_)) => self.asking_ready(index),
            Some(Entry::Asked(..)) => self.asked_ready(index),
            _ => {}
        }
    }

    /// Accepts some of the connections that wait at a listener. A full queue would make newcomers wait for a second.
    fn accept_some(&mut self, index: usize) {
        for _ in 0..self.accepted_at_once(index) {
            let accepted = match self.descriptors.get(index) {
                Some(Entry::Tcp(listener)) => listener.accept().map(|(stream, from)| {
                    let _ = linux::filter::nothing(&stream); // an accepted socket inherits the listener's filter
                    (OwnedFd::from(stream), Some(from))
                }),
                Some(Entry::Unix(listener)) => listener.accept().map(|(stream, _)| (stream.into(), None)),
                _ => return,
            };
            match accepted {
                Ok((stream, from)) => self.admit(stream, from),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Out of descriptors, most likely. The listener stays ready, so the loop pauses instead of spinning.
                    std::thread::sleep(ACCEPT_PAUSE);
                    return self
                        .count("connections that could not be accepted: raise the limit of open files (ulimit -n)");
                }
            }
        }
    }

    /// Takes in a connection. By the unix socket, only users who may use the run directory are admitted.
    fn admit(&mut self, stream: OwnedFd, from: Option<SocketAddr>) {
        let unix = socket2::SockRef::from(&stream).domain().is_ok_and(|domain| domain == socket2::Domain::UNIX);
        let Some(why) = self.state.users.admit(&stream).err().filter(|_| unix) else {
            return self.take_in(stream, from);
        };
        let _ = linux::socket::send(stream.as_fd(), &farewell(&why.to_string()));
        if !self.admission.has_counted(STRANGERS) {
            self.warn(format!("a connection was refused: {why}"));
        }
        self.count(STRANGERS);
    }

    /// An event on this connection made the thread panic: the connection is closed. A listener stays.
    pub(super) fn give_up(&mut self, index: usize) {
        if !matches!(self.descriptors.get(index), Some(Entry::Tcp(_) | Entry::Unix(_))) {
            self.unwatch(index);
        }
    }

    pub(super) fn incoming_ready(&mut self, index: usize) {
        // The entry is removed from the loop while its request is read: the stream may get another owner.
        let Some(Entry::Incoming(incoming)) = self.unwatch(index) else { return };
        let mut incoming = Some(incoming);
        if let (Served::Waiting, Some(incoming)) = (self.incoming(&mut incoming), incoming.take()) {
            self.watch(Entry::Incoming(incoming), Readiness::IN);
        }
    }

    /// Ends a channel at the publisher: the subscriber sees its stream end.
    pub(super) fn end_served(&mut self, channel: &Arc<Channel>) {
        let its = |entry: &Entry| match entry {
            Entry::Served(_, of) | Entry::ServedUnix(_, of) | Entry::Shared(_, of, _) => {
                of.as_ref().is_some_and(|of| Arc::ptr_eq(of, channel))
            }
            _ => false,
        };
        if let Some(index) = self.descriptors.position(its) {
            self.served_ended(index);
        }
    }

    pub(super) fn served_ended(&mut self, index: usize) {
        if let Some((channel, why, _)) = self.take_served(index) {
            self.end_channel(&channel, &why);
        }
    }

    /// The channel of a stream that is not watched any more, the reason for its end, and `true` if its subscriber may come back.
    pub(super) fn take_served(&mut self, index: usize) -> Option<(Arc<Channel>, String, bool)> {
        let (channel, error, alone) = match self.unwatch(index)? {
            Entry::Served(stream, Some(channel)) => (channel, stream.take_error().ok().flatten(), true),
            Entry::Shared(stream, Some(channel), _) => (channel, stream.take_error().ok().flatten(), false),
            Entry::ServedUnix(_, Some(channel)) => (channel, None, false),
            _ => return None,
        };
        // If sending failed, the sending thread got the error: the socket does not have it any more.
        let failed = channel.sent_by().is_some_and(|flow| !flow.is_live());
        let broken = alone && (error.is_some() || failed);
        let why = why_ended(failed, error);
        Some((channel, why, broken))
    }

    /// Ends a channel at the publisher.
    pub(super) fn end_channel(&mut self, channel: &Arc<Channel>, why: &str) {
        let Some(publisher_port) = self.publisher_port_of(channel) else { return };
        if !channel.is_closed() {
            self.unmatched(channel, why);
        }
        self.detach(publisher_port, channel.id);
    }

    fn held_ended(&mut self, index: usize) {
        let Some(Entry::Held(_, channel)) = self.unwatch(index) else { return };
        self.channel_ended(&channel, "the publisher left".to_owned());
    }

    /// A channel of these two ports other than the one with number `but`, if this node serves it over a TCP stream.
    pub(super) fn older(&self, pair: Pair, but: u64) -> Option<(usize, Arc<Channel>)> {
        self.descriptors.older(pair, but)
    }

    pub(super) fn random_flow(&self) -> u32 {
        random() as u32
    }
}
