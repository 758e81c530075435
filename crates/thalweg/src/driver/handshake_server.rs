//! The publisher's side of the handshake: it checks a subscriber's request, answers it, and opens the channel.
//!
//! Each peer has its share of a port's channels and of a relay's proxies: [`matching::room`](super::matching::room) limits their number.

use super::attachments::PendingAttach;
use super::control::Control;
use super::entries::Entry;
use super::flows;
use super::host::Source;
use super::matching::grant::{NotGranted, check_greeting, check_node, check_port, refused};
use super::matching::is_reliable;
use super::matching::room::{self, Elsewhere};
use super::succession::Before;
use crate::carrier::shm::RingHalf;
use crate::carrier::tcp::{self, TcpSend};
use crate::carrier::{self, Parameters, Place};
use crate::channel::flow::{FlowSettings, Sending};
use crate::channel::memory::Account;
use crate::channel::proxy::{Proxied, Proxy};
use crate::channel::ring::Ring;
use crate::channel::{Channel, PortRef};
use crate::control::matching::Subject;
use crate::control::{NodeId, Peer};
use crate::handshake::{self, Acceptance, Accepted, Answer, Reason, Refused, Request};
use crate::port::{AnyPublisher, Reply, Way};
use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

impl Control {
    /// Answers a request for a channel, and opens it.
    pub(super) fn serve(&mut self, request: Request, stream: OwnedFd) {
        if self.is_hosted(&request) { self.host(request, stream) } else { self.serve_now(request, stream) }
    }

    pub(super) fn serve_now(&mut self, request: Request, stream: OwnedFd) {
        self.serve_or_refuse(request, stream, false);
    }

    /// Answers the request of a subscriber that received a probe.
    pub(super) fn serve_probed(&mut self, request: Request, stream: OwnedFd) {
        self.serve_or_refuse(request, stream, true);
    }

    fn serve_or_refuse(&mut self, request: Request, stream: OwnedFd, heard: bool) {
        match self.offer(&request, stream, heard) {
            Ok(()) => self.state.made_progress(),
            Err((refused, stream)) => {
                if refused.policy == Reason::System {
                    self.warn(format!(
                        "{} refused over {}: {}",
                        request.subscriber.name, request.carrier, refused.remedy
                    ));
                }
                let _ = answer(&stream, &Answer::Refused(refused));
            }
        }
    }

