//! The stages that samples pass on processors and in queues, by a contract with its routes, proxies and priorities.
//!
//! A stage begins when the one before it is done with a sample. The stages of a publisher's topic form a tree with the
//! subscribers at its leaves. Analysis and simulation read the same tree, so that they describe the same system.

mod classes;
mod threads;

use std::collections::HashMap;

use super::link::Bucket;
use super::{Arrivals, BILLION};
use crate::Class;
use crate::network::{Direction, Network};
use crate::system::{Link, NodeKind, Proxies, Scheduler, System, Transport};
pub use classes::Classes;
pub use threads::{RANKS, Reserved};

/// Most bytes that the device of a host takes at once: TCP's largest super-packet (`gso_max_size`; see
/// [`crate::blocking`]). Switches forward frame by frame.
const SUPER_PACKET: u64 = 65_536;

/// The place of a proxy between a publisher and a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The publisher's node (index).
    pub publisher: usize,
    /// The subscriber (index).
    pub subscriber: usize,
    /// The proxy's node (index).
    pub node: usize,
}

/// A topic as one of its publishers sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The topic (index).
    pub topic: usize,
    /// The publisher's node (index).
    pub publisher: usize,
    /// Releases of its samples, bursts included.
    pub arrivals: Arrivals,
    /// Samples at once.
    pub burst: u32,
}

/// The purpose of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Publishing.
    Send,
    /// Scaling on the way.
    Proxy,
    /// Receiving, for this subscriber (index).
    Receive(usize),
}

/// The work of a stage on a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A thread of its own computes.
    Compute {
        /// The processor (index into [`Stages::processors`]).
        processor: usize,
        /// Rank among the processor's threads without a reservation, 0 first; equal ones in order of arrival.
        rank: u32,
        /// Its reservation, if it has one: it goes before all ranks.
        reserved: Option<Reserved>,
        /// The longest it takes, ns.
        execution: u64,
        /// Its purpose.
        role: Role,
    },
    /// Packets wait in a queue and cross a link.
    Cross {
        /// The queue: [`Direction::index`].
        queue: usize,
        /// The class.
        class: Class,
        /// The packets.
        packets: Packets,
        /// Processing at the node, ns per packet; 0 where the stream starts.
        forwarding: u64,
        /// The longest that a sample waits for others before it comes to the queue, ns; 0 but where samples with a latency budget are
        /// sent.
        gathers: u64,
        /// The pace at which the packets of a sample come to the queue; `None`: all at once, or as they come from the link before.
        paced: Option<Paced>,
    },
}

/// Packets that come at a pace. Whether a pace counts headers depends on the carrier. The time of a sample counts them, the line does not, so that both hold
/// for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paced {
    /// Time from the first packet to the end of the last, ns.
    pub sample: u64,
    /// The most that comes in any interval: ns on the wire at once, and per second.
    pub(crate) line: Bucket,
}

/// A sample on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    /// Number of packets.
    pub count: u64,
    /// Time on the wire of each but the last, ns.
    pub full: u64,
    /// Time on the wire of the last, ns.
    pub last: u64,
    /// Time on the wire of the largest unit that the device takes at once, ns.
    pub unit: u64,
    /// Bytes on the wire of all.
    pub bytes: u64,
    /// Several samples may share packets; `None`: each has its own.
    pub together: Option<Together>,
}

/// Samples that leave together: packets of their bytes, one behind the other. So a packet may be as large as any, and the end of a sample
/// may be in a small one; in all they are no more than the packets of the samples alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    /// Bytes of a sample, without overhead.
    pub size: u64,
    /// Bytes of the largest packet, without overhead.
    pub mtu: u64,
    /// Most packets that the device takes at once.
    pub at_once: u64,
    /// Time on the wire of the largest packet, ns.
    pub full: u64,
    /// Time on the wire of the smallest, ns.
    pub least: u64,
}

