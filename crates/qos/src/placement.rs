//! Placement of proxies (P-21…P-23, P-50…P-64).
//!
//! A proxy at node j, `d_pub(j)` hops from the publisher and `d_sub(i,j)` from subscriber i, delays a sample by
//! `δ(i,j) = d_pub(j)·T + d_sub(i,j)·T'` (P-21), one period for each node that sends it on (P-20). It costs
//! `Σ_i d_pub(j)·f + d_sub(i,j)·f'` messages per second (P-22), or the same with the bits before and after scaling, or the processors that
//! sending, receiving and scaling take (P-54). Delays have to be within the deadlines, and the load of all flows on a link, on
//! a node's proxies and on its processors within the capacity (P-23, P-61). The model ignores transmission and queueing
//! (E-P9): those are the analysis' business, which can exclude places that do not keep its bound.
//!
//! | module | contents |
//! |---|---|
//! | [`place`] | the choice of the method, and the quality of the answer |
//! | `problem` | the groups, and the costs and loads of a place |
//! | `layout` | the current placement, and the loads on the limits: places ruled out; [`admit`], one more subscriber without a new solution |
//! | `exact` | Appendix A for one group; all combinations, as the measure of other methods; mixed-integer programming |
//! | `decomposition` | large systems: `bound` from prices of the limits, and a search for placements within them |
//! | `conflict` | reasons why no placement fits |

use std::time::Duration;

use crate::network::{Direction, Network, disconnected};
use crate::system::System;

mod bound;
mod conflict;
mod decomposition;
mod exact;
mod layout;
mod problem;

pub use conflict::{Conflict, Limit};
pub use exact::Candidate;
pub use layout::admit;
pub use problem::Group;

use layout::Layout;
use problem::Problem;

/// The cost of a placement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Messages per second over all links.
    pub messages_per_s: f64,
    /// Payload bit/s over all links.
    pub bits_per_s: f64,
    /// Processors in use for sending, receiving and scaling.
    pub cpu: f64,
}

impl Cost {
    fn add(&mut self, other: &Cost, sign: f64) {
        self.messages_per_s += sign * other.messages_per_s;
        self.bits_per_s += sign * other.bits_per_s;
        self.cpu += sign * other.cpu;
    }
}

/// A group's proxy in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The group that it serves.
    pub group: Group,
    /// The proxy's node (index); the publisher's, too, if nothing is scaled and no proxy is needed.
    pub node: usize,
    /// Its cost. A stream that several groups share (multicast) counts for the first one.
    pub cost: Cost,
    /// Delay of each of the group's subscribers, ns (P-21).
    pub delays: Vec<f64>,
}

/// The quality of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No placement is better.
    Optimal,
    /// All limits are kept; better placements are at most the gap away.
    Feasible,
    /// No placement keeps all limits; this is proved.
    Infeasible,
    /// No placement was found in the given time.
    Unknown,
}

/// Limits on the work for an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Effort {
    /// Time for all. It is kept to about one step of the work.
    pub time: Duration,
    /// Largest distance from the optimum in a large system, as a part of its value. Small systems are solved exactly.
    pub gap: f64,
    /// Places that other analyses found unfit: (topic, publisher's node, node), indices.
    pub excluded: Vec<(usize, usize, usize)>,
    /// Search for the reason if no placement fits. That may take much longer than to find that none does.
    pub explain: bool,
}

impl Default for Effort {
    /// 30 s, 1 %, nothing excluded, with reasons.
    fn default() -> Self {
        Self { time: Duration::from_secs(30), gap: 0.01, excluded: Vec::new(), explain: true }
    }
}

/// Progress of the work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The step, from 1.
    pub step: u32,
    /// The best value so far; `None`: no placement fits yet.
    pub value: Option<f64>,
    /// No placement is below this.
    pub bound: f64,
}

/// The caller's clock and display: the planner has neither.
pub trait Watch {
    /// Time since the work began.
    fn elapsed(&mut self) -> Duration;
    /// Called now and then.
    fn progress(&mut self, _progress: &Progress) {}
}

