//! A contract and its plan in virtual time: threads, queues and links, event by event, the same for the same seed.
//!
//! Simulation checks bounds. A delay that it shows is possible: a bound below it is wrong, and one far above it is loose. The
//! patterns of release are therefore the worst known ones, not typical ones.
//!
//! | module | contents |
//! |---|---|
//! | `batches` | samples of publishers with a latency budget, which leave together |
//! | `pacers` | publishers whose packets leave at a pace |
//! | `chains` | chains over several topics: which sample was made of which |
//! | `release` | releases of samples, by pattern |
//! | `resources` | a queue with its order of service; threads by reservation and rank, pre-emptive |
//! | `work` | packets, times and samples of each stage, from the contract and not from the analysis |

mod batches;
mod chains;
mod pacers;
mod release;
mod resources;
mod work;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::analysis::Steps;
use crate::analysis::stages::{Classes, Place, Stages, Stream};
use crate::assignment::ranked;
use crate::network::Network;
use crate::plan::Plan;
use crate::system::System;
use batches::{Batches, Turn};
use chains::Chains;
use pacers::Pacers;
#[cfg(feature = "placement")]
pub(crate) use release::Chance;
pub use release::Pattern;
use release::Releases;
use resources::{PacketTrain, Part, Processor, Queue, Sending, queues};
use work::{Crossing, Task, Work, of_many, works};

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The pattern of publications.
    pub pattern: Pattern,
    /// The same seed gives the same run.
    pub seed: u64,
    /// Virtual time in which samples are published, ns; those on their way arrive after it.
    pub duration: u64,
    /// Most events, so that it ends in real time, too.
    pub events: u64,
}

/// Observations of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairSeen {
    /// Samples that arrived.
    pub count: u64,
    /// The longest from publication to the subscriber's application, ns.
    pub max: u64,
    /// Sum over all samples, ns: for the mean.
    pub sum: u128,
}

/// Observations of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// In the order of [`Stages::pairs`].
    pub pairs: Vec<PairSeen>,
    /// Of each of [`System::chains`]: from the publication of a first sample to the end of the last callback for a sample that was made of it,
    /// or of a later one.
    pub chains: Vec<PairSeen>,
    /// Most bytes that each queue held, in the order of [`Stages::egresses`], without background.
    pub queues: Vec<u64>,
    /// Events that happened.
    pub events: u64,
    /// The run ended before its time, because it had as many events as were allowed.
    pub cut: bool,
}

impl PairSeen {
    /// One more, which took so long.
    fn note(&mut self, took: u64) {
        let (count, max, sum) = (self.count + 1, self.max.max(took), self.sum + u128::from(took));
        *self = Self { count, max, sum };
    }
}

impl Seen {
    /// Takes in another run: counts add, maxima are the larger.
    pub fn and(mut self, other: &Seen) -> Seen {
        self.pairs.resize(other.pairs.len(), PairSeen::default());
        self.chains.resize(other.chains.len(), PairSeen::default());
        self.queues.resize(other.queues.len(), 0);
        let pairs = self.pairs.iter_mut().zip(&other.pairs).chain(self.chains.iter_mut().zip(&other.chains));
        for (ours, theirs) in pairs {
            let (count, max, sum) = (ours.count + theirs.count, ours.max.max(theirs.max), ours.sum + theirs.sum);
            *ours = PairSeen { count, max, sum };
        }
        self.queues.iter_mut().zip(&other.queues).for_each(|(ours, theirs)| *ours = (*ours).max(*theirs));
        Seen { events: self.events + other.events, cut: self.cut || other.cut, ..self }
    }
}

/// One run in virtual time. `stages` are those of `system`.
pub fn simulate(system: &System, stages: &Stages, run: &Run) -> Seen {
    let mut world = World::new(system, stages, run);
    world.begin();
    while let Some(Reverse(Entry { at, event, .. })) = world.next.pop() {
        if world.seen.events == run.events {
            world.seen.cut = true;
            break;
        }
        world.seen.events += 1;
        world.happens(at, event);
    }
    world.seen
}

