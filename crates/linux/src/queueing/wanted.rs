//! The wanted queues of a device, and the steps that make them: in the kernel's form, and as commands of `tc`.
//!
//! The wire comes first: a token bucket (`tbf`) just below the link's rate, so that packets wait here, where marks count,
//! and not in hardware or a switch. HTB or HFSC alone are no wire: a class within its guarantee is sent at once, even
//! while another's packet is still being sent. So classes stand below the token bucket, and below a class faster than it.

use super::boundary::Boundary;
use super::discipline::{Class as QueueClass, Curve, DEFAULT_MAP, Discipline, Shares};
use super::filter::Filter;
use super::leaf::{Leaf, MARK_PREFERENCE, MOST_LEAVES, Whose};
use super::map::{Hook, PriorityMap};
use super::tree::{CLASS, DISCIPLINE, FILTER, Handle, Node, Queues, Said};
use super::{QueueError, devices, map};
use crate::netlink::{CREATE, REPLACE, Socket, attribute, put, u32_at, words};
use qos::Class;
use qos::priority::{CONTROL, Dscp};
use std::fmt;

/// The wanted queues of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The device's name.
    pub device: String,
    /// Rate of the link, in bits per second.
    pub rate: u64,
    /// Bytes that each packet has more on the link than on this device: it is a tunnel's.
    pub encapsulation: u32,
    /// Packets come here with an MPLS label, too, whose traffic class says their class ([`traffic_class`]): this host put it there.
    pub labels: bool,
    /// Most packets that wait in each queue.
    pub queue: u32,
    /// The order of service.
    pub scheduler: Scheduler,
    /// Most segments of a super-packet that the device is given (`gso_max_segs`); `None`: as it was.
    pub segments: Option<u32>,
    /// Set the priority of packets by their code point before they queue here, for traffic that other hosts marked.
    pub map: Option<Hook>,
    /// The boundary of a domain is here: forwarded packets that come in by this device with a mark of class high or critical, and are of
    /// no flow with a leaf, get CS0.
    pub boundary: bool,
}

/// The order of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// No priority: one queue.
    Fifo,
    /// Bands of `pfifo_fast`, by socket priority: critical and high, normal, low.
    Strict,
    /// Bands of `prio`, by code point or socket priority: critical, high, normal, low.
    StrictPrio,
    /// HTB: guaranteed shares; the spare rate goes to the highest class first. And flows with a queue and a rate of their own, at most
    /// [`MOST_LEAVES`](super::MOST_LEAVES).
    Htb(PerClass<Share>, Vec<Leaf>),
    /// HFSC: service curves.
    Hfsc(PerClass<Service>),
}

/// One value for each class, in the order of [`Class::ALL`]: low, normal, high, critical.
pub type PerClass<T> = [T; 4];

/// The share of a class under HTB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Guaranteed, in bits per second.
    pub rate: u64,
    /// Upper limit in bits per second; `None`: all of the spare rate.
    pub ceil: Option<u64>,
    /// Priority for the spare rate: 0 first, … 7; `None`: by class, critical 1, high 3, normal 5, low 7. Leaves of a class have the one before.
    pub priority: Option<u32>,
}

/// The service of a class under HFSC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// The guarantee.
    pub real_time: Option<Curve>,
    /// The share of the spare rate.
    pub link_share: Option<Curve>,
    /// The upper limit.
    pub upper_limit: Option<Curve>,
}

impl Service {
    /// A share of the rate in the long run, in bits per second. With a delay, in microseconds, a first slope sends a full packet
    /// within it.
    pub fn new(share: u64, delay_us: Option<u32>, ceiling: Option<u64>) -> Self {
        const PACKET_BITS: u64 = 1514 * 8;
        let link_share = Curve::linear(share);
        let real_time = delay_us.map_or(link_share, |d_us| {
            let m1 = (PACKET_BITS * 1_000_000 / u64::from(d_us.max(1))).max(share);
            Curve { m1, d_us, m2: share }
        });
        Self { real_time: Some(real_time), link_share: Some(link_share), upper_limit: ceiling.map(Curve::linear) }
    }
}

