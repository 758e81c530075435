//! Recorded traffic of the legitimate nodes, cut, flipped, mixed, lengthened and replayed. A proxy between two nodes records
//! it: it passes on their data, with its own ports in place of theirs.

use super::attacker::Attacker;
use super::client::{Frame, Link, Listener, PULL, kind, opening};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg::carrier::Dice;

/// Data on the wire, recorded by a proxy between two nodes ([`Proxy`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// Bytes of the connecting ends, a connection each.
    pub streams: Vec<Vec<u8>>,
    /// Bytes of the accepting ends.
    pub answers: Vec<Vec<u8>>,
    /// Datagrams, both ways.
    pub datagrams: Vec<Vec<u8>>,
}

/// A few changes of recorded bytes.
pub fn changed(bytes: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..dice.below(4) {
        let at = dice.below(bytes.len() as u64 + 1) as usize;
        let to = (at + dice.below(64) as usize).min(bytes.len());
        match dice.below(7) {
            0 => bytes.truncate(at),
            1 => dice.flip(&mut bytes),
            2 => drop(bytes.drain(at..to)),
            3 => bytes.splice(at..at, other.iter().copied()).for_each(drop),
            4 => bytes.extend_from_within(at..to),
            5 => bytes.splice(at..to, dice.bits().to_le_bytes()).for_each(drop),
            _ => length(&mut bytes, dice),
        }
        bytes.truncate(1 << 18);
    }
    bytes
}

/// Lengths stand at the first bytes of frames, and after the first byte of connections.
fn length(bytes: &mut [u8], dice: &mut Dice) {
    let at = dice.below(2) as usize;
    let extreme = [0, 1, 0xffff, 0x1_0000, 0x10_0000, i32::MAX as u32, 1 << 31, u32::MAX][dice.below(8) as usize];
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&u32::to_le_bytes(extreme));
    }
}

/// Recorded streams at the listeners of all nodes over TCP.
pub fn tcp(attacker: &mut Attacker) -> io::Result<()> {
    let listeners = attacker.listeners(false);
    streams(attacker, &listeners)
}

/// The same at their unix sockets.
pub fn unix(attacker: &mut Attacker) -> io::Result<()> {
    let listeners = attacker.listeners(true);
    streams(attacker, &listeners)
}

fn streams(attacker: &mut Attacker, listeners: &[Listener]) -> io::Result<()> {
    let mut all = attacker.task.recording.streams.clone();
    all.extend(own(attacker)?);
    let answers = attacker.task.recording.answers.clone();
    while attacker.goes_on() {
        let (Some(stream), Some(other)) = (attacker.pick(&all).cloned(), attacker.pick(&all).cloned()) else { break };
        let answer = attacker.pick(&answers).cloned().unwrap_or_default();
        let from = if attacker.dice.below(8) == 0 { &answer } else { &stream };
        let bytes = changed(from, &other, &mut attacker.dice);
        let Some(listener) = attacker.pick(listeners).cloned() else { break };
        attacker.throw(&listener, &bytes, "streams");
    }
    Ok(())
}

/// An attacker's own announcements, for nodes without a recording.
fn own(attacker: &Attacker) -> io::Result<Vec<Vec<u8>>> {
    let request = attacker.request("tcp")?;
    let question = json!({
        "version": 1, "realm": attacker.task.realm, "to_node": request["to_node"], "to_port": request["to_port"],
        "topic": super::pair::TOPIC, "message": {"name": "any", "hash": 0}, "max_message": 65536, "query": {"nth": 1},
    });
    Ok(vec![opening(super::client::HANDSHAKE, &request), opening(PULL, &question)])
}

