//! Links that all late channels cross, and no other.

use crate::plan::{Channel, Plan};
use std::collections::BTreeSet;

/// Where to look first when channels are late on the way: the directions of links, such as `air to operator`, that every channel of
/// `late` crosses and none of `well` does, or (where the late ones share no direction) the links. Empty: there is none, or the plan's
/// model has no terms for links.
pub fn suspects(plan: &Plan, late: &[usize], well: &[usize]) -> Vec<String> {
    let directions = plan.links.iter().map(|link| format!("{} to {}", link.name, link.to));
    let links: BTreeSet<&str> = plan.links.iter().map(|link| link.name.as_str()).collect();
    let suspected = |start: String| {
        let crosses = |index: &usize| plan.channels.get(*index).is_some_and(|channel| crosses(channel, &start));
        !late.is_empty() && late.iter().all(crosses) && !well.iter().any(crosses)
    };
    let found: Vec<String> = directions.filter(|name| suspected(format!("{name}: "))).collect();
    if !found.is_empty() {
        return found;
    }
    links.into_iter().filter(|name| suspected(format!("{name} to "))).map(str::to_owned).collect()
}

/// Whether a term of the channel's delay begins so.
fn crosses(channel: &Channel, start: &str) -> bool {
    channel.terms.keys().any(|term| term.starts_with(start))
}
