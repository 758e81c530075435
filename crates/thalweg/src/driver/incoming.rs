//! Requests to this node's listeners: control links, channels, questions to histories, and questions for signs of life.

use super::admission::{Action, COUNTED, accepted_at_once, is_in_reserve};
use super::control::Control;
use super::entries::Entry;
use crate::control::{CHANNEL_HANDSHAKE, CONTROL_LINK, HEARTBEAT, PULL, Peer};
use crate::handshake::{self, LARGEST, Reason, Refused, Request, Watching};
use crate::port::Histories;
use crate::pull::{self, Question};
use linux::poll::Readiness;
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A stream whose request has not arrived, or not completely.
pub(crate) struct Incoming {
    pub stream: OwnedFd,
    pub bytes: Vec<u8>,
    pub until: Instant,
    pub peer: Peer,
    /// The address of a peer over TCP, as the listener gave it.
    from: Option<IpAddr>,
}

/// Time within which the request of a new stream must arrive.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(2);

/// The progress of an incoming stream.
pub(crate) enum Progress {
    /// More bytes are needed.
    Waiting,
    /// The stream is closed or has another owner.
    Done,
}

impl Incoming {
    pub(crate) fn new(stream: OwnedFd, (peer, from): (Peer, Option<SocketAddr>), now: Instant) -> Self {
        Self { stream, bytes: Vec::new(), until: now + HANDSHAKE_TIME, peer, from: from.map(|from| from.ip()) }
    }

