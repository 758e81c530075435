//! Assignment of priorities to threads and of classes to channels (Y-01, Y-17).
//!
//! No channel gets a higher class than it needs: two subscribers of a topic may have different ones. If not all fit, the least
//! important ones give way.
//!
//! A link has few bands, so the choice of classes is Audsley's assignment with few levels (Audsley 2001): all channels begin
//! at the lowest class. A channel that misses its deadline there goes one class up, which only delays those that stay. So a
//! raised channel needs its class in every assignment that keeps all deadlines, and the result is the lowest of these
//! assignments. (A raised channel's samples also come less bursty to the links behind. If another channel can go down again
//! for that, a last pass finds it.)

use crate::Class;
use crate::analysis::chain;
use crate::analysis::cpu::{Work, response};
use crate::analysis::end_to_end::{Analysis, Room, analyse};
use crate::analysis::stages::{Classes, Pair, Place, RANKS, Stages, Step, Stream};
use crate::analysis::{Arrivals, Steps};
use crate::network::{Direction, Network};
use crate::system::{Scheduler, System};

/// Ways up to this number are tried one class lower at the end.
const LOWERED: usize = 32;

/// An assignment and the bounds that follow from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The class of each channel: DSCP and socket priority follow from it.
    pub classes: Classes,
    /// The stages with the ranks of threads ([`fifo_priority`]), of the admitted subscribers.
    pub stages: Stages,
    /// Their bounds.
    pub analysis: Analysis,
    /// Subscribers (indices) that gave way, in that order.
    pub gave_way: Vec<usize>,
    /// Every admitted pair with a deadline keeps it.
    pub fits: bool,
}

/// Assigns classes and ranks. Channels of topics with a class of their own keep it; the others begin with normal, the default. Those
/// without a deadline go to low only if that does not fit. Subscribers give way only with `give_way`: the least important of a late one and
/// those that share a link or processor with it, of equal ones the last of the file. After `steps` the state reached is the
/// answer.
pub fn assign(system: &System, network: &Network, places: &[Place], give_way: bool, steps: &Steps) -> Assignment {
    let mut search = Search { system, network, places, gave_way: Vec::new(), steps };
    let mut bulk = Class::Normal;
    loop {
        let start = search.start(bulk);
        let found = search.raise(start.clone());
        if found.fits || steps.left() == 0 {
            return search.lower(found, bulk);
        }
        // Where every channel has a deadline or a class, the same would come again.
        if bulk == Class::Normal && search.start(Class::Low) != start {
            bulk = Class::Low;
            continue;
        }
        let Some(who) = search.least(&found).filter(|_| give_way) else { return found };
        search.gave_way.push(who);
        bulk = Class::Normal;
    }
}

struct Search<'a> {
    system: &'a System,
    network: &'a Network,
    places: &'a [Place],
    gave_way: Vec<usize>,
    steps: &'a Steps,
}

