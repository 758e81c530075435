//! The system that a contract describes: nodes and links, topics and their subscribers.
//!
//! Times are whole nanoseconds, sizes bytes, rates bit/s or Hz. References between parts are indices into [`System`]'s lists
//! and always hold, because only the reader of a contract makes them.

use crate::gathering;
use crate::priority::Class;
use crate::quantity::show_bit_rate;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Nodes, links, topics and subscribers, as a contract names them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct System {
    /// Its name.
    pub name: String,
    /// Hosts, routers and switches, in the order of the file.
    pub nodes: Vec<Node>,
    /// Links between them.
    pub links: Vec<Link>,
    /// Topics.
    pub topics: Vec<Topic>,
    /// Subscribers.
    pub subscribers: Vec<Subscriber>,
    /// Chains over several topics.
    pub chains: Vec<Chain>,
    /// Rules and objective for the placement of proxies.
    pub placement: Placement,
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// Runs programs.
    #[default]
    Host,
    /// Forwards packets between networks.
    Router,
    /// Forwards frames within one.
    Switch,
}

/// Processor time of channels' threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sched {
    /// By fixed priorities (SCHED_FIFO): as much as a thread takes.
    #[default]
    Priority,
    /// Reserved (SCHED_DEADLINE): as much as is declared, for sure, and no more.
    Reserved,
}

/// A host, router or switch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its name, unique among nodes.
    pub name: String,
    /// Its kind.
    pub kind: NodeKind,
    /// Processors, at least 1.
    pub cpus: u32,
    /// The administration it belongs to.
    pub domain: Option<String>,
    /// `true`: it may host a proxy.
    pub proxy: bool,
    /// Samples per second that its proxies can take.
    pub proxy_capacity: Option<f64>,
    /// Processor time of its channels' threads, unless their topic or subscriber states another.
    pub sched: Option<Sched>,
    /// The longest until a thread runs that a publishing one has woken, ns.
    pub hand_over: u64,
    /// The address of its packets, by which borders tell sessions from each other.
    pub address: Option<IpAddr>,
}

/// Order of service at a link's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheduler {
    /// First come, first served.
    #[default]
    Fifo,
    /// The highest class that waits goes next, each class in order of arrival; a packet on the wire is finished first.
    Strict,
    /// Each class has its share, and the rate that others leave.
    Htb,
    /// Hierarchical fair service curves, one per class, with the class's share as its rate.
    Hfsc,
}

/// A full-duplex link; each direction has its own queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    /// Its name, unique among links.
    pub name: String,
    /// The two nodes it joins (indices).
    pub between: [usize; 2],
    /// Bit/s in each direction, above 0.
    pub rate: u64,
    /// Propagation, ns.
    pub delay: u64,
    /// Processing of a packet at the node that forwards it onto this link, ns; none at the node where it starts.
    pub forwarding: u64,
    /// Time one packet takes on the wire, regardless of its size, ns; else it is size ÷ rate.
    pub transmission: Option<u64>,
    /// Largest payload of one packet, bytes.
    pub mtu: u64,
    /// Overhead of each packet on the wire, bytes.
    pub overhead: u64,
    /// Order of service.
    pub scheduler: Scheduler,
    /// Share of each class in the order of [`Class::ALL`], 0…1 (`htb`, `hfsc`); `None`: by the declared load.
    pub shares: Option<[f64; 4]>,
    /// The network device of each end, in the order of `between`, if the plan's queue is installed there.
    pub devices: [Option<String>; 2],
    /// Most packets of a super-packet that the device of each end takes (`gso_max_segs`), where a plan limits them.
    pub segments: [Option<u32>; 2],
    /// The tunnel that it is: its mtu and overhead count what the tunnel adds to each packet.
    pub tunnel: Option<Tunnel>,
    /// Undeclared best-effort traffic, bit/s.
    pub background: u64,
    /// Rate of the queue of control traffic, bit/s; 0: there is none, and control traffic waits among that of class low.
    pub control: u64,
    /// Nothing passes it now: no route leads over it. No contract says so.
    pub down: bool,
}

