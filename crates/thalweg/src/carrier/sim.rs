//! A seeded network in virtual time: the ordinary test bed.
//!
//! [`SimNetwork`] is pure: time comes as an argument, the same seed gives the same run. [`SimSend`] and [`SimReceive`]
//! put the carrier's face on one link of it; their clock jumps to the next deadline instead of waiting.

use super::fault::sending_time_ns;
use super::{Capabilities, Dice, ReceiveHalf, SendHalf, TICK};
use linux::lock::PiMutex;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Properties of every link of the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimSettings {
    /// Share of datagrams that vanish (0 to 1), each for itself.
    pub loss: f64,
    /// Share of datagrams that arrive twice.
    pub duplicate: f64,
    /// Time from the end of sending to arrival.
    pub delay: Duration,
    /// The delay varies by up to this much up and down. It never changes the order; `reorder` does.
    pub jitter: Duration,
    /// Share of datagrams that later ones overtake: held back by `jitter`, at least 1 ms.
    pub reorder: f64,
    /// Share of datagrams that arrive with one flipped bit.
    pub corrupt: f64,
    /// Sending speed of a link; `None` takes no time.
    pub rate_bytes_per_s: Option<u64>,
    /// Bytes that a link's queue holds while it sends; more are lost.
    pub queue_bytes: usize,
    /// Largest datagram.
    pub mtu: usize,
}

impl Default for SimSettings {
    /// A perfect network with the MTU of an Ethernet.
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicate: 0.0,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: 0.0,
            corrupt: 0.0,
            rate_bytes_per_s: None,
            queue_bytes: 1 << 20,
            mtu: 1472,
        }
    }
}

/// Counters of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounters {
    /// Datagrams that were sent.
    pub sent: u64,
    /// Datagrams (and second copies) that were received.
    pub received: u64,
    /// Vanished by chance.
    pub lost: u64,
    /// Vanished because a queue was full.
    pub overflowed: u64,
    /// Second copies.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
    /// Changed.
    pub corrupted: u64,
}

/// A link of a network: any number. A link is one direction.
pub type Link = u32;

/// The network.
#[derive(Debug)]
pub struct SimNetwork {
    settings: SimSettings,
    dice: Dice,
    links: BTreeMap<Link, LinkState>,
    order: u64,
    counters: SimCounters,
}

#[derive(Debug, Default)]
struct LinkState {
    free_at: u64,      // when the last datagram will have been sent
    last_arrival: u64, // arrivals keep their order
    flying: BTreeMap<(u64, u64), Vec<u8>>,
}

impl SimNetwork {
    /// A network whose random numbers come from `seed`.
    pub fn new(seed: u64, settings: SimSettings) -> Self {
        let (links, counters) = Default::default();
        Self { settings, dice: Dice::new(seed), links, order: 0, counters }
    }

    /// Changes how the network behaves from now on.
    pub fn set(&mut self, settings: SimSettings) {
        self.settings = settings;
    }

    /// Puts a datagram on a link.
    ///
    /// # Errors
    /// EMSGSIZE above the MTU.
    pub fn send(&mut self, now_ns: u64, link: Link, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.settings.mtu {
            return Err(rustix::io::Errno::MSGSIZE.into());
        }
        self.counters.sent += 1;
        // Every datagram draws all its chances, so that changing one setting leaves the others' events where they were.
        let s = self.settings;
        let [lost, twice, late, wrong] = [s.loss, s.duplicate, s.reorder, s.corrupt].map(|p| self.dice.chance(p));
        let delay = self.dice.around(ns(s.delay), ns(s.jitter));
        let mut bytes = bytes.to_vec();
        let mut changed = self.dice.clone();
        self.dice.bits();
        let Some(sent_at) = self.queue(now_ns, link, bytes.len()) else {
            self.counters.overflowed += 1;
            return Ok(());
        };
        if lost {
            self.counters.lost += 1;
            return Ok(());
        }
        if wrong {
            self.counters.corrupted += 1;
            changed.flip(&mut bytes);
        }
        self.fly(link, sent_at + delay, late, twice, bytes);
        Ok(())
    }

