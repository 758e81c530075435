//! News of other nodes: the back ends by which this node finds others and talks with their control threads, the mailbox in which events wait,
//! and what the control thread does with them. Ports of this node that come and go are news for the others.

use super::calls::Asker;
use super::control::Control;
use super::permit::Caller;
use crate::channel::PortRef;
use crate::control::directory::{Applied, Delta};
use crate::control::links::Source;
use crate::control::local::LocalEndpoint;
use crate::control::{self, Change, Discovery, Document, NodeId, Origin, PortId, PortInfo};
use crate::event::Event;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The back ends, in the order in which they are asked.
#[derive(Default)]
pub(super) struct Discoveries {
    back_ends: Vec<Box<dyn Discovery>>,
    /// This node's socket in the run directory, from the time that it is announced there.
    pub endpoint: Option<LocalEndpoint>,
}

impl Discoveries {
    pub(super) fn add(&mut self, back_end: impl Discovery + 'static) {
        self.back_ends.push(Box::new(back_end));
    }

    /// Sends a call to another node; `false`: no back end reaches it.
    pub(super) fn call(&mut self, to: NodeId, id: u64, request: &[u8]) -> bool {
        self.back_ends.iter_mut().any(|each| each.call(to, id, request))
    }

    /// Sends a call to another node at one of these addresses; `false`: no back end does.
    pub(super) fn call_directly(&mut self, to: NodeId, addresses: &[SocketAddr], id: u64, request: &[u8]) -> bool {
        !addresses.is_empty() && self.back_ends.iter_mut().any(|each| each.call_directly(to, addresses, id, request))
    }

    /// Sends the answer to another node's call.
    pub(super) fn answer(&mut self, to: NodeId, id: u64, answer: &[u8]) {
        let _ = self.back_ends.iter_mut().any(|each| each.answer(to, id, answer));
    }

    /// Asks for a node's document.
    fn refresh(&mut self, node: NodeId) {
        for each in &mut self.back_ends {
            each.refresh(node);
        }
    }

    /// Announces a change of this node's document.
    pub(super) fn announce(&mut self, document: &Arc<Document>, change: &Change) {
        self.back_ends.iter_mut().for_each(|each| each.announce(document, change));
    }

    /// Makes links to the nodes of this source.
    pub(super) fn look(&mut self, source: &Source) {
        self.back_ends.iter_mut().for_each(|each| each.look(source.clone()));
    }

    /// Hands over a stream on which another node's control thread speaks.
    pub(super) fn adopt(&mut self, stream: OwnedFd, from: Option<IpAddr>) {
        let mut stream = Some(stream);
        for each in &mut self.back_ends {
            stream = stream.and_then(|stream| each.adopt(stream, from));
        }
    }

    /// `true` if a back end knows that this node runs on this host.
    pub(super) fn is_of_this_host(&self, node: NodeId) -> bool {
        self.back_ends.iter().any(|each| each.is_of_this_host(node))
    }
}

/// Events of other nodes that the control thread has not taken yet. While it is full, no links are read, so that the messages of a node that
/// floods this one wait in that node's own buffers.
#[derive(Default)]
pub(crate) struct Mailbox(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    events: VecDeque<(Origin, control::Event, usize)>,
    bytes: usize,
}

impl Mailbox {
    pub(crate) fn put(&self, origin: Origin, event: control::Event) {
        let weight = event.weight();
        let mut inner = self.locked();
        inner.bytes += weight;
        inner.events.push_back((origin, event, weight));
    }

    pub(crate) fn take(&self) -> Option<(Origin, control::Event)> {
        let mut inner = self.locked();
        let (origin, event, weight) = inner.events.pop_front()?;
        inner.bytes = inner.bytes.saturating_sub(weight);
        Some((origin, event))
    }

    pub(crate) fn len(&self) -> usize {
        self.locked().events.len()
    }

