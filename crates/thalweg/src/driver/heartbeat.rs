//! Heartbeats of peers that serve a stream which could come by another way: a subscriber's node asks its relay, and a relay asks the
//! source. A stopped process and a cut link are noticed within 2 s, or sooner where the policies say so.
//!
//! Questions travel on a stream of their own, by the way of the channel. The channel itself may be silent for long
//! (docs/decisions/0005). While it carries samples, these count as answers. On some of these streams this node asks; on others it answers,
//! about the sample streams that it serves.
//!
//! [`Heartbeat`] is pure: time is an argument. [`Control`] carries out [`Action::Ask`] and reports the outcome with [`asked`](Heartbeat::asked) or
//! [`declined`](Heartbeat::declined), later with [`answered`](Heartbeat::answered).

use super::control::Control;
use super::entries::Entry;
use super::handshake_client::connect;
use super::matching::Route;
use crate::carrier::tcp;
use crate::channel::failure_detector::FailureDetector;
use crate::channel::{Channel, PortRef};
use crate::control::{HEARTBEAT, NodeId, Peer};
use crate::handshake::{self, ALIVE, NO_SOURCE, VERSION, Watching};
use linux::marks;
use linux::poll::Readiness;
use qos::priority::{CONTROL, Mark};
use qos::{Class, Qos};
use socket2::{Domain, SockRef};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Work for the control thread, for the channel with this number.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask the other end.
    Ask(u64),
    /// The channel has ended: stop asking.
    Stop(u64),
}

/// A channel whose other end gives no sign of life, or reports that it has no source.
pub(super) struct Silent {
    pub channel: Arc<Channel>,
    /// `true` if this silence was not reported before.
    pub first: bool,
}

/// A channel whose other end is asked for signs of life.
struct Watch {
    channel: Arc<Channel>,
    /// The node that is asked, and the route to it.
    node: NodeId,
    route: Route,
    detector: FailureDetector,
    /// The time of the next question.
    next: Instant,
    /// `true` if its silence was reported.
    reported: bool,
}

/// The channels whose other ends are asked for signs of life.
#[derive(Default)]
pub(super) struct Heartbeat(Vec<Watch>);

impl Heartbeat {
    /// Asks the other end of a channel from now on, at the pace of the subscriber's QoS.
    pub(super) fn watch(&mut self, channel: Arc<Channel>, (node, route): (NodeId, Route), asked: &Qos, now: Instant) {
        self.0.push(Watch { channel, node, route, detector: FailureDetector::new(asked), next: now, reported: false });
    }

    /// The time of the next question to any peer.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().map(|watch| watch.next).min()
    }

    /// The peers that are to be asked now. Forgets channels that have ended.
    pub(super) fn poll(&mut self, now: Instant) -> Vec<Action> {
        if self.0.iter().all(|watch| watch.next > now) {
            return Vec::new();
        }
        let over = self.0.extract_if(.., |watch| watch.channel.is_closed());
        let mut actions: Vec<Action> = over.map(|watch| Action::Stop(watch.channel.id)).collect();
        for watch in self.0.iter_mut().filter(|watch| watch.next <= now) {
            watch.next = now + watch.detector.period();
            watch.detector.brought(watch.channel.counters.samples.load(Relaxed));
            actions.push(Action::Ask(watch.channel.id));
        }
        actions
    }

    /// The publisher that a channel's other end is asked about, the node that is asked, and the route to it.
    pub(super) fn asks(&self, channel: u64) -> Option<(PortRef, NodeId, &Route)> {
        let watch = self.0.iter().find(|watch| watch.channel.id == channel)?;
        Some((watch.channel.publisher, watch.node, &watch.route))
    }

    /// The other end of a channel was asked, or could not be reached.
    pub(super) fn asked(&mut self, channel: u64, now: Instant) -> Option<Silent> {
        let watch = self.of(channel)?;
        watch.detector.asked(now);
        watch.detector.is_silent(now).then(|| watch.silent())
    }

    /// The other end of a channel accepts no questions.
    pub(super) fn declined(&mut self, channel: u64, now: Instant) {
        if let Some(watch) = self.of(channel) {
            watch.detector.excused();
            watch.next = now + DECLINED;
        }
    }

    /// The other end of a channel answered. `well`: it has the source of the stream.
    pub(super) fn answered(&mut self, channel: u64, well: bool) -> Option<Silent> {
        let watch = self.of(channel)?;
        watch.detector.answered(well);
        watch.reported &= !well;
        (!well).then(|| watch.silent())
    }

    /// The channels whose other end is silent.
    pub(super) fn silent(&self, now: Instant) -> impl Iterator<Item = &Channel> {
        self.0.iter().filter(move |watch| watch.detector.is_silent(now)).map(|watch| &*watch.channel)
    }

    fn of(&mut self, channel: u64) -> Option<&mut Watch> {
        self.0.iter_mut().find(|watch| watch.channel.id == channel)
    }
}

