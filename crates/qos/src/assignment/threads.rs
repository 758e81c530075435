//! Optimal order of threads on a processor, and the SCHED_FIFO priorities of it.

use crate::analysis::arrivals::Arrivals;
use crate::analysis::cpu::Work;
use crate::analysis::cpu::response::response;
use crate::analysis::end_to_end::Analysis;
use crate::analysis::stages::{RANKS, Stages, Step};
use crate::analysis::steps::Steps;
use crate::system::System;

/// The highest and the lowest SCHED_FIFO priority of channels' threads: below the kernel's threads of network interrupts (50), without
/// which nothing comes, and above 1, which is left to others.
const HIGHEST: u32 = 48;
const LOWEST: u32 = 2;

/// An order of `count` threads, the highest first, in which all fit, if there is one; each test asks whether a thread fits below the
/// set of threads given, whatever their order (Audsley 1991: n² tests instead of n!). The thread that stands last among those
/// that fit goes lowest, so a given order is changed as little as can be.
pub fn audsley(count: usize, mut fits: impl FnMut(usize, &[usize]) -> bool) -> Option<Vec<usize>> {
    let mut left: Vec<usize> = (0..count).collect();
    let mut order = Vec::with_capacity(count);
    while !left.is_empty() {
        let lowest = (0..left.len()).rev().find(|i| {
            let higher: Vec<usize> = left.iter().copied().filter(|other| *other != left[*i]).collect();
            fits(left[*i], &higher)
        })?;
        order.push(left.remove(lowest));
    }
    order.reverse();
    Some(order)
}

/// Threads by deadline, the shortest first, ties in the order given: optimal where no deadline is above its period, and nothing has
/// jitter (Leung & Whitehead 1982).
pub fn deadline_monotonic(deadlines: &[u64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..deadlines.len()).collect();
    order.sort_by_key(|thread| (deadlines[*thread], *thread));
    order
}

/// The SCHED_FIFO priority of a rank (0 is the highest) among `count` threads of a processor: spread from 48 down to 2, so that others
/// may be put in between. Ranks from [`RANKS`] − 1 on share the lowest.
pub fn fifo_priority(rank: u32, count: u32) -> u8 {
    let last = count.clamp(1, RANKS) - 1;
    let gap = (HIGHEST - LOWEST) / last.max(1);
    let priority = HIGHEST - rank.min(last) * gap.clamp(1, 5);
    u8::try_from(priority.max(LOWEST)).unwrap_or(LOWEST as u8)
}

/// Ranks the threads of each processor anew so that each keeps what its channels' deadlines leave it beside the other stages, by
/// Audsley's algorithm with the jitter that `analysis` found. Says whether anything changed; a processor on which no order
/// fits is left as it is.
pub fn rank(system: &System, stages: &mut Stages, analysis: &Analysis, steps: &Steps) -> bool {
    let left = left(system, stages, analysis);
    let mut changed = false;
    for processor in 0..stages.processors.len() {
        let mut threads: Vec<(u32, usize, Work, Arrivals)> = Vec::new();
        for (index, stage) in stages.stages.iter().enumerate() {
            let Step::Compute { processor: on, rank, execution, .. } = stage.step else { continue };
            if let Some(jitter) = analysis.stages[index].jitter.filter(|_| on == processor) {
                let origin = stages.arrivals(stage);
                threads.push((rank, index, Work { arrivals: origin.delayed(jitter), execution }, origin));
            }
        }
        threads.sort_by_key(|(rank, index, ..)| (*rank, *index));
        let fits = |thread: usize, higher: &[usize]| {
            let (_, index, work, origin) = &threads[thread];
            let higher: Vec<Work> = higher.iter().map(|other| threads[*other].2).collect();
            response(work, origin, &higher, 0, steps).is_ok_and(|found| found.time <= left[*index])
        };
        let Some(order) = audsley(threads.len(), fits) else { continue };
        changed |= order.windows(2).any(|pair| pair[0] > pair[1]);
        for (new, thread) in (0..).zip(order) {
            if let Step::Compute { rank, .. } = &mut stages.stages[threads[thread].1].step {
                *rank = u32::min(new, RANKS - 1);
            }
        }
    }
    changed
}

/// What the deadlines of its pairs leave each stage, ns: the deadline less what the bound has in all other stages.
fn left(system: &System, stages: &Stages, analysis: &Analysis) -> Vec<u64> {
    let mut left = vec![u64::MAX; stages.stages.len()];
    for (pair, bound) in stages.pairs.iter().zip(&analysis.pairs) {
        let Some(deadline) = system.subscribers[pair.subscriber].deadline else { continue };
        for stage in stages.way(pair) {
            let own = analysis.stages[stage].stay.unwrap_or(0);
            let others = bound.ns.map_or(0, |ns| ns.saturating_sub(own));
            left[stage] = left[stage].min(deadline.saturating_sub(others));
        }
    }
    left
}