impl Packets {
    /// Time on the wire of the largest unit that the device takes at once where so many samples are at one place at one time, ns.
    pub fn unit_of(&self, samples: u64) -> u64 {
        let Some(together) = self.together else { return self.unit };
        let packets = samples.saturating_mul(together.size).div_ceil(together.mtu.max(1)).max(1);
        let whole = together.full.saturating_mul(packets.min(together.at_once.max(1)));
        whole.min(samples.saturating_mul(self.together_work())).max(self.unit)
    }

    /// Time on the wire of the largest packet there, ns.
    pub fn largest_of(&self, samples: u64) -> u64 {
        let Some(together) = self.together else { return self.largest() };
        together.full.min(samples.saturating_mul(self.together_work())).max(self.largest())
    }

    /// Time on the wire of the smallest packet that may end a sample, ns.
    pub fn least_last(&self) -> u64 {
        self.together.map_or(self.last, |together| together.least)
    }

    /// Time on the wire that a sample takes at most, also where it shares packets, ns: each packet is rounded up.
    pub fn together_work(&self) -> u64 {
        self.work().saturating_add(self.together.map_or(0, |_| self.count))
    }

    /// Time on the wire of all, ns.
    pub fn work(&self) -> u64 {
        self.full.saturating_mul(self.count - 1).saturating_add(self.last)
    }
    /// Time on the wire of the first, ns.
    pub fn first(&self) -> u64 {
        if self.count > 1 { self.full } else { self.last }
    }
    /// Time on the wire of the largest, ns.
    pub fn largest(&self) -> u64 {
        self.first().max(self.last)
    }
}

/// One step of a stream's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The stream (index into [`Stages::streams`]).
    pub stream: usize,
    /// The stage before it (an index below its own); `None`: the sample is just published.
    pub after: Option<usize>,
    /// Ratio of the stream's samples to those that pass.
    pub every: u64,
    /// Its work.
    pub step: Step,
}

/// A publisher and a subscriber: the unit that has a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The stream.
    pub stream: usize,
    /// The subscriber (index).
    pub subscriber: usize,
    /// The last stage; `None` if no stage takes any time.
    pub last: Option<usize>,
    /// Ratio of the stream's samples to those that it gets.
    pub every: u64,
    /// The proxy's node.
    pub proxy: Option<usize>,
}

/// Background packets, best-effort, of class normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// Its arrivals: even, at most one more than the rate gives.
    pub arrivals: Arrivals,
    /// Time on the wire of one unit that a device takes at once, ns.
    pub work: u64,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Egress {
    /// The direction of the link.
    pub direction: Direction,
    /// Order of service.
    pub scheduler: Scheduler,
    /// Share of each class, in parts per billion, in the order of [`Class::ALL`].
    pub shares: [u64; 4],
    /// Depth of each class's bucket (`htb`), in ns on the wire.
    pub buckets: [u64; 4],
    /// Propagation, ns.
    pub delay: u64,
    /// Time on the wire of what the token bucket of an installed queue hands its device at once, ns: a packet waits there for what went
    /// before it, of any class. 0: no queue is installed.
    pub ahead: u64,
    /// Undeclared traffic.
    pub background: Option<Background>,
}

/// All stages of a contract.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stages {
    /// The streams.
    pub streams: Vec<Stream>,
    /// The stages; each stands after the one before it.
    pub stages: Vec<Stage>,
    /// Pairs that have a bound, by topic, publisher and subscriber.
    pub pairs: Vec<Pair>,
    /// The node of each processor.
    pub processors: Vec<usize>,
    /// Two for each link.
    pub egresses: Vec<Egress>,
}

/// The key of a shared stage: the stage before, the packets, and their destination.
type Shared = (usize, Option<usize>, u64, u64, usize);

