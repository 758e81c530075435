//! Directory of all nodes, as this node knows them. Pure state: no clock, no I/O.
//!
//! A node may be seen by several ways, so each event comes with its [`Origin`]. The same news twice changes nothing,
//! and a node is gone when the last way by which it was seen reports so. The statement by the best known way counts:
//! a node cannot be replaced by another way. Statements of others are checked against [`limits`] before they are
//! kept, and their addresses against the origin of the news ([`Surroundings`]).

pub use super::origin::Surroundings;

use super::limits::{Held, Room};
use super::matching::is_pattern;
use super::{Change, Document, Event, NodeId, Origin, PortId, PortInfo, limits};
use std::collections::{BTreeMap, BTreeSet};

pub use super::limits::Refusal;

/// A port of a realm: its node and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortKey {
    /// The node.
    pub node: NodeId,
    /// The port within it.
    pub port: PortId,
}

/// Two nodes have a port of the same name. One of this host keeps it before any other; else the one that started later loses
/// (of two that started in the same nanosecond, the one with the larger id): lookups by name find the winner only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The name both have.
    pub name: String,
    /// The port that keeps the name.
    pub winner: PortKey,
    /// The port that should choose another.
    pub loser: PortKey,
}

/// The change by one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The node it is about.
    pub node: NodeId,
    /// `true` if it was not known before.
    pub appeared: bool,
    /// `true` if it is not known any more.
    pub gone: bool,
    /// New ports, and ports that changed.
    pub added: Vec<PortKey>,
    /// Removed ports, and the former states of changed ones.
    pub removed: Vec<(PortKey, PortInfo)>,
    /// Names that are now taken twice.
    pub conflicts: Vec<Conflict>,
}

/// The outcome of applying an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// No change: the event was known already, or is not about the directory.
    Nothing,
    /// The directory is different now.
    Changed(Delta),
    /// A change in between was missed: ask for the node's full document.
    RefreshNeeded(NodeId),
    /// The news goes beyond a limit; what was known before stays.
    Refused {
        /// The node whose news it was.
        node: NodeId,
        /// The limit.
        refusal: Refusal,
    },
}

struct Known {
    document: Document,
    /// Bytes that it takes, about.
    weight: usize,
    /// The ways by which it is seen, best known first: its statement by the first one counts.
    seen_by: [Option<Origin>; WAYS],
    /// The document came by a way that has ended: the next document replaces it, with any revision.
    stale: bool,
}

/// Kinds of [`Origin`].
pub(super) const WAYS: usize = 4;

impl Known {
    fn origin(&self) -> Option<Origin> {
        self.seen_by.iter().flatten().next().copied()
    }
    fn is_here(&self) -> bool {
        self.origin().is_some_and(|origin| origin.is_here())
    }
    /// The way by which it counts, and the room it takes.
    fn counted(&self) -> Option<(Origin, Held)> {
        Some((self.origin()?, Held::by(&self.document, self.weight)))
    }
}

/// Ports by their name or topic, in order. Most texts are of one port: a set of its own for each took four times as much.
type Index = BTreeMap<Box<str>, Vec<PortKey>>;

/// Known nodes and their ports.
#[derive(Default)]
pub struct Directory {
    surroundings: Option<Surroundings>,
    nodes: BTreeMap<NodeId, Known>,
    by_name: Index,
    by_topic: Index,
    by_pattern: Index,
    room: Room,
    refused: BTreeMap<&'static str, u64>,
}

impl Directory {
    /// An empty directory that accepts all addresses.
    #[cfg(any(test, feature = "testing"))]
    pub fn new() -> Self {
        Self::default()
    }

    /// The directory of a node in these surroundings.
    pub fn within(surroundings: Surroundings) -> Self {
        Self { surroundings: Some(surroundings), ..Self::default() }
    }

    /// Applies an event that came by this way.
    pub fn apply(&mut self, origin: Origin, event: Event) -> Applied {
        match event {
            Event::Document(document) => self.document(origin, *document),
            Event::Change(node, change) => self.change(origin, node, &change),
            Event::Gone(node) => self.gone(origin, node),
            Event::Call { .. }
            | Event::Answer { .. }
            | Event::Unreachable { .. }
            | Event::Warning(_)
            | Event::Rejected(_) => Applied::Nothing,
        }
    }

