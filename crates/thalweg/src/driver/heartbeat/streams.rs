//! Streams on which heartbeats travel. On some this node asks; on others it answers, about the sample streams that it serves.

use super::{Action, Silent};
use crate::carrier::tcp;
use crate::channel::{Channel, PortRef};
use crate::control::{HEARTBEAT, NodeId, Peer};
use crate::driver::control::Control;
use crate::driver::dial::connect;
use crate::driver::entries::Entry;
use crate::driver::matching::Route;
use crate::handshake::{self, ALIVE, NO_SOURCE, VERSION, Watching};
use linux::marks;
use linux::poll::Readiness;
use qos::Class;
use qos::priority::Mark;
use socket2::{Domain, SockRef};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Most streams on which others ask this node …
const MOST_ASKERS: usize = 1024;
/// … and on which one peer asks.
const MOST_ASKERS_OF_PEER: usize = 64;
/// Questions that are read at once. A peer that asks at the pace of [`FailureDetector`](crate::channel::failure_detector::FailureDetector) sends fewer within 6 s.
const MOST_ASKED: usize = 64;
/// Any byte is a question.
const QUESTION: &[u8] = b"?";

/// The stream on which a channel's other end is asked.
pub(crate) struct Asking {
    pub stream: OwnedFd,
    channel: u64,
    connecting: bool,
}

impl Control {
    /// A channel of a subscriber of this node opened: the node that serves it is asked for signs of life from now on, if it is a relay or
    /// the source of a hosted stream.
    pub(in crate::driver) fn watch_life(&mut self, channel: &Arc<Channel>) {
        let (Some(node), Some(inlet)) = (self.serves(channel), self.state.inlet(channel.subscriber.port)) else {
            return;
        };
        let Some(route) = self.route_of(channel, node) else { return };
        self.heartbeat.watch(channel.clone(), (node, route), &inlet.info().qos, Instant::now());
    }

    /// The relay that serves a channel, or the source of a stream that this relay hosts.
    fn serves(&self, channel: &Channel) -> Option<NodeId> {
        let relayed = channel.proxied.as_ref().filter(|proxied| proxied.place.relays().next().is_some());
        let relay = relayed.map(|proxied| proxied.provenance.node);
        let source = || self.is_source(channel).then_some(channel.publisher.node);
        relay.or_else(source).filter(|node| *node != self.state.id)
    }

    fn is_source(&self, channel: &Channel) -> bool {
        self.relay.is_relay() && self.is_hosted_port(channel.subscriber.port)
    }

    /// The route by which the other end of a channel, `node`, was reached.
    fn route_of(&self, channel: &Arc<Channel>, node: NodeId) -> Option<Route> {
        let held = self.descriptors.all().find_map(|entry| match entry {
            Entry::Held(stream, of) if Arc::ptr_eq(of, channel) => Some(stream.clone() as Arc<dyn AsFd + Send + Sync>),
            _ => None,
        });
        let stream = held.or_else(|| channel.sockets.get()?.last()?.upgrade())?;
        let peer = SockRef::from(&stream).peer_addr().ok()?;
        let unix = || self.state.directory().node(node)?.socket.clone();
        peer.as_socket().map(Route::Tcp).or_else(|| unix().map(Route::Unix))
    }

    /// Sends the questions that are due, and ends channels whose other end has been silent for too long.
    pub(in crate::driver) fn ask_for_signs(&mut self, now: Instant) {
        let mut silent = Vec::new();
        for action in self.heartbeat.poll(now) {
            match action {
                Action::Stop(channel) => drop(self.asking(channel).and_then(|index| self.unwatch(index))),
                Action::Ask(channel) => {
                    let asked = match self.asking(channel) {
                        Some(index) => self.ask_again(index),
                        None => self.begin_asking(channel),
                    };
                    // A question without a connection counts as asked, and lost.
                    match asked {
                        Err(error) if excuses(&error) => self.heartbeat.declined(channel, now),
                        _ => silent.extend(self.heartbeat.asked(channel, now)),
                    }
                }
            }
        }
        silent.into_iter().for_each(|silent| self.fell_silent(silent));
    }

    /// The index of the stream on which the other end of this channel is asked.
    fn asking(&self, channel: u64) -> Option<usize> {
        let its = |entry: &Entry| matches!(entry, Entry::Asking(asking) if asking.channel == channel);
        self.descriptors.position(its)
    }

    fn begin_asking(&mut self, channel: u64) -> io::Result<()> {
        let Some((_, _, route)) = self.heartbeat.asks(channel) else { return Ok(()) };
        let stream = connect(route)?;
        prepare(&stream);
        let asking = Asking { stream, channel, connecting: true };
        self.watch(Entry::Asking(asking), Readiness::OUT).map(drop).ok_or(io::ErrorKind::Other)?;
        Ok(())
    }

