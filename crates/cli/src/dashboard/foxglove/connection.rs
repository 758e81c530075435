//! The connection of one client: its WebSocket (`tungstenite`), limits and deadlines. Time is an argument, and the stream any one that
//! does not block.

use super::client::{self, Client, Offers};
use super::handshake::Rules;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;
use tungstenite::handshake::MidHandshake;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Bytes, Error, HandshakeError, Message, ServerHandshake, Utf8Bytes, WebSocket};

/// Longest message of a client, in bytes: a subscription to thousands of channels is shorter.
const MOST: usize = 64 << 10;
/// Bytes that are read in a turn, so that no client keeps the others waiting.
const READ: usize = 16 << 10;
/// Bytes up to which messages are gathered, and leave in one packet.
const GATHERED: usize = 16 << 10;
/// Most bytes in the buffer of what is being sent: the longest text, behind what is gathered, and room for answers to pings.
const UNSENT: usize = client::SAID + (64 << 10);
/// A client that has sent nothing for so long is asked whether it is there.
const ASKED_NS: u64 = 20_000_000_000;
/// And is let go after this time.
const SILENT_NS: u64 = 60_000_000_000;
/// Longest time until its request is complete.
const OPENING_NS: u64 = 10_000_000_000;

type Opening<S> = MidHandshake<ServerHandshake<Rationed<S>, Rules>>;
type Socket<S> = WebSocket<Rationed<S>>;

/// The connection of a client.
pub(super) struct Connection<S: Read + Write> {
    phase: Phase<S>,
    rate_hz: u32,
    began_ns: u64,
    heard_ns: u64,
    asked: bool,
    /// The stream takes nothing more now.
    full: bool,
}

enum Phase<S: Read + Write> {
    /// Its request is not complete.
    Opening(Opening<S>),
    Open(Socket<S>, Client),
    Over,
}

impl<S: Read + Write> Connection<S> {
    /// That of a client which has connected now, and gets this many samples per second of each topic.
    pub(super) fn new(stream: S, rules: Rules, rate_hz: u32, now_ns: u64) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(Some(MOST))
            .max_frame_size(Some(MOST))
            .read_buffer_size(READ)
            .write_buffer_size(GATHERED)
            .max_write_buffer_size(UNSENT);
        let opening = ServerHandshake::start(Rationed { stream, left: 0 }, rules, Some(config));
        let phase = Phase::Opening(opening);
        Self { phase, rate_hz, began_ns: now_ns, heard_ns: now_ns, asked: false, full: false }
    }

    /// Takes what has come, a bounded part of it at once.
    pub(super) fn read(&mut self, offers: &Offers, now_ns: u64) {
        (self.heard_ns, self.asked) = (now_ns, false);
        self.phase = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Opening(opening) => self.open(opening, offers),
            Phase::Open(socket, client) => hear(socket, client, offers),
            Phase::Over => Phase::Over,
        };
    }

    fn open(&self, mut opening: Opening<S>, offers: &Offers) -> Phase<S> {
        opening.get_mut().get_mut().left = READ;
        match opening.handshake() {
            Ok(socket) => Phase::Open(socket, Client::new(self.rate_hz, &format!("{:x}", self.began_ns), offers)),
            Err(HandshakeError::Interrupted(opening)) => Phase::Opening(opening),
            // It is gone, its request opens no WebSocket, or the rules have refused it, which it was told.
            Err(HandshakeError::Failure(_)) => Phase::Over,
        }
    }

    /// Sends what is to be said, as far as the stream takes it. `true`: from now on it takes nothing more, until [`Self::resume`].
    pub(super) fn write(&mut self, now_ns: u64) -> bool {
        let Phase::Open(socket, client) = &mut self.phase else { return false };
        if client.is_overrun() {
            // If the stream takes nothing, the client is let go without the reason.
            let _ = socket.close(Some(overrun()));
            self.phase = Phase::Over;
            return false;
        }
        if self.full {
            return false;
        }
        match send(socket, client, now_ns) {
            Ok(()) => {}
            Err(error) if would_block(&error) => self.full = true,
            Err(_) => self.phase = Phase::Over,
        }
        self.full
    }

    /// Notes that the stream takes something again.
    pub(super) fn resume(&mut self) {
        self.full = false;
    }

    /// Asks a client that has been silent whether it is there, and lets one go that does not answer.
    pub(super) fn tend(&mut self, now_ns: u64) {
        let silent = now_ns.saturating_sub(self.heard_ns);
        match &mut self.phase {
            Phase::Opening(_) if now_ns.saturating_sub(self.began_ns) > OPENING_NS => self.phase = Phase::Over,
            Phase::Open(..) if silent > SILENT_NS => self.phase = Phase::Over,
            Phase::Open(socket, _) if silent > ASKED_NS && !self.asked => {
                self.asked = true;
                // If it cannot be sent, there is no answer either.
                let _ = socket.write(Message::Ping(Bytes::new()));
            }
            _ => {}
        }
    }

    /// Time until a sample may be sent that waits for its rate.
    pub(super) fn due_in(&self, now_ns: u64) -> Option<Duration> {
        self.client().filter(|_| !self.full)?.due_in(now_ns)
    }

    /// The client, once its WebSocket is open.
    pub(super) fn client(&self) -> Option<&Client> {
        match &self.phase {
            Phase::Open(_, client) => Some(client),
            Phase::Opening(_) | Phase::Over => None,
        }
    }

    /// `true` until its request is complete.
    pub(super) fn is_opening(&self) -> bool {
        matches!(self.phase, Phase::Opening(_))
    }

    /// The same, to be changed.
    pub(super) fn client_mut(&mut self) -> Option<&mut Client> {
        match &mut self.phase {
            Phase::Open(_, client) => Some(client),
            Phase::Opening(_) | Phase::Over => None,
        }
    }

    /// The stream, as long as it is open.
    pub(super) fn stream(&self) -> Option<&S> {
        match &self.phase {
            Phase::Opening(opening) => Some(&opening.get_ref().get_ref().stream),
            Phase::Open(socket, _) => Some(&socket.get_ref().stream),
            Phase::Over => None,
        }
    }

    /// `true` if the client is to be let go.
    pub(super) fn is_over(&self) -> bool {
        match &self.phase {
            Phase::Opening(_) => false,
            Phase::Open(_, client) => client.is_overrun(),
            Phase::Over => true,
        }
    }
}

