//! Load: competing traffic on the link. A generator offers packets at a rate and reports the rate it reached; a [`sink`] counts
//! what arrived.

pub mod sink;

pub use sink::{Sink, Traffic};

use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::part::{Orders, Part, Place};
use crate::topology::FULL_PACKET;
use qos::priority::{Policy, Scheduling};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg::carrier::Dice;

/// The protocol of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Datagrams, offered at the rate whether or not they get through.
    Udp,
    /// One stream, which gives way.
    Tcp,
}

impl Protocol {
    /// `udp` or `tcp`.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Udp => "udp",
            Protocol::Tcp => "tcp",
        }
    }

    /// Bytes of payload that fill a packet of [`FULL_PACKET`] bytes (IPv4; TCP with time stamps).
    const fn payload(self) -> usize {
        let headers = match self {
            Protocol::Udp => 14 + 20 + 8,
            Protocol::Tcp => 14 + 20 + 32,
        };
        FULL_PACKET as usize - headers
    }
}

/// The spacing of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One by one at even distances: below the link's rate they never meet.
    Even,
    /// A number at once at random (exponential) distances: messages of many independent senders.
    Random(u32),
    /// A number at once, at even distances.
    Bursts(u32),
    /// A number of streams, each at full speed (TCP). One alone cannot fill its own host's queue: Linux limits a
    /// stream's data there (TCP small queues).
    Greedy(u32),
}

impl Pattern {
    /// Packets that leave at once.
    pub const fn burst(self) -> u32 {
        match self {
            Pattern::Random(n) | Pattern::Bursts(n) if n > 0 => n,
            _ => 1,
        }
    }

    /// `true` for a pattern that takes all the bandwidth there is and has no rate.
    pub const fn is_greedy(self) -> bool {
        matches!(self, Pattern::Greedy(_))
    }

    /// For people and factors.
    pub fn name(self) -> String {
        match self {
            Pattern::Even => "even".into(),
            Pattern::Random(n) => format!("random, {n} at once"),
            Pattern::Bursts(n) => format!("bursts of {n}"),
            Pattern::Greedy(streams) => format!("{streams} greedy streams"),
        }
    }
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The protocol.
    pub protocol: Protocol,
    /// Bits per second, Ethernet headers included; a greedy one has no rate of its own.
    pub rate: u64,
    /// The spacing of its packets.
    pub pattern: Pattern,
    /// A burst leaves as one large datagram that the kernel cuts (UDP GSO): less work for the sender.
    pub gso: bool,
    /// Seed of random distances.
    pub seed: u64,
}

/// The distances of a load's packets.
#[derive(Clone, Debug)]
pub struct Schedule {
    dice: Dice,
    random: bool,
    burst: u32,
    gap_ns: f64,
}

impl Schedule {
    /// The schedule of a load with a rate above 0.
    pub fn of(load: &Load) -> Self {
        let burst = load.pattern.burst();
        let gap_ns = f64::from(burst) * FULL_PACKET as f64 * 8e9 / load.rate.max(1) as f64;
        Self { dice: Dice::new(load.seed), random: matches!(load.pattern, Pattern::Random(_)), burst, gap_ns }
    }

    /// Packets that are due at once.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Nanoseconds until the next packets are due.
    pub fn gap_ns(&mut self) -> u64 {
        if !self.random {
            return self.gap_ns.round() as u64;
        }
        // 1 … 2^53 of 2^53: never 0, whose logarithm there is not.
        let drawn = ((self.dice.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (-drawn.ln() * self.gap_ns).round() as u64
    }
}

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

/// Longest wait for the generator to connect, or to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Above the work of the machine, below the measured processes: the load is to be as stated.
const SCHEDULING: Policy = Policy::Fifo(10);
/// A generator that is later than this gives packets up. Offering too little is noticed; a burst to catch up would not be.
const GIVE_UP: Duration = Duration::from_millis(20);
/// Packets that a greedy stream hands over at once.
const GREEDY: u32 = 16;
/// Longest send or sleep between two looks at the stop flag.
const LOOK: Duration = Duration::from_millis(100);
/// Room for the sender's own queue: the queue is to drop packets, not the socket to hold them back.
const BUFFER: usize = 8 << 20;
/// Packets that the kernel cuts from one datagram: 64 at most, within 64 KiB.
const MOST_CUT: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn load(pattern: Pattern) -> Load {
        Load { protocol: Protocol::Udp, rate: 70_000_000, pattern, gso: false, seed: 3 }
    }

    #[test]
    fn every_pattern_has_the_asked_rate() {
        for pattern in [Pattern::Even, Pattern::Random(4), Pattern::Bursts(40)] {
            let mut schedule = Schedule::of(&load(pattern));
            let (mut packets, mut ns) = (0u64, 0u64);
            while packets < 40_000 {
                packets += u64::from(schedule.burst());
                ns += schedule.gap_ns();
            }
            let rate = (packets * FULL_PACKET * 8) as f64 / (ns as f64 / 1e9);
            assert!((rate / 70e6 - 1.0).abs() < 0.02, "{pattern:?}: {rate}");
        }
    }

    #[test]
    fn random_distances_are_exponential_and_come_again_with_the_seed() {
        let gaps = |seed| {
            let mut schedule = Schedule::of(&Load { seed, ..load(Pattern::Random(1)) });
            (0..100_000).map(|_| schedule.gap_ns()).collect::<Vec<_>>()
        };
        assert_eq!(gaps(1), gaps(1));
        assert_ne!(gaps(1), gaps(2));
        // A part of 1 − 1/e of an exponential distribution is below the mean.
        let mean = FULL_PACKET as f64 * 8e9 / 70e6;
        let below = gaps(1).iter().filter(|gap| (**gap as f64) < mean).count();
        assert!((62_500..63_900).contains(&below), "{below}");
    }
}
