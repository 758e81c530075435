//! Exact methods for small systems: search through all places (Appendix A, P-50…P-53), and mixed-integer programming (P-23).
//!
//! As printed, the algorithm of Appendix A calls a path infeasible if `Δ_i^r > δ_ij` and never sets TotalCost_j to 0 (E-P1).
//! Here a place is infeasible if `δ_ij > Δ_i^r`. The search through all combinations of places is what other methods are
//! checked against.
//!
//! The mixed-integer program has one binary for each place of each group, and one variable for each stream that groups share.
//! A link's load adds up over all that crosses it (P-61, P-64). A group's binaries add up to 1, so only existing places are
//! coded: the errors that the paper's products of X, Y and Z let through (E-P3…E-P5) cannot be written here.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use good_lp::solvers::{ResolutionError, SolutionStatus};
use good_lp::{
    Constraint, Expression, ProblemVariables, Solution, SolverModel, Variable, WithInitialSolution, WithMipGap,
    WithTimeLimit, constraint, variable,
};

use super::Cost;
use super::layout::Layout;
use super::problem::{Choice, Copy, Group, Problem};

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

/// The solver's result.
pub(super) enum Found {
    /// A placement; proved best within the asked gap, or the best when time was up.
    Placed { layout: Layout, proved: bool },
    /// No placement exists.
    Infeasible,
    /// Time was up, or the solver gave up, before it found one.
    Nothing,
}

/// The name of the solver that is built in.
pub(super) const SOLVER: &str = if cfg!(feature = "highs") { "highs" } else { "microlp" };

/// The mixed-integer program: binaries of each group's places, and a variable for each shared copy.
struct Model {
    variables: ProblemVariables,
    places: Vec<Vec<Variable>>,
    copies: BTreeMap<Copy, Variable>,
}

/// Solves by mixed-integer programming for the objective, or for the least use of one limit.
pub(super) fn solve(
    problem: &Problem,
    choices: &[Vec<Choice>],
    known: Option<&Layout>,
    least: Option<usize>,
    time: Duration,
) -> Found {
    if choices.iter().any(Vec::is_empty) {
        return Found::Infeasible;
    }
    let model = Model::new(choices);
    let (objective, rows) = model.sums(problem, choices, least);
    let rows = model.rows(problem, choices, rows);
    let Model { variables, places, copies } = model;
    #[cfg(not(feature = "highs"))]
    let solver = good_lp::microlp;
    #[cfg(feature = "highs")]
    let solver = good_lp::highs;
    let mut solver = variables.minimise(in_parts(objective)).using(solver);
    rows.into_iter().for_each(|row| _ = solver.add_constraint(row));
    if let Some(known) = known {
        solver = solver.with_initial_solution(known_values(choices, &places, &copies, known));
    }
    let Ok(solver) = solver.with_time_limit(time.as_secs_f64().clamp(0.001, 1e6)).with_mip_gap(0.0) else {
        return Found::Nothing;
    };
    match solver.solve() {
        Ok(solution) => read(problem, choices, &places, &solution),
        Err(ResolutionError::Infeasible) => Found::Infeasible,
        Err(_) => Found::Nothing,
    }
}

/// The objective in parts of its largest finite value.
fn in_parts(objective: Terms) -> Expression {
    let finite = objective.iter().map(|(_, value)| *value).filter(|value| value.is_finite());
    let unit = finite.fold(f64::MIN_POSITIVE, f64::max);
    objective.into_iter().map(|(variable, value)| variable * part(value, unit)).sum()
}

/// An amount as a part of the largest allowed one: numbers near 1 in any unit. Excessive amounts are cut, because the solver fails on
/// numbers that are too far apart.
fn part(amount: f64, of: f64) -> f64 {
    match amount / of.max(f64::MIN_POSITIVE) {
        part if part < 1e-12 => 0.0,
        part => part.min(2.0),
    }
}

