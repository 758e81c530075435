//! Room for the directory's knowledge of nodes: shares for this host's nodes, and for each address of the rest. One
//! address, or Zenoh, which gives none, takes at most half of what the others leave, like a peer's share of a node's
//! memory ([`crate::channel::memory`]). A host that invents nodes thus leaves room for nodes from elsewhere.
//!
//! News that found no room is asked for again when there is some: its node would not repeat it by itself.

use super::{WAYS, rank};
use crate::control::limits::{self, ELSEWHERE, IN_ALL, Refusal};
use crate::control::{Document, NodeId, Origin, Peer};
use std::collections::BTreeMap;

/// The room that nodes take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub nodes: usize,
    pub ports: usize,
    /// About.
    pub bytes: usize,
}

impl Held {
    /// The room that one node takes.
    pub(crate) fn by(document: &Document, bytes: usize) -> Self {
        Self { nodes: 1, ports: document.ports.len(), bytes }
    }

    fn with(self, other: Self, count: impl Fn(usize, usize) -> usize) -> Self {
        Self {
            nodes: count(self.nodes, other.nodes),
            ports: count(self.ports, other.ports),
            bytes: count(self.bytes, other.bytes),
        }
    }
    fn plus(self, other: Self) -> Self {
        self.with(other, usize::saturating_add)
    }
    fn minus(self, other: Self) -> Self {
        self.with(other, usize::saturating_sub)
    }
    fn half(self) -> Self {
        self.with(self, |count, _| count / 2)
    }
}

/// The holder of a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose {
    All,
    Elsewhere,
    Address,
}

/// Nodes that are asked again, of each source and of all.
const MOST_UNHEARD: usize = 1024;
const MOST_UNHEARD_OF_SOURCE: usize = 64;

/// The room taken, by holder.
#[derive(Default)]
pub(super) struct Room {
    pub all: Held,
    pub elsewhere: Held,
    by: BTreeMap<Peer, Held>,
    /// Nodes whose news found no room by a way of this rank, and the room that they need.
    unheard: BTreeMap<(NodeId, usize), (Origin, Held)>,
    /// Number of times that news found no room.
    pub turned_away: u64,
    /// Room was freed since the refused nodes were last checked.
    freed: bool,
}

impl Room {
    /// Records a change of the room that a node takes by this way.
    pub(super) fn changed(&mut self, before: Option<(Origin, Held)>, after: Option<(Origin, Held)>) {
        self.freed |= frees(before, after);
        if let Some((origin, held)) = before {
            self.give_back(origin, held);
        }
        if let Some((origin, held)) = after {
            self.take(origin, held);
        }
    }

    fn take(&mut self, origin: Origin, held: Held) {
        self.all = self.all.plus(held);
        if let Some(source) = Peer::beyond(origin) {
            self.elsewhere = self.elsewhere.plus(held);
            let of = self.by.entry(source).or_default();
            *of = of.plus(held);
        }
    }

    fn give_back(&mut self, origin: Origin, held: Held) {
        self.all = self.all.minus(held);
        if let Some(source) = Peer::beyond(origin) {
            self.elsewhere = self.elsewhere.minus(held);
            let left = self.by.get(&source).map_or(Held::default(), |of| of.minus(held));
            if left == Held::default() {
                self.by.remove(&source);
            } else {
                self.by.insert(source, left);
            }
        }
    }

    /// Checks that there is room for a node's statement by this way; `before`: the room it has by now, and by which way. This
    /// node always has room for itself.
    ///
    /// # Errors
    /// The limit.
    pub(super) fn check(&self, origin: Origin, before: Option<(Origin, Held)>, wanted: Held) -> Result<(), Refusal> {
        if origin == Origin::Own {
            return Ok(());
        }
        let had = before.map_or(Held::default(), |(_, held)| held);
        limits::check_room(Whose::All, IN_ALL, self.all.minus(had).plus(wanted))?;
        let Some(source) = Peer::beyond(origin) else { return Ok(()) };
        let from = before.and_then(|(origin, _)| Peer::beyond(origin));
        let had_there = if from.is_some() { had } else { Held::default() };
        let elsewhere = self.elsewhere.minus(had_there);
        limits::check_room(Whose::Elsewhere, ELSEWHERE, elsewhere.plus(wanted))?;
        let had_by_it = if from == Some(source) { had } else { Held::default() };
        let its = self.by.get(&source).map_or(Held::default(), |of| of.minus(had_by_it));
        let most = ELSEWHERE.minus(elsewhere.minus(its)).half();
        // A holder above its share, because others came, keeps its room and may change its document.
        limits::check_room(Whose::Address, most.with(had_by_it.plus(its), usize::max), its.plus(wanted))
    }

    /// There was no room for this: the node is asked for it later.
    pub(super) fn turn_away(&mut self, node: NodeId, origin: Origin, wanted: Held) {
        self.turned_away += 1;
        let key = (node, rank(origin));
        let of_source = self.unheard.values().filter(|(other, _)| Peer::beyond(*other) == Peer::beyond(origin)).count();
        let known = self.unheard.contains_key(&key);
        if known || (self.unheard.len() < MOST_UNHEARD && of_source < MOST_UNHEARD_OF_SOURCE) {
            self.unheard.insert(key, (origin, wanted));
        }
    }

    /// Records accepted news by this way: its statement by a worse one no longer counts.
    pub(super) fn heard(&mut self, node: NodeId, origin: Origin) {
        for way in rank(origin)..WAYS {
            self.unheard.remove(&(node, way));
        }
    }

    /// Records the end of a node, reported by this way.
    pub(super) fn forget(&mut self, node: NodeId, origin: Origin) {
        self.unheard.remove(&(node, rank(origin)));
    }

    /// Refused nodes for which there is room now; each is returned once. `known`: a node's present room.
    pub(super) fn fitting(&mut self, known: impl Fn(NodeId) -> Option<(Origin, Held)>) -> Vec<NodeId> {
        if !std::mem::take(&mut self.freed) || self.unheard.is_empty() {
            return Vec::new();
        }
        let fits = |(node, _): &(NodeId, usize), (origin, wanted): &(Origin, Held)| {
            self.check(*origin, known(*node), *wanted).is_ok()
        };
        let keys: Vec<_> = self.unheard.iter().filter(|(key, held)| fits(key, held)).map(|(key, _)| *key).collect();
        for key in &keys {
            self.unheard.remove(key);
        }
        let mut fitting: Vec<NodeId> = keys.into_iter().map(|(node, _)| node).collect();
        fitting.dedup(); // in order, by the map's
        fitting
    }
}

/// `true` if any source has more room afterwards.
fn frees(before: Option<(Origin, Held)>, after: Option<(Origin, Held)>) -> bool {
    let Some((from, had)) = before else { return false };
    let Some((to, has)) = after else { return true };
    let (from, to) = (Peer::beyond(from), Peer::beyond(to));
    had.minus(has) != Held::default() || (from.is_some() && from != to)
}
