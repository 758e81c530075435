//! Pipes: capacity that is analysed in advance, and sold.
//!
//! A pipe leads from one node to another with one class, and carries at most its rate and its burst. All pipes are analysed together,
//! full. So a flow in a pipe has the pipe's bound as long as the pipe is not oversold, whoever comes later, and a decision is a sum over
//! the pipe's flows. The bound is that of the aggregate, which is served first come, first served (Le Boudec & Thiran 2001, theorem 1.4.2). It is
//! of the network alone: a flow that declares processor time at its ends is in none.

use super::{Bucket, Flows, Refusal, network_of};
use crate::Class;
use crate::analysis::Steps;
use crate::analysis::end_to_end::analyse;
use crate::analysis::stages::{Classes, Stages, Step};
use crate::network::{Direction, Network, wire_bytes};
use crate::system::{Link, Scheduler, Subscriber, System, Topic};
use std::collections::BTreeSet;
use std::fmt;

/// Most packets that may come at once into one pipe.
const PACKETS: u32 = 1 << 12;

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
    /// Bytes of the largest sample: a device may take it as one super-packet.
    pub largest: u64,
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

/// Why pipes cannot be made. Pipes and links are indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmade {
    /// No way leads from a pipe's one end to its other, or they are one node.
    NoWay(usize),
    /// Two pipes have the same ends and class.
    Twice(usize),
    /// A link with `htb` or `hfsc` states no shares: they would follow the load, and pipes are analysed full.
    NoShares(usize),
    /// A packet takes the same time on a link whatever its size: bytes do not measure its work.
    Transmission(usize),
    /// The overhead of a packet differs from that on other links: many small packets would be more work there than large ones.
    Overhead(usize),
    /// A pipe is later than its limit even if packets come one by one.
    Late(usize),
}

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
    /// Bytes of a sample.
    Size {
        /// Of the flow.
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
            Self::Size { .. } => write!(f, "largest sample of its pipe"),
        }
    }
}

impl Pipes {
    /// As much as can be sold on the nodes and links of `network`: rates that are together `part` (above 0, below 1) of what each class has on a
    /// link, and bursts that grow in turn, the highest class first, as long as all pipes keep their limits. A smaller `part` leaves room for larger
    /// bursts.
    ///
    /// # Errors
    /// [`Unmade`].
    pub fn new(network: &System, wanted: &[Wanted], part: f64) -> Result<Self, Unmade> {
        let maker = Maker::new(network, wanted, part)?;
        let mut packets = [1; 4];
        let mut best = maker.full(packets)?;
        let classes: BTreeSet<Class> = wanted.iter().map(|pipe| pipe.class).collect();
        // In turn by a quarter, then by half of what did not fit: no class takes what all have together.
        let mut growing: Vec<(usize, u32)> = classes.iter().rev().map(|class| (*class as usize, u32::MAX)).collect();
        while !growing.is_empty() {
            for (class, step) in &mut growing {
                let by = (packets[*class] / 4).max(1).min(*step);
                let mut more = packets;
                more[*class] += by;
                match maker.full(more).ok().filter(|_| more[*class] <= PACKETS) {
                    Some(found) => (best, packets) = (found, more),
                    None => *step = by / 2,
                }
            }
            growing.retain(|(_, step)| *step > 0);
        }
        Ok(Self(best))
    }

    /// All of them.
    pub fn all(&self) -> &[Pipe] {
        &self.0
    }

