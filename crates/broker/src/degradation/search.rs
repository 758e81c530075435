//! The search for the least that has to be taken back.
//!
//! Whether what is left fits takes the planner milliseconds to tell, and what has to be taken may be hundreds of things. So it is searched by the loads
//! of links first, and by what may wait for them, which takes microseconds, for that share of rates and deadlines with which it fits, too; and then by
//! the planner for less.
//!
//! Loads of a smaller share ask for more than a plan needs, and what is most important is given back first. So the kinds of steps that are needed at all are found
//! before: by the planner, with all steps of the earlier kinds taken.

use super::Step;
use super::loads::Model;
use crate::planning::{Change, Present, Reduction, Unadmitted, attempted, on, planned};
use qos::contract::joined::Joined;
use qos::contract::pipe;
use qos::placement::Watch;
use qos::plan;
use qos::system::System;
use std::time::Duration;

/// Shares of the links' rates, and of deadlines, at which a plan may fit, the largest first.
const SHARES: [f64; 13] = [1.0, 0.99, 0.97, 0.95, 0.92, 0.88, 0.84, 0.8, 0.7, 0.6, 0.5, 0.35, 0.2];

pub(super) struct Search<'a> {
    present: Present<'a>,
    /// What is taken back in any case.
    pub base: Reduction,
    pub steps: Vec<Step>,
    model: Model,
    /// Contract and all sessions, on the links as they are.
    whole: Joined,
    /// Subscribers (indices in order) that are left out in any case.
    gone: Vec<usize>,
    /// Plans decide, as they will be made.
    pub by_plans: bool,
    watch: &'a mut dyn Watch,
    /// The time at which what was found so far is taken.
    until: Duration,
    /// The time at which all kinds of steps count as needed.
    half: Duration,
    /// One of them was before the end of its search.
    hurried: bool,
    unsure: bool,
}

impl<'a> Search<'a> {
    pub fn new(
        present: Present<'a>,
        base: Reduction,
        whole: &Joined,
        time: Duration,
        watch: &'a mut dyn Watch,
    ) -> Self {
        let (model, began) = (Model::new(present, whole, &base), watch.elapsed());
        let (until, half) = (began + time, began + time / 2);
        let mut whole = whole.clone();
        let unfit = on(&mut whole, present.links);
        let mut gone = whole.unreachable();
        let subscribers = whole.contract.system.subscribers.iter().enumerate();
        gone.extend(subscribers.filter(|(_, one)| unfit.contains(&one.name)).map(|(index, _)| index));
        let (steps, by_plans, hurried, unsure) = (Vec::new(), false, false, false);
        Self { present, base, steps, model, whole, gone, by_plans, watch, until, half, hurried, unsure }
    }

    /// The plan without what these steps (indices) take. What needs a session that does not run is suspended besides.
    pub fn tried(&mut self, taken: &[usize]) -> Result<Change, Unadmitted> {
        self.planned(taken, attempted)
    }