/// A tunnel through other networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Its encapsulation.
    pub kind: TunnelKind,
    /// Its number ([`TunnelKind::numbers`]).
    pub id: u32,
    /// The UDP port of its packets (VXLAN).
    pub port: u16,
    /// The address of each end, in the order of the link's `between`. Both are of one version.
    pub ends: [IpAddr; 2],
    /// The address inside at each end, with the length of its network.
    pub inside: [Option<(IpAddr, u8)>; 2],
}

/// The encapsulation of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TunnelKind {
    /// VXLAN (RFC 7348): each end is a network device, `id` its network (VNI), and its packets go to a UDP port.
    #[default]
    Vxlan,
    /// SRv6 (RFC 8754): each end is a segment (End.DT6, RFC 8986 §4.6), and `id` the nexthop that leads to the other.
    Srv6,
    /// MPLS (RFC 3032): `id` is the label of the packets in both directions, and the nexthop that puts it there.
    Mpls,
}

impl TunnelKind {
    /// All, with their words in contracts.
    pub const ALL: [(&str, Self); 3] = [("vxlan", Self::Vxlan), ("srv6", Self::Srv6), ("mpls", Self::Mpls)];

    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::Srv6 => "srv6",
            Self::Mpls => "mpls",
        }
    }

    /// Its numbers: of MPLS, labels that are not reserved (RFC 3032 §2.1); else those of a VXLAN network, which has 24 bits.
    pub const fn numbers(self) -> RangeInclusive<u32> {
        match self {
            Self::Vxlan | Self::Srv6 => 1..=LARGEST_VNI,
            Self::Mpls => 16..=LARGEST_LABEL,
        }
    }

    /// `true` if an end is a device of its own, whose queues see packets as they are inside.
    pub const fn has_device(self) -> bool {
        matches!(self, Self::Vxlan)
    }

    /// Bytes that it adds to a packet to this address: VXLAN the inner Ethernet header (14), VXLAN (8), UDP (8), and IPv4 (20) or IPv6 (40);
    /// SRv6 IPv6 (40) and a routing header of one segment (24); MPLS a label (4).
    pub const fn added(self, remote: IpAddr) -> u64 {
        match self {
            Self::Vxlan if remote.is_ipv4() => 50,
            Self::Vxlan => 70,
            Self::Srv6 => 64,
            Self::Mpls => 4,
        }
    }

    /// The allowed addresses of both ends and inside, if these are not.
    pub fn misfit(self, ends: [IpAddr; 2], inside: Option<IpAddr>) -> Option<&'static str> {
        let [one, other] = ends;
        match self {
            _ if one == other || one.is_ipv4() != other.is_ipv4() => Some("two addresses of one IP version"),
            Self::Srv6 if one.is_ipv4() => Some("two IPv6 addresses: segments of SRv6 are"),
            Self::Srv6 if inside.is_some_and(|inside| inside.is_ipv4()) => {
                Some("IPv6: the kernel gives an IPv4 packet in SRv6 the class 0 outside")
            }
            Self::Mpls if one.is_ipv4() && inside.is_some_and(|inside| inside.is_ipv6()) => {
                Some("two IPv6 addresses where one inside is: the kernel leads no IPv6 to an IPv4 neighbour")
            }
            Self::Vxlan | Self::Srv6 | Self::Mpls => None,
        }
    }
}

/// The largest number of a tunnel: that of a VXLAN network has 24 bits.
pub const LARGEST_VNI: u32 = (1 << 24) - 1;
/// The largest label of MPLS that Linux takes in: labels have 20 bits, and `net.mpls.platform_labels`, which is above all of them, no more.
pub const LARGEST_LABEL: u32 = (1 << 20) - 2;
/// The UDP port of VXLAN (IANA).
pub const VXLAN_PORT: u16 = 4789;

