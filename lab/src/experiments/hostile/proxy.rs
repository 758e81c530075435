//! A proxy between two legitimate nodes, for recording: it passes on their data, with its own ports in place of
//! theirs.

use super::client::{Door, Link, kind};
use super::recorded::Recording;
use crate::error::{Error, Result};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Limit of streams, answers and datagrams that are kept, and of the bytes of each.
const MOST: usize = 64;
const LONGEST: usize = 1 << 16;
/// Interval between checks for its end.
const LOOK: Duration = Duration::from_millis(20);
/// Number of checks at its end whether all streams have ended.
const MOST_LOOKS: u32 = 50;

/// The proxy.
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
        let mut link = Link::open(&Door::Unix(socket.to_owned()), realm, "00000000000000aa")?;
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
        if let Some(own) = String::from_utf8(digits).ok().and_then(|port| datagrams(shared, &port)) {
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
fn datagrams(shared: &Arc<Shared>, port: &str) -> Option<String> {
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