impl Search<'_> {
    /// Classes to begin with; channels without a deadline, of their own or by a chain, have `bulk`.
    fn start(&self, bulk: Class) -> Classes {
        let topics = &self.system.topics;
        let mut classes = Classes::new(self.system, |topic| topics[topic].class.unwrap_or(bulk));
        for (index, deadline) in self.system.deadlines().into_iter().enumerate() {
            let topic = &topics[self.system.subscribers[index].topic];
            let timed = deadline.is_some() && topic.class.is_none() && !self.gave_way.contains(&index);
            topic.publishers.iter().filter(|_| timed).for_each(|from| classes.set(*from, index, Class::Normal));
        }
        classes
    }

    fn analysed(&self, classes: Classes) -> Assignment {
        let admitted = |subscriber: usize| !self.gave_way.contains(&subscriber);
        let mut stages = Stages::admitting(self.system, self.network, self.places, &classes, &admitted);
        let analysis = ranked(self.system, &mut stages, self.steps);
        let fits = late(self.system, &stages, &analysis).is_empty();
        Assignment { classes, stages, analysis, gave_way: self.gave_way.clone(), fits }
    }

    /// Raises the late channels, one class at a time, until none is late or none can be raised.
    fn raise(&self, mut classes: Classes) -> Assignment {
        loop {
            let found = self.analysed(classes.clone());
            let mut raised = false;
            for pair in late(self.system, &found.stages, &found.analysis) {
                let Pair { stream, subscriber, .. } = found.stages.pairs[pair];
                let Stream { topic, publisher, .. } = found.stages.streams[stream];
                let now = found.classes.of(publisher, subscriber);
                let free = self.system.topics[topic].class.is_none() && classes.of(publisher, subscriber) == now;
                let next = Class::ALL.into_iter().find(|class| *class > now);
                if let Some(next) = next.filter(|_| free && told_apart(&found.stages, pair)) {
                    classes.set(publisher, subscriber, next);
                    raised = true;
                }
            }
            if !raised || self.steps.left() == 0 {
                return found;
            }
        }
    }

    /// Tries every raised way one class lower, as long as all fits.
    fn lower(&self, mut found: Assignment, bulk: Class) -> Assignment {
        let start = self.start(bulk);
        let ways = start.ways();
        if !found.fits || ways.len() > LOWERED {
            return found;
        }
        for (publisher, subscriber) in ways {
            let least = start.of(publisher, subscriber);
            loop {
                let now = found.classes.of(publisher, subscriber);
                let lower = Class::ALL.into_iter().rev().find(|class| *class < now);
                let Some(lower) = lower.filter(|_| now > least && self.steps.left() > 0) else { break };
                let mut classes = found.classes.clone();
                classes.set(publisher, subscriber, lower);
                match self.analysed(classes) {
                    fits if fits.fits => found = fits,
                    _ => break,
                }
            }
        }
        found
    }

    /// The least important of the subscribers that are late or in the way of a late one.
    fn least(&self, found: &Assignment) -> Option<usize> {
        let stages = &found.stages;
        let mut late_at = vec![false; stages.egresses.len() + stages.processors.len()];
        let of = |stage: usize| match stages.stages[stage].step {
            Step::Cross { queue, .. } => queue,
            Step::Compute { processor, .. } => stages.egresses.len() + processor,
        };
        let late = late(self.system, stages, &found.analysis);
        late.iter().for_each(|pair| stages.path(&stages.pairs[*pair]).for_each(|stage| late_at[of(stage)] = true));
        let in_the_way =
            |(index, pair): &(usize, &Pair)| late.contains(index) || stages.path(pair).any(|stage| late_at[of(stage)]);
        let concerned = stages.pairs.iter().enumerate().filter(in_the_way).map(|(_, pair)| pair.subscriber);
        concerned.min_by_key(|who| (self.system.subscribers[*who].importance, std::cmp::Reverse(*who)))
    }
}

/// Bounds with threads ranked by deadline, or, if that is too late, ranked again ([`rank`]). Reservations that make a channel late get
/// shorter deadlines first.
pub fn ranked(system: &System, stages: &mut Stages, steps: &Steps) -> Analysis {
    let mut analysis = analyse(system, stages, steps);
    while steps.left() > 0 && tighten(system, stages, &analysis) {
        analysis = analyse(system, stages, steps);
    }
    if late(system, stages, &analysis).is_empty() || !rank(system, stages, &analysis, steps) {
        return analysis;
    }
    analyse(system, stages, steps)
}

/// Halves the deadline of one reserved thread on the way of each late pair: of those that can have it, the one with the longest stay. `false`:
/// there is none.
fn tighten(system: &System, stages: &mut Stages, analysis: &Analysis) -> bool {
    let mut tightened = Vec::new();
    for pair in late(system, stages, analysis) {
        let mut way: Vec<usize> = stages.path(&stages.pairs[pair]).collect();
        if way.iter().any(|stage| tightened.contains(stage)) {
            continue;
        }
        way.sort_by_key(|stage| std::cmp::Reverse(analysis.stages[*stage].stay));
        tightened.extend(way.into_iter().find(|stage| stages.halve(system, *stage)));
    }
    !tightened.is_empty()
}

/// Pairs that miss their deadline, or have a deadline and no bound of their delay; and those of chains for which that is so.
fn late(system: &System, stages: &Stages, analysis: &Analysis) -> Vec<usize> {
    let is_late = |pair: &usize| {
        let deadline = system.subscribers[stages.pairs[*pair].subscriber].deadline;
        deadline.is_some_and(|deadline| analysis.pairs[*pair].ns.map_or(true, |ns| ns > deadline))
    };
    let mut late: Vec<usize> = (0..stages.pairs.len()).filter(is_late).collect();
    late.extend(chain::late(system, stages, analysis));
    late.sort_unstable();
    late.dedup();
    late
}

