//! Bounds of whole paths: the holistic iteration over all processors and queues (Tindell & Clark 1994).
//!
//! The delay at a stage depends on the jitter of its arrivals, and that on the delays at all stages before. The iteration
//! begins without any delay and repeats until no delay changes; each fixed point is sound. A round goes downstream through the
//! processors and queues whose input changed, so that only cycles need more than one. After 64 rounds times are rounded up to
//! ever coarser steps; delays that still grow after 256 have no bound.
//!
//! | stage | bound | source |
//! |---|---|---|
//! | thread | response time in the level-i busy period with jitter | P-24; Lehoczky 1990; Audsley et al. 1993 |
//! | thread with a reservation | its deadline, or what its supply needs | Abeni & Buttazzo 1998; Shin & Lee 2003 |
//! | queue, strict | busy period of non-pre-emptive packets, blocked by the largest lower unit | Davis et al. 2007 |
//! | queue, first come first served | horizontal deviation of all that comes | Le Boudec & Thiran 2001, theorem 1.4.2 |
//! | queue, `htb` | what the buckets of higher classes leave, and the class's own | Linux's `sch_htb.c`; Le Boudec & Thiran 2001, §6.2.1 |
//! | queue, `hfsc` | share of the rate, later by the largest unit | Stoica, Zhang & Ng 1997, theorem 2 |
//! | queue, `htb` or `hfsc`, if better | all others always go first: the link never rests | as strict |
//! | before the first link, with a latency budget | the time of gathering; units and packets of all that may leave together | `channel/flow/batch.rs` of the crate `thalweg` |
//! | before the first link, with a pace | bytes ÷ pace, behind earlier samples; for others a line of that rate | response time of one work; Le Boudec & Thiran 2001, §1.2.2 |
//! | arrivals over a link | at most what the link can bring (line shaping) | Grieu 2004; Le Boudec & Thiran 2001, §1.5 |

mod queues;
mod report;

use super::cpu::reservation::{Excess, Reservation};
use super::cpu::{Unbounded, Work, response};
use super::link::queue::Stay;
use super::stages::{Egress, Stages, Step, Stream};
use super::{Arrivals, BILLION, Steps};
use crate::system::System;
use queues::Queues;
pub use report::{Because, Bound, Term, Where};
use std::collections::HashMap;

/// Rounds in which times may grow; from [`COARSE`] on they are rounded up, each fourth round to twice the step.
const ROUNDS: u32 = 256;
const COARSE: u32 = 64;
/// A delay above this (11 days) counts as unbounded, ns.
const NEVER: u64 = 1_000_000_000_000_000;

/// Room in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes on the wire.
    pub bytes: u64,
    /// Packets, as sockets make them: more than those that the times are of, because headers take a part of each.
    pub packets: u64,
}

/// A class at a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueBound {
    /// Streams of this class.
    pub streams: u32,
    /// Longest stay of a packet; `None`: no bound, or no packet comes.
    pub stay: Option<Stay>,
    /// The most that waits at once, background not counted: a buffer of this size never overflows. `None`: as above.
    pub room: Option<Room>,
    /// Share of the link that the class takes, in parts per billion, background not counted.
    pub load: u64,
}

/// Arrivals at a stage, and the longest stay there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageBound {
    /// Largest delay of a whole sample behind the earliest one, ns; `None`: unknown.
    pub jitter: Option<u64>,
    /// Longest stay, ns; `None`: no bound.
    pub stay: Option<u64>,
}

/// The answer for all pairs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Analysis {
    /// A bound for each of [`Stages::pairs`].
    pub pairs: Vec<Bound>,
    /// For each of [`Stages::egresses`] and each class in the order of [`crate::Class::ALL`].
    pub queues: Vec<[QueueBound; 4]>,
    /// For each of [`Stages::stages`].
    pub stages: Vec<StageBound>,
    /// Load of each of [`Stages::processors`], in parts per billion.
    pub processors: Vec<u64>,
    /// Rounds that it took.
    pub rounds: u32,
}

