//! Virtual time, the running nodes, and the queue of events.

use super::events::{Conn, Counts, Event};
use super::node::{Node, host_of, relay_name};
use super::ports::{Drawn, Segments};
use super::publisher::PublisherPort;
use crate::carrier::Dice;
use crate::channel::PortRef;
use crate::control::{Change, NodeId, PortId};

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Each node announces a change this often, as a relay tells its load.
pub(super) const NEXT_CHANGE: Duration = Duration::from_secs(4);
/// A node that is silent for this time is gone for the others.
pub(super) const LEASE: Duration = Duration::from_secs(1);
/// Chance that a message is lost while there are disturbances.
const LOSS: f64 = 0.1;

/// Most events of one instant: a machine whose deadline stays in the past would be asked for ever.
const MOST_AT_ONCE: u32 = 100_000;

/// The size of a network.
#[derive(Clone, Copy)]
pub(super) struct Size<'a> {
    /// Nodes of each realm.
    pub realms: &'a [usize],
    /// Ports of each node.
    pub ports: usize,
    /// Relays of each realm, besides, and the percentage of subscribers that want their streams by one.
    pub relays: usize,
    pub by_relay: u64,
}

pub(super) struct World {
    pub seed: u64,
    pub dice: Dice,
    pub base: Instant,
    pub now: Duration,
    /// The number of events at this time.
    at_once: u32,
    queue: BTreeMap<(Duration, u64), Event>,
    number: u64,
    pub realms: Vec<usize>,
    ports: usize,
    by_relay: u64,
    /// The number of starts of each slot.
    starts: Vec<u64>,
    pub nodes: BTreeMap<NodeId, Node>,
    pub slots: Vec<Option<NodeId>>,
    /// The realm of each slot, and the slots of relays.
    pub realm_of: Vec<usize>,
    pub relays: Vec<usize>,
    pub conns: BTreeMap<u64, Conn>,
    /// Hosts that are cut off from the others, and since when.
    pub split: BTreeMap<usize, Duration>,
    /// Nodes that are stopped, since when and until when.
    pub stopped: BTreeMap<NodeId, (Duration, Duration)>,
    /// The time at which a node was stopped, or a host cut off, for the last time.
    pub well_since: BTreeMap<NodeId, Duration>,
    pub joined_since: BTreeMap<usize, Duration>,
    pub disturbed: bool,
    pub last_change: Duration,
    pub healed: Duration,
    pub counts: Counts,
    pub lost_by_mistake: Vec<String>,
}

impl World {
    pub fn new(seed: u64, size: Size) -> Self {
        let (mut realm_of, mut relays) = (Vec::new(), Vec::new());
        for (realm, nodes) in size.realms.iter().enumerate() {
            // The relays of a realm are on different hosts.
            let every = nodes / size.relays.max(1);
            for node in 0..nodes + size.relays {
                if size.relays > 0 && node % (every + 1) == 0 && node / (every + 1) < size.relays {
                    relays.push(realm_of.len());
                }
                realm_of.push(realm);
            }
        }
        let slots = realm_of.len();
        Self {
            seed,
            dice: Dice::new(seed),
            base: Instant::now(), // only an origin of virtual time
            now: Duration::ZERO,
            at_once: 0,
            queue: BTreeMap::new(),
            number: 0,
            realms: size.realms.to_vec(),
            ports: size.ports,
            by_relay: size.by_relay,
            starts: vec![0; slots],
            nodes: BTreeMap::new(),
            slots: vec![None; slots],
            realm_of,
            relays,
            conns: BTreeMap::new(),
            split: BTreeMap::new(),
            stopped: BTreeMap::new(),
            well_since: BTreeMap::new(),
            joined_since: BTreeMap::new(),
            disturbed: false,
            last_change: Duration::ZERO,
            healed: Duration::ZERO,
            counts: Counts::default(),
            lost_by_mistake: Vec::new(),
        }
    }

    pub fn instant(&self) -> Instant {
        self.base + self.now
    }

    pub fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub fn after(&mut self, pause: Duration, event: Event) {
        let number = self.number();
        self.queue.insert((self.now + pause, number), event);
    }

