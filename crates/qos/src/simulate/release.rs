//! Releases of samples: any that the contract allows, and those that hurt most.

use super::Run;
use super::work::{Crossing, Task, Work, background};
use crate::analysis::stages::Stages;
use crate::system::{System, Topic};

/// The pattern of publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// All streams begin at once, each as densely as it may: the critical instant of the hosts.
    Synchronous,
    /// Each stream begins some time within its first period, then as densely as it may.
    RandomPhases,
    /// Samples are late by any part of their jitter, often by all or nothing of it; threads take any time up to the declared one.
    Late,
    /// The worst for the pair with this index: the first samples of all other streams arrive at the first common
    /// point of the two ways at the same time as its own one, those of a lower class just before; half of them
    /// randomly somewhat off.
    Aimed {
        /// Index into [`Stages::pairs`].
        pair: usize,
    },
}

/// Units of control traffic that come at once, and how many times as much comes as its queue lets pass: it need not keep to anything.
const CONTROL_BURST: u64 = 8;
const CONTROL_TIMES: u64 = 2;

/// A stream's or a background's samples to come, as the contract allows them: `burst` at once, then one each `period`, each late by
/// up to `jitter` (ns). And control traffic.
#[derive(Clone, Copy, Debug)]
struct Source {
    period: u64,
    jitter: u64,
    burst: u64,
    phase: u64,
    count: u64,
    previous: u64,
}

/// All that is published in one run.
#[derive(Debug)]
pub(super) struct Releases {
    run: Run,
    streams: Vec<Source>,
    backgrounds: Vec<Option<Source>>,
    controls: Vec<Option<Source>>,
    aimed: Option<usize>,
    chance: Chance,
}

impl Releases {
    pub(super) fn new(system: &System, stages: &Stages, works: &[Work], run: &Run) -> Self {
        let mut chance = Chance(run.seed);
        let topics: Vec<&Topic> = stages.streams.iter().map(|stream| &system.topics[stream.topic]).collect();
        let mut phases: Vec<u64> = match run.pattern {
            Pattern::Synchronous => vec![0; topics.len()],
            Pattern::RandomPhases | Pattern::Late => topics.iter().map(|topic| chance.below(topic.period)).collect(),
            Pattern::Aimed { pair } => aim(stages, works, pair, middle(&topics), &mut chance),
        };
        let first = phases.iter().copied().min().unwrap_or(0);
        phases.iter_mut().for_each(|phase| *phase -= first);
        let streams = topics.iter().zip(phases).map(|(topic, phase)| Source::of(topic, phase)).collect();
        let met = match run.pattern {
            Pattern::Aimed { pair } => meeting(stages, works, pair, middle(&topics).saturating_sub(first)),
            _ => Vec::new(),
        };
        let mut background = |queue: usize| {
            let (_, period) = background(system, queue)?;
            let by_chance = || chance.below(period);
            let phase = met.iter().find(|(met, _)| *met == queue).map_or_else(by_chance, |(_, at)| *at);
            // Even, but at most one more than the rate gives.
            Some(Source { period, jitter: 0, burst: 2, phase, count: 0, previous: 0 })
        };
        let backgrounds = (0..2 * system.links.len()).map(&mut background).collect();
        let mut control = |queue: usize| {
            let leaf = stages.egresses[queue].control?;
            let each =
                u128::from(leaf.unit) * 1_000_000_000 / u128::from(leaf.share.max(1).saturating_mul(CONTROL_TIMES));
            let period = u64::try_from(each).unwrap_or(u64::MAX).max(1);
            let by_chance = || chance.below(period);
            let phase = met.iter().find(|(met, _)| *met == queue).map_or_else(by_chance, |(_, at)| *at);
            Some(Source { period, jitter: 0, burst: CONTROL_BURST, phase, count: 0, previous: 0 })
        };
        let controls = (0..2 * system.links.len()).map(&mut control).collect();
        let aimed = match run.pattern {
            Pattern::Aimed { pair } => stages.pairs.get(pair).map(|pair| pair.stream),
            _ => None,
        };
        Self { run: *run, streams, backgrounds, controls, aimed, chance }
    }

    pub(super) fn aims_at(&self, stream: usize) -> bool {
        self.aimed == Some(stream)
    }

    /// Samples of a stream so far.
    pub(super) fn count(&self, stream: usize) -> u64 {
        self.streams[stream].count
    }

    /// Publication time of the next sample of a stream, if within the run.
    pub(super) fn next(&mut self, stream: usize) -> Option<u64> {
        let jitter = self.streams[stream].jitter;
        let late = (self.run.pattern == Pattern::Late).then(|| self.chance.extreme(jitter));
        self.streams[stream].next(late).filter(|at| *at <= self.run.duration)
    }

    /// Arrival time of the next packet of a queue's background, if there is any.
    pub(super) fn background(&mut self, queue: usize) -> Option<u64> {
        self.backgrounds[queue].as_mut()?.next(None).filter(|at| *at <= self.run.duration)
    }

    /// Arrival time of the next unit of a queue's control traffic, if there is any.
    pub(super) fn control(&mut self, queue: usize) -> Option<u64> {
        self.controls[queue].as_mut()?.next(None).filter(|at| *at <= self.run.duration)
    }