/// Slowest rate of a device, in bits per second: one packet in twelve seconds.
pub const SLOWEST: u64 = 1000;
/// Longest queue in packets.
pub const LONGEST: u32 = qos::system::LONGEST_QUEUE;
/// Most segments of a super-packet (`GSO_MAX_SEGS`).
pub const MOST_SEGMENTS: u32 = 65_535;

/// The major number of the first discipline that Thalweg installs; it tells ours from others'.
pub const OURS: u16 = 0x7a1;
/// The same with a priority map before it: it shows users who can read queues, but not nft tables, that there is a
/// map.
pub const OURS_MAPPED: u16 = 0x7a3;
/// The discipline below it.
pub(super) const INNER: u16 = 0x7a2;
/// The largest packet on the wire with its link-layer header, in bytes.
pub(super) const PACKET: u32 = 1514;

/// TOS octets and masks in the order of the filters, and the class of the first match; the rest is normal. By the
/// upper three bits (class selectors), but VA and EF are critical, and LE is low (RFC 2474, 4594, 5865, 8622).
pub const MARKS: [(u8, u8, Class); 9] = [
    (0xb0, 0xfc, Class::Critical),
    (0xb8, 0xfc, Class::Critical),
    (0xc0, 0xc0, Class::Critical),
    (0xa0, 0xe0, Class::High),
    (0x80, 0xe0, Class::High),
    (0x60, 0xe0, Class::High),
    (0x40, 0xe0, Class::High),
    (0x20, 0xe0, Class::Low),
    (0x04, 0xfc, Class::Low),
];

/// The class in whose queue a code point waits.
pub fn class_of(dscp: Dscp) -> Class {
    let found = MARKS.iter().find(|(value, mask, _)| dscp.tos() & mask == *value);
    found.map_or(Class::Normal, |(_, _, class)| *class)
}

/// The traffic class of an MPLS label (3 bits, RFC 5462) in front of a packet with this code point: its class selector, but 5 is VA and EF
/// alone, and 3 control traffic alone. So a packet waits in the same queue with a label as without.
pub fn traffic_class(dscp: Dscp) -> u8 {
    match (class_of(dscp), dscp.tos() >> 5) {
        _ if dscp == CONTROL => CONTROL_LABELLED,
        (Class::High, 3 | 5) => 4,
        (Class::Low, 0) => 1,
        (_, selector) => selector,
    }
}

/// The traffic class of control traffic.
const CONTROL_LABELLED: u8 = 3;

/// Traffic classes of labels, and the classes in whose queues they wait; 0 is normal. Control traffic has a queue of its own where there is one.
const LABELLED: [(u8, Class); 7] = [
    (7, Class::Critical),
    (6, Class::Critical),
    (5, Class::Critical),
    (4, Class::High),
    (3, Class::High),
    (2, Class::High),
    (1, Class::Low),
];

/// The class's place in the tree: minor 10 critical, 20 high, 30 normal, 40 low. (Control traffic has 50.)
pub(super) fn class_handle(class: Class) -> Handle {
    Handle::new(INNER, 0x40 - 0x10 * class as u16)
}

/// The class's band of `prio`: minor 1 critical … 4 low.
pub(super) fn band(class: Class) -> Handle {
    Handle::new(INNER, 4 - class as u16)
}

/// The priority that our map, if there is one, gives packets with this TOS octet before they reach these queues.
pub(crate) fn mapped(queues: &Queues, tos: u8) -> Option<u32> {
    queues.root().filter(|root| root.handle.major() == OURS_MAPPED)?;
    let dscp = Dscp::new(tos >> 2)?;
    let class = class_of(dscp);
    let inner = queues.disciplines.iter().find(|d| d.handle == Handle::new(INNER, 0))?;
    Some(match &inner.is {
        Discipline::Prio { .. } => band(class).0,
        Discipline::Htb { .. } if dscp == CONTROL && queues.class(Leaf::control()).is_some() => Leaf::control().0,
        Discipline::Htb { .. } | Discipline::Hfsc { .. } => class_handle(class).0,
        _ => class.socket_priority(),
    })
}

/// Bytes that a token bucket may send at once: two packets, or 250 µs of a fast link.
fn burst(rate: u64) -> u32 {
    u32::try_from(rate / 8 / 4000).unwrap_or(u32::MAX).max(2 * PACKET + 172)
}

