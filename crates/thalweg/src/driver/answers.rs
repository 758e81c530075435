//! Answers on the connection of their questions (YARP's replies, Y-08). Over TCP, the channel from a subscriber's answering port to a
//! publisher's waiting port uses the other direction of the same stream.
//!
//! With two connections, the data of each direction would be acknowledged by packets of its own: one more packet per round trip, a quarter
//! of its time (docs/decisions/0007). Every other pair of channels keeps separate connections, because a connection has one mark per end
//! and the channel is the unit of priority.

use super::attachments::PendingAttach;
use super::control::{Command, Control};
use super::entries::Entry;
use super::matching::{Pair, Progress, Wanted};
use super::state::NodeState;
use crate::carrier::tcp::{self, TcpReceive, TcpSend};
use crate::carrier::{self, Place, ReceiveHalf};
use crate::channel::PortRef;
use crate::channel::flow::FlowSettings;
use crate::channel::inbound::{Agreed, Inbound};
use crate::channel::memory::Account;
use crate::control::PortInfo;
use crate::control::matching::{Match, compare};
use crate::handshake::{Answers, Request};
use crate::port::Way;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest travel time of a request that crosses an offer.
const CROSSING_TIME: Duration = Duration::from_secs(1);
/// Longest time that an older channel has to send its queue before it is dropped.
const LEAVING_TIME: Duration = Duration::from_secs(5);

/// At the publisher of questions: a channel of answers that was offered and can be accepted.
pub(super) struct Expected {
    pair: Pair,
    pub subscriber: PortInfo,
    answers: Answers,
    same_clock: bool,
}

/// A channel of answers that begins when an older one between the same ports has ended.
pub(crate) struct Upcoming {
    half: Box<dyn ReceiveHalf>,
    answers: Answers,
    same_clock: bool,
    account: Arc<Account>,
}

impl std::fmt::Debug for Upcoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "answers of {}", self.answers.publisher.name)
    }
}

