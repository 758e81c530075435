//! The role that sends, and the experiment's hold on it.

use super::{Load, Pattern, Protocol, Schedule};
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::part::{Orders, Part, Place};
use crate::topology::wire::FULL_PACKET;
use qos::priority::{Policy, Scheduling};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Name of the role.
pub const ROLE: &str = "load";

/// Addresses of the sink.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Target {
    /// For datagrams.
    pub udp: SocketAddr,
    /// For streams.
    pub tcp: SocketAddr,
}

/// The load as it really was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offered {
    /// Packets that the kernel took (of a stream: as many as its bytes fill).
    pub packets: u64,
    /// Seconds from the first to the end.
    pub seconds: f64,
}

impl Offered {
    /// Mbit/s, Ethernet headers included.
    pub fn mbit(&self) -> f64 {
        if self.seconds > 0.0 { (self.packets * FULL_PACKET * 8) as f64 / self.seconds / 1e6 } else { 0.0 }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    Start(Load),
    Stop,
}

#[derive(Debug, Serialize, Deserialize)]
struct Started {
    started: bool,
}

/// A process that sends on order.
#[derive(Debug)]
pub struct Generator(Part);

/// Longest wait for the generator to connect, or to end.
const PATIENCE: Duration = Duration::from_secs(10);

impl Generator {
    /// Starts it. It sends nothing yet.
    ///
    /// # Errors
    /// As [`Part::start`].
    pub fn new(lab: &Lab, place: Place, target: Target) -> Result<Self> {
        Part::start(lab, place, ROLE, &target).map(Self)
    }

    /// Begins to send.
    ///
    /// # Errors
    /// As [`Part::hear`].
    pub fn start(&mut self, lab: &Lab, load: &Load) -> Result {
        self.0.ask::<Started>(lab, &Order::Start(*load), PATIENCE).map(drop)
    }

    /// Stops sending, and gives the load as it was offered.
    ///
    /// # Errors
    /// As [`Part::hear`].
    pub fn stop(&mut self, lab: &Lab) -> Result<Offered> {
        self.0.ask(lab, &Order::Stop, PATIENCE)
    }
}

/// Above the work of the machine, below the measured processes: the load is to be as stated.
const SCHEDULING: Policy = Policy::Fifo(10);

/// Plays the role.
pub(crate) fn play(mut orders: Orders) -> Result {
    let target: Target = orders.settings()?;
    let mut running: Option<Running> = None;
    while let Some(order) = orders.wait()? {
        match order {
            Order::Start(load) => {
                running = Some(Running::start(load, target)?);
                orders.say(&Started { started: true })?;
            }
            Order::Stop => orders.say(&running.take().map_or(Ok(Offered::default()), Running::finish)?)?,
        }
    }
    Ok(())
}

/// A load that runs: one thread, or one per greedy stream.
struct Running {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Offered>>>,
}

impl Running {
    fn start(load: Load, target: Target) -> Result<Self> {
        let streams = if let Pattern::Greedy(streams) = load.pattern { streams.max(1) } else { 1 };
        // All are connected before the first one sends: no packet of a connection waits behind the load, or is lost in it.
        let senders: Vec<Sender> = (0..streams).map(|_| Sender::open(&load, target)).collect::<Result<_>>()?;
        let mut running = Self { stop: Arc::default(), threads: Vec::new() };
        for mut sender in senders {
            let stop = running.stop.clone();
            let body = move || {
                linux::sched::set(0, &Scheduling::from(SCHEDULING)).map_err(|e| Error::System(e.to_string()))?;
                if load.pattern.is_greedy() { greedy(&mut sender, &stop) } else { paced(&load, &mut sender, &stop) }
            };
            running.threads.push(std::thread::Builder::new().name("load".into()).spawn(body)?);
        }
        Ok(running)
    }

