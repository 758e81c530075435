//! The search for the least that has to be taken back.
//!
//! A plan takes milliseconds, and what has to be taken may be hundreds of things. So it is searched by the loads of links first, and by what may wait for
//! them, which takes microseconds, for that share of rates and deadlines with which a plan fits, too; and then by plans for less.

use super::Step;
use super::loads::Model;
use crate::planning::{Change, Present, Reduction, Unadmitted, attempted, planned};
use qos::contract::joined::Joined;
use qos::placement::Watch;
use std::time::Duration;

/// Longest search for less to take back: then what was found so far is taken.
const REFINING: Duration = Duration::from_millis(500);
/// Shares of the links' rates, and of deadlines, at which a plan may fit, the largest first.
const SHARES: [f64; 13] = [1.0, 0.99, 0.97, 0.95, 0.92, 0.88, 0.84, 0.8, 0.7, 0.6, 0.5, 0.35, 0.2];

pub(super) struct Search<'a> {
    present: Present<'a>,
    /// What is taken back in any case.
    pub base: Reduction,
    pub steps: Vec<Step>,
    model: Model,
    /// So much of the links' rates and of deadlines may be used, and no plan is made; `None`: a plan has to fit.
    share: Option<f64>,
    watch: &'a mut dyn Watch,
    began: Duration,
}

impl<'a> Search<'a> {
    pub fn new(present: Present<'a>, base: Reduction, whole: &Joined, watch: &'a mut dyn Watch) -> Self {
        let (model, began) = (Model::new(present, whole, &base), watch.elapsed());
        Self { present, base, steps: Vec::new(), model, share: None, watch, began }
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
        let enough = match self.by_loads()? {
            Some(found) => found,
            None => self.first()?,
        };
        let taken = self.minimal(&enough)?;
        self.thin_less(&taken)?;
        self.tried(&taken)
    }

    /// `true` if it fits without what these steps take.
    fn fits(&mut self, taken: &[usize]) -> Result<bool, Unadmitted> {
        if let Some(share) = self.share {
            return Ok(!self.model.crowd(share, taken.iter().map(|step| &self.steps[*step])));
        }
        if self.overload(taken) {
            return Ok(false);
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

    /// The least with which no link is crowded, for the largest share with which a plan fits. `None`: there was no time.
    fn by_loads(&mut self) -> Result<Option<Vec<usize>>, Unadmitted> {
        let whole = self.steps.clone();
        let (mut least, mut most, mut found) = (0, SHARES.len(), None);
        while least < most && !self.is_late() {
            let middle = usize::midpoint(least, most);
            self.steps.clone_from(&whole);
            let taken = self.at_share(SHARES[middle])?;
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

    /// The least with which no link is crowded at this share; all steps, if that is not enough.
    fn at_share(&mut self, share: f64) -> Result<Vec<usize>, Unadmitted> {
        self.share = Some(share);
        let all: Vec<usize> = (0..self.steps.len()).collect();
        let taken = if self.fits(&all)? {
            let taken = self.minimal(&all)?;
            self.thin_less(&taken)?;
            taken
        } else {
            all
        };
        self.share = None;
        Ok(taken)
    }

    /// The first steps that are enough.
    fn first(&mut self) -> Result<Vec<usize>, Unadmitted> {
        let order: Vec<usize> = (0..self.steps.len()).collect();
        let (mut too_few, mut enough) = (0, order.len());
        while enough - too_few > 1 {
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
        self.watch.elapsed().saturating_sub(self.began) > REFINING
    }

    /// Thins each subscriber of these steps no more than needed, the most important ones first.
    fn thin_less(&mut self, taken: &[usize]) -> Result<(), Unadmitted> {
        for step in taken.iter().rev() {
            let Step::Scale { own, most, .. } = self.steps[*step] else { continue };
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
        if let Step::Scale { most, .. } = &mut self.steps[step] {
            *most = scale;
        }
    }
}