impl Wanted {
    /// The steps from no queues to these, in order.
    pub fn steps(&self) -> Vec<Step> {
        let inner = Handle::new(INNER, 0);
        let discipline = |parent, handle, is| Step::Discipline { parent, handle, is, more: 0 };
        let first = if self.map.is_some() { OURS_MAPPED } else { OURS };
        let below = |is| discipline(Handle::new(first, 1), inner, is);
        // The token bucket's own limit counts only while it has no child.
        let wire = Discipline::Tbf { rate: self.rate, burst: burst(self.rate), limit: 10_000_000 };
        let (parent, handle) = (Handle::ROOT, Handle::new(first, 0));
        let mut steps = vec![Step::Discipline { parent, handle, is: wire, more: self.encapsulation }];
        match &self.scheduler {
            Scheduler::Fifo => steps.push(below(Discipline::Pfifo { limit: self.queue })),
            Scheduler::Strict => {
                steps.insert(0, Step::Length(self.queue));
                steps.push(below(Discipline::PfifoFast { map: DEFAULT_MAP }));
            }
            Scheduler::StrictPrio => {
                steps.push(below(Discipline::Prio { bands: 4, map: DEFAULT_MAP.map(|band| band + 1) }));
                steps.extend(self.queues(band));
            }
            Scheduler::Htb(shares, leaves) => {
                steps.push(below(Discipline::Htb { default: u32::from(class_handle(Class::Normal).minor()) }));
                steps.extend(self.htb_classes(inner, shares));
                let flows = leaves.iter().take(MOST_LEAVES).enumerate();
                steps.extend(flows.flat_map(|(number, leaf)| leaf.steps(number, Handle::new(INNER, 1))));
                steps.extend(self.queues(class_handle));
            }
            Scheduler::Hfsc(services) => {
                steps.push(below(Discipline::Hfsc { default: class_handle(Class::Normal).minor() }));
                steps.extend(self.hfsc_classes(inner, services));
                steps.extend(self.queues(class_handle));
            }
        }
        steps.extend(self.segments.map(Step::Segments));
        steps
    }

    /// Faster than the wire, so that the spare rate can be lent.
    fn above(&self) -> u64 {
        self.rate.saturating_mul(10)
    }

    fn htb_classes(&self, inner: Handle, shares: &PerClass<Share>) -> Vec<Step> {
        let top = Handle::new(INNER, 1);
        let above = self.above();
        let class = |parent, handle, rate, ceil, priority| {
            let shares = Shares { rate, ceil, burst: burst(rate), priority, quantum: PACKET };
            Step::Class { parent, handle, is: QueueClass::Htb(shares) }
        };
        let classes = Class::ALL.into_iter().zip(shares).rev().map(|(name, share)| {
            let priority = share.priority.unwrap_or(7 - 2 * name as u32);
            class(top, class_handle(name), share.rate, share.ceil.unwrap_or(above), priority)
        });
        [class(inner, top, above, above, 0)].into_iter().chain(classes).collect()
    }

    fn hfsc_classes(&self, inner: Handle, services: &PerClass<Service>) -> Vec<Step> {
        let top = Handle::new(INNER, 1);
        let class = |parent, handle, service: &Service| {
            let Service { real_time, link_share, upper_limit } = *service;
            Step::Class { parent, handle, is: QueueClass::Hfsc { real_time, link_share, upper_limit } }
        };
        let all = Service { real_time: None, link_share: Some(Curve::linear(self.above())), upper_limit: None };
        let classes = Class::ALL.into_iter().zip(services).rev();
        let classes = classes.map(|(name, service)| class(top, class_handle(name), service));
        [class(inner, top, &all)].into_iter().chain(classes).collect()
    }

    /// A queue for each class, and the filters that put packets there.
    fn queues(&self, place: impl Fn(Class) -> Handle) -> Vec<Step> {
        let queue = |class| Step::Discipline {
            parent: place(class),
            handle: Handle::new(0x7a40 - 0x10 * class as u16, 0),
            is: Discipline::Pfifo { limit: self.queue },
            more: 0,
        };
        let filter = |v6: bool, (value, mask, class): (u8, u8, Class)| Step::Filter {
            parent: Handle::new(INNER, 0),
            is: Filter::on_mark(v6, MARK_PREFERENCE + u16::from(v6), value, mask, place(class)),
        };
        let queues = Class::ALL.into_iter().rev().map(queue);
        let filters = [false, true].into_iter().flat_map(|v6| MARKS.map(|mark| filter(v6, mark)));
        let labelled = |(value, class): (u8, Class)| {
            let control = self.control().filter(|_| value == CONTROL_LABELLED);
            let target = control.unwrap_or_else(|| place(class));
            Step::Filter { parent: Handle::new(INNER, 0), is: Filter::on_label(MARK_PREFERENCE + 2, value, target) }
        };
        let labelled = LABELLED.map(labelled).into_iter().filter(|_| self.labels);
        queues.chain(filters).chain(labelled).collect()
    }