    fn offer(&mut self, request: &Request, stream: OwnedFd, heard: bool) -> Result<(), (Refused, OwnedFd)> {
        let (publisher_port, sending) = match self.check(request) {
            Ok(found) => found,
            Err(refused) => return Err((refused, stream)),
        };
        if !request.moves && self.just_shared(ends(request)) {
            return Err((refused(Reason::Answers, request, "the connection of the questions, which is open"), stream));
        }
        let before = self.opened_before(request, &stream);
        if let Err(refused) = self.check_room(request, &stream, before.as_channel()) {
            return Err((refused, stream));
        }
        // A channel whose proxy moves stays open until the new one delivers. Any other older channel of these two ports gives way before
        // the new one is opened: it may be the last member of the group that the new one would join, and ends the group's flow when it
        // goes.
        if let (Before::Its(Some(index), _), false) = (&before, request.moves) {
            self.gives_way(*index);
        }
        let place = place_of(&stream, request);
        let reliable = is_reliable(&publisher_port.info().qos, &request.subscriber.qos);
        let outlasts = reliable && place.as_ref().is_some_and(Place::is_between_hosts);
        let account = self.account_of(request.node, &stream);
        let settings = |id| FlowSettings {
            id,
            policy: publisher_port.info().qos.queue,
            bytes: usize::try_from(publisher_port.info().qos.queue_bytes()).unwrap_or(usize::MAX),
            account: account.clone(),
            burst: request.parameters.buffer.map_or(CAREFUL_BURST, |b| b as usize / 4),
            sending: sending.within(publisher_port.info().qos.latency_budget),
            lifespan: publisher_port.info().qos.lifespan.map(|l| u64::try_from(l.as_nanos()).unwrap_or(u64::MAX)),
            reliable: None,
            control: None,
            outlasts,
        };
        if request.carrier == carrier::Name::Shm {
            return self.offer_shared_memory(request, publisher_port, stream);
        }
        let Some(place) = place else {
            return Err((refused(Subject::Carrier, request, "a stream with addresses: connect by TCP"), stream));
        };
        if request.carrier == carrier::Name::Tcp {
            let mut accepted =
                self.accepted(request, publisher_port.as_ref(), self.random_flow(), Parameters::default());
            let answers = self.expected_answers(request, publisher_port.info()).filter(|_| !before.is_anothers());
            accepted.answers = answers.as_ref().map(|answers| answers.subscriber.clone());
            let stream = Arc::new(TcpStream::from(stream));
            let Ok(half) = TcpSend::new(stream.clone()) else { return Ok(()) };
            tcp::retransmit_soon(&stream);
            let class = publisher_port.info().qos.class;
            // Two channels on one stream end together: such a flow does not outlast its connection.
            let settings = settings(accepted.flow);
            let settings = FlowSettings { outlasts: settings.outlasts && answers.is_none(), ..settings };
            let flow = self.flow(settings, class, Box::new(half), tcp::CAPABILITIES, &place);
            let reply = reply(stream.clone(), accepted, Vec::new());
            let entry = match answers {
                None => Entry::Served(stream, None),
                Some(answers) => {
                    self.receive_answers(answers, stream.clone(), &place);
                    Entry::Shared(stream, None, None)
                }
            };
            self.attach(request, publisher_port, Way::Flow(flow), entry, reply, None);
            return Ok(());
        }
        let Some(carrier) = self.state.carrier(&request.carrier) else {
            return Err((refused(Subject::Carrier, request, "a carrier that the publisher's build has"), stream));
        };
        if carrier.capabilities().multicast && request.parameters.probe && !heard {
            return self.begin_probe(carrier.as_ref(), request, &publisher_port, &place, settings, stream);
        }
        let (way, accepted) =
            match self.open_sender(carrier.as_ref(), request, publisher_port.as_ref(), &place, settings) {
                Ok(opened) => opened,
                Err(error) => {
                    return Err((refused(Reason::System, request, &format!("{}: {error}", request.carrier)), stream));
                }
            };
        let stream = Arc::new(TcpStream::from(stream));
        tcp::notice_outage_at_once(&stream); // no samples are sent on it, whose failure would show that the host vanished
        let reply = reply(stream.clone(), accepted, Vec::new());
        self.attach(request, publisher_port, way, Entry::Served(stream, None), reply, Some(&place));
        Ok(())
    }

