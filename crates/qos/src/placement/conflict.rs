//! Conflicts: requirements that cannot be kept together, none of which can be left out (an irreducible infeasible set). They are
//! found by leaving out one after another, and keeping those without which the rest would fit (deletion filtering).

use std::time::Duration;

use super::problem::{Group, Problem};
use super::{Effort, Watch, exact};
use crate::network::Direction;

/// A requirement or its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// A subscriber's deadline (index); ns.
    Deadline {
        /// The subscriber.
        subscriber: usize,
    },
    /// One direction of a link; bit/s on the wire.
    Link(Direction),
    /// The capacity of a node's proxies; samples/s.
    ProxyCapacity {
        /// The node.
        node: usize,
    },
    /// A node's processors in use.
    Processors {
        /// The node.
        node: usize,
    },
    /// A group has to be served: 1, and 0 would be to leave it out.
    Served {
        /// The topic.
        topic: usize,
        /// The publisher's node.
        publisher: usize,
        /// The first of the subscribers that share the proxy.
        subscriber: usize,
    },
    /// Some nodes may not host a proxy; the number that may.
    Proxies,
    /// No way leads from a publisher's node to a subscriber.
    Unreachable {
        /// The publisher's node.
        publisher: usize,
        /// The subscriber.
        subscriber: usize,
    },
}

/// One of the requirements that cannot be kept together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conflict {
    /// The requirement.
    pub limit: Limit,
    /// The least it would have to be so that the others can be kept, in the limit's unit.
    pub needs: f64,
    /// Its present value.
    pub has: f64,
}

/// Publishers and subscribers without a way between them.
pub(super) fn unreachable(apart: &[(usize, usize, usize)]) -> Vec<Conflict> {
    let conflict = |&(_, publisher, subscriber): &(usize, usize, usize)| Conflict {
        limit: Limit::Unreachable { publisher, subscriber },
        needs: 1.0,
        has: 0.0,
    };
    apart.iter().map(conflict).collect()
}

/// Time to find the need for each limit after all other time is used up.
const LAST: Duration = Duration::from_millis(50);

/// A conflict of the problem, which has none or is known to fit nowhere. Groups are left out first, then limits, the ban on
/// proxies at some nodes and last the deadlines, which users understand best. When time is up the rest stays as it is.
pub(super) fn of(problem: &Problem, effort: &Effort, watch: &mut dyn Watch) -> Vec<Conflict> {
    if !effort.explain {
        return Vec::new();
    }
    let mut problem = problem.clone();
    let mut kept: Vec<Limit> = problem.groups.iter().map(served).collect();
    let limits = (0..problem.capacity.len()).filter(|limit| problem.capacity[*limit].is_finite());
    kept.extend(limits.map(|limit| problem.limit(limit)));
    if problem.system.nodes.iter().any(|node| !node.proxy) {
        kept.push(Limit::Proxies);
    }
    let deadlines = (0..problem.deadlines.len()).filter(|subscriber| problem.deadlines[*subscriber].is_finite());
    kept.extend(deadlines.map(|subscriber| Limit::Deadline { subscriber }));
    kept.retain(|limit| {
        let less = without(&problem, limit);
        let left = effort.time.saturating_sub(watch.elapsed());
        let needless = !left.is_zero() && fits(&less, left) == Some(false);
        if needless {
            problem = less;
        }
        !needless
    });
    let mut conflicts = Vec::with_capacity(kept.len());
    for limit in kept {
        let time = effort.time.saturating_sub(watch.elapsed()).max(LAST);
        conflicts.push(Conflict { limit, needs: least(&problem, &limit, time), has: has(&problem, &limit) });
    }
    conflicts
}

/// A group that fits nowhere beside the needs of all others: in a large system, searching for the smallest such set
/// would take too long.
pub(super) fn crowded_out(group: &Group) -> Conflict {
    Conflict { limit: served(group), needs: 1.0, has: 0.0 }
}

pub(super) fn served(group: &Group) -> Limit {
    Limit::Served {
        topic: group.topic,
        publisher: group.publisher,
        subscriber: group.subscribers.first().copied().unwrap_or(0),
    }
}

/// The problem without one of its requirements.
fn without<'a>(problem: &Problem<'a>, limit: &Limit) -> Problem<'a> {
    let mut less = problem.clone();
    match limit {
        Limit::Served { .. } => less.groups.retain(|group| served(group) != *limit),
        Limit::Deadline { subscriber } => less.deadlines[*subscriber] = f64::INFINITY,
        Limit::Proxies => less.anywhere = true,
        Limit::Unreachable { .. } => {}
        Limit::Link(direction) => less.capacity[direction.index()] = f64::INFINITY,
        Limit::ProxyCapacity { node } => less.capacity[problem.proxies_of(*node)] = f64::INFINITY,
        Limit::Processors { node } => less.capacity[problem.processors_of(*node)] = f64::INFINITY,
    }
    less
}

/// `true` if all can be placed; `None`: not known within the time.
fn fits(problem: &Problem, time: Duration) -> Option<bool> {
    match exact::solve(problem, &exact::choices(problem), None, None, time) {
        exact::Found::Placed { .. } => Some(true),
        exact::Found::Infeasible => Some(false),
        exact::Found::Nothing => None,
    }
}

fn has(problem: &Problem, limit: &Limit) -> f64 {
    match limit {
        Limit::Deadline { subscriber } => problem.deadlines[*subscriber],
        Limit::Link(direction) => problem.capacity[direction.index()],
        Limit::ProxyCapacity { node } => problem.capacity[problem.proxies_of(*node)],
        Limit::Processors { node } => problem.capacity[problem.processors_of(*node)],
        Limit::Proxies => problem.system.nodes.iter().filter(|node| node.proxy).count() as f64,
        Limit::Served { .. } | Limit::Unreachable { .. } => 0.0,
    }
}

/// The least value of a limit with which the others can be kept; its present value if that is not found in time.
fn least(problem: &Problem, limit: &Limit, time: Duration) -> f64 {
    let less = without(problem, limit);
    let load = |number: usize| {
        let found = exact::solve(&less, &exact::choices(&less), None, Some(number), time);
        if let exact::Found::Placed { layout, .. } = found { layout.loads[number] } else { problem.capacity[number] }
    };
    match limit {
        Limit::Deadline { subscriber } => soonest(&less, *subscriber, time),
        Limit::Link(direction) => load(direction.index()),
        Limit::ProxyCapacity { node } => load(problem.proxies_of(*node)),
        Limit::Processors { node } => load(problem.processors_of(*node)),
        Limit::Proxies => has(problem, limit) + 1.0,
        Limit::Served { .. } | Limit::Unreachable { .. } => 1.0,
    }
}

/// The shortest delay that a subscriber can have when all other requirements are kept.
fn soonest(problem: &Problem, subscriber: usize, time: Duration) -> f64 {
    let mut delays = Vec::new();
    for group in problem.groups.iter().filter(|group| group.subscribers.contains(&subscriber)) {
        let place = group.subscribers.iter().position(|other| *other == subscriber).unwrap_or(0);
        delays.extend((0..problem.system.nodes.len()).filter_map(|node| Some(problem.delays(group, node)?[place])));
    }
    delays.sort_unstable_by(f64::total_cmp);
    let too_short = |delay: &f64| {
        let mut tried = problem.clone();
        tried.deadlines[subscriber] = *delay;
        fits(&tried, time) != Some(true)
    };
    delays.get(delays.partition_point(too_short)).copied().unwrap_or(f64::INFINITY)
}