/// Recorded datagrams to every port of a flow, of a group and of a channel's feedback.
pub fn datagrams(attacker: &mut Attacker) -> io::Result<()> {
    let (mut targets, mut frames) = (Vec::new(), attacker.task.recording.datagrams.clone());
    let listener = attacker.victim("publisher")?.tcp.clone();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut streams = Vec::new();
    for carrier in ["udp", "mcast"] {
        let mut request = attacker.request(carrier)?;
        request["parameters"]["udp_port"] = socket.local_addr()?.port().into();
        let Ok((stream, accepted)) = attacker.subscribe(&listener, &request) else { continue };
        let flow = accepted["flow"].as_u64().unwrap_or(0) as u32;
        frames.push(Frame::message(flow, 0, 1, &[7; 64]).bytes());
        frames.push(Frame { kind: 3, flags: 4, ..Frame::message(flow, 1, 1, &[]) }.bytes());
        frames.push(Frame { kind: 5, ..Frame::message(flow, 1, 1, &[0; 24]) }.bytes());
        let port = accepted["parameters"]["udp_port"].as_u64().unwrap_or(0) as u16;
        targets.push(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        targets.extend(accepted["parameters"]["group"].as_str().and_then(|group| group.parse::<SocketAddr>().ok()));
        streams.push(stream);
    }
    let outward = multicast()?;
    while attacker.goes_on() {
        let (Some(frame), Some(other)) = (attacker.pick(&frames).cloned(), attacker.pick(&frames).cloned()) else {
            break;
        };
        let bytes = changed(&frame, &other, &mut attacker.dice);
        let Some(target) = attacker.pick(&targets).copied() else { break };
        let by = if target.ip().is_multicast() && attacker.dice.below(2) == 0 { &outward } else { &socket };
        let _ = by.send_to(&bytes[..bytes.len().min(60_000)], target); // the part beyond the limit is dropped
        attacker.tried(if target.ip().is_multicast() { "datagrams to a group" } else { "datagrams" });
    }
    drop(streams);
    Ok(())
}

/// A socket from which datagrams go to groups on the loopback.
pub fn multicast() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket2::SockRef::from(&socket).set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
    Ok(socket)
}

/// Sends all of it, over a stream that may be closed.
pub fn send(stream: &mut impl Write, bytes: &[u8]) -> bool {
    stream.write_all(bytes).is_ok()
}

/// A proxy between two legitimate nodes: it passes on their data, with its own ports in place of theirs.
pub struct Proxy {
    /// Its address in the node's place.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    /// Directions of streams that are being carried.
    carried: AtomicUsize,
    recording: Mutex<Recording>,
    /// Ports as text: the node's and the proxy's, of as many digits, so that no length changes.
    ports: Vec<(String, String)>,
    /// The socket in place of the first end of a flow, and that end's port, until the second end's is known.
    waiting: Mutex<Option<(UdpSocket, u16)>>,
}

impl Proxy {
    /// Takes the place of the node with this socket.
    ///
    /// # Errors
    /// The node does not answer, or there is no port.
    pub fn start(realm: &str, socket: &Path) -> Result<Self> {
        let mut link = Link::open(&Listener::Unix(socket.to_owned()), realm, "00000000000000aa")?;
        let document: Value = serde_json::from_slice(&link.hear_of(kind::DOCUMENT)?).map_err(io::Error::from)?;
        let addresses = document["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let addresses: Vec<SocketAddr> = addresses.filter_map(|address| address.parse().ok()).collect();
        let real = addresses.iter().copied().find(SocketAddr::is_ipv4);
        let real = real.ok_or_else(|| Error::Failed(format!("no address in {document}")))?;
        let digits = |port: u16| port.to_string().len();
        let listener = loop {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            if digits(listener.local_addr()?.port()) == digits(real.port()) {
                break listener;
            }
        };
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        // An IPv6 address would lead past the proxy: its replacement has no listener.
        let ports = addresses.iter().map(|a| (a.port().to_string(), address.port().to_string()));
        let ports = ports.filter(|(from, to)| from.len() == to.len()).collect();
        let (stop, recording, waiting) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { stop, carried: AtomicUsize::new(0), recording, ports, waiting });
        let (kept, body) = (shared.clone(), shared.clone());
        let thread =
            linux::thread::spawn(linux::thread::Settings::named("proxy"), move || accept(&body, &listener, real))?;
        Ok(Self { address, shared: kept, thread: Some(thread) })
    }

    /// Ends, and returns the recording.
    pub fn finish(mut self) -> Recording {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for _ in 0..MOST_LOOKS {
            if self.shared.carried.load(Relaxed) == 0 {
                break;
            }
            std::thread::sleep(LOOK);
        }
        std::mem::take(&mut hold(&self.shared.recording))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
    }
}

