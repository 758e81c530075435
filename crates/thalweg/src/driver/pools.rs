//! Room for streams that others open: who may have how many, and who gives way. Nobody keeps newcomers out: where there is
//! no room, the oldest stream that has not said what it wants makes some, of the one that has most of them.

use super::control::Control;
use super::entries::Entry;
use super::incoming::Incoming;
use crate::control::Peer;
use linux::poll::Readiness;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Streams that have not said yet what they want: of each kind of listener, so that none starves the other …
pub(crate) const MOST_INCOMING: usize = 256;
/// … and of one peer, or of all processes of one user who is not this node's. Who says what it wants at once is never among them
/// for longer than a turn of the loop.
pub(crate) const MOST_INCOMING_OF_PEER: usize = 16;
/// Streams of one peer on which it asks for signs of life.
pub(crate) const MOST_ASKERS_OF_PEER: usize = 64;
/// Descriptors that streams over TCP leave to this host's nodes, who come by the unix socket, and to the node itself.
const RESERVE: u64 = 32;

/// Connections that are taken in before others have their turn …
const ACCEPTED_AT_ONCE: usize = 16;
/// … and of the unix socket in a [`PACE`], while a process is barred.
const ACCEPTED_PACED: usize = 2;
const PACE: Duration = Duration::from_millis(2);

/// Whether this descriptor is one of the last that the process may have. The kernel gives the lowest free number.
pub(crate) fn is_in_reserve(descriptor: impl AsFd) -> bool {
    use rustix::process::{Resource, getrlimit};
    let most = getrlimit(Resource::Nofile).current;
    let number = u64::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(0);
    most.is_some_and(|most| number.saturating_add(RESERVE) >= most)
}

impl Control {
    /// A stream that somebody opened, who has said nothing yet; by TCP from this address: one that was reset has none any more.
    pub(super) fn take_in(&mut self, stream: OwnedFd, from: Option<SocketAddr>) {
        let peer = from.map(|from| Peer::at(from.ip())).or_else(|| Peer::of(&stream));
        let Some(peer) = peer else { return };
        if self.barred.has(peer) {
            return self.count("connections of hosts or processes that are not answered for half a second");
        }
        if !peer.is_of_unix() && is_in_reserve(&stream) {
            return self.count(
                "connections beyond what leaves 32 descriptors to nodes of this host: raise the limit of open files (ulimit -n)",
            );
        }
        self.let_give_way(peer);
        self.watch(Entry::Incoming(Incoming::new(stream, (peer, from), Instant::now())), Readiness::IN);
    }

    /// Makes room for another stream of this peer. Who has said what it wants meanwhile is served instead of giving way.
    fn let_give_way(&mut self, peer: Peer) {
        while let Some(oldest) = self.who_gives_way(peer) {
            let Some(Some(Entry::Incoming(incoming))) = self.entries.get(oldest) else { return };
            let (until, who) = (incoming.until, incoming.peer);
            self.incoming_ready(oldest);
            let stays = |entry: &Option<Entry>| matches!(entry, Some(Entry::Incoming(of)) if of.until == until);
            if let Some(silent) = self.entries.iter().position(stays) {
                self.unwatch(silent);
                return self.came_to_nothing(who, "incoming streams beyond the limit: the oldest gave way");
            }
        }
    }

    /// Of the streams that have said nothing yet, the one that makes room for another one of this peer, if that is needed.
    fn who_gives_way(&self, peer: Peer) -> Option<usize> {
        let waiting = self.entries.iter().enumerate().filter_map(|(index, entry)| match entry {
            Some(Entry::Incoming(incoming)) => Some((incoming.until, index, incoming.peer)),
            _ => None,
        });
        let waiting: Vec<_> = waiting.collect();
        who_gives_way(&waiting, peer)
    }

    /// Counts a connection that came to nothing; a peer with too many of them is not answered for a while.
    pub(super) fn came_to_nothing(&mut self, peer: Peer, why: &'static str) {
        self.count(why);
        if matches!(peer, Peer::Host(_) | Peer::Process { .. }) && self.barred.came_to_nothing(peer, Instant::now()) {
            let why = format_args!("of {peer} more than 32 per second came to nothing");
            self.count_because("times that connections of a host or process were not answered for half a second", &why);
            self.bar();
        }
    }

    /// How many wait at a listener are taken in before others have their turn. While a process is barred, few at a time: closing
    /// what it opens as fast as it does takes a fifth of a processor, and with 4 per millisecond of each of three nodes p99 of a channel was
    /// 1.9 times that alone.
    pub(super) fn accepted_at_once(&mut self, index: usize) -> usize {
        let paced = self.barred.has_process() && matches!(self.entries.get(index), Some(Some(Entry::Unix(_))));
        if !paced {
            return ACCEPTED_AT_ONCE;
        }
        if let Some(Some(listener)) = self.entries.get(index)
            && self.poller.remove(listener.descriptor()).is_ok()
        {
            self.paced = Some((index, Instant::now() + PACE));
        }
        ACCEPTED_PACED
    }

