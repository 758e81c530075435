//! Mixed-integer programming (P-23): one binary for each place of each group, one variable for each stream that groups share.
//!
//! A link's load adds up over all that crosses it (P-61, P-64). A group's binaries add up to 1, so only existing places are coded:
//! the errors that the paper's products of X, Y and Z let through (E-P3…E-P5) cannot be written here.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use good_lp::solvers::{ResolutionError, SolutionStatus};
use good_lp::{
    Constraint, Expression, ProblemVariables, Solution, SolverModel, Variable, WithInitialSolution, WithMipGap,
    WithTimeLimit, constraint, variable,
};

use super::layout::Layout;
use super::problem::{Choice, Copy, Problem};

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
pub(super) const NAME: &str = if cfg!(feature = "highs") { "highs" } else { "microlp" };

/// Binaries of each group's places, and a variable for each shared copy.
struct Model {
    variables: ProblemVariables,
    places: Vec<Vec<Variable>>,
    copies: BTreeMap<Copy, Variable>,
}

/// Solves for the objective, or for the least use of one limit.
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
