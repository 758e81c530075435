//! Placements that keep the limits, found by moving one group at a time.
//!
//! A group moves to the cheapest place, with a fine for every limit that is exceeded. Fines grow while a limit stays exceeded and
//! shrink when all are kept. The search therefore crosses the border of the feasible placements again and again, where the best
//! ones are.

use super::layout::Layout;
use super::problem::{Choice, Problem};

/// Growth of fines for an exceeded limit.
const GROW: f64 = 1.1;
/// Additional growth where a limit is exceeded most. At one pace for all, the fines of limits that stay exceeded keep their proportions and the
/// search its place: with 1,000 nodes, 10,000 subscribers and merged proxies no placement was found in 30 s, and with this growth one in 7 s.
const STEEP: f64 = 0.2;
/// Highest fine as a multiple of the value. Above it all shrink, in proportion.
const HIGHEST: f64 = 1e12;
/// Shrinking of fines when no limit is exceeded.
const SHRINK: f64 = 0.7;

/// A search among a few places of each group.
pub(super) struct Search<'a> {
    problem: &'a Problem<'a>,
    pub candidates: Vec<Vec<Choice>>,
    layout: Layout,
    /// Value that a limit costs which is exceeded by as much as there is of it.
    fines: Vec<f64>,
    order: Vec<usize>,
    random: u64,
    /// The best that keeps all limits.
    pub best: Option<(f64, Layout)>,
}

impl<'a> Search<'a> {
    /// Starts from the first candidates; fines start at these.
    pub(super) fn new(problem: &'a Problem<'a>, candidates: Vec<Vec<Choice>>, fines: Vec<f64>) -> Self {
        let mut layout = Layout::new(problem);
        for (group, places) in candidates.iter().enumerate() {
            if let Some(first) = places.first() {
                layout.put(problem, group, first.clone());
            }
        }
        let order = (0..candidates.len()).collect();
        Self { problem, candidates, layout, fines, order, random: 0x9E37_79B9_7F4A_7C15, best: None }
    }

    /// Other candidates; the present choices stay.
    pub(super) fn consider(&mut self, candidates: Vec<Vec<Choice>>, fines: &[f64]) {
        self.candidates = candidates;
        self.fines.iter_mut().zip(fines).for_each(|(fine, least)| *fine = fine.max(*least));
    }

    /// Moves every group once, then changes the fines. Returns whether a better placement was found.
    pub(super) fn sweep(&mut self) -> bool {
        self.shuffle();
        for at in 0..self.order.len() {
            self.settle(self.order[at]);
        }
        let exceeded: Vec<usize> = self.layout.exceeded(self.problem).collect();
        if exceeded.is_empty() {
            self.fines.iter_mut().for_each(|fine| *fine *= SHRINK);
            return self.record();
        }
        self.raise(&exceeded);
        false
    }

    /// Raises the fines of exceeded limits.
    fn raise(&mut self, exceeded: &[usize]) {
        let value = self.problem.value(&self.layout.cost).abs();
        let over: Vec<f64> = exceeded.iter().map(|limit| self.over(*limit, self.layout.loads[*limit])).collect();
        let most = over.iter().copied().fold(0.0, f64::max);
        for (limit, over) in exceeded.iter().zip(over) {
            self.fines[*limit] = (self.fines[*limit] * (GROW + STEEP * over / most)).max(value * 1e-4);
        }
        if exceeded.iter().any(|limit| self.fines[*limit] > value * HIGHEST) {
            self.fines.iter_mut().for_each(|fine| *fine /= HIGHEST.sqrt());
        }
    }

    /// Prices with which groups keep off exceeded limits: their fines.
    pub(super) fn deter(&self, prices: &mut [f64]) {
        for limit in self.layout.exceeded(self.problem) {
            prices[limit] = prices[limit].max(self.fines[limit] / self.problem.capacity[limit].max(1.0));
        }
    }

    /// The groups that use an exceeded limit.
    pub(super) fn crossing(&self) -> Vec<bool> {
        let exceeded = |(limit, _): &(usize, f64)| !self.problem.keeps(*limit, self.layout.loads[*limit]);
        let crosses = |choice: &Choice| {
            choice.uses.iter().any(exceeded)
                || choice.shared.iter().any(|copy| self.problem.copy(copy).uses.iter().any(exceeded))
        };
        self.layout.chosen.iter().map(|choice| choice.as_ref().is_some_and(crosses)).collect()
    }

    fn record(&mut self) -> bool {
        let value = self.layout.value(self.problem);
        let better = self.best.as_ref().is_none_or(|(best, _)| value < best - best.abs() * 1e-12);
        if better {
            // Counted again: sums and differences leave rounding errors.
            let mut again = Layout::new(self.problem);
            for (group, choice) in self.layout.chosen.iter().enumerate() {
                choice.iter().for_each(|choice| again.put(self.problem, group, choice.clone()));
            }
            if again.keeps_all(self.problem) {
                self.best = Some((again.value(self.problem), again.clone()));
            }
            self.layout = again;
        }
        better
    }

    /// Another order each time (xorshift; the same in every run).
    fn shuffle(&mut self) {
        for at in (1..self.order.len()).rev() {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.order.swap(at, (self.random % (at as u64 + 1)) as usize);
        }
    }

    /// Removes a group and puts it at its cheapest place now.
    fn settle(&mut self, group: usize) {
        let Some(was) = self.layout.take(self.problem, group) else { return };
        let mut best = (self.charge(&was, f64::INFINITY), None);
        for (at, choice) in self.candidates[group].iter().enumerate() {
            let charge = self.charge(choice, best.0);
            if charge < best.0 - best.0.abs() * 1e-12 {
                best = (charge, Some(at));
            }
        }
        let choice = best.1.map_or(was, |at| self.candidates[group][at].clone());
        self.layout.put(self.problem, group, choice);
    }

    /// Cost of a choice with its fines; more than `enough` need not be exact.
    fn charge(&self, choice: &Choice, enough: f64) -> f64 {
        if !choice.shared.is_empty() {
            let added = self.layout.added(self.problem, choice);
            return self.charge(&added, enough);
        }
        let mut charge = self.problem.value(&choice.cost);
        for (limit, amount) in &choice.uses {
            charge += self.fine(*limit, *amount);
            if charge > enough {
                break;
            }
        }
        charge
    }

    fn fine(&self, limit: usize, amount: f64) -> f64 {
        let load = self.layout.loads[limit];
        if load + amount <= self.problem.capacity[limit] {
            return 0.0;
        }
        self.fines[limit] * (self.over(limit, load + amount) - self.over(limit, load))
    }

    /// The part by which a load exceeds a limit.
    fn over(&self, limit: usize, load: f64) -> f64 {
        let has = self.problem.capacity[limit];
        (load - has).max(0.0) / has.max(1.0)
    }
}
