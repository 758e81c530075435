//! Admission of streams that others open: the share of each peer, the stream that gives way, and peers that are not answered for a while.
//!
//! A newcomer is never kept out by a full pool. The oldest stream whose request has not arrived yet gives way, and the peer that has most
//! such streams loses it. Pure: time and peers are arguments, and [`Control`](super::control::Control) carries out the [`Action`]s
//! (`incoming.rs`, `entries.rs`).

use crate::control::Peer;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// Most streams of one kind of listener whose request has not arrived yet. The kinds are counted apart, so that neither starves the other.
pub(crate) const MOST_INCOMING: usize = 256;
/// Most such streams of one peer, or of all processes together of a user who is not this node's. A peer that sends its request at once is
/// never among them for longer than one turn of the control loop.
pub(crate) const MOST_INCOMING_OF_PEER: usize = 16;

/// Work for the control thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Emit this warning.
    Warn(String),
    /// Have the kernel answer all hosts but these.
    Filter(Vec<IpAddr>),
    /// Watch the listener at this index again.
    Resume(usize),
}

/// The state of admission, with counts of what strangers did.
pub(super) struct Admission {
    /// The user of this process.
    user: u32,
    barred: Barred,
    /// The listener that is not watched, and the end of its pause.
    paused: Option<(usize, Instant)>,
    counts: BTreeMap<&'static str, u64>,
}

impl Admission {
    pub(super) fn new(user: u32) -> Self {
        Self { user, barred: Barred::default(), paused: None, counts: BTreeMap::new() }
    }

    /// Counts an act of a stranger. The first act of each kind returns a warning with the reason.
    pub(super) fn count(&mut self, what: &'static str, why: &dyn Display) -> Option<Action> {
        let count = self.counts.entry(what).or_default();
        *count += 1;
        (*count == 1).then(|| Action::Warn(format!("{what} ({why})")))
    }

    /// `true` if an act of this kind was counted before.
    pub(super) fn has_counted(&self, what: &str) -> bool {
        self.counts.contains_key(what)
    }

    /// The reason for which a stream of this peer is closed at once; `None`: it is accepted. `in_reserve`: its descriptor is one of the
    /// last that the process may have.
    pub(super) fn refuse(&self, peer: Peer, in_reserve: bool) -> Option<&'static str> {
        if self.barred.has(peer) {
            return Some(NOT_ANSWERED);
        }
        (in_reserve && !peer.is_of_unix()).then_some(IN_RESERVE)
    }

    /// A connection of this peer failed. A peer with too many failed connections is not answered for a while.
    pub(super) fn failed(&mut self, peer: Peer, why: &'static str, now: Instant) -> Vec<Action> {
        let mut actions: Vec<Action> = self.count(why, &COUNTED).into_iter().collect();
        if matches!(peer, Peer::Host(_) | Peer::Process { .. }) && self.barred.came_to_nothing(peer, now) {
            let why = format_args!("of {peer} more than 32 per second came to nothing");
            actions.extend(self.count(BARRED, &why));
            actions.push(Action::Filter(self.barred.hosts()));
        }
        actions
    }

    /// The hosts that are not answered.
    #[cfg(test)]
    fn hosts(&self) -> Vec<IpAddr> {
        self.barred.hosts()
    }

    /// `true` if a listener of this kind is to be paused after each few connections. That is so for the unix socket while a process is
    /// barred.
    pub(super) fn paces(&self, unix: bool) -> bool {
        unix && self.barred.has_process()
    }

    /// The listener at this index is not watched until [`Action::Resume`].
    pub(super) fn pause(&mut self, listener: usize, now: Instant) {
        self.paused = Some((listener, now + PACE));
    }

    /// The next time at which [`Self::poll`] has work.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.barred.next().into_iter().chain(self.paused.map(|(_, at)| at)).min()
    }

    /// Answers the peers, and resumes the listener, whose time is over.
    pub(super) fn poll(&mut self, now: Instant) -> Vec<Action> {
        let released = self.barred.release(now).then(|| Action::Filter(self.barred.hosts()));
        let due = self.paused.take_if(|(_, at)| *at <= now);
        released.into_iter().chain(due.map(|(listener, _)| Action::Resume(listener))).collect()
    }

    /// The stream that gives way to a newcomer of this peer; `None`: there is room. `waiting` lists the streams whose request has not
    /// arrived yet, with their deadlines and peers. Only streams of the newcomer's kind of listener count. If the newcomer's peer has its
    /// full share, its own oldest stream gives way. If the pool is full, the oldest stream of the peer with most streams gives way. This
    /// node's own user has no share, but each of its processes is a peer of its own: one that connects in a loop keeps no other out.
    pub(super) fn who_gives_way<D: Ord + Copy>(&self, waiting: &[(D, usize, Peer)], newcomer: Peer) -> Option<usize> {
        let pool = waiting.iter().copied().filter(|(_, _, of)| of.is_of_unix() == newcomer.is_of_unix());
        let pool: Vec<_> = pool.collect();
        let shared = || pool.iter().filter(|(_, _, of)| of.shares_with(newcomer));
        if newcomer.user() != Some(self.user) && shared().count() >= MOST_INCOMING_OF_PEER {
            return shared().min().map(|(_, index, _)| *index);
        }
        if pool.len() < MOST_INCOMING { None } else { oldest_of_most(&pool) }
    }
}

