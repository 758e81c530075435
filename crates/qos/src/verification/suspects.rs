//! Links that all late channels cross, and no other.

use crate::plan::{Channel, Plan};

/// The directions of links, such as `air to operator`, that every channel of `late` crosses and none of `well` does: where to look
/// first when they are late on the way. Empty: there is none, or the plan's model has no terms for links.
pub fn suspects(plan: &Plan, late: &[usize], well: &[usize]) -> Vec<String> {
    let crosses = |index: &usize, link: &str| {
        let of_link = |channel: &Channel| {
            channel.terms.keys().any(|term| term.strip_prefix(link).is_some_and(|rest| rest.starts_with(": ")))
        };
        plan.channels.get(*index).is_some_and(of_link)
    };
    let names = plan.links.iter().map(|link| format!("{} to {}", link.name, link.to));
    let suspect = |link: &String| {
        !late.is_empty()
            && late.iter().all(|index| crosses(index, link))
            && !well.iter().any(|index| crosses(index, link))
    };
    names.filter(suspect).collect()
}