    /// Opens a ring for a subscriber of this host. Its descriptors travel with the answer.
    fn offer_shared_memory(
        &mut self,
        request: &Request,
        publisher_port: Arc<dyn AnyPublisher>,
        stream: OwnedFd,
    ) -> Result<(), (Refused, OwnedFd)> {
        let opened = self.open_ring(request, publisher_port.as_ref());
        let (ring, ring_fd, payload_fd) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                return Err((refused(Reason::System, request, &format!("no shared memory: {error}")), stream));
            }
        };
        let accepted = self.accepted(request, publisher_port.as_ref(), self.random_flow(), Parameters::default());
        let stream = Arc::new(stream);
        let reply = reply(stream.clone(), accepted, vec![payload_fd, ring_fd]);
        self.attach(request, publisher_port, Way::Ring(ring), Entry::ServedUnix(stream, None), reply, None);
        Ok(())
    }

    fn open_ring(
        &mut self,
        request: &Request,
        publisher_port: &dyn AnyPublisher,
    ) -> io::Result<(Ring, OwnedFd, OwnedFd)> {
        let hold = request.parameters.hold.unwrap_or(HELD_BESIDES).clamp(1, MOST_DEPTH);
        let payload_fd = publisher_port.payload_memory(hold)?;
        let (qos, bit) = (&publisher_port.info().qos, self.state.next_bit());
        let depth = qos.queue.limit().min(MOST_DEPTH);
        let opened = RingHalf::create(depth, hold, bit, qos.queue_bytes()).inspect_err(|_| publisher_port.unhold(hold));
        opened.map(|(half, ring_fd)| (Ring::new(half, qos.queue), ring_fd, payload_fd))
    }

    /// Checks that this node has the requested stream, and may offer it to this subscriber.
    fn check(&mut self, request: &Request) -> Result<(Arc<dyn AnyPublisher>, Sending), Refused> {
        check_greeting(request, &self.state.settings.realm)?;
        if self.is_hosted(request) {
            return self.hosted_for(request).map(|publisher_port| (publisher_port, Sending::default()));
        }
        check_node(request, self.state.id)?;
        let open = self.state.publisher_port(request.to_port).filter(|(publisher_port, _)| !publisher_port.is_closed());
        let granted = check_port(request, open.as_ref().map(|(publisher_port, _)| publisher_port.info()));
        if let Err(NotGranted { refused, told }) = granted {
            self.act(told);
            return Err(refused);
        }
        open.ok_or_else(|| refused(Reason::Port, request, "a port that is open"))
    }

    pub(crate) fn accepted(
        &self,
        request: &Request,
        publisher_port: &dyn AnyPublisher,
        flow: u32,
        parameters: Parameters,
    ) -> Accepted {
        let max_message = publisher_port.info().qos.max_message.min(request.subscriber.qos.max_message);
        let Source { incarnation, clock } = self.source(ends(request).0);
        Accepted {
            flow,
            incarnation,
            last_seq: publisher_port.last_seq(),
            max_message,
            clock,
            parameters,
            answers: None,
            scaled: self.scaled_for(request, publisher_port),
        }
    }

    /// Attaches the new channel to its publisher.
    pub(crate) fn attach(
        &mut self,
        request: &Request,
        publisher_port: Arc<dyn AnyPublisher>,
        way: Way,
        entry: Entry,
        reply: Reply,
        place: Option<&Place>,
    ) {
        let pair = ends(request);
        let Source { incarnation, clock } = self.source(pair.0);
        let same_clock = request.clock == clock;
        let ports = (publisher_port.info(), &request.subscriber);
        let account = self.account_of(request.node, entry.descriptor());
        let mut channel = self.channel(pair, ports, (&request.carrier, same_clock), incarnation, account);
        channel.replaces = self.waiting_for(request).filter(|_| !request.moves).map(|older| older.id);
        let proxied = self.scaled_for(request, publisher_port.as_ref()).zip(request.proxy.as_ref());
        let proxied = proxied.map(|(provenance, proxy)| Proxied { place: proxy.place.clone(), provenance });
        let channel = Arc::new(channel.scaled(Proxy::sent(request.proxy.as_ref()), proxied));
        place.map(|place| channel.member.set(flows::member(request, place)));
        request.token.map(|token| channel.token.set(token));
        self.elsewhere(request.node, entry.descriptor()).map(|elsewhere| channel.elsewhere.set(elsewhere));
        self.prioritise_sent(&channel, &way, &entry);
        let token = self.watch_served(entry, channel.clone());
        self.attach_now(PendingAttach { publisher_port, channel, way, token, answer: Some(reply) });
    }

    /// Checks that a port has room for one more channel to the peer of this stream. A channel that is replaced, `but`, does not count.
    pub(super) fn check_room(&self, request: &Request, stream: impl AsFd, but: Option<u64>) -> Result<(), Refused> {
        let Some(peer) = self.elsewhere(request.node, stream) else { return Ok(()) };
        let publisher = PortRef { node: request.to_node, port: request.to_port };
        if publisher.node != self.state.id {
            return self.check_room_at_relay(peer, but);
        }
        let its = |channel: &Channel| channel.publisher == publisher && Some(channel.id) != but;
        let settings = &self.state.settings;
        room::check(&settings.name, settings.limits.channels, peer, self.channels_elsewhere(its))
    }

    /// Like [`Control::check_room`], for a relay's proxies of all its sources.
    fn check_room_at_relay(&self, peer: Elsewhere, but: Option<u64>) -> Result<(), Refused> {
        let its = |channel: &Channel| channel.publisher.node != self.state.id && Some(channel.id) != but;
        self.relay.check_share(peer, self.channels_elsewhere(its).chain(self.waiting_elsewhere()))
    }

    fn waiting_elsewhere(&self) -> impl Iterator<Item = Elsewhere> {
        self.relay.streams.waiting_requests().filter_map(|(request, stream)| self.elsewhere(request.node, stream))
    }

    /// The peers of those channels of this node that lead elsewhere.
    fn channels_elsewhere(&self, its: impl Fn(&Channel) -> bool) -> impl Iterator<Item = Elsewhere> {
        let of = |entry: &'_ Entry| match entry {
            Entry::Served(stream, Some(channel)) | Entry::Shared(stream, Some(channel), _) => {
                Some((stream.clone(), channel.clone()))
            }
            _ => None,
        };
        let served = self.descriptors.all().filter_map(of);
        let served = served.filter(move |(_, channel): &(_, Arc<Channel>)| its(channel));
        served.filter_map(|(stream, channel)| self.elsewhere(channel.subscriber.node, &*stream))
    }

    /// The memory account of the peer at the other end of a stream, which claims to be `node`.
    pub(super) fn account_of(&self, node: NodeId, stream: impl AsFd) -> Arc<Account> {
        self.state.memory.peer(self.whose(node, stream))
    }

    /// The peer whose memory a stream takes.
    pub(super) fn whose(&self, node: NodeId, stream: impl AsFd) -> Peer {
        self.elsewhere(node, stream).map_or(Peer::Node(node), |(host, _)| host)
    }

    /// The identity of a peer; `None`: a node of this host.
    pub(super) fn elsewhere(&self, node: NodeId, stream: impl AsFd) -> Option<Elsewhere> {
        let socket = socket2::SockRef::from(&stream);
        if socket.domain().is_ok_and(|domain| domain == socket2::Domain::UNIX) {
            return None;
        }
        let ip = |address: std::io::Result<socket2::SockAddr>| {
            address.ok()?.as_socket().map(|address| address.ip().to_canonical())
        };
        // A stream that was reset meanwhile has no address.
        let (own, peer) = (ip(socket.local_addr()), ip(socket.peer_addr()).unwrap_or(Ipv6Addr::UNSPECIFIED.into()));
        let here = own == Some(peer) && self.discoveries.is_of_this_host(node);
        (!here).then(|| (Peer::at(peer), node))
    }
}

