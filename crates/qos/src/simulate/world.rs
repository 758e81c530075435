//! One run, event by event.

use super::batches::{Batches, Turn};
use super::chains::Chains;
use super::event::{Entry, Event};
use super::pacers::Pacers;
use super::release::Releases;
use super::resources::{PacketTrain, Part, Processor, Queue, Sending, queues};
use super::work::{Crossing, Task, Work, of_many, works};
use super::{PairSeen, Run, Seen};
use crate::analysis::stages::{Stages, Stream};
use crate::system::System;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A published sample on its way.
#[derive(Clone, Copy, Debug)]
struct Sample {
    stream: usize,
    number: u64,
    published: u64,
}

/// Threads, queues and links on their way through one run.
pub(super) struct World<'a> {
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
    /// The world before anything happens.
    pub(super) fn new(system: &'a System, stages: &'a Stages, run: &Run) -> Self {
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

    /// All that happens, with so many events at most.
    pub(super) fn observe(mut self, events: u64) -> Seen {
        self.begin();
        while let Some(Reverse(Entry { at, event, .. })) = self.next.pop() {
            if self.seen.events == events {
                self.seen.cut = true;
                break;
            }
            self.seen.events += 1;
            self.happens(at, event);
        }
        self.seen
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
            if let Some(at) = self.releases.control(queue) {
                self.later(at, Event::Control { queue });
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
        self.next.push(Reverse(Entry::new(at, aimed, self.order, event)));
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
            Event::Control { queue } => {
                self.queues[queue].control();
                self.later(now, Event::Begin { queue });
                if let Some(at) = self.releases.control(queue) {
                    self.later(at, Event::Control { queue });
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