impl Stages {
    /// The stages of `system` with the class of each channel from `classes`, and proxies at `places`; a subscriber
    /// without one gets all samples and picks its own. Pairs without a route have no stages (the network's
    /// `disconnected` lists them).
    ///
    /// Threads are spread over a node's processors by load and ranked by the shortest deadline that they serve (deadline
    /// monotonic); [`crate::assignment`] may rank them again.
    pub fn new(system: &System, network: &Network, places: &[Place], classes: &Classes) -> Self {
        Self::admitting(system, network, places, classes, &|_| true)
    }

    /// The same for those subscribers (indices) only that are `admitted`.
    pub fn admitting(
        system: &System,
        network: &Network,
        places: &[Place],
        classes: &Classes,
        admitted: &dyn Fn(usize) -> bool,
    ) -> Self {
        let mut all = Self { egresses: egresses(system), ..Self::default() };
        let places: HashMap<_, _> = places.iter().map(|p| ((p.publisher, p.subscriber), p.node)).collect();
        let mut wanted = vec![Vec::new(); system.topics.len()];
        let all_wanted = system.subscribers.iter().enumerate().filter(|(i, _)| admitted(*i));
        all_wanted.for_each(|(i, subscriber)| wanted[subscriber.topic].push(i));
        for (index, topic) in system.topics.iter().enumerate() {
            for publisher in &topic.publishers {
                let arrivals = Arrivals::bursty(topic.period, topic.jitter, topic.burst);
                all.streams.push(Stream { topic: index, publisher: *publisher, arrivals, burst: topic.burst });
                let mut way = Way::new(&mut all, system, network);
                let to = wanted[index].iter().map(|to| (*to, places.get(&(*publisher, *to)).copied()));
                let to: Vec<(usize, Option<usize>)> = to.collect();
                to.iter().for_each(|(subscriber, proxy)| way.narrow(*publisher, *subscriber, *proxy));
                for (subscriber, proxy) in to {
                    way.class = classes.of(*publisher, subscriber);
                    way.lead(subscriber, proxy);
                }
            }
        }
        threads::reserve(&mut all, system);
        threads::place(&mut all, system);
        all.share_out(system);
        all
    }

    /// Shares of links that the contract states none for.
    fn share_out(&mut self, system: &System) {
        let mut loads = vec![[0; 4]; self.egresses.len()];
        for stage in &self.stages {
            if let Step::Cross { queue, class, packets, .. } = stage.step {
                loads[queue][class as usize] += self.arrivals(stage).load(packets.work());
            }
        }
        for (egress, mut loads) in self.egresses.iter_mut().zip(loads) {
            let link = &system.links[egress.direction.link];
            if link.shares.is_none() {
                let background = egress.background.map_or(0, |all| all.arrivals.load(all.work));
                loads[Class::Normal as usize] += background;
                egress.shares = by_load(loads);
                egress.buckets = egress.shares.map(|share| bucket(link.rate, share));
            }
        }
    }

    /// Arrivals at a stage if the stages before it take no time.
    pub fn arrivals(&self, stage: &Stage) -> Arrivals {
        let stream = &self.streams[stage.stream].arrivals;
        Arrivals { period: stream.period.saturating_mul(stage.every), ..*stream }
    }

    /// The stages on a pair's way, the last first.
    pub fn path(&self, pair: &Pair) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(pair.last, |stage| self.stages[*stage].after)
    }
}

/// Builds the ways of one stream.
struct Way<'a> {
    all: &'a mut Stages,
    system: &'a System,
    network: &'a Network,
    /// That of the channel which is led.
    class: Class,
    stream: usize,
    shared: HashMap<Shared, usize>,
    /// The narrowest link of all paths that begin at a node: a message to many is fragmented for all of them.
    mtus: HashMap<usize, u64>,
}

/// The end of a stream while it is built: the stage it is behind, and the samples it carries.
#[derive(Clone, Copy)]
struct Front {
    after: Option<usize>,
    every: u64,
    size: u64,
}