/// The publishing and the subscribing port of a request.
pub(super) fn ends(request: &Request) -> super::matching::Pair {
    (PortRef { node: request.to_node, port: request.to_port }, PortRef { node: request.node, port: request.port })
}

/// The acceptance, to be sent as soon as the publisher has the channel. If it cannot be sent, the subscriber is gone, which the end of the
/// stream shows as well.
fn reply(stream: Arc<impl AsFd + Send + Sync + 'static>, accepted: Accepted, descriptors: Vec<OwnedFd>) -> Reply {
    // The answer is packed now, because it is sent while the port is locked.
    let acceptance = Acceptance::pack(accepted);
    Box::new(move |last_seq| {
        let bytes = acceptance.map(|acceptance| acceptance.after(last_seq)).unwrap_or_default();
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let _ = linux::socket::send_with_descriptors(stream.as_fd(), &bytes, &descriptors);
    })
}

/// Sends an answer. The stream's send buffer is empty, so the answer fits in whole.
pub(crate) fn answer(stream: &OwnedFd, answer: &Answer) -> io::Result<()> {
    let bytes = handshake::pack(answer).map_err(io::Error::other)?;
    let taken = linux::socket::send(stream.as_fd(), &bytes)?;
    if taken == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn place_of(stream: &OwnedFd, request: &Request) -> Option<Place> {
    let socket = socket2::SockRef::from(stream);
    let (local, peer): (SocketAddr, SocketAddr) =
        (socket.local_addr().ok()?.as_socket()?, socket.peer_addr().ok()?.as_socket()?);
    Some(Place { local, peer, port_number: number_of(request) })
}

fn number_of(request: &Request) -> u64 {
    let port = PortRef { node: request.to_node, port: request.to_port };
    port_number(port, request.proxy.as_ref())
}

/// A number for a publishing port and the part of its samples that is sent. Both ends can compute it.
pub(crate) fn port_number(port: PortRef, proxy: Option<&Proxy>) -> u64 {
    let sent = Proxy::sent(proxy).number_of().rotate_left(7) ^ proxy.map_or(0, Proxy::number_of);
    // Fibonacci hashing: spreads neighbouring ports of one node over the groups.
    (port.node.0 ^ u64::from(port.port.0) ^ sent).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
}

/// Bytes of fragments that are sent at once to a receiver that did not state the size of its buffer.
const CAREFUL_BURST: usize = 64 << 10;
/// Most samples that wait in a ring.
const MOST_DEPTH: u32 = 32_768;
/// Samples that a subscriber may hold if it does not state their number.
const HELD_BESIDES: u32 = 16;
