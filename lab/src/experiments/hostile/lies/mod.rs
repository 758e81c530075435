//! Liars: a publisher, a node; a relay that lies about its load and its streams; a subscriber with excessive requests
//! (finding 7).

pub mod node;
pub mod publisher;

use super::attacker::Attacker;
use super::client::{FROM, Frame, HANDSHAKE, Link, Listener, kind, packed, read_document};
use super::extremes::{NUMBERS, mutated};
use super::pair::LURES;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// The flow id of a false peer.
pub const FLOW: u32 = 0x1234_5678;

/// A node that announces ports and makes handshakes with subscribers.
pub struct FalsePeer {
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

impl FalsePeer {
    /// Announces a publisher of each of these topics, which only a victim's lures subscribe to.
    ///
    /// # Errors
    /// No listener, or no victim that accepts a link.
    pub fn start(attacker: &mut Attacker, topics: &[&str]) -> io::Result<Self> {
        Self::start_with(attacker, topics, |_| {})
    }

    /// Announces with changes to the document.
    ///
    /// # Errors
    /// As there.
    pub fn start_with(attacker: &mut Attacker, topics: &[&str], change: impl FnOnce(&mut Value)) -> io::Result<Self> {
        let listener = TcpListener::bind((FROM, 0))?;
        listener.set_nonblocking(true)?;
        let mut document = attacker.document()?;
        document["addresses"] = json!([listener.local_addr()?]);
        let (_, port) = attacker.victim("publisher")?.port("publisher", super::pair::TOPIC)?;
        for (index, topic) in topics.iter().enumerate() {
            let mut port = port.clone();
            port["name"] = format!("/false_peer{topic}").into();
            port["topic"] = (*topic).into();
            port["carriers"] = json!(["tcp", "udp", "mcast", "shm"]);
            document["ports"][(index + 1).to_string()] = port;
        }
        change(&mut document);
        let mut false_peer = Self { listener, links: Vec::new(), document };
        for listener in attacker.listeners(false) {
            false_peer.tell(attacker, &listener);
        }
        Ok(false_peer)
    }

