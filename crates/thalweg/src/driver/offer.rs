//! The publisher's side of the handshake: it checks a subscriber's request, answers it, and opens the channel.

use super::control::Control;
use super::entries::{Entry, PendingAttach};
use super::matching::grant::{NotGranted, check_greeting, check_node, check_port, refused};
use super::matching::is_reliable;
use super::reliable;
use super::succession::Before;
use crate::carrier::shm::RingHalf;
use crate::carrier::tcp::{self, TcpSend};
use crate::carrier::{self, Capabilities, Carrier, Parameters, Place, SendHalf};
use crate::channel::PortRef;
use crate::channel::flow::{Flow, FlowSettings, Sending};
use crate::channel::proxy::{Proxied, Proxy};
use crate::channel::ring::Ring;
use crate::control::matching::Subject;
use crate::handshake::{self, Accepted, Answer, Reason, Refused, Request};
use crate::port::{AnyOutlet, Reply, Way};
use qos::Reliability;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Bytes of fragments that are sent at once to a receiver that did not state the size of its buffer.
const CAREFUL_BURST: usize = 64 << 10;

/// Most samples that wait in a ring.
const MOST_DEPTH: u32 = 32_768;
/// Samples that a subscriber may hold if it does not state their number.
const HELD_BESIDES: u32 = 16;

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
        let (outlet, sending) = match self.check(request) {
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
        let reliable = is_reliable(&outlet.info().qos, &request.subscriber.qos);
        let outlasts = reliable && place.as_ref().is_some_and(Place::is_between_hosts);
        let account = self.account_of(request.node, &stream);
        let settings = |id| FlowSettings {
            id,
            policy: outlet.info().qos.queue,
            bytes: usize::try_from(outlet.info().qos.queue_bytes()).unwrap_or(usize::MAX),
            account: account.clone(),
            burst: request.parameters.buffer.map_or(CAREFUL_BURST, |b| b as usize / 4),
            sending: sending.within(outlet.info().qos.latency_budget),
            lifespan: outlet.info().qos.lifespan.map(|l| u64::try_from(l.as_nanos()).unwrap_or(u64::MAX)),
            reliable: None,
            control: None,
            outlasts,
        };
        if request.carrier == carrier::Name::Shm {
            return self.offer_shared_memory(request, outlet, stream);
        }
        let Some(place) = place else {
            return Err((refused(Subject::Carrier, request, "a stream with addresses: connect by TCP"), stream));
        };
        if request.carrier == carrier::Name::Tcp {
            let mut accepted = self.accepted(request, outlet.as_ref(), self.random_flow(), Parameters::default());
            let answers = self.expected_answers(request, outlet.info()).filter(|_| !before.is_anothers());
            accepted.answers = answers.as_ref().map(|answers| answers.subscriber.clone());
            let stream = Arc::new(TcpStream::from(stream));
            let Ok(half) = TcpSend::new(stream.clone()) else { return Ok(()) };
            tcp::retransmit_soon(&stream);
            let class = outlet.info().qos.class;
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
            self.attach(request, outlet, Way::Flow(flow), entry, reply, None);
            return Ok(());
        }
        let Some(carrier) = self.state.carrier(&request.carrier) else {
            return Err((refused(Subject::Carrier, request, "a carrier that the publisher's build has"), stream));
        };
        if carrier.capabilities().multicast && request.parameters.probe && !heard {
            return self.begin_probe(carrier.as_ref(), request, &outlet, &place, settings, stream);
        }
        let (way, accepted) = match self.open_sender(carrier.as_ref(), request, outlet.as_ref(), &place, settings) {
            Ok(opened) => opened,
            Err(error) => {
                return Err((refused(Reason::System, request, &format!("{}: {error}", request.carrier)), stream));
            }
        };
        let stream = Arc::new(TcpStream::from(stream));
        tcp::notice_outage_at_once(&stream); // no samples are sent on it, whose failure would show that the host vanished
        let reply = reply(stream.clone(), accepted, Vec::new());
        self.attach(request, outlet, way, Entry::Served(stream, None), reply, Some(&place));
        Ok(())
    }

    /// Opens a ring for a subscriber of this host. Its descriptors travel with the answer.
    fn offer_shared_memory(
        &mut self,
        request: &Request,
        outlet: Arc<dyn AnyOutlet>,
        stream: OwnedFd,
    ) -> Result<(), (Refused, OwnedFd)> {
        let opened = self.open_ring(request, outlet.as_ref());
        let (ring, ring_fd, payload_fd) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                return Err((refused(Reason::System, request, &format!("no shared memory: {error}")), stream));
            }
        };
        let accepted = self.accepted(request, outlet.as_ref(), self.random_flow(), Parameters::default());
        let stream = Arc::new(stream);
        let reply = reply(stream.clone(), accepted, vec![payload_fd, ring_fd]);
        self.attach(request, outlet, Way::Ring(ring), Entry::ServedUnix(stream, None), reply, None);
        Ok(())
    }

    fn open_ring(&mut self, request: &Request, outlet: &dyn AnyOutlet) -> io::Result<(Ring, OwnedFd, OwnedFd)> {
        let hold = request.parameters.hold.unwrap_or(HELD_BESIDES).clamp(1, MOST_DEPTH);
        let payload_fd = outlet.payload_memory(hold)?;
        let (qos, bit) = (&outlet.info().qos, self.state.next_bit());
        let depth = qos.queue.limit().min(MOST_DEPTH);
        let opened = RingHalf::create(depth, hold, bit, qos.queue_bytes()).inspect_err(|_| outlet.unhold(hold));
        opened.map(|(half, ring_fd)| (Ring::new(half, qos.queue), ring_fd, payload_fd))
    }

    fn open_sender(
        &mut self,
        carrier: &dyn Carrier,
        request: &Request,
        outlet: &dyn AnyOutlet,
        place: &Place,
        settings: impl Fn(u32) -> FlowSettings,
    ) -> io::Result<(Way, Accepted)> {
        if carrier.capabilities().multicast {
            let (flow, parameters) = self.group_flow(carrier, request, outlet, place, settings)?;
            let before = self.waiting_for(request).and_then(|older| older.member.get().copied());
            let parameters = admitted(&flow, request, place, (before, parameters));
            flow.resume();
            let accepted = self.accepted(request, outlet, flow.settings.id, parameters);
            return Ok((Way::Group(flow), accepted));
        }
        let (flow, mut parameters) = self.open_flow(carrier, request, outlet, place, settings)?;
        parameters.first = flow.admit(0, None);
        let accepted = self.accepted(request, outlet, flow.settings.id, parameters);
        Ok((Way::Flow(flow), accepted))
    }

    /// The flow to the group that the subscriber is to join: the existing one, or a new one.
    pub(super) fn group_flow(
        &mut self,
        carrier: &dyn Carrier,
        request: &Request,
        outlet: &dyn AnyOutlet,
        place: &Place,
        settings: impl Fn(u32) -> FlowSettings,
    ) -> io::Result<(Arc<Flow>, Parameters)> {
        let picture = request.proxy.as_ref().and_then(|proxy| proxy.picture);
        let key = (ends(request).0, place.local.ip(), Proxy::sent(request.proxy.as_ref()), picture);
        if let Some(found) = self.groups.find(&key, |flow| flow.takes_members()) {
            return Ok(found.clone());
        }
        let opened = self.open_flow(carrier, request, outlet, place, settings)?;
        self.groups.insert(key, opened.0.clone(), opened.1.clone());
        Ok(opened)
    }

    /// A new flow, and the parameters of the publisher's end that its subscribers need.
    fn open_flow(
        &mut self,
        carrier: &dyn Carrier,
        request: &Request,
        outlet: &dyn AnyOutlet,
        place: &Place,
        settings: impl Fn(u32) -> FlowSettings,
    ) -> io::Result<(Arc<Flow>, Parameters)> {
        let multicast = carrier.capabilities().multicast;
        let sender = carrier.sender(place, &request.parameters)?;
        let (offered, asked) = (&outlet.info().qos, &request.subscriber.qos);
        let mut settings = settings(self.random_flow());
        if multicast {
            settings.account = self.state.memory.group();
            settings.outlasts = offered.reliability == Reliability::Reliable;
        }
        if !sender.capabilities.reliable && sender.half.hears() {
            let most = sender.capabilities.max_datagram;
            settings.reliable = match multicast {
                // Later members may ask for the reliability that the first member does not need.
                true if offered.reliability == Reliability::Reliable => {
                    Some(reliable::sender_settings(offered, offered, most))
                }
                false if is_reliable(offered, asked) => Some(reliable::sender_settings(offered, asked, most)),
                _ => None,
            };
        }
        self.look_after(sender.half.membership(), &outlet.info().name);
        settings.control = reliable::control(request, &settings, sender.capabilities);
        let mut parameters = sender.parameters;
        parameters.receipts = settings.control.map(|control| reliable::receipts_every(&control));
        parameters.window = settings.reliable.and_then(|keeps| u32::try_from(keeps.window).ok());
        let flow = self.flow(settings, offered.class, sender.half, sender.capabilities, place);
        if flow.is_kept() {
            self.state.senders.hear(&flow)?;
        }
        Ok((flow, parameters))
    }

    pub(super) fn flow(
        &self,
        settings: FlowSettings,
        class: qos::Class,
        half: Box<dyn SendHalf>,
        capabilities: Capabilities,
        place: &Place,
    ) -> Arc<Flow> {
        let half = self.state.settings.around.sender(half, capabilities, crate::carrier::way(place.local, place.peer));
        self.state.senders.prepare(class);
        Arc::new(Flow::new(settings, class, half, capabilities, self.state.senders.clone()))
    }

    /// Checks that this node has the requested stream, and may offer it to this subscriber.
    fn check(&mut self, request: &Request) -> Result<(Arc<dyn AnyOutlet>, Sending), Refused> {
        check_greeting(request, &self.state.settings.realm)?;
        if self.is_hosted(request) {
            return self.hosted_for(request).map(|outlet| (outlet, Sending::default()));
        }
        check_node(request, self.state.id)?;
        let open = self.state.outlet(request.to_port).filter(|(outlet, _)| !outlet.is_closed());
        let granted = check_port(request, open.as_ref().map(|(outlet, _)| outlet.info()));
        if let Err(NotGranted { refused, told }) = granted {
            self.act(told);
            return Err(refused);
        }
        open.ok_or_else(|| refused(Reason::Port, request, "a port that is open"))
    }

    pub(crate) fn accepted(
        &self,
        request: &Request,
        outlet: &dyn AnyOutlet,
        flow: u32,
        parameters: Parameters,
    ) -> Accepted {
        let max_message = outlet.info().qos.max_message.min(request.subscriber.qos.max_message);
        let (incarnation, clock) = self.source(request.to_node);
        Accepted {
            flow,
            incarnation,
            last_seq: outlet.last_seq(),
            max_message,
            clock,
            parameters,
            answers: None,
            scaled: self.scaled_for(request, outlet),
        }
    }

    /// Attaches the new channel to its publisher.
    pub(crate) fn attach(
        &mut self,
        request: &Request,
        outlet: Arc<dyn AnyOutlet>,
        way: Way,
        entry: Entry,
        reply: Reply,
        place: Option<&Place>,
    ) {
        let (incarnation, clock) = self.source(request.to_node);
        let same_clock = request.clock == clock;
        let pair = ends(request);
        let ports = (outlet.info(), &request.subscriber);
        let account = self.account_of(request.node, entry.descriptor());
        let mut channel = self.channel(pair, ports, (&request.carrier, same_clock), incarnation, account);
        channel.replaces = self.waiting_for(request).filter(|_| !request.moves).map(|older| older.id);
        let proxied = self.scaled_for(request, outlet.as_ref()).zip(request.proxy.as_ref());
        let proxied = proxied.map(|(provenance, proxy)| Proxied { place: proxy.place.clone(), provenance });
        let channel = Arc::new(channel.scaled(Proxy::sent(request.proxy.as_ref()), proxied));
        place.map(|place| channel.member.set(reliable::member(request, place)));
        request.token.map(|token| channel.token.set(token));
        self.elsewhere(request.node, entry.descriptor()).map(|elsewhere| channel.elsewhere.set(elsewhere));
        self.prioritise_sent(&channel, &way, &entry);
        let token = self.watch_served(entry, channel.clone());
        self.attach_now(PendingAttach { outlet, channel, way, token, answer: Some(reply) });
    }
}

