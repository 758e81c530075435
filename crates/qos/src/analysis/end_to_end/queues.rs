//! What comes to each queue, from where, and how each order of service treats it.

use super::{Because, Iteration, QueueBound, Room, load, why_not};
use crate::Class;
use crate::analysis::arrivals::BILLION;
use crate::analysis::link::curve::{Bucket, RateLatency};
use crate::analysis::link::lag;
use crate::analysis::link::queue::{Load, Service, Source, Stay, stay};
use crate::analysis::stages::{Outlet, Packets, Stages, Step};
use crate::contract::Scheduler;

/// The streams of each queue, apart by the queue that they come from.
pub struct Queues(Vec<Vec<Group>>);

/// What comes over one link, or begins here.
struct Group {
    /// The queue before; `None`: begins here.
    from: Option<usize>,
    stages: Vec<usize>,
}

impl Queues {
    pub fn new(stages: &Stages) -> Self {
        let mut queues: Vec<Vec<Group>> = stages.outlets.iter().map(|_| Vec::new()).collect();
        for (index, stage) in stages.stages.iter().enumerate() {
            let Step::Cross { queue, .. } = stage.step else { continue };
            let from = stage.after.and_then(|after| match stages.stages[after].step {
                Step::Cross { queue, .. } => Some(queue),
                Step::Compute { .. } => None,
            });
            match queues[queue].iter_mut().find(|group| group.from == from) {
                Some(group) => group.stages.push(index),
                None => queues[queue].push(Group { from, stages: vec![index] }),
            }
        }
        Self(queues)
    }
}

/// A stream at a queue.
#[derive(Clone, Copy)]
struct Member {
    load: Load,
    class: Class,
    packets: Packets,
    /// The packets on the link that they come from.
    before: Option<Packets>,
    forwarding: u64,
}

impl Iteration<'_> {
    /// How long everything stays in a queue.
    pub(super) fn serve(&mut self, queue: usize) {
        let mut members = Vec::new();
        // Who comes at unknown times spoils it for his class and all that he goes before.
        let mut unknown: Option<(Class, Because)> = None;
        for group in &self.queues.0[queue] {
            let mut known = Vec::new();
            for stage in &group.stages {
                let class = self.class(*stage);
                match self.member(*stage) {
                    Some(member) => known.push(member),
                    None if unknown.is_none_or(|(spoiled, _)| spoiled < class) => {
                        let place = self.place(*stage);
                        unknown = Some((class, self.because[*stage].unwrap_or(Because::TooLong(place))));
                    }
                    None => (),
                }
            }
            members.push(known);
        }
        let outlet = self.outlet(queue);
        let found = Class::ALL.map(|class| match unknown {
            Some((spoiled, because)) if spoils(outlet.scheduler, spoiled, class) => Err(because),
            _ => class_stay(outlet, &members, class).map_err(|why| why_not(why, super::Where::Link(outlet.direction))),
        });
        let here: Vec<usize> = self.queues.0[queue].iter().flat_map(|group| &group.stages).copied().collect();
        for stage in here {
            match found[self.class(stage) as usize] {
                Ok(stay) => self.stays(stage, stay),
                Err(because) => self.refuse(stage, because),
            }
        }
    }

    fn class(&self, stage: usize) -> Class {
        match self.stages.stages[stage].step {
            Step::Cross { class, .. } => class,
            Step::Compute { .. } => Class::default(),
        }
    }

    fn member(&self, index: usize) -> Option<Member> {
        let stage = &self.stages.stages[index];
        let Step::Cross { class, packets, forwarding, .. } = stage.step else { return None };
        let before = stage.after.and_then(|after| match self.stages.stages[after].step {
            Step::Cross { packets, .. } => Some(packets),
            Step::Compute { .. } => None,
        });
        let load = Load { arrivals: self.arrivals(index, self.passages[index].first)?, work: packets.work() };
        Some(Member { load, class, packets, before, forwarding })
    }

    /// What each class of a queue needs.
    pub(super) fn bounds(&self, queue: usize) -> [QueueBound; 4] {
        let mut bounds = [QueueBound::default(); 4];
        for index in self.queues.0[queue].iter().flat_map(|group| &group.stages) {
            let stage = &self.stages.stages[*index];
            let Step::Cross { class, packets, .. } = stage.step else { continue };
            let bound = &mut bounds[class as usize];
            bound.load = bound.load.saturating_add(load(&self.stages.arrivals(stage), packets.work()));
            bound.room = self.room(*index, packets).and_then(|room| {
                let sum = if bound.streams == 0 { Room::default() } else { bound.room? };
                Some(Room {
                    bytes: sum.bytes.saturating_add(room.bytes),
                    packets: sum.packets.saturating_add(room.packets),
                })
            });
            bound.stay = self.passages[*index].stay;
            bound.streams += 1;
        }
        bounds
    }

    /// What of a stream waits at most: what comes while the first of it stays.
    fn room(&self, stage: usize, packets: Packets) -> Option<Room> {
        let samples = self.member(stage)?.load.arrivals.within(self.passages[stage].stay?.time);
        Some(Room { bytes: samples.saturating_mul(packets.bytes), packets: samples.saturating_mul(packets.count) })
    }
}