    /// Reads the bytes that have arrived. `false`: the peer is gone or sends too much.
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 4096];
        loop {
            // Only the first byte is read at first: the bytes behind it may belong to another protocol.
            let room = if self.bytes.is_empty() { 1 } else { chunk.len() };
            match linux::socket::receive_stream(self.stream.as_fd(), &mut chunk[..room], false) {
                Ok(0) => return false,
                Ok(count) => self.bytes.extend_from_slice(&chunk[..count]),
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
            if self.bytes.first() == Some(&CONTROL_LINK) {
                return true;
            }
            if self.bytes.len() > LARGEST + 5 {
                return false;
            }
        }
    }
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// Takes in a stream on which nothing has arrived yet. `from` is the peer's address over TCP: a stream that was reset cannot tell it
    /// any more.
    pub(super) fn take_in(&mut self, stream: OwnedFd, from: Option<SocketAddr>) {
        let peer = from.map(|from| Peer::at(from.ip())).or_else(|| Peer::of(&stream));
        let Some(peer) = peer else { return };
        if let Some(why) = self.admission.refuse(peer, is_in_reserve(&stream)) {
            return self.count(why);
        }
        self.let_give_way(peer);
        self.watch(Entry::Incoming(Incoming::new(stream, (peer, from), Instant::now())), Readiness::IN);
    }

    /// Makes room for another stream of this peer. A stream whose request has arrived meanwhile is served instead of giving way.
    fn let_give_way(&mut self, peer: Peer) {
        while let Some(oldest) = self.admission.who_gives_way(&self.waiting_streams(), peer) {
            let Some(Entry::Incoming(incoming)) = self.descriptors.get(oldest) else { return };
            let (until, who) = (incoming.until, incoming.peer);
            self.incoming_ready(oldest);
            let stays = |entry: &Entry| matches!(entry, Entry::Incoming(of) if of.until == until);
            if let Some(silent) = self.descriptors.position(stays) {
                self.unwatch(silent);
                return self.came_to_nothing(who, "incoming streams beyond the limit: the oldest gave way");
            }
        }
    }

    /// The streams whose request has not arrived yet.
    fn waiting_streams(&self) -> Vec<(Instant, usize, Peer)> {
        let waiting = self.descriptors.iter().filter_map(|(index, entry)| match entry {
            Entry::Incoming(incoming) => Some((incoming.until, index, incoming.peer)),
            _ => None,
        });
        waiting.collect()
    }

    /// Counts a failed connection. A peer with too many of them is not answered for a while.
    pub(super) fn came_to_nothing(&mut self, peer: Peer, why: &'static str) {
        let actions = self.admission.failed(peer, why, Instant::now());
        self.admit_as_said(actions);
    }

    /// Counts an act of a stranger, and warns of the first one.
    pub(super) fn count(&mut self, what: &'static str) {
        self.count_because(what, &COUNTED);
    }

    /// Like [`Self::count`], with the reason of the first act.
    pub(super) fn count_because(&mut self, what: &'static str, why: &dyn Display) {
        let action = self.admission.count(what, why);
        self.admit_as_said(action);
    }

    /// Carries out the actions of admission.
    pub(super) fn admit_as_said(&mut self, actions: impl IntoIterator<Item = Action>) {
        for action in actions {
            match action {
                Action::Warn(text) => self.warn(text),
                Action::Filter(hosts) => self.filter(&hosts),
                Action::Resume(listener) => self.accept_again(listener),
            }
        }
    }

    /// Has the kernel answer all hosts but these.
    fn filter(&self, hosts: &[IpAddr]) {
        let listeners = self.descriptors.all().filter_map(|entry| match entry {
            Entry::Tcp(listener) => Some(listener),
            _ => None,
        });
        listeners.for_each(|listener| drop(linux::filter::not_from(listener, hosts))); // on an error, all hosts are answered, as before
    }

    /// Most connections that are accepted from a listener before the other entries have their turn. While a process is barred they are few,
    /// and the listener of the unix socket is paused.
    pub(super) fn accepted_at_once(&mut self, index: usize) -> usize {
        let paced = self.admission.paces(matches!(self.descriptors.get(index), Some(Entry::Unix(_))));
        if paced && self.descriptors.pause(index) {
            self.admission.pause(index, Instant::now());
        }
        accepted_at_once(paced)
    }

    fn accept_again(&mut self, index: usize) {
        if let Some(Entry::Unix(_)) = self.descriptors.get(index) {
            self.descriptors.resume(index, Readiness::IN);
        }
    }

    /// Continues with an incoming stream.
    pub(crate) fn incoming(&mut self, incoming: &mut Option<Incoming>) -> Progress {
        let Some(peer) = incoming else { return Progress::Done };
        let (goes_on, who) = (peer.fill(), peer.peer);
        match peer.bytes.first() {
            None if goes_on => Progress::Waiting,
            None => {
                self.came_to_nothing(who, "incoming streams that ended without a word");
                Progress::Done
            }
            Some(&CONTROL_LINK) => {
                if let Some(peer) = incoming.take() {
                    self.discoveries.adopt(peer.stream, peer.from);
                }
                Progress::Done
            }
            Some(&CHANNEL_HANDSHAKE) => match handshake::unpack::<Request>(&peer.bytes[1..]) {
                Ok(None) if goes_on => Progress::Waiting,
                Ok(None) => {
                    self.came_to_nothing(who, "incoming streams that ended within a request or said too much");
                    Progress::Done
                }
                Ok(Some((request, _))) => {
                    match incoming.take() {
                        Some(peer) if goes_on => self.serve(request, peer.stream),
                        Some(peer) => self.was_given_up(&request, &peer.stream),
                        None => {}
                    }
                    Progress::Done
                }
                Err(_) => {
                    self.came_to_nothing(who, "incoming streams with no readable request");
                    Progress::Done
                }
            },
            Some(&PULL) => match handshake::unpack::<Question>(&peer.bytes[1..]) {
                Ok(None) if goes_on => Progress::Waiting,
                Ok(Some((question, _))) => {
                    if let Some(peer) = incoming.take() {
                        self.answer_question(question, peer.stream, peer.peer);
                    }
                    Progress::Done
                }
                _ => {
                    self.came_to_nothing(who, "incoming streams with no readable question");
                    Progress::Done
                }
            },
            Some(&HEARTBEAT) => match handshake::unpack::<Watching>(&peer.bytes[1..]) {
                Ok(None) if goes_on => Progress::Waiting,
                Ok(Some((watching, _))) => {
                    if let Some(peer) = incoming.take() {
                        self.give_signs(&watching, peer.stream, peer.peer);
                    }
                    Progress::Done
                }
                _ => {
                    self.came_to_nothing(who, "incoming streams that asked for signs of life in no readable way");
                    Progress::Done
                }
            },
            Some(_) => {
                self.came_to_nothing(who, "incoming streams with an unknown first byte");
                Progress::Done
            }
        }
    }

    /// A subscriber has left before its request was read, as one does that waited for the answer too long. It gets no channel, which would
    /// count as connected until its end is noticed: what is published meanwhile would be lost.
    fn was_given_up(&mut self, request: &Request, stream: &OwnedFd) {
        if let Some((peer, _)) = self.elsewhere(request.node, stream) {
            self.came_to_nothing(peer, "requests for a channel whose subscriber had left");
        }
    }

    /// Passes a question to the thread that answers it, or refuses the question with the reason.
    fn answer_question(&mut self, question: Question, stream: OwnedFd, peer: Peer) {
        let given = match self.asked_of(&question) {
            Ok(histories) => self.state.questions.answer(question, histories, (stream, peer)),
            Err(refused) => Err((refused, stream)),
        };
        if let Err((refused, stream)) = given {
            let bytes = handshake::pack(&pull::Answer::Refused(refused)).unwrap_or_default();
            let _ = linux::socket::send(stream.as_fd(), &bytes); // a peer that does not get the refusal sees the stream end
        }
    }

    fn asked_of(&self, question: &Question) -> Result<Arc<Histories>, Refused> {
        let Question { version, realm, to_node, to_port, except, .. } = question;
        let refused = |policy: Reason, requested: String, offered: String| {
            let remedy = format!("it takes {offered}");
            Refused { policy, offered, requested, remedy, others: Vec::new() }
        };
        if *version != pull::VERSION {
            return Err(refused(
                Reason::Version,
                version.to_string(),
                format!("version {} of questions", pull::VERSION),
            ));
        }
        if *realm != self.state.settings.realm || *to_node != self.state.id {
            let here = format!("questions to node {} of realm {}", self.state.id, self.state.settings.realm);
            return Err(refused(Reason::Node, format!("{to_node} of {realm}"), here));
        }
        if except.len() > pull::MOST_EXCEPT {
            return Err(refused(Reason::Except, except.len().to_string(), format!("at most {}", pull::MOST_EXCEPT)));
        }
        let asked =
            || refused(Reason::Port, format!("port {}", to_port.0), "questions to ports that keep samples".to_owned());
        self.state.histories(*to_port).ok_or_else(asked)
    }
}
