//! The ways of one stream from its publisher to its subscribers, stage by stage.

use super::packets::{at_once, paced, packets, together};
use super::{Leaf, Pair, Role, Stage, Stages, Step};
use crate::Class;
use crate::analysis::Arrivals;
use crate::network::{Direction, Network};
use crate::system::{NodeKind, Proxies, Scheduler, System, Transport};
use std::collections::HashMap;

/// The key of a shared stage: the stage before, the packets, and their destination.
type Shared = (usize, Option<usize>, u64, u64, usize);

/// Builds the ways of one stream.
pub(super) struct Way<'a> {
    all: &'a mut Stages,
    system: &'a System,
    network: &'a Network,
    /// That of the channel which is led.
    pub(super) class: Class,
    /// Its deadline, if it has a queue of its own where it begins, ns.
    until: Option<u64>,
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
    pub(super) fn new(all: &'a mut Stages, system: &'a System, network: &'a Network) -> Self {
        let stream = all.streams.len() - 1;
        Self {
            all,
            system,
            network,
            class: Class::default(),
            until: None,
            stream,
            shared: HashMap::new(),
            mtus: HashMap::new(),
        }
    }

    pub(super) fn narrow(&mut self, publisher: usize, subscriber: usize, proxy: Option<usize>) {
        let mut from = publisher;
        for to in proxy.into_iter().chain([self.system.subscribers[subscriber].node]) {
            let route = self.network.route(from, to).unwrap_or_default();
            let least = self.mtus.entry(from).or_insert(u64::MAX);
            *least = route.iter().map(|direction| self.system.links[direction.link].mtu).fold(*least, u64::min);
            from = to;
        }
    }

    pub(super) fn lead(&mut self, subscriber: usize, proxy: Option<usize>) {
        let stream = self.all.streams[self.stream];
        let (wanted, topic) = (&self.system.subscribers[subscriber], &self.system.topics[stream.topic]);
        let multicast = self.system.placement.transport == Transport::Multicast;
        let merged = multicast || self.system.placement.proxies == Proxies::Merged;
        let mut front = Front { after: None, every: 1, size: topic.size };
        front = self.compute(front, 1, stream.publisher, topic.cpu_send, Role::Send, true);
        let mut from = stream.publisher;
        if let Some(node) = proxy {
            let fed = u64::from(wanted.scale_before_proxy());
            self.until = None;
            let fed_front = Front { every: fed, ..front };
            let Some(to_proxy) = self.travel(fed_front, (from, node), merged, None) else { return };
            let scaled =
                Front { every: u64::from(wanted.scale), size: wanted.scaled_size.unwrap_or(topic.size), ..to_proxy };
            front = self.compute(scaled, fed, node, self.system.placement.cpu_proxy, Role::Proxy, merged);
            from = node;
        }
        // A relay sends by a channel of its own, which has no pace; nor has a group.
        let pace = topic.paced().filter(|_| from == stream.publisher && !multicast && !topic.forwarded);
        let own = topic.own_queue && from == stream.publisher && !multicast && !topic.forwarded;
        self.until = wanted.deadline.filter(|_| own);
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
        let mut leaf: Option<Leaf> = None;
        let cross = |front: Front, (hop, direction): (usize, &Direction)| {
            let is_own = hop == 0 && !forwarded;
            let link = &self.system.links[direction.link];
            let kind = self.system.nodes[direction.ends(self.system)[0]].kind;
            // What comes from other hosts is not taken apart by this limit.
            let segments = direction.segments(self.system).filter(|_| is_own);
            let at_once = at_once(link, kind, mtu, direction.device(self.system).is_some(), segments);
            let mut packets = packets(link, front.size, mtu, at_once);
            let own = self.until.filter(|_| hop == 0 && has_leaf(self.system, *direction));
            let here = own.map(|deadline| {
                let arrivals = self.all.streams[self.stream].arrivals;
                let arrivals = Arrivals { period: arrivals.period.saturating_mul(front.every), ..arrivals };
                Leaf::new(link, self.class, &arrivals, (&packets, mtu.min(link.mtu)), deadline)
            });
            // What leaves a queue of a channel's own may be in packets of any size.
            let is_any = leaf.or(here).is_some();
            packets.together = (gathers > 0 || is_any).then(|| together(link, front.size, mtu, at_once));
            let passed = leaf.map(|leaf| leaf.passes_as(link, packets.together_work()));
            leaf = leaf.or(here);
            let step = Step::Cross {
                leaf: here,
                passed,
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

/// A channel can have a queue of its own where it begins to cross this direction of a link: its classes are those of `htb`, and are installed there. Not at a router or
/// a switch: there a map gives each packet the priority of its mark, whatever its socket's was (`linux::queueing`, `map.rs`).
pub(crate) fn has_leaf(system: &System, direction: Direction) -> bool {
    let link = &system.links[direction.link];
    let is_host = system.nodes[direction.ends(system)[0]].kind == NodeKind::Host;
    is_host && link.scheduler == Scheduler::Htb && link.transmission.is_none() && direction.device(system).is_some()
}
