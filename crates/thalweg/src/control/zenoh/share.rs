//! One host's share of the connections through Zenoh, with finished handshakes or without. Zenoh counts them all
//! together: a host with a thousand finished handshakes kept newcomers out for as long as it stayed, and took 80 to
//! 110 MB; beside 1,100 silent connections of one host a newcomer took 3 to 7 s.

#![allow(clippy::disallowed_methods)] // the threads of this back end read the clock

use crate::control::Peer;
use crate::guard::{or_abort, parsing};
use linux::net::{SocketsAtPort, descriptors};
use linux::poll::{Waker, wait_readable};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Zenoh's sessions with other nodes and routers at most.
pub(super) const SESSIONS: u64 = 1000;
/// Interval of counting them. A silent connection is no event of Zenoh's, and its listener may have taken it before
/// another thread sees the listener ready, so there is nothing to wait for. A process of fewer descriptors than a
/// share counts only those: 0.03 ms.
const TICK: Duration = Duration::from_millis(100);
/// Pause after another host has its share or one has it no more: in a tick it has all places again.
const PAUSE: Duration = Duration::from_millis(20);
/// Limit of the time for counting: one part in this many.
const PART: u32 = 10;

/// Most connections of one host, if `pending` connections may be unfinished: half of the sessions, and at most four fifths
/// of `pending`; the rest is for other hosts.
pub(super) fn of_host(pending: u64) -> usize {
    (SESSIONS / 2).min(pending * 4 / 5) as usize
}

/// The thread that keeps hosts to their share. It ends when this is dropped.
pub(super) struct Guard(Arc<Waker>);

impl Guard {
    /// Starts it for these ports, with this limit of unfinished connections.
    ///
    /// # Errors
    /// The kernel gives no thread or no descriptor.
    pub(super) fn start(ports: Vec<u16>, pending: u64, warn: impl Fn(String) + Send + 'static) -> io::Result<Self> {
        let stop = Arc::new(Waker::new()?);
        let mut share = Share { ports, of_host: of_host(pending), full: Vec::new(), has_changed: false };
        let stopped = stop.clone();
        let watch = move || {
            let (mut pause, mut failures) = (TICK, 0u64);
            while !wait_readable(&*stopped, Some(pause)).unwrap_or(true) {
                let began = Instant::now();
                match share.look() {
                    Ok(new) => new.iter().for_each(|host| warn(share.warning(*host))),
                    Err(error) => {
                        failures += 1;
                        if failures.is_power_of_two() {
                            warn(format!(
                                "cannot count who is connected through Zenoh ({failures} times so far): {error}"
                            ));
                        }
                    }
                }
                pause = if share.has_changed { PAUSE } else { TICK }.max(began.elapsed() * PART);
            }
        };
        linux::thread::spawn(parsing("thalweg-share"), move || or_abort("shares of Zenoh", watch))?;
        Ok(Self(stop))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Shares of hosts in Zenoh's connections: a host that has its full share is answered no more.
struct Share {
    ports: Vec<u16>,
    of_host: usize,
    full: Vec<IpAddr>,
    /// With the last look.
    has_changed: bool,
}

impl Share {
    /// Counts connections, and ends those beyond a host's share. Gives the hosts that have reached it since.
    ///
    /// # Errors
    /// The kernel's error.
    fn look(&mut self) -> io::Result<Vec<IpAddr>> {
        self.has_changed = false;
        if self.full.is_empty() && descriptors()? < self.of_host {
            return Ok(Vec::new());
        }
        let at: Vec<SocketsAtPort> =
            self.ports.iter().map(|port| SocketsAtPort::look(*port)).collect::<io::Result<_>>()?;
        let full = full(at.iter().flat_map(SocketsAtPort::connected), self.of_host);
        let mut seen = HashMap::new();
        let mut is_beyond = |address| {
            let seen: &mut usize = seen.entry(host(address)).or_default();
            *seen += 1;
            *seen > self.of_host
        };
        for at in at.iter().filter(|_| !full.is_empty()) {
            at.end(&mut is_beyond);
        }
        self.has_changed = full != self.full;
        if self.has_changed {
            at.iter().try_for_each(|at| at.refuse(&full))?;
        }
        let before = std::mem::replace(&mut self.full, full);
        Ok(self.full.iter().filter(|host| !before.contains(host)).copied().collect())
    }

    fn warning(&self, host: IpAddr) -> String {
        format!("host {host} has {} connections through Zenoh, which is its share: more are ended", self.of_host)
    }
}

/// The hosts that have their share or more.
fn full(connected: impl Iterator<Item = IpAddr>, of_host: usize) -> Vec<IpAddr> {
    let mut count: HashMap<IpAddr, usize> = HashMap::new();
    connected.for_each(|address| *count.entry(host(address)).or_default() += 1);
    let mut full: Vec<IpAddr> =
        count.into_iter().filter(|(_, count)| *count >= of_host).map(|(host, _)| host).collect();
    full.sort();
    full
}

/// The host at an address, of IPv6 the network.
fn host(address: IpAddr) -> IpAddr {
    if let Peer::Host(host) = Peer::at(address) { host } else { address }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_HOST: usize = 500;

    #[test]
    fn a_share_leaves_room_for_other_hosts() {
        assert_eq!([1000, 512, 128].map(of_host), [OF_HOST, 409, 102]);
    }

    #[test]
    fn a_host_has_half_with_any_number_of_addresses() {
        let of = |host: &str, count: usize| vec![host.parse::<IpAddr>().unwrap(); count];
        let many = (0..OF_HOST).map(|n| format!("fd00::1:{n:x}").parse().unwrap());
        let all = [of("10.0.0.1", OF_HOST), of("10.0.0.2", OF_HOST - 1), of("fd01::1", 3)].concat();
        let full: Vec<String> = full(all.into_iter().chain(many), OF_HOST).iter().map(IpAddr::to_string).collect();
        assert_eq!(full, ["10.0.0.1", "fd00::"]);
    }
}
