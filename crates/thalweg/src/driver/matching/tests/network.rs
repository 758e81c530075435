//! Documents and changes that nodes send each other, and their delays; hosts that are cut off.

use super::events::{Event, Said};
use super::node::{Node, host_of};
use super::signs::NOTICED;
use super::world::{LEASE, NEXT_CHANGE, World, slot_of};
use crate::channel::PortRef;
use crate::control::directory::{Applied, Delta};
use crate::control::{self, Change, NodeId, Origin};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Pause before a lost document is asked for again, as back ends do.
const ASK_AGAIN: Duration = Duration::from_millis(500);

impl World {
    /// The other nodes that run in the realm of this one.
    pub fn others(&self, id: NodeId) -> Vec<NodeId> {
        let realm = self.realm_of[slot_of(id)];
        let running = self.slots.iter().zip(&self.realm_of).filter(|(_, of)| **of == realm);
        running.filter_map(|(other, _)| *other).filter(|other| *other != id).collect()
    }

    /// `to` gets the document of `of`.
    pub fn tell_document(&mut self, to: NodeId, of: NodeId) {
        let pause = self.delay(slot_of(to), slot_of(of));
        self.after(pause, Event::AskDocument { to: of, from: to });
    }

    pub fn asked_document(&mut self, to: NodeId, from: NodeId) {
        if self.is_cut(slot_of(to), slot_of(from)) || !self.nodes.contains_key(&from) {
            return;
        }
        let Some(asked) = self.nodes.get(&to) else { return };
        let said = Said::Document(Box::new(asked.document.clone()));
        if self.loses() || self.loses() {
            return self.after(ASK_AGAIN, Event::AskDocument { to, from });
        }
        let pause = self.delay(slot_of(to), slot_of(from));
        self.after(pause, Event::Said { to: from, from: to, said });
    }

    pub fn next_change(&mut self, id: NodeId) {
        self.announce(id, Change::default());
        if self.nodes.contains_key(&id) {
            self.after(NEXT_CHANGE, Event::NextChange(id));
        }
    }

    pub fn announce(&mut self, id: NodeId, mut change: Change) {
        let others = self.others(id);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        (change.base, change.revision) = (node.document.revision, node.document.revision + 1);
        node.document.apply(&change);
        let applied = node.directory.apply(Origin::Own, control::Event::Change(id, change.clone()));
        if let Applied::Changed(delta) = applied {
            self.changed(id, &delta);
        }
        let change = Arc::new(change);
        for other in others {
            if self.loses() {
                continue;
            }
            let pause = self.delay(slot_of(id), slot_of(other));
            self.after(pause, Event::Said { to: other, from: id, said: Said::Change(id, change.clone()) });
        }
    }

    pub fn said(&mut self, to: NodeId, from: NodeId, said: Said) {
        let event = match said {
            Said::Gone(node) => control::Event::Gone(node),
            _ if self.is_cut(slot_of(to), slot_of(from)) => return,
            Said::Document(document) => control::Event::Document(document),
            Said::Change(node, change) => control::Event::Change(node, (*change).clone()),
        };
        let Some(node) = self.nodes.get_mut(&to) else { return };
        match node.directory.apply(Origin::this_user(), event) {
            Applied::Nothing => {}
            Applied::Changed(delta) => self.changed(to, &delta),
            Applied::RefreshNeeded(of) => {
                self.counts.refreshes += 1;
                self.tell_document(to, of);
            }
            Applied::Refused { refusal, .. } => panic!("seed {}: news refused: {refusal:?}", self.seed),
        }
    }

    /// Tells the machine of a changed directory, as the control thread does.
    fn changed(&mut self, id: NodeId, delta: &Delta) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.matching.seen(delta.node, !delta.gone, now);
        let mut actions = Vec::new();
        let removed = delta.removed.iter().filter(|_| !delta.gone);
        let removed: Vec<_> = removed.map(|(key, _)| PortRef { node: key.node, port: key.port }).collect();
        removed.iter().for_each(|port| actions.extend(node.matching.removed(*port, now)));
        self.act(id, actions);
        self.give_up_closed(id, delta.node);
        let Some(node) = self.nodes.get_mut(&id).filter(|_| !delta.added.is_empty()) else { return };
        let actions = node.ask(|matching, known, own| {
            let added = matching.of_concern(&delta.added, own, known.directory, |_| false);
            matching.added(&added, own, known, now)
        });
        self.act(id, actions);
        self.look_after_waiting(id);
    }

    /// A host is cut off from the hosts that are not.
    pub fn split_off(&mut self, host: usize) {
        self.split.insert(host, self.now);
        self.joined_since.insert(host, self.now); // those that were cut off before are on its side now
        let on_host: Vec<NodeId> =
            self.slots.iter().flatten().copied().filter(|id| host_of(slot_of(*id)) == host).collect();
        for id in on_host.iter().copied() {
            for other in self.others(id).into_iter().filter(|other| host_of(slot_of(*other)) != host) {
                for (to, from) in [(id, other), (other, id)] {
                    let pause = LEASE + self.some(LEASE);
                    self.after(pause, Event::Lease { to, from });
                }
            }
        }
        let its = |node: &Node| node.open.values().chain(node.served.keys()).copied().collect::<BTreeSet<_>>();
        let conns: Vec<u64> = on_host.iter().filter_map(|id| self.nodes.get(id)).flat_map(its).collect();
        for conn in conns {
            for publisher in [true, false] {
                let pause = Duration::from_secs(3) + self.some(Duration::from_secs(7));
                self.after(pause, Event::Silent { conn, publisher });
            }
        }
    }

    /// A host is reached again. Nodes that have forgotten each other meanwhile exchange their documents.
    pub fn join(&mut self, host: usize) {
        if self.split.remove(&host).is_none() {
            return;
        }
        self.joined_since.insert(host, self.now);
        let on_host: Vec<NodeId> =
            self.slots.iter().flatten().copied().filter(|id| host_of(slot_of(*id)) == host).collect();
        on_host.into_iter().for_each(|id| self.meet_again(id));
    }

    /// This node and the others that do not know each other exchange their documents.
    fn meet_again(&mut self, id: NodeId) {
        for other in self.others(id) {
            for (to, of) in [(id, other), (other, id)] {
                let unknown = self.nodes.get(&to).is_some_and(|node| node.directory.node(of).is_none());
                if unknown {
                    self.tell_document(to, of);
                }
            }
        }
    }

    /// A node's process is stopped, and its streams stay open. Nodes of other hosts see its lease end.
    pub fn stop(&mut self, id: NodeId, time: Duration) {
        self.stopped.insert(id, (self.now, self.now + time));
        self.after(time, Event::Continue(id));
        self.after(NOTICED, Event::Noticed(id, self.now));
        for other in self.others(id).into_iter().filter(|other| host_of(slot_of(*other)) != host_of(slot_of(id))) {
            let pause = LEASE + self.some(LEASE);
            self.after(pause, Event::Lease { to: other, from: id });
        }
    }

    /// A stopped node continues.
    pub fn go_on(&mut self, id: NodeId) {
        if self.stopped.remove(&id).is_some() && self.nodes.contains_key(&id) {
            self.well_since.insert(id, self.now);
            self.meet_again(id);
        }
    }
}