/// A placement, or the reasons why there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its quality.
    pub status: Status,
    /// Each group's place, in the order of topics, publishers and subscribers; empty if no placement fits.
    pub placed: Vec<Placed>,
    /// The value of the objective, in its unit; `None` if no placement fits.
    pub value: Option<f64>,
    /// No placement is below this; `None` if that is not known.
    pub bound: Option<f64>,
    /// The method: `exhaustive`, `microlp`, `highs` or `decomposition`.
    pub solver: &'static str,
    /// Bit/s on the wire in each direction ([`Direction::index`]), without undeclared traffic.
    pub loads: Vec<f64>,
    /// The price of a bit/s in each direction with which the bound was proved, in the objective's unit; empty if that took none. The
    /// limits with a price are those that make the answer dearer.
    pub prices: Vec<f64>,
    /// Samples per second that each node's proxies take.
    pub proxied: Vec<f64>,
    /// Processors that each node uses.
    pub processors: Vec<f64>,
    /// Requirements that cannot be kept together.
    pub conflicts: Vec<Conflict>,
}

impl Outcome {
    /// Largest improvement that may still be possible, as a part of the value; 0 if none is better, `None` if that is not known.
    pub fn gap(&self) -> Option<f64> {
        let (value, bound) = (self.value?, self.bound?);
        Some(if value > bound { (value - bound) / value.abs().max(f64::MIN_POSITIVE) } else { 0.0 })
    }

    /// Bit/s on the wire in one direction of a link.
    pub fn load(&self, direction: Direction) -> f64 {
        self.loads.get(direction.index()).copied().unwrap_or(0.0)
    }
}

/// Places every group's proxy.
pub fn place(system: &System, network: &Network, effort: &Effort, watch: &mut dyn Watch) -> Outcome {
    let mut problem = Problem::new(system, network);
    problem.excluded = effort.excluded.iter().copied().collect();
    let apart = disconnected(system, network);
    if !apart.is_empty() {
        return infeasible(conflict::unreachable(&apart), "exhaustive");
    }
    let places: Vec<Vec<usize>> = problem.groups.iter().map(|group| problem.places(group)).collect();
    if size(&problem, &places) > LARGE {
        return large(&problem, places, effort, watch);
    }
    let choices = exact::choices(&problem);
    if let Some(stuck) = choices.iter().position(Vec::is_empty) {
        return stuck_alone(&problem, stuck, effort, watch);
    }
    if let Some(outcome) = each_alone(&problem, &choices) {
        return outcome;
    }
    if exact::combinations(&choices) <= exact::FEW {
        return match exact::best(&problem, &choices) {
            Some(layout) => placed(&problem, &layout, Some(layout.value(&problem)), "exhaustive"),
            None => infeasible(conflict::of(&problem, effort, watch), "exhaustive"),
        };
    }
    let half = effort.time.saturating_sub(watch.elapsed()) / 2;
    match exact::solve(&problem, &choices, None, None, half) {
        exact::Found::Placed { layout, proved } => {
            let bound = proved.then(|| layout.value(&problem));
            placed(&problem, &layout, bound, exact::SOLVER)
        }
        exact::Found::Infeasible => infeasible(conflict::of(&problem, effort, watch), exact::SOLVER),
        exact::Found::Nothing => large(&problem, places, effort, watch),
    }
}

/// Hops of all possible places from which on a system is large: mixed-integer programming takes seconds there, or much longer.
const LARGE: usize = 30_000;

fn size(problem: &Problem, places: &[Vec<usize>]) -> usize {
    let hops = |group: &Group| 1 + 4 * (1 + group.subscribers.len());
    problem.groups.iter().zip(places).map(|(group, places)| places.len() * hops(group)).sum()
}

fn large(problem: &Problem, places: Vec<Vec<usize>>, effort: &Effort, watch: &mut dyn Watch) -> Outcome {
    let fits = |group: &Group, node: usize| exact::fits_alone(problem, &problem.choice(group, node));
    let stuck = |(group, places): (&Group, &Vec<usize>)| !places.iter().any(|node| fits(group, *node));
    if let Some(stuck) = problem.groups.iter().zip(&places).position(stuck) {
        return stuck_alone(problem, stuck, effort, watch);
    }
    let places = places.into_iter().map(|all| all.into_iter().map(|node| node as u32).collect()).collect();
    let places = match layout::reduce(problem, places) {
        Ok(places) => places,
        Err(stuck) => return infeasible(vec![conflict::crowded_out(&problem.groups[stuck])], "decomposition"),
    };
    let decomposition::Found { layout, bound, prices } = decomposition::solve(problem, places, effort, watch);
    let [prices, ..] = problem.apart(prices);
    match layout {
        Some(layout) => Outcome { prices, ..placed(problem, &layout, Some(bound), "decomposition") },
        None => Outcome { bound: Some(bound), prices, ..unknown("decomposition") },
    }
}

