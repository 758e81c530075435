//! Admission control, flow after flow, by four rules side by side (V-43).
//!
//! | rule | admits a flow if | source |
//! |---|---|---|
//! | [`Rule::Declared`] | the declared rates of its class fit into the class's share, link by link of its way: inside domains and between them. From end to end all have to accept | Velox §2.2.3, which gives no formula (E-V17) |
//! | [`Rule::Measured`] | its rate and the measured load of its class fit into 90 % of the share, on each link of its way | Jamin, Shenker & Danzig 1997, "measured sum" |
//! | [`Rule::Bound`] | all flows keep their deadlines with it, by the analysis | [`crate::analysis::end_to_end`] |
//! | [`Rule::Pipes`] | a pipe between its ends, which were analysed in advance and full, has room for it | [`pipes`] |
//!
//! The first two look at means, so a flow of theirs may be late while others burst.

pub mod pipes;

use crate::Class;
use crate::analysis::end_to_end::analyse;
use crate::analysis::stages::{Classes, Stages};
use crate::analysis::{Arrivals, Steps};
use crate::network::{Direction, Network, wire_load};
use crate::system::{System, Topic};
use pipes::{Full, Pipes};
use std::collections::BTreeSet;
use std::fmt;

/// Part of a share that [`Rule::Measured`] fills (υ; Jamin, Shenker & Danzig 1997, §2.2).
pub const UTILISATION: f64 = 0.9;

/// A rule of admission.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// By declared rates.
    Declared,
    /// By the measured load.
    Measured,
    /// By the bound of every flow.
    Bound,
    /// By pipes.
    Pipes(Pipes),
}

/// Flows, each with a topic and a subscriber of its own: flow *i* is subscriber *i* of topic *i*, which one node publishes.
#[derive(Debug)]
pub struct Flows {
    system: System,
    network: Network,
}

/// The measured load of a class in one direction of a link, in bit/s.
pub type Measured<'a> = &'a dyn Fn(Direction, Class) -> f64;

/// Why a flow is not admitted.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// No way leads to its subscriber.
    NoWay,
    /// Its class's share of a link.
    Share {
        /// The direction of the link.
        direction: Direction,
        /// `true`: between two domains; `false`: inside one.
        border: bool,
        /// bit/s with the flow.
        needs: f64,
        /// bit/s.
        has: f64,
    },
    /// A flow (index), this one or another, would be later than its deadline, or has no bound.
    Late(usize),
    /// No pipe leads from its publisher to its subscriber with its class within its deadline.
    NoPipe,
    /// It declares processor time at its ends, which pipes do not have.
    Processors,
    /// The pipe is full.
    Pipe(Full),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWay => write!(f, "no way leads to its subscriber"),
            Self::Share { border: true, .. } => write!(f, "share of a link between domains"),
            Self::Share { border: false, .. } => write!(f, "share of a link inside a domain"),
            Self::Late(_) => write!(f, "a flow would be late"),
            Self::NoPipe => write!(f, "no pipe within its deadline"),
            Self::Processors => write!(f, "processor time at its ends"),
            Self::Pipe(full) => write!(f, "{full}"),
        }
    }
}

impl Rule {
    /// `true`: what it admits keeps its deadlines, as long as it alone admits.
    pub fn guarantees(&self) -> bool {
        matches!(self, Self::Bound | Self::Pipes(_))
    }

    /// Decides whether flow `asked` is admitted beside `admitted` ones.
    ///
    /// # Errors
    /// The [`Refusal`].
    pub fn admits(
        &self,
        flows: &Flows,
        admitted: &BTreeSet<usize>,
        asked: usize,
        measured: Measured<'_>,
    ) -> Result<(), Refusal> {
        match self {
            Self::Declared => {
                let declared = |at, class| flows.load(admitted, at, class, |_| 1.0);
                flows.fits(asked, 1.0, &declared)
            }
            Self::Measured => flows.fits(asked, UTILISATION, measured),
            Self::Bound => {
                flows.way(asked).ok_or(Refusal::NoWay)?;
                let mut all = admitted.clone();
                all.insert(asked);
                let mut bounds = flows.bounds(&all).into_iter();
                let late = bounds.find(|(flow, bound)| !flows.in_time(*flow, *bound));
                late.map_or(Ok(()), |(flow, _)| Err(Refusal::Late(flow)))
            }
            Self::Pipes(pipes) => pipes.admits(flows, admitted, asked),
        }
    }
}

impl Flows {
    /// The flows of `system`: its topics and subscribers come in pairs. Its chains do not count.
    ///
    /// # Panics
    /// If they do not come in pairs.
    pub fn new(system: System) -> Self {
        let paired = |(index, topic): (usize, &Topic)| {
            topic.publishers.len() == 1 && system.subscribers.get(index).is_some_and(|to| to.topic == index)
        };
        assert!(
            system.topics.len() == system.subscribers.len() && system.topics.iter().enumerate().all(paired),
            "topic i has one publisher and subscriber i"
        );
        let network = Network::new(&system);
        Self { system, network }
    }

    /// The system of all flows.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The network with these flows alone, in order.
    pub fn only(&self, flows: &BTreeSet<usize>) -> System {
        let mut system = network_of(&self.system);
        for flow in flows {
            let mut subscriber = self.system.subscribers[*flow].clone();
            subscriber.topic = system.topics.len();
            system.topics.push(self.system.topics[*flow].clone());
            system.subscribers.push(subscriber);
        }
        system
    }