    /// The priority map before these queues, if one was asked for.
    pub fn priority_map(&self) -> Option<PriorityMap> {
        let priorities = match &self.scheduler {
            Scheduler::Fifo | Scheduler::Strict => Class::ALL.map(Class::socket_priority),
            Scheduler::StrictPrio => Class::ALL.map(|class| band(class).0),
            Scheduler::Htb(..) | Scheduler::Hfsc(_) => Class::ALL.map(|class| class_handle(class).0),
        };
        let flows =
            || self.leaves().iter().enumerate().filter_map(|(n, leaf)| Some((leaf.flow()?, Leaf::handle(n)))).collect();
        let control = self.control();
        self.map.map(|hook| PriorityMap { device: self.device.clone(), hook, priorities, flows: flows(), control })
    }

    /// The class for control traffic, if there is one.
    fn control(&self) -> Option<Handle> {
        self.leaves().iter().any(|leaf| leaf.whose == Whose::Control).then(Leaf::control)
    }

    /// Flows with a queue and rate of their own.
    pub fn leaves(&self) -> &[Leaf] {
        match &self.scheduler {
            Scheduler::Htb(_, leaves) => leaves,
            _ => &[],
        }
    }
}

/// The commands that would make these queues and boundaries, one per line.
pub fn commands(wanted: &[Wanted], boundaries: &[Boundary]) -> Vec<String> {
    let each = |one: &Wanted| one.steps().iter().map(|step| step.command(&one.device)).collect::<Vec<_>>();
    wanted.iter().flat_map(each).chain(map::commands(wanted, boundaries)).collect()
}

/// One change to a device's queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The device's own queue gets this length in packets (`pfifo_fast` has no other limit).
    Length(u32),
    /// The device is given super-packets of at most so many segments.
    Segments(u32),
    /// A discipline; the first one replaces the existing one.
    Discipline {
        /// [`Handle::ROOT`] or a class.
        parent: Handle,
        /// Its own.
        handle: Handle,
        /// The discipline.
        is: Discipline,
        /// Bytes that each packet counts more than it has, here and below (`tc … stab overhead`).
        more: u32,
    },
    /// A class.
    Class {
        /// A discipline or another class.
        parent: Handle,
        /// Its own.
        handle: Handle,
        /// The class.
        is: QueueClass,
    },
    /// A filter.
    Filter {
        /// Its parent.
        parent: Handle,
        /// The filter.
        is: Filter,
    },
}

impl Step {
    /// Carries it out on the device with this index.
    pub(crate) fn take(&self, socket: &mut Socket, device: &str, index: u32) -> Result<(), QueueError> {
        let Some((kind, said)) = self.message() else {
            return match self {
                Step::Length(length) => devices::set_length(socket, index, *length),
                Step::Segments(most) => devices::set_segments(socket, index, *most, true),
                _ => Ok(()),
            };
        };
        let flags = if said.parent == Handle::ROOT.0 && kind == DISCIPLINE { REPLACE } else { CREATE };
        let answer = socket.ask(kind, flags, &said.request(index))?;
        answer.map(drop).map_err(|refusal| QueueError::refused(self.command(device), refusal))
    }

    /// The message that does it.
    pub(crate) fn message(&self) -> Option<(u16, Said)> {
        let said = |parent: Handle, handle: Handle, info, name: &str, options| Said {
            parent: parent.0,
            handle: handle.0,
            info,
            name: name.to_owned(),
            options,
            sizes: None,
        };
        match self {
            Step::Length(_) | Step::Segments(_) => None,
            Step::Discipline { parent, handle, is, more } => {
                let said = said(*parent, *handle, 0, is.name(), is.options());
                Some((DISCIPLINE, Said { sizes: (*more > 0).then(|| sizes(*more)), ..said }))
            }
            Step::Class { parent, handle, is } => Some((CLASS, said(*parent, *handle, 0, is.name(), is.options()))),
            Step::Filter { parent, is } => {
                Some((FILTER, said(*parent, Handle::default(), is.info(), "u32", is.options())))
            }
        }
    }