/// Runs of all patterns, the aimed ones `tries` times for each pair, taken together: the worst that is known.
pub fn worst(system: &System, stages: &Stages, run: &Run, tries: u64) -> Seen {
    let plain =
        [Pattern::Synchronous, Pattern::RandomPhases, Pattern::Late].into_iter().map(|pattern| (pattern, run.seed));
    let aimed = (0..stages.pairs.len()).flat_map(|pair| (0..tries).map(move |t| (Pattern::Aimed { pair }, t)));
    let runs = plain.chain(aimed.map(|(pattern, t)| (pattern, run.seed.wrapping_add(t))));
    runs.map(|(pattern, seed)| simulate(system, stages, &Run { pattern, seed, ..*run }))
        .fold(Seen::default(), |all, seen| all.and(&seen))
}

/// The stages of `system` with the classes and proxies of its `plan`, and for each of the plan's channels the pair that it is; `None`
/// for a channel that the contract does not have. Threads are ranked as by the planner.
pub fn planned(system: &System, plan: &Plan) -> (Stages, Vec<Option<usize>>) {
    let nodes: HashMap<&str, usize> = system.nodes.iter().enumerate().map(|(i, n)| (n.name.as_str(), i)).collect();
    let ports: HashMap<&str, usize> =
        system.subscribers.iter().enumerate().map(|(i, s)| (s.name.as_str(), i)).collect();
    let mut classes = Classes::stated(system);
    let mut places = Vec::new();
    let mut keys = Vec::new();
    for channel in &plan.channels {
        let publisher = nodes.get(channel.publisher.as_str()).copied();
        let subscriber = ports.get(channel.subscriber.as_str()).copied();
        let (Some(publisher), Some(subscriber)) = (publisher, subscriber) else {
            keys.push(None);
            continue;
        };
        classes.set(publisher, subscriber, channel.class);
        let proxy = channel.proxy.as_deref().and_then(|proxy| nodes.get(proxy));
        places.extend(proxy.map(|node| Place { publisher, subscriber, node: *node }));
        keys.push(Some((publisher, subscriber)));
    }
    let mut stages = Stages::new(system, &Network::new(system), &places, &classes);
    ranked(system, &mut stages, &Steps::of(system));
    let pairs = stages.pairs.iter().enumerate();
    let pairs: HashMap<(usize, usize), usize> =
        pairs.map(|(i, pair)| ((stages.streams[pair.stream].publisher, pair.subscriber), i)).collect();
    let of = |key: Option<(usize, usize)>| pairs.get(&key?).copied();
    let pairs = keys.into_iter().map(of).collect();
    (stages, pairs)
}

/// A published sample on its way.
#[derive(Clone, Copy, Debug)]
struct Sample {
    stream: usize,
    number: u64,
    published: u64,
}

/// An event. Events of one time are handled in this order: arrivals come before anything begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Undeclared background traffic comes to a queue.
    Background { queue: usize },
    /// A stream publishes.
    Publish { stream: usize },
    /// A callback publishes a stream's next sample, which it made of this one.
    Make { stream: usize, of: usize },
    /// A packet, or with `last` a whole sample, is at a stage.
    Arrive { stage: usize, sample: usize, last: bool },
    /// Samples that waited for each other at a stage leave.
    Leave { stage: usize },
    /// Packets leave a pacer for a link; with `ends` the last of a sample is among them.
    Release { stage: usize, sample: usize, packets: u64, ends: bool },
    /// A thread whose reservation was used up has the next one.
    Replenish { processor: usize, part: Part, stage: usize, sample: usize },
    /// A thread's work is done, unless it was interrupted.
    Computed { processor: usize, token: u64 },
    /// A link is free.
    Free { queue: usize },
    /// The service of waiting packets begins.
    Begin { queue: usize },
}