    fn finish(mut self) -> Result<Offered> {
        self.stop.store(true, Relaxed);
        let ended = || Error::Failed("the load ended in a panic".into());
        self.threads.drain(..).try_fold(Offered::default(), |sum, thread| {
            let one = thread.join().map_err(|_| ended())??;
            Ok(Offered { packets: sum.packets + one.packets, seconds: sum.seconds.max(one.seconds) })
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// A generator that is later than this gives packets up. Offering too little is noticed; a burst to catch up would not be.
const GIVE_UP: Duration = Duration::from_millis(20);

fn paced(load: &Load, sender: &mut Sender, stop: &AtomicBool) -> Result<Offered> {
    let mut schedule = Schedule::of(load);
    let (began, mut packets) = (Instant::now(), 0);
    let mut due = began;
    while !stop.load(Relaxed) {
        let now = Instant::now();
        if let Some(left) = due.checked_duration_since(now).filter(|left| !left.is_zero()) {
            std::thread::sleep(left.min(LOOK));
            continue;
        }
        if now.duration_since(due) > GIVE_UP {
            due = now;
        }
        packets += sender.send(schedule.burst())?;
        due += Duration::from_nanos(schedule.gap_ns());
    }
    Ok(Offered { packets, seconds: began.elapsed().as_secs_f64() })
}

fn greedy(sender: &mut Sender, stop: &AtomicBool) -> Result<Offered> {
    let (began, mut packets) = (Instant::now(), 0);
    while !stop.load(Relaxed) {
        packets += sender.send(GREEDY)?;
    }
    Ok(Offered { packets, seconds: began.elapsed().as_secs_f64() })
}

/// Packets that a greedy stream hands over at once.
const GREEDY: u32 = 16;
/// Longest send or sleep between two looks at the stop flag.
const LOOK: Duration = Duration::from_millis(100);
/// Room for the sender's own queue: the queue is to drop packets, not the socket to hold them back.
const BUFFER: usize = 8 << 20;

enum Sender {
    Datagrams { socket: UdpSocket, gso: bool, bytes: Vec<u8> },
    Stream { stream: TcpStream, bytes: Vec<u8> },
}

impl Sender {
    fn open(load: &Load, target: Target) -> Result<Self> {
        let most = load.pattern.burst();
        let bytes = |packets: u32| vec![0x5a; load.protocol.payload() * packets as usize];
        if load.protocol == Protocol::Tcp {
            let stream = TcpStream::connect_timeout(&target.tcp, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(LOOK))?;
            // Data that waits when the load ends is dropped: megabytes would continue for seconds, into the next
            // measurement.
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).map_err(std::io::Error::from)?;
            return Ok(Sender::Stream { stream, bytes: bytes(most.max(GREEDY)) });
        }
        let socket = UdpSocket::bind(if target.udp.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
        socket.connect(target.udp)?;
        // Without the privilege, as much as an ordinary user gets.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(&socket, BUFFER);
        if load.gso {
            linux::socket::cut_datagrams(socket.as_fd(), load.protocol.payload() as u16)?;
        }
        Ok(Sender::Datagrams { socket, gso: load.gso, bytes: bytes(most) })
    }

    /// Sends this number of packets; gives the number that the kernel took.
    fn send(&mut self, packets: u32) -> Result<u64> {
        match self {
            Sender::Datagrams { socket, gso: false, bytes } => {
                let one = &bytes[..Protocol::Udp.payload()];
                Ok((0..packets).filter(|_| socket.send(one).is_ok()).count() as u64)
            }
            Sender::Datagrams { socket, gso: true, bytes } => {
                let size = Protocol::Udp.payload();
                let all = &bytes[..size * packets as usize];
                let taken = all.chunks(size * MOST_CUT).filter(|part| socket.send(part).is_ok());
                Ok(taken.map(|part| (part.len() / size) as u64).sum())
            }
            Sender::Stream { stream, bytes } => {
                let size = Protocol::Tcp.payload();
                stream_all(stream, &bytes[..size * packets as usize]).map(|taken| (taken / size) as u64)
            }
        }
    }
}

/// Packets that the kernel cuts from one datagram: 64 at most, within 64 KiB.
const MOST_CUT: usize = 40;

/// Writes as much as it can within [`LOOK`]; a peer that is gone is an error.
fn stream_all(stream: &mut TcpStream, bytes: &[u8]) -> Result<usize> {
    let mut taken = 0;
    while taken < bytes.len() {
        match stream.write(&bytes[taken..]) {
            Ok(more) => taken += more,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => break,
            Err(e) => return Err(Error::Failed(format!("the load's stream: {e}"))),
        }
    }
    Ok(taken)
}
