//! Disturbances of a network: ports and nodes that come and go, hosts that are cut off, administrators.

use super::events::{Event, Said};
use super::node::{PER_HOST, host_of};
use super::ports::some_relays;
use super::world::{LEASE, World, slot_of};
use crate::channel::PortRef;
use crate::channel::proxy::{Proxy, Selection};
use crate::control::{Direction, NodeId, PortId};
use qos::Place;
use std::collections::BTreeSet;
use std::time::Duration;

/// Time between two disturbances, for a hundred nodes.
const PAUSE: Duration = Duration::from_millis(100);
/// Chance that a disturbance is one of a relay, where there are relays.
const RELAY: f64 = 0.1;
/// The longest time for which a process is stopped.
const STOP: Duration = Duration::from_secs(5);

impl World {
    /// A node dies, and the others learn of its end when its lease is over.
    fn crash(&mut self, id: NodeId) {
        let others = self.others(id);
        let Some(node) = self.nodes.remove(&id) else { return };
        self.slots[slot_of(id)] = None;
        self.stopped.remove(&id);
        node.served.into_keys().for_each(|conn| self.close(conn, true, true));
        let its = self.conns.iter().filter(|(_, conn)| conn.subscriber == id && conn.reached.is_some());
        let its: Vec<u64> = its.map(|(conn, _)| *conn).collect();
        for conn in its {
            let broken = self.dice.chance(0.5);
            self.close(conn, false, broken);
        }
        for other in others {
            let pause = LEASE + self.some(LEASE);
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
        let relay = self.dice.chance(RELAY) && !self.relays.is_empty();
        let slots = if relay { self.relays.len() } else { self.slots.len() };
        let slot = self.dice.below(slots as u64) as usize;
        let slot = if relay { self.relays[slot] } else { slot };
        let Some(id) = self.slots[slot].filter(|id| !self.stopped.contains_key(id)) else { return };
        let Some(node) = self.nodes.get(&id) else { return };
        let ports: Vec<PortId> = node.drawn.keys().copied().collect();
        let rest = self.some(end - self.now);
        match self.dice.below(15) {
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
            11 => self.rescale_some(id),
            12 => {
                self.counts.stops += 1;
                self.stop(id, rest.min(STOP));
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
        let open = node.open.keys().filter(|(_, subscriber)| node.drawn.contains_key(&subscriber.port));
        let open: Vec<_> = open.copied().collect();
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

    /// An administrator gives an open channel another proxy.
    fn rescale_some(&mut self, id: NodeId) {
        let relays = self.relay_names(slot_of(id));
        let place = match self.dice.below(4) {
            0 => Place::Publisher,
            1 => Place::Subscriber,
            _ => some_relays(&mut self.dice, relays),
        };
        let selection = [Selection::ALL, Selection::every(1 + self.dice.below(4) as u32).unwrap_or_default()];
        let proxy = Proxy { selection: selection[self.dice.below(2) as usize], picture: None, place };
        let Some(node) = self.nodes.get_mut(&id) else { return };
        // Within a process a proxy changes without a move.
        let elsewhere = node
            .open
            .keys()
            .filter(|(publisher, subscriber)| publisher.node != id && node.drawn.contains_key(&subscriber.port));
        let open: Vec<_> = elsewhere.copied().collect();
        if open.is_empty() {
            return;
        }
        let pair = open[self.dice.below(open.len() as u64) as usize];
        let Some(wanted) = node.matching.get(&pair).filter(|wanted| wanted.proxy != proxy) else { return };
        let names = (wanted.publisher.name.clone(), wanted.subscriber.name.clone());
        node.proxies.insert(names.clone(), proxy.clone());
        node.matching.set_proxy(names, Some(proxy.clone()));
        self.counts.said += 1;
        self.rescale(id, pair, proxy);
    }

    /// Every third host is cut off.
    pub fn split_some(&mut self) {
        let hosts = self.slots.len().div_ceil(PER_HOST);
        (0..hosts).step_by(3).for_each(|host| self.split_off(host));
        self.counts.splits += hosts.div_ceil(3) as u64;
    }

    /// Ends all disturbances.
    pub fn heal(&mut self) {
        let hosts: BTreeSet<usize> = self.split.keys().copied().collect();
        hosts.into_iter().for_each(|host| self.join(host));
        let stopped: Vec<NodeId> = self.stopped.keys().copied().collect();
        stopped.into_iter().for_each(|id| self.go_on(id));
        for slot in 0..self.slots.len() {
            self.start(slot);
        }
        self.healed = self.now;
    }
}
