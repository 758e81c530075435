//! One more subscriber on a system whose proxies are placed: only the groups that it joins are looked at.

use super::decomposition::Scratch;
use super::layout::Layout;
use super::problem::{Choice, Group, Problem};
use super::{Outcome, Placed, Status};
use crate::network::Network;
use crate::system::System;

/// Admits subscriber `new` (index) of `system`, which is otherwise the system of `before`; `network` may be that system's. The
/// proxy of its group stays if all limits are kept, else it moves to the cheapest place where they are. No other proxy moves.
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
