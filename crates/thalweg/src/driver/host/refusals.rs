//! Samples that a relay does not keep although a port wants them kept there: the relay tells it with its load, so that the
//! port's owner hears the reason, and whoever asks for the samples later.

use crate::channel::PortRef;
use crate::control::limits::MOST_NOT_KEPT;
use crate::control::{NodeId, NotKept, PortId, PortInfo, PullRole};
use crate::driver::control::Control;
use crate::event::Event;
use crate::pull::Identity;
use std::collections::BTreeSet;

/// What the owner of a port was told, and of which relay.
pub(crate) type Told = (PortId, String, NotKept);

/// Characters of a reason.
const LONGEST: usize = 200;
/// Refusals that are remembered, by a relay and by those whom they concern. The first few of them are announced.
const MOST_REMEMBERED: usize = 1024;

impl Control {
    /// Whether a channel is wanted: not by a relay that has no room for its samples, and would only throw them away.
    pub(in crate::driver) fn may_keep(&mut self, publisher: PortRef, offered: &PortInfo, subscriber: PortRef) -> bool {
        let inlet = self.state.inlet(subscriber.port).filter(|inlet| inlet.info().pull == PullRole::Keeps);
        let Some((inlet, _)) = inlet.zip(self.relay) else { return true };
        let Some(histories) = inlet.histories() else { return true };
        let there = self.state.directory().node(publisher.node).map(|there| (there.incarnation, there.clock.clone()));
        let Some((incarnation, clock)) = there else { return true };
        let identity = Identity { node: publisher.node, port: publisher.port, incarnation };
        match self.make_room_for(histories, identity) {
            Ok(()) => {
                histories.admit(identity, offered, &clock); // the room is taken: others may come before it opens
                self.keeps_now(&inlet.info().topic, Some(&offered.name));
            }
            Err(why) => {
                self.keep_not(&inlet.info().topic, Some(&offered.name), why);
                return false;
            }
        }
        true
    }

    /// This relay keeps no samples of a topic, or of one publisher of it: tells people here, and others with its load.
    pub(in crate::driver) fn keep_not(&mut self, topic: &str, publisher: Option<&str>, because: String) {
        let because = because.chars().take(LONGEST).collect(); // others believe no more
        let refusal = NotKept { topic: topic.to_owned(), publisher: publisher.map(str::to_owned), because };
        if self.not_kept.contains(&refusal) {
            return;
        }
        self.keeps_now(topic, publisher); // or for another reason not: one is told
        self.warn(refusal.to_string());
        if self.not_kept.len() < MOST_REMEMBERED {
            self.not_kept.push(refusal);
        }
    }

    /// What stood against keeping these samples does not any more.
    pub(super) fn keeps_now(&mut self, topic: &str, publisher: Option<&str>) {
        self.not_kept.retain(|refusal| !(refusal.topic == topic && refusal.publisher.as_deref() == publisher));
    }

    /// There may be room now for publishers that there was none for.
    pub(in crate::driver) fn consider_refused(&mut self) {
        let refused: Vec<NotKept> =
            self.not_kept.iter().filter(|refusal| refusal.publisher.is_some()).cloned().collect();
        for refusal in refused {
            let named = refusal.publisher.as_deref().unwrap_or_default();
            let found = self.state.directory().port_named(named).map(|(key, offered)| (key, offered.clone()));
            let Some((key, offered)) = found else { continue };
            let publisher = PortRef { node: key.node, port: key.port };
            for (port, inlet) in self.state.inlets() {
                if inlet.info().pull == PullRole::Keeps && inlet.info().topic == refusal.topic {
                    self.consider(publisher, &offered, PortRef { node: self.state.id, port }, inlet.info());
                }
            }
        }
    }

    /// What still holds of what this relay does not keep.
    pub(super) fn still_not_kept(&mut self) -> Vec<NotKept> {
        let directory = self.state.directory();
        let wanted = |port: &PortInfo| {
            let elsewhere = port.qos.pull.as_ref().is_some_and(|pull| pull.place.relays().next().is_some());
            elsewhere || port.pull == PullRole::Keeps
        };
        let holds = |refusal: &NotKept| {
            let publisher = refusal.publisher.as_ref().is_none_or(|name| directory.port_named(name).is_some());
            let mut ports = directory.nodes().flat_map(|node| node.ports.values());
            publisher && ports.any(|port| wanted(port) && refusal.is_of(&port.topic))
        };
        self.not_kept.retain(holds);
        self.not_kept.iter().take(MOST_NOT_KEPT).cloned().collect()
    }

    /// News of a node: tells of what it does not keep for ports of this one. Of this very node: what all relays do not.
    pub(in crate::driver) fn tell_of_refusals(&mut self, node: NodeId) {
        let (own, mut found) = (self.state.document(), Vec::new());
        let directory = self.state.directory();
        for there in directory.nodes().filter(|there| node == self.state.id || there.node == node) {
            let refusals = || there.relay.iter().flat_map(|relay| &relay.not_kept);
            let wants = |port: &PortInfo| {
                port.qos.pull.as_ref().is_some_and(|pull| pull.place.relays().any(|name| there.is_relay(name)))
            };
            if refusals().next().is_some() {
                for (id, port) in own.ports.iter().filter(|(_, port)| wants(port)) {
                    let concerned = refusals().filter(|refusal| refusal.is_of(&port.topic));
                    found
                        .extend(concerned.map(|refusal| (there.name.clone(), port.name.clone(), *id, refusal.clone())));
                }
            }
        }
        drop(directory);
        for (relay, port, id, refusal) in found {
            let because = refusal.to_string();
            let remembered = self.told_not_kept.len() < MOST_REMEMBERED;
            if remembered && self.told_not_kept.insert((id, relay.clone(), refusal)) {
                self.state.events.push(Event::NotKept { port, relay, because });
            }
        }
        self.tell_of_grants(node);
    }

    /// News of a relay: tells owners of ports what it keeps now and did not before.
    fn tell_of_grants(&mut self, node: NodeId) {
        let Some(there) = self.state.directory().node(node).cloned() else { return };
        let Some(load) = &there.relay else { return };
        let same = |a: &NotKept, b: &NotKept| (&a.topic, &a.publisher) == (&b.topic, &b.publisher);
        let stands = |told: &NotKept| load.not_kept.iter().any(|refusal| same(told, refusal));
        let told = std::mem::take(&mut self.told_not_kept).into_iter();
        let over = |(_, relay, refusal): &Told| *relay == there.name && !stands(refusal);
        let (over, told): (BTreeSet<Told>, BTreeSet<Told>) = told.partition(over);
        self.told_not_kept = told;
        let (own, mut last) = (self.state.document(), None);
        for (id, relay, NotKept { topic, publisher, .. }) in over {
            // One that is not there any more is not kept either.
            let there = publisher.as_ref().is_none_or(|name| self.state.directory().port_named(name).is_some());
            let what = (id, topic, publisher);
            if let Some(port) = own.ports.get(&id).filter(|_| there && last.as_ref() != Some(&what)) {
                let (port, publisher) = (port.name.clone(), what.2.clone());
                self.state.events.push(Event::KeptNow { port, relay, publisher });
            }
            last = Some(what);
        }
    }
}