impl Watch {
    fn silent(&mut self) -> Silent {
        Silent { channel: self.channel.clone(), first: !std::mem::replace(&mut self.reported, true) }
    }
}

/// The stream on which a channel's other end is asked.
pub(crate) struct Asking {
    pub stream: OwnedFd,
    channel: u64,
    connecting: bool,
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// A channel of a subscriber of this node opened: the node that serves it is asked for signs of life from now on, if it is a relay or
    /// the source of a hosted stream.
    pub(super) fn watch_life(&mut self, channel: &Arc<Channel>) {
        let (Some(node), Some(subscriber_port)) =
            (self.serves(channel), self.state.subscriber_port(channel.subscriber.port))
        else {
            return;
        };
        let Some(route) = self.route_of(channel, node) else { return };
        self.heartbeat.watch(channel.clone(), (node, route), &subscriber_port.info().qos, Instant::now());
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
    pub(super) fn ask_for_signs(&mut self, now: Instant) {
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
    pub(super) fn asking_ready(&mut self, index: usize) {
        let Some(Entry::Asking(asking)) = self.descriptors.get(index) else { return };
        let id = asking.channel;
        let heard = if asking.connecting { self.greet(index).map(|()| (0, 0)) } else { receive(&asking.stream) };
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
    pub(super) fn lacks_source(&self, source: PortRef) -> bool {
        let mut silent = self.heartbeat.silent(Instant::now());
        silent.any(|channel| channel.publisher == source && self.is_source(channel))
    }

    /// The number of streams on which this peer asks for signs of life.
    fn askers_of(&self, peer: Peer) -> usize {
        self.descriptors.all().filter(|entry| matches!(entry, Entry::Asked(_, _, of) if *of == peer)).count()
    }

    /// A peer wants signs of life from this node: gives the first one.
    pub(super) fn give_signs(&mut self, watching: &Watching, stream: OwnedFd, peer: Peer) {
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
    pub(super) fn asked_ready(&mut self, index: usize) {
        let Some(Entry::Asked(stream, ..)) = self.descriptors.get(index) else { return };
        match receive(stream) {
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
fn receive(stream: &OwnedFd) -> io::Result<(usize, u8)> {
    let mut bytes = [0; MOST_ASKED];
    match linux::socket::receive_stream(stream.as_fd(), &mut bytes, false) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => Ok((count, bytes.get(count - 1).copied().unwrap_or_default())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok((0, 0)),
        Err(error) => Err(error),
    }
}

/// Signs of life must not wait behind the samples that they tell of: they are control traffic, of class high. A lost one is retransmitted soon,
/// and a peer that vanished leaves no stream behind. Within the host none of these settings has an effect.
fn prepare(stream: &OwnedFd) {
    let _ = marks::set(stream.as_fd(), &Mark::Dscp(CONTROL), Class::High.socket_priority());
    tcp::retransmit_soon(stream);
    tcp::notice_outage(stream);
}

/// Pause before a node that accepts no questions is asked again. Each declined question counts as a failed connection, and a host may have
/// 32 of these per second. With this pause, 320 declining channels do not bar a host.
const DECLINED: Duration = Duration::from_secs(10);
/// Most streams on which others ask this node …
const MOST_ASKERS: usize = 1024;
/// … and on which one peer asks.
const MOST_ASKERS_OF_PEER: usize = 64;
/// Questions that are read at once. A peer that asks at the pace of [`FailureDetector`](crate::channel::failure_detector::FailureDetector) sends fewer within 6 s.
const MOST_ASKED: usize = 64;
/// Any byte is a question.
const QUESTION: &[u8] = b"?";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier;
    use crate::channel::memory::Account;
    use crate::control::{Direction, PortId};
    use crate::testing::discovery::port;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn channel(id: u64, now: Instant) -> Arc<Channel> {
        let at = |node| PortRef { node: NodeId(node), port: PortId(1) };
        let out = port(Direction::Publisher, "/out", "/t");
        let into = port(Direction::Subscriber, "/in", "/t");
        Arc::new(Channel::new((id, now), (at(1), &out), (at(2), &into), carrier::Name::Tcp, Account::new(usize::MAX)))
    }

    /// A heartbeat that watches a channel with this number.
    fn watching(id: u64, now: Instant) -> (Heartbeat, Arc<Channel>) {
        let (mut heartbeat, channel) = (Heartbeat::default(), channel(id, now));
        heartbeat.watch(channel.clone(), (NodeId(9), Route::Process), &Qos::default(), now);
        (heartbeat, channel)
    }

    /// Asks at each deadline before `until`; returns the time of the first silence and the times of all questions.
    fn run(
        heartbeat: &mut Heartbeat,
        until: Instant,
        mut answer: impl FnMut(&mut Heartbeat, u64, Instant),
    ) -> (Option<Instant>, Vec<Instant>) {
        let (mut silent, mut asked) = (None, Vec::new());
        while let Some(now) = heartbeat.next_deadline().filter(|now| *now < until) {
            for action in heartbeat.poll(now) {
                let Action::Ask(id) = action else { continue };
                asked.push(now);
                if heartbeat.asked(id, now).is_some_and(|silent| silent.first) {
                    assert_eq!(silent.replace(now), None, "reported once");
                }
                answer(heartbeat, id, now);
            }
        }
        (silent, asked)
    }

    #[test]
    fn signs_of_life_have_the_mark_of_control_traffic_and_the_priority_of_class_high() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = OwnedFd::from(std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        prepare(&stream);
        let found = marks::read(stream.as_fd()).unwrap();
        assert_eq!((found.tos, found.priority), (0xa0, Class::High.socket_priority()));
    }

    #[test]
    fn a_peer_that_answers_nothing_is_silent_after_two_seconds_and_reported_once() {
        let start = Instant::now();
        let (mut heartbeat, channel) = watching(7, start);
        let (silent, asked) = run(&mut heartbeat, start + ms(10_000), |_, _, _| ());
        assert_eq!(silent, Some(start + ms(2000)));
        assert_eq!((asked.len(), asked[1] - asked[0]), (25, ms(400)), "and it is asked on");
        assert_eq!(heartbeat.silent(start + ms(10_000)).map(|of| of.id).collect::<Vec<_>>(), [channel.id]);
        assert!(heartbeat.answered(7, true).is_none());
        let (silent, _) = run(&mut heartbeat, start + ms(20_000), |_, _, _| ());
        assert!(silent.is_some(), "a silence after a sign is reported again");
    }

    #[test]
    fn a_peer_that_answers_or_sends_samples_is_never_silent() {
        let start = Instant::now();
        let (mut heartbeat, _) = watching(7, start);
        let answers = |heartbeat: &mut Heartbeat, id, _| assert!(heartbeat.answered(id, true).is_none());
        assert_eq!(run(&mut heartbeat, start + ms(60_000), answers).0, None);
        let (mut heartbeat, channel) = watching(8, start);
        let brings = |_: &mut Heartbeat, _, _| {
            channel.counters.samples.fetch_add(1, Relaxed);
        };
        assert_eq!(run(&mut heartbeat, start + ms(60_000), brings).0, None);
        assert_eq!(heartbeat.silent(start + ms(60_000)).count(), 0);
    }

    #[test]
    fn a_peer_that_reports_no_source_is_silent_at_once() {
        let start = Instant::now();
        let (mut heartbeat, _) = watching(7, start);
        assert!(heartbeat.answered(7, false).is_some_and(|silent| silent.first));
        assert!(heartbeat.answered(7, false).is_some_and(|silent| !silent.first));
        assert!(heartbeat.answered(7, true).is_none());
        assert_eq!(heartbeat.silent(start).count(), 0);
        assert!(heartbeat.answered(8, false).is_none(), "nobody watches it");
    }

    #[test]
    fn a_peer_that_accepts_no_questions_is_asked_again_after_ten_seconds() {
        let start = Instant::now();
        let (mut heartbeat, _) = watching(7, start);
        let (_, asked) = run(&mut heartbeat, start + ms(60_000), |heartbeat, id, now| heartbeat.declined(id, now));
        let expected: Vec<Instant> = (0..6).map(|nth| start + nth * DECLINED).collect();
        assert_eq!(asked, expected);
        assert_eq!(heartbeat.silent(start + ms(60_000)).count(), 0);
    }

    #[test]
    fn a_channel_that_is_over_is_asked_no_more() {
        let start = Instant::now();
        let (mut heartbeat, first) = watching(7, start);
        heartbeat.watch(channel(8, start), (NodeId(9), Route::Process), &Qos::default(), start);
        first.close();
        assert_eq!(heartbeat.poll(start), [Action::Stop(7), Action::Ask(8)]);
        assert!(heartbeat.asks(7).is_none() && heartbeat.asks(8).is_some());
        assert!(heartbeat.asked(7, start).is_none());
    }
}
