//! The wire protocols from an attacker's view: written from docs/wire.md alone, without code of the library, so that a
//! mistake in the library's writing and reading cannot hide at both ends.

use serde_json::{Value, json};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Source address of an attacker's packets: an unused one of the loopback network.
pub const FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
/// First byte of a channel's handshake.
pub const HANDSHAKE: u8 = b'H';
/// First byte of a control link.
pub const CONTROL: u8 = b'C';
/// First byte of a pull request.
pub const PULL: u8 = b'P';
/// First byte of a heartbeat request.
pub const HEARTBEAT: u8 = b'L';
/// Longest wait of an attacker.
pub const PATIENCE: Duration = Duration::from_millis(1500);
/// Largest body of a control link's frame.
const FRAME: usize = 1 << 20;
/// Largest document that an attacker reads.
const LARGEST: usize = 16 << 20;

/// A listener of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listener {
    /// Its TCP address.
    Tcp(SocketAddr),
    /// Its unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Listener::Tcp(_)) { "tcp" } else { "unix" })
    }
}

impl Listener {
    /// A connection to it; over TCP from [`FROM`], and closed with a reset, so that a flood leaves no ports waiting.
    ///
    /// # Errors
    /// The kernel's refusal, a full queue of connections among them.
    pub fn open(&self) -> io::Result<Socket> {
        let (domain, address) = match self {
            Listener::Tcp(address) => (Domain::for_address(*address), SockAddr::from(*address)),
            Listener::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
        };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        if let Listener::Tcp(address) = self {
            if address.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) {
                socket.bind(&SocketAddr::from((FROM, 0)).into())?;
            }
            socket.set_linger(Some(Duration::ZERO))?;
            socket.set_tcp_nodelay(true)?;
        }
        socket.connect(&address)?;
        Ok(socket)
    }
}

/// A document as it travels: 4 bytes of length, then JSON.
pub fn packed(document: &Value) -> Vec<u8> {
    sized(document.to_string().as_bytes())
}

/// Bytes after their length.
pub fn sized(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

/// A connection's first byte and document.
pub fn opening(first: u8, document: &Value) -> Vec<u8> {
    [&[first][..], &packed(document)].concat()
}

/// Reads a document.
///
/// # Errors
/// The connection ended, was silent for too long, or sent other bytes.
pub fn read_document(stream: &mut impl Read) -> io::Result<Value> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LARGEST {
        return Err(io::Error::other(format!("a document of {length} bytes")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// A data frame, whose header may be false.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// 1 message, 2 fragment, 3 keep-alive, 4 end, 5 acknowledgement, 6 parity.
    pub kind: u8,
    /// See docs/wire.md.
    pub flags: u16,
    /// The flow's id.
    pub flow: u32,
    /// Number of the message in its flow.
    pub sequence: u32,
    /// Number of the sample at its publisher.
    pub sample: u64,
    /// Time of publishing, in nanoseconds.
    pub stamp: u64,
    /// The length in the header; `None`: the true one.
    pub length: Option<u32>,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// A message.
    pub fn message(flow: u32, sequence: u32, sample: u64, payload: &[u8]) -> Self {
        let stamp = linux::clock::monotonic_ns();
        Self { kind: 1, flow, sequence, sample, stamp, payload: payload.to_vec(), ..Self::default() }
    }

    /// A part of a message of `total` bytes.
    pub fn fragment(flow: u32, sequence: u32, offset: u32, total: u32, part: &[u8]) -> Self {
        let payload = [&offset.to_le_bytes(), &total.to_le_bytes(), part].concat();
        Self { kind: 2, payload, ..Self::message(flow, sequence, u64::from(sequence) + 1, &[]) }
    }

    /// The frame as bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let length = self.length.unwrap_or(self.payload.len() as u32);
        let mut bytes = Vec::with_capacity(32 + self.payload.len());
        bytes.extend(length.to_le_bytes());
        bytes.extend([self.kind, 1]);
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend(self.flow.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.sample.to_le_bytes());
        bytes.extend(self.stamp.to_le_bytes());
        bytes.extend(&self.payload);
        bytes
    }

    /// Reads one, header and payload.
    ///
    /// # Errors
    /// There is none, or its length exceeds an attacker's limit.
    pub fn parse(bytes: &[u8]) -> io::Result<Self> {
        let header = bytes.first_chunk::<32>().ok_or_else(|| io::Error::other("no header"))?;
        let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let flags = u16::from_le_bytes([header[6], header[7]]);
        let (length, payload) = (Some(u32_at(0)), bytes[32..].to_vec());
        let (kind, flow, sequence) = (header[4], u32_at(8), u32_at(12));
        Ok(Self { kind, flags, flow, sequence, sample: u64_at(16), stamp: u64_at(24), length, payload })
    }
}

/// Kinds of frames on control links.
pub mod kind {
    /// The sender's identity.
    pub const HELLO: u8 = 1;
    /// The node's whole state.
    pub const DOCUMENT: u8 = 2;
    /// A change of it.
    pub const CHANGE: u8 = 3;
    /// Asks for the document.
    pub const REFRESH: u8 = 4;
    /// A numbered call.
    pub const CALL: u8 = 5;
    /// The answer to one.
    pub const ANSWER: u8 = 6;
    /// The continued flag.
    pub const CONTINUED: u8 = 0x80;
}

/// A message of a control link, in as many frames as it needs.
pub fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 16);
    let mut parts = body.chunks(FRAME).peekable();
    if parts.peek().is_none() {
        bytes.extend([0, 0, 0, 0, kind]);
    }
    while let Some(part) = parts.next() {
        let flag = if parts.peek().is_some() { kind::CONTINUED } else { 0 };
        bytes.extend((part.len() as u32).to_le_bytes());
        bytes.push(kind | flag);
        bytes.extend(part);
    }
    bytes
}

