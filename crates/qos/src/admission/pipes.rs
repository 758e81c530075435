//! Pipes: capacity that is analysed in advance, and sold.
//!
//! A pipe leads from one node to another with one class, and carries at most its rate and its burst. All pipes are analysed together,
//! full. So a flow in a pipe has the pipe's bound as long as the pipe is not oversold, whoever comes later, and a decision takes two
//! additions. The bound is that of the aggregate, which is served first come, first served (Le Boudec & Thiran 2001, theorem 1.4.2). It is
//! of the network alone: processor time at the ends is not in it.

use super::{Bucket, Flows, Refusal, analysis};
use crate::Class;
use crate::network::{Direction, Network, wire_bytes};
use crate::system::{Subscriber, System, Topic};
use std::collections::BTreeSet;
use std::fmt;

/// Most packets that may come at once into one pipe.
const PACKETS: u32 = 1 << 10;

/// A pipe that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The publishers' node (index).
    pub from: usize,
    /// The subscribers' node (index).
    pub to: usize,
    /// The class.
    pub class: Class,
    /// The longest delay that it may have, ns.
    pub limit: u64,
}

/// A pipe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pipe {
    /// What it was made for.
    pub wanted: Wanted,
    /// bit/s of frames.
    pub rate: f64,
    /// Bytes of frames that may come at once.
    pub burst: u64,
    /// The longest delay in it, ns.
    pub bound: u64,
}

/// Pipes that were analysed together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pipes(Vec<Pipe>);

/// What a pipe has too little of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Full {
    /// bit/s.
    Rate {
        /// Of all its flows.
        needs: f64,
        /// Of the pipe.
        has: f64,
    },
    /// Bytes at once.
    Burst {
        /// Of all its flows.
        needs: u64,
        /// Of the pipe.
        has: u64,
    },
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate { .. } => write!(f, "rate of its pipe"),
            Self::Burst { .. } => write!(f, "burst of its pipe"),
        }
    }
}

impl Pipes {
    /// As much as can be sold: rates that are together `part` (below 1) of what each class has on a link, and bursts that grow packet by packet, class
    /// by class, as long as all pipes keep their limits. The less rate, the more burst. `None`: they do not even with single packets.
    pub fn new(network: &System, wanted: &[Wanted], part: f64) -> Option<Self> {
        let rates = rates(network, wanted, part)?;
        let mut packets = [1; 4];
        let mut best = full(network, wanted, &rates, packets)?;
        let mut grow: Vec<usize> = (0..packets.len()).rev().collect();
        while !grow.is_empty() {
            grow.retain(|class| {
                let mut more = packets;
                more[*class] += 1;
                let found = full(network, wanted, &rates, more).filter(|_| more[*class] <= PACKETS);
                let fits = found.is_some();
                (best, packets) = found.map_or_else(|| (best.clone(), packets), |found| (found, more));
                fits
            });
        }
        Some(Self(best))
    }

    /// All of them.
    pub fn all(&self) -> &[Pipe] {
        &self.0
    }

    pub(super) fn admits(&self, flows: &Flows, admitted: &BTreeSet<usize>, asked: usize) -> Result<(), Refusal> {
        let key = |flow: usize| {
            (flows.system.topics[flow].publishers[0], flows.system.subscribers[flow].node, flows.class(flow))
        };
        let found = self.0.iter().find(|pipe| (pipe.wanted.from, pipe.wanted.to, pipe.wanted.class) == key(asked));
        let topic = &flows.system.topics[asked];
        let delay = |pipe: &Pipe| pipe.bound.saturating_add(topic.hand_in).saturating_add(topic.hand_out);
        let pipe = found.filter(|pipe| flows.in_time(asked, Some(delay(pipe)))).ok_or(Refusal::NoPipe)?;
        let inside = admitted.iter().copied().filter(|flow| key(*flow) == key(asked)).chain([asked]);
        let sum = inside.map(|flow| flows.bucket(flow)).fold(Bucket::default(), |sum, one| Bucket {
            burst: sum.burst.saturating_add(one.burst),
            rate: sum.rate + one.rate,
        });
        if sum.rate > pipe.rate {
            return Err(Refusal::Pipe(Full::Rate { needs: sum.rate, has: pipe.rate }));
        }
        if sum.burst > pipe.burst {
            return Err(Refusal::Pipe(Full::Burst { needs: sum.burst, has: pipe.burst }));
        }
        Ok(())
    }
}

/// Pipes of a class have equal parts of each link's share, and the rate of the least of their ways.
fn rates(system: &System, wanted: &[Wanted], part: f64) -> Option<Vec<f64>> {
    let network = Network::new(system);
    let ways = wanted.iter().map(|pipe| network.route(pipe.from, pipe.to)).collect::<Option<Vec<_>>>()?;
    let rate = |(pipe, way): (&Wanted, &Vec<Direction>)| {
        let of = |at: &Direction| {
            let link = &system.links[at.link];
            let share = link.shares.map_or(1.0, |shares| shares[pipe.class as usize]);
            // Without shares the classes have the link together.
            let beside = |other: &Wanted| link.shares.is_none() || other.class == pipe.class;
            let count = wanted.iter().zip(&ways).filter(|(other, way)| beside(other) && way.contains(at)).count();
            part * share * link.rate as f64 / count as f64
        };
        way.iter().map(of).fold(f64::INFINITY, f64::min)
    };
    Some(wanted.iter().zip(&ways).map(rate).collect())
}

/// The pipes, full: each carries packets as large as its way takes, at its rate, so many at once. `None`: one is later than its limit.
///
/// Stairs of `b` packets at once stay above a bucket with `b − 1` of them: that is what is sold.
fn full(network: &System, wanted: &[Wanted], rates: &[f64], packets: [u32; 4]) -> Option<Vec<Pipe>> {
    let mut system = System { topics: Vec::new(), subscribers: Vec::new(), ..network.clone() };
    let graph = Network::new(&system);
    let mut frames = Vec::new();
    for (index, (pipe, rate)) in wanted.iter().zip(rates).enumerate() {
        let way = graph.route(pipe.from, pipe.to)?;
        let links = || way.iter().map(|at| &network.links[at.link]);
        let size = links().map(|link| link.mtu).min()?;
        let frame = links().map(|link| wire_bytes(link, size)).max()?;
        frames.push(frame);
        system.topics.push(Topic {
            name: format!("pipe{index}"),
            size,
            rate: rate / (frame as f64 * 8.0),
            period: ((frame as f64 * 8e9 / rate) as u64).max(1),
            burst: packets[pipe.class as usize],
            publishers: vec![pipe.from],
            class: Some(pipe.class),
            ..Topic::default()
        });
        let (topic, node, name) = (index, pipe.to, format!("pipe{index}"));
        system.subscribers.push(Subscriber { topic, node, name, scale: 1, ..Subscriber::default() });
    }
    let analysis = analysis(&system, &graph);
    let pipe = |(index, wanted): (usize, &Wanted)| {
        let bound = analysis.pairs.get(index)?.ns.ok().filter(|bound| *bound <= wanted.limit)?;
        let burst = u64::from(packets[wanted.class as usize] - 1) * frames[index];
        Some(Pipe { wanted: *wanted, rate: rates[index], burst, bound })
    };
    wanted.iter().enumerate().map(pipe).collect()
}
