//! Samples that a relay does not keep although a port wants them kept there: the relay tells it with its load, so that the
//! port's owner hears the reason, and whoever asks for the samples later.

use crate::control::directory::Directory;
use crate::control::limits::MOST_NOT_KEPT;
use crate::control::{Document, NodeId, NotKept, PortId, PortInfo, PullRole};
use crate::event::Event;
use std::collections::BTreeSet;

/// Characters of a reason.
const LONGEST: usize = 200;
/// Refusals that are remembered, by a relay and by those whom they concern. The first few of them are announced.
const MOST_REMEMBERED: usize = 1024;

/// What the owner of a port was told, and of which relay.
type Told = (PortId, String, NotKept);

/// The refusals of a node: as a relay, and those that concern its ports.
#[derive(Debug, Default)]
pub(in crate::driver) struct Refusals {
    /// What this relay is wanted to keep, and does not.
    not_kept: Vec<NotKept>,
    /// What owners of this node's ports were told of what relays do not keep.
    told: BTreeSet<Told>,
}

impl Refusals {
    /// This relay keeps no samples of a topic, or of one publisher of it. What is to be told, if it is news.
    pub(crate) fn refuse(&mut self, topic: &str, publisher: Option<&str>, because: String) -> Option<NotKept> {
        let because = because.chars().take(LONGEST).collect(); // others believe no more
        let refusal = NotKept { topic: topic.to_owned(), publisher: publisher.map(str::to_owned), because };
        if self.not_kept.contains(&refusal) {
            return None;
        }
        self.keeps_now(topic, publisher); // or for another reason not: one is told
        if self.not_kept.len() < MOST_REMEMBERED {
            self.not_kept.push(refusal.clone());
        }
        Some(refusal)
    }

    /// What stood against keeping these samples does not any more.
    pub(crate) fn keeps_now(&mut self, topic: &str, publisher: Option<&str>) {
        self.not_kept.retain(|refusal| !(refusal.topic == topic && refusal.publisher.as_deref() == publisher));
    }

    /// Topics and publishers whose samples are not kept.
    pub(crate) fn of_publishers(&self) -> Vec<(String, String)> {
        let named = |refusal: &NotKept| Some((refusal.topic.clone(), refusal.publisher.clone()?));
        self.not_kept.iter().filter_map(named).collect()
    }

    /// What still holds of what this relay does not keep, as far as it is told.
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

    /// News of a node: what is to be told of what it does not keep for the ports of the node `own`, and of what it keeps now. Of this
    /// very node: what all relays do not.
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

    /// Owners of ports hear what a relay keeps now and did not before.
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
            // One that is not there any more is not kept either.
            let is_there = publisher.as_ref().is_none_or(|name| directory.port_named(name).is_some());
            let what = (id, topic, publisher);
            if let Some(port) = own.ports.get(&id).filter(|_| is_there && last.as_ref() != Some(&what)) {
                events.push(Event::KeptNow { port: port.name.clone(), relay, publisher: what.2.clone() });
            }
            last = Some(what);
        }
    }
}
