//! Liars: a publisher, a subscriber, a relay, a node.

pub mod node;
pub mod publisher;
pub mod relay;
pub mod subscriber;

use super::client::{Door, FROM, HANDSHAKE, Link, kind, read_document};
use super::stranger::Stranger;
use serde_json::{Value, json};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The flow id of a liar.
pub const FLOW: u32 = 0x1234_5678;

/// A node that announces ports and makes handshakes with subscribers.
pub struct Liar {
    listener: TcpListener,
    /// Links to the nodes that know it.
    pub links: Vec<Link>,
    /// Its document.
    pub document: Value,
}

/// A subscriber with its request.
pub struct Asked {
    /// Its stream.
    pub stream: TcpStream,
    /// Its request.
    pub request: Value,
}

impl Liar {
    /// Announces a publisher of each of these topics, which only a victim's lures subscribe to.
    ///
    /// # Errors
    /// No listener, or no victim that accepts a link.
    pub fn start(stranger: &mut Stranger, topics: &[&str]) -> io::Result<Self> {
        Self::start_with(stranger, topics, |_| {})
    }

    /// Announces with changes to the document.
    ///
    /// # Errors
    /// As there.
    pub fn start_with(stranger: &mut Stranger, topics: &[&str], change: impl FnOnce(&mut Value)) -> io::Result<Self> {
        let listener = TcpListener::bind((FROM, 0))?;
        listener.set_nonblocking(true)?;
        let mut document = stranger.document()?;
        document["addresses"] = json!([listener.local_addr()?]);
        let (_, port) = stranger.victim("publisher")?.port("publisher", super::pair::TOPIC)?;
        for (index, topic) in topics.iter().enumerate() {
            let mut port = port.clone();
            port["name"] = format!("/liar{topic}").into();
            port["topic"] = (*topic).into();
            port["carriers"] = json!(["tcp", "udp", "mcast", "shm"]);
            document["ports"][(index + 1).to_string()] = port;
        }
        change(&mut document);
        let mut liar = Self { listener, links: Vec::new(), document };
        for door in stranger.doors(false) {
            liar.tell(stranger, &door);
        }
        Ok(liar)
    }

    /// Sends a node its document, over a link that stays.
    pub fn tell(&mut self, stranger: &mut Stranger, door: &Door) {
        let node = self.document["node"].as_str().unwrap_or_default();
        stranger.tried("documents");
        let link = Link::open(door, &stranger.task.realm, node).and_then(|mut link| {
            link.say(kind::DOCUMENT, self.document.to_string().as_bytes())?;
            Ok(link)
        });
        match link {
            Ok(link) => self.links.push(link),
            Err(_) => stranger.answer("a link was not taken"),
        }
    }

    /// Its listener's address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next request within this time.
    pub fn asked(&mut self, stranger: &mut Stranger, ms: u64) -> Option<Asked> {
        let until = Instant::now() + Duration::from_millis(ms);
        loop {
            if let Ok((stream, _)) = self.listener.accept() {
                stream.set_nonblocking(false).ok()?;
                stream.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
                stream.set_write_timeout(Some(Duration::from_millis(500))).ok()?;
                stranger.answer("asked for a channel");
                return Self::read(stream);
            }
            if Instant::now() >= until || !stranger.goes_on() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn read(mut stream: TcpStream) -> Option<Asked> {
        let mut first = [0];
        stream.read_exact(&mut first).ok()?;
        let request = read_document(&mut stream).ok()?;
        (first[0] == HANDSHAKE).then_some(Asked { stream, request })
    }

    /// A correct acceptance.
    pub fn acceptance(&self, request: &Value) -> Value {
        json!({"accepted": {
            "flow": FLOW, "incarnation": self.document["incarnation"], "last_seq": 0, "max_message": 65536,
            "clock": request["clock"], "parameters": {},
        }})
    }
}
