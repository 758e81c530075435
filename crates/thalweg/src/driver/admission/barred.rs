//! Hosts, and processes of this host, whose connections fail again and again. The kernel does not answer such a host for a while
//! (`linux::filter`); connections of such a process are closed as they are accepted, a few per millisecond. One host that sent malformed
//! streams as fast as it could took half of a processor from three nodes. Pure: time is an argument.

use crate::control::Peer;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Failed connections that one peer may have at once …
const BURST: f64 = 32.0;
/// … and per second. A barred peer is answered again when half of its burst is available: after half a second. Each failed connection takes
/// about 0.1 ms of the processor. At 100 per second, three nodes were busy with them in one millisecond of 30, which shows in p99.
const RATE: f64 = 32.0;
/// Most peers that are counted. The peer with the most connections left is forgotten first.
const MOST_COUNTED: usize = 1024;

/// The peers whose failed connections are counted.
#[derive(Default)]
pub(crate) struct Barred(HashMap<Peer, Counted>);

struct Counted {
    left: f64,
    at: Instant,
    until: Option<Instant>,
}

impl Counted {
    fn left(&self, now: Instant) -> f64 {
        (self.left + now.saturating_duration_since(self.at).as_secs_f64() * RATE).min(BURST)
    }
}

impl Barred {
    /// A connection of this peer failed. `true`: from now on the peer is barred.
    pub(super) fn came_to_nothing(&mut self, peer: Peer, now: Instant) -> bool {
        if !self.0.contains_key(&peer) {
            self.make_room(now);
        }
        let counted = self.0.entry(peer).or_insert(Counted { left: BURST, at: now, until: None });
        (counted.left, counted.at) = ((counted.left(now) - 1.0).max(0.0), now);
        let begins = counted.left < 1.0 && counted.until.is_none();
        let begins = begins && (peer.is_of_unix() || self.hosts().len() < linux::filter::MOST_HOSTS);
        if begins && let Some(counted) = self.0.get_mut(&peer) {
            counted.until = Some(now + Duration::from_secs_f64(BURST / 2.0 / RATE));
        }
        begins
    }

    /// Ends the bars whose time is over. `true`: at least one peer is answered again.
    pub(super) fn release(&mut self, now: Instant) -> bool {
        let due = |counted: &&mut Counted| counted.until.is_some_and(|until| until <= now);
        let released = self.0.values_mut().filter(due).map(|counted| counted.until = None).count();
        released > 0
    }

