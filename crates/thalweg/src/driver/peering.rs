//! The nodes of this host to which a node has links: those that share something with it ([`Shares`]), as the names of files in the run
//! directory show. A node that is asked for the list of nodes has links to all of them from then on.
//!
//! [`Peering`] is pure: time is an argument. [`Control`] writes this node's shares to the run directory, and looks there for nodes that
//! share something with it.

use super::calls::Asker;
use super::control::Control;
use super::entries::Entry;
use super::permit::Caller;
use crate::control::local::LocalEndpoint;
use crate::control::local::shares::{Shares, of_name};
use crate::control::matching::check_name;
use crate::control::{Document, NodeId, Origin};
use linux::poll::Readiness;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

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
    fn see_all(&mut self) -> bool {
        !std::mem::replace(&mut self.sees_all, true)
    }

    /// The nodes of `found` that are looked at now. Those that were looked at within the last second are left out.
    fn look_at_next(&mut self, mut found: Vec<NodeId>, now: Instant) -> Vec<NodeId> {
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
    fn park(&mut self, names: Vec<String>, call: C, now: Instant) {
        self.parked.push(Parked { until: now + PARKED, names, call });
    }

    /// The calls whose ports are known now, or whose time is over.
    pub(super) fn unpark(&mut self, now: Instant, known: impl Fn(&str) -> bool) -> Vec<C> {
        let over = |parked: &mut Parked<C>| parked.until <= now || parked.names.iter().all(|name| known(name));
        self.parked.extract_if(.., over).map(|parked| parked.call).collect()
    }

    /// `true` if this node's socket is to be looked for now.
    fn is_socket_due(&mut self, now: Instant) -> bool {
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

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// The present shares of this node.
    fn shares_now(&self) -> Shares {
        let document = self.state.document();
        let connected = self.matching.connected_names();
        self.peering.shares(&document, self.lasting.names().chain(connected))
    }

    /// Publishes this node's shares if its ports have changed, or those that it waits for, or if the last attempt failed. Makes links to
    /// nodes that share something new. `true`: some nodes are looked at now.
    pub(super) fn refresh_shares(&mut self) -> bool {
        let shares = self.shares_now();
        let untold = |endpoint: &&mut LocalEndpoint| endpoint.told() != Some(&shares);
        let Some(endpoint) = self.discoveries.endpoint.as_mut().filter(untold) else { return false };
        // If no shares were published before, no node has seen this one: all shares are new.
        let new = endpoint.told().map_or_else(|| shares.clone(), |told| shares.beyond(told));
        if let Err(error) = endpoint.tell(&shares) {
            self.count_because("the run directory does not take what this node shares with others", &error);
        }
        self.peering.tells(shares);
        new != Shares::default() && self.look_for(&new)
    }

    /// Makes links to nodes of this host that share this and have no link yet. `false`: there are no such nodes.
    fn look_for(&mut self, shares: &Shares) -> bool {
        let Some(endpoint) = &self.discoveries.endpoint else { return false };
        let mut found = endpoint.sharing(shares);
        {
            let directory = self.state.directory();
            found.retain(|node| !matches!(directory.origin(*node), Some(Origin::Host { .. })));
        }
        let found = self.peering.look_at_next(found, Instant::now());
        let source = endpoint.sockets_of(&found);
        if !found.is_empty() {
            self.discoveries.look(&source);
        }
        !found.is_empty()
    }

    /// Looks for nodes that share this; if this is all, for all nodes from now on. `true`: some nodes are looked at now.
    pub(super) fn meet(&mut self, shares: Shares) -> bool {
        if shares == Shares::All && self.peering.see_all() {
            return self.refresh_shares();
        }
        *self.peering.told() != Shares::All && self.look_for(&shares)
    }

    /// Carries out a call, after this node has met the nodes whose ports the call names.
    pub(super) fn heard_call(&mut self, request: Vec<u8>, caller: Caller, asker: Asker) {
        let names = self.unknown_names(&request);
        let marks = Shares::Marks(names.iter().map(|name| of_name(name)).collect());
        if !names.is_empty() && self.peering.has_room() && self.meet(marks) {
            return self.peering.park(names, Call { request, caller, asker }, Instant::now());
        }
        self.asked(&request, caller, asker);
        self.refresh_shares(); // the call may have made this node wait for ports
    }

    /// Carries out the calls whose ports are known now, or whose time is over.
    pub(super) fn unpark(&mut self, now: Instant) {
        let state = self.state.clone();
        let known = |name: &str| state.directory().port_named(name).is_some();
        for Call { request, caller, asker } in self.peering.unpark(now, known) {
            self.asked(&request, caller, asker);
            self.refresh_shares();
        }
    }

    /// The ports that a request names and that this node does not know.
    fn unknown_names(&self, request: &[u8]) -> Vec<String> {
        if *self.peering.told() == Shares::All || request.len() > LONGEST {
            return Vec::new();
        }
        let Ok(serde_json::Value::Object(request)) = serde_json::from_slice(request) else { return Vec::new() };
        let texts = request.values().filter_map(|value| value.as_str()).flat_map(str::split_whitespace);
        let names = texts.map(|word| word.trim_matches('"')).filter(|word| check_name(word).is_ok());
        names.filter(|name| self.known(name).is_none()).map(str::to_owned).collect()
    }

    /// Restores this node's socket in a run directory that was emptied or created again: newcomers find this node, and it finds them.
    pub(super) fn look_after_socket(&mut self, now: Instant) {
        if !self.peering.is_socket_due(now) {
            return;
        }
        self.discoveries.endpoint.iter_mut().for_each(LocalEndpoint::look_at_told);
        self.refresh_shares(); // if they could not be published, or were removed
        let Some(endpoint) = self.discoveries.endpoint.as_mut().filter(|endpoint| !endpoint.is_there()) else { return };
        match endpoint.renew().and_then(|listener| listener.set_nonblocking(true).map(|()| listener)) {
            Ok(listener) => {
                let others = endpoint.sockets_of(&endpoint.sharing(self.peering.told()));
                let old = self.descriptors.position(|entry| matches!(entry, Entry::Unix(_)));
                old.and_then(|index| self.unwatch(index));
                self.watch(Entry::Unix(listener), Readiness::IN);
                self.discoveries.look(&others);
                self.warn("this node's socket in the run directory was gone, and is there again".to_owned());
            }
            Err(error) => self.count_because("this node's socket in the run directory is gone", &error),
        }
    }
}

/// Longest wait of a call that names an unknown port, for the node that may have it.
const PARKED: Duration = Duration::from_millis(300);
/// Most calls that wait for a node.
const MOST_PARKED: usize = 64;
/// Pause before a node that was looked at is looked at again: it may be stopped.
const LOOKED: Duration = Duration::from_secs(1);
/// Pause between two looks for this node's socket in the run directory: one system call.
const SOCKET_LOOK: Duration = Duration::from_secs(2);
/// Longest request that is searched for unknown ports: requests that name ports are small.
const LONGEST: usize = 4096;

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