fn hold<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener, real: SocketAddr) {
    while !shared.stop.load(Relaxed) {
        let Ok((here, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        let Ok(there) = TcpStream::connect(real) else { continue };
        let (Ok(from), Ok(to)) = (here.try_clone(), there.try_clone()) else { continue };
        let (one, other) = (shared.clone(), shared.clone());
        shared.carried.fetch_add(2, Relaxed);
        std::thread::spawn(move || carry(&one, here, there, true));
        std::thread::spawn(move || carry(&other, to, from, false));
    }
}

/// One direction of a stream.
fn carry(shared: &Arc<Shared>, mut from: TcpStream, mut to: TcpStream, asks: bool) {
    let _ = from.set_nonblocking(false);
    let _ = from.set_read_timeout(Some(LOOK));
    let (mut said, mut chunk) = (Vec::new(), vec![0; LONGEST]);
    while !shared.stop.load(Relaxed) {
        let count = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        let bytes = rewritten(shared, &chunk[..count]);
        if said.len() + count < LONGEST {
            said.extend_from_slice(&chunk[..count]);
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let mut recording = hold(&shared.recording);
    let kept = if asks { &mut recording.streams } else { &mut recording.answers };
    if !said.is_empty() && kept.len() < MOST {
        kept.push(said);
    }
    shared.carried.fetch_sub(1, Relaxed);
}

/// The proxy's ports in place of a node's.
fn rewritten(shared: &Arc<Shared>, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(at) = find(&bytes, b"\"udp_port\":") {
        let digits: Vec<u8> = bytes[at..].iter().copied().take_while(u8::is_ascii_digit).collect();
        if let Some(own) = String::from_utf8(digits).ok().and_then(|port| pass_datagrams(shared, &port)) {
            bytes[at..at + own.len()].copy_from_slice(own.as_bytes());
        }
    }
    for (from, to) in &shared.ports {
        let (from, to) = (format!(":{from}\""), format!(":{to}\""));
        while let Some(end) = find(&bytes, from.as_bytes()) {
            bytes[end - from.len()..end].copy_from_slice(to.as_bytes());
        }
    }
    bytes
}

/// The end of the first occurrence.
fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part).map(|at| at + part.len())
}

/// Two sockets between the ends of a flow, made when the second end's port is known; returns the port in place of
/// this one.
fn pass_datagrams(shared: &Arc<Shared>, port: &str) -> Option<String> {
    let real: u16 = port.parse().ok()?;
    let own = (0..50).find_map(|_| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        let own = socket.local_addr().ok()?.port().to_string();
        (own.len() == port.len()).then_some((socket, own))
    });
    let (socket, own) = own?;
    let mut waiting = hold(&shared.waiting);
    match waiting.take() {
        None => *waiting = Some((socket, real)),
        Some((before, first)) => {
            let body = shared.clone();
            std::thread::spawn(move || pass(&body, &before, first, &socket, real));
        }
    }
    Some(own)
}

/// Passes data between `one`, in place of the end at port `first`, and `other`, in place of that at `second`.
fn pass(shared: &Arc<Shared>, one: &UdpSocket, first: u16, other: &UdpSocket, second: u16) {
    let _ = (one.set_nonblocking(true), other.set_nonblocking(true));
    let mut bytes = vec![0; LONGEST];
    while !shared.stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
        for (from, by, to) in [(one, other, first), (other, one, second)] {
            let Ok((count, _)) = from.recv_from(&mut bytes) else { continue }; // one a millisecond is enough for a recording
            let mut recording = hold(&shared.recording);
            if recording.datagrams.len() < MOST {
                recording.datagrams.push(bytes[..count].to_vec());
            }
            let _ = by.send_to(&bytes[..count], (Ipv4Addr::LOCALHOST, to));
        }
    }
}

/// Limit of streams, answers and datagrams that are kept, and of the bytes of each.
const MOST: usize = 64;
const LONGEST: usize = 1 << 16;
/// Interval between checks for its end.
const LOOK: Duration = Duration::from_millis(20);
/// Number of checks at its end whether all streams have ended.
const MOST_LOOKS: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_changes() {
        let (mut one, mut other) = (Dice::new(3), Dice::new(3));
        let bytes: Vec<u8> = (0..200).collect();
        for _ in 0..500 {
            let made = changed(&bytes, b"other", &mut one);
            assert_eq!(made, changed(&bytes, b"other", &mut other));
            assert!(made.len() <= 1 << 18);
        }
    }
}
