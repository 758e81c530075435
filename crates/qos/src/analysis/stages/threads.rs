//! Threads on the processors of their nodes: reservations, places and ranks.

use super::{Role, Stage, Stages, Step};
use crate::analysis::cpu::Work;
use crate::analysis::cpu::reservation::{Excess, Reservation, admits};
use crate::system::{Sched, System, Transport};

/// Ranks that priorities are left for between the highest and the lowest that threads of channels get; beyond them threads are equal.
pub const RANKS: u32 = 47;

/// The reservation of each of a stage's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The reservation.
    pub each: Reservation,
    /// Number of threads: a channel that is sent by itself has one of its own.
    pub threads: u32,
    /// How often the deadline was halved, because it was too late.
    halvings: u32,
}

impl Stages {
    /// The reservations of all threads of a node.
    pub fn reservations(&self, node: usize) -> Vec<Reservation> {
        let each = |reserved: Reserved| std::iter::repeat_n(reserved.each, reserved.threads as usize);
        self.stages.iter().filter_map(|stage| self.reserved(stage, node)).flat_map(each).collect()
    }

    /// The most that the reserved threads of a node take from the others, which run when none of them wants to. It may be on any
    /// processor.
    pub fn taken(&self, node: usize) -> Vec<Work> {
        self.reservations(node).iter().map(Reservation::taken).collect()
    }

    /// Nodes with more reservations than they can keep, and by how much.
    pub fn exceeded(&self, system: &System) -> Vec<(usize, Excess)> {
        let of = |(index, node): (usize, &crate::system::Node)| {
            Some((index, admits(&self.reservations(index), node.cpus).err()?))
        };
        system.nodes.iter().enumerate().filter_map(of).collect()
    }

    /// Halves the deadline of a stage's reservation. `false`, and nothing is changed: it has none, or its node does not admit that.
    pub fn halve(&mut self, system: &System, stage: usize) -> bool {
        let Step::Compute { processor, execution, reserved: Some(before), .. } = self.stages[stage].step else {
            return false;
        };
        let halvings = before.halvings + 1;
        let after = Reserved { each: self.reservation(stage, execution, halvings), halvings, ..before };
        self.set_reserved(stage, after);
        let node = self.processors[processor];
        let admitted = admits(&self.reservations(node), system.nodes[node].cpus).is_ok();
        if !admitted {
            self.set_reserved(stage, before);
        }
        admitted
    }

    /// Samples come evenly only where they begin.
    fn reservation(&self, stage: usize, execution: u64, halvings: u32) -> Reservation {
        let stage = &self.stages[stage];
        let arrivals = self.arrivals(stage);
        let even = stage.after.is_none() && arrivals.jitter == 0;
        Reservation::of(execution, arrivals.period, even, halvings)
    }

    fn reserved(&self, stage: &Stage, node: usize) -> Option<Reserved> {
        match stage.step {
            Step::Compute { processor, reserved, .. } if self.processors[processor] == node => reserved,
            _ => None,
        }
    }

    fn set_reserved(&mut self, stage: usize, to: Reserved) {
        if let Step::Compute { reserved, .. } = &mut self.stages[stage].step {
            *reserved = Some(to);
        }
    }
}

/// Gives the threads that send and receive their reservations, where the contract states them. The threads of proxies belong to relays,
/// which the plan gives no priorities either.
pub(super) fn reserve(all: &mut Stages, system: &System) {
    let mut channels = vec![0_u32; all.stages.len()];
    for pair in &all.pairs {
        all.path(pair).for_each(|stage| channels[stage] += 1);
    }
    for (index, channels) in channels.into_iter().enumerate() {
        let stage = all.stages[index];
        let Step::Compute { processor: node, execution, role, .. } = stage.step else { continue };
        let topic = all.streams[stage.stream].topic;
        let (sched, threads) = match role {
            Role::Send if system.placement.transport == Transport::Unicast => {
                (system.sched(node, topic, None), channels)
            }
            Role::Send => (system.sched(node, topic, None), 1),
            Role::Receive(subscriber) => (system.sched(node, topic, Some(subscriber)), 1),
            Role::Proxy => continue,
        };
        if sched == Sched::Reserved {
            let each = all.reservation(index, execution, 0);
            all.set_reserved(index, Reserved { each, threads: threads.max(1), halvings: 0 });
        }
    }
}

/// Spreads the threads of each node over its processors, those with a reservation first, the heaviest first, each to the one with the
/// least load; and ranks the others of a processor by the shortest deadline that they serve, ties by order.
pub(super) fn place(all: &mut Stages, system: &System) {
    let deadlines = deadlines(all, system);
    let mut of_node = vec![Vec::new(); system.nodes.len()];
    for (index, stage) in all.stages.iter().enumerate() {
        if let Step::Compute { processor: node, execution, reserved, .. } = stage.step {
            of_node[node].push((reserved.is_none(), all.arrivals(stage).load(execution), index));
        }
    }
    for (node, mut threads) in of_node.into_iter().enumerate().filter(|(_, threads)| !threads.is_empty()) {
        threads.sort_by_key(|(ranked, load, index)| (*ranked, std::cmp::Reverse(*load), *index));
        // Without a thread of its own a processor need not be known.
        let count = (system.nodes[node].cpus.max(1) as usize).min(threads.len());
        let mut processors = vec![(0_u128, Vec::new()); count];
        for (ranked, load, thread) in threads {
            let Some(least) = processors.iter_mut().min_by_key(|(load, _)| *load) else { continue };
            least.0 += load;
            least.1.push((ranked, thread));
        }
        for (_, mut threads) in processors {
            threads.sort_by_key(|(ranked, thread)| (!*ranked, deadlines[*thread], *thread));
            let this = all.processors.len();
            all.processors.push(node);
            for (order, (ranked, thread)) in (0..).map(|order: u32| order.min(RANKS - 1)).zip(threads) {
                if let Step::Compute { processor, rank, .. } = &mut all.stages[thread].step {
                    (*processor, *rank) = (this, if ranked { order } else { 0 });
                }
            }
        }
    }
}

/// The shortest deadline of the pairs, and of their chains, whose way leads over each stage.
fn deadlines(all: &Stages, system: &System) -> Vec<u64> {
    let of = system.deadlines();
    let mut shortest = vec![u64::MAX; all.stages.len()];
    for pair in &all.pairs {
        let deadline = of[pair.subscriber].unwrap_or(u64::MAX);
        all.path(pair).for_each(|stage| shortest[stage] = shortest[stage].min(deadline));
    }
    shortest
}
