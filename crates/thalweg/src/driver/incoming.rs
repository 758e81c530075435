//! What others ask of this node's listeners: control links, channels, and questions to what it keeps.

use super::control::Control;
use crate::control::{CHANNEL_HANDSHAKE, CONTROL_LINK, LIFE, PULL, Peer};
use crate::handshake::{self, LARGEST, Reason, Refused, Request, Watching};
use crate::port::Histories;
use crate::pull::{self, Question};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A stream that has not said yet what it wants, or not all of it.
pub(crate) struct Incoming {
    pub stream: OwnedFd,
    pub bytes: Vec<u8>,
    pub until: Instant,
    pub peer: Peer,
    /// Where it came from by TCP, as it was accepted.
    from: Option<IpAddr>,
}

/// Who connects must say what it wants within this time.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(2);

/// What became of an incoming stream.
pub(crate) enum Progress {
    /// More bytes are needed.
    Waiting,
    /// It is done with; the stream is closed or has another owner.
    Done,
}

impl Incoming {
    pub fn new(stream: OwnedFd, (peer, from): (Peer, Option<SocketAddr>), now: Instant) -> Self {
        Self { stream, bytes: Vec::new(), until: now + HANDSHAKE_TIME, peer, from: from.map(|from| from.ip()) }
    }

    /// Reads what is there; `false` when the peer is gone or sends too much.
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 4096];
        loop {
            // Only the first byte at first: what follows may belong to another protocol.
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

impl Control {
    /// Goes on with an incoming stream.
    pub fn incoming(&mut self, incoming: &mut Option<Incoming>) -> Progress {
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
                    self.adopt(peer.stream, peer.from);
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
                    if let Some(peer) = incoming.take() {
                        self.serve(request, peer.stream);
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
            Some(&LIFE) => match handshake::unpack::<Watching>(&peer.bytes[1..]) {
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

    /// Gives a question to the thread that answers it, or says why not.
    fn answer_question(&mut self, question: Question, stream: OwnedFd, peer: Peer) {
        let given = match self.asked_of(&question) {
            Ok(histories) => self.state.questions.answer(question, histories, (stream, peer)),
            Err(refused) => Err((refused, stream)),
        };
        if let Err((refused, stream)) = given {
            let bytes = handshake::pack(&pull::Answer::Refused(refused)).unwrap_or_default();
            let _ = linux::socket::send(stream.as_fd(), &bytes); // who does not hear it sees the stream end
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

    fn adopt(&mut self, stream: OwnedFd, from: Option<IpAddr>) {
        let mut stream = Some(stream);
        for discovery in &mut self.discoveries {
            stream = stream.and_then(|s| discovery.adopt(s, from));
        }
    }
}
