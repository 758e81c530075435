//! Queues: the streams of each by the queue they come from, and each order of service.

use super::{Because, Iteration, QueueBound, Room, Where, load, why_not};
use crate::Class;
use crate::analysis::link::queue::{Known, Load, Service, Source, Stay, stay};
use crate::analysis::link::{Bucket, RateLatency};
use crate::analysis::stages::{Egress, Leaf, Packets, Stages, Step};
use crate::analysis::{BILLION, Steps};
use crate::system::Scheduler;

/// The streams of each queue, grouped by the queue that they come from, and the last results for it.
pub(super) struct Queues(Vec<(Vec<Group>, Before)>);

/// Where packets come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// Sockets of this node, all packets of a sample at once.
    Here,
    /// The queue before.
    Queue(usize),
    /// A socket of this node that sends this stage's packets at a pace.
    Pacer(usize),
}

/// The streams of one link, or those that begin here.
struct Group {
    from: From,
    /// The stages, and their constant figures.
    members: Vec<(usize, Member)>,
}

impl Queues {
    pub(super) fn new(stages: &Stages) -> Self {
        let mut queues: Vec<(Vec<Group>, Before)> = stages.egresses.iter().map(|_| Default::default()).collect();
        for (index, stage) in stages.stages.iter().enumerate() {
            let Step::Cross { queue, class, packets, forwarding, paced, leaf, .. } = stage.step else { continue };
            let before = stage.after.and_then(|after| match stages.stages[after].step {
                Step::Cross { queue, packets, .. } => Some((queue, packets)),
                Step::Compute { .. } => None,
            });
            let load = Load { arrivals: stages.arrivals(stage), work: packets.together_work() };
            let line = before.and_then(|(_, before)| line(&packets, &before));
            let line = paced.map_or(line, |paced| Some(paced.line));
            let member = (index, Member { load, class, packets, line, forwarding, leaf });
            let from = match before {
                Some((queue, _)) => From::Queue(queue),
                None if paced.is_some() => From::Pacer(index),
                None => From::Here,
            };
            let groups = &mut queues[queue].0;
            match groups.iter_mut().find(|group| group.from == from) {
                Some(group) => group.members.push(member),
                None => groups.push(Group { from, members: vec![member] }),
            }
        }
        Self(queues)
    }

    fn of(&self, queue: usize) -> impl Iterator<Item = &(usize, Member)> {
        self.0[queue].0.iter().flat_map(|group| &group.members)
    }
}

/// The rate at which a link delivers packets back to back, in ns of work here per second, and the largest of them.
fn line(here: &Packets, there: &Packets) -> Option<Bucket> {
    let rate = |here: u64, there: u64| (u128::from(here) * BILLION).div_ceil(u128::from(there.max(1)));
    let own = rate(here.first(), there.first()).max(rate(here.last, there.last));
    // Packets that samples share have any size between the smallest and the largest.
    let shared = here.together.zip(there.together).map_or(0, |(here, there)| {
        rate(here.full.saturating_add(1), there.full).max(rate(here.least.saturating_add(1), there.least))
    });
    let rate = own.max(shared);
    Some(Bucket { burst: here.largest(), rate: u64::try_from(rate).ok()? })
}