    /// The next time at which a barred peer is answered again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().filter_map(|counted| counted.until).min()
    }

    /// The addresses of barred hosts; for IPv6, those of networks.
    pub(super) fn hosts(&self) -> Vec<IpAddr> {
        let host = |peer: &Peer| if let Peer::Host(host) = peer { Some(*host) } else { None };
        self.peers().filter_map(host).collect()
    }

    /// `true` if this peer is barred.
    pub(super) fn has(&self, peer: Peer) -> bool {
        self.0.get(&peer).is_some_and(|counted| counted.until.is_some())
    }

    /// `true` if a process of this host is barred.
    pub(super) fn has_process(&self) -> bool {
        self.peers().any(|peer| peer.is_of_unix())
    }

    fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.0.iter().filter(|(_, counted)| counted.until.is_some()).map(|(peer, _)| peer)
    }

    fn make_room(&mut self, now: Instant) {
        if self.0.len() < MOST_COUNTED {
            return;
        }
        self.0.retain(|_, counted| counted.left(now) < BURST);
        let least =
            |(_, one): &(&Peer, &Counted), (_, other): &(&Peer, &Counted)| one.left(now).total_cmp(&other.left(now));
        let most = self.0.iter().filter(|(_, counted)| counted.until.is_none()).max_by(least).map(|(peer, _)| *peer);
        if self.0.len() >= MOST_COUNTED
            && let Some(peer) = most
        {
            self.0.remove(&peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }
    fn host(number: u32) -> Peer {
        Peer::Host(address(number))
    }

    #[test]
    fn processes_are_barred_beside_hosts_and_one_by_one() {
        let (mut barred, now) = (Barred::default(), Instant::now());
        let process = |process| Peer::Process { user: 1000, process };
        assert_eq!((0..40).filter(|_| barred.came_to_nothing(process(7), now)).count(), 1);
        assert!((0..20).all(|_| !barred.came_to_nothing(process(8), now)));
        assert!(barred.has_process() && barred.has(process(7)) && !barred.has(process(8)) && barred.hosts().is_empty());
        assert!(barred.release(now + Duration::from_millis(500)) && !barred.has_process());
    }

    #[test]
    fn a_peer_that_always_fails_is_answered_for_half_of_the_time_at_most() {
        let (mut barred, start) = (Barred::default(), Instant::now());
        let (mut failed, mut times) = (0, 0);
        for millis in 0..10_000 {
            let now = start + Duration::from_millis(millis);
            barred.release(now);
            if barred.hosts().is_empty() {
                for _ in 0..8 {
                    failed += 1;
                    times += u32::from(barred.came_to_nothing(host(1), now));
                }
            }
        }
        assert!((320..420).contains(&failed), "{failed} in 10 s: 32 at once, 32 per second");
        assert!((15..21).contains(&times), "{times}");
    }

    #[test]
    fn peers_that_fail_rarely_are_answered() {
        let (mut barred, start) = (Barred::default(), Instant::now());
        assert!((0..2000).all(|n| !barred.came_to_nothing(host(1), start + Duration::from_millis(32 * n))));
        let flood = (0..200).filter(|_| barred.came_to_nothing(host(2), start)).count();
        assert_eq!((flood, barred.hosts()), (1, vec![address(2)]));
        assert_eq!(barred.next(), Some(start + Duration::from_millis(500)));
        let later = start + Duration::from_millis(100);
        let fails = |barred: &mut Barred, number, times, now| {
            (0..times).filter(|_| barred.came_to_nothing(host(number), now)).count()
        };
        assert_eq!((fails(&mut barred, 3, 100, later), barred.next()), (1, Some(start + Duration::from_millis(500))));
        assert!(!barred.release(start + Duration::from_millis(499)));
        assert!(barred.release(start + Duration::from_millis(500)) && barred.hosts() == [address(3)]);
        let after = start + Duration::from_millis(600);
        assert_eq!(fails(&mut barred, 3, 1000, after), 0, "what was accepted before");
        assert!(barred.release(after) && barred.hosts().is_empty());
        assert_eq!(fails(&mut barred, 3, 16, start + Duration::from_millis(1200)), 0, "it owes nothing");
        assert_eq!(fails(&mut barred, 1, 100, start + Duration::from_secs(600)), 1, "nor does anybody save");
    }

    #[test]
    fn the_number_of_counted_peers_is_bounded() {
        let (mut barred, now) = (Barred::default(), Instant::now());
        let _ = (0..200).map(|_| barred.came_to_nothing(host(0), now)).count();
        let _ = (1..5_000).map(|n| barred.came_to_nothing(host(n), now)).count();
        assert!(barred.0.len() <= MOST_COUNTED);
        assert_eq!(barred.hosts(), [address(0)], "who is barred is not forgotten");
        assert_eq!((0..20).filter(|_| barred.came_to_nothing(host(7_000), now)).count(), 0);
        let _ = (10_000..12_000).map(|n| barred.came_to_nothing(host(n), now)).count();
        let known = (20..32).filter(|_| barred.came_to_nothing(host(7_000), now)).count();
        assert_eq!(known, 1, "who has the most left is forgotten first");
        let _ = barred.release(now + Duration::from_secs(1));
        let many = (0..300).filter(|n| (0..32).any(|_| barred.came_to_nothing(host(500_000 + n), now))).count();
        assert_eq!(many, linux::filter::MOST_HOSTS);
    }

    #[test]
    fn a_barred_peer_is_not_forgotten_for_peers_that_failed() {
        let (mut barred, start) = (Barred::default(), Instant::now());
        let now = start + Duration::from_millis(499);
        assert_eq!((0..32).filter(|_| barred.came_to_nothing(host(0), start)).count(), 1);
        for number in 1..MOST_COUNTED as u32 {
            assert!((0..26).all(|_| !barred.came_to_nothing(host(number), now)));
        }
        assert!((5_000..5_010).all(|number| !barred.came_to_nothing(host(number), now)));
        assert_eq!(barred.hosts(), [address(0)]);
    }
}
