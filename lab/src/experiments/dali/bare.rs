//! Bare sockets as an engine, the baseline: a datagram to each subscriber, and a thread that receives for each. Everybody's addresses are
//! known beforehand.

use super::arm::Seat;
use engines::{Abilities, Deliver, Engine, Error, MarkedUnit, Publisher, Result, Sample, Subscriber, Support, Topic};
use linux::thread::Settings;
use qos::Qos;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thalweg::Change;

/// The sockets of one program.
pub(super) struct Bare {
    own: SocketAddr,
    /// Topic and address of each subscriber of the graph.
    subscribers: Vec<(String, SocketAddr)>,
    next: std::sync::atomic::AtomicUsize,
    inputs: Vec<SocketAddr>,
}

/// Larger than any datagram.
const LARGEST: usize = 1 << 16;

impl Bare {
    /// Those of a program of a graph.
    pub(super) fn new(seat: &Seat) -> Self {
        let subscribers = seat.sockets().map(|(_, topic, address)| (topic.to_owned(), address)).collect();
        let inputs = seat.sockets().filter(|(program, ..)| *program == seat.own).map(|(.., address)| address).collect();
        Self { own: SocketAddr::new(seat.address(seat.own), 0), subscribers, next: Default::default(), inputs }
    }
}

impl Engine for Bare {
    fn name(&self) -> &'static str {
        "bare sockets"
    }

    fn abilities(&self) -> Abilities {
        let none = Support::None;
        Abilities {
            reliability: none,
            durability: none,
            matching: none,
            deadline: none,
            lifespan: none,
            instances: none,
            keys: none,
            types: none,
            marked: MarkedUnit::None,
            endpoints: false,
            wanted: false,
        }
    }

    fn publisher(&self, topic: &Topic, _: &Qos) -> Result<Box<dyn Publisher>> {
        let to = self.subscribers.iter().filter(|(of, _)| *of == topic.name).map(|(_, address)| *address).collect();
        let socket = UdpSocket::bind(self.own).map_err(failed)?;
        Ok(Box::new(Sending { socket, to }))
    }

    /// Subscribers open in the order of the program's inputs.
    fn subscriber(&self, topic: &Topic, _: &Qos, deliver: Deliver) -> Result<Box<dyn Subscriber>> {
        let address = self.inputs.get(self.next.fetch_add(1, Relaxed));
        let address = address.ok_or_else(|| Error::Topic(format!("{} is no input of this program", topic.name)))?;
        let (socket, closed) = (UdpSocket::bind(address).map_err(failed)?, Arc::new(AtomicBool::new(false)));
        let (topic, asked) = (topic.name.clone(), closed.clone());
        // The thread ends with the process: the part of a program is over then.
        linux::thread::spawn(Settings::named("receive"), move || receive(&socket, &topic, deliver, &asked))
            .map_err(failed)?;
        Ok(Box::new(Receiving { closed }))
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::Engine(format!("bare sockets: {error}"))
}

struct Sending {
    socket: UdpSocket,
    to: Vec<SocketAddr>,
}

impl Publisher for Sending {
    fn publish(&self, sample: &Sample<'_>) -> Result<()> {
        // A subscriber that is not there yet, or has no room, loses it: these are datagrams.
        self.to.iter().for_each(|to| drop(self.socket.send_to(sample.message, to)));
        Ok(())
    }

    fn is_wanted(&self) -> bool {
        !self.to.is_empty()
    }
}

struct Receiving {
    closed: Arc<AtomicBool>,
}

impl Subscriber for Receiving {}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.closed.store(true, Relaxed);
    }
}

fn receive(socket: &UdpSocket, topic: &str, mut deliver: Deliver, closed: &AtomicBool) {
    let mut buffer = vec![0; LARGEST];
    while let Ok(length) = socket.recv(&mut buffer) {
        let (message, change) = (&buffer[..length], Change::Written);
        let sample = Sample { topic, message, publisher: 0, origin: None, change, age_ns: 0, historical: false };
        if closed.load(Relaxed) {
            return;
        }
        deliver(&sample);
    }
}