impl Iteration<'_> {
    /// Computes the longest stays in a queue.
    pub(super) fn serve(&mut self, queue: usize) {
        let egress = self.egress(queue);
        let mut before = self.queues.0[queue].1;
        let mut coming = Coming::new(egress, &mut before, self.steps);
        for group in &self.queues.0[queue].0 {
            let mut known = Vec::with_capacity(group.members.len());
            for (stage, member) in &group.members {
                if let Some(leaf) = member.leaf {
                    let late = self.transits[*stage].latest.map(|at| at.saturating_sub(self.transits[*stage].first));
                    let member = late.map(|jitter| member.late(jitter));
                    let because = self.because[*stage].unwrap_or(Because::TooLong(self.place(*stage)));
                    coming.own.push(Own { stage: *stage, leaf, member: member.ok_or(because) });
                    continue;
                }
                let unit = &mut coming.units[member.class as usize];
                match self.transits[*stage].latest {
                    Some(latest) => {
                        let member = member.late(latest.saturating_sub(self.transits[*stage].first));
                        *unit = member.unit().max(*unit);
                        known.push(member);
                    }
                    None => {
                        *unit = member.packets.unit_of(u64::MAX).max(*unit);
                        let because = self.because[*stage].unwrap_or(Because::TooLong(self.place(*stage)));
                        coming.unknown[member.class as usize].get_or_insert(because);
                    }
                }
            }
            coming.groups.push(known);
        }
        let found = coming.stays(egress);
        let own_stay = |at: usize| coming.own_stay(egress, at).and_then(|stay| self.has_tokens(&coming.own[at], stay));
        let own: Vec<_> = (0..coming.own.len()).map(|at| (coming.own[at].stage, own_stay(at))).collect();
        self.queues.0[queue].1 = before;
        let in_class = self.queues.of(queue).filter(|(_, member)| member.leaf.is_none());
        let here: Vec<_> = in_class.map(|(stage, member)| (*stage, found[member.class as usize])).collect();
        for (stage, found) in here.into_iter().chain(own) {
            match found {
                Ok(stay) => self.stays(stage, stay),
                Err(because) => self.refuse(stage, because),
            }
        }
    }

    /// The stay in a queue of a channel's own counts no wait for tokens: it holds if all samples leave the queue within their deadline (`stages::Leaf`).
    fn has_tokens(&self, own: &Own, stay: Stay) -> Result<Stay, Because> {
        let out = self.transits[own.stage].latest.and_then(|latest| latest.checked_add(stay.time));
        let is_known = out.is_some_and(|out| out <= own.leaf.until);
        let Step::Cross { queue, .. } = self.stages.stages[own.stage].step else { return Ok(stay) };
        if is_known { Ok(stay) } else { Err(Because::Tokens(self.egress(queue).direction)) }
    }

    /// The bounds of each class's queue; what waits in queues of channels' own is not in it.
    pub(super) fn bounds(&self, queue: usize) -> [QueueBound; 4] {
        let mut bounds = [QueueBound::default(); 4];
        for (index, member) in self.queues.of(queue).filter(|(_, member)| member.leaf.is_none()) {
            let Step::Cross { mut packets, passed, .. } = self.stages.stages[*index].step else { continue };
            if passed.is_some() {
                packets.sent = packets.together_work().div_ceil(packets.least_last().max(1)).max(packets.sent);
            }
            let bound = &mut bounds[member.class as usize];
            bound.load = bound.load.saturating_add(load(&member.load.arrivals, member.load.work));
            bound.room = self.room(*index, packets).and_then(|room| {
                let sum = if bound.streams == 0 { Room::default() } else { bound.room? };
                Some(Room {
                    bytes: sum.bytes.saturating_add(room.bytes),
                    packets: sum.packets.saturating_add(room.packets),
                })
            });
            bound.stay = self.transits[*index].stay;
            bound.streams += 1;
        }
        bounds
    }

    /// The backlog of a stream: its arrivals during the longest stay of one of them.
    fn room(&self, stage: usize, packets: Packets) -> Option<Room> {
        let samples = self.arrivals(stage, self.transits[stage].first)?.within(self.transits[stage].stay?.time);
        Some(Room { bytes: samples.saturating_mul(packets.bytes), packets: samples.saturating_mul(packets.sent) })
    }
}

/// A stream at a queue.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub load: Load,
    pub class: Class,
    pub packets: Packets,
    /// The rate at which the link before brings its packets (ns of work per second), and the largest of them; `None`: it begins here.
    pub line: Option<Bucket>,
    pub forwarding: u64,
    /// It waits in a queue of its own.
    pub leaf: Option<Leaf>,
}

/// A stream in a queue of its own.
pub(super) struct Own {
    stage: usize,
    leaf: Leaf,
    /// The stream; an error: the reason why its times are unknown. What leaves the queue is known all the same.
    member: Result<Member, Because>,
}

/// What leaves a queue of a channel's own, or of control traffic, at most, whatever comes.
fn passes(leaf: &Leaf) -> Load {
    Load { arrivals: leaf.passes(), work: leaf.unit }
}

impl Member {
    /// The same with this much more jitter.
    pub(super) fn late(&self, jitter: u64) -> Self {
        let mut late = Self { load: Load { arrivals: self.load.arrivals.delayed(jitter), ..self.load }, ..*self };
        let largest = self.packets.largest_of(late.at_once());
        late.line = self.line.map(|line| Bucket { burst: line.burst.max(largest), ..line });
        late
    }