/// Bounds for all pairs of `stages`, which are those of `system`. A pair for which the `steps` do not suffice has
/// none.
pub fn analyse(system: &System, stages: &Stages, steps: &Steps) -> Analysis {
    let mut iteration = Iteration::new(system, stages, steps);
    let rounds = iteration.run();
    report::report(system, &iteration, rounds)
}

/// Arrival times at a stage, counted from publication, and the longest stay there.
#[derive(Clone, Copy, Debug, Default)]
struct Transit {
    /// The first packet at the earliest, ns.
    first: u64,
    /// The last packet at the earliest, ns.
    last: u64,
    /// Latest arrival of the last packet, ns; `None`: unknown.
    latest: Option<u64>,
    /// Longest stay; `None`: not known yet, or not bounded.
    stay: Option<Stay>,
}

struct Iteration<'a> {
    stages: &'a Stages,
    steps: &'a Steps,
    transits: Vec<Transit>,
    /// The reason why a stage has no bound.
    because: Vec<Option<Because>>,
    queues: Queues,
    /// Threads of each processor with their ranks, in order.
    threads: Vec<Vec<(u32, usize)>>,
    /// Threads of each processor with their reservations.
    reserved: Vec<Vec<(usize, Reservation)>>,
    /// Nodes that cannot keep their reservations.
    exceeded: HashMap<usize, Excess>,
    course: Course,
    /// Resources to look at again: queues, then processors.
    dirty: Vec<bool>,
}

impl<'a> Iteration<'a> {
    fn new(system: &System, stages: &'a Stages, steps: &'a Steps) -> Self {
        let mut threads = vec![Vec::new(); stages.processors.len()];
        let mut reserved = vec![Vec::new(); stages.processors.len()];
        let mut dirty = vec![false; stages.egresses.len() + stages.processors.len()];
        for (index, stage) in stages.stages.iter().enumerate() {
            dirty[resource(stages, index)] = true;
            match stage.step {
                Step::Compute { processor, reserved: Some(of), .. } => reserved[processor].push((index, of.each)),
                Step::Compute { processor, rank, .. } => threads[processor].push((rank, index)),
                Step::Cross { .. } => {}
            }
        }
        threads.iter_mut().for_each(|threads| threads.sort_unstable());
        let because = vec![None; stages.stages.len()];
        let transits = earliest(system, stages);
        let (queues, course) = (Queues::new(stages), Course::new(stages));
        let exceeded: HashMap<usize, Excess> = stages.exceeded(system).into_iter().collect();
        let mut all = Self { stages, steps, transits, because, queues, threads, reserved, exceeded, course, dirty };
        for stage in (0..stages.stages.len()).filter(|stage| stages.stages[*stage].after.is_none()) {
            let latest = all.transits[stage].latest.and_then(|latest| all.at_pace(stage, latest));
            all.transits[stage].latest = latest;
            if latest.is_none() {
                all.because[stage] = Some(all.slow(stage));
            }
        }
        all
    }

    /// Looks at all resources until no delay changes; returns the number of rounds. Each round after [`ROUNDS`] takes
    /// the bound from something, so they end, too.
    fn run(&mut self) -> u32 {
        for round in 0.. {
            let step = if round < ROUNDS { 1 << (round.saturating_sub(COARSE) / 4).min(40) } else { NEVER };
            let mut rests = true;
            for at in 0..self.dirty.len() {
                let resource = self.course.order[at];
                if std::mem::take(&mut self.dirty[resource]) {
                    rests = false;
                    match resource.checked_sub(self.stages.egresses.len()) {
                        None => self.serve(resource),
                        Some(processor) => self.compute(processor),
                    }
                    self.pass_on(resource, step);
                }
            }
            if rests {
                return round;
            }
        }
        u32::MAX
    }