/// A stream of samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topic {
    /// Its name, unique among topics.
    pub name: String,
    /// Bytes of one sample.
    pub size: u64,
    /// Samples per second, above 0, as written.
    pub rate: f64,
    /// Shortest time between two samples, ns (rounded down).
    pub period: u64,
    /// Largest delay of a release behind its period, ns.
    pub jitter: u64,
    /// Samples that may come at once, at least 1.
    pub burst: u32,
    /// The nodes that publish it (indices), at least one.
    pub publishers: Vec<usize>,
    /// Execution time per sample at the publisher, ns.
    pub cpu_send: u64,
    /// Mean service time 1/μ of the queueing models, ns.
    pub service: u64,
    /// From the application to the middleware at the publisher, ns (T_appmid).
    pub hand_in: u64,
    /// From the middleware to the application at the subscriber, ns (T_midapp).
    pub hand_out: u64,
    /// Messages that a queue of the model `mm1k` holds.
    pub buffer: Option<u32>,
    /// Fixed by the user; else it is assigned.
    pub class: Option<Class>,
    /// Processor time of the threads that send and receive it; `None`: as at their nodes.
    pub sched: Option<Sched>,
    /// Its publishers send no more than this contract says, whatever they publish.
    pub police: bool,
    /// Its packets wait in a queue of their own where a publisher of it sends them, and leave it no faster than this contract says.
    pub own_queue: bool,
    /// The latency budget of its publishers; `None`: none, and nothing is set.
    pub latency_budget: Option<LatencyBudget>,
    /// The pace of its publishers; `None`: none, and nothing is set.
    pub pace: Option<Pace>,
    /// It stands for a pipe: no program publishes it, and nobody is offered a change of it.
    pub pipe: bool,
    /// Its samples come from another domain: the node that they start from forwards them.
    pub forwarded: bool,
}

/// The latency budget of a topic's publishers (V-03): small samples gather for half of it, and leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyBudget {
    /// This long, ns; 0: samples leave as soon as possible.
    Stated(u64),
    /// The largest with which everything fits: the plan computes it. Until then it is 0.
    Auto,
}

/// The pace of a topic's publishers: the packets of a sample leave at this rate instead of all at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// This many bit/s, headers of packets included or not.
    Stated(u64),
    /// The slowest with which everything fits: the plan computes it. Until then there is none.
    Auto,
}

/// Bytes of Thalweg's own headers in a packet: of a message and of a fragment (docs/wire.md).
pub const OWN_HEADERS: u64 = 40;
/// Most queues of channels' own at a device: HTB takes longer for each new class, and a queue for each channel of a system is not what they are for.
pub const MOST_OWN_QUEUES: usize = 64;
/// Most bytes that may leave a queue of a topic's own at once.
pub const MOST_AT_ONCE: u64 = 16 << 20;
/// Most packets that wait in one queue.
pub const LONGEST_QUEUE: u32 = 100_000;
/// The longest for which an idle class of HTB gets tokens, s (`mbuffer`, `sch_htb.c`): a bucket that takes longer does not fill again.
pub const LONGEST_REFILL_S: u64 = 60;

impl Topic {
    /// Most samples that are published in a closed stretch of `span` ns.
    pub fn within(&self, span: u64) -> u64 {
        let early = self.jitter.saturating_add(self.period.saturating_mul(u64::from(self.burst.max(1)) - 1));
        (span.saturating_add(early) / self.period.max(1)).saturating_add(1)
    }

    /// The pace at which samples leave a node that publishes it, in bit/s.
    pub fn paced(&self) -> Option<u64> {
        match self.pace {
            // Channels are given whole bytes per second.
            Some(Pace::Stated(rate)) => Some(rate / 8 * 8),
            Some(Pace::Auto) | None => None,
        }
    }

    /// The longest that a sample of so many bytes waits for others where it leaves a node that publishes it or hosts its proxy, ns.
    pub fn gathers(&self, size: u64) -> u64 {
        match self.latency_budget {
            Some(LatencyBudget::Stated(budget)) if size <= gathering::LARGEST => gathering::longest_wait(budget),
            _ => 0,
        }
    }
}

/// A subscriber of a topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subscriber {
    /// The topic (index).
    pub topic: usize,
    /// Its node (index).
    pub node: usize,
    /// Its port's name, unique; `/TOPIC@NODE` by default.
    pub name: String,
    /// Ratio of published samples to wanted ones, at least 1.
    pub scale: u32,
    /// The largest ratio that it accepts when links carry less than the contract says; `None`: its [`Self::scale`].
    pub scale_max: Option<u32>,
    /// The picture size it wants.
    pub picture: Option<[u32; 2]>,
    /// Bytes of one sample after scaling.
    pub scaled_size: Option<u64>,
    /// The latest a sample may arrive, ns.
    pub deadline: Option<u64>,
    /// Execution time per sample at the subscriber, ns.
    pub cpu_receive: u64,
    /// Processor time of the thread that receives it; `None`: as its topic's.
    pub sched: Option<Sched>,
    /// Order of giving way when not all fits; higher stays.
    pub importance: i64,
}

