//! A hostile peer that speaks the protocols of docs/wire.md.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// A control link to a node.
pub struct Link(pub TcpStream);

impl Link {
    /// Connects from this address of the host, and says hello as this node.
    pub fn new(to: SocketAddr, from: Ipv4Addr, realm: &str, node: u64) -> Self {
        let mut stream = connect(to, from);
        let hello = json!({"version": 1, "realm": realm, "node": format!("{node:016x}")}).to_string();
        stream.write_all(b"C").unwrap();
        stream.write_all(&frame(1, hello.as_bytes())).unwrap();
        Self(stream)
    }

    /// Sends a message in frames of 1 MiB; `false` if the node takes no more for now, or has closed.
    pub fn say(&mut self, kind: u8, body: &[u8]) -> bool {
        self.0.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut frames = body.chunks(1 << 20).peekable();
        let mut bytes = Vec::new();
        while let Some(part) = frames.next() {
            bytes.extend(frame(if frames.peek().is_some() { kind | 0x80 } else { kind }, part));
        }
        self.0.write_all(&bytes).is_ok()
    }

    /// Calls, and waits for the answer: all earlier messages have been processed by then.
    pub fn call(&mut self, request: &Value) -> Value {
        const NUMBER: u64 = 0xfeed;
        self.ask(NUMBER, request);
        loop {
            if let (NUMBER, answer) = self.hear(6) {
                return answer;
            }
        }
    }

    /// Calls under this number.
    pub fn ask(&mut self, number: u64, request: &Value) {
        assert!(self.say(5, &[&number.to_le_bytes()[..], request.to_string().as_bytes()].concat()));
    }

    /// The number and the text of the next message of this kind: 5 is a call, 6 an answer.
    pub fn hear(&mut self, kind: u8) -> (u64, Value) {
        let body = self.await_message(kind);
        let (number, text) = body.split_first_chunk().unwrap();
        (u64::from_le_bytes(*number), serde_json::from_slice(text).unwrap())
    }

    /// The next message of this kind.
    pub fn await_message(&mut self, kind: u8) -> Vec<u8> {
        self.0.set_read_timeout(Some(super::LONG)).unwrap();
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head).unwrap();
            let mut body = vec![0; u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize];
            self.0.read_exact(&mut body).unwrap();
            if head[4] == kind {
                return body;
            }
        }
    }

    /// `true` if the node has closed the link.
    pub fn is_closed(&mut self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let mut bytes = vec![0; 1 << 16];
        loop {
            match self.0.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    }
}

/// A stream from this address of the host.
pub fn connect(to: SocketAddr, from: Ipv4Addr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(IpAddr::V4(from), 0).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// A frame of a control link.
pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes()[..], &[kind], body].concat()
}

/// A document of the handshake's form behind its first byte.
pub fn greeting(first: u8, document: &Value) -> Vec<u8> {
    let text = document.to_string();
    [&[first][..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

/// A node's document without ports.
pub fn document(realm: &str, node: u64, revision: u64) -> Value {
    json!({"node": format!("{node:016x}"), "name": "stranger", "realm": realm, "host": "elsewhere", "host_name": "elsewhere",
        "clock": "x", "pid": 1, "incarnation": 0, "revision": revision, "addresses": [], "socket": null, "ports": {}})
}

/// A publisher of bytes.
pub fn publisher(name: &str, topic: &str) -> Value {
    json!({"name": name, "direction": "publisher", "topic": topic,
        "type": thalweg::codec::TypeDescription::opaque("bytes"), "qos": qos::Qos::default(), "carriers": ["tcp"]})
}