fn known_values(
    choices: &[Vec<Choice>],
    places: &[Vec<Variable>],
    copies: &BTreeMap<Copy, Variable>,
    known: &Layout,
) -> Vec<(Variable, f64)> {
    let mut values: HashMap<Variable, f64> = copies.values().map(|variable| (*variable, 0.0)).collect();
    for ((group, binaries), chosen) in choices.iter().zip(places).zip(&known.chosen) {
        for (choice, binary) in group.iter().zip(binaries) {
            let here = chosen.as_ref().is_some_and(|chosen| chosen.node == choice.node);
            values.insert(*binary, f64::from(u8::from(here)));
            let carried = choice.shared.iter().filter(|_| here);
            carried.for_each(|copy| _ = values.insert(copies[copy], 1.0));
        }
    }
    values.into_iter().collect()
}

/// The placement that the solver's values stand for, counted by ourselves: a solver's rounding is not believed.
fn read(problem: &Problem, choices: &[Vec<Choice>], places: &[Vec<Variable>], solution: &impl Solution) -> Found {
    let mut layout = Layout::new(problem);
    for (index, (group, binaries)) in choices.iter().zip(places).enumerate() {
        let chosen = group.iter().zip(binaries).max_by(|a, b| solution.value(*a.1).total_cmp(&solution.value(*b.1)));
        match chosen {
            Some((choice, _)) => layout.put(problem, index, choice.clone()),
            None => return Found::Nothing,
        }
    }
    if !layout.keeps_all(problem) {
        return Found::Nothing;
    }
    let proved = matches!(solution.status(), SolutionStatus::Optimal | SolutionStatus::GapLimit);
    Found::Placed { layout, proved }
}

type Terms = Vec<(Variable, f64)>;

impl Model {
    fn new(choices: &[Vec<Choice>]) -> Self {
        let mut variables = ProblemVariables::new();
        let places = choices.iter().map(|group| variables.add_vector(variable().binary(), group.len())).collect();
        let mut copies = BTreeMap::new();
        for copy in choices.iter().flatten().flat_map(|choice| &choice.shared) {
            copies.entry(*copy).or_insert_with(|| variables.add(variable().min(0.0).max(1.0)));
        }
        Self { variables, places, copies }
    }

    /// One place for each group, at most the capacity of each limit, and a copy wherever one of its users is.
    fn rows(&self, problem: &Problem, choices: &[Vec<Choice>], limits: Vec<(usize, Terms)>) -> Vec<Constraint> {
        let mut rows: Vec<Constraint> =
            self.places.iter().map(|group| constraint!(group.iter().sum::<Expression>() == 1.0)).collect();
        rows.extend(limits.into_iter().map(|(limit, row)| {
            let capacity = problem.capacity[limit];
            let sum: Expression = row.into_iter().map(|(variable, amount)| variable * part(amount, capacity)).sum();
            constraint!(sum <= 1.0)
        }));
        for (copy, carried) in &self.copies {
            for (group, binaries) in choices.iter().zip(&self.places) {
                let users = group.iter().zip(binaries).filter(|(choice, _)| choice.shared.binary_search(copy).is_ok());
                let users: Vec<Variable> = users.map(|(_, binary)| *binary).collect();
                rows.extend((!users.is_empty()).then(|| constraint!(users.iter().sum::<Expression>() <= *carried)));
            }
        }
        rows
    }

    /// The objective, and the limits that could be exceeded.
    fn sums(&self, problem: &Problem, choices: &[Vec<Choice>], least: Option<usize>) -> (Terms, Vec<(usize, Terms)>) {
        let mut objective = Terms::new();
        let mut rows: BTreeMap<usize, Terms> = BTreeMap::new();
        let mut count = |variable: Variable, choice: &Choice| {
            if least.is_none() {
                objective.push((variable, problem.value(&choice.cost)));
            }
            for (limit, amount) in &choice.uses {
                rows.entry(*limit).or_default().push((variable, *amount));
            }
        };
        for (group, binaries) in choices.iter().zip(&self.places) {
            group.iter().zip(binaries).for_each(|(choice, binary)| count(*binary, choice));
        }
        self.copies.iter().for_each(|(copy, variable)| count(*variable, &problem.copy(copy)));
        if let Some(limit) = least {
            objective = rows.get(&limit).cloned().unwrap_or_default();
        }
        let may_exceed = |(limit, row): &(usize, Terms)| {
            problem.capacity[*limit].is_finite() && !problem.keeps(*limit, row.iter().map(|(_, amount)| amount).sum())
        };
        (objective, rows.into_iter().filter(may_exceed).collect())
    }
}