/// Most connections that are accepted from a listener before the other entries have their turn.
pub(super) fn accepted_at_once(paced: bool) -> usize {
    if paced { ACCEPTED_PACED } else { ACCEPTED_AT_ONCE }
}

/// `true` if this descriptor is one of the last that the process may have. The kernel always gives the lowest free number.
pub(crate) fn is_in_reserve(descriptor: impl AsFd) -> bool {
    use rustix::process::{Resource, getrlimit};
    let most = getrlimit(Resource::Nofile).current;
    let number = u64::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(0);
    most.is_some_and(|most| number.saturating_add(RESERVE) >= most)
}

/// The oldest stream of the peer that has most streams.
pub(super) fn oldest_of_most<D: Ord + Copy>(pool: &[(D, usize, Peer)]) -> Option<usize> {
    let of = |peer: Peer| pool.iter().filter(move |(_, _, of)| *of == peer);
    let most = pool.iter().map(|(_, _, peer)| *peer).max_by_key(|peer| of(*peer).count())?;
    of(most).min().map(|(_, index, _)| *index)
}

/// Hosts, and processes of this host, whose connections fail again and again. The kernel does not answer such a host for a while
/// (`linux::filter`); connections of such a process are closed as they are accepted, a few per millisecond. One host that sent malformed
/// streams as fast as it could took half of a processor from three nodes.
#[derive(Default)]
struct Barred(HashMap<Peer, Counted>);

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
    fn came_to_nothing(&mut self, peer: Peer, now: Instant) -> bool {
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
    fn release(&mut self, now: Instant) -> bool {
        let due = |counted: &&mut Counted| counted.until.is_some_and(|until| until <= now);
        let released = self.0.values_mut().filter(due).map(|counted| counted.until = None).count();
        released > 0
    }

    /// The next time at which a barred peer is answered again.
    fn next(&self) -> Option<Instant> {
        self.0.values().filter_map(|counted| counted.until).min()
    }

    /// The addresses of barred hosts; for IPv6, those of networks.
    fn hosts(&self) -> Vec<IpAddr> {
        let host = |peer: &Peer| if let Peer::Host(host) = peer { Some(*host) } else { None };
        self.peers().filter_map(host).collect()
    }

    /// `true` if this peer is barred.
    fn has(&self, peer: Peer) -> bool {
        self.0.get(&peer).is_some_and(|counted| counted.until.is_some())
    }

    /// `true` if a process of this host is barred.
    fn has_process(&self) -> bool {
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

/// Descriptors that streams over TCP leave to nodes of this host, which connect by the unix socket, and to this node itself.
const RESERVE: u64 = 32;
/// Most connections that are accepted from a listener before the other entries have their turn.
const ACCEPTED_AT_ONCE: usize = 16;
/// Most connections that are accepted from the unix socket per [`PACE`] while a process is barred. Closing that process's connections as
/// fast as it opens them takes a fifth of a processor. With 4 per millisecond at each of three nodes, p99 of a channel was 1.9 times its
/// p99 without them.
const ACCEPTED_PACED: usize = 2;
const PACE: Duration = Duration::from_millis(2);
const NOT_ANSWERED: &str = "connections of hosts or processes that are not answered for half a second";
const IN_RESERVE: &str =
    "connections beyond what leaves 32 descriptors to nodes of this host: raise the limit of open files (ulimit -n)";
const BARRED: &str = "times that connections of a host or process were not answered for half a second";
/// The reason given for counts that have no other reason.
pub(super) const COUNTED: &str = "counted from now on";
/// Failed connections that one peer may have at once …
const BURST: f64 = 32.0;
/// … and per second. A barred peer is answered again when half of its burst is available: after half a second. Each failed connection takes
/// about 0.1 ms of the processor. At 100 per second, three nodes were busy with them in one millisecond of 30, which shows in p99.
const RATE: f64 = 32.0;
/// Most peers that are counted. The peer with the most connections left is forgotten first.
const MOST_COUNTED: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const USER: u32 = 1000;

    fn who_gives_way(waiting: &[(usize, usize, Peer)], newcomer: Peer) -> Option<usize> {
        Admission::new(USER).who_gives_way(waiting, newcomer)
    }

    fn address(last: u8) -> Peer {
        Peer::Host([10, 0, 0, last].into())
    }

    #[test]
    fn a_peer_with_its_share_gives_way_itself_and_a_full_pool_takes_from_the_largest_peer() {
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
    fn each_own_process_is_a_peer_and_processes_of_another_user_share_one_limit() {
        let of = |user, process| Peer::Process { user, process };
        let pool = |user, floods: usize| -> Vec<_> {
            (0..floods).map(|n| (n + 1, n, of(user, 7))).chain([(0, floods, of(user, 8))]).collect()
        };
        let full = pool(USER, MOST_INCOMING - 1);
        assert_eq!(who_gives_way(&full, of(USER, 9)), Some(0), "the oldest of who floods, not the oldest of all");
        let some = pool(USER, MOST_INCOMING_OF_PEER);
        assert_eq!(who_gives_way(&some, of(USER, 7)), None, "one's own has no share");
        let others = pool(USER + 1, MOST_INCOMING_OF_PEER - 1);
        assert_eq!(who_gives_way(&others, of(USER + 1, 9)), Some(MOST_INCOMING_OF_PEER - 1));
    }

    /// Has connections of this peer fail until the peer is barred; returns all actions.
    fn flood(admission: &mut Admission, peer: Peer, now: Instant) -> Vec<Action> {
        (0..32).flat_map(|_| admission.failed(peer, "streams without a word", now)).collect()
    }

    #[test]
    fn a_host_that_fails_too_often_is_filtered_until_its_time_is_over_and_warned_of_once() {
        let (mut admission, start) = (Admission::new(USER), Instant::now());
        let [bad, good] = [address(1), address(2)];
        let actions = flood(&mut admission, bad, start);
        let [Action::Warn(first), Action::Warn(second), Action::Filter(hosts)] = &actions[..] else {
            panic!("{actions:?}")
        };
        assert_eq!(first, "streams without a word (counted from now on)");
        assert!(second.starts_with(BARRED) && second.contains("10.0.0.1"), "{second}");
        assert_eq!(*hosts, [IpAddr::from([10, 0, 0, 1])]);
        assert_eq!((admission.refuse(bad, false), admission.refuse(good, false)), (Some(NOT_ANSWERED), None));
        let until = admission.next_deadline().unwrap();
        assert_eq!(admission.poll(until - Duration::from_nanos(1)), []);
        assert_eq!(admission.poll(until), [Action::Filter(Vec::new())]);
        assert_eq!((admission.refuse(bad, false), admission.next_deadline()), (None, None));
        let again = flood(&mut admission, bad, until);
        assert!(!again.is_empty() && again.iter().all(|action| matches!(action, Action::Filter(_))), "{again:?}");
    }

    #[test]
    fn a_listener_is_paced_while_a_process_is_barred_and_resumes() {
        let (mut admission, start) = (Admission::new(USER), Instant::now());
        flood(&mut admission, address(1), start);
        assert!(!admission.paces(true), "hosts do not come by the unix socket");
        flood(&mut admission, Peer::Process { user: USER, process: 7 }, start);
        assert!(admission.paces(true) && !admission.paces(false));
        assert_eq!((accepted_at_once(true), accepted_at_once(false)), (ACCEPTED_PACED, ACCEPTED_AT_ONCE));
        admission.pause(3, start);
        assert_eq!(admission.next_deadline(), Some(start + PACE));
        assert_eq!(admission.poll(start), []);
        assert_eq!(admission.poll(start + PACE), [Action::Resume(3)]);
        assert_eq!(admission.poll(start + PACE), []);
        let released = admission.next_deadline().unwrap();
        assert!(released > start + PACE);
        admission.poll(released);
        assert!(!admission.paces(true) && admission.hosts().is_empty());
    }

    #[test]
    fn the_last_descriptors_are_for_nodes_of_this_host() {
        let admission = Admission::new(USER);
        assert_eq!(admission.refuse(address(1), true), Some(IN_RESERVE));
        assert_eq!(admission.refuse(Peer::Process { user: USER, process: 7 }, true), None);
    }

    fn ip(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }
    fn host(number: u32) -> Peer {
        Peer::Host(ip(number))
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
        assert_eq!((flood, barred.hosts()), (1, vec![ip(2)]));
        assert_eq!(barred.next(), Some(start + Duration::from_millis(500)));
        let later = start + Duration::from_millis(100);
        let fails = |barred: &mut Barred, number, times, now| {
            (0..times).filter(|_| barred.came_to_nothing(host(number), now)).count()
        };
        assert_eq!((fails(&mut barred, 3, 100, later), barred.next()), (1, Some(start + Duration::from_millis(500))));
        assert!(!barred.release(start + Duration::from_millis(499)));
        assert!(barred.release(start + Duration::from_millis(500)) && barred.hosts() == [ip(3)]);
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
        assert_eq!(barred.hosts(), [ip(0)], "who is barred is not forgotten");
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
        assert_eq!(barred.hosts(), [ip(0)]);
    }
}
