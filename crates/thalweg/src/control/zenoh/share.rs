//! One host's share of those who are connected through Zenoh. Zenoh counts them all together: who finished a thousand handshakes kept
//! newcomers out for as long as it stayed, and took 80 to 110 MB.

use crate::control::Peer;
use linux::net::AtPort;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// Zenoh's sessions with other nodes and routers at most …
pub(super) const SESSIONS: usize = 1000;
/// … and the connections of one host at most.
pub(super) const OF_HOST: usize = SESSIONS / 2;
/// Pause before they are counted again: two handshakes take a millisecond.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// Who has its share, and is answered no more.
#[derive(Default)]
pub(super) struct Share(Vec<IpAddr>);

impl Share {
    /// Counts who is connected at these ports, and ends what is beyond a host's share. Gives the hosts that have reached it since.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn look(&mut self, ports: &[u16]) -> io::Result<Vec<IpAddr>> {
        let at: Vec<AtPort> = ports.iter().map(|port| AtPort::look(*port)).collect::<io::Result<_>>()?;
        let full = full(at.iter().flat_map(AtPort::connected));
        let mut seen = HashMap::new();
        let mut is_beyond = |address| {
            let seen: &mut usize = seen.entry(host(address)).or_default();
            *seen += 1;
            *seen > OF_HOST
        };
        for at in at.iter().filter(|_| !full.is_empty()) {
            at.end(&mut is_beyond);
        }
        if full != self.0 {
            at.iter().try_for_each(|at| at.refuse(&full))?;
        }
        let before = std::mem::replace(&mut self.0, full);
        Ok(self.0.iter().filter(|host| !before.contains(host)).copied().collect())
    }
}

/// The hosts that have their share or more.
fn full(connected: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut count: HashMap<IpAddr, usize> = HashMap::new();
    connected.for_each(|address| *count.entry(host(address)).or_default() += 1);
    let mut full: Vec<IpAddr> =
        count.into_iter().filter(|(_, count)| *count >= OF_HOST).map(|(host, _)| host).collect();
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

    #[test]
    fn a_host_has_half_by_however_many_addresses_of_its_network() {
        let of = |host: &str, count: usize| vec![host.parse::<IpAddr>().unwrap(); count];
        let many = (0..OF_HOST).map(|n| format!("fd00::1:{n:x}").parse().unwrap());
        let all = [of("10.0.0.1", OF_HOST), of("10.0.0.2", OF_HOST - 1), of("fd01::1", 3)].concat();
        let full: Vec<String> = full(all.into_iter().chain(many)).iter().map(IpAddr::to_string).collect();
        assert_eq!(full, ["10.0.0.1", "fd00::"]);
    }
}
