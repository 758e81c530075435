//! Admission control, flow after flow, by four rules side by side (V-43).
//!
//! | rule | admits a flow if | source |
//! |---|---|---|
//! | [`Rule::Declared`] | the declared rates of its class fit into the class's share, on each link of its way | Velox §2.2.3: the checks inside a domain, between two, and from end to end |
//! | [`Rule::Measured`] | its rate and the measured load of its class fit into 90 % of the share, on each link of its way | Jamin, Shenker & Danzig 1997, "measured sum" |
//! | [`Rule::Bound`] | all flows keep their deadlines with it, by the analysis | [`crate::analysis::end_to_end`] |
//! | [`Rule::Pipes`] | a pipe between its ends, which were analysed in advance and full, has room for it | [`pipes`] |
//!
//! The first two look at means, so a flow of theirs may be late while others burst.

pub mod pipes;

use crate::Class;
use crate::analysis::end_to_end::{Analysis, analyse};
use crate::analysis::stages::{Classes, Stages};
use crate::analysis::{Arrivals, Steps};
use crate::network::{Direction, Network, wire_bytes, wire_load};
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
            Self::Pipe(full) => write!(f, "{full}"),
        }
    }
}

impl Rule {
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
    /// The flows of `system`: its topics and subscribers come in pairs.
    ///
    /// # Panics
    /// If they do not.
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
        let mut system = System { topics: Vec::new(), subscribers: Vec::new(), ..self.system.clone() };
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
        let analysis = analysis(&self.only(flows), &self.network);
        flows.iter().copied().zip(analysis.pairs.iter().map(|bound| bound.ns.ok())).collect()
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
            part(*flow) * wire_load(link, topic.size, topic.rate * f64::from(topic.burst.max(1)))
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

    /// A leaky bucket above a flow: bytes of frames at once, and bit/s besides. Headers are those of the link with the largest.
    fn bucket(&self, flow: usize) -> Bucket {
        let topic = &self.system.topics[flow];
        let way = self.way(flow).unwrap_or_default();
        let bytes =
            way.iter().map(|at| wire_bytes(&self.system.links[at.link], topic.size)).max().unwrap_or(topic.size);
        let Arrivals { period, jitter } = Arrivals::bursty(topic.period, topic.jitter, topic.burst);
        let late = u128::from(bytes) * u128::from(jitter);
        let late = late.div_ceil(u128::from(period.max(1)));
        Bucket {
            burst: bytes.saturating_add(u64::try_from(late).unwrap_or(u64::MAX)),
            rate: bytes as f64 * 8e9 / period as f64,
        }
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

/// At most `burst` bytes at once, and `rate` bit/s besides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bucket {
    burst: u64,
    rate: f64,
}

/// Bounds of all channels of `system` with the classes that it states.
fn analysis(system: &System, network: &Network) -> Analysis {
    let stages = Stages::new(system, network, &[], &Classes::stated(system));
    analyse(system, &stages, &Steps::of(system))
}

#[cfg(test)]
mod tests;