/// A class makes a difference somewhere on a pair's way.
fn told_apart(stages: &Stages, pair: usize) -> bool {
    stages.path(&stages.pairs[pair]).any(|stage| match stages.stages[stage].step {
        Step::Cross { queue, .. } => stages.egresses[queue].scheduler != Scheduler::Fifo,
        Step::Compute { .. } => false,
    })
}

/// The highest and the lowest SCHED_FIFO priority of channels' threads: below the kernel's threads of network interrupts (50), without
/// which no packet comes, and above 1, which is for others.
const HIGHEST: u32 = 48;
const LOWEST: u32 = 2;

/// An order of `count` threads, the highest first, in which all fit, if there is one. Each test asks if a thread fits below a set of
/// threads in any order (Audsley 1991: n² tests instead of n!). Of the threads that fit, the last one goes lowest, which changes
/// a given order as little as possible.
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

/// The SCHED_FIFO priority of a rank (0 is the highest) among `count` threads of a processor: spread from 48 down to 2, so that others
/// may be put in between. Ranks from [`RANKS`] − 1 on share the lowest.
pub fn fifo_priority(rank: u32, count: u32) -> u8 {
    let last = count.clamp(1, RANKS) - 1;
    let gap = (HIGHEST - LOWEST) / last.max(1);
    let priority = HIGHEST - rank.min(last) * gap.clamp(1, 5);
    u8::try_from(priority.max(LOWEST)).unwrap_or(LOWEST as u8)
}

/// Ranks the threads of each processor again so that each keeps the time that its channels' deadlines leave it beside
/// the other stages, by Audsley's algorithm with the jitter that `analysis` found. `true`: a rank changed;
/// a processor without a fitting order is left unchanged.
pub fn rank(system: &System, stages: &mut Stages, analysis: &Analysis, steps: &Steps) -> bool {
    let left = left(system, stages, analysis);
    let mut changed = false;
    for processor in 0..stages.processors.len() {
        let taken = stages.taken(stages.processors[processor]);
        let mut threads: Vec<(u32, usize, Work, Arrivals)> = Vec::new();
        for (index, stage) in stages.stages.iter().enumerate() {
            let Step::Compute { processor: on, rank, reserved: None, execution, .. } = stage.step else { continue };
            if let Some(jitter) = analysis.stages[index].jitter.filter(|_| on == processor) {
                let origin = stages.arrivals(stage);
                threads.push((rank, index, Work { arrivals: origin.delayed(jitter), execution }, origin));
            }
        }
        threads.sort_by_key(|(rank, index, ..)| (*rank, *index));
        let fits = |thread: usize, higher: &[usize]| {
            let (_, index, work, origin) = &threads[thread];
            let higher: Vec<Work> = higher.iter().map(|other| threads[*other].2).chain(taken.iter().copied()).collect();
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

/// The time that the deadlines of its pairs and chains leave each stage, ns: the deadline less the bound of all other stages.
fn left(system: &System, stages: &Stages, analysis: &Analysis) -> Vec<u64> {
    let mut left = vec![u64::MAX; stages.stages.len()];
    for (pair, bound) in stages.pairs.iter().zip(&analysis.pairs) {
        let Some(deadline) = system.subscribers[pair.subscriber].deadline else { continue };
        for stage in stages.path(pair) {
            let own = analysis.stages[stage].stay.unwrap_or(0);
            let others = bound.ns.map_or(0, |ns| ns.saturating_sub(own));
            left[stage] = left[stage].min(deadline.saturating_sub(others));
        }
    }
    for (index, pairs) in chain::pairs(system, stages).into_iter().enumerate() {
        let Some(deadline) = system.chains[index].deadline else { continue };
        let whole = chain::bound(system, index, &pairs, analysis).unwrap_or(0);
        for stage in pairs.iter().flatten().flat_map(|pair| stages.path(&stages.pairs[*pair])) {
            let others = whole.saturating_sub(analysis.stages[stage].stay.unwrap_or(0));
            left[stage] = left[stage].min(deadline.saturating_sub(others));
        }
    }
    left
}

/// Room that a class's queue needs for all declared traffic: at least one packet; `None` without a bound. (Background
/// in the same class needs room besides.)
pub fn queue_limit(analysis: &Analysis, direction: Direction, class: Class) -> Option<Room> {
    let bound = analysis.queues[direction.index()][class as usize];
    if bound.streams == 0 {
        return Some(Room { bytes: 0, packets: 1 });
    }
    bound.room.map(|room| Room { packets: room.packets.max(1), ..room })
}

#[cfg(test)]
mod tests;