/// At the subscriber of questions: the channel of answers that it offers along with its request.
pub(super) fn offer(state: &NodeState, wanted: &Wanted, carrier: &carrier::Name) -> Option<Answers> {
    wanted.publisher.answers.filter(|_| *carrier == carrier::Name::Tcp)?;
    let port = wanted.subscriber.answers?;
    let (publisher_port, _) = state.publisher_port(port).filter(|(publisher_port, _)| !publisher_port.is_closed())?;
    let publisher = publisher_port.info().clone();
    Some(Answers { port, publisher, flow: super::start::random() as u32, incarnation: state.incarnation })
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// The offered channel of answers, if a port of this node waits for them and may have it.
    pub(super) fn expected_answers(&self, request: &Request, questions: &PortInfo) -> Option<Expected> {
        let answers = request.answers.clone()?;
        let port = questions.answers?;
        let subscriber_port = self.state.subscriber_port(port)?;
        let pair = (PortRef { node: request.node, port: answers.port }, PortRef { node: self.state.id, port });
        let names = (answers.publisher.name.clone(), subscriber_port.info().name.clone());
        let waits = self.ends.get(&pair).is_some_and(|end| end.upcoming.is_some());
        let open = self.open_channel(&pair).map(|open| &open.carrier);
        let free = !self.matching.is_apart(&names) && !waits && self.matching.has_room_for_offered(&pair, open);
        let fits = matches!(compare(&answers.publisher, subscriber_port.info()), Match::Matched(_));
        let subscriber = subscriber_port.info().clone();
        let same_clock = request.clock == self.state.clock;
        (free && fits).then_some(Expected { pair, subscriber, answers, same_clock })
    }

    /// At the publisher of questions: receives their answers from the same stream. The channel begins at once, or when an older channel
    /// between the two ports has ended. The other end ends the older one as soon as it sends on the new one.
    pub(super) fn receive_answers(&mut self, expected: Expected, stream: Arc<TcpStream>, place: &Place) {
        let Expected { pair, subscriber, answers, same_clock } = expected;
        tcp::notice_outage(&stream);
        let account = self.account_of(pair.0.node, &*stream);
        let Ok(half) = TcpReceive::new(stream) else { return };
        let way = crate::carrier::way(place.peer, place.local);
        let half = self.state.settings.around.receiver(Box::new(half), tcp::CAPABILITIES, way);
        self.matching.expect(pair, &answers.publisher, &subscriber, Instant::now());
        let waits = self
            .matching
            .get(&pair)
            .is_some_and(|wanted| matches!(wanted.progress, Progress::Idle(_) | Progress::Refused));
        self.ends.entry(pair).or_default().upcoming = Some(Upcoming { half, answers, same_clock, account });
        if waits {
            self.begin_upcoming(pair);
        }
    }

    /// Begins the channel of answers that waited for the end of an older one. `false`: no such channel waits.
    pub(super) fn begin_upcoming(&mut self, pair: Pair) -> bool {
        let (Some(end), Some(subscriber_port)) = (self.ends.get_mut(&pair), self.state.subscriber_port(pair.1.port))
        else {
            return false;
        };
        let Some(Upcoming { half, answers, same_clock, account }) = end.upcoming.take() else { return false };
        let resume_after = self.resume_after(&pair, answers.incarnation);
        let Some(wanted) = self.matching.get(&pair) else { return false };
        let ports = (answers.publisher.clone(), wanted.subscriber.clone());
        let channel =
            self.channel(pair, (&ports.0, &ports.1), (&carrier::Name::Tcp, same_clock), answers.incarnation, account);
        let agreed = Agreed {
            reliable: None,
            receipts: None,
            flow: answers.flow,
            max_message: channel.max_message as usize,
            stream: true,
            resume_after,
        };
        let _ = channel.sockets.set(half.socket().into_iter().collect());
        self.begin(pair, Inbound::new(Arc::new(channel), subscriber_port, half, agreed));
        true
    }

    /// At the subscriber of questions: sends the answers on the same stream. The questions' channel begins after the answers' channel, so
    /// that every answer has a channel.
    pub(super) fn send_answers(
        &mut self,
        (asker, here): Pair,
        (answers, subscriber): (Answers, PortInfo),
        stream: Arc<TcpStream>,
        questions: Inbound,
    ) {
        let waiting = self.matching.get(&(asker, here)).and_then(|wanted| wanted.publisher.answers);
        let same_clock = questions.channel.same_clock;
        let begin = BeginLater { state: self.state.clone(), questions: Some(Box::new(questions)), answers: None };
        let Some(waiting) = waiting else { return };
        let Some((publisher_port, sending)) = self.state.publisher_port(answers.port) else { return };
        let (Ok(half), Ok(local), Ok(peer)) = (TcpSend::new(stream.clone()), stream.local_addr(), stream.peer_addr())
        else {
            return;
        };
        tcp::retransmit_soon(&stream);
        let pair = (PortRef { node: here.node, port: answers.port }, PortRef { node: asker.node, port: waiting });
        let qos = &publisher_port.info().qos;
        let sending = sending.within(qos.latency_budget);
        let account = self.account_of(asker.node, &*stream);
        let settings = FlowSettings {
            id: answers.flow,
            policy: qos.queue,
            bytes: usize::try_from(qos.queue_bytes()).unwrap_or(usize::MAX),
            account: account.clone(),
            burst: 0,
            sending,
            lifespan: None,
            reliable: None,
            control: None,
            outlasts: false,
        };
        let place = Place { local, peer, port_number: 0 };
        let way = Way::Flow(self.flow(settings, qos.class, Box::new(half), tcp::CAPABILITIES, &place));
        let ports = (publisher_port.info(), &subscriber);
        let channel =
            Arc::new(self.channel(pair, ports, (&carrier::Name::Tcp, same_clock), self.state.incarnation, account));
        let entry = Entry::Shared(stream, None, Some(Instant::now()));
        self.prioritise_sent(&channel, &way, &entry);
        let token = self.watch_served(entry, channel.clone());
        let id = channel.id;
        let ready: crate::port::Reply = Box::new(move |_| begin.ready(pair, id));
        self.attach_now(PendingAttach { publisher_port, channel, way, token, answer: Some(ready) });
    }

    /// The answers have a channel, so the questions' channel begins if it is still wanted. An older channel between the answers' ports ends
    /// when its queue is sent.
    pub(super) fn answers_ready(&mut self, questions: Inbound, answers: Option<(Pair, u64)>) {
        if let Some((pair, id)) = answers {
            let now = Instant::now();
            self.attachments.leave(pair, id, now + LEAVING_TIME);
            self.end_older(now);
        }
        let pair = (questions.channel.publisher, questions.channel.subscriber);
        if self.matching.is_in_handshake(&pair) && self.state.subscriber_port(pair.1.port).is_some() {
            self.begin(pair, questions);
        }
    }

    /// Ends the channels that were replaced by one on the connection of their questions, as soon as their queue is sent.
    pub(super) fn end_older(&mut self, now: Instant) {
        let (descriptors, attachments) = (&self.descriptors, &mut self.attachments);
        let sends = |pair, but| {
            let (_, channel) = descriptors.older(pair, but)?;
            Some(channel.sent_by().is_some_and(|flow| flow.waiting() > 0))
        };
        for (pair, but) in attachments.left(now, sends) {
            let Some((index, channel)) = self.older(pair, but) else { continue };
            channel.close(); // it moved: its subscriber has not left
            self.served_ended(index);
        }
    }

    /// `true` if the answers between two ports got a channel on the connection of their questions within the last second. A request for
    /// another channel that arrives now was sent before that. A later request means that the other end lost the connection.
    pub(super) fn just_shared(&self, pair: Pair) -> bool {
        self.sharing(pair).flatten().is_some_and(|since| since.elapsed() < CROSSING_TIME)
    }

    /// `true` if two ports have a channel on a connection that also carries another one.
    pub(super) fn shares(&self, pair: Pair) -> bool {
        self.sharing(pair).is_some()
    }

    fn sharing(&self, (publisher, subscriber): Pair) -> Option<Option<Instant>> {
        self.descriptors.all().find_map(|entry| match entry {
            Entry::Shared(_, Some(channel), since)
                if (channel.publisher, channel.subscriber) == (publisher, subscriber) && !channel.is_closed() =>
            {
                Some(*since)
            }
            _ => None,
        })
    }
}

/// Begins the questions' channel, on the control thread, when this is dropped: with the answers' channel or without one.
struct BeginLater {
    state: Arc<NodeState>,
    questions: Option<Box<Inbound>>,
    answers: Option<(Pair, u64)>,
}

impl BeginLater {
    fn ready(mut self, pair: Pair, id: u64) {
        self.answers = Some((pair, id));
    }
}

impl Drop for BeginLater {
    fn drop(&mut self) {
        if let Some(questions) = self.questions.take() {
            self.state.command(Command::Begin { questions, answers: self.answers });
        }
    }
}