    /// Updates the arrivals at the stages behind a resource after its stays were computed, in steps of `step` ns.
    fn pass_on(&mut self, from: usize, step: u64) {
        for at in 0..self.course.behind[from].len() {
            let (after, index) = self.course.behind[from][at];
            let before = forwarding(self.stages, index).saturating_add(gathers(self.stages, index));
            let out = self.out(after).map(|out| out.saturating_add(before));
            let latest = out.and_then(|latest| self.at_pace(index, latest));
            if out.is_some() && latest.is_none() {
                let slow = self.slow(index);
                self.because[index].get_or_insert(slow);
            }
            let known = self.transits[index].latest;
            let latest = match (latest, known) {
                (Some(new), Some(old)) if new > old => Some(new.next_multiple_of(step)).filter(|new| *new < NEVER),
                (Some(_), Some(old)) => Some(old),
                _ => None,
            };
            if latest.is_none() && self.because[index].is_none() {
                self.because[index] = Some(self.because[after].unwrap_or(Because::TooLong(self.place(after))));
            }
            if latest != known {
                self.transits[index].latest = latest;
                self.dirty[resource(self.stages, index)] = true;
            }
        }
    }

    /// Latest time at which the last packet of a sample comes to a stage if the sample is there by `latest` and comes at its pace; `None`: it
    /// waits without limit for those before it.
    fn at_pace(&self, stage: usize, latest: u64) -> Option<u64> {
        let Step::Cross { paced: Some(paced), .. } = self.stages.stages[stage].step else { return Some(latest) };
        let late = latest.saturating_sub(self.transits[stage].first);
        let arrivals = self.stages.arrivals(&self.stages.stages[stage]).delayed(late);
        latest.checked_add(pacing(&arrivals, paced.sample)?)
    }

    /// Samples come to a stage's pacer faster than they leave it.
    fn slow(&self, stage: usize) -> Because {
        match self.stages.stages[stage].step {
            Step::Cross { queue, .. } => Because::Slow(self.stages.egresses[queue].direction),
            Step::Compute { .. } => Because::TooLong(self.place(stage)),
        }
    }

    /// Latest time at which a stage is done with a sample.
    fn out(&self, stage: usize) -> Option<u64> {
        let Transit { latest, stay, .. } = self.transits[stage];
        let delay = match self.stages.stages[stage].step {
            Step::Compute { .. } => 0,
            Step::Cross { queue, .. } => self.stages.egresses[queue].delay + self.stages.egresses[queue].ahead,
        };
        latest?.checked_add(stay?.time)?.checked_add(delay)
    }

    /// Computes the longest stays on a processor.
    fn compute(&mut self, processor: usize) {
        for at in 0..self.reserved[processor].len() {
            let (thread, reservation) = self.reserved[processor][at];
            self.compute_reserved(thread, reservation);
        }
        // Ranked threads wait for all reserved ones of the node.
        let mut higher: Vec<Work> = self.stages.taken(self.stages.processors[processor]);
        let mut stuck = None;
        let threads = std::mem::take(&mut self.threads[processor]);
        for equals in threads.chunk_by(|(a, _), (b, _)| a == b) {
            let work = |thread: usize| {
                let Step::Compute { execution, .. } = self.stages.stages[thread].step else { return None };
                self.arrivals(thread, self.transits[thread].last).map(|arrivals| Work { arrivals, execution })
            };
            let works: Vec<Option<Work>> = equals.iter().map(|(_, thread)| work(*thread)).collect();
            let unknown = works.iter().position(|work| work.is_none()).and_then(|i| self.because[equals[i].1]);
            stuck = stuck.or(unknown);
            for (own, (_, thread)) in equals.iter().enumerate() {
                let others = works.iter().enumerate().filter(|(i, _)| *i != own).filter_map(|(_, work)| *work);
                let before: Vec<Work> = higher.iter().copied().chain(others).collect();
                let origin = self.stages.arrivals(&self.stages.stages[*thread]);
                match (works[own], stuck) {
                    (Some(work), None) => match response(&work, &origin, &before, 0, self.steps) {
                        Ok(found) => self.stays(*thread, Stay { time: found.time, blocking: 0, higher: 0 }),
                        Err(why) => self.refuse(*thread, why_not(why, self.place(*thread))),
                    },
                    (_, stuck) => self.refuse(*thread, stuck.unwrap_or(Because::TooLong(self.place(*thread)))),
                }
            }
            higher.extend(works.into_iter().flatten());
        }
        self.threads[processor] = threads;
    }

