//! Links that all late channels cross, and no other.

use crate::plan::Plan;
use std::collections::BTreeSet;

/// A way that was measured by itself: from a channel's publisher to its subscriber, or only as far as the relay between, or from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leg<'a> {
    /// The directions of links that it crosses, such as `air to operator`.
    pub route: &'a [String],
    /// Samples were late on it.
    pub late: bool,
}

/// Where to look first when samples are late on their way: the directions of links that every late leg crosses and no other does, or
/// (where the late ones share no direction) the links. Empty: there is none.
pub fn suspects(plan: &Plan, legs: &[Leg<'_>]) -> Vec<String> {
    let (late, well): (Vec<&Leg>, Vec<&Leg>) = legs.iter().partition(|leg| leg.late);
    let suspected = |fits: &dyn Fn(&str) -> bool| {
        let crosses = |leg: &&Leg| leg.route.iter().any(|direction| fits(direction));
        !late.is_empty() && late.iter().all(crosses) && !well.iter().any(crosses)
    };
    let directions = plan.links.iter().map(|link| format!("{} to {}", link.name, link.to));
    let found: Vec<String> = directions.filter(|name| suspected(&|direction| direction == name)).collect();
    if !found.is_empty() {
        return found;
    }
    let links: BTreeSet<(&str, String, String)> =
        plan.links.iter().map(|link| ends(&link.name, &link.from, &link.to)).collect();
    let either =
        |(_, one, other): &(&str, String, String)| suspected(&|direction| direction == one || direction == other);
    links.into_iter().filter(either).map(|(name, ..)| name.to_owned()).collect()
}

/// A link with its two directions, in the same order for both.
fn ends<'a>(name: &'a str, from: &str, to: &str) -> (&'a str, String, String) {
    let (first, second) = if from < to { (from, to) } else { (to, from) };
    (name, format!("{name} to {first}"), format!("{name} to {second}"))
}