    /// Looks at the listener again whose turn has come.
    pub(super) fn accept_again(&mut self, now: Instant) {
        let Some((index, _)) = self.paced.take_if(|(_, at)| *at <= now) else { return };
        if let Some(Some(listener @ Entry::Unix(_))) = self.entries.get(index) {
            let _ = self.poller.add(listener.descriptor(), index as u64, Readiness::IN); // a new one is there already
        }
    }

    /// Has the listeners answer all hosts but those that are barred.
    pub(super) fn bar(&self) {
        let hosts = self.barred.hosts();
        let listeners = self.entries.iter().flatten().filter_map(|entry| match entry {
            Entry::Tcp(listener) => Some(listener),
            _ => None,
        });
        listeners.for_each(|listener| drop(linux::filter::not_from(listener, &hosts))); // else all are answered, as before
    }

    /// How many streams of this peer ask for signs of life.
    pub(super) fn askers_of(&self, peer: Peer) -> usize {
        self.entries.iter().flatten().filter(|entry| matches!(entry, Entry::Asked(_, _, of) if *of == peer)).count()
    }
}

/// Of streams with their deadlines and peers, by the newcomer's kind of listener: the oldest of a peer that has its share; in a
/// full pool, that of the peer that has most. This node's own user has no share, but each of its processes is a peer: one that
/// connects in a loop keeps no other out.
fn who_gives_way<D: Ord + Copy>(waiting: &[(D, usize, Peer)], newcomer: Peer) -> Option<usize> {
    let pool = waiting.iter().copied().filter(|(_, _, of)| of.is_of_unix() == newcomer.is_of_unix());
    let pool: Vec<_> = pool.collect();
    let shared = || pool.iter().filter(|(_, _, of)| of.shares_with(newcomer));
    let this_user = rustix::process::geteuid().as_raw();
    if newcomer.user() != Some(this_user) && shared().count() >= MOST_INCOMING_OF_PEER {
        return shared().min().map(|(_, index, _)| *index);
    }
    if pool.len() < MOST_INCOMING { None } else { oldest_of_most(&pool) }
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
        Peer::Host([10, 0, 0, last].into())
    }

    #[test]
    fn who_has_its_share_gives_way_itself_and_a_full_pool_takes_from_who_has_most() {
        let flood: Vec<_> = (0..MOST_INCOMING_OF_PEER).map(|n| (100 - n, n, address(1))).collect();
        assert_eq!(who_gives_way(&flood, address(1)), Some(MOST_INCOMING_OF_PEER - 1), "the oldest");
        assert_eq!(who_gives_way(&flood, address(2)), None, "another one has room");
        let full: Vec<_> = (0..MOST_INCOMING).map(|n| (n, n, address(if n < 5 { 9 } else { n as u8 }))).collect();
        assert_eq!(who_gives_way(&full, address(2)), Some(0));
    }

    #[test]
    fn each_kind_of_listener_has_a_pool_of_its_own() {
        let process = |process| Peer::Process { user: u32::MAX - 1, process };
        let addresses: Vec<_> = (0..MOST_INCOMING).map(|n| (n, n, address(n as u8))).collect();
        let processes = (0..MOST_INCOMING_OF_PEER).map(|n| (n, MOST_INCOMING + n, process(n as u32)));
        assert_eq!(who_gives_way(&addresses, process(1)), None, "by the unix socket there is room");
        assert_eq!(who_gives_way(&processes.clone().collect::<Vec<_>>(), address(1)), None, "and over TCP");
        let both: Vec<_> = addresses.into_iter().chain(processes).collect();
        assert!(who_gives_way(&both, address(1)).is_some_and(|index| index < MOST_INCOMING));
        assert_eq!(who_gives_way(&both, process(99)), Some(MOST_INCOMING));
    }

    #[test]
    fn of_one_user_each_process_is_a_peer_and_another_users_share_one() {
        let of = |user, process| Peer::Process { user, process };
        let this_user = rustix::process::geteuid().as_raw();
        let pool = |user, floods: usize| -> Vec<_> {
            (0..floods).map(|n| (n + 1, n, of(user, 7))).chain([(0, floods, of(user, 8))]).collect()
        };
        let full = pool(this_user, MOST_INCOMING - 1);
        assert_eq!(who_gives_way(&full, of(this_user, 9)), Some(0), "the oldest of who floods, not the oldest of all");
        let some = pool(this_user, MOST_INCOMING_OF_PEER);
        assert_eq!(who_gives_way(&some, of(this_user, 7)), None, "one's own has no share");
        let others = pool(this_user.wrapping_add(1), MOST_INCOMING_OF_PEER - 1);
        assert_eq!(who_gives_way(&others, of(this_user.wrapping_add(1), 9)), Some(MOST_INCOMING_OF_PEER - 1));
    }
}