    pub(crate) fn has_room(&self) -> bool {
        let inner = self.locked();
        inner.bytes < MOST_BYTES && inner.events.len() < MOST_EVENTS
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    pub(super) fn discovered(&mut self, origin: Origin, event: control::Event) {
        match event {
            control::Event::Warning(text) => self.warn(text),
            control::Event::Rejected(peer) => {
                self.came_to_nothing(peer, "control links that were refused or ended without a hello");
            }
            control::Event::Call { from, genuine, id, request } => {
                let genuine = genuine && (origin != Origin::Zenoh || self.is_known_by_zenoh(from));
                let caller = Caller { node: genuine.then_some(from), origin };
                self.heard_call(request, caller, Asker::There(from, id));
            }
            control::Event::Answer { from, id, answer } => self.answered(from, id, answer),
            control::Event::Unreachable { id, why } => self.unreachable(id, why),
            other => self.directory_event(origin, other),
        }
    }

    /// `true` if a node is known by Zenoh only. By Zenoh, any peer may write any node's name under a call.
    fn is_known_by_zenoh(&self, node: NodeId) -> bool {
        self.state.directory().origin(node) == Some(Origin::Zenoh)
    }

    pub(super) fn directory_event(&mut self, origin: Origin, event: control::Event) {
        let (applied, again) = {
            let mut directory = self.state.directory();
            (directory.apply(origin, event), directory.due_for_refresh())
        };
        match applied {
            Applied::Nothing => {}
            Applied::Changed(delta) => self.directory_changed(delta),
            Applied::RefreshNeeded(node) => self.discoveries.refresh(node),
            Applied::Refused { node, refusal } => self.warn(format!("news of node {node} refused: {refusal:?}")),
        }
        again.into_iter().for_each(|node| self.discoveries.refresh(node));
        self.state.made_progress();
    }

    fn directory_changed(&mut self, delta: Delta) {
        let now = Instant::now();
        self.matching.seen(delta.node, !delta.gone, now);
        for (key, _) in delta.removed.iter().filter(|_| !delta.gone) {
            let port = PortRef { node: key.node, port: key.port };
            let actions = self.matching.removed(port, now);
            self.act(actions);
        }
        self.give_up_closed(delta.node, now);
        for conflict in &delta.conflicts {
            let holder = conflict.winner.node.to_string();
            self.state.events.push(Event::NameTaken { name: conflict.name.clone(), holder });
        }
        let ports = self.own_ports();
        let own = ports.as_own();
        let added = {
            let directory = self.state.directory();
            self.matching.of_concern(&delta.added, &own, &directory, |name| self.is_named(name))
        };
        for (at, info) in &added {
            self.tell_subscriber(*at, info);
            self.act(self.matching.compare_offers(*at, info, &own));
            self.tell_of_priorities(*at, &info.name);
        }
        self.tell_of_refusals(delta.node);
        if !delta.removed.is_empty() {
            self.consider_refused(); // samples kept of gone publishers make room for others
        }
        let actions = self.ask_matching(|matching, known| matching.added(&added, &own, known, now));
        self.act(actions);
        if !delta.added.is_empty() {
            self.look_after_waiting();
        }
    }

    /// `true` if a file or another node named a port of this name.
    fn is_named(&self, name: &str) -> bool {
        self.lasting.is_to(name) || self.priorities.is_named(name)
    }

    /// Ports of this node were opened. They are announced together: the node's document is copied for each announcement, so that a
    /// thousand ports one by one would be copied half a million times.
    pub(super) fn own_ports_added(&mut self, ports: Vec<(PortId, PortInfo)>) {
        let mut change = Change::default();
        for (port, info) in ports {
            if self.survives("a new port", |control| control.own_port_added(port, &info)) {
                change.added.insert(port, info);
            }
        }
        if !change.added.is_empty() {
            self.survives("new ports", |control| control.announce(change));
            self.refresh_shares();
        }
    }

    fn own_port_added(&mut self, port: PortId, info: &PortInfo) {
        self.load_kept(info);
        self.watch_policies(port);
        let now = Instant::now();
        let actions = self.ask_matching(|matching, known| matching.own_added(port, info, known, now));
        self.act(actions);
    }

    pub(super) fn own_port_removed(&mut self, port: PortId) {
        let me = PortRef { node: self.state.id, port };
        self.act(self.matching.own_removed(port));
        self.groups.closed(me);
        self.give_up_cut_off(Instant::now(), |channel| channel.publisher == me);
        self.policies.remove(port);
        self.relay.refusals.closed(port);
        self.announce(Change { removed: vec![port], ..Change::default() });
        self.refresh_shares();
        self.consider_refused(); // the port may have kept samples, whose room is free now
    }

    pub(super) fn announce(&mut self, mut change: Change) {
        let mut document = self.state.document().as_ref().clone();
        (change.base, change.revision) = (document.revision, document.revision + 1);
        document.apply(&change);
        let document = self.state.set_document(document);
        self.discoveries.announce(&document, &change);
        self.directory_event(Origin::Own, control::Event::Change(self.state.id, change));
    }
}

/// Most bytes, and most events, that wait. While one of these is reached, no links are read. One more message, of at most 4 MiB, may still
/// arrive.
const MOST_BYTES: usize = 4 << 20;
const MOST_EVENTS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_mailbox_says_so_until_something_is_taken() {
        let mailbox = Mailbox::default();
        let call = || control::Event::Call { from: NodeId(1), genuine: true, id: 1, request: vec![0; 1 << 20] };
        let fitted = (0..100)
            .take_while(|_| {
                mailbox.has_room() && {
                    mailbox.put(Origin::this_user(), call());
                    true
                }
            })
            .count();
        assert_eq!(fitted, 4);
        assert!(mailbox.take().is_some() && mailbox.has_room());
        while mailbox.take().is_some() {}
        (0..MOST_EVENTS).for_each(|n| mailbox.put(Origin::this_user(), control::Event::Gone(NodeId(n as u64))));
        assert!(!mailbox.has_room() && mailbox.len() == MOST_EVENTS);
    }
}
