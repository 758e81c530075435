//! The work of each stage on a sample, from the contract: execution times, packets with their times on the wire, and the samples that
//! pass.
//!
//! The analysis computes these quantities for itself. If the two shared them, a wrong number of packets or a forgotten header would be
//! in the bound and in the simulation, and would not show. Of [`Stages`] a run takes only the plan's decisions: the order of
//! the stages, and the queue, class, processor, rank and reservation of each.

use std::collections::HashMap;

use crate::Class;
use crate::analysis::cpu::reservation::Reservation;
use crate::analysis::stages::{Role, Stages, Step, Stream, htb_burst};
use crate::network::Direction;
use crate::system::{LatencyBudget, Link, NodeKind, Pace, Proxies, Scheduler, System, Topic, Transport};

/// Most bytes that a host or router hands to its device at once (generic segmentation offload). A switch forwards frame by frame.
const OFFLOAD: u64 = 65_536;

/// A packet on a wire.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Packet {
    /// With its overhead.
    pub bytes: u64,
    /// Time on the wire, ns.
    pub time: u64,
}

/// A sample on a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crossing {
    pub queue: usize,
    pub class: Class,
    /// Number of packets; all but the last are `full`.
    pub count: u64,
    pub full: Packet,
    pub last: Packet,
    /// Number of packets that the device takes at once where the way begins; 1 where single packets come from another link.
    pub at_once: u64,
    /// The samples come whole, from a thread or the application.
    pub begins: bool,
    /// Processing of a packet at the node that forwards it, ns.
    pub forwarding: u64,
    /// Propagation, ns.
    pub delay: u64,
    /// Bytes of a sample, and of the largest packet's content.
    pub size: u64,
    pub mtu: u64,
    /// The longest that a sample waits here for others, ns; 0: it does not.
    pub gathers: u64,
    /// The rate at which its packets come to the link, bit/s; 0: all at once.
    pub pace: u64,
    /// Most packets of a super-packet, where the plan limits them.
    pub segments: Option<u64>,
}

impl Crossing {
    /// Bytes of so many full packets, with or without their overhead.
    pub(super) fn bytes(&self, packets: u64, overhead: bool) -> u64 {
        packets.saturating_mul(if overhead { self.full.bytes } else { self.mtu })
    }

    /// Bytes of the last packet.
    pub(super) fn last_bytes(&self, overhead: bool) -> u64 {
        let content = self.size.saturating_sub((self.count - 1).saturating_mul(self.mtu));
        if overhead { self.last.bytes } else { content }
    }

    /// Packets that a socket hands on in one piece of so many bytes, or as many as the plan lets it.
    pub(super) fn most_in_a_piece(&self, bytes: u64) -> u64 {
        self.segments.unwrap_or(bytes / self.mtu).max(1)
    }

    /// Time on the wire of all packets, ns.
    pub(super) fn work(&self) -> u64 {
        self.full.time.saturating_mul(self.count - 1).saturating_add(self.last.time)
    }
}

/// What happens to a sample at a stage.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Compute { processor: usize, rank: u32, reserved: Option<Reservation>, execution: u64 },
    Cross(Crossing),
}

/// A stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Of the stream's samples every so-maniest passes.
    pub every: u64,
    pub task: Task,
}

/// A part of a pair's way without threads: it begins where samples are taken apart, and ends where they are put together.
struct Leg {
    stages: Vec<usize>,
    /// Bytes of a sample.
    size: u64,
    every: u64,
    /// One copy serves all subscribers behind it.
    shared: bool,
    /// It ends at the subscriber, and nobody shares it.
    own: bool,
}

