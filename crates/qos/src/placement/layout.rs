//! The current placement: each group's place, the loads on the limits, and the cost of all.
//!
//! Loads alone tell which places no placement can have ([`reduce`]), and where one more subscriber fits ([`admit`]).

use std::collections::HashMap;

use super::problem::{Choice, Copy, Group, Problem};
use super::{Cost, Outcome, Placed, Status};
use crate::network::Network;
use crate::system::System;

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

/// Rounds; each uses the exclusions of the one before.
const ROUNDS: u32 = 3;

/// Rules places out that no placement can have beside the least loads of all other groups. Gives the remaining ones.
///
/// # Errors
/// A group that has none, so no placement fits.
pub(super) fn reduce(problem: &Problem, mut places: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>, usize> {
    // The least load of a group on each limit, at any place; at first unknown.
    let mut least: Vec<Vec<(usize, f64)>> = vec![Vec::new(); places.len()];
    let mut all = vec![0.0; problem.capacity.len()];
    let mut scratch = Scratch::new(problem);
    for _ in 0..ROUNDS {
        let mut ruled_out = 0;
        for (group, left) in places.iter_mut().enumerate() {
            least[group].iter().for_each(|(limit, amount)| all[*limit] -= amount);
            let mut common: Option<Vec<(usize, f64)>> = None;
            let before = left.len();
            left.retain(|node| {
                scratch.fill(problem, &problem.groups[group], *node as usize);
                let fits = scratch.fits(problem, &all);
                if fits {
                    common = Some(scratch.in_common(common.take()));
                }
                scratch.clear();
                fits
            });
            ruled_out += before - left.len();
            least[group] = common.ok_or(group)?;
            least[group].iter().for_each(|(limit, amount)| all[*limit] += amount);
        }
        if ruled_out == 0 {
            break;
        }
    }
    Ok(places)
}

/// Admits one more subscriber on a system whose proxies are placed: only the groups that it joins are looked at. It is `new` (index)
/// of `system`, which is otherwise the system of `before`; `network` may be that system's. The proxy of its group stays if all
/// limits are kept, else it moves to the cheapest place where they are. No other proxy moves.
/// The answer is [`Status::Feasible`], without a bound: [`place`](super::place) tells its quality. `None`: it does not fit unless
/// other proxies move, or `before` has no placement.
pub fn admit(system: &System, network: &Network, before: &Outcome, new: usize) -> Option<Outcome> {
    before.value?;
    let problem = Problem::new(system, network);
    let mut after = Outcome { status: Status::Feasible, bound: None, ..before.clone() };
    for (index, group) in problem.groups.iter().enumerate().filter(|(_, group)| group.subscribers.contains(&new)) {
        let old = Group {
            subscribers: group.subscribers.iter().copied().filter(|who| *who != new).collect(),
            ..group.clone()
        };
        let at = after.placed.iter().position(|placed| placed.group == old);
        let stays = at.map(|at| after.placed.remove(at));
        let mut layout =
            if problem.multicast() { rebuilt(&problem, &after) } else { lightened(&problem, &after, stays.as_ref()) };
        let choice = fitting(&problem, &layout, group, stays.map(|placed| placed.node))?;
        let (cost, node) = (layout.added(&problem, &choice).cost, choice.node);
        layout.put(&problem, index, choice);
        [after.loads, after.proxied, after.processors] = problem.apart(layout.loads);
        let delays = problem.delays(group, node)?;
        after
            .placed
            .insert(at.unwrap_or(index).min(after.placed.len()), Placed { group: group.clone(), node, cost, delays });
    }
    after.value = Some(after.placed.iter().map(|placed| problem.value(&placed.cost)).sum());
    Some(after)
}

/// The loads without one group's.
fn lightened(problem: &Problem, outcome: &Outcome, without: Option<&Placed>) -> Layout {
    let mut layout = Layout::new(problem);
    layout.loads = [&outcome.loads[..], &outcome.proxied, &outcome.processors].concat();
    for (limit, amount) in without.into_iter().flat_map(|placed| problem.choice(&placed.group, placed.node).uses) {
        layout.loads[limit] -= amount;
    }
    layout
}

/// All that stays: streams may be shared, so each counts once.
fn rebuilt(problem: &Problem, outcome: &Outcome) -> Layout {
    let groups = outcome.placed.iter().map(|placed| placed.group.clone()).collect();
    let kept = Problem { groups, ..problem.clone() };
    let nodes: Vec<usize> = outcome.placed.iter().map(|placed| placed.node).collect();
    let mut layout = Layout::of(&kept, &nodes);
    layout.chosen.resize(problem.groups.len().max(nodes.len()), None);
    layout
}

fn fitting(problem: &Problem, layout: &Layout, group: &Group, now: Option<usize>) -> Option<Choice> {
    let mut places = problem.places(group);
    let value = |node: &usize| {
        if problem.multicast() {
            problem.value(&problem.choice(group, *node).cost)
        } else {
            problem.value_at(group, *node)
        }
    };
    // Costs are never negative, so their bits have their order.
    places.sort_by_cached_key(|node| (Some(*node) != now, value(node).to_bits()));
    let mut scratch = Scratch::new(problem);
    let fits = |node: &usize| {
        if problem.multicast() {
            let added = layout.added(problem, &problem.choice(group, *node));
            added.uses.into_iter().for_each(|(limit, amount)| scratch.add(limit, amount));
        } else {
            scratch.fill(problem, group, *node);
        }
        let fits = scratch.fits(problem, &layout.loads);
        scratch.clear();
        fits
    };
    places.into_iter().find(fits).map(|node| problem.choice(group, node))
}

/// The loads of one place on the limits.
struct Scratch {
    loads: Vec<f64>,
    touched: Vec<usize>,
}

impl Scratch {
    fn new(problem: &Problem) -> Self {
        Self { loads: vec![0.0; problem.capacity.len()], touched: Vec::new() }
    }

    fn fill(&mut self, problem: &Problem, group: &Group, node: usize) {
        if problem.multicast() {
            // A shared stream may be there anyway: only a group's own load is certain.
            let Choice { uses, .. } = problem.choice(group, node);
            return uses.into_iter().for_each(|(limit, amount)| self.add(limit, amount));
        }
        problem.flows(group, node, |limit, amount| self.add(limit, amount));
        problem.work(group, node).uses.into_iter().for_each(|(limit, amount)| self.add(limit, amount));
    }

    fn add(&mut self, limit: usize, amount: f64) {
        if self.loads[limit] == 0.0 {
            self.touched.push(limit);
        }
        self.loads[limit] += amount;
    }

    /// `true` if it keeps all limits beside these loads.
    fn fits(&self, problem: &Problem, beside: &[f64]) -> bool {
        self.touched.iter().all(|limit| problem.keeps(*limit, beside[*limit].max(0.0) + self.loads[*limit]))
    }

    /// The least load that this place and those before it put on a limit.
    fn in_common(&self, before: Option<Vec<(usize, f64)>>) -> Vec<(usize, f64)> {
        let Some(mut before) = before else {
            return self.touched.iter().map(|limit| (*limit, self.loads[*limit])).collect();
        };
        before.iter_mut().for_each(|(limit, amount)| *amount = amount.min(self.loads[*limit]));
        before.retain(|(_, amount)| *amount > 0.0);
        before
    }

    fn clear(&mut self) {
        self.touched.drain(..).for_each(|limit| self.loads[limit] = 0.0);
    }
}
