//! Samples that a relay does not keep although a port wants them kept there. The relay publishes its refusals with its load, so that the
//! port's owner, and later readers of the samples, learn the reason.

use crate::control::directory::Directory;
use crate::control::limits::MOST_NOT_KEPT;
use crate::control::{Document, NodeId, NotKept, PortId, PortInfo, PullRole};
use crate::event::Event;
use std::collections::BTreeSet;

/// Most characters of a reason.
const LONGEST: usize = 200;
/// Refusals that are remembered, by a relay and by the nodes that they concern. Only the first few of them are announced.
const MOST_REMEMBERED: usize = 1024;

/// A refusal that the owner of a port was told, with the name of the relay.
type Told = (PortId, String, NotKept);

/// The refusals of a node: its own as a relay, and those that concern its ports.
#[derive(Debug, Default)]
pub(in crate::driver) struct Refusals {
    /// Wanted samples that this relay does not keep.
    not_kept: Vec<NotKept>,
    /// Refusals of relays that the owners of this node's ports were told.
    told: BTreeSet<Told>,
}

impl Refusals {
    /// This relay keeps no samples of a topic, or of one publisher of it. Returns the refusal to report, if it is new.
    pub(crate) fn refuse(&mut self, topic: &str, publisher: Option<&str>, because: String) -> Option<NotKept> {
        let because = because.chars().take(LONGEST).collect(); // other nodes accept no longer ones
        let refusal = NotKept { topic: topic.to_owned(), publisher: publisher.map(str::to_owned), because };
        if self.not_kept.contains(&refusal) {
            return None;
        }
        self.keeps_now(topic, publisher); // an earlier reason is replaced: only one is told
        if self.not_kept.len() < MOST_REMEMBERED {
            self.not_kept.push(refusal.clone());
        }
        Some(refusal)
    }

    /// These samples can be kept now: removes their refusal.
    pub(crate) fn keeps_now(&mut self, topic: &str, publisher: Option<&str>) {
        self.not_kept.retain(|refusal| !(refusal.topic == topic && refusal.publisher.as_deref() == publisher));
    }

    /// The topics and publishers of refusals that concern one publisher.
    pub(crate) fn of_publishers(&self) -> Vec<(String, String)> {
        let named = |refusal: &NotKept| Some((refusal.topic.clone(), refusal.publisher.clone()?));
        self.not_kept.iter().filter_map(named).collect()
    }

    /// The refusals that still hold, as many of them as are announced.
    pub(super) fn standing(&mut self, directory: &Directory) -> Vec<NotKept> {
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

    /// A port of this node closed.
    pub(crate) fn closed(&mut self, port: PortId) {
        self.told.retain(|(of, ..)| *of != port);
    }

    /// News of a node: the events for owners of ports of the node `own`, about samples that the other node does not keep, and those that it
    /// keeps now. For news of `own` itself, the refusals of all relays are looked at.
    pub(crate) fn heard(&mut self, node: NodeId, own: &Document, directory: &Directory) -> Vec<Event> {
        let mut events = Vec::new();
        for there in directory.nodes().filter(|there| node == own.node || there.node == node) {
            self.heard_refusals(there, own, &mut events);
        }
        if let Some(there) = directory.node(node) {
            self.heard_grants(there, (own, directory), &mut events);
        }
        events
    }

    fn heard_refusals(&mut self, there: &Document, own: &Document, events: &mut Vec<Event>) {
        let refusals = || there.relay.iter().flat_map(|relay| &relay.not_kept);
        if refusals().next().is_none() {
            return;
        }
        let wants = |port: &PortInfo| {
            port.qos.pull.as_ref().is_some_and(|pull| pull.place.relays().any(|name| there.is_relay(name)))
        };
        for (id, port) in own.ports.iter().filter(|(_, port)| wants(port)) {
            for refusal in refusals().filter(|refusal| refusal.is_of(&port.topic)) {
                let (name, relay, because) = (port.name.clone(), there.name.clone(), refusal.to_string());
                let remembered = self.told.len() < MOST_REMEMBERED;
                if remembered && self.told.insert((*id, relay.clone(), refusal.clone())) {
                    events.push(Event::NotKept { port: name, relay, because });
                }
            }
        }
    }

    /// Reports samples that a relay keeps now and refused before.
    fn heard_grants(&mut self, there: &Document, (own, directory): (&Document, &Directory), events: &mut Vec<Event>) {
        let Some(load) = &there.relay else { return };
        let same = |a: &NotKept, b: &NotKept| (&a.topic, &a.publisher) == (&b.topic, &b.publisher);
        let stands = |told: &NotKept| load.not_kept.iter().any(|refusal| same(told, refusal));
        let told = std::mem::take(&mut self.told).into_iter();
        let over = |(_, relay, refusal): &Told| *relay == there.name && !stands(refusal);
        let (over, told): (BTreeSet<Told>, BTreeSet<Told>) = told.partition(over);
        self.told = told;
        let mut last = None;
        for (id, relay, NotKept { topic, publisher, .. }) in over {
            // Samples of a publisher that is gone are not kept either.
            let is_there = publisher.as_ref().is_none_or(|name| directory.port_named(name).is_some());
            let what = (id, topic, publisher);
            if let Some(port) = own.ports.get(&id).filter(|_| is_there && last.as_ref() != Some(&what)) {
                events.push(Event::KeptNow { port: port.name.clone(), relay, publisher: what.2.clone() });
            }
            last = Some(what);
        }
    }
}