impl<'a> Way<'a> {
    fn new(all: &'a mut Stages, system: &'a System, network: &'a Network) -> Self {
        let stream = all.streams.len() - 1;
        Self { all, system, network, class: Class::default(), stream, shared: HashMap::new(), mtus: HashMap::new() }
    }

    fn narrow(&mut self, publisher: usize, subscriber: usize, proxy: Option<usize>) {
        let mut from = publisher;
        for to in proxy.into_iter().chain([self.system.subscribers[subscriber].node]) {
            let route = self.network.route(from, to).unwrap_or_default();
            let least = self.mtus.entry(from).or_insert(u64::MAX);
            *least = route.iter().map(|direction| self.system.links[direction.link].mtu).fold(*least, u64::min);
            from = to;
        }
    }

    fn lead(&mut self, subscriber: usize, proxy: Option<usize>) {
        let stream = self.all.streams[self.stream];
        let (wanted, topic) = (&self.system.subscribers[subscriber], &self.system.topics[stream.topic]);
        let multicast = self.system.placement.transport == Transport::Multicast;
        let merged = multicast || self.system.placement.proxies == Proxies::Merged;
        let mut front = Front { after: None, every: 1, size: topic.size };
        front = self.compute(front, 1, stream.publisher, topic.cpu_send, Role::Send, true);
        let mut from = stream.publisher;
        if let Some(node) = proxy {
            let fed = u64::from(wanted.scale_before_proxy());
            let fed_front = Front { every: fed, ..front };
            let Some(to_proxy) = self.travel(fed_front, (from, node), merged, None) else { return };
            let scaled =
                Front { every: u64::from(wanted.scale), size: wanted.scaled_size.unwrap_or(topic.size), ..to_proxy };
            front = self.compute(scaled, fed, node, self.system.placement.cpu_proxy, Role::Proxy, merged);
            from = node;
        }
        // A relay sends by a channel of its own, which has no pace; nor has a group.
        let pace = topic.paced().filter(|_| from == stream.publisher && !multicast && !topic.forwarded);
        let Some(front) = self.travel(front, (from, wanted.node), multicast, pace) else { return };
        let front = self.compute(front, front.every, wanted.node, wanted.cpu_receive, Role::Receive(subscriber), false);
        let every = u64::from(wanted.scale).max(1);
        self.all.pairs.push(Pair { stream: self.stream, subscriber, last: front.after, every, proxy });
    }

    /// A thread computes `execution` for each sample that comes, every `every`-th one, before more are left out. A proxy is a thread even if that takes no
    /// time: it needs the whole sample, and waits for its turn.
    fn compute(&mut self, front: Front, every: u64, node: usize, execution: u64, role: Role, shared: bool) -> Front {
        if execution == 0 && role != Role::Proxy {
            return front;
        }
        // Processor and rank are assigned when all threads are known; until then the node stands for the processor.
        let step = Step::Compute { processor: node, rank: 0, reserved: None, execution, role };
        let after = self.stage(front, Stage { stream: self.stream, after: front.after, every, step }, node, shared);
        Front { after: Some(after), ..front }
    }

