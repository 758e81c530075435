//! Ports that are drawn at random, and the rule by which two of them belong together.

use crate::carrier::Dice;
use crate::codec::TypeDescription;
use crate::control::{Direction, PortInfo};
use qos::{Place, Qos, Reliability};
use std::time::Duration;

const TYPES: [&str; 3] = ["image", "pose", "text"];

/// The topics `/aI/bJ` that a port publishes or subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topics {
    One(u64, u64),
    /// `/aI/*`
    Segment(u64),
    /// `/aI/**`
    Below(u64),
}

/// The numbers of first and second segments of topics.
pub(super) type Segments = (u64, u64);

/// The drawn properties of a port.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub name: String,
    pub publishes: bool,
    topics: Topics,
    kind: usize,
    reliable: bool,
    /// The offered or requested deadline in milliseconds.
    deadline: Option<u64>,
    carriers: &'static [&'static str],
    /// The place of a subscriber's proxy: its relays, the preferred one first.
    pub place: Place,
}

/// One of these relays, or all of them in some order.
pub(super) fn some_relays(dice: &mut Dice, mut relays: Vec<String>) -> Place {
    if relays.is_empty() {
        return Place::Publisher;
    }
    let first = dice.below(relays.len() as u64) as usize;
    relays.rotate_left(first);
    relays.truncate(1 + dice.below(relays.len() as u64) as usize);
    Place::Relay(relays.join(","))
}

impl Drawn {
    /// A port of a realm; as a subscriber it wants some of these relays.
    pub fn new(name: String, dice: &mut Dice, ((first, second), relays): (Segments, Vec<String>)) -> Self {
        let publishes = dice.chance(0.5);
        let (a, b) = (dice.below(first), dice.below(second));
        let topics = match dice.below(20) {
            0 if !publishes => Topics::Below(a),
            1 | 2 if !publishes => Topics::Segment(a),
            _ => Topics::One(a, b),
        };
        let usual = (a % 3) as usize;
        let kind = if dice.chance(0.05) { dice.below(3) as usize } else { usual };
        let carriers: &[&str] = match dice.below(20) {
            0 => &["udp"],
            1..=3 => &["tcp"],
            4 | 5 => &["shm", "tcp"],
            _ => &["local", "shm", "tcp", "udp", "mcast"],
        };
        let deadline = match dice.below(10) {
            0 => Some(20),
            1..=4 if publishes => Some(10),
            _ => None,
        };
        let reliable = dice.chance(if publishes { 0.8 } else { 0.5 });
        let place = if publishes { Place::Publisher } else { some_relays(dice, relays) };
        Self { name, publishes, topics, kind, reliable, deadline, carriers, place }
    }

    pub fn info(&self) -> PortInfo {
        let topic = match self.topics {
            Topics::One(a, b) => format!("/a{a}/b{b}"),
            Topics::Segment(a) => format!("/a{a}/*"),
            Topics::Below(a) => format!("/a{a}/**"),
        };
        let reliability = if self.reliable { Reliability::Reliable } else { Reliability::BestEffort };
        PortInfo {
            direction: if self.publishes { Direction::Publisher } else { Direction::Subscriber },
            topic,
            message: TypeDescription::opaque(TYPES[self.kind]),
            qos: Qos {
                reliability,
                deadline: self.deadline.map(Duration::from_millis),
                place: self.place.clone(),
                ..Qos::default()
            },
            carriers: self.carriers.iter().map(|carrier| (*carrier).into()).collect(),
            ..crate::testing::port_info(&self.name)
        }
    }

    /// `true` if this publisher and that subscriber of one realm belong together. Connected `by_name`, topics do not keep them apart.
    pub fn fits(&self, subscriber: &Drawn, by_name: bool) -> bool {
        let Topics::One(a, _) = self.topics else { return false };
        let topic = match subscriber.topics {
            Topics::One(..) => self.topics == subscriber.topics,
            Topics::Segment(of) | Topics::Below(of) => of == a,
        };
        let on_time = subscriber.deadline.is_none_or(|asked| self.deadline.is_some_and(|offered| offered <= asked));
        let carrier = self.carriers.iter().any(|carrier| subscriber.carriers.contains(carrier));
        let policies = self.kind == subscriber.kind && (self.reliable || !subscriber.reliable) && on_time;
        self.publishes && !subscriber.publishes && policies && (by_name || topic) && carrier
    }
}