    fn document(&mut self, origin: Origin, mut document: Document) -> Applied {
        let node = document.node;
        let mut seen_by = [None; WAYS];
        let held = self.held_by(node);
        if let Some(known) = self.nodes.get_mut(&node) {
            let before = known.origin().map(rank);
            known.seen_by[rank(origin)] = Some(origin);
            self.room.changed(held, known.counted());
            seen_by = known.seen_by;
            let outranks = before.is_none_or(|before| rank(origin) < before);
            let counts = before.is_none_or(|before| rank(origin) <= before);
            let newer = outranks || known.stale || document.revision > known.document.revision;
            if !counts || !newer {
                return Applied::Nothing;
            }
        }
        seen_by[rank(origin)] = Some(origin);
        if let Some(surroundings) = &self.surroundings {
            surroundings.believe(origin, &mut document);
        }
        let weight = document.weight();
        let wanted = Held::by(&document, weight);
        let verdict = limits::check_document(&document).and_then(|()| limits::check_weight(weight));
        if let Err(refusal) = verdict {
            return self.refuse(node, refusal);
        }
        if let Err(refusal) = self.room.check(origin, self.held_by(node), wanted) {
            self.room.turn_away(node, origin, wanted);
            return self.refuse(node, refusal);
        }
        self.room.heard(node, origin);
        let held = self.held_by(node);
        let old = self.nodes.remove(&node);
        let delta = self.replace(old.map(|known| known.document), &document);
        self.insert(held, Known { document, weight, seen_by, stale: false });
        Applied::Changed(self.with_conflicts(delta))
    }

    /// The memory held for a node, and the way by which it is known.
    fn held_by(&self, node: NodeId) -> Option<(Origin, Held)> {
        self.nodes.get(&node)?.counted()
    }

    /// Nodes whose news was refused because there was no room, where there is some now: to be asked for their documents.
    pub fn due_for_refresh(&mut self) -> Vec<NodeId> {
        let nodes = &self.nodes;
        self.room.fitting(|node| nodes.get(&node)?.counted())
    }

    /// Replaces the knowledge of the node, which took `before`.
    fn insert(&mut self, before: Option<(Origin, Held)>, known: Known) {
        self.room.changed(before, known.counted());
        self.nodes.insert(known.document.node, known);
    }

    /// Moves the indexes from the old document (if any) to the new one; the caller keeps the document itself.
    fn replace(&mut self, old: Option<Document>, new: &Document) -> Delta {
        let mut delta = Delta { appeared: old.is_none(), ..empty_delta(new.node) };
        let mut old_ports = old.map(|d| d.ports).unwrap_or_default();
        for (id, port) in new.ports.iter() {
            if old_ports.get(id) == Some(port) {
                old_ports.remove(id);
            } else {
                delta.added.push(PortKey { node: new.node, port: *id });
            }
        }
        for (id, port) in old_ports {
            self.unlist(PortKey { node: new.node, port: id }, &port);
            delta.removed.push((PortKey { node: new.node, port: id }, port));
        }
        for key in &delta.added {
            if let Some(port) = new.ports.get(&key.port) {
                self.list(*key, port);
            }
        }
        delta
    }

    fn change(&mut self, origin: Origin, node: NodeId, change: &Change) -> Applied {
        let Some(known) = self.nodes.get(&node) else { return Applied::RefreshNeeded(node) };
        match known.origin().map(rank) {
            Some(best) if best < rank(origin) => return Applied::Nothing,
            Some(best) if best > rank(origin) || known.stale => return Applied::RefreshNeeded(node),
            _ => {}
        }
        if change.revision <= known.document.revision {
            return Applied::Nothing;
        }
        if change.base != known.document.revision {
            return Applied::RefreshNeeded(node);
        }
        let leaving = change.removed.iter().chain(change.added.keys()).copied().collect::<BTreeSet<_>>();
        let ports = &known.document.ports;
        let in_all = ports.len() + change.added.len() - leaving.iter().filter(|p| ports.contains_key(p)).count();
        let replaced: usize = leaving.iter().filter_map(|p| ports.get(p)).map(PortInfo::weight).sum();
        let weight = (known.weight + change.weight()).saturating_sub(replaced);
        let wanted = Held { nodes: 1, ports: in_all, bytes: weight };
        let verdict = limits::check_ports(&change.added, in_all)
            .and_then(|()| self.check_names(node, change, &leaving))
            .and_then(|()| limits::check_relay(change.relay.as_ref()))
            .and_then(|()| limits::check_weight(weight));
        if let Err(refusal) = verdict {
            return self.refuse(node, refusal);
        }
        let held = self.held_by(node);
        if let Err(refusal) = self.room.check(origin, held, wanted) {
            self.room.turn_away(node, origin, wanted);
            return self.refuse(node, refusal);
        }
        let Some(mut known) = self.nodes.remove(&node) else { return Applied::Nothing };
        let mut delta = empty_delta(node);
        for id in leaving {
            let key = PortKey { node, port: id };
            if let Some(port) = known.document.ports.get(&id) {
                self.unlist(key, port);
                delta.removed.push((key, port.clone()));
            }
        }
        // Of thousands of ports only those that change are weighed.
        let besides = known.document.weight_besides();
        known.document.apply(change);
        let added: usize = change.added.values().map(PortInfo::weight).sum();
        known.weight = known.weight + known.document.weight_besides() + added - besides - replaced;
        for (id, port) in change.added.iter() {
            let key = PortKey { node, port: *id };
            self.list(key, port);
            delta.added.push(key);
        }
        self.insert(held, known);
        Applied::Changed(self.with_conflicts(delta))
    }