    /// Sends a node its document, over a link that stays.
    pub fn tell(&mut self, attacker: &mut Attacker, listener: &Listener) {
        let node = self.document["node"].as_str().unwrap_or_default();
        attacker.tried("documents");
        let link = Link::open(listener, &attacker.task.realm, node).and_then(|mut link| {
            link.say(kind::DOCUMENT, self.document.to_string().as_bytes())?;
            Ok(link)
        });
        match link {
            Ok(link) => self.links.push(link),
            Err(_) => attacker.answer("a link was not taken"),
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
    pub fn asked(&mut self, attacker: &mut Attacker, ms: u64) -> Option<Asked> {
        let until = Instant::now() + Duration::from_millis(ms);
        loop {
            if let Ok((stream, _)) = self.listener.accept() {
                stream.set_nonblocking(false).ok()?;
                stream.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
                stream.set_write_timeout(Some(Duration::from_millis(500))).ok()?;
                attacker.answer("asked for a channel");
                return Self::read(stream);
            }
            if Instant::now() >= until || !attacker.goes_on() {
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

/// 300 channels of one port, all of which are read.
pub fn many_channels(attacker: &mut Attacker) -> io::Result<()> {
    many(attacker, 300, |_, request| request)
}

/// 300 channels, each in the name of another node.
pub fn many_names(attacker: &mut Attacker) -> io::Result<()> {
    many(attacker, 300, |index, mut request| {
        request["node"] = format!("{:016x}", 0x5eed_0000_0000_0000 + index).into();
        request
    })
}

/// 300 pictures of different size, and as many selections.
pub fn many_pictures(attacker: &mut Attacker) -> io::Result<()> {
    many(attacker, 300, |index, mut request| {
        let picture = format!("{}x{}", 1 + index, 1 + index % 7);
        request["proxy"] = json!({"selection": format!("1/{}", 2 + index), "picture": picture, "place": "publisher"});
        if index % 2 == 0
            && let Some(proxy) = request["proxy"].as_object_mut()
        {
            proxy.remove("picture");
        }
        request
    })
}

/// Filters of many steps: long parameters, deep expressions.
pub fn many_filters(attacker: &mut Attacker) -> io::Result<()> {
    many(attacker, 300, |index, mut request| {
        let expression = match index % 4 {
            0 => "name LIKE %0".to_owned(),
            1 => format!("{}x = 1{}", "(".repeat(2000), ")".repeat(2000)),
            2 => vec!["x = 1"; 4000].join(" OR "),
            _ => format!("{}x = 1", "NOT ".repeat(5000)),
        };
        request["subscriber"]["qos"]["filter"] = json!({"expression": expression, "parameters": ["%a".repeat(10_000)]});
        request
    })
}

/// Channels over `udp` and `mcast`, whose feedback requests every retransmission.
pub fn many_repeats(attacker: &mut Attacker) -> io::Result<()> {
    let listener = attacker.victim("publisher")?.tcp.clone();
    let mut flows = Vec::new();
    for carrier in ["udp", "mcast", "udp", "mcast"] {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut request = attacker.request(carrier)?;
        request["parameters"]["udp_port"] = socket.local_addr()?.port().into();
        if let Ok((stream, accepted)) = attacker.subscribe(&listener, &request) {
            let parameters = &accepted["parameters"];
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            let (port, first) = (number(&parameters["udp_port"]) as u16, number(&parameters["first"]) as u32);
            flows.push((stream, socket, port, first, number(&accepted["flow"]) as u32));
        }
    }
    let mut seen = 0u32;
    while attacker.goes_on() && !flows.is_empty() {
        seen = seen.wrapping_add(1);
        for (_, socket, port, first, flow) in &flows {
            let gap = [first.to_le_bytes(), 1000u32.to_le_bytes(), [0; 4], [0; 4]].concat();
            let payload = [&first.wrapping_add(seen).to_le_bytes()[..], &[0; 4], &gap.repeat(64)].concat();
            let frame = Frame { kind: 5, payload, ..Frame::message(*flow, *first, 0, &[]) };
            let _ = socket.send_to(&frame.bytes(), (Ipv4Addr::LOCALHOST, *port));
            attacker.tried("acknowledgements");
        }
        attacker.pause(1);
    }
    Ok(())
}

/// Sends `count` requests; accepted channels are read to the end.
fn many(attacker: &mut Attacker, count: u64, change: impl Fn(u64, Value) -> Value) -> io::Result<()> {
    let listener = attacker.victim("publisher")?.tcp.clone();
    for index in 0..count {
        let request = change(index, attacker.request("tcp")?);
        if let Ok((socket, _)) = attacker.subscribe(&listener, &request) {
            socket.set_nonblocking(true)?;
            attacker.held.push(socket);
        }
        if !attacker.goes_on() {
            break;
        }
    }
    let mut bytes = vec![0; 1 << 16];
    while attacker.goes_on() {
        for stream in &mut attacker.held {
            while stream.read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A relay's statement of its load.
fn load() -> Value {
    json!({"proxies": 1, "samples_per_s": 1, "bytes_per_s": 1, "keeps": 1,
        "not_kept": [{"topic": "/x", "publisher": "/y", "because": "\u{1b}]0;pwned\u{7}"}]})
}

/// A relay with the name that the lured subscriber requests, which accepts streams that it cannot have, and answers
/// with extremes.
pub fn relay(attacker: &mut Attacker) -> io::Result<()> {
    let mut false_peer = FalsePeer::start_with(attacker, &LURES[5..6], |document| {
        document["relay"] = json!({"proxies": 0, "samples_per_s": 0, "bytes_per_s": 0})
    })?;
    let mut revision = 1;
    while attacker.goes_on() {
        let change =
            json!({"base": revision, "revision": revision + 1, "relay": mutated(&load(), &mut attacker.dice, 3000)});
        revision += 1;
        false_peer.links.retain_mut(|link| link.say(kind::CHANGE, change.to_string().as_bytes()).is_ok());
        attacker.tried("loads");
        if false_peer.links.is_empty() {
            for listener in attacker.listeners(false) {
                false_peer.tell(attacker, &listener);
            }
        }
        let Some(Asked { mut stream, request }) = false_peer.asked(attacker, 50) else { continue };
        let mut answer = false_peer.acceptance(&request);
        answer["accepted"]["last_seq"] = NUMBERS[attacker.dice.below(14) as usize].into();
        answer["accepted"]["incarnation"] = NUMBERS[attacker.dice.below(14) as usize].into();
        answer["accepted"]["scaled"] = mutated(
            &json!({"selection": "1/2", "picture": "1x1", "from": 7, "node": "attacker"}),
            &mut attacker.dice,
            3000,
        );
        attacker.tried("answers of the relay");
        let _ = stream.write_all(&packed(&answer));
        for sequence in 0..20 {
            let sample = NUMBERS[attacker.dice.below(14) as usize];
            if stream.write_all(&Frame::message(FLOW, sequence, sample, &[7; 64]).bytes()).is_err() {
                break;
            }
        }
    }
    Ok(())
}