impl Event {
    fn rank(&self) -> u8 {
        match self {
            // Finished work stays finished, even if more urgent work comes just then.
            Event::Computed { .. } => 0,
            Event::Background { .. } => 1,
            Event::Publish { .. }
            | Event::Make { .. }
            | Event::Arrive { .. }
            | Event::Release { .. }
            | Event::Replenish { .. } => 2,
            // What comes just then goes with them.
            Event::Leave { .. } => 3,
            Event::Free { .. } => 4,
            Event::Begin { .. } => 5,
        }
    }
}

/// An event in time. Of simultaneous events the aimed stream's come last, so that all others are in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: u64,
    rank: u8,
    aimed: bool,
    order: u64,
    event: Event,
}

struct World<'a> {
    system: &'a System,
    stages: &'a Stages,
    works: Vec<Work>,
    next: BinaryHeap<Reverse<Entry>>,
    order: u64,
    samples: Vec<Sample>,
    releases: Releases,
    processors: Vec<Processor>,
    queues: Vec<Queue>,
    /// Stages behind each stage, and the first stages of each stream.
    behind: Vec<Vec<usize>>,
    begin: Vec<Vec<usize>>,
    /// Pairs that end with each stage, and pairs of each stream without stages.
    ends: Vec<Vec<usize>>,
    at_once: Vec<Vec<usize>>,
    batches: Batches,
    pacers: Pacers,
    chains: Chains,
    seen: Seen,
}

impl<'a> World<'a> {
    fn new(system: &'a System, stages: &'a Stages, run: &Run) -> Self {
        let works = works(system, stages);
        let mut world = Self {
            system,
            stages,
            releases: Releases::new(system, stages, &works, run),
            works,
            next: BinaryHeap::new(),
            order: 0,
            samples: Vec::new(),
            processors: stages.processors.iter().map(|_| Processor::default()).collect(),
            queues: queues(system, stages),
            behind: vec![Vec::new(); stages.stages.len()],
            begin: vec![Vec::new(); stages.streams.len()],
            ends: vec![Vec::new(); stages.stages.len()],
            at_once: vec![Vec::new(); stages.streams.len()],
            batches: Batches::default(),
            pacers: Pacers::new(run.seed),
            chains: Chains::new(system, stages),
            seen: Seen::default(),
        };
        for (index, stage) in stages.stages.iter().enumerate() {
            match stage.after {
                Some(after) => world.behind[after].push(index),
                None => world.begin[stage.stream].push(index),
            }
        }
        for (index, pair) in stages.pairs.iter().enumerate() {
            match pair.last {
                Some(last) => world.ends[last].push(index),
                None => world.at_once[pair.stream].push(index),
            }
        }
        world.seen.pairs.resize(stages.pairs.len(), PairSeen::default());
        world.seen.chains.resize(system.chains.len(), PairSeen::default());
        world.seen.queues.resize(stages.egresses.len(), 0);
        world
    }

    fn begin(&mut self) {
        let clocked: Vec<usize> = (0..self.stages.streams.len()).filter(|stream| !self.chains.makes(*stream)).collect();
        for stream in clocked {
            self.publish_next(stream);
        }
        for queue in 0..self.queues.len() {
            if let Some(at) = self.releases.background(queue) {
                self.later(at, Event::Background { queue });
            }
        }
    }

    fn later(&mut self, at: u64, event: Event) {
        self.order += 1;
        let stream = match event {
            Event::Publish { stream } | Event::Make { stream, .. } => Some(stream),
            Event::Arrive { stage, .. } | Event::Leave { stage } | Event::Release { stage, .. } => {
                Some(self.stages.stages[stage].stream)
            }
            _ => None,
        };
        let aimed = stream.is_some_and(|stream| self.releases.aims_at(stream));
        self.next.push(Reverse(Entry { at, rank: event.rank(), aimed, order: self.order, event }));
    }

