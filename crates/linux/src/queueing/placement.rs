//! Place of a marked packet: the tree walked as the kernel walks it, and the outcome compared with unmarked packets. And the longest
//! wait of a packet for less urgent ones, if the queues state their rate.

use super::discipline::{Class, Discipline, Shares};
use super::filter::{Filter, Verdict};
use super::leaf::Leaf;
use super::tree::{Handle, Node, Queues};
use super::wanted::mapped;
use qos::blocking::{Blocking, BulkSender};
use qos::priority::{Dscp, Mark};
use serde::Serialize;
use std::cmp::Ordering;

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
struct Packet {
    tos: u8,
    priority: u32,
    v6: bool,
}

/// The final place of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spot {
    discipline: String,
    place: String,
    rank: u32,
    of: u32,
    /// Chosen by the packet's priority or mark.
    chosen: bool,
    waits: bool,
    dropped: bool,
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

    fn spot(&self, packet: Packet) -> Spot {
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

    /// The effect of a mark: its place compared with its purpose.
    fn judge(&self, spot: &Spot, unmarked: &Spot, packet: Packet) -> (bool, String) {
        let (device, name, wish) = (&self.device, packet.name(), packet.wish());
        let Spot { discipline, place, .. } = spot;
        if spot.dropped {
            return (false, format!("{discipline} on {device} has no class for {name} and drops it"));
        }
        if !spot.waits {
            return match wish {
                Wish::Nothing => (true, format!("no priority is asked for, and nothing queues on {device}")),
                _ => (false, format!("nothing queues on {device}: no packet waits there, so none can be sent first")),
            };
        }
        if wish == Wish::Nothing {
            return (true, format!("{name} is best effort: {place} of {discipline} on {device}"));
        }
        if !spot.chosen {
            return (false, format!("{discipline} on {device} ({place}) looks at no mark; {INSTALL}"));
        }
        let on = format!("of {discipline} on {device}");
        if place == &unmarked.place {
            let remedy = self.remedy(packet, unmarked);
            return (false, format!("{name} lands in {place} = best effort {on}; {remedy}"));
        }
        let (effective, compared) = match (wish, spot.rank.cmp(&unmarked.rank)) {
            (_, Ordering::Equal) => (true, "with a share of its own beside"),
            (wish, Ordering::Less) => (wish == Wish::Ahead, "ahead of"),
            (wish, Ordering::Greater) => (wish == Wish::Behind, "behind"),
        };
        let text = format!("{name} lands in {place} {on}, {compared} best effort ({})", unmarked.place);
        match effective {
            true => (true, text),
            false => (false, format!("{text}; {}", self.remedy(packet, unmarked))),
        }
    }

    /// The class whose packets get the treatment that this mark asks for.
    fn remedy(&self, packet: Packet, unmarked: &Spot) -> String {
        let wanted = match packet.wish() {
            Wish::Behind => qos::Class::Low,
            _ => qos::Class::High,
        };
        let mark = Mark::Class(wanted);
        let spot = self.spot(Packet { tos: mark.tos(), priority: mark.socket_priority(), ..packet });
        match spot.rank == unmarked.rank {
            false => format!("class={wanted} would be {}", spot.place),
            true => INSTALL.to_owned(),
        }
    }

    /// The most microseconds that a packet of this rank waits for less urgent ones: one of them, the largest unit sent
    /// at once, is not interrupted. Its own transmission and equally urgent packets come on top. `None`: no packet is
    /// less urgent, or no token bucket states the rate.
    fn blocking_us(&self, rank: u32, of: u32) -> Option<f64> {
        let (rate, burst) = self.bucket().filter(|_| rank + 1 < of)?;
        let segment = u64::from(self.largest.mtu).saturating_sub(WITHIN_MTU).max(1);
        let sender = BulkSender {
            gso_max_size: self.largest.super_packet.into(),
            gso_max_segs: self.largest.segments.into(),
            segment,
            headers: HEADERS,
            pace: None,
            min_rtt_us: 0,
            tso_rtt_log: 0,
        };
        // A super-packet too large for a token bucket is split before it.
        let largest = sender.largest().min(burst.map_or(u64::MAX, u64::from)).max(segment + HEADERS);
        Some(Blocking { rate, largest, ring: 0, own: 0 }.us())
    }

    /// Total rate in bits per second, and the bytes of the largest packet that passes whole.
    fn bucket(&self) -> Option<(u64, Option<u32>)> {
        let root = self.root()?;
        match root.is {
            Discipline::Tbf { rate, burst, .. } => Some((rate, Some(burst))),
            Discipline::Htb { .. } | Discipline::Hfsc { .. } => {
                let first = |class: &&Node<Class>| [root.handle, Handle::ROOT].contains(&class.parent);
                let mut tops = self.classes.iter().filter(first);
                match (tops.next().map(|class| &class.is), tops.next()) {
                    (Some(Class::Htb(Shares { ceil, .. })), None) => Some((*ceil, None)),
                    (Some(Class::Hfsc { upper_limit: Some(curve), .. }), None) => Some((curve.m2, None)),
                    _ => None,
                }
            }
            _ => None,
        }
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
            // A flow with a queue of its own is told from others by more than its mark; the rest is asked about here.
            Verdict::Depends if filter.target.is_some_and(Leaf::is_handle) => {}
            Verdict::Depends if unsure.is_none() => {
                unsure = Some(format!("a filter on more than the mark may decide otherwise ({filter})"));
            }
            _ => {}
        }
    }
    (None, unsure)
}

