//! Samples that a relay does not keep although a port wants them kept there. The relay publishes its refusals with its load, so that the
//! port's owner, and later readers of the samples, learn the reason.

use crate::channel::PortRef;
use crate::control::{NodeId, PortInfo, PullRole};
use crate::driver::control::Control;
use crate::pull::Identity;

impl Control {
    /// `true` if a channel is wanted. A relay without room for its samples does not want it: it would only discard them.
    pub(in crate::driver) fn may_keep(&mut self, publisher: PortRef, offered: &PortInfo, subscriber: PortRef) -> bool {
        let inlet = self.state.inlet(subscriber.port).filter(|inlet| inlet.info().pull == PullRole::Keeps);
        let Some(inlet) = inlet.filter(|_| self.relay.is_relay()) else { return true };
        let Some(histories) = inlet.histories() else { return true };
        let there = self.state.directory().node(publisher.node).map(|there| (there.incarnation, there.clock.clone()));
        let Some((incarnation, clock)) = there else { return true };
        let identity = Identity { node: publisher.node, port: publisher.port, incarnation };
        match self.make_room_for(histories, identity) {
            Ok(()) => {
                histories.admit(identity, offered, &clock); // takes the room: other requests may come before this channel opens
                self.relay.refusals.keeps_now(&inlet.info().topic, Some(&offered.name));
            }
            Err(why) => {
                self.keep_not(&inlet.info().topic, Some(&offered.name), why);
                return false;
            }
        }
        true
    }

    /// This relay keeps no samples of a topic, or of one publisher of it: warns here, and tells other nodes with its load.
    pub(in crate::driver) fn keep_not(&mut self, topic: &str, publisher: Option<&str>, because: String) {
        if let Some(refusal) = self.relay.refusals.refuse(topic, publisher, because) {
            self.warn(refusal.to_string());
        }
    }

    /// Considers refused publishers again: there may be room for them now.
    pub(in crate::driver) fn consider_refused(&mut self) {
        for (topic, named) in self.relay.refusals.of_publishers() {
            let found = self.state.directory().port_named(&named).map(|(key, offered)| (key, offered.clone()));
            let Some((key, offered)) = found else { continue };
            let publisher = PortRef { node: key.node, port: key.port };
            for (port, inlet) in self.state.inlets() {
                if inlet.info().pull == PullRole::Keeps && inlet.info().topic == topic {
                    self.consider(publisher, &offered, PortRef { node: self.state.id, port }, inlet.info());
                }
            }
        }
    }

    /// News of a node: reports the samples that it does not keep for ports of this node, and those that it keeps now.
    pub(in crate::driver) fn tell_of_refusals(&mut self, node: NodeId) {
        let events = self.relay.refusals.heard(node, &self.state.document(), &self.state.directory());
        events.into_iter().for_each(|event| self.state.events.push(event));
    }
}