/// The work of all stages.
pub(super) fn works(system: &System, stages: &Stages) -> Vec<Work> {
    let begins = |index: usize| {
        let before = stages.stages[index].after.map(|after| stages.stages[after].step);
        !matches!(before, Some(Step::Cross { .. }))
    };
    let mut every = vec![1; stages.stages.len()];
    let mut sample = vec![(0, 1); stages.stages.len()];
    let legs: Vec<(usize, Leg)> = (0..stages.pairs.len())
        .flat_map(|pair| legs(system, stages, pair, &mut every).map(move |leg| (stages.pairs[pair].stream, leg)))
        .collect();
    let widths = |leg: &Leg| leg.stages.iter().filter_map(|stage| Some(link(system, stages, *stage)?.mtu.max(1))).min();
    let start = |leg: &Leg| node(system, stages, leg.stages[0]);
    let mut narrowest: HashMap<(usize, usize), u64> = HashMap::new();
    for (stream, leg) in &legs {
        let least = narrowest.entry((*stream, start(leg))).or_insert(u64::MAX);
        *least = (*least).min(widths(leg).unwrap_or(u64::MAX));
    }
    for (stream, leg) in &legs {
        // What goes to many is taken apart for the narrowest link that any copy crosses.
        let mtu = if leg.shared { narrowest[&(*stream, start(leg))] } else { widths(leg).unwrap_or(u64::MAX) };
        leg.stages.iter().for_each(|stage| (sample[*stage], every[*stage]) = ((leg.size, mtu), leg.every));
    }
    let mut paces = vec![0; stages.stages.len()];
    for (stream, leg) in legs.iter().filter(|(_, leg)| leg.own) {
        let Stream { topic, publisher, .. } = stages.streams[*stream];
        let topic = &system.topics[topic];
        if let (Some(Pace::Stated(rate)), false) = (topic.pace, topic.forwarded || start(leg) != publisher) {
            paces[leg.stages[0]] = rate - rate % 8;
        }
    }
    let work = |index: usize| {
        let task = match stages.stages[index].step {
            Step::Compute { processor, rank, reserved, role, .. } => {
                let execution = execution(system, stages, index, role);
                Task::Compute { processor, rank, reserved: reserved.map(|of| of.each), execution }
            }
            Step::Cross { queue, class, .. } => {
                let (size, mtu) = sample[index];
                let topic = &system.topics[stages.streams[stages.stages[index].stream].topic];
                let sends = begins(index) && !topic.forwarded;
                let gathers = if sends { waits(topic, size) } else { 0 };
                let pace = paces[index];
                Task::Cross(Crossing { gathers, pace, ..crossing(system, queue, class, size, mtu, begins(index)) })
            }
        };
        Work { every: every[index], task }
    };
    (0..stages.stages.len()).map(work).collect()
}

/// The longest that a sample of a topic with a latency budget waits for others: half of the budget, at most a millisecond, and a timer's
/// slack of 50 us. Samples above 16 KiB do not wait.
fn waits(topic: &Topic, size: u64) -> u64 {
    match topic.latency_budget {
        Some(LatencyBudget::Stated(budget)) if budget > 1 && size <= 16_384 => (budget / 2).min(1_000_000) + 50_000,
        _ => 0,
    }
}

/// The crossing of so many samples that left together: their bytes are one piece.
pub(super) fn of_many(system: &System, one: &Crossing, samples: u64) -> Crossing {
    let size = one.size.saturating_mul(samples);
    Crossing { pace: one.pace, ..crossing(system, one.queue, one.class, size, one.mtu, one.begins) }
}

fn execution(system: &System, stages: &Stages, stage: usize, role: Role) -> u64 {
    match role {
        Role::Send => system.topics[stages.streams[stages.stages[stage].stream].topic].cpu_send,
        Role::Proxy => system.placement.cpu_proxy,
        Role::Receive(subscriber) => system.subscribers[subscriber].cpu_receive,
    }
}

/// The legs of a pair: to its proxy, if there is one, and to the subscriber. A proxy gets every sample, or those that are wanted if it makes
/// pictures of them, and scales; what is behind it gets those that are wanted.
fn legs(system: &System, stages: &Stages, pair: usize, every: &mut [u64]) -> impl Iterator<Item = Leg> + use<> {
    let pair = &stages.pairs[pair];
    let wanted = &system.subscribers[pair.subscriber];
    let size = system.topics[wanted.topic].size;
    let multicast = system.placement.transport == Transport::Multicast;
    let merged = multicast || system.placement.proxies == Proxies::Merged;
    let mut way: Vec<usize> = stages.path(pair).collect();
    way.reverse();
    let leg = |size, every, shared| Leg { stages: Vec::new(), size, every, shared, own: false };
    let fed = if pair.proxy.is_some() { u64::from(wanted.scale_before_proxy()) } else { 1 };
    let mut legs = vec![leg(size, fed, if pair.proxy.is_some() { merged } else { multicast })];
    for stage in way {
        let now = legs.len() - 1;
        match stages.stages[stage].step {
            Step::Cross { .. } => legs[now].stages.push(stage),
            Step::Compute { role: Role::Proxy, .. } => {
                every[stage] = fed;
                legs.push(leg(wanted.scaled_size.unwrap_or(size), u64::from(wanted.scale.max(1)), multicast));
            }
            Step::Compute { role: Role::Send, .. } => every[stage] = 1,
            Step::Compute { .. } => every[stage] = legs[now].every,
        }
    }
    legs.iter_mut().next_back().into_iter().for_each(|leg| leg.own = !multicast);
    legs.into_iter().filter(|leg| !leg.stages.is_empty())
}