impl Subscriber {
    /// Ratio of published samples to those that go to its proxy. The stream that a node makes pictures of is thinned at the publisher;
    /// any other goes to the proxy whole.
    pub fn scale_before_proxy(&self) -> u32 {
        if self.picture.is_some() { self.scale.max(1) } else { 1 }
    }
}

/// A chain: a sample of its first topic, the sample that a node makes of it, and so on to the subscriber of the last topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    /// Its name, unique among chains.
    pub name: String,
    /// Its channels in order, at least one; each begins at the node at which the one before it ends.
    pub parts: Vec<ChainPart>,
    /// The latest end of the last callback, counted from the first `publish`, ns.
    pub deadline: Option<u64>,
}

/// A channel of a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainPart {
    /// The publisher's node (index).
    pub publisher: usize,
    /// The subscriber (index), and with it the topic.
    pub subscriber: usize,
    /// `true`: published on a clock of its own, with what came last; `false`: by the callback of the part before. `false` for the first part.
    pub sampled: bool,
}

impl System {
    /// The topic of a chain's part.
    pub fn topic_of(&self, part: &ChainPart) -> &Topic {
        &self.topics[self.subscribers[part.subscriber].topic]
    }

    /// Processor time of the thread that sends a topic at this node, or receives it for a subscriber there.
    pub fn sched(&self, node: usize, topic: usize, subscriber: Option<usize>) -> Sched {
        let own = subscriber.and_then(|subscriber| self.subscribers[subscriber].sched);
        own.or(self.topics[topic].sched).or(self.nodes[node].sched).unwrap_or_default()
    }

    /// The longest until the thread runs that sends a topic at this node, ns; 0 where `publish` sends.
    pub fn hand_over(&self, topic: usize, publisher: usize) -> u64 {
        if self.topics[topic].cpu_send > 0 { self.nodes[publisher].hand_over } else { 0 }
    }

    /// The shortest deadline that concerns each subscriber, ns: its own, and those of the chains that it is part of.
    pub fn deadlines(&self) -> Vec<Option<u64>> {
        let mut shortest: Vec<Option<u64>> = self.subscribers.iter().map(|subscriber| subscriber.deadline).collect();
        for chain in &self.chains {
            for part in &chain.parts {
                let own = &mut shortest[part.subscriber];
                *own = own.iter().copied().chain(chain.deadline).min();
            }
        }
        shortest
    }
}

/// Sharing of proxies between subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proxies {
    /// One proxy for all subscribers of a topic, as in the paper.
    #[default]
    PerTopic,
    /// One for each subscriber.
    PerSubscriber,
    /// Equal requests share one.
    Merged,
}

/// The objective of placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Messages per second over all links.
    #[default]
    Messages,
    /// Bit/s over all links.
    Bandwidth,
    /// Processors in use.
    Cpu,
    /// Mbit/s + `cpu_weight` · processors.
    Weighted,
}

impl Objective {
    /// A value of it with its unit, and its meaning.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Messages => format!("{value:.1} messages/s over all links"),
            Self::Bandwidth => format!("{} over all links, without headers", show_bit_rate(value)),
            Self::Cpu => format!("{value:.3} processors in use"),
            Self::Weighted => format!("{value:.3} = Mbit/s + cpu_weight · processors"),
        }
    }
}

/// Transport of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Each subscriber gets a copy of its own.
    #[default]
    Unicast,
    /// A link carries each stream once.
    Multicast,
}

/// The delay that placement must keep within the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlacementDelay {
    /// One period per transmitting node (P-20, P-21).
    Paper,
    /// The analysis' own bound.
    #[default]
    Bound,
}

/// Rules and objective for the placement of proxies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// Sharing of proxies.
    pub proxies: Proxies,
    /// The objective.
    pub objective: Objective,
    /// Mbit/s that one processor is worth (`weighted`).
    pub cpu_weight: f64,
    /// Transport of copies.
    pub transport: Transport,
    /// The delay that counts.
    pub delay: PlacementDelay,
    /// Execution time per sample at a proxy, ns.
    pub cpu_proxy: u64,
}
