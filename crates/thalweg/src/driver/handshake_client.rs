//! The subscriber's side of the handshake: connect, ask, read the answer, open the receiving half.

use super::channels::takes_all;
use super::control::Control;
use super::entries::Entry;
use super::matching::{Candidate, Pair, Route, Wanted, is_of_the_way, is_reliable, refusal_text};
use super::priority::Side;
use super::probe::Hearing;
use super::state::NodeState;
use crate::carrier;
use crate::carrier::shm::RingReceive;
use crate::carrier::tcp::{self, TcpReceive};
use crate::carrier::{Carrier, Opening, Parameters, Place, ReceiveHalf, shared};
use crate::channel::inbound::{Agreed, Inbound};
use crate::channel::memory::Account;
use crate::channel::proxy::Proxy;
use crate::control::CHANNEL_HANDSHAKE;
use crate::control::local::Users;
use crate::handshake::{self, Accepted, Answer, Answers, Refused, Request, VERSION};
use linux::poll::Readiness;
use qos::Durability;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A handshake that this node began.
pub(crate) struct ClientHandshake {
    pub pair: Pair,
    pub stream: OwnedFd,
    begun: Instant,
    /// The time that the connection took.
    connected_in: Duration,
    pub until: Instant,
    /// The handshake opens a channel beside the present one, for a proxy that moves.
    pub moves: bool,
    proxy: Proxy,
    carrier: carrier::Name,
    elsewhere: bool,
    /// The channel will be read in shared memory, by a thread of its own.
    wants_thread: bool,
    connecting: bool,
    request: Option<Request>,
    answers: Option<Answers>,
    pub(super) place: Option<Place>,
    pub(super) opening: Option<Box<dyn Opening>>,
    /// The probe that this handshake waits for.
    pub(super) hearing: Option<Hearing>,
    via: Option<Arc<dyn Carrier>>,
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// Longest wait for the answer to an attempt; then the next attempt begins afresh. The time is short, because the first attempt that
/// reaches the peer after an outage should not wait for a retransmission (P-16: within a second).
pub(super) const ATTEMPT: Duration = Duration::from_millis(500);
/// The answer may take so many times as long as the connection did: both wait in the same queue, which may hold more than [`ATTEMPT`] where a link
/// is full. An outage lets no connection come about, so attempts stay short then.
const ANSWER: u32 = 4;

/// Most handshakes over TCP at once. The address in a document may lead to no node, or to another one.
pub(super) const MOST_HANDSHAKES: usize = 64;
/// Most handshakes over TCP with one node, so that a node with a wrong address leaves room for others.
pub(super) const MOST_HANDSHAKES_WITH_NODE: usize = 16;
/// The reason of a handshake that ends because the kernel watches no more.
pub(super) const UNWATCHED: &str = "the connection cannot be watched: out of descriptors?";
/// Most descriptors of an answer. A channel needs two; an answer with more than this limit is refused.
const MOST_DESCRIPTORS: usize = 8;

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl ClientHandshake {
    /// `true` if the handshake goes over TCP.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// `true` if the channel will need a reader thread of its own: one in shared memory, unless its port is polled.
    pub(super) fn wants_thread(&self) -> bool {
        self.wants_thread
    }

    /// Begins to connect, without waiting. `moving`: the patience of a move; `None`: the pair has no channel.
    pub(crate) fn start(
        state: &NodeState,
        pair: Pair,
        wanted: &Wanted,
        candidate: &Candidate,
        moving: Option<Duration>,
    ) -> Result<Self, String> {
        let (begun, moves) = (Instant::now(), moving.is_some());
        let stream = connect(&candidate.route).map_err(|e| format!("cannot connect to {:?}: {e}", candidate.route))?;
        let via = state.carrier(&candidate.carrier);
        let loses = via.as_ref().map(|via| via.capabilities()).filter(|of| !of.reliable && !of.multicast);
        let proxy = Proxy { place: candidate.place.clone(), ..wanted.proxy.clone() };
        let request = Request {
            version: VERSION,
            realm: state.settings.realm.clone(),
            node: state.id,
            port: pair.1.port,
            subscriber: wanted.subscriber.clone(),
            to_node: pair.0.node,
            to_port: pair.0.port,
            carrier: candidate.carrier.clone(),
            clock: state.clock.clone(),
            by_name: wanted.by_name,
            parameters: Parameters {
                hold: hold(state, pair, wanted),
                batches: loses.is_some(),
                short_headers: loses.is_some(),
                ..Parameters::default()
            },
            answers: super::answers::offer(state, wanted, &candidate.carrier).filter(|_| !moves),
            proxy: Some(proxy.clone()).filter(|proxy| !proxy.is_nothing()),
            moves,
            token: Some(state.token(pair, &candidate.place)),
        };
        let answers = request.answers.clone();
        Ok(Self {
            pair,
            stream,
            begun,
            connected_in: Duration::ZERO,
            until: begun + moving.unwrap_or(ATTEMPT),
            moves,
            proxy,
            carrier: candidate.carrier.clone(),
            elsewhere: matches!(candidate.route, Route::Tcp(_)),
            wants_thread: candidate.carrier == carrier::Name::Shm && !is_polled(state, pair),
            connecting: true,
            request: Some(request),
            answers,
            place: None,
            opening: None,
            hearing: None,
            via,
            bytes: Vec::new(),
            descriptors: Vec::new(),
        })
    }

    /// The longest wait for an answer.
    pub(super) fn patience(&self) -> Duration {
        ATTEMPT.max(ANSWER * self.connected_in)
    }

    /// The connection is established: opens this end and sends the request. The peer at a unix socket must be one of `users`; `account` is
    /// the peer's memory at this node.
    fn ask(&mut self, users: Users, account: &Account) -> io::Result<()> {
        let socket = socket2::SockRef::from(&self.stream);
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        if socket.domain()? == Domain::UNIX {
            users.admit(&self.stream)?;
        }
        let Some(mut request) = self.request.take() else { return Ok(()) };
        if let Some(via) = &self.via {
            let (local, peer) = (socket.local_addr()?.as_socket(), socket.peer_addr()?.as_socket());
            let (Some(local), Some(peer)) = (local, peer) else { return Err(io::ErrorKind::AddrNotAvailable.into()) };
            let port_number = super::handshake_server::port_number(self.pair.0, request.proxy.as_ref());
            let place = Place { local, peer, port_number };
            let (opening, parameters) = via.receiver(&place)?;
            let Parameters { batches, short_headers, .. } = request.parameters;
            let takes = batches.then(|| super::flows::takes(account));
            request.parameters = Parameters { takes, batches, short_headers, ..parameters };
            (self.opening, self.place) = (Some(opening), Some(place));
        }
        let mut bytes = vec![CHANNEL_HANDSHAKE];
        bytes.extend(handshake::pack(&request).map_err(io::Error::other)?);
        // The empty buffer of a new connection holds a whole request.
        if linux::socket::send(self.stream.as_fd(), &bytes)? != bytes.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.connecting = false;
        // This process may have been stopped meanwhile.
        self.connected_in = self.begun.elapsed().min(self.until - self.begun);
        self.until = self.until.max(Instant::now() + ANSWER * self.connected_in);
        Ok(())
    }

    /// Reads the answer, and no byte beyond it: on a TCP channel, frames follow.
    fn read(&mut self) -> io::Result<Option<Answer>> {
        loop {
            let needed = match self.bytes.first_chunk::<4>() {
                None => 4,
                Some(length) => 4 + (u32::from_le_bytes(*length) as usize).min(handshake::LARGEST + 1),
            };
            let have = self.bytes.len();
            if have >= needed && have >= 4 {
                let answer = handshake::unpack::<Answer>(&self.bytes).map_err(io::Error::other)?;
                self.bytes.clear(); // another answer may follow
                return Ok(answer.map(|(answer, _)| answer));
            }
            self.bytes.resize(needed, 0);
            let result = linux::socket::receive_with_descriptors(
                self.stream.as_fd(),
                &mut self.bytes[have..],
                &mut self.descriptors,
            );
            self.bytes.truncate(have + *result.as_ref().unwrap_or(&0));
            if self.descriptors.len() > MOST_DESCRIPTORS {
                return Err(crate::carrier::invalid("an answer with more descriptors than a ring has"));
            }
            match result {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// `true` if another handshake over TCP with this node may begin.
    pub(super) fn may_begin_handshake(&self, pair: Pair) -> bool {
        let (all, same) = self.descriptors.handshakes().elsewhere(pair.0.node);
        all < MOST_HANDSHAKES && same < MOST_HANDSHAKES_WITH_NODE
    }

    /// Continues a handshake that this node began.
    pub(super) fn handshake_ready(&mut self, index: usize) {
        let Some(mut handshake) = self.take_handshake(index) else { return };
        if handshake.connecting {
            let account = self.account_of(handshake.pair.0.node, &handshake.stream);
            match handshake.ask(self.state.users, &account) {
                Ok(()) => self.await_answer(handshake),
                Err(error) => self.handshake_failed(handshake.pair, handshake.moves, &error.to_string()),
            }
            return;
        }
        if let Err(error) = handshake.receive() {
            return self.handshake_failed(handshake.pair, handshake.moves, &error.to_string());
        }
        match handshake.read() {
            Ok(None) => self.await_answer(handshake),
            Ok(Some(answer)) => self.take_answer(handshake, answer),
            Err(error) => self.handshake_failed(handshake.pair, handshake.moves, &error.to_string()),
        }
    }

    fn take_answer(&mut self, handshake: Box<ClientHandshake>, answer: Answer) {
        match answer {
            Answer::Probe(probe) => self.probed(handshake, probe),
            Answer::Accepted(accepted) => self.accept(*handshake, accepted),
            Answer::Refused(refused) => self.refused(&handshake, refused),
        }
    }

    /// The time of a handshake is over. An answer that has come, but was not read because this thread had no time, counts: the publisher
    /// has the channel, and may have published on it.
    pub(super) fn handshake_late(&mut self, index: usize) {
        let Some(mut handshake) = self.take_handshake(index) else { return };
        let read = if handshake.connecting { Ok(None) } else { handshake.read() };
        match read {
            Ok(Some(answer)) => self.take_answer(handshake, answer),
            _ => self.handshake_failed(handshake.pair, handshake.moves, &handshake.late()),
        }
    }

    /// Waits for the peer. What nobody watches would be under way for ever.
    pub(super) fn await_answer(&mut self, handshake: Box<ClientHandshake>) {
        let (pair, moves) = (handshake.pair, handshake.moves);
        if self.watch(Entry::ClientHandshake(handshake), Readiness::IN).is_none() {
            self.handshake_failed(pair, moves, UNWATCHED);
        }
    }

    fn take_handshake(&mut self, index: usize) -> Option<Box<ClientHandshake>> {
        match self.unwatch(index)? {
            Entry::ClientHandshake(handshake) => Some(handshake),
            _ => None,
        }
    }

    pub(super) fn handshake_failed(&mut self, pair: Pair, moves: bool, why: &str) {
        if moves { self.move_failed(pair, why) } else { self.try_failed(pair, why) }
    }

    fn refused(&mut self, handshake: &ClientHandshake, refused: Refused) {
        let (pair, by_relay) = (handshake.pair, handshake.proxy.place_is_relay());
        if handshake.moves {
            return self.handshake_failed(pair, true, &refusal_text(&refused));
        }
        // A channel of answers that waits begins in place of the failed one.
        if (by_relay || is_of_the_way(&refused)) && self.begin_upcoming(pair) {
            return;
        }
        let now = Instant::now();
        let actions = self.ask_matching(|matching, known| matching.refused(pair, by_relay, refused, known, now));
        self.act(actions);
    }

    fn accept(&mut self, mut handshake: ClientHandshake, accepted: Accepted) {
        let pair = handshake.pair;
        let (Some(subscriber_port), Some(wanted)) = (self.state.subscriber_port(pair.1.port), self.matching.get(&pair))
        else {
            return;
        };
        // The largest number to resume after is that of the publisher's last sample plus one, for a sample that is being published and may
        // have arrived already. A larger number is wrong. A relay may be behind its source, so its number is no limit.
        let most = if handshake.proxy.place_is_relay() { u64::MAX } else { accepted.last_seq.saturating_add(1) };
        let resume_after = self.resume_after(&pair, accepted.incarnation).min(most);
        let same_clock = accepted.clock == self.state.clock;
        let ports = (&wanted.publisher, &wanted.subscriber);
        let datagrams =
            handshake.via.as_ref().is_some_and(|via| !via.capabilities().reliable && !via.capabilities().stream);
        let qos = &subscriber_port.info().qos;
        let account = self.account_of(pair.0.node, &handshake.stream);
        let wants_all = datagrams && is_reliable(&wanted.publisher.qos, qos);
        let reliable = super::flows::receiver_settings(accepted.flow, qos, &accepted.parameters, account.clone())
            .filter(|_| wants_all);
        let builtin = handshake.carrier.is_built_in();
        if wants_all && builtin && reliable.is_none() {
            let why = "the publisher's version repeats nothing that is lost: use tcp";
            return self.handshake_failed(pair, handshake.moves, why);
        }
        let channel = self.channel(pair, ports, (&handshake.carrier, same_clock), accepted.incarnation, account);
        let mut channel = self.scaled(channel, &handshake.proxy, &accepted);
        let _ = channel.joined_after.set(accepted.last_seq);
        if resume_after > 0
            && !handshake.moves
            && !handshake.proxy.place_is_relay()
            && takes_all(&subscriber_port.info().qos)
        {
            channel.resumes_after = Some(resume_after);
        }
        let channel = Arc::new(channel);
        let (moves, asked) = (handshake.moves, handshake.proxy.clone());
        // A group's flow may have waited for another member that was cut off. Its first samples were then published before this subscriber
        // joined, and are skipped.
        let group = handshake.via.as_ref().is_some_and(|via| via.capabilities().multicast);
        let joins = group
            && resume_after == 0
            && most < u64::MAX
            && subscriber_port.info().qos.durability == Durability::Volatile;
        let resume_after = if joins { accepted.last_seq } else { resume_after };
        let agreed = Agreed {
            receipts: accepted.parameters.receipts.filter(|_| reliable.is_some()),
            reliable,
            flow: accepted.flow,
            max_message: accepted.max_message.min(subscriber_port.info().qos.max_message) as usize,
            stream: handshake.via.as_ref().is_none_or(|via| via.capabilities().stream),
            resume_after,
        };
        if handshake.carrier == carrier::Name::Shm {
            return match self.map_ring(handshake, &channel) {
                Ok(ring) => {
                    let inbound = Inbound::shared(channel, subscriber_port, ring, &agreed);
                    self.begin_or_pass(pair, inbound, moves, (&asked, accepted.last_seq));
                }
                Err(error) => self.handshake_failed(pair, moves, &error.to_string()),
            };
        }
        let answers = handshake.answers.take().zip(accepted.answers.clone());
        let stream = answers.as_ref().and_then(|_| handshake.stream.try_clone().ok());
        let half = match self.open_half(&mut handshake, &accepted, &channel) {
            Ok(half) => half,
            Err(error) => return self.handshake_failed(pair, moves, &error.to_string()),
        };
        let inbound = Inbound::new(channel, subscriber_port, half, agreed);
        match answers.zip(stream) {
            Some((answers, stream)) => self.send_answers(pair, answers, Arc::new(stream.into()), inbound),
            None => self.begin_or_pass(pair, inbound, moves, (&asked, accepted.last_seq)),
        }
    }

    /// The channel of a request is open; its first sample is the one that follows sample `after`.
    fn begin_or_pass(&mut self, pair: Pair, inbound: Inbound, moves: bool, (asked, after): (&Proxy, u64)) {
        if moves && self.moves.leaves(&pair) {
            return self.leave_for(pair, inbound, asked);
        }
        if moves {
            return self.begin_passage(pair, inbound, after);
        }
        self.hosted_from(pair.1.port, after);
        self.begin(pair, inbound);
        self.settle(pair, asked);
    }

    /// The channel is open: its port or a reader thread serves it from now on.
    pub(super) fn begin(&mut self, pair: Pair, inbound: Inbound) {
        let Some(subscriber_port) = self.state.subscriber_port(pair.1.port) else { return }; // the port closed: the channel is not wanted any more
        let channel = inbound.channel.clone();
        let late = self.joins_late(pair, &channel);
        // The channel is served before it is reported as open: a listener of the event may ask for its thread.
        self.serve_inbound(pair, inbound);
        if let Some(late) = late {
            self.fetch_history(pair, &channel, subscriber_port, late);
        }
        self.opened(pair, channel.clone());
        self.prioritise_opened(Side::Subscriber, &channel);
    }

    /// Maps the ring that came with the answer. The end of the stream tells each side that the other one has left. This thread watches one
    /// handle of it for the publisher's end; the ring keeps another handle as long as its samples are read.
    fn map_ring(
        &mut self,
        handshake: ClientHandshake,
        channel: &Arc<crate::channel::Channel>,
    ) -> io::Result<RingReceive> {
        let [payload, ring] = handshake.descriptors.as_slice() else {
            return Err(crate::carrier::invalid("the answer came without the two descriptors of a ring"));
        };
        let reader = RingReceive::attach(payload.as_fd(), ring.as_fd(), handshake.stream.try_clone()?)?;
        self.watch(Entry::Held(Arc::new(handshake.stream), channel.clone()), Readiness::IN | Readiness::RDHUP);
        Ok(reader)
    }

    fn open_half(
        &mut self,
        handshake: &mut ClientHandshake,
        accepted: &Accepted,
        channel: &Arc<crate::channel::Channel>,
    ) -> io::Result<Box<dyn ReceiveHalf>> {
        let stream = std::mem::replace(&mut handshake.stream, placeholder()?);
        let socket = socket2::SockRef::from(&stream);
        let ends = (socket.peer_addr()?.as_socket(), socket.local_addr()?.as_socket());
        if ends.1.is_some_and(|address| !address.ip().to_canonical().is_loopback()) {
            self.watch_interfaces(&channel.subscriber_name);
        }
        let state = self.state.clone();
        let around = |half, of| match ends {
            (Some(publisher), Some(subscriber)) => {
                state.settings.around.receiver(half, of, carrier::way(publisher, subscriber))
            }
            _ => half,
        };
        if let Some(opening) = handshake.opening.take() {
            let of = handshake.via.as_ref().map_or(tcp::CAPABILITIES, |via| via.capabilities());
            let half = opening.complete(&accepted.parameters)?;
            self.look_after(half.membership(), &channel.subscriber_name);
            let half = around(half, of);
            let stream = TcpStream::from(stream);
            tcp::notice_outage(&stream);
            let stream = Arc::new(OwnedFd::from(stream));
            let _ = channel.sockets.set(half.socket().into_iter().chain([shared(&stream)]).collect());
            self.watch(Entry::Held(stream, channel.clone()), Readiness::IN | Readiness::RDHUP);
            return Ok(half);
        }
        let stream = TcpStream::from(stream);
        tcp::notice_outage(&stream);
        let half = around(Box::new(TcpReceive::new(stream)?), tcp::CAPABILITIES);
        let _ = channel.sockets.set(half.socket().into_iter().collect());
        Ok(half)
    }
}

fn is_polled(state: &NodeState, pair: Pair) -> bool {
    state.subscriber_port(pair.1.port).is_some_and(|subscriber_port| subscriber_port.is_polled())
}

/// Most samples in shared memory that the subscriber may hold: those that wait in its port, and a few that are being read.
fn hold(state: &NodeState, pair: Pair, wanted: &Wanted) -> Option<u32> {
    const LOOKED_AT: u32 = 4;
    let keeps = state.subscriber_port(pair.1.port)?.keeps();
    Some(if keeps { wanted.subscriber.qos.queue.limit().saturating_add(LOOKED_AT) } else { LOOKED_AT })
}

/// A descriptor that takes the place of one that was moved out.
fn placeholder() -> io::Result<OwnedFd> {
    Ok(Socket::new(Domain::UNIX, Type::STREAM, None)?.into())
}

pub(super) fn connect(route: &Route) -> io::Result<OwnedFd> {
    let address = match route {
        Route::Process => return Err(io::ErrorKind::Unsupported.into()),
        Route::Unix(path) => return crate::control::local::connect(path).map(OwnedFd::from),
        Route::Tcp(address) => *address,
    };
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::from(address)) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

#[cfg(test)]
mod tests;