    /// Takes the next datagram that has arrived by `now`.
    pub fn receive(&mut self, now_ns: u64, link: Link) -> Option<Vec<u8>> {
        let first = self.links.get_mut(&link)?.flying.first_entry()?;
        if first.key().0 > now_ns {
            return None;
        }
        self.counters.received += 1;
        Some(first.remove())
    }

    /// The time at which the next datagram arrives on any link.
    pub fn next_deadline(&self) -> Option<u64> {
        self.links.keys().filter_map(|link| self.next_arrival(*link)).min()
    }

    /// The time at which the next datagram arrives on this link.
    pub fn next_arrival(&self, link: Link) -> Option<u64> {
        self.links.get(&link)?.flying.first_key_value().map(|(key, _)| key.0)
    }

    /// The counters so far.
    pub fn counters(&self) -> SimCounters {
        self.counters
    }

    /// The time at which a datagram sent now has left the sender, or `None` when the queue is full.
    fn queue(&mut self, now_ns: u64, link: Link, length: usize) -> Option<u64> {
        let state = self.links.entry(link).or_default();
        let Some(rate) = self.settings.rate_bytes_per_s else { return Some(now_ns) };
        let start = state.free_at.max(now_ns);
        let waiting = u128::from(start - now_ns) * u128::from(rate) / 1_000_000_000;
        if waiting + length as u128 > self.settings.queue_bytes as u128 {
            return None;
        }
        state.free_at = start.saturating_add(sending_time_ns(length, rate));
        Some(state.free_at)
    }

    fn fly(&mut self, link: Link, arrival: u64, late: bool, twice: bool, bytes: Vec<u8>) {
        let state = self.links.entry(link).or_default();
        let mut arrival = arrival.max(state.last_arrival);
        if late {
            self.counters.reordered += 1;
            arrival += ns(self.settings.jitter).max(1_000_000);
        } else {
            state.last_arrival = arrival;
        }
        if twice {
            self.counters.duplicated += 1;
            state.flying.insert((arrival, self.order + 1), bytes.clone());
        }
        state.flying.insert((arrival, self.order), bytes);
        self.order += 2;
    }
}

fn ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// A network and its clock, shared by the halves on it.
#[derive(Clone)]
pub struct SimWorld {
    inner: Arc<PiMutex<(SimNetwork, u64)>>,
}

impl SimWorld {
    /// A world whose clock starts at 0.
    pub fn new(network: SimNetwork) -> Self {
        Self { inner: Arc::new(PiMutex::new((network, 0))) }
    }

    /// The halves of one link, and their capabilities.
    pub fn link(&self, link: Link) -> (SimSend, SimReceive, Capabilities) {
        let settings = self.inner.lock().0.settings;
        let capabilities = Capabilities {
            reliable: false,
            ordered: settings.reorder == 0.0,
            stream: false,
            multicast: false,
            loan: false,
            marks: false,
            max_datagram: Some(settings.mtu),
        };
        (SimSend { world: self.clone(), link }, SimReceive { world: self.clone(), link }, capabilities)
    }

    /// The virtual time.
    pub fn now_ns(&self) -> u64 {
        self.inner.lock().1
    }

    /// Looks at the network.
    pub fn counters(&self) -> SimCounters {
        self.inner.lock().0.counters()
    }
}

/// The sending half of a link.
pub struct SimSend {
    world: SimWorld,
    link: Link,
}

impl SendHalf for SimSend {
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = parts.iter().flat_map(|p| p.iter().copied()).collect();
        let mut world = self.world.inner.lock();
        let now = world.1;
        world.0.send(now, self.link, &bytes).map(|()| bytes.len())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn close(&self) {}
}

/// The receiving half of a link.
pub struct SimReceive {
    world: SimWorld,
    link: Link,
}

impl ReceiveHalf for SimReceive {
    /// A waiting receive moves the clock to the next arrival on this link, but no further than [`TICK`].
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        let mut world = self.world.inner.lock();
        if wait {
            let tick = world.1 + ns(TICK);
            let next = world.0.next_arrival(self.link).unwrap_or(tick).min(tick);
            world.1 = world.1.max(next);
        }
        let now = world.1;
        let bytes = world.0.receive(now, self.link).ok_or(io::ErrorKind::WouldBlock)?;
        let kept = bytes.len().min(buffer.len());
        buffer[..kept].copy_from_slice(&bytes[..kept]);
        Ok(bytes.len())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