/// A hello.
pub fn hello(realm: &str, node: &str) -> Vec<u8> {
    framed(kind::HELLO, json!({"version": 1, "realm": realm, "node": node}).to_string().as_bytes())
}

/// A call with its number.
pub fn called(number: u64, question: &[u8]) -> Vec<u8> {
    framed(kind::CALL, &[&number.to_le_bytes(), question].concat())
}

/// A control link.
pub struct Link(pub Socket);

impl Link {
    /// Opens one and says hello.
    ///
    /// # Errors
    /// As [`Listener::open`].
    pub fn open(listener: &Listener, realm: &str, node: &str) -> io::Result<Self> {
        let mut socket = listener.open()?;
        socket.write_all(&[&[CONTROL][..], &hello(realm, node)].concat())?;
        Ok(Self(socket))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The link ended, or is not read.
    pub fn say(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        self.0.write_all(&framed(kind, body))
    }

    /// Sends a call with this number.
    ///
    /// # Errors
    /// As [`Link::say`].
    pub fn call(&mut self, number: u64, question: &Value) -> io::Result<()> {
        self.0.write_all(&called(number, question.to_string().as_bytes()))
    }

    /// The next message: its kind and body.
    ///
    /// # Errors
    /// As [`read_document`].
    pub fn hear(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut whole = Vec::new();
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head)?;
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let before = whole.len();
            if length > FRAME || before > LARGEST {
                return Err(io::Error::other(format!("a frame of {length} bytes")));
            }
            whole.resize(before + length, 0);
            self.0.read_exact(&mut whole[before..])?;
            if head[4] & kind::CONTINUED == 0 {
                return Ok((head[4], whole));
            }
        }
    }

    /// The next message of this kind.
    ///
    /// # Errors
    /// As [`Link::hear`].
    pub fn hear_of(&mut self, wanted: u8) -> io::Result<Vec<u8>> {
        loop {
            let (kind, body) = self.hear()?;
            if kind == wanted {
                return Ok(body);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_where_the_page_says() {
        let frame = Frame { stamp: 7, ..Frame::message(0x0403_0201, 9, 1 << 40, b"ab") };
        let bytes = frame.bytes();
        assert_eq!((bytes.len(), &bytes[..12]), (34, &[2, 0, 0, 0, 1, 1, 0, 0, 1, 2, 3, 4][..]));
        assert_eq!((bytes[12], bytes[21], bytes[24], &bytes[32..]), (9, 1, 7, &b"ab"[..]));
        assert_eq!(Frame::parse(&bytes).unwrap(), Frame { length: Some(2), ..frame });
        assert_eq!(framed(kind::REFRESH, &[]), [0, 0, 0, 0, 4]);
        let long = framed(kind::DOCUMENT, &vec![b' '; FRAME + 1]);
        assert_eq!((long.len(), long[4], long[FRAME + 9]), (FRAME + 11, 0x82, 2));
    }
}