    /// Crosses the links between two nodes, at the pace where they begin.
    fn travel(&mut self, front: Front, (from, to): (usize, usize), shared: bool, pace: Option<u64>) -> Option<Front> {
        let route = self.network.route(from, to)?;
        // Samples are taken apart where they start, for the narrowest link of the way, never later.
        let own = route.iter().map(|direction| self.system.links[direction.link].mtu).min();
        let mtu = if shared { self.mtus.get(&from).copied() } else { own };
        let mtu = mtu.unwrap_or(u64::MAX).max(1);
        let topic = &self.system.topics[self.all.streams[self.stream].topic];
        let forwarded = topic.forwarded;
        let gathers = if forwarded { 0 } else { topic.gathers(front.size) };
        let cross = |front: Front, (hop, direction): (usize, &Direction)| {
            let is_own = hop == 0 && !forwarded;
            let link = &self.system.links[direction.link];
            let kind = self.system.nodes[direction.ends(self.system)[0]].kind;
            // What comes from other hosts is not taken apart by this limit.
            let segments = direction.segments(self.system).filter(|_| is_own);
            let at_once = at_once(link, kind, mtu, direction.device(self.system).is_some(), segments);
            let mut packets = packets(link, front.size, mtu, at_once);
            packets.together = (gathers > 0).then(|| together(link, front.size, mtu, at_once));
            let step = Step::Cross {
                queue: direction.index(),
                class: self.class,
                packets,
                forwarding: if is_own { 0 } else { link.forwarding },
                gathers: if is_own { gathers } else { 0 },
                paced: pace.filter(|_| hop == 0).map(|rate| paced(rate, front.size, mtu, &packets, segments)),
            };
            let stage = Stage { stream: self.stream, after: front.after, every: front.every, step };
            Front { after: Some(self.stage(front, stage, direction.index(), shared)), ..front }
        };
        Some(route.iter().enumerate().fold(front, cross))
    }

    /// The stage, a new one unless it is `shared` and there already.
    fn stage(&mut self, front: Front, stage: Stage, place: usize, shared: bool) -> usize {
        let kind = usize::from(matches!(stage.step, Step::Cross { .. }));
        let key = (2 * place + kind, front.after, front.every, front.size, stage.stream);
        if let Some(known) = self.shared.get(&key).filter(|_| shared) {
            return *known;
        }
        let index = self.all.stages.len();
        self.all.stages.push(stage);
        // A subscriber's own copy is nobody else's: what goes to a proxy is sent beside it.
        if shared {
            self.shared.insert(key, index);
        }
        index
    }
}

/// Parts per billion of a link for each class: its load, one percent besides, and of what is left as much as each other class that is
/// used. (In proportion to its load alone, a class with few small samples would wait long for its next token.) More load than the link
/// carries is scaled down.
fn by_load(loads: [u128; 4]) -> [u64; 4] {
    const LEAST: u128 = BILLION / 100;
    let (free, sum) = (BILLION - 4 * LEAST, loads.iter().sum::<u128>());
    let used = loads.iter().filter(|load| **load > 0).count() as u128;
    let part = |load: u128| match used {
        0 => free / 4,
        _ if sum > free => free * load / sum,
        _ if load == 0 => 0,
        _ => load + (free - sum) / used,
    };
    loads.map(|load| u64::try_from(LEAST + part(load)).unwrap_or(0))
}

/// Most packets that the device takes as one.
pub(crate) fn at_once(link: &Link, kind: NodeKind, mtu: u64, installed: bool, segments: Option<u32>) -> u64 {
    let most = if kind == NodeKind::Switch { 1 } else { (largest(link, installed) / mtu).max(1) };
    segments.map_or(most, |segments| most.min(segments.max(1).into()))
}

fn packets(link: &Link, size: u64, mtu: u64, at_once: u64) -> Packets {
    let count = size.div_ceil(mtu).max(1);
    let rest = size.saturating_sub(mtu.saturating_mul(count - 1));
    let (full, last) =
        (on_wire(link, mtu.saturating_add(link.overhead)), on_wire(link, rest.saturating_add(link.overhead)));
    let first = if count > 1 { full } else { last };
    let bytes = size.saturating_add(count.saturating_mul(link.overhead));
    Packets { count, full, last, unit: first.saturating_mul(count.min(at_once)), bytes, together: None }
}