    /// A time up to this one.
    pub fn some(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.dice.below(most.as_micros() as u64))
    }

    /// The delay of a message between two hosts, or within one. Each message has its own delay, so that messages are reordered.
    pub fn delay(&mut self, from: usize, to: usize) -> Duration {
        let most = if host_of(from) == host_of(to) { 2_000 } else { 30_000 };
        Duration::from_micros(50 + self.dice.below(most))
    }

    pub fn loses(&mut self) -> bool {
        let lost = self.disturbed && self.dice.chance(LOSS);
        self.counts.lost += u64::from(lost);
        lost
    }

    /// `true` if the hosts of these slots are cut off from each other.
    pub fn is_cut(&self, one: usize, other: usize) -> bool {
        let (one, other) = (host_of(one), host_of(other));
        one != other && self.split.contains_key(&one) != self.split.contains_key(&other)
    }

    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((at, _), event) = entry.remove_entry();
            self.at_once = if at == self.now { self.at_once + 1 } else { 0 };
            assert!(self.at_once < MOST_AT_ONCE, "seed {}: time stands still at {at:?}", self.seed);
            self.now = at;
            self.counts.events += 1;
            self.happens(event);
        }
        self.now = end;
    }

    pub fn start_all(&mut self) {
        for slot in 0..self.slots.len() {
            let pause = self.some(Duration::from_secs(2));
            self.after(pause, Event::Start(slot));
        }
    }

    pub fn start(&mut self, slot: usize) {
        if self.slots[slot].is_some() {
            return;
        }
        self.starts[slot] += 1;
        let id = NodeId(self.starts[slot] << 16 | slot as u64);
        let realm = format!("realm-{}", self.realm_of[slot]);
        let (bridge, relays) = ((host_of(slot)).is_multiple_of(3), self.relays.contains(&slot));
        self.nodes.insert(id, Node::new(slot, id, realm, (bridge, relays), self.instant()));
        self.slots[slot] = Some(id);
        // Each new node exchanges documents with the nodes that run already.
        for other in self.others(id) {
            self.tell_document(other, id);
            self.tell_document(id, other);
        }
        for _ in 0..if relays { 0 } else { self.ports } {
            self.add_port(id);
        }
        let pause = self.some(NEXT_CHANGE);
        self.after(pause, Event::NextChange(id));
        self.wind(id);
    }

    fn segments(&self, slot: usize) -> Segments {
        let ports = (self.realms[self.realm_of[slot]] * self.ports) as u64;
        let first = (ports / 50).clamp(2, 12);
        (first, (ports / 10 / first).max(2))
    }

    /// The names of the relays in the realm of this slot.
    pub fn relay_names(&self, slot: usize) -> Vec<String> {
        let its = self.relays.iter().filter(|relay| self.realm_of[**relay] == self.realm_of[slot]);
        its.map(|relay| relay_name(*relay)).collect()
    }

    pub fn add_port(&mut self, id: NodeId) {
        let slot = slot_of(id);
        if self.relays.contains(&slot) {
            return;
        }
        let (segments, mut relays) = (self.segments(slot), self.relay_names(slot));
        if self.dice.below(100) >= self.by_relay {
            relays.clear();
        }
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.next_port += 1;
        let port = PortId(node.next_port);
        let drawn = Drawn::new(format!("/{id}/port{}", port.0), &mut self.dice, (segments, relays));
        let (info, now) = (drawn.info(), self.base + self.now);
        if drawn.publishes {
            node.publisher_ports.insert(port, Rc::<PublisherPort>::default());
        }
        let actions = node.ask(|matching, known, _| matching.own_added(port, &info, known, now));
        node.drawn.insert(port, drawn);
        self.act(id, actions);
        self.announce(id, Change { added: [(port, info)].into(), ..Change::default() });
    }

    pub fn remove_port(&mut self, id: NodeId, port: PortId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(drawn) = node.drawn.remove(&port) else { return };
        let actions = node.matching.own_removed(port);
        self.act(id, actions);
        if drawn.publishes {
            self.close_publisher(id, PortRef { node: id, port });
        }
        self.announce(id, Change { removed: vec![port], ..Change::default() });
    }

    /// Milliseconds from the last disturbance to the last channel that was opened or ended.
    pub fn last_disturbance_ago(&self) -> u64 {
        self.last_change.saturating_sub(self.healed).as_millis() as u64
    }
}

pub(super) fn slot_of(id: NodeId) -> usize {
    (id.0 & 0xffff) as usize
}