    /// A reservation does not depend on other threads, if its node can keep it.
    fn compute_reserved(&mut self, thread: usize, reservation: Reservation) {
        let at = self.place(thread);
        let Step::Compute { execution, processor, .. } = self.stages.stages[thread].step else { return };
        if let Some(excess) = self.exceeded.get(&self.stages.processors[processor]) {
            return self.refuse(thread, Because::Exceeded(at, *excess));
        }
        let Some(arrivals) = self.arrivals(thread, self.transits[thread].last) else {
            let because = self.because[thread].unwrap_or(Because::TooLong(at));
            return self.refuse(thread, because);
        };
        let origin = self.stages.arrivals(&self.stages.stages[thread]);
        match reservation.response(&Work { arrivals, execution }, &origin, self.steps) {
            Ok(time) => self.stays(thread, Stay { time, blocking: 0, higher: 0 }),
            Err(why) => self.refuse(thread, why_not(why, at)),
        }
    }

    fn refuse(&mut self, stage: usize, because: Because) {
        self.transits[stage].stay = None;
        self.because[stage].get_or_insert(because);
    }

    /// The jitter that samples have when they come: packets of one count from the first to the last.
    fn arrivals(&self, stage: usize, from: u64) -> Option<Arrivals> {
        let latest = self.transits[stage].latest?;
        Some(self.stages.arrivals(&self.stages.stages[stage]).delayed(latest.saturating_sub(from)))
    }

    fn stays(&mut self, stage: usize, stay: Stay) {
        if stay.time >= NEVER {
            return self.refuse(stage, Because::TooLong(self.place(stage)));
        }
        // Never shorter than before: rounding up must not make it swing.
        let known = self.transits[stage].stay.filter(|known| known.time > stay.time);
        self.transits[stage].stay = Some(known.unwrap_or(stay));
    }

    fn place(&self, stage: usize) -> Where {
        match self.stages.stages[stage].step {
            Step::Compute { processor, .. } => Where::Node(self.stages.processors[processor]),
            Step::Cross { queue, .. } => Where::Link(self.stages.egresses[queue].direction),
        }
    }

    fn egress(&self, queue: usize) -> &'a Egress {
        &self.stages.egresses[queue]
    }
}

fn why_not(why: Unbounded, at: Where) -> Because {
    match why {
        Unbounded::Overload(load) => Because::Overload(at, u64::try_from(load).unwrap_or(u64::MAX)),
        Unbounded::TooLong => Because::TooLong(at),
    }
}

/// The resource that serves a stage: queues, then processors.
fn resource(stages: &Stages, stage: usize) -> usize {
    match stages.stages[stage].step {
        Step::Compute { processor, .. } => stages.egresses.len() + processor,
        Step::Cross { queue, .. } => queue,
    }
}

fn forwarding(stages: &Stages, stage: usize) -> u64 {
    match stages.stages[stage].step {
        Step::Compute { .. } => 0,
        Step::Cross { forwarding, .. } => forwarding,
    }
}

/// The longest from a sample's arrival at a pacer to the release of its last packet, if a sample takes `each` ns: the response time of the only work of
/// a processor. The latest is one of those that come at once, or the first behind them, because each later one has more time than it takes.
/// `None`: samples come faster than they leave.
fn pacing(arrivals: &Arrivals, each: u64) -> Option<u64> {
    if arrivals.load(each) > BILLION {
        return None;
    }
    let at_once = arrivals.within(0);
    let behind = each.saturating_mul(at_once.saturating_add(1)).saturating_sub(arrivals.distance(at_once));
    Some(each.saturating_mul(at_once).max(behind))
}

