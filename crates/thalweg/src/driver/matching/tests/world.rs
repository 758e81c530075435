//! Virtual time, the running nodes, and the events between them.

use super::node::{Node, host_of};
use super::ports::Drawn;
use crate::carrier::Dice;
use crate::control::{Change, Document, NodeId, PortId};
use crate::driver::matching::Pair;
use crate::handshake::{Refused, Request};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Each node announces a change this often, as a relay tells its load.
pub(super) const NEXT_CHANGE: Duration = Duration::from_secs(4);
/// A node that is silent for this time is gone for the others.
pub(super) const LEASE: Duration = Duration::from_secs(1);
/// Chance that a message is lost while there are disturbances.
const LOSS: f64 = 0.1;
/// The size of a network.
#[derive(Clone, Copy)]
pub(super) struct Size<'a> {
    /// Nodes of each realm.
    pub realms: &'a [usize],
    /// Ports of each node.
    pub ports: usize,
}

/// A message from one node to another about itself.
pub(super) enum Said {
    Document(Box<Document>),
    Change(NodeId, Arc<Change>),
    Gone(NodeId),
}

pub(super) enum Event {
    Said {
        to: NodeId,
        from: NodeId,
        said: Said,
    },
    AskDocument {
        to: NodeId,
        from: NodeId,
    },
    Timer(NodeId),
    Request(u64),
    Answer(u64, Result<(), Box<Refused>>),
    /// No node is at the address.
    Unreached(u64),
    TooLate(u64),
    /// One end learns that the connection is over, or gives it up.
    Ended {
        conn: u64,
        publisher: bool,
        at_last: Duration,
    },
    Start(usize),
    NextChange(NodeId),
    Heal(usize),
    /// A lease is over: a node that is still cut off is gone.
    Lease {
        to: NodeId,
        from: NodeId,
    },
    /// One end gives up if the other is still cut off.
    Silent {
        conn: u64,
        publisher: bool,
    },
}

/// A connection of a handshake and its channel.
pub(super) struct Conn {
    /// The request, until it arrives.
    pub request: Option<Box<Request>>,
    pub pair: Pair,
    pub subscriber: NodeId,
    /// The slot that the connection leads to.
    pub target: usize,
    pub tcp: bool,
    /// The node that was reached.
    pub reached: Option<NodeId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub events: u64,
    pub lost: u64,
    pub refreshes: u64,
    pub requests: u64,
    pub refused: BTreeMap<String, u64>,
    pub opened: u64,
    pub ended: u64,
    pub crashes: u64,
    pub splits: u64,
    pub moved_ports: u64,
    pub said: u64,
    /// Milliseconds from the last disturbance to the last change, by round.
    pub settled: Vec<u64>,
}

pub(super) struct World {
    pub seed: u64,
    pub dice: Dice,
    pub base: Instant,
    pub now: Duration,
    queue: BTreeMap<(Duration, u64), Event>,
    number: u64,
    pub realms: Vec<usize>,
    ports: usize,
    /// The number of starts of each slot.
    starts: Vec<u64>,
    pub nodes: BTreeMap<NodeId, Node>,
    pub slots: Vec<Option<NodeId>>,
    /// The realm of each slot.
    pub realm_of: Vec<usize>,
    pub conns: BTreeMap<u64, Conn>,
    /// Hosts that are cut off from the others, and since when.
    pub split: BTreeMap<usize, Duration>,
    pub disturbed: bool,
    pub last_change: Duration,
    pub healed: Duration,
    pub counts: Counts,
    pub lost_by_mistake: Vec<String>,
}

impl World {
    pub fn new(seed: u64, size: Size) -> Self {
        let realm_of: Vec<usize> =
            size.realms.iter().enumerate().flat_map(|(realm, nodes)| vec![realm; *nodes]).collect();
        let slots = realm_of.len();
        Self {
            seed,
            dice: Dice::new(seed),
            base: Instant::now(), // only an origin of virtual time
            now: Duration::ZERO,
            queue: BTreeMap::new(),
            number: 0,
            realms: size.realms.to_vec(),
            ports: size.ports,
            starts: vec![0; slots],
            nodes: BTreeMap::new(),
            slots: vec![None; slots],
            realm_of,
            conns: BTreeMap::new(),
            split: BTreeMap::new(),
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
            self.now = at;
            self.counts.events += 1;
            self.happens(event);
        }
        self.now = end;
    }

    pub fn start_all(&mut self) {
        for slot in 0..self.slots.len() {
            let pause = Duration::from_micros(self.dice.below(2_000_000));
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
        let bridge = (host_of(slot)).is_multiple_of(3);
        self.nodes.insert(id, Node::new(slot, id, realm, bridge, self.now.as_nanos() as u64 + 1));
        self.slots[slot] = Some(id);
        // Each new node exchanges documents with the nodes that run already.
        for other in self.others(id) {
            self.tell_document(other, id);
            self.tell_document(id, other);
        }
        for _ in 0..self.ports {
            self.add_port(id);
        }
        let pause = Duration::from_micros(self.dice.below(NEXT_CHANGE.as_micros() as u64));
        self.after(pause, Event::NextChange(id));
    }

    fn segments(&self, slot: usize) -> (u64, u64) {
        let ports = (self.realms[self.realm_of[slot]] * self.ports) as u64;
        let first = (ports / 50).clamp(2, 12);
        (first, (ports / 10 / first).max(2))
    }

    pub fn add_port(&mut self, id: NodeId) {
        let slot = slot_of(id);
        let segments = self.segments(slot);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.next_port += 1;
        let port = PortId(node.next_port);
        let drawn = Drawn::new(format!("/{id}/port{}", port.0), &mut self.dice, segments);
        let (info, now) = (drawn.info(), self.base + self.now);
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
            self.close_served(id, |served| served.pair.0.port == port);
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