/// A class, and the one that is asked for.
type Compare = fn(Class, Class) -> bool;

fn spoils(scheduler: Scheduler, spoiled: Class, class: Class) -> bool {
    match scheduler {
        Scheduler::Fifo => true,
        Scheduler::Strict => spoiled >= class,
        Scheduler::Htb | Scheduler::Hfsc => spoiled == class,
    }
}

fn class_stay(outlet: &Outlet, members: &[Vec<Member>], class: Class) -> Result<Stay, crate::analysis::cpu::Unbounded> {
    let all = || members.iter().flatten();
    let (is_own, is_higher): (Compare, Compare) = match outlet.scheduler {
        Scheduler::Fifo => (|_, _| true, |_, _| false),
        Scheduler::Strict => (|a, b| a == b, |a, b| a > b),
        Scheduler::Htb | Scheduler::Hfsc => (|a, b| a == b, |_, _| false),
    };
    let service = match outlet.scheduler {
        Scheduler::Fifo => Service::Strict { blocking: 0 },
        Scheduler::Strict => Service::Strict { blocking: largest(outlet, members, |other| other < class) },
        Scheduler::Htb => Service::Curve(htb(outlet, class, largest(outlet, members, |_| true))),
        Scheduler::Hfsc => {
            let latency = largest(outlet, members, |_| true);
            Service::Curve(RateLatency { rate: outlet.shares[class as usize], latency })
        }
    };
    let last = all().filter(|m| is_own(m.class, class)).map(|m| m.packets.last).min();
    let Some(last) = last else { return Ok(Stay::default()) };
    let mut sources: Vec<Source> = members.iter().map(|group| source(group, class, is_own, is_higher)).collect();
    if let Some(background) = outlet.background {
        let load = [Load { arrivals: background.arrivals, work: background.work }];
        let (own, higher) = (is_own(Class::Normal, class), is_higher(Class::Normal, class));
        let of = |yes: bool| if yes { load.to_vec() } else { Vec::new() };
        sources.push(Source { line: None, own: of(own), higher: of(higher) });
    }
    stay(&sources, service, last)
}

fn source(group: &[Member], class: Class, own: Compare, higher: Compare) -> Source {
    let of = |which: Compare| group.iter().filter(move |m| which(m.class, class)).map(|m| m.load);
    let counted: Vec<&Member> = group.iter().filter(|m| own(m.class, class) || higher(m.class, class)).collect();
    Source { line: line(&counted), own: of(own).collect(), higher: of(higher).collect() }
}

/// A link brings its packets one after the other: of those that come within a stretch all but the first were sent within it, or
/// within the time of forwarding before.
fn line(members: &[&Member]) -> Option<Bucket> {
    let mut line = Bucket { burst: 0, rate: 0 };
    let mut forwarding = 0;
    for member in members {
        let before = member.before?;
        let pairs = [(member.packets.first(), before.first()), (member.packets.last, before.last)];
        for (here, there) in pairs {
            let rate = (u128::from(here) * BILLION).div_ceil(u128::from(there.max(1)));
            line.rate = line.rate.max(u64::try_from(rate).ok()?);
        }
        line.burst = line.burst.max(member.packets.largest());
        forwarding = forwarding.max(member.forwarding);
    }
    line.burst = Bucket { burst: line.burst, rate: line.rate }.within(forwarding);
    Some(line)
}

/// The largest unit that the device takes at once, of the classes asked for.
fn largest(outlet: &Outlet, members: &[Vec<Member>], which: impl Fn(Class) -> bool) -> u64 {
    let declared = members.iter().flatten().filter(|m| which(m.class)).map(|m| m.packets.unit);
    let background = outlet.background.filter(|_| which(Class::Normal)).map(|background| background.work);
    declared.chain(background).max().unwrap_or(0)
}

/// What a class of `htb` surely gets. Classes whose buckets are not empty are served before the others, in deficit round robin with
/// quanta in proportion to their shares, the least of them `unit`, the largest packet. Then a class lags its share by at most
/// Σ over others (Qⱼ + unit) + unit · (F − Q) ÷ Q of the link's time, F = Σ Q (Boyer, Stea & Sofack 2012, theorem 1), and by one
/// unit that is being sent. Its bucket is deep enough not to overflow in that time; so at worst it begins a bucket and a unit short.
fn htb(outlet: &Outlet, class: Class, unit: u64) -> RateLatency {
    let own = outlet.shares[class as usize];
    let lag = lag(&outlet.shares, class, unit);
    let short = u128::from(2 * lag.min(u64::MAX / 4)) + u128::from(unit) * 2;
    let latency = (short * BILLION).checked_div(u128::from(own)).unwrap_or(u128::from(u64::MAX));
    RateLatency { rate: own, latency: u64::try_from(latency).unwrap_or(u64::MAX).saturating_add(1) }
}