fn stuck_alone(problem: &Problem, stuck: usize, effort: &Effort, watch: &mut dyn Watch) -> Outcome {
    let only = Problem { groups: vec![problem.groups[stuck].clone()], ..problem.clone() };
    infeasible(conflict::of(&only, effort, watch), "exhaustive")
}

/// Appendix A's table for each group: every node with its delays and cost, independent of other groups (P-51, P-52).
pub fn table(system: &System, network: &Network) -> Vec<(Group, Vec<Candidate>)> {
    let problem = Problem::new(system, network);
    problem.groups.iter().map(|group| (group.clone(), exact::table(&problem, group))).collect()
}

/// Gives every group its best place, if that keeps all limits: then there is nothing to solve.
fn each_alone(problem: &Problem, choices: &[Vec<problem::Choice>]) -> Option<Outcome> {
    let mut layout = Layout::new(problem);
    for (index, places) in choices.iter().enumerate() {
        let best = best_alone(problem, &problem.groups[index], places)?;
        if !best.shared.is_empty() && problem.groups.len() > 1 {
            return None;
        }
        layout.put(problem, index, best.clone());
    }
    let value = layout.value(problem);
    layout.keeps_all(problem).then(|| placed(problem, &layout, Some(value), "exhaustive"))
}

/// The cheapest place, of equal ones the first in the file; if nothing is scaled, the publisher's own.
fn best_alone<'a>(problem: &Problem, group: &Group, places: &'a [problem::Choice]) -> Option<&'a problem::Choice> {
    let nothing = Layout::new(problem);
    let value = |choice: &problem::Choice| problem.value(&nothing.added(problem, choice).cost);
    let values: Vec<f64> = places.iter().map(value).collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let mut equal = places.iter().zip(&values).filter(|(_, value)| **value <= least + least.abs() * 1e-12);
    let first = equal.clone().next().map(|(choice, _)| choice);
    equal.find(|(choice, _)| !problem.scales_at(group, choice.node)).map(|(choice, _)| choice).or(first)
}

fn placed(problem: &Problem, layout: &Layout, bound: Option<f64>, solver: &'static str) -> Outcome {
    let mut again = Layout::new(problem);
    let mut all = Vec::with_capacity(problem.groups.len());
    for (index, choice) in layout.chosen.iter().enumerate() {
        let Some(choice) = choice else { continue };
        let group = &problem.groups[index];
        let cost = again.added(problem, choice).cost;
        again.put(problem, index, choice.clone());
        let delays = problem.delays(group, choice.node).unwrap_or_default();
        all.push(Placed { group: group.clone(), node: choice.node, cost, delays });
    }
    let value = again.value(problem);
    let optimal = bound.is_some_and(|bound| bound >= value - value.abs() * 1e-9);
    let [loads, proxied, processors] = problem.apart(again.loads);
    Outcome {
        status: if optimal { Status::Optimal } else { Status::Feasible },
        placed: all,
        value: Some(value),
        bound: if optimal { Some(value) } else { bound },
        solver,
        loads,
        prices: Vec::new(),
        proxied,
        processors,
        conflicts: Vec::new(),
    }
}

fn infeasible(conflicts: Vec<Conflict>, solver: &'static str) -> Outcome {
    Outcome { status: Status::Infeasible, conflicts, ..unknown(solver) }
}

fn unknown(solver: &'static str) -> Outcome {
    Outcome {
        status: Status::Unknown,
        placed: Vec::new(),
        value: None,
        bound: None,
        solver,
        loads: Vec::new(),
        prices: Vec::new(),
        proxied: Vec::new(),
        processors: Vec::new(),
        conflicts: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
