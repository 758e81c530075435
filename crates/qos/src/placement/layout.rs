//! The current placement: each group's place, the loads on the limits, and the cost of all.

use std::collections::HashMap;

use super::Cost;
use super::problem::{Choice, Copy, Problem};

/// Groups in their places. A stream that several share is counted once.
#[derive(Clone, Default)]
pub(super) struct Layout {
    pub chosen: Vec<Option<Choice>>,
    pub loads: Vec<f64>,
    pub cost: Cost,
    copies: HashMap<Copy, u32>,
}

impl Layout {
    pub(super) fn new(problem: &Problem) -> Self {
        let chosen = vec![None; problem.groups.len()];
        Self { chosen, loads: vec![0.0; problem.capacity.len()], cost: Cost::default(), copies: HashMap::new() }
    }

    /// All groups in these places.
    pub(super) fn of(problem: &Problem, nodes: &[usize]) -> Self {
        let mut layout = Self::new(problem);
        for (group, node) in nodes.iter().enumerate() {
            layout.put(problem, group, problem.choice(&problem.groups[group], *node));
        }
        layout
    }

    pub(super) fn put(&mut self, problem: &Problem, group: usize, choice: Choice) {
        self.count(&choice, 1.0);
        for copy in &choice.shared {
            let users = self.copies.entry(*copy).or_insert(0);
            *users += 1;
            if *users == 1 {
                self.count(&problem.copy(copy), 1.0);
            }
        }
        self.chosen[group] = Some(choice);
    }

    pub(super) fn take(&mut self, problem: &Problem, group: usize) -> Option<Choice> {
        let choice = self.chosen[group].take()?;
        self.count(&choice, -1.0);
        for copy in &choice.shared {
            if let Some(users) = self.copies.get_mut(copy) {
                *users -= 1;
                if *users == 0 {
                    self.copies.remove(copy);
                    self.count(&problem.copy(copy), -1.0);
                }
            }
        }
        Some(choice)
    }

    fn count(&mut self, choice: &Choice, sign: f64) {
        self.cost.add(&choice.cost, sign);
        for (limit, amount) in &choice.uses {
            self.loads[*limit] += sign * amount;
        }
    }

    /// A choice with its cost of the streams that it would share with the placed ones.
    pub(super) fn added(&self, problem: &Problem, choice: &Choice) -> Choice {
        let mut added = Choice { shared: Vec::new(), ..choice.clone() };
        for copy in choice.shared.iter().filter(|copy| !self.copies.contains_key(copy)) {
            let copy = problem.copy(copy);
            added.cost.add(&copy.cost, 1.0);
            added.uses.extend(copy.uses);
        }
        added
    }

    pub(super) fn value(&self, problem: &Problem) -> f64 {
        problem.value(&self.cost)
    }

    /// The limits that carry more than there is.
    pub(super) fn exceeded<'a>(&'a self, problem: &'a Problem) -> impl Iterator<Item = usize> + 'a {
        (0..self.loads.len()).filter(|limit| !problem.keeps(*limit, self.loads[*limit]))
    }

    pub(super) fn keeps_all(&self, problem: &Problem) -> bool {
        self.exceeded(problem).next().is_none()
    }
}
