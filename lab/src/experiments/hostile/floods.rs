//! Floods of allowed operations: connections, handshakes, documents, calls, pull and heartbeat requests, unfinished
//! messages, datagrams. Slow senders, and peers that never read.

use super::attacker::Attacker;
use super::client::{CONTROL, Frame, HANDSHAKE, HEARTBEAT, Link, Listener, PULL, called, framed, hello, kind, opening};
use super::pair::TOPIC;
use super::recorded::multicast;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Silent connections over TCP.
pub fn connections_tcp(attacker: &mut Attacker) -> io::Result<()> {
    let listeners = attacker.listeners(false);
    connections(attacker, &listeners)
}

/// The same at the unix sockets.
pub fn connections_unix(attacker: &mut Attacker) -> io::Result<()> {
    let listeners = attacker.listeners(true);
    connections(attacker, &listeners)
}

/// As many at once as possible; then the oldest gives way to another.
fn connections(attacker: &mut Attacker, listeners: &[Listener]) -> io::Result<()> {
    let mut held = std::collections::VecDeque::new();
    while attacker.goes_on() {
        let Some(listener) = attacker.pick(listeners).cloned() else { break };
        let begun: &[u8] =
            [&b""[..], b"H", b"H\x40\x00\x00\x00{", b"C", b"P\x10\x00", b"L"][attacker.dice.below(6) as usize];
        if let Some(stream) = attacker.throw(&listener, begun, "connections") {
            held.push_back(stream);
        } else {
            attacker.pause(1);
        }
        if held.len() > 3000 {
            held.pop_front();
        }
    }
    Ok(())
}

/// Complete requests, each of which opens a channel, and a hang-up.
pub fn handshakes(attacker: &mut Attacker) -> io::Result<()> {
    let listeners = [attacker.victim("publisher")?.tcp.clone(), attacker.victim("publisher")?.unix.clone()];
    while attacker.goes_on() {
        let request = attacker.request("tcp")?;
        let Some(listener) = attacker.pick(&listeners).cloned() else { break };
        let stream = attacker.throw(&listener, &opening(HANDSHAKE, &request), "handshakes");
        if let Some(mut stream) = stream.filter(|_| attacker.dice.below(2) == 0) {
            let _ = stream.read(&mut [0; 1024]);
        }
    }
    Ok(())
}

/// Nodes with large documents that come one after the other, and stay.
pub fn documents(attacker: &mut Attacker) -> io::Result<()> {
    let mut document = attacker.document()?;
    let (_, port) = attacker.victim("publisher")?.port("publisher", TOPIC)?;
    let own = attacker.node.clone();
    for number in 1..=4000 {
        let mut port = port.clone();
        port["name"] = format!("/{own}/{number}").into();
        port["topic"] = format!("/flood/{own}/{number}").into();
        document["ports"][number.to_string()] = port;
    }
    let (body, realm) = (document.to_string(), attacker.task.realm.clone());
    while attacker.goes_on() {
        let node = format!("{:016x}", attacker.dice.bits());
        let body = body.replace(&own, &node);
        let unix = attacker.dice.below(2) == 0;
        for listener in attacker.listeners(unix) {
            let bytes = [&[CONTROL][..], &hello(&realm, &node), &framed(kind::DOCUMENT, body.as_bytes())].concat();
            let stream = attacker.throw(&listener, &bytes, "documents of 4000 ports");
            attacker.held.extend(stream);
        }
        if attacker.held.len() > 300 {
            attacker.held.drain(..100);
        }
    }
    Ok(())
}