/// Purpose of a mark, compared with unmarked packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Ahead,
    Behind,
    Nothing,
}

impl Packet {
    /// The wish of a mark: LE, CS1 and class low (AF11) ask for less than no mark, every other mark for more (RFC 4594, RFC 8622).
    fn wish(self) -> Wish {
        match (self.tos >> 2, qos::priority::band(self.priority)) {
            (1 | 8 | 10, _) | (0, 2) => Wish::Behind,
            (0, 1) => Wish::Nothing,
            _ => Wish::Ahead,
        }
    }
    fn name(self) -> String {
        let dscp = Dscp::new(self.tos >> 2).unwrap_or_default();
        match (dscp.value(), self.priority) {
            (0, 0) => "an unmarked packet".to_owned(),
            (0, priority) => format!("socket priority {priority}"),
            _ => dscp.to_string(),
        }
    }
}

const INSTALL: &str = "`thalweg apply` installs queues that look at marks";

/// Headers of IPv4 and TCP with time stamps, which count towards the MTU.
const WITHIN_MTU: u64 = 52;
/// The same with Ethernet's.
const HEADERS: u64 = 66;

#[cfg(test)]
mod tests {
    use super::super::devices::Largest;
    use super::super::tree::{Counters, Said};
    use super::*;

    fn node<T>(handle: Handle, parent: Handle, is: T) -> Node<T> {
        Node { handle, parent, is, counters: Counters::default(), said: Said::default() }
    }

    fn queues(root: Discipline, classes: Vec<Node<Class>>, super_packet: u32) -> Queues {
        Queues {
            device: "eth0".into(),
            index: 2,
            length: 1000,
            largest: Largest { mtu: 1500, super_packet, segments: 65_535 },
            disciplines: vec![node(Handle::new(1, 0), Handle::ROOT, root)],
            classes,
            filters: Vec::new(),
        }
    }

    #[test]
    fn the_largest_that_is_sent_whole_blocks_for_its_transmission() {
        let tbf = |burst| Discipline::Tbf { rate: 100_000_000, burst, limit: 10_000_000 };
        let us = |root, super_packet| queues(root, Vec::new(), super_packet).blocking_us(0, 3).unwrap();
        assert!((us(tbf(3200), 65_536) - 256.0).abs() < 1e-6, "two packets fit the bucket");
        assert!((us(tbf(70_000), 65_536) - 45.0 * 121.12).abs() < 1e-6, "45 segments");
        assert!((us(tbf(70_000), 3000) - 2.0 * 121.12).abs() < 1e-6, "as many as the device takes");
        assert!((us(tbf(500), 65_536) - 121.12).abs() < 1e-6, "never less than a packet");
        let lowest = queues(tbf(3200), Vec::new(), 65_536);
        assert_eq!((lowest.blocking_us(2, 3), lowest.blocking_us(0, 1)), (None, None), "nothing is less urgent");
        assert_eq!(queues(Discipline::NoQueue, Vec::new(), 65_536).blocking_us(0, 3), None, "no rate");
    }

    #[test]
    fn without_a_bucket_the_rate_is_that_of_the_only_class_at_the_top() {
        let shares = |ceil| Class::Htb(Shares { rate: ceil, ceil, burst: 3200, priority: 0, quantum: 1514 });
        let (root, top) = (Handle::new(1, 0), Handle::new(1, 1));
        let one = vec![node(top, root, shares(50_000_000)), node(Handle::new(1, 2), top, shares(1000))];
        let htb = |classes| queues(Discipline::Htb { default: 2 }, classes, 1500).blocking_us(0, 2);
        assert!((htb(one).unwrap() - 242.24).abs() < 1e-6);
        assert_eq!(htb(vec![node(top, root, shares(5)), node(Handle::new(1, 2), root, shares(5))]), None);
    }
}