    /// The bound of each of these flows beside the others, ns; `None`: it has none.
    pub fn bounds(&self, flows: &BTreeSet<usize>) -> Vec<(usize, Option<u64>)> {
        let system = self.only(flows);
        let stages = Stages::new(&system, &self.network, &[], &Classes::stated(&system));
        let analysis = analyse(&system, &stages, &Steps::of(&system));
        let mut bounds: Vec<(usize, Option<u64>)> = flows.iter().map(|flow| (*flow, None)).collect();
        for (pair, bound) in stages.pairs.iter().zip(&analysis.pairs) {
            bounds[pair.subscriber].1 = bound.ns.ok();
        }
        bounds
    }

    /// `true`: a delay that is within the flow's deadline.
    pub fn in_time(&self, flow: usize, delay: Option<u64>) -> bool {
        let deadline = self.system.subscribers[flow].deadline.unwrap_or(u64::MAX);
        delay.is_some_and(|delay| delay <= deadline)
    }

    /// Load of a class in one direction of a link by these flows, bit/s, each with this part of its declared rate.
    pub fn load(&self, flows: &BTreeSet<usize>, at: Direction, class: Class, part: impl Fn(usize) -> f64) -> f64 {
        let link = &self.system.links[at.link];
        let crosses = |flow: &usize| self.class(*flow) == class && self.way(*flow).is_some_and(|way| way.contains(&at));
        let of = |flow: &usize| {
            let topic = &self.system.topics[*flow];
            part(*flow) * wire_load(link, topic.size, topic.rate)
        };
        flows.iter().filter(|flow| crosses(flow)).map(of).sum()
    }

    /// The directions of its links, in order.
    pub fn way(&self, flow: usize) -> Option<Vec<Direction>> {
        self.network.route(self.system.topics[flow].publishers[0], self.system.subscribers[flow].node)
    }

    fn class(&self, flow: usize) -> Class {
        self.system.topics[flow].class.unwrap_or_default()
    }

    /// A leaky bucket above a flow at its first link: bytes of frames at once, and bit/s besides. Packets are those of the narrowest link of its way,
    /// headers those of the link with the largest.
    fn bucket(&self, flow: usize) -> Bucket {
        let topic = &self.system.topics[flow];
        let way = self.way(flow).unwrap_or_default();
        let links = || way.iter().map(|at| &self.system.links[at.link]);
        let mtu = links().map(|link| link.mtu.max(1)).min().unwrap_or(u64::MAX);
        let overhead = links().map(|link| link.overhead).max().unwrap_or(0);
        // What waits on its way to the middleware comes the later, and then at once.
        let jitter = topic.jitter.saturating_add(topic.hand_in);
        let arrivals = Arrivals::bursty(topic.period.max(1), jitter, topic.burst);
        Bucket::of(topic.size, [mtu, overhead], arrivals)
    }

    /// On each link of its way: its rate and the load of its class fit into `part` of the class's share.
    fn fits(&self, asked: usize, part: f64, load: Measured<'_>) -> Result<(), Refusal> {
        let class = self.class(asked);
        let alone = BTreeSet::from([asked]);
        for direction in self.way(asked).ok_or(Refusal::NoWay)? {
            let link = &self.system.links[direction.link];
            let share = link.shares.map_or(1.0, |shares| shares[class as usize]);
            let needs = load(direction, class) + self.load(&alone, direction, class, |_| 1.0);
            let has = part * share * link.rate as f64;
            if needs > has {
                let [from, to] = direction.ends(&self.system).map(|node| &self.system.nodes[node].domain);
                return Err(Refusal::Share { direction, border: from != to, needs, has });
            }
        }
        Ok(())
    }
}

/// A token bucket above a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bucket {
    /// Bytes of frames that may come at once.
    pub burst: u64,
    /// bit/s of frames besides.
    pub rate: f64,
}

impl Bucket {
    /// The bucket of samples of this size that arrive so, in packets with this largest payload and overhead (bytes).
    pub fn of(size: u64, [mtu, overhead]: [u64; 2], arrivals: Arrivals) -> Self {
        let Arrivals { period, jitter } = arrivals;
        let packets = size.div_ceil(mtu.max(1)).max(1);
        let bytes = size.saturating_add(packets.saturating_mul(overhead));
        let late = (u128::from(bytes) * u128::from(jitter)).div_ceil(u128::from(period.max(1)));
        let burst = bytes.saturating_add(u64::try_from(late).unwrap_or(u64::MAX));
        Self { burst, rate: bytes as f64 * 8e9 / period.max(1) as f64 }
    }

    /// Both together.
    pub fn with(self, other: Self) -> Self {
        Self { burst: self.burst.saturating_add(other.burst), rate: self.rate + other.rate }
    }

    /// The larger one, part by part.
    pub fn max(self, other: Self) -> Self {
        Self { burst: self.burst.max(other.burst), rate: self.rate.max(other.rate) }
    }
}

/// Nodes and links alone.
fn network_of(system: &System) -> System {
    let (name, nodes, links) = (system.name.clone(), system.nodes.clone(), system.links.clone());
    System { name, nodes, links, placement: system.placement.clone(), ..System::default() }
}

#[cfg(test)]
mod tests;