    fn publish_next(&mut self, stream: usize) {
        if let Some(at) = self.releases.next(stream) {
            self.later(at, Event::Publish { stream });
        }
    }

    fn happens(&mut self, now: u64, event: Event) {
        match event {
            Event::Publish { stream } => {
                self.publish(now, stream, self.releases.count(stream) - 1, None);
                self.publish_next(stream);
            }
            Event::Make { stream, of } => {
                let number = self.chains.next(stream);
                self.publish(now, stream, number, Some(of));
            }
            Event::Arrive { stage, sample, last } => self.arrive(now, stage, sample, last),
            Event::Leave { stage } => self.leave_together(now, stage),
            Event::Release { stage, sample, packets, ends } => {
                let Task::Cross(crossing) = self.works[stage].task else { return };
                let crossing = self.piece(sample, &crossing);
                self.push(now, stage, sample, (packets, ends), &crossing);
            }
            Event::Replenish { processor, part, stage, sample } => self.ready(now, processor, &part, (stage, sample)),
            Event::Computed { processor, token } => {
                let Some(done) = self.processors[processor].done(now, token) else { return };
                self.run(now, processor);
                if let Some((stage, sample)) = done {
                    self.leave(now, stage, sample, true);
                }
            }
            Event::Background { queue } => {
                self.queues[queue].background(now);
                self.later(now, Event::Begin { queue });
                if let Some(at) = self.releases.background(queue) {
                    self.later(at, Event::Background { queue });
                }
            }
            Event::Free { queue } => {
                self.queues[queue].free();
                self.later(now, Event::Begin { queue });
            }
            Event::Begin { queue } => self.transmit(now, queue),
        }
    }

    fn publish(&mut self, now: u64, stream: usize, number: u64, of: Option<usize>) {
        let (sample, stages) = (self.samples.len(), self.stages);
        self.samples.push(Sample { stream, number, published: now });
        self.chains.published(now, stream, (sample, number), of);
        let Stream { topic, publisher, .. } = stages.streams[stream];
        let sends = self.system.topics[topic].hand_in.saturating_add(self.system.hand_over(topic, publisher));
        let at = now.saturating_add(sends);
        for stage in self.begin[stream].clone() {
            self.later(at, Event::Arrive { stage, sample, last: true });
        }
        for pair in self.at_once[stream].clone() {
            self.deliver(at, pair, sample);
        }
    }

    fn arrive(&mut self, now: u64, stage: usize, sample: usize, last: bool) {
        match self.works[stage].task {
            Task::Compute { processor, rank, reserved, execution } => {
                let execution = self.releases.execution(execution);
                for part in self.processors[processor].parts(now, rank, reserved, (stage, execution)) {
                    match part.start > now {
                        true => self.later(part.start, Event::Replenish { processor, part, stage, sample }),
                        false => self.ready(now, processor, &part, (stage, sample)),
                    }
                }
            }
            Task::Cross(crossing) if crossing.gathers > 0 => {
                match self.batches.comes(now, stage, sample, crossing.gathers) {
                    Turn::Leaves => self.wait(now, stage, sample, last, &crossing),
                    Turn::First(at) => self.later(at, Event::Leave { stage }),
                    Turn::Waits => {}
                }
            }
            Task::Cross(crossing) => self.wait(now, stage, sample, last, &crossing),
        }
    }

    fn leave_together(&mut self, now: u64, stage: usize) {
        let Task::Cross(crossing) = self.works[stage].task else { return };
        let samples = self.batches.leave(now, stage);
        let Some(first) = samples.first().map(|first| self.samples[*first]) else { return };
        let piece = self.samples.len();
        self.samples.push(first);
        self.batches.join(piece, samples);
        self.wait(now, stage, piece, true, &crossing);
    }