/// Packets at a pace of `rate` bit/s. Besides it, as much comes at once as a socket hands on in one piece, of whatever samples wait: a super-packet of TCP,
/// and half of the next one (after a pause the kernel takes up to half of a piece's time off the next, `tcp_update_skb_after_send`); or what the pacer of
/// datagrams lets go between two wake-ups, a millisecond's worth or two packets (`channel/congestion.rs` of the crate `thalweg`); and one packet more.
fn paced(rate: u64, size: u64, mtu: u64, packets: &Packets, segments: Option<u32>) -> Paced {
    let piece = segments.map_or(SUPER_PACKET, |segments| mtu.saturating_mul(segments.max(2).into()));
    let at_once = (piece.saturating_add(piece / 2)).max(rate / 8000).saturating_add(mtu);
    // Work on the wire of so many bytes of samples: of full packets, or of whole samples, whose last packets may be nearly all headers.
    let work = |bytes: u64| {
        let of = |work: u64, each: u64| (u128::from(work) * u128::from(bytes)).div_ceil(u128::from(each.max(1)));
        let most = of(packets.first(), mtu.min(size)).max(of(packets.work(), size));
        u64::try_from(most).unwrap_or(u64::MAX)
    };
    let line = Bucket { burst: work(at_once).saturating_add(packets.last), rate: work(rate / 8) };
    Paced { sample: wire_ns(rate, packets.bytes), line }
}

fn together(link: &Link, size: u64, mtu: u64, at_once: u64) -> Together {
    let (full, least) = (mtu.saturating_add(link.overhead), link.overhead.saturating_add(1));
    Together { size, mtu, at_once, full: on_wire(link, full), least: on_wire(link, least) }
}

/// Time of a packet on the wire, ns, rounded up, at least 1.
fn on_wire(link: &Link, bytes: u64) -> u64 {
    link.transmission.unwrap_or(wire_ns(link.rate, bytes)).max(1)
}

/// Time of so many bytes at a rate in bit/s, ns, rounded up.
fn wire_ns(rate: u64, bytes: u64) -> u64 {
    u64::try_from((u128::from(bytes) * 8 * BILLION).div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX)
}

fn egresses(system: &System) -> Vec<Egress> {
    let all = (0..2 * system.links.len()).map(Direction::at);
    all.map(|direction| {
        let link = &system.links[direction.link];
        let kind = system.nodes[direction.ends(system)[0]].kind;
        // Rounded down: a share is a promise.
        let shares = link.shares.unwrap_or([0.25; 4]).map(|share| (share.clamp(0.0, 1.0) * BILLION as f64) as u64);
        let installed = direction.device(system).is_some();
        let (scheduler, background) = (link.scheduler, background(link, kind, installed));
        let buckets = shares.map(|share| bucket(link.rate, share));
        let ahead = if installed { wire_ns(link.rate, htb_burst(link.rate).into()) } else { 0 };
        Egress { direction, scheduler, shares, buckets, delay: link.delay, ahead, background }
    })
    .collect()
}

/// Bytes that an HTB class with a rate of so many bit/s may send at once, and the link's own token bucket below it, as the queues are installed
/// (crate `linux`, `queueing`): 250 µs of its rate, at least 3200. A test of the crate `thalweg-baseline`, which knows both, holds the two
/// together.
pub fn htb_burst(rate: u64) -> u32 {
    u32::try_from(rate / 32_000).unwrap_or(u32::MAX).max(3200)
}

/// The bucket of a class with this share of a link's rate: its time on the wire, ns.
fn bucket(rate: u64, share: u64) -> u64 {
    let own = (u128::from(rate) * u128::from(share) / BILLION).max(1);
    let bits = u128::from(htb_burst(u64::try_from(own).unwrap_or(u64::MAX))) * 8;
    u64::try_from((bits * u128::from(share)).div_ceil(own)).unwrap_or(u64::MAX)
}

/// Most bytes that the device takes at once. The token bucket of an installed queue, and the one below shares, takes apart what is larger
/// than its burst (`tbf_enqueue`).
fn largest(link: &Link, installed: bool) -> u64 {
    match link.scheduler {
        Scheduler::Fifo | Scheduler::Strict if !installed => SUPER_PACKET,
        _ => SUPER_PACKET.min(htb_burst(link.rate).into()),
    }
}