    /// The command that does the same.
    pub fn command(&self, device: &str) -> String {
        match self {
            Step::Length(length) => format!("ip link set dev {device} txqueuelen {length}"),
            Step::Segments(most) => format!("ip link set dev {device} gso_max_segs {most}; ip route flush cache"),
            Step::Discipline { parent: Handle::ROOT, handle, is, more: 0 } => {
                format!("tc qdisc replace dev {device} root handle {handle} {is}")
            }
            Step::Discipline { parent: Handle::ROOT, handle, is, more } => {
                format!(
                    "tc qdisc replace dev {device} root handle {handle} stab overhead {more} linklayer ethernet {is}"
                )
            }
            Step::Discipline { parent, handle, is, .. } => {
                format!("tc qdisc add dev {device} parent {parent} handle {handle} {is}")
            }
            Step::Class { parent, handle, is } => {
                format!("tc class add dev {device} parent {parent} classid {handle} {is}")
            }
            Step::Filter { parent, is } => format!("tc filter add dev {device} parent {parent} {is}"),
        }
    }

    /// `true` if `queues` show it done. Numbers are compared as the kernel rounds them.
    pub(crate) fn is_done(&self, queues: &Queues) -> bool {
        let options = |options: Option<Vec<u8>>| options.unwrap_or_default();
        match self {
            Step::Length(length) => queues.length == *length,
            Step::Segments(most) => queues.largest.segments == *most,
            Step::Discipline { parent, handle, is, more } => {
                let rounded = Discipline::read(is.name(), &options(is.options()));
                let same = |found: &Discipline| match is {
                    Discipline::PfifoFast { .. } | Discipline::NoQueue => found.name() == is.name(),
                    _ => *found == rounded,
                };
                let counts = |said: &Said| said.sizes.as_deref().map_or(0, overhead) == *more;
                let there = |d: &Node<Discipline>| (d.parent, d.handle) == (*parent, *handle);
                queues.disciplines.iter().any(|d| there(d) && same(&d.is) && counts(&d.said))
            }
            Step::Class { handle, is, .. } => {
                let rounded = QueueClass::read(is.name(), &options(is.options()));
                queues.class(*handle).is_some_and(|class| class.is == rounded)
            }
            Step::Filter { parent, is } => queues.filters_on(*parent).contains(&is),
        }
    }
}

/// `TCA_STAB_BASE`
const SIZES: u16 = 1;
/// `TC_LINKLAYER_ETHERNET`
const ETHERNET: u32 = 1;

/// A size table without a table: `struct tc_sizespec`.
fn sizes(more: u32) -> Vec<u8> {
    let mut sizes = Vec::new();
    put(&mut sizes, SIZES, &words([0, more, ETHERNET, 0, 0, 0]));
    sizes
}

