//! The stages that samples pass on processors and in queues, by a contract with its routes, proxies and priorities.
//!
//! A stage begins when the one before it is done with a sample. The stages of a publisher's topic form a tree with the
//! subscribers at its leaves. Analysis and simulation read the same tree, so that they describe the same system.

mod classes;
mod leaf;
mod packets;
mod threads;
mod way;

use std::collections::HashMap;

use super::{Arrivals, BILLION};
use crate::Class;
use crate::network::{Direction, Network};
use crate::system::{Link, NodeKind, Scheduler, System};
pub use classes::Classes;
pub use leaf::Leaf;
pub(crate) use packets::at_once;
pub use packets::{Paced, Packets, Together, htb_burst};
use packets::{packets, wire_ns};
pub use threads::{RANKS, Reserved};
use way::Way;
#[cfg(feature = "placement")]
pub(crate) use way::has_leaf;

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
        /// A queue of the channel's own, before this link; `None`: its class's.
        leaf: Option<Leaf>,
        /// The most that comes if the stages before take no time, because such a queue is before an earlier link; `None`: as it was published.
        passed: Option<Arrivals>,
    },
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
    /// The queue of control traffic: no more leaves it, whatever comes.
    pub control: Option<Leaf>,
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
        let mut own = vec![0; self.egresses.len()];
        for stage in &self.stages {
            match stage.step {
                Step::Cross { queue, leaf: Some(leaf), .. } => own[queue] += u128::from(leaf.share),
                Step::Cross { queue, class, packets, .. } => {
                    loads[queue][class as usize] += self.arrivals(stage).load(packets.work());
                }
                Step::Compute { .. } => {}
            }
        }
        for ((egress, mut loads), own) in self.egresses.iter_mut().zip(loads).zip(own) {
            let link = &system.links[egress.direction.link];
            if link.shares.is_none() {
                let background = egress.background.map_or(0, |all| all.arrivals.load(all.work));
                loads[Class::Normal as usize] += background;
                let own = own + egress.control.map_or(0, |control| u128::from(control.share));
                egress.shares = by_load(loads, BILLION.saturating_sub(own));
                egress.buckets = egress.shares.map(|share| bucket(link.rate, share));
            }
        }
    }

    /// Arrivals at a stage if the stages before it take no time.
    pub fn arrivals(&self, stage: &Stage) -> Arrivals {
        if let Step::Cross { passed: Some(passed), .. } = stage.step {
            return passed;
        }
        let stream = &self.streams[stage.stream].arrivals;
        Arrivals { period: stream.period.saturating_mul(stage.every), ..*stream }
    }

    /// The stages on a pair's way, the last first.
    pub fn path(&self, pair: &Pair) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(pair.last, |stage| self.stages[*stage].after)
    }
}

/// Parts per billion of a link for each class: its load, one percent besides, and of what is left as much as each other class that is
/// used, together the `whole` that queues of channels' own leave. (In proportion to its load alone, a class with few small samples would wait long for its next token.) More load than the link
/// carries is scaled down.
fn by_load(loads: [u128; 4], whole: u128) -> [u64; 4] {
    let least = (BILLION / 100).min(whole / 4);
    let (free, sum) = (whole - 4 * least, loads.iter().sum::<u128>());
    let used = loads.iter().filter(|load| **load > 0).count() as u128;
    let part = |load: u128| match used {
        0 => free / 4,
        _ if sum > free => free * load / sum,
        _ if load == 0 => 0,
        _ => load + (free - sum) / used,
    };
    loads.map(|load| u64::try_from(least + part(load)).unwrap_or(0))
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
        let control = Leaf::control(link);
        Egress { direction, scheduler, shares, buckets, delay: link.delay, ahead, background, control }
    })
    .collect()
}

/// The bucket of a class with this share of a link's rate: its time on the wire, ns.
fn bucket(rate: u64, share: u64) -> u64 {
    let own = (u128::from(rate) * u128::from(share) / BILLION).max(1);
    let bits = u128::from(htb_burst(u64::try_from(own).unwrap_or(u64::MAX))) * 8;
    u64::try_from((bits * u128::from(share)).div_ceil(own)).unwrap_or(u64::MAX)
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
    use crate::system::{Node, Placement, Proxies, Subscriber, Topic, Transport};

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
        let percent =
            |loads: [u128; 4]| by_load(loads.map(|load| load * 10_000_000), BILLION).map(|share| share / 10_000_000);
        assert_eq!(percent([0, 26, 0, 2]), [1, 61, 1, 37]);
        assert_eq!(percent([0; 4]), [25; 4]);
        assert_eq!(percent([0, 96, 0, 96]), [1, 49, 1, 49], "too much");
        assert_eq!(by_load([0; 4], BILLION / 2), [125_000_000; 4], "what queues of channels' own leave");
        assert_eq!(by_load([7; 4], 0), [0; 4], "nothing is left");
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
