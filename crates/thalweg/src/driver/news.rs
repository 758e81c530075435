//! What the control thread is told: by this node's threads, and by discovery.

use super::commands::Asker;
use super::control::{Command, Control};
use super::permit::Caller;
use super::wanted::Pair;
use crate::channel::PortRef;
use crate::control::directory::{Applied, Delta, PortKey};
use crate::control::{self, Change, Direction, NodeId, Origin, PortId, PortInfo, matching::topic_matches};
use crate::event::Event;
use crate::port::AnyInlet;
use std::sync::Arc;
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
                self.take_news(self.state.mailbox.len(), None); // what others said before is part of it
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

    /// Whether nothing better than Zenoh tells of a node: there anybody may write any name under a call.
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
            Applied::RefreshNeeded(node) => self.refresh(node),
            Applied::Refused { node, refusal } => self.warn(format!("news of node {node} refused: {refusal:?}")),
        }
        again.into_iter().for_each(|node| self.refresh(node));
        self.state.made_progress();
    }

    /// Asks for a node's document.
    fn refresh(&mut self, node: NodeId) {
        for discovery in &mut self.discoveries {
            discovery.refresh(node);
        }
    }

    pub(super) fn directory_changed(&mut self, delta: Delta) {
        let now = Instant::now();
        let its = self.wanted.iter_mut().filter(|((publisher, _), _)| publisher.node == delta.node);
        its.for_each(|(_, wanted)| wanted.seen(!delta.gone, now));
        for (key, _) in delta.removed.iter().filter(|_| !delta.gone) {
            let port = PortRef { node: key.node, port: key.port };
            let pairs: Vec<Pair> = self.wanted.keys().filter(|(p, _)| *p == port).copied().collect();
            pairs.into_iter().for_each(|pair| self.drop_wanted(pair, "the publisher closed"));
            self.give_up_cut_off(|channel, _| channel.subscriber == port);
        }
        for conflict in &delta.conflicts {
            let holder = conflict.winner.node.to_string();
            self.state.events.push(Event::NameTaken { name: conflict.name.clone(), holder });
        }
        let inlets = self.state.inlets();
        let added = self.of_concern(&delta.added, &inlets);
        for (at, info) in &added {
            self.tell_subscriber(*at, info);
            self.compare_offers(*at, info);
            self.tell_of_priorities(*at, &info.name);
        }
        self.tell_of_refusals(delta.node);
        if !delta.removed.is_empty() {
            self.consider_refused(); // what was kept of those gives way to who is here
        }
        for (publisher, offered) in &added {
            for (port, inlet) in &inlets {
                let me = PortRef { node: self.state.id, port: *port };
                self.consider(*publisher, offered, me, inlet.info());
            }
        }
        if !delta.added.is_empty() {
            self.look_after_guests();
        }
    }

    /// Of new ports those that may belong to one of this node's, or are named in what was asked for: most of a node with thousands do
    /// neither, and are not copied.
    fn of_concern(&self, added: &[PortKey], inlets: &[(PortId, Arc<dyn AnyInlet>)]) -> Vec<(PortRef, PortInfo)> {
        let (outlets, directory) = (self.state.outlets(), self.state.directory());
        let shares = |port: &PortInfo| match port.direction {
            Direction::Publisher => inlets.iter().any(|(_, inlet)| topic_matches(&inlet.info().topic, &port.topic)),
            Direction::Subscriber => outlets.iter().any(|outlet| topic_matches(&port.topic, &outlet.info().topic)),
        };
        let known = added.iter().filter_map(|key| Some((*key, directory.port(*key)?)));
        let concerns = known.filter(|(_, port)| shares(port) || self.is_named(&port.name));
        concerns.map(|(key, port)| (PortRef { node: key.node, port: key.port }, port.clone())).collect()
    }

    /// Whether an administrator, a file or another node named a port of this name.
    fn is_named(&self, name: &str) -> bool {
        self.connected.keys().any(|(publisher, subscriber)| publisher == name || subscriber == name)
            || self.lasting.iter().any(|kept| kept.subscriber == name)
            || self.kept.keys().any(|(_, other)| other == name)
            || self.kept_for_others.keys().any(|(port, _)| port == name)
    }

    pub(super) fn own_port_added(&mut self, port: PortId, info: PortInfo) {
        let me = PortRef { node: self.state.id, port };
        self.load_kept(&info);
        self.watch_policies(port);
        if info.direction == Direction::Subscriber {
            let others: Vec<_> = {
                let directory = self.state.directory();
                let named = self.connected.keys().any(|(_, subscriber)| *subscriber == info.name);
                let ports = directory.nodes().flat_map(|d| d.ports.iter().map(|(id, p)| (d.node, *id, p)));
                let ports = ports.filter(|(.., p)| named || topic_matches(&info.topic, &p.topic));
                ports.map(|(node, port, p)| (PortRef { node, port }, p.clone())).collect()
            };
            for (publisher, other) in others {
                self.consider(publisher, &other, me, &info);
            }
        }
        if info.direction == Direction::Publisher {
            self.compare_requests(&info);
        }
        let mut change = Change::default();
        change.added.insert(port, info);
        self.announce(change);
        self.refresh_shares();
    }

    pub(super) fn own_port_removed(&mut self, port: PortId) {
        let me = PortRef { node: self.state.id, port };
        let ended: Vec<Pair> = self.wanted.keys().filter(|(p, s)| *s == me || *p == me).copied().collect();
        for pair in ended {
            self.cut_wanted(pair, "the port closed");
        }
        self.groups.retain(|(outlet, ..), _| *outlet != me);
        self.give_up_cut_off(|channel, _| channel.publisher == me);
        self.unwatch_policies(port);
        self.told_not_kept.retain(|(of, ..)| *of != port);
        self.announce(Change { removed: vec![port], ..Change::default() });
        self.refresh_shares();
        self.consider_refused(); // it may have kept samples, and left room
    }

    pub(super) fn announce(&mut self, mut change: Change) {
        let mut document = self.state.document().as_ref().clone();
        (change.base, change.revision) = (document.revision, document.revision + 1);
        document.apply(&change);
        let document = self.state.set_document(document);
        for discovery in &mut self.discoveries {
            discovery.announce(&document, &change);
        }
        self.directory_event(Origin::Own, control::Event::Change(self.state.id, change));
    }
}