    fn ask_again(&mut self, index: usize) -> io::Result<()> {
        let Some(Entry::Asking(asking)) = self.descriptors.get(index) else { return Ok(()) };
        if asking.connecting {
            return Ok(()); // the greeting counts as a question
        }
        match linux::socket::send(asking.stream.as_fd(), QUESTION) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                self.unwatch(index);
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Something happened on a stream on which this node asks.
    pub(in crate::driver) fn asking_ready(&mut self, index: usize) {
        let Some(Entry::Asking(asking)) = self.descriptors.get(index) else { return };
        let id = asking.channel;
        let heard = if asking.connecting { self.greet(index).map(|()| (0, 0)) } else { hear(&asking.stream) };
        match heard {
            Ok((0, _)) => {}
            Ok((_, sign)) => {
                let silent = self.heartbeat.answered(id, sign == ALIVE);
                silent.into_iter().for_each(|silent| self.fell_silent(silent));
            }
            Err(error) => {
                self.unwatch(index);
                if excuses(&error) {
                    self.heartbeat.declined(id, Instant::now());
                }
            }
        }
    }

    /// The connection is established: names the node and the stream whose signs of life are wanted.
    fn greet(&mut self, index: usize) -> io::Result<()> {
        let Some(Entry::Asking(asking)) = self.descriptors.get_mut(index) else { return Ok(()) };
        let socket = SockRef::from(&asking.stream);
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        if socket.domain()? == Domain::UNIX {
            self.state.users.admit(&asking.stream)?;
        }
        let Some((PortRef { node: source, port }, to_node, _)) = self.heartbeat.asks(asking.channel) else {
            return Ok(());
        };
        let realm = self.state.settings.realm.clone();
        let watching = Watching { version: VERSION, realm, to_node, source, port };
        let mut bytes = vec![HEARTBEAT];
        bytes.extend(handshake::pack(&watching).map_err(io::Error::other)?);
        linux::socket::send(asking.stream.as_fd(), &bytes)?; // a fresh connection's buffer takes it whole
        asking.connecting = false;
        self.descriptors.change(index, Readiness::IN | Readiness::RDHUP)
    }

    /// Acts on the silence of the node that serves a channel.
    fn fell_silent(&mut self, Silent { channel, first }: Silent) {
        let names = format!("{} to {}", channel.publisher_name, channel.subscriber_name);
        if self.is_source(&channel) {
            // Subscribers of the hosted stream learn of the silence when they ask.
            return if first {
                self.warn(format!("{names}: the publisher gives no sign of life"))
            };
        }
        if let Some(proxied) = channel.proxied.as_ref().filter(|_| first) {
            let place = &proxied.place;
            self.warn(format!("{names}: {place} gives no sign of life of the stream; another way is tried"));
        }
        self.leave(&channel);
    }

    /// `true` if the source of a stream that this relay hosts is silent.
    pub(in crate::driver) fn lacks_source(&self, source: PortRef) -> bool {
        let mut silent = self.heartbeat.silent(Instant::now());
        silent.any(|channel| channel.publisher == source && self.is_source(channel))
    }

    /// The number of streams on which this peer asks for signs of life.
    fn askers_of(&self, peer: Peer) -> usize {
        self.descriptors.all().filter(|entry| matches!(entry, Entry::Asked(_, _, of) if *of == peer)).count()
    }

    /// A peer wants signs of life from this node: gives the first one.
    pub(in crate::driver) fn give_signs(&mut self, watching: &Watching, stream: OwnedFd, peer: Peer) {
        let Watching { version, ref realm, to_node, source, port } = *watching;
        let meant = version == VERSION && *realm == self.state.settings.realm && to_node == self.state.id;
        let askers = self.descriptors.all().filter(|entry| matches!(entry, Entry::Asked(..))).count();
        if !meant || askers >= MOST_ASKERS || self.askers_of(peer) >= MOST_ASKERS_OF_PEER {
            return self.came_to_nothing(peer, "questions for signs of life that were another node's, or too many");
        }
        prepare(&stream);
        let asked = Entry::Asked(stream, PortRef { node: source, port }, peer);
        let index = self.watch(asked, Readiness::IN | Readiness::RDHUP);
        index.into_iter().for_each(|index| self.give_sign(index));
    }

    /// A question arrived, or the stream on which a peer asks ended.
    pub(in crate::driver) fn asked_ready(&mut self, index: usize) {
        let Some(Entry::Asked(stream, ..)) = self.descriptors.get(index) else { return };
        match hear(stream) {
            Ok((0, _)) => {}
            Ok((MOST_ASKED, _)) => {
                if let Some(Entry::Asked(_, _, peer)) = self.unwatch(index) {
                    self.came_to_nothing(peer, "streams with more questions for signs of life than come in 6 s");
                }
            }
            Ok(_) => self.give_sign(index),
            Err(_) => drop(self.unwatch(index)),
        }
    }

    fn give_sign(&mut self, index: usize) {
        let Some(Entry::Asked(stream, source, _)) = self.descriptors.get(index) else { return };
        let sign = if self.lacks_source(*source) { NO_SOURCE } else { ALIVE };
        let _ = linux::socket::send(stream.as_fd(), &[sign]); // a peer that is gone is noticed by the stream's end
    }
}

/// `true` if the error shows that the other end is reachable and takes no questions: its node is gone, has an older version, or has too
/// many askers. Silence does not show that.
fn excuses(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut, WouldBlock};
    !matches!(error.kind(), TimedOut | HostUnreachable | NetworkUnreachable | NetworkDown | WouldBlock)
}

/// The number of bytes that arrived, and the last one.
fn hear(stream: &OwnedFd) -> io::Result<(usize, u8)> {
    let mut bytes = [0; MOST_ASKED];
    match linux::socket::receive_stream(stream.as_fd(), &mut bytes, false) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => Ok((count, bytes.get(count - 1).copied().unwrap_or_default())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok((0, 0)),
        Err(error) => Err(error),
    }
}

/// Signs of life must not wait behind the samples that they tell of. A lost one is retransmitted soon, and a peer that vanished leaves no
/// stream behind. Within the host none of these settings has an effect.
fn prepare(stream: &OwnedFd) {
    let mark = Mark::Class(Class::High);
    let _ = marks::set(stream.as_fd(), &mark, mark.socket_priority());
    tcp::retransmit_soon(stream);
    tcp::notice_outage(stream);
}
