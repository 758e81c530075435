//! Disturbances of a network: ports and nodes that come and go, hosts that are cut off, administrators.

use super::node::{PER_HOST, host_of};
use super::world::{Event, LEASE, Said, World, slot_of};
use crate::channel::PortRef;
use crate::control::{Direction, NodeId, PortId};
use std::collections::BTreeSet;
use std::time::Duration;

/// Time between two disturbances, for a hundred nodes.
const PAUSE: Duration = Duration::from_millis(100);

impl World {
    /// A node dies, and the others learn of its end when its lease is over.
    fn crash(&mut self, id: NodeId) {
        let others = self.others(id);
        self.close_served(id, |_| true);
        let Some(node) = self.nodes.remove(&id) else { return };
        self.slots[slot_of(id)] = None;
        for conn in node.open.into_values().chain(node.handshakes.into_values()) {
            self.close(conn, false);
        }
        for other in others {
            let pause = LEASE + Duration::from_micros(self.dice.below(1_000_000));
            self.after(pause, Event::Said { to: other, from: id, said: Said::Gone(id) });
        }
    }

    /// Random disturbances for this time.
    pub fn disturb(&mut self, time: Duration) {
        self.disturbed = true;
        let end = self.now + time;
        let pause = PAUSE * 100 / self.slots.len().max(100) as u32;
        while self.now < end {
            self.disturb_once(end);
            self.run_for(pause);
        }
        self.disturbed = false;
    }

    fn disturb_once(&mut self, end: Duration) {
        let slot = self.dice.below(self.slots.len() as u64) as usize;
        let Some(id) = self.slots[slot] else { return };
        let Some(node) = self.nodes.get(&id) else { return };
        let ports: Vec<PortId> = node.drawn.keys().copied().collect();
        let rest = Duration::from_micros(self.dice.below((end - self.now).as_micros() as u64));
        match self.dice.below(12) {
            0..=4 => self.add_port(id),
            5..=8 if !ports.is_empty() => {
                self.counts.moved_ports += 1;
                let which = self.dice.below(ports.len() as u64) as usize;
                self.remove_port(id, ports[which]);
            }
            9 => self.administer(id),
            10 => {
                self.counts.crashes += 1;
                self.crash(id);
                self.after(rest.min(Duration::from_secs(3)), Event::Start(slot));
            }
            _ if self.split.len() * PER_HOST * 4 < self.slots.len() => {
                self.counts.splits += 1;
                self.split_off(host_of(slot));
                self.after(rest, Event::Heal(host_of(slot)));
            }
            _ => {}
        }
    }

    /// An administrator keeps two ports apart that have a channel, or connects two whatever their topics.
    fn administer(&mut self, id: NodeId) {
        self.counts.said += 1;
        let now = self.instant();
        let apart = self.dice.chance(0.5);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let open: Vec<_> = node.open.keys().copied().collect();
        if apart && !open.is_empty() {
            let pair = open[self.dice.below(open.len() as u64) as usize];
            let Some(wanted) = node.matching.get(&pair) else { return };
            let names = (wanted.publisher.name.clone(), wanted.subscriber.name.clone());
            node.apart.insert(names.clone());
            node.by_name.remove(&names);
            let action = node.matching.disconnect(names);
            return self.act(id, action);
        }
        let subscribing = node.drawn.iter().find(|(_, drawn)| !drawn.publishes);
        let Some((port, asked)) = subscribing.map(|(port, drawn)| (*port, drawn.info())) else { return };
        let known = node.directory.nodes().filter(|document| document.node != id);
        let ports = known.flat_map(|there| there.ports.iter().map(|(port, info)| (there.node, *port, info)));
        let offered: Vec<_> = ports.filter(|(.., info)| info.direction == Direction::Publisher).collect();
        if offered.is_empty() {
            return;
        }
        let (there, number, info) = offered[self.dice.below(offered.len() as u64) as usize];
        let info = info.clone();
        let names = (info.name.clone(), asked.name.clone());
        let me = PortRef { node: id, port };
        let other = PortRef { node: there, port: number };
        node.apart.remove(&names);
        node.by_name.insert(names.clone());
        node.matching.connect(names, None);
        let actions = node.ask(|matching, known, _| matching.consider((other, &info), (me, &asked), known, now));
        self.act(id, actions);
    }

    /// Ends all disturbances.
    pub fn heal(&mut self) {
        let hosts: BTreeSet<usize> = self.split.keys().copied().collect();
        hosts.into_iter().for_each(|host| self.join(host));
        for slot in 0..self.slots.len() {
            self.start(slot);
        }
        self.healed = self.now;
    }
}