    /// Checks that a node has each name of its new ports once, with those that stay.
    fn check_names(&self, node: NodeId, change: &Change, leaving: &BTreeSet<PortId>) -> Result<(), Refusal> {
        let stays = |port: &&PortInfo| {
            let holders = self.by_name.get(port.name.as_str()).map_or(&[][..], Vec::as_slice);
            let first = holders.partition_point(|key| key.node < node);
            let its = holders[first..].iter().take_while(|key| key.node == node);
            its.into_iter().any(|key| !leaving.contains(&key.port))
        };
        change.added.values().find(stays).map_or(Ok(()), |port| Err(limits::has_twice(&port.name)))
    }

    fn gone(&mut self, origin: Origin, node: NodeId) -> Applied {
        self.room.forget(node, origin);
        let held = self.held_by(node);
        let Some(mut known) = self.nodes.remove(&node) else { return Applied::Nothing };
        let counted = known.origin().is_some_and(|best| rank(best) == rank(origin));
        known.seen_by[rank(origin)] = None;
        if known.origin().is_some() {
            known.stale |= counted;
            let stale = known.stale;
            self.insert(held, known);
            // The present knowledge came by the way that is gone: a statement by another way is needed.
            return if counted && stale { Applied::RefreshNeeded(node) } else { Applied::Nothing };
        }
        self.room.changed(held, None);
        let mut delta = Delta { gone: true, ..empty_delta(node) };
        for (id, port) in known.document.ports {
            let key = PortKey { node, port: id };
            self.unlist(key, &port);
            delta.removed.push((key, port));
        }
        Applied::Changed(delta)
    }

    fn refuse(&mut self, node: NodeId, refusal: Refusal) -> Applied {
        *self.refused.entry(refusal.limit).or_default() += 1;
        Applied::Refused { node, refusal }
    }

    fn list(&mut self, key: PortKey, port: &PortInfo) {
        insert_into(&mut self.by_name, &port.name, key);
        insert_into(self.topics(&port.topic), &port.topic, key);
    }

    fn unlist(&mut self, key: PortKey, port: &PortInfo) {
        remove_from(&mut self.by_name, &port.name, key);
        remove_from(self.topics(&port.topic), &port.topic, key);
    }

    fn topics(&mut self, topic: &str) -> &mut Index {
        if is_pattern(topic) { &mut self.by_pattern } else { &mut self.by_topic }
    }

    /// A node has a name once, so that the holders of all these names together are at most all ports that are known.
    fn with_conflicts(&self, mut delta: Delta) -> Delta {
        for key in &delta.added {
            let Some(port) = self.port(*key) else { continue };
            let Some(holders) = self.by_name.get(port.name.as_str()) else { continue };
            let winner = self.winner(holders).unwrap_or(*key);
            let losers = holders.iter().filter(|k| **k != winner && (winner == *key || *k == key));
            delta.conflicts.extend(losers.map(|loser| Conflict { name: port.name.clone(), winner, loser: *loser }));
        }
        delta
    }

