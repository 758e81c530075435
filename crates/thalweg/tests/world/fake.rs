//! A publisher that lies: announced like any other, it makes the handshake and then sends bytes of the test's choice.

use super::World;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;
use thalweg::carrier::Parameters;
use thalweg::codec::{Message, Raw};
use thalweg::control::{Direction, Document, NodeId, PortId, PortInfo};
use thalweg::testing::control::Links;
use thalweg::testing::control::LocalEndpoint;
use thalweg::testing::control::Sink;
use thalweg::testing::handshake::{self, Accepted, Answer, Request};
use thalweg::testing::wire::{FRAGMENT_HEADER, Fragment, HEADER, Header, Kind};

/// The flow id that it agrees on.
pub const FLOW: u32 = 0x1234_5678;

/// The publisher.
pub struct Fake {
    _links: Links,
    _endpoint: LocalEndpoint,
    unix: UnixListener,
    tcp: TcpListener,
}

impl Fake {
    /// Announces a publisher of `/a` to all nodes of the world.
    pub fn new(world: &World, carriers: &[&str]) -> Self {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let node = NodeId(u64::from(std::process::id()) << 20 | u64::from(tcp.local_addr().unwrap().port()));
        let (unix, endpoint) = LocalEndpoint::bind_in(&world.run_dir(), world.realm(), node).unwrap();
        let port = PortInfo {
            name: "/liar".into(),
            direction: Direction::Publisher,
            topic: "/a".into(),
            message: Raw::description().as_ref().clone(),
            qos: qos::Qos::default(),
            carriers: carriers.iter().map(|c| (*c).into()).collect(),
            answers: None,
            pull: Default::default(),
            foreign: None,
        };
        let document = Document {
            node,
            name: "liar".into(),
            realm: world.realm().to_owned(),
            host: linux::clock::host_id(),
            host_name: "liar".into(),
            clock: linux::clock::clock_id(),
            pid: std::process::id(),
            incarnation: linux::clock::wall_ns(),
            revision: 1,
            addresses: vec![tcp.local_addr().unwrap()],
            socket: Some(endpoint.path().to_owned()),
            ports: [(PortId(1), port)].into(),
            relay: None,
        };
        let links = Links::start(document.into(), vec![endpoint.others()], Sink::new(|_| {})).unwrap();
        Self { _links: links, _endpoint: endpoint, unix, tcp }
    }

    /// The next subscriber's stream and request.
    pub fn asked(&self) -> (TcpStream, Request) {
        let (mut stream, _) = self.tcp.accept().unwrap();
        let request = request(&mut stream);
        (stream, request)
    }

    /// The next subscriber's stream over the unix socket.
    pub fn asked_here(&self) -> std::os::unix::net::UnixStream {
        loop {
            let (mut stream, _) = self.unix.accept().unwrap();
            let mut first = [0];
            stream.read_exact(&mut first).unwrap();
            if first[0] == thalweg::control::CHANNEL_HANDSHAKE {
                read_request(&mut stream);
                return stream;
            }
        }
    }

    /// The next subscriber of carrier `tcp`, accepted.
    pub fn accepted(&self) -> TcpStream {
        let (mut stream, _) = self.asked();
        stream.write_all(&acceptance(Parameters::default())).unwrap();
        stream
    }

    /// The next subscriber of carrier `udp`, accepted: the stream, a socket connected to it, its port.
    pub fn accepted_udp(&self) -> (TcpStream, UdpSocket, u16) {
        let (mut stream, request) = self.asked();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = request.parameters.udp_port.unwrap();
        socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let own = socket.local_addr().unwrap().port();
        stream.write_all(&acceptance(Parameters { udp_port: Some(own), ..Parameters::default() })).unwrap();
        (stream, socket, port)
    }
}

/// The request of a subscriber that has connected.
pub fn request(stream: &mut TcpStream) -> Request {
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(first[0], thalweg::control::CHANNEL_HANDSHAKE);
    read_request(stream)
}

fn read_request(stream: &mut impl Read) -> Request {
    let mut bytes = vec![0; 4];
    stream.read_exact(&mut bytes).unwrap();
    let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    bytes.resize(4 + length, 0);
    stream.read_exact(&mut bytes[4..]).unwrap();
    handshake::unpack(&bytes).unwrap().unwrap().0
}

/// An acceptance as bytes.
pub fn acceptance(parameters: Parameters) -> Vec<u8> {
    packed(Accepted { parameters, ..accepted() })
}

/// An acceptance without carrier parameters.
pub fn accepted() -> Accepted {
    Accepted {
        scaled: None,
        flow: FLOW,
        incarnation: 1,
        last_seq: 0,
        max_message: 1 << 20,
        clock: linux::clock::clock_id(),
        parameters: Parameters::default(),
        answers: None,
    }
}

/// Any acceptance as bytes.
pub fn packed(accepted: Accepted) -> Vec<u8> {
    handshake::pack(&Answer::Accepted(accepted)).unwrap()
}

/// The header of a small message.
pub fn header(sample: u64) -> Header {
    let stamp_ns = linux::clock::monotonic_ns();
    Header { length: 4, kind: Kind::Message, flags: 0, flow: FLOW, sequence: sample as u32 - 1, sample, stamp_ns }
}

/// A message of `size` bytes.
pub fn message(sample: u64, size: usize) -> Vec<u8> {
    let mut bytes = [0; HEADER];
    Header { length: size as u32, ..header(sample) }.emit(&mut bytes);
    [&bytes[..], &vec![7; size]].concat()
}

/// A frame with 4 bytes of payload and any header.
pub fn frame(header: Header) -> Vec<u8> {
    let mut bytes = [0; HEADER];
    header.emit(&mut bytes);
    [&bytes[..], &[7; 4]].concat()
}

/// Frames in one datagram, with the number of the first.
pub fn batch(frames: &[Vec<u8>]) -> Vec<u8> {
    let messages = frames.concat();
    let first = Header::parse(&messages).unwrap();
    let mut bytes = [0; HEADER];
    Header { length: messages.len() as u32, kind: Kind::Batch, ..first }.emit(&mut bytes);
    [&bytes[..], &messages].concat()
}

/// A fragment of `piece` bytes.
pub fn fragment(sample: u64, offset: u32, total: u32, piece: usize) -> Vec<u8> {
    let length = (FRAGMENT_HEADER + piece) as u32;
    let mut bytes = [0; HEADER];
    Header { length, kind: Kind::Fragment, ..header(sample) }.emit(&mut bytes);
    let mut at = [0; FRAGMENT_HEADER];
    Fragment { offset, total }.emit(&mut at);
    [&bytes[..], &at[..], &vec![7; piece][..]].concat()
}
