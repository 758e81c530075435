//! The role that counts arrivals, and the experiment's handle on it.

use super::Target;
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::part::{Orders, Part, Place};
use linux::clock::monotonic_ns;
use qos::priority::{Policy, Scheduling};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Name of the role.
pub const ROLE: &str = "sink";

/// Traffic that arrived since the sink was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Time of the count, by CLOCK_MONOTONIC, in nanoseconds.
    pub at_ns: u64,
    /// Datagrams.
    pub datagrams: u64,
    /// Bytes of payload in datagrams.
    pub datagram_bytes: u64,
    /// Bytes of payload in streams.
    pub stream_bytes: u64,
}

impl Traffic {
    /// Mbit/s of payload since `before`.
    pub fn mbit_since(&self, before: &Traffic) -> f64 {
        let bytes = |c: &Traffic| c.datagram_bytes + c.stream_bytes;
        let ns = self.at_ns.saturating_sub(before.at_ns).max(1);
        bytes(self).saturating_sub(bytes(before)) as f64 * 8e3 / ns as f64
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Listen {
    address: IpAddr,
}

#[derive(Debug, Serialize, Deserialize)]
struct Count {}

/// A process that counts.
#[derive(Debug)]
pub struct Sink {
    part: Part,
    /// The addresses it listens at.
    pub target: Target,
}

const PATIENCE: Duration = Duration::from_secs(10);

impl Sink {
    /// Starts it.
    ///
    /// # Errors
    /// As [`Part::start`] and [`Part::hear`].
    pub fn new(lab: &Lab, place: Place, address: IpAddr) -> Result<Self> {
        let mut part = Part::start(lab, place, ROLE, &Listen { address })?;
        let target = part.hear(lab, PATIENCE)?;
        Ok(Self { part, target })
    }

    /// Traffic that arrived so far.
    ///
    /// # Errors
    /// As [`Part::hear`].
    pub fn count(&mut self, lab: &Lab) -> Result<Traffic> {
        self.part.ask(lab, &Count {}, PATIENCE)
    }
}

#[derive(Debug, Default)]
struct Counters {
    datagrams: AtomicU64,
    datagram_bytes: AtomicU64,
    stream_bytes: AtomicU64,
}

/// Plays the role. Its threads end with the process.
pub(crate) fn play(mut orders: Orders) -> Result {
    let Listen { address } = orders.settings()?;
    let (datagrams, streams) = (UdpSocket::bind((address, 0))?, TcpListener::bind((address, 0))?);
    // Without the privilege, as much as an ordinary user gets.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&datagrams, BUFFER);
    let target = Target { udp: datagrams.local_addr()?, tcp: streams.local_addr()? };
    let counters = Arc::new(Counters::default());
    let (one, other) = (counters.clone(), counters.clone());
    start("datagrams", move || count_datagrams(&datagrams, &one))?;
    start("streams", move || accept(&streams, &other))?;
    orders.say(&target)?;
    while orders.wait::<Count>()?.is_some() {
        orders.say(&Traffic {
            at_ns: monotonic_ns(),
            datagrams: counters.datagrams.load(Relaxed),
            datagram_bytes: counters.datagram_bytes.load(Relaxed),
            stream_bytes: counters.stream_bytes.load(Relaxed),
        })?;
    }
    Ok(())
}

/// Below the load: a stream is to be held back by the link, not by a sink that other work of the machine keeps waiting.
const SCHEDULING: Policy = Policy::Fifo(9);

/// Starts a thread; without the privilege, as any other.
fn start(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let settings = linux::thread::Settings::named(name);
    let scheduled = move || {
        let _ = linux::sched::set(0, &Scheduling::from(SCHEDULING));
        body();
    };
    linux::thread::spawn(settings, scheduled).map(drop)
}

/// Room for a tenth of a second at a gigabit.
const BUFFER: usize = 16 << 20;
/// Larger than any datagram.
const DATAGRAM: usize = 65_536;

fn count_datagrams(socket: &UdpSocket, counters: &Counters) {
    let mut buffer = vec![0; DATAGRAM];
    loop {
        match socket.recv(&mut buffer) {
            Ok(bytes) => {
                counters.datagrams.fetch_add(1, Relaxed);
                counters.datagram_bytes.fetch_add(bytes as u64, Relaxed);
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => {
                let remedy = "run the experiment again, with less load if it stays";
                return crate::part::tell(&Error::system("the sink's socket", &e, remedy));
            }
        }
    }
}

fn accept(listener: &TcpListener, counters: &Arc<Counters>) {
    for stream in listener.incoming().flatten() {
        let counters = counters.clone();
        let body = move || count_stream(stream, &counters);
        if let Err(e) = start("stream", body) {
            crate::part::tell(&Error::system("the sink's thread", &e, "raise the limit of threads"));
        }
    }
}

fn count_stream(mut stream: TcpStream, counters: &Counters) {
    let mut buffer = vec![0; 4 * DATAGRAM];
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        counters.stream_bytes.fetch_add(bytes as u64, Relaxed);
    }
}