/// Large calls of administrators, whose answers are read.
pub fn calls(attacker: &mut Attacker) -> io::Result<()> {
    let asked = json!({"topic": TOPIC, "publisher": "/publisher", "subscriber": "/subscriber/tcp", "after_ns": 1});
    let large =
        json!({"verb": "lateness", "channels": vec![asked; 30_000], "asked": {"asker": 1, "look": 1, "received": 0}});
    let (large, small) = (called(7, large.to_string().as_bytes()), called(7, br#"{"verb":"channels"}"#));
    let (realm, node) = (attacker.task.realm.clone(), attacker.node.clone());
    let listener = attacker.victim("publisher")?.tcp.clone();
    let mut number = 0;
    while attacker.goes_on() {
        let Ok(mut link) = Link::open(&listener, &realm, &node) else {
            attacker.tried("links");
            attacker.pause(5);
            continue;
        };
        link.0.set_write_timeout(Some(Duration::from_millis(300)))?;
        link.0.set_read_timeout(Some(Duration::from_millis(1)))?;
        while attacker.goes_on() {
            number += 1;
            let question = if number % 4 == 0 { &large } else { &small };
            attacker.tried("calls");
            if link.0.write_all(question).is_err() {
                attacker.answer("a link ended or was not read");
                break;
            }
            let _ = link.0.read(&mut [0; 65_536]); // some of the answers
        }
    }
    Ok(())
}

/// Pull requests, as many as may be open at once, whose answers are read slowly.
pub fn pulls(attacker: &mut Attacker) -> io::Result<()> {
    let listeners = [attacker.victim("publisher")?.tcp.clone(), attacker.victim("publisher")?.unix.clone()];
    let question = question(attacker)?;
    let mut held = std::collections::VecDeque::new();
    while attacker.goes_on() {
        let Some(listener) = attacker.pick(&listeners).cloned() else { break };
        held.extend(attacker.throw(&listener, &opening(PULL, &question), "questions"));
        if held.len() > 64
            && let Some(mut stream) = held.pop_front()
        {
            stream.set_read_timeout(Some(Duration::from_millis(5)))?;
            let _ = stream.read(&mut [0; 65_536]);
        }
    }
    Ok(())
}

/// A request for everything that a publisher keeps.
pub fn question(attacker: &Attacker) -> io::Result<Value> {
    let request = attacker.request("tcp")?;
    Ok(json!({
        "version": 1, "realm": attacker.task.realm, "to_node": request["to_node"], "to_port": request["to_port"],
        "topic": TOPIC, "message": {"name": "any", "hash": 0}, "max_message": 65536, "query": {"last": 1000},
    }))
}

/// Streams for heartbeats, with requests on each at full speed.
pub fn heartbeats(attacker: &mut Attacker) -> io::Result<()> {
    let victims: Vec<(Listener, Value)> =
        attacker.victims.values().map(|v| (v.tcp.clone(), v.document["node"].clone())).collect();
    while attacker.goes_on() {
        let Some((listener, node)) = attacker.pick(&victims).cloned() else { break };
        let watching = json!({"version": 1, "realm": attacker.task.realm, "to_node": node, "source": node, "port": 1});
        let stream = attacker.throw(&listener, &opening(HEARTBEAT, &watching), "signs of life");
        attacker.held.extend(stream);
        let last = attacker.held.len().saturating_sub(20);
        for stream in &mut attacker.held[last..] {
            let _ = stream.set_write_timeout(Some(Duration::from_millis(1)));
            let _ = stream.write_all(&[1; 512]);
        }
        if attacker.held.len() > 2000 {
            attacker.held.drain(..500);
        }
    }
    Ok(())
}

/// Links with a message that begins and never ends, each for as long as allowed.
pub fn unfinished(attacker: &mut Attacker) -> io::Result<()> {
    let listeners = [attacker.listeners(false), attacker.listeners(true)].concat();
    let realm = attacker.task.realm.clone();
    let part = vec![b' '; (1 << 20) - 8];
    let begun = |frames: usize| -> Vec<u8> {
        let frame = [&(part.len() as u32).to_le_bytes()[..], &[kind::CALL | kind::CONTINUED], &part].concat();
        frame.repeat(frames)
    };
    while attacker.goes_on() {
        let Some(listener) = attacker.pick(&listeners).cloned() else { break };
        let node = format!("{:016x}", attacker.dice.bits());
        let bytes = [&[CONTROL][..], &hello(&realm, &node), &begun(3)].concat();
        let stream = attacker.throw(&listener, &bytes, "unfinished messages of 3 MB");
        attacker.held.extend(stream);
        if attacker.held.len() >= 500 {
            attacker.held.drain(..100);
        }
    }
    Ok(())
}

/// Malformed datagrams, and fragments of endless messages, to a group and to a flow's own port.
pub fn datagrams(attacker: &mut Attacker) -> io::Result<()> {
    let listener = attacker.victim("publisher")?.tcp.clone();
    let own = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut request = attacker.request("mcast")?;
    request["parameters"]["udp_port"] = own.local_addr()?.port().into();
    let (_stream, accepted) = attacker.subscribe(&listener, &request)?;
    let group = accepted["parameters"]["group"].as_str().and_then(|group| group.parse::<SocketAddr>().ok());
    let group = group.ok_or_else(|| io::Error::other("no group"))?;
    let flow = accepted["flow"].as_u64().unwrap_or(0) as u32;
    let back = accepted["parameters"]["udp_port"].as_u64().unwrap_or(0) as u16;
    let (outward, mut sequence) = (multicast()?, 0u32);
    while attacker.goes_on() {
        sequence = sequence.wrapping_add(1);
        let begun = Frame::fragment(flow, sequence, 0, 1 << 24, &[7; 1000]).bytes();
        let other = Frame::message(flow ^ 1, sequence, 1, &[7; 64]).bytes();
        for bytes in [&begun[..], &other, &[0xff; 200]] {
            let _ = outward.send_to(bytes, group);
            let _ = own.send_to(bytes, (Ipv4Addr::LOCALHOST, back));
        }
        attacker.tried_many("datagrams", 6);
        // Above 60,000 datagrams a second a loopback drops other packets, too.
        if sequence % 10 == 0 {
            attacker.pause(1);
        }
    }
    Ok(())
}

/// Meets the nodes and stays idle.
pub fn nothing(attacker: &mut Attacker) -> io::Result<()> {
    attacker.tried("nothing");
    attacker.pause(u64::from(u32::MAX));
    Ok(())
}

/// A byte a second over TCP.
pub fn slow_bytes_tcp(attacker: &mut Attacker) -> io::Result<()> {
    let listeners = attacker.listeners(false);
    slow_bytes(attacker, &listeners)
}

/// A byte a second at the unix sockets.
pub fn slow_bytes_unix(attacker: &mut Attacker) -> io::Result<()> {
    let listeners = attacker.listeners(true);
    slow_bytes(attacker, &listeners)
}

/// As many streams as a node ever accepts, each a byte further every second; closed ones are opened again.
fn slow_bytes(attacker: &mut Attacker, listeners: &[Listener]) -> io::Result<()> {
    let request = opening(HANDSHAKE, &attacker.request("tcp")?);
    let greeting = [&[CONTROL][..], &hello(&attacker.task.realm, &attacker.node)].concat();
    let mut streams: Vec<Option<(socket2::Socket, usize)>> = (0..300).map(|_| None).collect();
    while attacker.goes_on() {
        for (index, place) in streams.iter_mut().enumerate() {
            let whole = if index % 2 == 0 { &request } else { &greeting };
            let said = match place.take() {
                Some((mut socket, at)) if at < whole.len() => {
                    socket.write_all(&whole[at..=at]).ok().map(|()| (socket, at + 1))
                }
                _ => None,
            };
            *place = said.or_else(|| {
                let listener = &listeners[index % listeners.len()];
                attacker.throw(listener, &whole[..1], "streams").map(|socket| (socket, 1))
            });
            if !attacker.goes_on() {
                return Ok(());
            }
        }
        attacker.tried_many("bytes", 300);
        attacker.pause(1000);
    }
    Ok(())
}

/// Channels whose frames are never read.
pub fn unread_channels(attacker: &mut Attacker) -> io::Result<()> {
    let listener = attacker.victim("publisher")?.tcp.clone();
    for _ in 0..300 {
        let request = attacker.request("tcp")?;
        if let Ok((socket, _)) = attacker.subscribe(&listener, &request) {
            let _ = socket.set_recv_buffer_size(4096);
            attacker.held.push(socket);
        }
        if !attacker.goes_on() {
            break;
        }
    }
    Ok(())
}

/// Calls whose answers are never read.
pub fn unread_calls(attacker: &mut Attacker) -> io::Result<()> {
    let listeners = [attacker.listeners(false), attacker.listeners(true)].concat();
    let realm = attacker.task.realm.clone();
    let mut number = 0;
    while attacker.goes_on() {
        let Some(listener) = attacker.pick(&listeners).cloned() else { break };
        let node = format!("{:016x}", attacker.dice.bits());
        attacker.tried("links");
        let Ok(mut link) = Link::open(&listener, &realm, &node) else {
            attacker.pause(5);
            continue;
        };
        link.0.set_write_timeout(Some(Duration::from_millis(50)))?;
        while attacker.goes_on() && link.call(number, &json!({"verb": "channels"})).is_ok() {
            number += 1;
            attacker.tried("calls");
        }
        attacker.held.push(link.0);
        if attacker.held.len() > 200 {
            attacker.held.drain(..50);
        }
    }
    Ok(())
}

/// Pull requests whose answers are never read.
pub fn unread_pulls(attacker: &mut Attacker) -> io::Result<()> {
    let victim = attacker.victim("publisher")?;
    let listeners = [victim.tcp.clone(), victim.unix.clone()];
    let question = opening(PULL, &question(attacker)?);
    while attacker.goes_on() {
        let Some(listener) = attacker.pick(&listeners).cloned() else { break };
        let stream = attacker.throw(&listener, &question, "questions");
        attacker.held.extend(stream);
        if attacker.held.len() > 100 {
            attacker.pause(20);
            attacker.held.drain(..20);
        }
    }
    Ok(())
}
