//! Place of a marked packet: the tree walked as the kernel walks it, and the outcome compared with unmarked packets.

use super::class::Class;
use super::discipline::Discipline;
use super::filter::{Filter, Verdict};
use super::tree::{Handle, Node, Queues};
use super::wanted::mapped;
use serde::Serialize;

/// The place of a packet, and the effect of its mark there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placement {
    /// The device.
    pub device: String,
    /// The discipline that decides, such as `pfifo_fast`.
    pub discipline: String,
    /// The band or class, such as `band 1` or `class 1:20`.
    pub place: String,
    /// The rank; 0 is sent first.
    pub rank: u32,
    /// Number of ranks; 1: all are equal.
    pub of: u32,
    /// `true` if packets can wait on this device at all.
    pub waits: bool,
    /// `true` if the packet is treated as its mark asks, compared with unmarked ones.
    pub effective: bool,
    /// The reason, and a change that would help.
    pub because: String,
    /// Longest wait for less urgent packets in microseconds; `None`: there are none, or no rate is known.
    pub blocking_us: Option<f64>,
}

/// The known properties of a packet.
#[derive(Clone, Copy)]
pub(super) struct Packet {
    pub tos: u8,
    pub priority: u32,
    pub v6: bool,
}

/// The final place of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub discipline: String,
    pub place: String,
    pub rank: u32,
    of: u32,
    /// Chosen by the packet's priority or mark.
    pub chosen: bool,
    pub waits: bool,
    pub dropped: bool,
    /// A filter that might decide otherwise.
    unsure: Option<String>,
}

impl Spot {
    /// A discipline that doesn't choose by the packet.
    fn single(discipline: &str, place: &str) -> Self {
        let (discipline, place) = (discipline.to_owned(), place.to_owned());
        Self { discipline, place, rank: 0, of: 1, chosen: false, waits: true, dropped: false, unsure: None }
    }
    /// A band or a class.
    fn chosen(discipline: &str, place: String, rank: u32, of: u32) -> Self {
        Self { rank, of, chosen: true, ..Self::single(discipline, &place) }
    }
    /// The same, one discipline further in.
    fn within(self, inner: Spot) -> Self {
        let place = if inner.chosen { format!("{}, {}", self.place, inner.place) } else { self.place };
        Spot {
            place,
            rank: self.rank * inner.of + inner.rank,
            of: self.of * inner.of,
            unsure: self.unsure.or(inner.unsure),
            ..self
        }
    }
}

/// Limit of nested disciplines, and of filters that lead to filters.
const DEEPEST: u32 = 16;

impl Queues {
    /// The place of a packet with this mark.
    pub fn placement(&self, tos: u8, socket_priority: u32, v6: bool) -> Placement {
        let packet = Packet { tos, priority: socket_priority, v6 };
        let (spot, unmarked) = (self.spot(packet), self.spot(Packet { tos: 0, priority: 0, v6 }));
        let (effective, because) = self.judge(&spot, &unmarked, packet);
        let Spot { discipline, place, rank, of, waits, unsure, .. } = spot;
        let because = match unsure {
            Some(unsure) => format!("{because}; but {unsure}"),
            None => because,
        };
        let blocking_us = self.blocking_us(rank, of).filter(|_| waits);
        Placement { device: self.device.clone(), discipline, place, rank, of, waits, effective, because, blocking_us }
    }

    pub(super) fn spot(&self, packet: Packet) -> Spot {
        let packet = Packet { priority: mapped(self, packet.tos).unwrap_or(packet.priority), ..packet };
        match self.root() {
            Some(root) => self.enter(root, packet, 0),
            None => Spot { waits: false, ..Spot::single("noqueue", "no queue") },
        }
    }

    fn enter(&self, at: &Node<Discipline>, packet: Packet, depth: u32) -> Spot {
        let name = at.is.name();
        let first = |map: &[u8; 16]| u32::from(map[(packet.priority & 15) as usize]);
        let child = |minor| {
            let below = self.below(Handle::new(at.handle.major(), minor)).filter(|_| depth < DEEPEST);
            below.map_or(Spot::single("pfifo", "the only queue"), |below| self.enter(below, packet, depth + 1))
        };
        match &at.is {
            Discipline::NoQueue => Spot { waits: false, ..Spot::single(name, "no queue") },
            Discipline::PfifoFast { map } => {
                let band = first(map);
                Spot::chosen(name, format!("band {band}"), band, 3)
            }
            Discipline::Prio { bands, map } => {
                let (band, unsure) = self.band(at.handle, u32::from(*bands), map, packet);
                let spot = Spot::chosen(name, format!("band {band}"), band, u32::from(*bands));
                Spot { unsure, ..spot }.within(child(band as u16 + 1))
            }
            Discipline::Tbf { .. } | Discipline::Netem { .. } => child(1),
            Discipline::Htb { default } => self.class_spot(at, *default as u16, packet, &child),
            Discipline::Hfsc { default } => self.class_spot(at, *default, packet, &child),
            Discipline::Other(kind) if matches!(&kind[..], "mq" | "mqprio") => self.any_child(at, packet, depth),
            Discipline::Other(_) => Spot::single(name, "a queue per flow"),
            Discipline::Pfifo { .. } | Discipline::Bfifo { .. } => Spot::single(name, "the only queue"),
        }
    }

