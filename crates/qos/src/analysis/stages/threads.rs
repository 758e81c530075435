//! Threads on the processors of their nodes.

use super::{Stages, Step};
use crate::system::System;

/// Ranks that priorities are left for between the highest and the lowest that threads of channels get; beyond them threads are equal.
pub const RANKS: u32 = 47;

/// Spreads the threads of each node over its processors, the heaviest first, each to the one with the least load; and ranks those
/// of a processor by the shortest deadline that they serve, ties by order.
pub(super) fn place(all: &mut Stages, system: &System) {
    let deadlines = deadlines(all, system);
    let mut of_node = vec![Vec::new(); system.nodes.len()];
    for (index, stage) in all.stages.iter().enumerate() {
        if let Step::Compute { processor: node, execution, .. } = stage.step {
            of_node[node].push((all.arrivals(stage).load(execution), index));
        }
    }
    for (node, mut threads) in of_node.into_iter().enumerate().filter(|(_, threads)| !threads.is_empty()) {
        threads.sort_by_key(|(load, index)| (std::cmp::Reverse(*load), *index));
        // Without a thread of its own a processor need not be known.
        let count = (system.nodes[node].cpus.max(1) as usize).min(threads.len());
        let mut processors = vec![(0_u128, Vec::new()); count];
        for (load, thread) in threads {
            let Some(least) = processors.iter_mut().min_by_key(|(load, _)| *load) else { continue };
            least.0 += load;
            least.1.push(thread);
        }
        for (_, mut threads) in processors {
            threads.sort_by_key(|thread| (deadlines[*thread], *thread));
            let this = all.processors.len();
            all.processors.push(node);
            for (order, thread) in (0..).map(|order: u32| order.min(RANKS - 1)).zip(threads) {
                if let Step::Compute { processor, rank, .. } = &mut all.stages[thread].step {
                    (*processor, *rank) = (this, order);
                }
            }
        }
    }
}

/// The shortest deadline of the pairs whose way leads over each stage.
fn deadlines(all: &Stages, system: &System) -> Vec<u64> {
    let mut shortest = vec![u64::MAX; all.stages.len()];
    for pair in &all.pairs {
        let deadline = system.subscribers[pair.subscriber].deadline.unwrap_or(u64::MAX);
        all.path(pair).for_each(|stage| shortest[stage] = shortest[stage].min(deadline));
    }
    shortest
}