    /// Samples that may be here at one time: no more share packets.
    fn at_once(&self) -> u64 {
        self.load.arrivals.within(0)
    }

    /// Work of the largest unit that the device takes at once, ns.
    fn unit(&self) -> u64 {
        self.packets.unit_of(self.at_once())
    }
}

/// Results of the last look at a queue for each class: in order of class, and by a share of its own.
pub(super) type Before = [[Known; 2]; 4];

/// All that comes to a queue.
pub(super) struct Coming<'a> {
    steps: &'a Steps,
    before: &'a mut Before,
    /// Streams whose times are known, apart by the link that brings them.
    pub groups: Vec<Vec<Member>>,
    /// Streams in queues of their own.
    own: Vec<Own>,
    /// The queue of control traffic.
    control: Option<Leaf>,
    /// The reason why streams of a class arrive at unknown times.
    pub unknown: [Option<Because>; 4],
    /// The largest that the device takes of each class at once, ns of work.
    pub units: [u64; 4],
}

/// A comparison of a class with the one that is asked for.
type Compare = fn(Class, Class) -> bool;

impl<'a> Coming<'a> {
    /// The background and control traffic alone.
    pub(super) fn new(egress: &Egress, before: &'a mut Before, steps: &'a Steps) -> Self {
        let mut units = [0; 4];
        units[Class::Normal as usize] = egress.background.map_or(0, |background| background.work);
        let control = egress.control;
        Self { steps, before, groups: Vec::new(), own: Vec::new(), control, unknown: [None; 4], units }
    }

    /// The queues beside those of classes, but for that of the stream in question.
    fn leaves(&self, without: Option<usize>) -> Vec<Leaf> {
        let own = self.own.iter().enumerate().filter(|(at, _)| Some(*at) != without);
        own.map(|(_, own)| own.leaf).chain(self.control).collect()
    }

    /// The longest stays of the packets of each class.
    pub(super) fn stays(&mut self, egress: &Egress) -> [Result<Stay, Because>; 4] {
        match egress.scheduler {
            Scheduler::Fifo => [self.stay(egress, Class::default()); 4],
            _ => Class::ALL.map(|class| self.stay(egress, class)),
        }
    }

    fn stay(&mut self, egress: &Egress, class: Class) -> Result<Stay, Because> {
        match egress.scheduler {
            Scheduler::Fifo => self.served(egress, class, |_, _| true, |_, _| false, Service::Strict { blocking: 0 }),
            Scheduler::Strict => {
                let blocking = self.units[..class as usize].iter().copied().max().unwrap_or(0);
                self.served(egress, class, |a, b| a == b, |a, b| a > b, Service::Strict { blocking })
            }
            Scheduler::Htb => {
                let leaves = self.leaves(None);
                self.shared(egress, class, htb(egress, class, &self.units, &leaves))
            }
            Scheduler::Hfsc => {
                let unit = self.units.iter().copied().max().unwrap_or(0);
                self.shared(egress, class, RateLatency { rate: egress.shares[class as usize], latency: unit })
            }
        }
    }

    /// A class with a share gets the better of two services: the service of its share alone, and the rest that all others
    /// leave when they always go first, because the link never rests while a packet waits.
    fn shared(&mut self, egress: &Egress, class: Class, curve: RateLatency) -> Result<Stay, Because> {
        let alone = self.served(egress, class, |a, b| a == b, |_, _| false, Service::Curve(curve));
        let last = self.served(egress, class, |a, b| a == b, |a, b| a != b, Service::Strict { blocking: 0 });
        match (alone, last) {
            (Ok(alone), Ok(last)) => Ok(if alone.time <= last.time { alone } else { last }),
            (alone, last) => {
                alone.or(last.map_err(|_| alone.err().unwrap_or(Because::TooLong(Where::Link(egress.direction)))))
            }
        }
    }