    /// The hardware's queues are alike; which one a packet takes is chosen by its flow.
    fn any_child(&self, at: &Node<Discipline>, packet: Packet, depth: u32) -> Spot {
        let inside = |d: &&Node<Discipline>| d.parent.major() == at.handle.major() && d.parent != Handle::ROOT;
        match self.disciplines.iter().find(inside).filter(|_| depth < DEEPEST) {
            Some(below) => self.enter(below, packet, depth + 1),
            None => Spot::single(at.is.name(), "a queue of the hardware"),
        }
    }

    /// The band of `prio`: by a class's name as priority, by filters, else by the map (`prio_classify`).
    fn band(&self, handle: Handle, bands: u32, map: &[u8; 16], packet: Packet) -> (u32, Option<String>) {
        let mapped = |priority: u32| u32::from(map[(priority & 15) as usize]);
        let named = Handle(packet.priority);
        let (chosen, unsure) = if named.major() == handle.major() {
            (Some(named), None)
        } else {
            choose(&self.filters_on(handle), packet)
        };
        let band = match chosen {
            None if named.major() != 0 => return (mapped(0), unsure),
            None => return (mapped(packet.priority), unsure),
            Some(class) => u32::from(class.minor()).wrapping_sub(1),
        };
        (if band < bands { band } else { mapped(0) }, unsure)
    }

    /// The class of HTB or HFSC (`htb_classify`, `hfsc_classify`).
    fn class_spot(&self, at: &Node<Discipline>, default: u16, packet: Packet, child: &dyn Fn(u16) -> Spot) -> Spot {
        let handle = at.handle;
        let hfsc = matches!(at.is, Discipline::Hfsc { .. });
        let (class, unsure) = match self.classify(handle, default, packet) {
            (Some(class), unsure) => (class, unsure),
            // No class fits: HTB sends it unshaped, before all classes; HFSC drops it.
            (None, unsure) => {
                let place = if hfsc { "no class: dropped" } else { "no class: unshaped" };
                let of = self.ranks(handle).len().max(1) as u32;
                return Spot { dropped: hfsc, unsure, ..Spot::chosen(at.is.name(), place.to_owned(), 0, of) };
            }
        };
        let ranks = self.ranks(handle);
        let own = rank_of(&class.is);
        let rank = ranks.iter().position(|rank| *rank == own).unwrap_or(0) as u32;
        let spot = Spot::chosen(at.is.name(), format!("class {}", class.handle), rank, ranks.len().max(1) as u32);
        Spot { unsure, ..spot }.within(child(class.handle.minor()))
    }

    fn classify(&self, handle: Handle, default: u16, packet: Packet) -> (Option<&Node<Class>>, Option<String>) {
        let leaf = |handle| self.class(handle).filter(|class| self.is_leaf(class.handle));
        let named = Handle(packet.priority);
        let mut filters_of = handle;
        if named == handle {
            return (None, None);
        }
        if named.major() == handle.major() {
            match leaf(named) {
                Some(class) => return (Some(class), None),
                None if self.class(named).is_some() => filters_of = named,
                None => {}
            }
        }
        let mut unsure = None;
        for _ in 0..DEEPEST {
            let (chosen, doubt) = choose(&self.filters_on(filters_of), packet);
            unsure = unsure.or(doubt);
            match chosen {
                Some(target) if target == handle => return (None, unsure),
                Some(target) => match (leaf(target), self.class(target)) {
                    (Some(class), _) => return (Some(class), unsure),
                    (None, Some(inner)) => filters_of = inner.handle,
                    (None, None) => break,
                },
                None => break,
            }
        }
        (leaf(Handle::new(handle.major(), default)).filter(|_| default != 0), unsure)
    }

    /// The ranks of the leaves below a discipline, the first first.
    fn ranks(&self, handle: Handle) -> Vec<u32> {
        let own = self.classes.iter().filter(|c| c.handle.major() == handle.major() && c.handle.minor() != 0);
        let mut ranks: Vec<u32> = own.filter(|c| self.is_leaf(c.handle)).map(|c| rank_of(&c.is)).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

/// HTB gives the spare rate by priority; HFSC serves real-time curves before link share.
fn rank_of(class: &Class) -> u32 {
    match class {
        Class::Htb(shares) => shares.priority,
        Class::Hfsc { real_time, .. } => u32::from(real_time.is_none()),
        Class::Other(_) => 0,
    }
}

/// The class of the first filter that matches, and the first filter that might.
fn choose(filters: &[&Filter], packet: Packet) -> (Option<Handle>, Option<String>) {
    let mut unsure = None;
    for filter in filters {
        match filter.verdict(packet.tos, packet.v6) {
            Verdict::Yes if filter.target.is_some() => return (filter.target, unsure),
            Verdict::Depends if unsure.is_none() => {
                unsure = Some(format!("a filter on more than the mark may decide otherwise ({filter})"));
            }
            _ => {}
        }
    }
    (None, unsure)
}
