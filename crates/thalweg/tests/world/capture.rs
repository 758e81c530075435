//! Captured packets of the loopback interface, with their marks.

use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg::testing::wire::{HEADER, Header, Kind};

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub v6: bool,
    /// `true` for TCP, else UDP.
    pub tcp: bool,
    /// TOS octet or traffic class.
    pub tos: u8,
    /// Source and destination port.
    pub ports: (u16, u16),
    /// Sample number, of a packet that starts with a message of the marker's.
    pub sample: Option<u64>,
    /// Bytes after the transport's header.
    pub len: usize,
}

/// Listens on all packets of this network namespace's loopback interface.
pub struct Capture {
    packets: Arc<Mutex<Vec<Packet>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const ALL: u16 = 3; // ETH_P_ALL
const ETHERNET: usize = 14;

impl Capture {
    /// Starts the capture; messages that start with `marker` are numbered.
    ///
    /// # Errors
    /// The reason why it is impossible here: no CAP_NET_RAW.
    pub fn start(marker: &'static [u8]) -> Result<Self, String> {
        let all = Protocol::from(i32::from(ALL.to_be()));
        let mut socket =
            Socket::new(Domain::PACKET, Type::RAW, Some(all)).map_err(|e| format!("no packet socket: {e}"))?;
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        // Others may use the interface, too: the buffer exceeds the system's limit, which the right to capture
        // permits.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 32 << 20);
        let (packets, stop) = (Arc::<Mutex<Vec<Packet>>>::default(), Arc::<AtomicBool>::default());
        let (seen, ends) = (packets.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 17];
            while !ends.load(Ordering::Relaxed) {
                let Ok(count) = socket.read(&mut buffer) else { continue };
                if let Some(packet) = parse(&buffer[..count], marker) {
                    seen.lock().unwrap().push(packet);
                }
            }
        });
        Ok(Self { packets, stop, thread: Some(thread) })
    }

    /// The packets so far.
    pub fn packets(&self) -> Vec<Packet> {
        self.packets.lock().unwrap().clone()
    }

    /// The octet of the packet that carried this sample first.
    pub fn mark_of(&self, sample: u64) -> Option<u8> {
        self.packet_of(sample).map(|packet| packet.tos)
    }

    /// The packet that carried this sample first, waiting for it.
    pub fn packet_of(&self, sample: u64) -> Option<Packet> {
        super::eventually(super::LONG, || self.packets().into_iter().find(|p| p.sample == Some(sample)))
    }

    /// Octets by sample, for all samples seen.
    pub fn marks(&self) -> HashMap<u64, u8> {
        let mut marks = HashMap::new();
        for packet in self.packets() {
            if let Some(sample) = packet.sample {
                marks.entry(sample).or_insert(packet.tos);
            }
        }
        marks
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn parse(frame: &[u8], marker: &[u8]) -> Option<Packet> {
    let ip = frame.get(ETHERNET..)?;
    let (v6, tos, protocol, rest) = match ip.first()? >> 4 {
        4 => (false, ip[1], *ip.get(9)?, ip.get(usize::from(ip[0] & 15) * 4..)?),
        6 => (true, (ip[0] << 4) | (ip[1] >> 4), *ip.get(6)?, ip.get(40..)?),
        _ => return None,
    };
    let tcp = match protocol {
        6 => true,
        17 => false,
        _ => return None,
    };
    let port = |at: usize| rest.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let header = if tcp { usize::from(*rest.get(12)? >> 4) * 4 } else { 8 };
    let payload = rest.get(header..)?;
    Some(Packet { v6, tcp, tos, ports: (port(0)?, port(2)?), sample: sample(payload, marker), len: payload.len() })
}

fn sample(payload: &[u8], marker: &[u8]) -> Option<u64> {
    let header = Header::parse(payload).ok().filter(|h| h.kind == Kind::Message)?;
    payload.get(HEADER..)?.starts_with(marker).then_some(header.sample)
}