    fn winner(&self, holders: &[PortKey]) -> Option<PortKey> {
        // An incarnation is a node's own claim; its presence on this host is confirmed by the kernel.
        let standing = |key: &PortKey| self.nodes.get(&key.node).map(|k| (!k.is_here(), k.document.incarnation));
        holders.iter().copied().min_by_key(|key| (standing(key), *key))
    }
}

/// Lookups.
impl Directory {
    /// A node's document.
    pub fn node(&self, node: NodeId) -> Option<&Document> {
        self.nodes.get(&node).map(|k| &k.document)
    }
    /// All nodes, by id.
    pub fn nodes(&self) -> impl Iterator<Item = &Document> {
        self.nodes.values().map(|k| &k.document)
    }
    /// The best known way by which a node is seen.
    pub fn origin(&self, node: NodeId) -> Option<Origin> {
        self.nodes.get(&node)?.origin()
    }
    /// A port's description.
    pub fn port(&self, key: PortKey) -> Option<&PortInfo> {
        self.node(key.node)?.ports.get(&key.port)
    }
    /// The port of this name; of several, the winner ([`Conflict`]).
    pub fn port_named(&self, name: &str) -> Option<(PortKey, &PortInfo)> {
        let key = self.winner(self.by_name.get(name)?)?;
        Some((key, self.port(key)?))
    }
    /// Publishers of this topic, and subscribers to it or to a pattern that takes it.
    #[cfg(any(test, feature = "testing"))]
    pub fn ports_on(&self, topic: &str) -> Vec<(PortKey, &PortInfo)> {
        let patterns = self.by_pattern.iter().filter(|(pattern, _)| super::matching::topic_matches(pattern, topic));
        let keys = self.by_topic.get(topic).into_iter().chain(patterns.map(|(_, keys)| keys)).flatten();
        keys.filter_map(|key| Some((*key, self.port(*key)?))).collect()
    }
    /// Ports whose topic (no pattern of their own) this pattern takes.
    #[cfg(any(test, feature = "testing"))]
    pub fn ports_within(&self, pattern: &str) -> Vec<(PortKey, &PortInfo)> {
        let found: Vec<_> = match is_pattern(pattern) {
            false => self.by_topic.get(pattern).into_iter().flatten().collect(),
            true => self
                .by_topic
                .iter()
                .filter(|(t, _)| super::matching::topic_matches(pattern, t))
                .flat_map(|(_, k)| k)
                .collect(),
        };
        found.into_iter().filter_map(|key| Some((*key, self.port(*key)?))).collect()
    }
    /// The number of ports of all nodes.
    #[cfg(any(test, feature = "testing"))]
    pub fn port_count(&self) -> usize {
        self.room.all.ports
    }
    /// Bytes that all that is known takes, about.
    pub fn weight(&self) -> usize {
        self.room.all.bytes
    }
    /// The same of nodes that are not on this host.
    #[cfg(any(test, feature = "testing"))]
    pub fn weight_elsewhere(&self) -> usize {
        self.room.elsewhere.bytes
    }
    /// The number of times that news found no room.
    pub fn turned_away(&self) -> u64 {
        self.room.turned_away
    }
    /// The number of refusals of news, by the limit that was exceeded.
    #[cfg(any(test, feature = "testing"))]
    pub fn refused(&self) -> &BTreeMap<&'static str, u64> {
        &self.refused
    }
}

/// The order of trust, which does not depend on addresses.
pub(super) fn rank(origin: Origin) -> usize {
    match origin {
        Origin::Own => 0,
        Origin::Host { .. } => 1,
        Origin::Tcp { .. } => 2,
        Origin::Zenoh => 3,
    }
}

fn empty_delta(node: NodeId) -> Delta {
    Delta { node, appeared: false, gone: false, added: Vec::new(), removed: Vec::new(), conflicts: Vec::new() }
}

fn insert_into(index: &mut Index, text: &str, key: PortKey) {
    match index.get_mut(text) {
        None => drop(index.insert(text.into(), vec![key])),
        Some(keys) => {
            if let Err(place) = keys.binary_search(&key) {
                keys.insert(place, key);
            }
        }
    }
}

fn remove_from(index: &mut Index, name: &str, key: PortKey) {
    if let Some(keys) = index.get_mut(name) {
        if let Ok(place) = keys.binary_search(&key) {
            keys.remove(place);
        }
        if keys.is_empty() {
            index.remove(name);
        }
    }
}

#[cfg(test)]
mod tests;