    pub(super) fn admits(&self, flows: &Flows, admitted: &BTreeSet<usize>, asked: usize) -> Result<(), Refusal> {
        let key = |flow: usize| {
            (flows.system.topics[flow].publishers[0], flows.system.subscribers[flow].node, flows.class(flow))
        };
        let (topic, subscriber) = (&flows.system.topics[asked], &flows.system.subscribers[asked]);
        if topic.cpu_send > 0 || subscriber.cpu_receive > 0 {
            return Err(Refusal::Processors);
        }
        let found = self.0.iter().find(|pipe| (pipe.wanted.from, pipe.wanted.to, pipe.wanted.class) == key(asked));
        let delay = |pipe: &Pipe| pipe.bound.saturating_add(topic.hand_in).saturating_add(topic.hand_out);
        let pipe = found.filter(|pipe| flows.in_time(asked, Some(delay(pipe)))).ok_or(Refusal::NoPipe)?;
        let inside = admitted.iter().copied().filter(|flow| key(*flow) == key(asked)).chain([asked]);
        let sum = inside.map(|flow| flows.bucket(flow)).fold(Bucket::default(), Bucket::with);
        pipe.takes(topic.size, sum).map_err(Refusal::Pipe)
    }
}

impl Pipe {
    /// Checks that it takes a sample of this size, and all its flows together.
    fn takes(&self, size: u64, Bucket { burst, rate }: Bucket) -> Result<(), Full> {
        match () {
            () if size > self.wanted.largest => Err(Full::Size { needs: size, has: self.wanted.largest }),
            () if rate > self.rate => Err(Full::Rate { needs: rate, has: self.rate }),
            () if burst > self.burst => Err(Full::Burst { needs: burst, has: self.burst }),
            () => Ok(()),
        }
    }
}

/// Makes pipes with bursts of any size.
struct Maker<'a> {
    wanted: &'a [Wanted],
    rates: Vec<f64>,
    /// A full packet of each pipe with its headers, bytes.
    frames: Vec<u64>,
    network: Network,
    /// The pipes with one packet at a time.
    system: System,
    /// The same with the largest samples.
    largest: System,
}

impl<'a> Maker<'a> {
    fn new(system: &System, wanted: &'a [Wanted], part: f64) -> Result<Self, Unmade> {
        let network = Network::new(system);
        let ways = wanted.iter().enumerate().map(|(index, pipe)| way(&network, index, pipe));
        let ways = ways.collect::<Result<Vec<_>, _>>()?;
        check(system, wanted, &ways)?;
        let rates = rates(system, wanted, &ways, part);
        let mut maker = Self {
            wanted,
            rates,
            frames: Vec::new(),
            network,
            system: network_of(system),
            largest: network_of(system),
        };
        for (index, way) in ways.iter().enumerate() {
            maker.lay(index, way, system);
        }
        Ok(maker)
    }

    fn lay(&mut self, index: usize, way: &[Direction], system: &System) {
        let (wanted, rate) = (&self.wanted[index], self.rates[index]);
        let links = || way.iter().map(|at| &system.links[at.link]);
        let size = links().map(|link| link.mtu).min().unwrap_or(1);
        let frame = links().map(|link| wire_bytes(link, size)).max().unwrap_or(size);
        let time = |link: &Link| (u128::from(frame) * 8_000_000_000).div_ceil(u128::from(link.rate.max(1))) as u64;
        let topic = Topic {
            name: format!("pipe{index}"),
            size,
            rate: rate / (frame as f64 * 8.0),
            period: ((frame as f64 * 8e9 / rate) as u64).max(1),
            // Small packets are at each further link as much sooner than full ones.
            jitter: links().take(way.len() - 1).map(time).sum(),
            burst: 1,
            publishers: vec![wanted.from],
            class: Some(wanted.class),
            ..Topic::default()
        };
        let (node, name) = (wanted.to, format!("pipe{index}"));
        let subscriber = Subscriber { topic: index, node, name, scale: 1, ..Subscriber::default() };
        self.frames.push(frame);
        self.largest.topics.push(Topic { size: wanted.largest.max(size), ..topic.clone() });
        self.largest.subscribers.push(subscriber.clone());
        self.system.topics.push(topic);
        self.system.subscribers.push(subscriber);
    }

