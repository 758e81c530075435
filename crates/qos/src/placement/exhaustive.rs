//! The exhaustive algorithm of Appendix A (P-50…P-53), and the search through all combinations of places that other
//! methods are checked against.
//!
//! As printed, the algorithm calls a path infeasible if `Δ_i^r > δ_ij` and never sets TotalCost_j to 0 (E-P1). Here a place
//! is infeasible if `δ_ij > Δ_i^r`.

use super::Cost;
use std::collections::HashMap;

use super::layout::Layout;
use super::problem::{Choice, Group, Problem};

/// One line of the algorithm's table.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The node (index).
    pub node: usize,
    /// δ of each of the group's subscribers, ns.
    pub delays: Vec<f64>,
    /// TotalCost of the node.
    pub cost: Cost,
    /// A proxy may be there, and every subscriber is served in time.
    pub fits: bool,
}

/// The table for one group: every node with a way to all, in the order of the file.
pub(super) fn table(problem: &Problem, group: &Group) -> Vec<Candidate> {
    let line = |node: usize| {
        let delays = problem.delays(group, node)?;
        let in_time = group.subscribers.iter().zip(&delays).all(|(who, delay)| problem.in_time(*who, *delay));
        let cost = Layout::default().added(problem, &problem.choice(group, node)).cost;
        Some(Candidate { node, delays, cost, fits: in_time && problem.allowed(group, node) })
    };
    (0..problem.system.nodes.len()).filter_map(line).collect()
}

/// The places of each group that fit it alone.
pub(super) fn choices(problem: &Problem) -> Vec<Vec<Choice>> {
    problem.groups.iter().map(|group| alone(problem, group)).collect()
}

fn alone(problem: &Problem, group: &Group) -> Vec<Choice> {
    let choices = problem.places(group).into_iter().map(|node| problem.choice(group, node));
    choices.filter(|choice| fits_alone(problem, choice)).collect()
}

/// `true` if a choice alone keeps all limits.
pub(super) fn fits_alone(problem: &Problem, choice: &Choice) -> bool {
    let mut loads: HashMap<usize, f64> = HashMap::new();
    for (limit, amount) in Layout::default().added(problem, choice).uses {
        *loads.entry(limit).or_insert(0.0) += amount;
    }
    loads.into_iter().all(|(limit, load)| problem.keeps(limit, load))
}

/// Most combinations for a search through all: some milliseconds.
pub(super) const FEW: f64 = 2000.0;

/// Number of combinations.
pub(super) fn combinations(choices: &[Vec<Choice>]) -> f64 {
    choices.iter().map(|places| places.len() as f64).product()
}

/// The best of all combinations; of equal ones, that whose nodes stand first in the file. `None`: none keeps all limits.
pub(super) fn best(problem: &Problem, choices: &[Vec<Choice>]) -> Option<Layout> {
    fn go(problem: &Problem, choices: &[Vec<Choice>], layout: &mut Layout, found: &mut Option<(f64, Layout)>) {
        let group = layout.chosen.iter().take_while(|chosen| chosen.is_some()).count();
        let value = layout.value(problem);
        if found.as_ref().is_some_and(|(best, _)| value >= best - best.abs() * 1e-12) || !layout.keeps_all(problem) {
            return;
        }
        let Some(places) = choices.get(group) else {
            *found = Some((value, layout.clone()));
            return;
        };
        for choice in places {
            layout.put(problem, group, choice.clone());
            go(problem, choices, layout, found);
            layout.take(problem, group);
        }
    }
    let mut found = None;
    go(problem, choices, &mut Layout::new(problem), &mut found);
    found.map(|(_, layout)| layout)
}