/// Background traffic comes in units of the largest size: as many full packets as a host's or router's device takes at once, else one.
fn background(link: &Link, kind: NodeKind, installed: bool) -> Option<Background> {
    let mtu = link.mtu.max(1);
    // Whoever sends it need not keep a limit of segments.
    let at_once = at_once(link, kind, mtu, installed, None);
    let size = at_once * mtu;
    let work = packets(link, size, mtu, at_once).work();
    let bits = u128::from(size.saturating_add(size.div_ceil(mtu).saturating_mul(link.overhead))) * 8;
    let period = (bits * BILLION).checked_div(u128::from(link.background))?;
    let arrivals = Arrivals::bursty(u64::try_from(period).unwrap_or(u64::MAX).max(1), 0, 2);
    Some(Background { arrivals, work })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::{Node, Placement, Subscriber, Topic};

    /// A line of four nodes, 0 to 3, and two subscribers at its end that want every second sample.
    fn line(placement: Placement) -> Stages {
        let nodes = (0..4).map(|i| Node { name: i.to_string(), cpus: 2, ..Node::default() }).collect();
        let mtu = |i| if i == 2 { 600 } else { 1500 };
        let link = |i: usize| Link { between: [i, i + 1], rate: 100_000_000, mtu: mtu(i), ..Link::default() };
        let subscriber = || Subscriber { topic: 0, node: 3, scale: 2, cpu_receive: 10, ..Subscriber::default() };
        let system = System {
            nodes,
            links: (0..3).map(link).collect(),
            topics: vec![Topic {
                size: 1200,
                period: 1000,
                burst: 1,
                publishers: vec![0],
                cpu_send: 10,
                ..Topic::default()
            }],
            subscribers: vec![subscriber(), subscriber()],
            placement,
            ..System::default()
        };
        let places = [0, 1].map(|subscriber| Place { publisher: 0, subscriber, node: 1 });
        Stages::new(&system, &Network::new(&system), &places, &Classes::stated(&system))
    }

    #[test]
    fn a_class_has_its_load_and_a_part_of_what_is_left() {
        let percent = |loads: [u128; 4]| by_load(loads.map(|load| load * 10_000_000)).map(|share| share / 10_000_000);
        assert_eq!(percent([0, 26, 0, 2]), [1, 61, 1, 37]);
        assert_eq!(percent([0; 4]), [25; 4]);
        assert_eq!(percent([0, 96, 0, 96]), [1, 49, 1, 49], "too much");
    }

    #[test]
    fn copies_are_shared_as_the_placement_says() {
        let crossings = |placement| {
            let stages = line(placement);
            let of = |queue: usize| move |s: &&Stage| matches!(s.step, Step::Cross { queue: q, .. } if q == 2 * queue);
            [0, 1, 2].map(|queue| stages.stages.iter().filter(of(queue)).count())
        };
        assert_eq!(crossings(Placement::default()), [2, 2, 2]);
        assert_eq!(crossings(Placement { proxies: Proxies::Merged, ..Placement::default() }), [1, 2, 2]);
        assert_eq!(crossings(Placement { transport: Transport::Multicast, ..Placement::default() }), [1, 1, 1]);
    }

    #[test]
    fn samples_are_scaled_and_taken_apart_where_a_way_begins() {
        let stages = line(Placement::default());
        let way: Vec<usize> = stages.path(&stages.pairs[0]).collect();
        let shape = |stage: &usize| match stages.stages[*stage].step {
            Step::Cross { packets, .. } => (stages.stages[*stage].every, packets.count),
            Step::Compute { .. } => (stages.stages[*stage].every, 0),
        };
        // From the last: received, two links at half the rate in two packets, scaled, one link, sent.
        assert_eq!(way.iter().map(shape).collect::<Vec<_>>(), [(2, 0), (2, 2), (2, 2), (1, 0), (1, 1), (1, 0)]);
        let Step::Compute { rank, .. } = stages.stages[way[0]].step else { panic!("received by a thread") };
        assert_eq!(rank, 0, "two subscribers' threads on two processors");
    }
}
