//! Room for streams that others open: who may have how many, and who gives way. Nobody keeps newcomers out: where there is
//! no room, the oldest stream that has not said what it wants makes some, of the one that has most of them.

use super::control::Control;
use super::entries::Entry;
use super::incoming::Incoming;
use linux::poll::Readiness;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

/// Who is at the other end of a stream, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// An address, by TCP.
    Address(IpAddr),
    /// A user of this host, by the unix socket.
    User(u32),
}

/// Streams that have not said yet what they want: of each kind of listener, so that none starves the other …
pub(crate) const MOST_INCOMING: usize = 256;
/// … and of one peer. Who says what it wants at once is never among them for longer than a turn of the loop.
pub(crate) const MOST_INCOMING_OF_PEER: usize = 16;
/// Streams of one peer on which it asks for signs of life.
pub(crate) const MOST_ASKERS_OF_PEER: usize = 64;
/// Descriptors that streams over TCP leave to this host's nodes, who come by the unix socket, and to the node itself.
const RESERVE: u64 = 32;

impl Peer {
    /// Who is at the other end.
    pub fn of(stream: &OwnedFd) -> Option<Self> {
        let socket = socket2::SockRef::from(stream);
        match socket.peer_addr().ok()?.as_socket() {
            Some(address) => Some(Peer::Address(address.ip().to_canonical())),
            None => linux::socket::peer_user(stream).ok().map(Peer::User),
        }
    }

    fn is_of_unix(self) -> bool {
        matches!(self, Peer::User(_))
    }
}

/// Whether this descriptor is one of the last that the process may have. The kernel gives the lowest free number.
pub(crate) fn is_in_reserve(descriptor: impl AsFd) -> bool {
    use rustix::process::{Resource, getrlimit};
    let most = getrlimit(Resource::Nofile).current;
    let number = u64::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(0);
    most.is_some_and(|most| number.saturating_add(RESERVE) >= most)
}

impl Control {
    /// A stream that somebody opened, who has said nothing yet.
    pub(super) fn take_in(&mut self, stream: OwnedFd) {
        let Some(peer) = Peer::of(&stream) else { return };
        if !peer.is_of_unix() && is_in_reserve(&stream) {
            return self.count(
                "connections beyond what leaves 32 descriptors to nodes of this host: raise the limit of open files (ulimit -n)",
            );
        }
        self.let_give_way(peer);
        self.watch(Entry::Incoming(Incoming::new(stream, peer, Instant::now())), Readiness::IN);
    }

    /// Makes room for another stream of this peer. Who has said what it wants meanwhile is served instead of giving way.
    fn let_give_way(&mut self, peer: Peer) {
        while let Some(oldest) = self.who_gives_way(peer) {
            let Some(Some(Entry::Incoming(incoming))) = self.entries.get(oldest) else { return };
            let until = incoming.until;
            self.incoming_ready(oldest);
            let stays = |entry: &Option<Entry>| matches!(entry, Some(Entry::Incoming(of)) if of.until == until);
            if let Some(silent) = self.entries.iter().position(stays) {
                self.unwatch(silent);
                return self.count("incoming streams beyond the limit: the oldest gave way");
            }
        }
    }

    /// Of the streams that have said nothing yet, the one that makes room for another one of this peer, if that is needed.
    fn who_gives_way(&self, peer: Peer) -> Option<usize> {
        let waiting = self.entries.iter().enumerate().filter_map(|(index, entry)| match entry {
            Some(Entry::Incoming(incoming)) => Some((incoming.until, index, incoming.peer)),
            _ => None,
        });
        let pool: Vec<_> = waiting.filter(|(_, _, of)| of.is_of_unix() == peer.is_of_unix()).collect();
        who_gives_way(&pool, peer)
    }

    /// How many streams of this peer ask for signs of life.
    pub(super) fn askers_of(&self, peer: Peer) -> usize {
        self.entries.iter().flatten().filter(|entry| matches!(entry, Entry::Asked(_, _, of) if *of == peer)).count()
    }
}

/// Of streams with their deadlines and peers: the oldest of a peer that has its share; in a full pool, that of the peer that has
/// most.
fn who_gives_way<D: Ord + Copy>(pool: &[(D, usize, Peer)], newcomer: Peer) -> Option<usize> {
    let of = |peer: Peer| pool.iter().filter(move |(_, _, of)| *of == peer);
    let oldest = |peer: Peer| of(peer).min().map(|(_, index, _)| *index);
    let this_user = Peer::User(rustix::process::geteuid().as_raw());
    if newcomer != this_user && of(newcomer).count() >= MOST_INCOMING_OF_PEER {
        return oldest(newcomer);
    }
    if pool.len() < MOST_INCOMING { None } else { oldest_of_most(pool) }
}

/// The oldest of the peer that has most.
pub(super) fn oldest_of_most<D: Ord + Copy>(pool: &[(D, usize, Peer)]) -> Option<usize> {
    let of = |peer: Peer| pool.iter().filter(move |(_, _, of)| *of == peer);
    let most = pool.iter().map(|(_, _, peer)| *peer).max_by_key(|peer| of(*peer).count())?;
    of(most).min().map(|(_, index, _)| *index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Peer {
        Peer::Address([10, 0, 0, last].into())
    }

    #[test]
    fn who_has_its_share_gives_way_itself_and_a_full_pool_takes_from_who_has_most() {
        let flood: Vec<_> = (0..MOST_INCOMING_OF_PEER).map(|n| (100 - n, n, address(1))).collect();
        assert_eq!(who_gives_way(&flood, address(1)), Some(MOST_INCOMING_OF_PEER - 1), "the oldest");
        assert_eq!(who_gives_way(&flood, address(2)), None, "another one has room");
        let full: Vec<_> = (0..MOST_INCOMING).map(|n| (n, n, address(if n < 5 { 9 } else { n as u8 }))).collect();
        assert_eq!(who_gives_way(&full, address(2)), Some(0));
        assert_eq!(who_gives_way(&full, Peer::User(u32::MAX - 1)), Some(0), "pools are kept apart by who asks");
    }
}