fn link<'a>(system: &'a System, stages: &Stages, stage: usize) -> Option<&'a Link> {
    let Step::Cross { queue, .. } = stages.stages[stage].step else { return None };
    system.links.get(Direction::at(queue).link)
}

/// The node at which a stage happens.
fn node(system: &System, stages: &Stages, stage: usize) -> usize {
    match stages.stages[stage].step {
        Step::Cross { queue, .. } => Direction::at(queue).ends(system)[0],
        Step::Compute { processor, .. } => stages.processors[processor],
    }
}

fn crossing(system: &System, queue: usize, class: Class, size: u64, mtu: u64, begins: bool) -> Crossing {
    let link = &system.links[Direction::at(queue).link];
    // A sample without bytes is a packet, too.
    let full = size.saturating_sub(1) / mtu;
    Crossing {
        queue,
        class,
        count: full + 1,
        full: packet(link, mtu),
        last: packet(link, size - full * mtu),
        at_once: if begins { at_once(system, queue, mtu).min(limit(system, queue)) } else { 1 },
        begins,
        forwarding: if begins { 0 } else { link.forwarding },
        delay: link.delay,
        size,
        mtu,
        gathers: 0,
        pace: 0,
        segments: Direction::at(queue).segments(system).map(u64::from),
    }
}

fn at_once(system: &System, queue: usize, mtu: u64) -> u64 {
    let link = &system.links[Direction::at(queue).link];
    // Shares, and all queues of ours, stand above a token bucket, which takes apart what is larger than its burst.
    let taken = match link.scheduler {
        Scheduler::Fifo | Scheduler::Strict if Direction::at(queue).device(system).is_none() => OFFLOAD,
        _ => OFFLOAD.min(u64::from(htb_burst(link.rate))),
    };
    match system.nodes[Direction::at(queue).ends(system)[0]].kind {
        NodeKind::Switch => 1,
        NodeKind::Host | NodeKind::Router => (taken / mtu).max(1),
    }
}

/// Packets of a super-packet that a host's own sockets make for the device.
fn limit(system: &System, queue: usize) -> u64 {
    Direction::at(queue).segments(system).map_or(u64::MAX, |segments| segments.max(1).into())
}

fn packet(link: &Link, payload: u64) -> Packet {
    let bytes = payload.saturating_add(link.overhead);
    let time = (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(link.rate.max(1)));
    let time = link.transmission.unwrap_or(u64::try_from(time).unwrap_or(u64::MAX));
    Packet { bytes, time: time.max(1) }
}

/// Undeclared traffic of a queue: a unit of what the device takes at once, and the time from one to the next, ns. It is no more than
/// declared: the time is rounded up.
pub(super) fn background(system: &System, queue: usize) -> Option<(Packet, u64)> {
    let link = &system.links[Direction::at(queue).link];
    let mtu = link.mtu.max(1);
    let size = mtu * at_once(system, queue, mtu);
    let whole = crossing(system, queue, Class::Normal, size, mtu, true);
    let bytes = whole.full.bytes.saturating_mul(whole.count);
    let period = (u128::from(bytes) * 8_000_000_000 + u128::from(link.background)).saturating_sub(1);
    let period = period.checked_div(u128::from(link.background))?;
    Some((Packet { bytes, time: whole.work() }, u64::try_from(period).unwrap_or(u64::MAX).max(1)))
}