    fn planned(
        &mut self,
        taken: &[usize],
        plan: impl Fn(Present<'_>, &mut dyn Watch) -> Result<Change, Unadmitted>,
    ) -> Result<Change, Unadmitted> {
        let mut reduction = self.base.clone();
        taken.iter().for_each(|step| self.steps[*step].take(&mut reduction));
        loop {
            let present = Present { reduction: &reduction, ..self.present };
            match plan(present, self.watch) {
                Err(Unadmitted::Needed(name, _)) if !reduction.suspended.contains_key(&name) => {
                    reduction.suspended.insert(name, "it needs a session that does not run".to_owned());
                }
                found => return found,
            }
        }
    }

    /// The plan without anything that can be taken; with reasons, if there is none.
    pub fn all(&mut self) -> Result<Change, Unadmitted> {
        let order: Vec<usize> = (0..self.steps.len()).collect();
        self.planned(&order, |present, watch| planned(present, None, watch))
    }

    /// The plan with the least taken with which there is one. All steps together have to be enough.
    pub fn least(&mut self) -> Result<Change, Unadmitted> {
        let whole = self.steps.clone();
        self.confine()?;
        let taken = self.searched()?;
        let found = match self.tried(&taken) {
            // The plan has to be another one than was thought.
            Err(Unadmitted::Unfit(_)) => {
                (self.steps, self.by_plans) = (whole, true);
                let enough = self.first()?;
                self.tried(&enough)
            }
            found => found,
        };
        found.map(|change| Change { hurried: self.hurried || self.unsure, ..change })
    }

    /// Leaves out the steps of kinds that are not needed: all of the earlier ones are enough.
    fn confine(&mut self) -> Result<(), Unadmitted> {
        let order: Vec<usize> = (0..self.steps.len()).collect();
        for end in self.ends() {
            if self.overload(&order[..end]) {
                continue;
            }
            self.unsure = self.watch.elapsed() > self.half;
            if self.unsure {
                break;
            }
            if self.fits(&order[..end])? {
                self.steps.truncate(end);
                break;
            }
        }
        Ok(())
    }

    /// The numbers of first steps that are all of some kinds, without that of all steps.
    fn ends(&self) -> Vec<usize> {
        let is_end = |at: &usize| self.steps[at - 1].order() != self.steps[*at].order();
        (1..self.steps.len()).filter(is_end).collect()
    }

    fn searched(&mut self) -> Result<Vec<usize>, Unadmitted> {
        let enough = match self.by_loads()? {
            Some(found) => found,
            None => self.first()?,
        };
        let taken = self.minimal(&enough)?;
        self.thin_less(&taken)?;
        Ok(taken)
    }

    /// What is planned without what these steps take.
    fn left(&self, taken: &[usize]) -> System {
        let wanted = self.model.with(taken.iter().map(|step| &self.steps[*step]));
        let mut left = self.whole.clone();
        let System { subscribers, topics, .. } = &mut left.contract.system;
        for (one, scale) in subscribers.iter_mut().zip(&wanted.scale).filter(|(one, _)| !topics[one.topic].pipe) {
            one.scale = one.scale.max(*scale);
        }
        let shrunk = taken.iter().filter_map(|step| match &self.steps[*step] {
            Step::Shrink { pipe, index, shape, .. } => Some((*pipe, shape.at(wanted.scale[*index]))),
            _ => None,
        });
        let sizes: Vec<(usize, u64, u64)> = shrunk.map(|(pipe, size)| (pipe, size.rate, size.burst)).collect();
        if !sizes.is_empty() {
            pipe::resize(&mut left.contract, &sizes);
        }
        let mut gone: Vec<usize> =
            wanted.gone.iter().enumerate().filter(|(_, gone)| **gone).map(|(at, _)| at).collect();
        gone.extend(&self.gone);
        gone.sort_unstable();
        gone.dedup();
        left.leave_out(&gone);
        left.contract.system
    }

    /// `true` if it fits without what these steps take.
    pub fn fits(&mut self, taken: &[usize]) -> Result<bool, Unadmitted> {
        if self.overload(taken) {
            return Ok(false);
        }
        if !self.by_plans {
            return Ok(plan::fits(&self.left(taken), self.watch));
        }
        match self.tried(taken) {
            Ok(_) => Ok(true),
            Err(Unadmitted::Unfit(_)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// `true` if a link has to carry more than it can without what these steps take: then no plan fits.
    pub fn overload(&self, taken: &[usize]) -> bool {
        self.model.exceed(taken.iter().map(|step| &self.steps[*step]))
    }

    /// The least with which no link is crowded, for the largest share with which it fits. If there is no time, for a smaller one. `None`: it fits with
    /// none of them.
    fn by_loads(&mut self) -> Result<Option<Vec<usize>>, Unadmitted> {
        let whole = self.steps.clone();
        let (mut least, mut most, mut found) = (0, SHARES.len(), None);
        while least < most && (found.is_none() || !self.is_late()) {
            let middle = usize::midpoint(least, most);
            self.steps.clone_from(&whole);
            let taken = self.model.least(SHARES[middle], &mut self.steps);
            if self.fits(&taken)? {
                (most, found) = (middle, Some((taken, self.steps.clone())));
            } else {
                least = middle + 1;
            }
        }
        self.steps = whole;
        Ok(found.map(|(taken, steps)| {
            self.steps = steps;
            taken
        }))
    }

    /// The first steps that are enough; if there is no time, all steps of the kinds that are needed.
    fn first(&mut self) -> Result<Vec<usize>, Unadmitted> {
        let order: Vec<usize> = (0..self.steps.len()).collect();
        let (mut too_few, mut enough) = (0, order.len());
        // Kinds first, at most a plan for each: what is taken of a pipe in a hurry does not come back by itself.
        for end in self.ends() {
            if self.fits(&order[..end])? {
                enough = end;
                break;
            }
            too_few = end;
        }
        // After a whole search, half of its time.
        let last = self.until.max(self.watch.elapsed() + (self.until - self.half));
        while enough - too_few > 1 {
            if self.watch.elapsed() > last {
                self.hurried = true;
                break;
            }
            let middle = usize::midpoint(too_few, enough);
            if self.fits(&order[..middle])? { enough = middle } else { too_few = middle }
        }
        Ok(order[..enough].to_vec())
    }

    /// Of these steps, which are enough, those without any of which it would not fit, the least important ones rather than others
    /// (QuickXplain, Junker 2004).
    fn minimal(&mut self, order: &[usize]) -> Result<Vec<usize>, Unadmitted> {
        let mut taken = self.explain(&[], false, order)?;
        taken.sort_unstable();
        Ok(taken)
    }

    fn explain(&mut self, beside: &[usize], grown: bool, steps: &[usize]) -> Result<Vec<usize>, Unadmitted> {
        if self.is_late() {
            return Ok(steps.to_vec());
        }
        if grown && self.fits(beside)? {
            return Ok(Vec::new());
        }
        if steps.len() <= 1 {
            return Ok(steps.to_vec());
        }
        let (first, second) = steps.split_at(steps.len() / 2);
        let mut later = self.explain(&[beside, first].concat(), true, second)?;
        let mut earlier = self.explain(&[beside, &later].concat(), !later.is_empty(), first)?;
        earlier.append(&mut later);
        Ok(earlier)
    }

    fn is_late(&mut self) -> bool {
        self.hurried |= self.watch.elapsed() > self.until;
        self.hurried
    }

    /// Thins each subscriber of these steps no more than needed, the most important ones first.
    fn thin_less(&mut self, taken: &[usize]) -> Result<(), Unadmitted> {
        for step in taken.iter().rev() {
            let (Step::Scale { own, most, .. } | Step::Shrink { own, most, .. }) = self.steps[*step] else { continue };
            let (mut too_little, mut enough) = (own, most);
            while enough - too_little > 1 && !self.is_late() {
                let middle = u32::midpoint(too_little, enough);
                self.thin(*step, middle);
                if self.fits(taken)? { enough = middle } else { too_little = middle }
            }
            self.thin(*step, enough);
        }
        Ok(())
    }

    fn thin(&mut self, step: usize, scale: u32) {
        if let Step::Scale { most, .. } | Step::Shrink { most, .. } = &mut self.steps[step] {
            *most = scale;
        }
    }
}