/// Takes the messages that have come.
fn hear<S: Read + Write>(mut socket: Socket<S>, mut client: Client, offers: &Offers) -> Phase<S> {
    socket.get_mut().left = READ;
    loop {
        match socket.read() {
            Ok(message) => client.receive(&message, offers),
            Err(error) if would_block(&error) => return Phase::Open(socket, client),
            Err(error) => {
                if let Some(reason) = violation(&error) {
                    // A client that does not read is let go without the reason.
                    let _ = socket.close(Some(reason));
                }
                return Phase::Over;
            }
        }
    }
}

fn send<S: Read + Write>(socket: &mut Socket<S>, client: &mut Client, now_ns: u64) -> Result<(), Error> {
    // First what was left, so that one sample at most is in the buffer, and there is room for each message.
    socket.flush()?;
    while let Some(message) = client.next(now_ns) {
        socket.write(message)?;
    }
    socket.flush()
}

fn would_block(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == ErrorKind::WouldBlock)
}

/// The reason why a connection is closed whose client breaks the protocol.
fn violation(error: &Error) -> Option<CloseFrame> {
    let (code, reason) = match error {
        Error::Protocol(_) => (CloseCode::Protocol, "a frame that RFC 6455 does not allow"),
        Error::Capacity(_) => (CloseCode::Size, "a message of more than 65536 bytes"),
        Error::Utf8(_) => (CloseCode::Invalid, "a text that is not UTF-8"),
        _ => return None,
    };
    Some(CloseFrame { code, reason: Utf8Bytes::from_static(reason) })
}

/// The reason why a connection is closed whose client does not read.
fn overrun() -> CloseFrame {
    CloseFrame { code: CloseCode::Policy, reason: Utf8Bytes::from_static("more messages wait than may: read faster") }
}

/// A stream of which so many bytes may still be read. `tungstenite` itself reads as long as there is something.
struct Rationed<S> {
    stream: S,
    left: usize,
}

impl<S: Read> Read for Rationed<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let most = bytes.len().min(self.left);
        if most == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.stream.read(&mut bytes[..most])?;
        self.left -= count;
        Ok(count)
    }
}

impl<S: Write> Write for Rationed<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests;
