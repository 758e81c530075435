//! A peer that may only open a TCP connection to a node: it requests channels and administers, by the rules of
//! `docs/wire.md`.

use super::agent::Agent;
use super::{LONG, World};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc;
use thalweg::admin::{Reply, Request as Administration};
use thalweg::carrier::Parameters;
use thalweg::codec::{Message, Raw};
use thalweg::control::{Direction, Document, NodeId, PortId, PortInfo};
use thalweg::testing::control::{Discovery, Event, Sink};
use thalweg::testing::control::{Links, Source};
use thalweg::testing::handshake::{self, Answer, Request, VERSION};

/// The stranger, and the node that it found.
pub struct Stranger {
    realm: String,
    node: NodeId,
    address: SocketAddr,
    /// The node id that it claims.
    pub id: NodeId,
}

impl Stranger {
    /// A stranger that knows an agent's address and node.
    pub fn of(world: &World, agent: &mut Agent) -> Self {
        let status = agent.ask("status");
        let address = status["addresses"][0].as_str().unwrap().parse().unwrap();
        let node = NodeId(u64::from_str_radix(status["id"].as_str().unwrap(), 16).unwrap());
        Self { realm: world.realm().to_owned(), node, address, id: NodeId(0xbad) }
    }

    /// A stranger that knows a node of this process.
    pub fn of_node(node: &thalweg::Node) -> Self {
        let own = node.nodes().into_iter().find(|document| document.node == node.id()).unwrap();
        let address = (Ipv4Addr::LOCALHOST, own.addresses[0].port()).into();
        Self { realm: own.realm, node: node.id(), address, id: NodeId(0xbad) }
    }

    /// The address of the node.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A request for the node's first port.
    pub fn request(&self, topic: &str, number: u32) -> Request {
        let subscriber = PortInfo {
            name: format!("/stranger/{number}"),
            direction: Direction::Subscriber,
            topic: topic.into(),
            message: Raw::description().as_ref().clone(),
            qos: qos::Qos::default(),
            carriers: vec!["tcp".into()],
            answers: None,
            pull: Default::default(),
            foreign: None,
        };
        Request {
            version: VERSION,
            realm: self.realm.clone(),
            node: self.id,
            port: PortId(number),
            subscriber,
            to_node: self.node,
            to_port: PortId(1),
            carrier: "tcp".into(),
            clock: linux::clock::clock_id(),
            by_name: false,
            parameters: Parameters::default(),
            answers: None,
            proxy: None,
            moves: false,
            token: None,
        }
    }

    /// Requests a channel; returns the stream, and the answer if there is one.
    pub fn ask(&self, request: &Request) -> (TcpStream, Option<Answer>) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let _ = stream
            .write_all(&[&[thalweg::control::CHANNEL_HANDSHAKE][..], &handshake::pack(request).unwrap()].concat());
        let answer = read(&mut stream);
        (stream, answer)
    }

    /// Sends a request to the node over a control link.
    pub fn administer(&self, request: &Administration) -> Reply {
        let document = Document {
            node: self.id,
            name: "stranger".into(),
            realm: self.realm.clone(),
            host: linux::clock::host_id(), // a lie of the kind that might help
            host_name: "stranger".into(),
            clock: linux::clock::clock_id(),
            pid: 1,
            incarnation: 1,
            revision: 1,
            addresses: Vec::new(),
            socket: None,
            ports: Default::default(),
            relay: None,
        };
        let (tell, told) = mpsc::channel();
        let tell = std::sync::Mutex::new(tell);
        let sink = Sink::new(move |event| {
            if let Event::Answer { answer, .. } = event {
                let _ = tell.lock().unwrap().send(answer);
            }
        });
        let mut links = Links::start(document.into(), vec![Source::Addresses(vec![self.address])], sink).unwrap();
        assert!(links.settled(LONG));
        assert!(links.call(self.node, 7, &serde_json::to_vec(request).unwrap()));
        serde_json::from_slice(&told.recv_timeout(LONG).unwrap()).unwrap()
    }
}

fn read(stream: &mut TcpStream) -> Option<Answer> {
    let mut bytes = vec![0; 4];
    stream.read_exact(&mut bytes).ok()?;
    let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    bytes.resize(4 + length, 0);
    stream.read_exact(&mut bytes[4..]).ok()?;
    Some(handshake::unpack(&bytes).unwrap().unwrap().0)
}
