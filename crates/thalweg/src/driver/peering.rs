//! The nodes of this host to which a node has links: those that share something with it ([`Shares`]), as the names of files in the run
//! directory show. A node that is asked for the list of nodes has links to all of them from then on.
//!
//! Pure: time is an argument. [`Control`](super::control::Control) reads and writes the run directory (`meet.rs`).

use super::calls::Asker;
use super::permit::Caller;
use crate::control::local::shares::Shares;
use crate::control::{Document, NodeId};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest wait of a call that names an unknown port, for the node that may have it.
const PARKED: Duration = Duration::from_millis(300);
/// Most calls that wait for a node.
const MOST_PARKED: usize = 64;
/// Pause before a node that was looked at is looked at again: it may be stopped.
const LOOKED: Duration = Duration::from_secs(1);
/// Pause between two looks for this node's socket in the run directory: one system call.
const SOCKET_LOOK: Duration = Duration::from_secs(2);

/// A request of another node, or of this one.
pub(super) struct Call {
    pub request: Vec<u8>,
    pub caller: Caller,
    pub asker: Asker,
}

/// A call that waits for nodes with these ports.
struct Parked<C> {
    until: Instant,
    names: Vec<String>,
    call: C,
}

/// The state of a node's links to other nodes of its host.
pub(super) struct Peering<C = Call> {
    /// `true` if this node is to see all nodes of this host.
    sees_all: bool,
    /// The published shares.
    told: Shares,
    /// Nodes that were looked at, with the time.
    looked_at: BTreeMap<NodeId, Instant>,
    parked: Vec<Parked<C>>,
    /// The time of the last look for the socket.
    socket: Instant,
}

impl<C> Peering<C> {
    pub(super) fn new(sees_all: bool, now: Instant) -> Self {
        let told = if sees_all { Shares::All } else { Shares::default() };
        Self { sees_all, told, looked_at: BTreeMap::new(), parked: Vec::new(), socket: now }
    }

    /// The published shares.
    pub(super) fn told(&self) -> &Shares {
        &self.told
    }

    /// These shares were published.
    pub(super) fn tells(&mut self, shares: Shares) {
        self.told = shares;
    }

    /// The shares of a node with this document that waits for ports of these names.
    pub(super) fn shares<'a>(&self, document: &Document, names: impl Iterator<Item = &'a str>) -> Shares {
        if self.sees_all { Shares::All } else { Shares::of(document, names) }
    }

    /// Has this node see all nodes from now on. `false`: it did so before.
    pub(super) fn see_all(&mut self) -> bool {
        !std::mem::replace(&mut self.sees_all, true)
    }

    /// The nodes of `found` that are looked at now. Those that were looked at within the last second are left out.
    pub(super) fn look_at_next(&mut self, mut found: Vec<NodeId>, now: Instant) -> Vec<NodeId> {
        self.looked_at.retain(|_, at| now.saturating_duration_since(*at) < LOOKED);
        found.retain(|node| !self.looked_at.contains_key(node));
        self.looked_at.extend(found.iter().map(|node| (*node, now)));
        found
    }

    /// `true` if another call may wait.
    pub(super) fn has_room(&self) -> bool {
        self.parked.len() < MOST_PARKED
    }

    /// Keeps a call that waits for nodes with ports of these names.
    pub(super) fn park(&mut self, names: Vec<String>, call: C, now: Instant) {
        self.parked.push(Parked { until: now + PARKED, names, call });
    }

    /// The calls whose ports are known now, or whose time is over.
    pub(super) fn unpark(&mut self, now: Instant, known: impl Fn(&str) -> bool) -> Vec<C> {
        let over = |parked: &mut Parked<C>| parked.until <= now || parked.names.iter().all(|name| known(name));
        self.parked.extract_if(.., over).map(|parked| parked.call).collect()
    }

    /// `true` if this node's socket is to be looked for now.
    pub(super) fn is_socket_due(&mut self, now: Instant) -> bool {
        let due = now >= self.socket + SOCKET_LOOK;
        if due {
            self.socket = now;
        }
        due
    }

    /// The next time at which the time of a call is over, or the socket is looked for.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.parked.iter().map(|parked| parked.until).chain([self.socket + SOCKET_LOOK]).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::discovery::document;

    #[test]
    fn a_call_waits_for_all_its_ports_or_until_its_time_is_over() {
        let start = Instant::now();
        let mut peering = Peering::<u32>::new(false, start);
        peering.park(vec!["/a".into(), "/b".into()], 1, start);
        peering.park(vec!["/b".into()], 2, start + PARKED / 2);
        assert_eq!(peering.next_deadline(), Some(start + PARKED));
        assert!(peering.unpark(start, |name| name == "/a").is_empty());
        assert_eq!(peering.unpark(start, |name| name == "/b"), [2]);
        assert_eq!(peering.unpark(start + PARKED, |_| false), [1]);
        assert_eq!(peering.next_deadline(), Some(start + SOCKET_LOOK));
    }

    #[test]
    fn calls_that_wait_are_bounded() {
        let start = Instant::now();
        let mut peering = Peering::<usize>::new(false, start);
        let waiting = (0..1000).take_while(|call| {
            let room = peering.has_room();
            room.then(|| peering.park(Vec::new(), *call, start)).is_some()
        });
        assert_eq!(waiting.count(), MOST_PARKED);
    }

    #[test]
    fn a_node_is_looked_at_once_a_second() {
        let start = Instant::now();
        let mut peering = Peering::<()>::new(false, start);
        let nodes = |ids: &[u64]| ids.iter().map(|id| NodeId(*id)).collect::<Vec<_>>();
        assert_eq!(peering.look_at_next(nodes(&[1, 2]), start), nodes(&[1, 2]));
        assert_eq!(peering.look_at_next(nodes(&[2, 3]), start + LOOKED / 2), nodes(&[3]));
        assert_eq!(peering.look_at_next(nodes(&[1, 3]), start + LOOKED), nodes(&[1]));
    }

    #[test]
    fn a_node_that_is_to_see_all_shares_all_from_then_on() {
        let start = Instant::now();
        let mut peering = Peering::<()>::new(false, start);
        let of = |peering: &Peering<()>| peering.shares(&document(1), ["/a"].into_iter());
        assert_ne!(of(&peering), Shares::All);
        assert!(peering.see_all() && !peering.see_all());
        assert_eq!(of(&peering), Shares::All);
        assert_eq!(*Peering::<()>::new(true, start).told(), Shares::All);
    }

    #[test]
    fn the_socket_is_looked_for_every_two_seconds() {
        let start = Instant::now();
        let mut peering = Peering::<()>::new(false, start);
        let looks = (0..10_000).filter(|millis| peering.is_socket_due(start + Duration::from_millis(*millis)));
        assert_eq!(looks.count(), 4);
    }
}