    /// The longest stay in a queue of a channel's own: the better of what more urgent ones leave by their buckets, and the rest that all others leave.
    fn own_stay(&self, egress: &Egress, at: usize) -> Result<Stay, Because> {
        let member = self.own[at].member?;
        let leaves = self.leaves(Some(at));
        let last = member.packets.least_last();
        let own = || Source { line: member.line, own: vec![member.load], higher: Vec::new() };
        let place = |why| why_not(why, Where::Link(egress.direction));
        let served = |sources: &[Source], by| stay(sources, by, last, &Known::default(), self.steps).map_err(place);
        let alone = served(&[own()], Service::Curve(left_over(egress, &self.own[at].leaf, &self.units, &leaves)));
        if self.unknown.iter().any(Option::is_some) {
            return alone.map(|known| known.stay);
        }
        let mut sources: Vec<Source> =
            self.groups.iter().map(|group| source(group, Class::default(), |_, _| false, |_, _| true)).collect();
        let background = egress.background.map(|all| Load { arrivals: all.arrivals, work: all.work });
        let higher = background.into_iter().chain(leaves.iter().map(passes)).collect();
        sources.extend([own(), Source { line: None, own: Vec::new(), higher }]);
        match (alone, served(&sources, Service::Strict { blocking: 0 })) {
            (Ok(alone), Ok(last)) if last.stay.time < alone.stay.time => Ok(last.stay),
            (Ok(alone), _) => Ok(alone.stay),
            (Err(_), last) => last.map(|known| known.stay),
        }
    }

    fn served(
        &mut self,
        egress: &Egress,
        class: Class,
        own: Compare,
        higher: Compare,
        by: Service,
    ) -> Result<Stay, Because> {
        let counts = |other: Class| own(other, class) || higher(other, class);
        let unknown =
            Class::ALL.into_iter().filter(|other| counts(*other)).find_map(|other| self.unknown[other as usize]);
        if let Some(because) = unknown {
            return Err(because);
        }
        let ends = self.groups.iter().flatten().filter(|m| own(m.class, class)).map(|m| m.packets.least_last());
        let Some(last) = ends.min() else { return Ok(Stay::default()) };
        let mut sources: Vec<Source> = self.groups.iter().map(|group| source(group, class, own, higher)).collect();
        if let Some(background) = egress.background {
            let load = Load { arrivals: background.arrivals, work: background.work };
            let of = |yes: bool| if yes { vec![load] } else { Vec::new() };
            let (own, higher) = (own(Class::Normal, class), higher(Class::Normal, class));
            sources.push(Source { line: None, own: of(own), higher: of(higher) });
        }
        // Their class's own right is counted without them.
        let leaves = if matches!(by, Service::Curve(_)) { Vec::new() } else { self.leaves(None) };
        if !leaves.is_empty() {
            sources.push(Source { line: None, own: Vec::new(), higher: leaves.iter().map(passes).collect() });
        }
        let before = &mut self.before[class as usize][usize::from(matches!(by, Service::Curve(_)))];
        *before =
            stay(&sources, by, last, before, self.steps).map_err(|why| why_not(why, Where::Link(egress.direction)))?;
        Ok(before.stay)
    }
}

fn source(group: &[Member], class: Class, own: Compare, higher: Compare) -> Source {
    let of = |which: Compare| alike(group.iter().filter(|m| which(m.class, class)).map(|m| m.load).collect());
    let counted: Vec<&Member> = group.iter().filter(|m| own(m.class, class) || higher(m.class, class)).collect();
    Source { line: common_line(&counted), own: of(own), higher: of(higher) }
}

/// Streams with the same arrivals count as one with the work of all: if many subscribers want the same, sums are
/// short.
fn alike(mut loads: Vec<Load>) -> Vec<Load> {
    loads.sort_unstable_by_key(|load| (load.arrivals.period, load.arrivals.jitter));
    loads.dedup_by(|next, first| {
        let same = next.arrivals == first.arrivals;
        first.work = if same { first.work.saturating_add(next.work) } else { first.work };
        same
    });
    loads
}

/// A link brings its packets one after the other: of those that come within a stretch all but the first were sent within it, or
/// within the time of forwarding before.
fn common_line(members: &[&Member]) -> Option<Bucket> {
    let (mut line, mut forwarding) = (Bucket { burst: 0, rate: 0 }, 0);
    for member in members {
        let own = member.line?;
        line = Bucket { burst: line.burst.max(own.burst), rate: line.rate.max(own.rate) };
        forwarding = forwarding.max(member.forwarding);
    }
    Some(Bucket { burst: line.within(forwarding), ..line })
}