    /// A packet, or where the way begins all packets of a sample, wait for a link.
    fn wait(&mut self, now: u64, stage: usize, sample: usize, last: bool, crossing: &Crossing) {
        let crossing = self.piece(sample, crossing);
        let packets = if crossing.begins { crossing.count } else { 1 };
        if crossing.pace == 0 {
            return self.push(now, stage, sample, (packets, last), &crossing);
        }
        for (at, packets, ends) in self.pacers.comes(now, stage, &crossing) {
            self.later(at, Event::Release { stage, sample, packets, ends });
        }
    }

    /// The crossing of a sample, or of the piece that it left in with others.
    fn piece(&self, sample: usize, crossing: &Crossing) -> Crossing {
        let samples = self.batches.of(sample).map(|samples| samples.len() as u64);
        samples.map_or(*crossing, |samples| of_many(self.system, crossing, samples))
    }

    /// Packets come to the queue of a link; with `last` the end of the sample is among them.
    fn push(&mut self, now: u64, stage: usize, sample: usize, (mut left, last): (u64, bool), crossing: &Crossing) {
        let Crossing { queue, class, full: packet, last: end, at_once, .. } = *crossing;
        while left > 0 {
            let packets = left.min(at_once);
            left -= packets;
            let ends = last && left == 0;
            self.queues[queue].push(now, class, PacketTrain { stage, sample, packets, packet, last: end, ends });
        }
        self.seen.queues[queue] = self.seen.queues[queue].max(self.queues[queue].bytes);
        self.later(now, Event::Begin { queue });
    }

    fn ready(&mut self, now: u64, processor: usize, part: &Part, of: (usize, usize)) {
        self.processors[processor].ready(now, part, of);
        self.run(now, processor);
    }

    fn run(&mut self, now: u64, processor: usize) {
        if let Some((at, token)) = self.processors[processor].run(now) {
            self.later(at, Event::Computed { processor, token });
        }
    }

    fn transmit(&mut self, now: u64, queue: usize) {
        let Some(service) = self.queues[queue].next(now) else {
            return self.queues[queue].wakes(now).into_iter().for_each(|at| self.later(at, Event::Begin { queue }));
        };
        self.later(now.saturating_add(service.work()), Event::Free { queue });
        let Sending::Declared(parcel) = service else { return };
        let delay = self.system.links[queue / 2].delay;
        let mut at = now;
        for left in (0..parcel.packets).rev() {
            let last = parcel.ends && left == 0;
            at = at.saturating_add(if last { parcel.last.time } else { parcel.packet.time });
            self.leave(at.saturating_add(delay), parcel.stage, parcel.sample, last);
        }
    }

    /// A packet, or with `last` the whole sample, is done with a stage at time `at`.
    fn leave(&mut self, at: u64, stage: usize, sample: usize, last: bool) {
        let whole = [sample];
        let apart = self.batches.of(sample).map_or_else(|| whole.to_vec(), <[usize]>::to_vec);
        for next in self.behind[stage].clone() {
            let Work { every, task } = self.works[next];
            let (forwarding, samples) = match task {
                // A piece stays one as far as its links go.
                Task::Cross(crossing) => (crossing.forwarding, &whole[..]),
                // A thread needs the whole sample.
                Task::Compute { .. } if last => (0, &apart[..]),
                Task::Compute { .. } => continue,
            };
            for sample in samples.iter().copied() {
                if self.samples[sample].number.is_multiple_of(every) {
                    self.later(at.saturating_add(forwarding), Event::Arrive { stage: next, sample, last });
                }
            }
        }
        if last {
            for pair in self.ends[stage].clone() {
                apart.iter().for_each(|sample| self.deliver(at, pair, *sample));
            }
        }
    }

    fn deliver(&mut self, at: u64, pair: usize, sample: usize) {
        let Sample { stream, number, published } = self.samples[sample];
        let wanted = &self.system.subscribers[self.stages.pairs[pair].subscriber];
        if number.is_multiple_of(u64::from(wanted.scale.max(1))) {
            let hand_out = self.system.topics[self.stages.streams[stream].topic].hand_out;
            let at = at.saturating_add(hand_out);
            self.seen.pairs[pair].note(at.saturating_sub(published));
            for (chain, since) in self.chains.ended(at, pair, sample, published) {
                self.seen.chains[chain].note(at.saturating_sub(since));
            }
            if let Some(stream) = self.chains.made_by(pair) {
                self.later(at, Event::Make { stream, of: sample });
            }
        }
    }
}