/// The bytes that a size table adds to each packet.
fn overhead(sizes: &[u8]) -> u32 {
    attribute(sizes, SIZES).and_then(|base| u32_at(base, 4)).unwrap_or(0)
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.command("DEV"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_point_has_its_class() {
        let class = |value| class_of(Dscp::new(value).unwrap());
        assert_eq!([44, 46, 48, 56, 63].map(class), [Class::Critical; 5]);
        assert_eq!([16, 18, 26, 34, 36, 38, 40].map(class), [Class::High; 7]);
        assert_eq!([1, 8, 10, 12, 14].map(class), [Class::Low; 5]);
        assert_eq!([0, 2, 7].map(class), [Class::Normal; 3]);
        for own in Class::ALL {
            assert_eq!(class(own.dscp()), own);
        }
    }

    #[test]
    fn a_map_gives_control_traffic_its_class() {
        let share = Share { rate: 10_000_000, ceil: None, priority: None };
        let leaf = Leaf { class: Class::High, rate: 500_000, burst: 4542, queue: 100, whose: Whose::Control };
        let wanted = |leaves: Vec<Leaf>| Wanted {
            device: "eth0".to_owned(),
            rate: 100_000_000,
            encapsulation: 0,
            queue: 100,
            scheduler: Scheduler::Htb([share; 4], leaves),
            segments: None,
            labels: false,
            map: Some(Hook::Router),
            boundary: false,
        };
        let with = wanted(vec![leaf]);
        let priorities =
            |wanted: &Wanted| [0, 40, 34, 36].map(|dscp| wanted.priority_map().unwrap().priority(dscp << 2));
        assert_eq!(priorities(&with), [0x07a2_0030, 0x07a2_0050, 0x07a2_0020, 0x07a2_0020]);
        assert_eq!(priorities(&wanted(Vec::new()))[1], 0x07a2_0020, "without a leaf it is class high");
        assert!(
            commands(std::slice::from_ref(&with), &[]).iter().any(|command| command.contains("40 : 7a2:50, 41-43 : "))
        );
        // Behind a label it is told by that.
        let labelled = |wanted: Wanted| commands(&[Wanted { labels: true, ..wanted }], &[]).join("\n");
        let filter = "protocol 0x8847 pref 103 u32 match u32 0x00000600 0x00000e00 at 0 flowid 7a2:";
        assert!(labelled(with).contains(&format!("{filter}50")));
        assert!(labelled(wanted(Vec::new())).contains(&format!("{filter}20")));
    }

    #[test]
    fn a_label_s_traffic_class_says_the_class_of_every_code_point() {
        for dscp in (0..64).filter_map(Dscp::new) {
            let class = traffic_class(dscp);
            let said = LABELLED.iter().find(|(value, _)| *value == class).map_or(Class::Normal, |(_, said)| *said);
            assert_eq!((said, class < 8), (class_of(dscp), true), "{dscp:?} {class}");
            assert_eq!(class == CONTROL_LABELLED, dscp == CONTROL, "{dscp:?}");
        }
        assert_eq!(Class::ALL.map(|class| traffic_class(Dscp::new(class.dscp()).unwrap())), [1, 0, 4, 5]);
    }

    #[test]
    fn steps_are_said_as_tc_takes_them() {
        let share = |percent: u64| Share { rate: percent * 1_000_000, ceil: None, priority: None };
        let wanted = Wanted {
            device: "eth0".to_owned(),
            rate: 100_000_000,
            encapsulation: 0,
            labels: false,
            queue: 100,
            scheduler: Scheduler::Htb([20, 45, 30, 5].map(share), Vec::new()),
            segments: Some(1),
            map: None,
            boundary: false,
        };
        let tunnelled = Wanted { encapsulation: 50, ..wanted.clone() };
        let first =
            "tc qdisc replace dev eth0 root handle 7a1: stab overhead 50 linklayer ethernet tbf rate 100000000bit";
        assert!(commands(&[tunnelled], &[])[0].starts_with(first));
        let labelled = commands(&[Wanted { labels: true, ..wanted.clone() }], &[]);
        let critical = "tc filter add dev eth0 parent 7a2: protocol 0x8847 pref 103 u32 match u32 0x00000a00 0x00000e00 at 0 flowid 7a2:10";
        assert!(labelled.iter().any(|line| line == critical), "{labelled:?}");
        let commands = commands(&[wanted], &[]);
        for line in [
            "tc qdisc replace dev eth0 root handle 7a1: tbf rate 100000000bit burst 3200 limit 10000000",
            "tc qdisc add dev eth0 parent 7a1:1 handle 7a2: htb default 30",
            "tc class add dev eth0 parent 7a2:1 classid 7a2:20 htb rate 30000000bit ceil 1000000000bit burst 3200 cburst 3200 prio 3 quantum 1514",
            "tc qdisc add dev eth0 parent 7a2:20 handle 7a20: pfifo limit 100",
            "tc filter add dev eth0 parent 7a2: protocol ipv6 pref 102 u32 match u32 0x0b800000 0x0fc00000 at 0 flowid 7a2:10",
            "ip link set dev eth0 gso_max_segs 1; ip route flush cache",
        ] {
            assert!(commands.iter().any(|c| c == line), "{line}\nis not in\n{}", commands.join("\n"));
        }
        assert_eq!(commands.len(), 1 + 1 + 5 + 4 + 18 + 1);
    }
}