/// The service that a class of `htb` is guaranteed, with the largest unit of each class (0: nothing of it comes), as the queues are installed:
/// a bucket and a priority of its own for each class, below a class that is faster than the wire. Linux (`net/sched/sch_htb.c`) sends the highest
/// class whose bucket is not in debt, else the highest, which borrows (`htb_dequeue`); a packet in its own right may leave a debt, a
/// borrowed one costs nothing (`htb_charge_class`). No round robin: that is for classes of one priority.
///
/// In ns on the wire: s is the share of the class, B its bucket, U its largest unit; H, Bⱼ and Uⱼ those of the higher classes, H summed; W the largest
/// of all units. In t ns a class sends at most Bⱼ + Uⱼ + sⱼ·t in its own right (token bucket; Le Boudec & Thiran 2001, §1.2.2).
/// - A class that waits without debt follows one unit that is being sent and higher classes in their own right. So it waits at most
///   D = (W + Σ (Bⱼ + Uⱼ)) ÷ (1 − H): the service left by leaky buckets of higher priority (ibid., §6.2.1).
/// - From one debt to the next it sends s times that time, less the tokens that its full bucket did not take, at most s·D − B.
///   It did not take any only if it was full, so that the class sends at least B. Its rate is s if B ≥ s·D, else s·B ÷ (s·D) = B ÷ D.
/// - When it begins to wait it is at most U in debt, which is paid in U ÷ s. So the latency is D + U ÷ s.
///
/// A queue of a channel's own is one more bucket, with a priority just above that of its class's; those of one class are served in turn. It never borrows, because
/// its rate is its ceiling.
fn htb(egress: &Egress, class: Class, units: &[u64; 4], leaves: &[Leaf]) -> RateLatency {
    let (index, share) = (class as usize, u128::from(egress.shares[class as usize]));
    let (_, waits) = more_urgent(egress, class, units, leaves);
    let rate = part(u128::from(egress.buckets[index].saturating_sub(2)), waits).min(share);
    let latency = waits + part(u128::from(units[index]), share) + 1;
    RateLatency { rate: whole(rate), latency: whole(latency) }
}

/// The service of a queue of a channel's own among such `others`: it is never in debt (`stages::Leaf`), so it has all that more urgent ones leave. Others of its
/// class count as such.
fn left_over(egress: &Egress, leaf: &Leaf, units: &[u64; 4], others: &[Leaf]) -> RateLatency {
    // Its own class has no part in it: that has a lower priority.
    let (left, waits) = more_urgent(egress, leaf.class, units, others);
    RateLatency { rate: whole(left), latency: whole(waits) }
}

/// What the more urgent ones leave of the link to a class that waits without debt, in parts per billion, and D.
fn more_urgent(egress: &Egress, class: Class, units: &[u64; 4], leaves: &[Leaf]) -> (u128, u128) {
    let higher = || (class as usize + 1..4).filter(|class| units[*class] > 0);
    let above = || leaves.iter().filter(|leaf| leaf.class >= class);
    let depth = |bucket: u64, unit: u64| u128::from(bucket) + u128::from(unit) + 2;
    let bursts: u128 = higher().map(|class| depth(egress.buckets[class], units[class])).sum();
    let bursts = bursts + above().map(|leaf| depth(leaf.bucket, leaf.unit)).sum::<u128>();
    let rates = higher().map(|class| egress.shares[class]).chain(above().map(|leaf| leaf.share));
    let left = BILLION.saturating_sub(rates.map(|rate| u128::from(rate) + 1).sum());
    let largest = units.iter().copied().chain(leaves.iter().map(|leaf| leaf.unit)).max().unwrap_or(0);
    (left, part(u128::from(largest) + bursts, left) + 1)
}

fn part(amount: u128, of: u128) -> u128 {
    (amount * BILLION).checked_div(of).unwrap_or(u128::from(u64::MAX))
}

fn whole(amount: u128) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Arrivals;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn streams_that_come_alike_ask_for_as_much_as_one(loads in prop::collection::vec((1..4u64, 0..3u64, 1..9u64), 0..20), span in 0..40u64) {
            let load = |(period, jitter, work)| Load { arrivals: Arrivals { period, jitter }, work };
            let loads: Vec<Load> = loads.into_iter().map(load).collect();
            let asked = |loads: &[Load]| loads.iter().map(|load| load.arrivals.within(span) * load.work).sum::<u64>();
            let merged = alike(loads.clone());
            prop_assert_eq!(asked(&merged), asked(&loads));
            prop_assert!(merged.len() <= 9 && merged.windows(2).all(|two| two[0].arrivals != two[1].arrivals));
        }
    }
}