    /// Execution time of a thread.
    pub(super) fn execution(&mut self, longest: u64) -> u64 {
        match self.run.pattern {
            Pattern::Late => self.chance.extreme(longest),
            _ => longest,
        }
    }
}

impl Source {
    fn of(topic: &Topic, phase: u64) -> Self {
        let Topic { period, jitter, burst, .. } = *topic;
        Self { period, jitter, burst: u64::from(burst.max(1)), phase, count: 0, previous: 0 }
    }

    /// The next release. As early as it may be: the first ones are as late as they may be, all others are not late. With `late`, bursts
    /// are as far apart as they are long, and a sample is this much after its turn.
    fn next(&mut self, late: Option<u64>) -> Option<u64> {
        let Self { period, jitter, burst, count, .. } = *self;
        let at = match late {
            Some(late) => period.saturating_mul(count / burst * burst).saturating_add(late.min(jitter)),
            None => period.saturating_mul((count + 1).saturating_sub(burst)).max(jitter) - jitter,
        };
        self.previous = self.previous.max(at);
        self.count += 1;
        self.phase.checked_add(self.previous)
    }
}

/// Phases with which others meet a pair's first sample, which is published at `middle`.
fn aim(stages: &Stages, works: &[Work], pair: usize, middle: u64, chance: &mut Chance) -> Vec<u64> {
    let Some(pair) = stages.pairs.get(pair) else { return vec![0; stages.streams.len()] };
    let reach = reach(stages, works);
    let way: Vec<usize> = stages.path(pair).collect();
    let phase = |stream: usize, chance: &mut Chance| {
        if stream == pair.stream {
            return middle;
        }
        // Any place where the ways meet; the first one is as good as any other.
        let met =
            stages.stages.iter().enumerate().filter(|(_, stage)| stage.stream == stream).flat_map(|(theirs, _)| {
                way.iter()
                    .filter(move |ours| same_resource(&works[**ours].task, &works[theirs].task))
                    .map(move |ours| (*ours, theirs))
            });
        let met: Vec<(usize, usize)> = met.collect();
        let Some((ours, theirs)) = chance.pick(&met) else { return middle };
        let at = middle.saturating_add(reach[ours]).saturating_sub(reach[theirs]);
        match lower(&works[theirs].task, &works[ours].task) {
            true => at.saturating_sub(1),
            false if chance.below(4) == 0 => {
                at.saturating_add(chance.below(reach[ours].max(1))).saturating_sub(reach[ours] / 2)
            }
            false => at,
        }
    };
    (0..stages.streams.len()).map(|stream| phase(stream, chance)).collect()
}

/// Begin of the aimed stream: late enough for all others to be before it.
fn middle(topics: &[&Topic]) -> u64 {
    topics.iter().map(|topic| topic.period).max().unwrap_or(0).saturating_mul(2)
}

/// Just before a pair's first sample, published at `begin`, comes to each queue.
fn meeting(stages: &Stages, works: &[Work], pair: usize, begin: u64) -> Vec<(usize, u64)> {
    let reach = reach(stages, works);
    let at = |stage: usize| match works[stage].task {
        Task::Cross(Crossing { queue, .. }) => Some((queue, begin.saturating_add(reach[stage]).saturating_sub(1))),
        Task::Compute { .. } => None,
    };
    stages.pairs.get(pair).map(|pair| stages.path(pair).filter_map(at).collect()).unwrap_or_default()
}

/// Arrival times of a first sample at each stage without interference, ns after it was published.
fn reach(stages: &Stages, works: &[Work]) -> Vec<u64> {
    let mut reach: Vec<u64> = Vec::with_capacity(stages.stages.len());
    for (stage, work) in stages.stages.iter().zip(works) {
        let before = stage.after.map_or(0, |after| {
            let took = match works[after].task {
                Task::Compute { execution, .. } => execution,
                Task::Cross(crossing) => crossing.work().saturating_add(crossing.delay),
            };
            reach[after].saturating_add(took)
        });
        let forwarding = if let Task::Cross(crossing) = work.task { crossing.forwarding } else { 0 };
        reach.push(before.saturating_add(forwarding));
    }
    reach
}

fn same_resource(a: &Task, b: &Task) -> bool {
    match (a, b) {
        (Task::Cross(a), Task::Cross(b)) => a.queue == b.queue,
        (Task::Compute { processor: a, .. }, Task::Compute { processor: b, .. }) => a == b,
        _ => false,
    }
}

fn lower(theirs: &Task, ours: &Task) -> bool {
    matches!((theirs, ours), (Task::Cross(theirs), Task::Cross(ours)) if theirs.class < ours.class)
}

/// SplitMix64 (Steele, Lea & Flood 2014): small, and the same everywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance(pub u64);

impl Chance {
    /// The next number.
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`, 0 if that is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.draw().checked_rem(limit).unwrap_or(0)
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> Option<T> {
        list.get(self.below(list.len() as u64) as usize).copied()
    }

    /// Zero, `most`, or a random number between them.
    fn extreme(&mut self, most: u64) -> u64 {
        match self.below(3) {
            0 => 0,
            1 => most,
            _ => self.below(most.saturating_add(1)),
        }
    }
}