#[cfg(feature = "placement")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Compared, Held, compare_all, seed};
    use std::sync::OnceLock;

    /// Systems per run: as many as the profile computes in some 20 s on two processors.
    const SYSTEMS: u64 = if cfg!(debug_assertions) { 60 } else { 1000 };

    fn compared() -> &'static Compared {
        static COMPARED: OnceLock<Compared> = OnceLock::new();
        COMPARED.get_or_init(|| {
            let first = seed().wrapping_mul(SYSTEMS) % (u64::MAX - SYSTEMS);
            println!("{SYSTEMS} systems from seed {first}, THALWEG_SEED={}", seed());
            let (compared, wrong) = compare_all(first..first + SYSTEMS, 2);
            assert!(wrong.is_empty(), "THALWEG_SEED={}: {wrong:#?}", seed());
            compared
        })
    }

    fn median(of: impl Fn(&Held) -> bool) -> f64 {
        let mut ratios: Vec<f64> = compared().held.iter().filter(|held| of(held)).map(Held::ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    }

    /// More of them, aimed oftener: `cargo run --release -p thalweg-baseline --example bounds`.
    #[test]
    fn bounds_hold_against_the_worst_patterns_and_are_near_them() {
        let count = compared().held.iter().filter(|held| held.contended).count() as u64;
        let (all, contended) = (median(|_| true), median(|held| held.contended));
        println!(
            "{count} contended channels, bound / latest seen in the median {contended:.2}, of all channels {all:.2}"
        );
        assert!(count > 3 * SYSTEMS, "{count}");
        assert!(contended < 2.0, "bounds are loose: {contended}");
    }

    /// Whoever forgets blocking breaks bounds: the comparison sees it, by every order of service that has any.
    #[test]
    fn bounds_without_blocking_would_not_hold() {
        let broken = |shares: bool| {
            let all = compared().held.iter().filter(|held| held.contended && held.shares == shares);
            all.filter(|held| held.bound - held.blocking < held.seen).count() as u64
        };
        println!("without blocking {} bounds of priorities would break, and {} of shares", broken(false), broken(true));
        assert!(broken(false) > SYSTEMS / 10 && broken(true) > SYSTEMS / 10);
    }

    #[test]
    fn a_plan_is_simulated_as_it_was_made() {
        struct Never;
        impl crate::placement::Watch for Never {
            fn elapsed(&mut self) -> std::time::Duration {
                std::time::Duration::ZERO
            }
        }
        let contract = crate::contract::Contract::read(include_str!("../../../examples/robot.toml")).unwrap();
        let plan = crate::plan::make(&contract, crate::plan::Model::Bound, &mut Never);
        let (stages, pairs) = planned(&contract.system, &plan);
        let run = Run { pattern: Pattern::Synchronous, seed: 1, duration: 300_000_000, events: 200_000 };
        let seen = worst(&contract.system, &stages, &run, 1);
        assert!(
            !plan.channels.is_empty() && seen == worst(&contract.system, &stages, &run, 1),
            "the same for the same seed"
        );
        for (channel, pair) in plan.channels.iter().zip(pairs) {
            let seen = seen.pairs[pair.unwrap()];
            let (max, bound) = (seen.max as f64 / 1e3, channel.bound_us.unwrap());
            assert!(
                seen.count > 0 && max <= bound + 1e-6,
                "{} to {}: {max} > {bound}",
                channel.topic,
                channel.subscriber
            );
        }
        let (_, unknown) = planned(&crate::system::System::default(), &plan);
        assert!(unknown.iter().all(Option::is_none));
    }
}