/// The longest that a sample waits for others before it comes to a stage.
fn gathers(stages: &Stages, stage: usize) -> u64 {
    match stages.stages[stage].step {
        Step::Compute { .. } => 0,
        Step::Cross { gathers, .. } => gathers,
    }
}

/// The earliest arrivals: no sample waits, and computing and forwarding take no time (they may be shorter than declared). The latest
/// arrivals begin there, too.
fn earliest(system: &System, stages: &Stages) -> Vec<Transit> {
    let mut transits: Vec<Transit> = Vec::with_capacity(stages.stages.len());
    for (index, stage) in stages.stages.iter().enumerate() {
        let Stream { topic, publisher, .. } = stages.streams[stage.stream];
        let sends = system.topics[topic].hand_in.saturating_add(system.hand_over(topic, publisher));
        let latest = Some(sends.saturating_add(gathers(stages, index)));
        let here = stage.after.map_or(Transit { latest, ..Transit::default() }, |after| {
            let (first, last) = leaves(stages, after, &transits[after]);
            Transit { first, last, latest: Some(last), stay: None }
        });
        transits.push(here);
    }
    transits
}

/// The earliest time at which the first and the last packet leave a stage.
fn leaves(stages: &Stages, stage: usize, transit: &Transit) -> (u64, u64) {
    let Transit { first, last, .. } = *transit;
    match stages.stages[stage].step {
        Step::Compute { .. } => (last, last),
        Step::Cross { queue, packets, leaf, passed, .. } => {
            let delay = stages.egresses[queue].delay;
            let last = last.saturating_add(packets.last).max(first.saturating_add(packets.work()));
            // What leaves a queue of a channel's own need not be the declared samples.
            let is_any = leaf.is_some() || passed.is_some();
            let least = if is_any { packets.first().min(packets.least_last()) } else { packets.first() };
            (first.saturating_add(least).saturating_add(delay), last.saturating_add(delay))
        }
    }
}

/// Load of these arrivals with `work` ns each, in parts per billion; all of it at most.
fn load(arrivals: &Arrivals, work: u64) -> u64 {
    u64::try_from(arrivals.load(work).min(BILLION * 1000)).unwrap_or(u64::MAX)
}

/// The flow of samples between resources: queues, then processors.
struct Course {
    /// All resources, each after those that feed it, as far as they do not feed each other (reverse postorder, as in data-flow analysis: Kam &
    /// Ullman 1976).
    order: Vec<usize>,
    /// The stages of each resource that others follow, with those.
    behind: Vec<Vec<(usize, usize)>>,
}

impl Course {
    fn new(stages: &Stages) -> Self {
        let mut behind = vec![Vec::new(); stages.egresses.len() + stages.processors.len()];
        for (index, stage) in stages.stages.iter().enumerate() {
            if let Some(after) = stage.after {
                behind[resource(stages, after)].push((after, index));
            }
        }
        let fed = |behind: &Vec<(usize, usize)>| {
            let mut fed: Vec<usize> = behind.iter().map(|(_, index)| resource(stages, *index)).collect();
            fed.sort_unstable();
            fed.dedup();
            fed
        };
        let fed: Vec<Vec<usize>> = behind.iter().map(fed).collect();
        Self { order: downstream(&fed), behind }
    }
}

/// Depth first, each noted when all that it feeds are; then turned round.
fn downstream(fed: &[Vec<usize>]) -> Vec<usize> {
    let mut seen = vec![false; fed.len()];
    let mut order = Vec::with_capacity(fed.len());
    let mut way: Vec<(usize, usize)> = Vec::new();
    for root in 0..fed.len() {
        way.extend((!std::mem::replace(&mut seen[root], true)).then_some((root, 0)));
        while let Some((resource, at)) = way.last_mut() {
            match fed[*resource].get(*at) {
                Some(next) => {
                    *at += 1;
                    way.extend((!std::mem::replace(&mut seen[*next], true)).then_some((*next, 0)));
                }
                None => {
                    order.push(*resource);
                    way.pop();
                }
            }
        }
    }
    order.reverse();
    order
}

#[cfg(test)]
mod tests;