    /// The pipes, full: each carries packets as large as its way takes, at its rate, so many at once by class.
    ///
    /// Stairs of `b` packets at once stay above a bucket with `b − 1` of them: that is what is sold.
    fn full(&self, packets: [u32; 4]) -> Result<Vec<Pipe>, Unmade> {
        let mut system = self.system.clone();
        for (topic, pipe) in system.topics.iter_mut().zip(self.wanted) {
            topic.burst = packets[pipe.class as usize];
        }
        let analysis = analyse(&system, &self.stages(&system), &Steps::of(&system));
        let pipe = |(index, wanted): (usize, &Wanted)| {
            let bound = analysis.pairs.get(index).and_then(|bound| bound.ns.ok());
            let bound = bound.filter(|bound| *bound <= wanted.limit).ok_or(Unmade::Late(index))?;
            let burst = u64::from(packets[wanted.class as usize] - 1) * self.frames[index];
            Ok(Pipe { wanted: *wanted, rate: self.rates[index], burst, bound })
        };
        self.wanted.iter().enumerate().map(pipe).collect()
    }

    /// The stages of these pipes, on which devices take the largest samples at once.
    fn stages(&self, system: &System) -> Stages {
        let of = |system: &System| Stages::new(system, &self.network, &[], &Classes::stated(system));
        let (mut stages, largest) = (of(system), of(&self.largest));
        for (stage, large) in stages.stages.iter_mut().zip(&largest.stages) {
            if let (Step::Cross { packets, .. }, Step::Cross { packets: large, .. }) = (&mut stage.step, &large.step) {
                packets.unit = large.unit;
            }
        }
        stages
    }
}

fn way(network: &Network, index: usize, pipe: &Wanted) -> Result<Vec<Direction>, Unmade> {
    network.route(pipe.from, pipe.to).filter(|way| !way.is_empty()).ok_or(Unmade::NoWay(index))
}

/// Checks that bytes measure the work of pipes on all links of their ways.
fn check(system: &System, wanted: &[Wanted], ways: &[Vec<Direction>]) -> Result<(), Unmade> {
    let key = |pipe: &Wanted| (pipe.from, pipe.to, pipe.class);
    let twice = (0..wanted.len()).find(|one| wanted[..*one].iter().any(|other| key(other) == key(&wanted[*one])));
    twice.map_or(Ok(()), |index| Err(Unmade::Twice(index)))?;
    let crossed: BTreeSet<usize> = ways.iter().flatten().map(|at| at.link).collect();
    let overhead = crossed.first().map_or(0, |link| system.links[*link].overhead);
    for index in crossed {
        let link = &system.links[index];
        let shared = matches!(link.scheduler, Scheduler::Htb | Scheduler::Hfsc);
        match () {
            () if shared && link.shares.is_none() => return Err(Unmade::NoShares(index)),
            () if link.transmission.is_some() => return Err(Unmade::Transmission(index)),
            () if link.overhead != overhead => return Err(Unmade::Overhead(index)),
            () => {}
        }
    }
    Ok(())
}

/// Pipes of a class have equal parts of each link's share, and the rate of the least of their ways.
fn rates(system: &System, wanted: &[Wanted], ways: &[Vec<Direction>], part: f64) -> Vec<f64> {
    let rate = |(pipe, way): (&Wanted, &Vec<Direction>)| {
        let of = |at: &Direction| {
            let link = &system.links[at.link];
            let share = link.shares.map_or(1.0, |shares| shares[pipe.class as usize]);
            // Without shares the classes have the link together.
            let beside = |other: &Wanted| link.shares.is_none() || other.class == pipe.class;
            let count = wanted.iter().zip(ways).filter(|(other, way)| beside(other) && way.contains(at)).count();
            part * share * link.rate as f64 / count as f64
        };
        way.iter().map(of).fold(f64::INFINITY, f64::min)
    };
    wanted.iter().zip(ways).map(rate).collect()
}
