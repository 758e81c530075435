//! The lowest class of each topic with which all deadlines are kept.
//!
//! A link has few bands, so this is Audsley's assignment with few levels (Audsley 2001): all begin at the lowest, and who misses a
//! deadline there goes one up, which only makes it harder for those that stay. So whoever is raised needs it in every assignment
//! that keeps all deadlines, and the one found is the least of them. (A raised stream also becomes less bursty for the
//! links behind; where that lets another one down again, a last pass finds it.)

use crate::Class;
use crate::analysis::end_to_end::{Analysis, analyse};
use crate::analysis::stages::{Place, Stages, Step};
use crate::analysis::steps::Steps;
use crate::network::Network;
use crate::system::{Scheduler, System};

use super::threads;

/// Topics up to this number are tried one class lower at the end.
const LOWERED: usize = 32;

/// Who goes first, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The class of each topic: DSCP and socket priority follow from it.
    pub classes: Vec<Class>,
    /// The stages with the ranks of threads ([`threads::fifo_priority`]), of the admitted subscribers.
    pub stages: Stages,
    /// Their bounds.
    pub analysis: Analysis,
    /// Subscribers (indices) that gave way, in that order.
    pub gave_way: Vec<usize>,
    /// Every admitted pair with a deadline keeps it.
    pub fits: bool,
}

/// Assigns classes and ranks. Topics with a class of their own keep it; the others begin with normal, what nobody said anything about; and
/// only if that does not fit, those without any deadline go to low. Subscribers give way only with `give_way`: of those who
/// share a link or processor with one that is late, and that one, the least important, of these the last of the file. After
/// `steps` the state reached is the answer.
pub fn assign(system: &System, network: &Network, places: &[Place], give_way: bool, steps: &Steps) -> Assignment {
    let mut search = Search { system, network, places, gave_way: Vec::new(), steps };
    let mut bulk = Class::Normal;
    loop {
        let found = search.raise(search.start(bulk));
        if found.fits || steps.left() == 0 {
            return search.lower(found, bulk);
        }
        if bulk == Class::Normal {
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
    /// Classes to begin with; topics without any deadline have `bulk`.
    fn start(&self, bulk: Class) -> Vec<Class> {
        let timed = |topic: usize| {
            let mut wanted = self.system.subscribers.iter().enumerate().filter(|(i, _)| !self.gave_way.contains(i));
            wanted.any(|(_, subscriber)| subscriber.topic == topic && subscriber.deadline.is_some())
        };
        let class = |topic: usize| if timed(topic) { Class::Normal } else { bulk };
        let topics = self.system.topics.iter().enumerate();
        topics.map(|(index, topic)| topic.class.unwrap_or_else(|| class(index))).collect()
    }

    fn analysed(&self, classes: Vec<Class>) -> Assignment {
        let admitted = |subscriber: usize| !self.gave_way.contains(&subscriber);
        let mut stages = Stages::admitting(self.system, self.network, self.places, &classes, &admitted);
        let analysis = ranked(self.system, &mut stages, self.steps);
        let fits = late(self.system, &stages, &analysis).is_empty();
        Assignment { classes, stages, analysis, gave_way: self.gave_way.clone(), fits }
    }

    /// Raises who is late, one class at a time, until nobody is or nothing can be raised.
    fn raise(&self, mut classes: Vec<Class>) -> Assignment {
        loop {
            let found = self.analysed(classes.clone());
            let mut raised = false;
            for pair in late(self.system, &found.stages, &found.analysis) {
                let topic = found.stages.streams[found.stages.pairs[pair].stream].topic;
                let free = self.system.topics[topic].class.is_none() && found.classes[topic] == classes[topic];
                if free && told_apart(&found.stages, pair) {
                    let next = Class::ALL.into_iter().find(|class| *class > classes[topic]);
                    raised |= next.is_some();
                    classes[topic] = next.unwrap_or(classes[topic]);
                }
            }
            if !raised || self.steps.left() == 0 {
                return found;
            }
        }
    }

    /// Tries every raised topic one class lower, as long as all fits.
    fn lower(&self, mut found: Assignment, bulk: Class) -> Assignment {
        let start = self.start(bulk);
        if !found.fits || start.len() > LOWERED {
            return found;
        }
        for (topic, least) in start.into_iter().enumerate() {
            while let Some(lower) = Class::ALL.into_iter().rev().find(|class| *class < found.classes[topic]) {
                if self.steps.left() == 0 || found.classes[topic] <= least {
                    break;
                }
                let mut classes = found.classes.clone();
                classes[topic] = lower;
                match self.analysed(classes) {
                    fits if fits.fits => found = fits,
                    _ => break,
                }
            }
        }
        found
    }

    /// The least important of those who are late, or in the way of one who is.
    fn least(&self, found: &Assignment) -> Option<usize> {
        let stages = &found.stages;
        let mut late_at = vec![false; stages.outlets.len() + stages.processors.len()];
        let of = |stage: usize| match stages.stages[stage].step {
            Step::Cross { queue, .. } => queue,
            Step::Compute { processor, .. } => stages.outlets.len() + processor,
        };
        let late = late(self.system, stages, &found.analysis);
        late.iter().for_each(|pair| stages.way(&stages.pairs[*pair]).for_each(|stage| late_at[of(stage)] = true));
        let in_the_way = |(index, pair): &(usize, &crate::analysis::stages::Pair)| {
            late.contains(index) || stages.way(pair).any(|stage| late_at[of(stage)])
        };
        let concerned = stages.pairs.iter().enumerate().filter(in_the_way).map(|(_, pair)| pair.subscriber);
        concerned.min_by_key(|who| (self.system.subscribers[*who].importance, std::cmp::Reverse(*who)))
    }
}

/// Bounds with threads ranked by deadline, or, where that is too late, anew ([`threads::rank`]).
pub fn ranked(system: &System, stages: &mut Stages, steps: &Steps) -> Analysis {
    let analysis = analyse(system, stages, steps);
    if late(system, stages, &analysis).is_empty() || !threads::rank(system, stages, &analysis, steps) {
        return analysis;
    }
    analyse(system, stages, steps)
}

/// Pairs that miss their deadline, or whose delay nothing bounds although they have one.
fn late(system: &System, stages: &Stages, analysis: &Analysis) -> Vec<usize> {
    let is_late = |pair: &usize| {
        let deadline = system.subscribers[stages.pairs[*pair].subscriber].deadline;
        deadline.is_some_and(|deadline| analysis.pairs[*pair].ns.map_or(true, |ns| ns > deadline))
    };
    (0..stages.pairs.len()).filter(is_late).collect()
}

/// A class makes a difference somewhere on a pair's way.
fn told_apart(stages: &Stages, pair: usize) -> bool {
    stages.way(&stages.pairs[pair]).any(|stage| match stages.stages[stage].step {
        Step::Cross { queue, .. } => stages.outlets[queue].scheduler != Scheduler::Fifo,
        Step::Compute { .. } => false,
    })
}
