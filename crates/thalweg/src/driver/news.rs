//! Commands and events for the control thread: from this node's threads, and from discovery.

use super::calls::Asker;
use super::control::{Command, Control};
use super::permit::Caller;
use crate::channel::PortRef;
use crate::control::directory::{Applied, Delta};
use crate::control::{self, Change, NodeId, Origin, PortId, PortInfo};
use crate::event::Event;
use std::time::Instant;

impl Control {
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::PortAdded(port, info) => self.own_port_added(port, info),
            Command::PortRemoved(port) => self.own_port_removed(port),
            Command::Meet(shares, met) => drop(met.send(self.meet(shares))),
            #[cfg(test)]
            Command::Panic(always) => {
                self.panics = always;
                assert!(always, "injected");
            }
            Command::Ended { channel, why } => self.channel_ended(&channel, why),
            Command::Begin { questions, answers } => self.answers_ready(*questions, answers),
            Command::Moved(pair) => self.moved(pair),
            Command::Flow(flow, news) => self.flow_news(flow, news),
            Command::Alive(port) => {
                let ports = port.map_or_else(|| self.alive_by_node(), |port| vec![port]);
                self.tell_alive(ports);
            }
            Command::Barrier(reached) => {
                self.take_news(self.state.mailbox.len(), None); // events that arrived before the barrier are part of it
                let _ = reached.send(());
            }
            Command::Call { to, request, answer } => self.call(to, request, answer),
        }
    }

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
            (directory.apply(origin, event), directory.to_ask_again())
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

    pub(super) fn directory_changed(&mut self, delta: Delta) {
        let now = Instant::now();
        self.matching.seen(delta.node, !delta.gone, now);
        for (key, _) in delta.removed.iter().filter(|_| !delta.gone) {
            let port = PortRef { node: key.node, port: key.port };
            self.act(self.matching.removed(port));
            self.give_up_cut_off(now, |channel| channel.subscriber == port);
        }
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
            self.look_after_guests();
        }
    }

    /// `true` if a file or another node named a port of this name.
    fn is_named(&self, name: &str) -> bool {
        self.lasting.is_to(name) || self.priorities.is_named(name)
    }

    pub(super) fn own_port_added(&mut self, port: PortId, info: PortInfo) {
        self.load_kept(&info);
        self.watch_policies(port);
        let now = Instant::now();
        let actions = self.ask_matching(|matching, known| matching.own_added(port, &info, known, now));
        self.act(actions);
        let mut change = Change::default();
        change.added.insert(port, info);
        self.announce(change);
        self.refresh_shares();
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
