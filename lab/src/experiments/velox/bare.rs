//! Bare sockets on the way of a measurement: what the lines, the kernel and a wake-up take of a datagram without the middleware.
//! The roles are `bare-sender` and `bare-receiver`, each a thread of FIFO 30; an experiment holds both as [`Bare`].

use super::SETTLE;
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::part::{LONG, Orders, Part, Place};
use crate::stalls::Timed;
use crate::topology::Topology;
use linux::clock::monotonic_ns;
use qos::priority::{Policy, Scheduling};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Roles of this module.
pub(super) const SENDER: &str = "bare-sender";
/// The other one.
pub(super) const RECEIVER: &str = "bare-receiver";

/// Bytes of the stamp in front of a datagram.
const STAMP: usize = 8;
const PORT: u16 = 7900;
/// As the measured threads.
const SCHEDULING: Policy = Policy::Fifo(30);
/// Larger than any datagram.
const LARGEST: usize = 1 << 16;

/// Sends this number of datagrams at even distances.
#[derive(Debug, Serialize, Deserialize)]
struct Send {
    size: usize,
    hz: f64,
    count: u64,
}

/// Reports the datagrams since the last report: the time each was sent, and how long it took.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Received {
    samples: Vec<Timed>,
}

/// A sender on host 1 of a topology and a receiver on host 2.
pub(super) struct Bare {
    sender: Part,
    receiver: Part,
}

impl Bare {
    /// Starts them on these processors.
    pub(super) fn new(lab: &Lab, topology: &Topology, processors: &[usize]) -> Result<Self> {
        let to = SocketAddr::new(Topology::address_of(2), PORT);
        let place = |host| Place::at(topology.host(host), processors).first();
        let receiver = Part::ready(lab, place(2), RECEIVER, &to)?;
        Ok(Self { sender: Part::ready(lab, place(1), SENDER, &to)?, receiver })
    }

    /// Sends datagrams of this size, one by one, and gives those that arrived.
    pub(super) fn run(&mut self, lab: &Lab, size: usize, hz: f64, time: Duration) -> Result<(u64, Vec<Timed>)> {
        let count = (time.as_secs_f64() * hz).ceil() as u64;
        self.receiver.ask::<Received>(lab, &json!({}), LONG)?;
        self.sender.ask::<Value>(lab, &Send { size, hz, count }, time + LONG)?;
        lab.stop.sleep(SETTLE)?;
        Ok((count, self.receiver.ask::<Received>(lab, &json!({}), LONG)?.samples))
    }
}

/// Plays the sender.
pub(crate) fn play_sender(mut orders: Orders) -> Result {
    let to: SocketAddr = orders.settings()?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    linux::sched::set(0, &Scheduling::from(SCHEDULING)).map_err(|e| Error::System(e.to_string()))?;
    orders.say(&json!({}))?;
    while let Some(Send { size, hz, count }) = orders.wait()? {
        let mut datagram = vec![0x5a; size.max(STAMP)];
        let start = Instant::now();
        for number in 0..count {
            let due = start + Duration::from_secs_f64(number as f64 / hz);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            datagram[..STAMP].copy_from_slice(&monotonic_ns().to_le_bytes());
            socket.send(&datagram)?;
        }
        orders.say(&json!({}))?;
    }
    Ok(())
}

/// Plays the receiver. Its thread ends with the process.
pub(crate) fn play_receiver(mut orders: Orders) -> Result {
    let at: SocketAddr = orders.settings()?;
    let (socket, received) = (UdpSocket::bind(at)?, Arc::new(Mutex::new(Received::default())));
    let note = received.clone();
    linux::thread::spawn(linux::thread::Settings::named("receive"), move || {
        let scheduled = linux::sched::set(0, &Scheduling::from(SCHEDULING));
        if let Err(e) = scheduled {
            return crate::part::tell(&Error::System(e.to_string()));
        }
        receive(&socket, &note);
    })?;
    orders.say(&json!({}))?;
    while orders.wait::<Value>()?.is_some() {
        orders.say(&std::mem::take(&mut *received.lock().unwrap_or_else(PoisonError::into_inner)))?;
    }
    Ok(())
}

fn receive(socket: &UdpSocket, received: &Mutex<Received>) {
    let mut buffer = vec![0; LARGEST];
    while let Ok(length) = socket.recv(&mut buffer) {
        let now = monotonic_ns();
        let Some(stamp) = buffer[..length].first_chunk::<STAMP>() else { continue };
        let from_ns = u64::from_le_bytes(*stamp);
        let sample = Timed { from_ns, ns: now.saturating_sub(from_ns) };
        received.lock().unwrap_or_else(PoisonError::into_inner).samples.push(sample);
    }
}