/// Admits a reliable member to a group that retransmits. If the member comes back, `before` is its former number, whose place it takes.
/// Returns the parameters of its answer.
fn admitted(
    flow: &Flow,
    request: &Request,
    place: &Place,
    (before, parameters): (Option<u64>, Parameters),
) -> Parameters {
    let asks = request.subscriber.qos.reliability == Reliability::Reliable;
    let Some(port) = request.parameters.udp_port.filter(|_| asks) else { return parameters };
    let mut address = place.peer;
    address.set_port(port);
    let member = reliable::member(request, place);
    let first = before.and_then(|before| flow.readmit(before, member, address));
    Parameters { first: first.or_else(|| flow.admit(member, Some(address))), ..parameters }
}

/// The publishing and the subscribing port of a request.
pub(super) fn ends(request: &Request) -> super::matching::Pair {
    (PortRef { node: request.to_node, port: request.to_port }, PortRef { node: request.node, port: request.port })
}

/// The acceptance, to be sent as soon as the publisher has the channel. If it cannot be sent, the subscriber is gone, which the end of the
/// stream shows as well.
fn reply(stream: Arc<impl AsFd + Send + Sync + 'static>, accepted: Accepted, descriptors: Vec<OwnedFd>) -> Reply {
    // The answer is packed now, because it is sent while the port is locked.
    let bytes = handshake::pack(&Answer::Accepted(accepted)).unwrap_or_default();
    Box::new(move || {
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
