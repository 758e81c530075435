//! Matching of a subscriber's requests with a publisher's offer (DDS 1.4, §2.2.3, column RxO; V-01…V-06).
//!
//! | policy | fits if |
//! |---|---|
//! | reliability, durability, destination order | offered ≥ requested, in the order of their values |
//! | deadline, latency budget | offered ≤ requested; no deadline is the longest, no latency budget is 0 |
//! | liveliness | kind offered ≥ requested, and lease offered ≤ requested; no lease is the longest |
//! | ownership | both the same |
//! | strict | not requested, or the publisher's queue drops nothing: keep-all or block (YS-56) |
//! | partition | one in common |
//! | key | both the same, or one of them has none |
//!
//! All other policies concern one end only and are never in the way.

use super::text::show_queue;
use super::values::{NONE, list, time, words};
use super::{Liveliness, Qos, Queue};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A policy that is matched, in the order in which mismatches are reported: the subscriber's request with the publisher's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// [`Qos::reliability`](super::Qos::reliability)
    Reliability,
    /// [`Qos::durability`](super::Qos::durability)
    Durability,
    /// [`Qos::deadline`](super::Qos::deadline)
    Deadline,
    /// [`Qos::latency_budget`](super::Qos::latency_budget)
    LatencyBudget,
    /// [`Qos::destination_order`](super::Qos::destination_order)
    DestinationOrder,
    /// [`Qos::liveliness`](super::Qos::liveliness)
    Liveliness,
    /// [`Qos::ownership`](super::Qos::ownership)
    Ownership,
    /// [`Qos::strict`](super::Qos::strict)
    Strict,
    /// [`Qos::partition`](super::Qos::partition)
    Partition,
    /// [`Qos::key`](super::Qos::key)
    Key,
}

words! {
    PolicyName: Reliability = "reliability", Durability = "durability", Deadline = "deadline",
        LatencyBudget = "latency-budget", DestinationOrder = "destination-order", Liveliness = "liveliness",
        Ownership = "ownership", Strict = "strict", Partition = "partition", Key = "key";
}

/// A policy that stands between a publisher and a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The policy.
    pub policy: PolicyName,
    /// The publisher's offer.
    pub offered: String,
    /// The subscriber's request.
    pub requested: String,
    /// A change with which they match.
    pub remedy: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, offered, requested, remedy } = self;
        write!(f, "{policy} offered {offered}, requested {requested}; {remedy}")
    }
}

/// Compares an offer with a request.
///
/// `Ok`: they match. The list has the mismatches that the subscriber's fallback permits ([`Qos::fallback`]): for
/// those it gets the offered value ([`Qos::settled`]).
///
/// # Errors
/// All that stands between them, in the order of [`PolicyName::ALL`].
pub fn match_qos(offered: &Qos, requested: &Qos) -> Result<Vec<Mismatch>, Vec<Mismatch>> {
    let found = PolicyName::ALL.into_iter().filter_map(|policy| compare(policy, offered, requested));
    let (given_up, between): (Vec<_>, Vec<_>) = found.partition(|m| requested.fallback.contains(&m.policy));
    if between.is_empty() { Ok(given_up) } else { Err(between) }
}

impl Qos {
    /// The policies of a subscriber with this request under a publisher's offer, once they match.
    pub fn settled(&self, offered: &Qos) -> Qos {
        let mut settled = self.clone();
        for given_up in match_qos(offered, self).unwrap_or_default() {
            match given_up.policy {
                PolicyName::Reliability => settled.reliability = offered.reliability,
                PolicyName::Durability => settled.durability = offered.durability,
                PolicyName::Deadline => settled.deadline = offered.deadline,
                PolicyName::LatencyBudget => settled.latency_budget = offered.latency_budget,
                PolicyName::DestinationOrder => settled.destination_order = offered.destination_order,
                PolicyName::Liveliness => settled.liveliness = offered.liveliness,
                PolicyName::Ownership => settled.ownership = offered.ownership,
                PolicyName::Strict => settled.strict = false,
                PolicyName::Partition | PolicyName::Key => {}
            }
        }
        settled
    }
}

fn compare(policy: PolicyName, offered: &Qos, requested: &Qos) -> Option<Mismatch> {
    let (o, r) = (offered, requested);
    match policy {
        PolicyName::Reliability => at_least(policy, o.reliability, r.reliability),
        PolicyName::Durability => at_least(policy, o.durability, r.durability),
        PolicyName::Deadline => {
            let fits = within(o.deadline, r.deadline);
            mismatch(policy, fits, time(o.deadline), time(r.deadline), shorter)
        }
        PolicyName::LatencyBudget => {
            let (o, r) = (o.latency_budget.unwrap_or_default(), r.latency_budget.unwrap_or_default());
            mismatch(policy, o <= r, time(Some(o)), time(Some(r)), shorter)
        }
        PolicyName::DestinationOrder => at_least(policy, o.destination_order, r.destination_order),
        PolicyName::Liveliness => compare_liveliness(&o.liveliness, &r.liveliness),
        PolicyName::Ownership => {
            mismatch(policy, o.ownership == r.ownership, o.ownership.to_string(), r.ownership.to_string(), other)
        }
        PolicyName::Strict => {
            let fits = !r.strict || !matches!(o.queue, Queue::KeepLast(_));
            let remedy = |_: &str, _: &str| {
                "offer queue keep-all or block at the publisher, or do not request strict at the subscriber".to_owned()
            };
            mismatch(policy, fits, format!("queue {}", show_queue(o.queue)), "yes".to_owned(), remedy)
        }
        PolicyName::Partition => {
            let fits = partitions_meet(&o.partition, &r.partition);
            mismatch(policy, fits, list(&o.partition), list(&r.partition), |_, _| "name one at both ends".to_owned())
        }
        PolicyName::Key => {
            let fits = o.key == r.key || o.key.is_empty() || r.key.is_empty();
            mismatch(policy, fits, list(&o.key), list(&r.key), |_, _| "name the same fields at both ends".to_owned())
        }
    }
}

fn at_least<T: PartialOrd + fmt::Display>(policy: PolicyName, offered: T, requested: T) -> Option<Mismatch> {
    mismatch(policy, offered >= requested, offered.to_string(), requested.to_string(), other)
}

/// No duration is the longest.
fn within(offered: Option<Duration>, requested: Option<Duration>) -> bool {
    requested.is_none_or(|requested| offered.is_some_and(|offered| offered <= requested))
}

fn compare_liveliness(offered: &Liveliness, requested: &Liveliness) -> Option<Mismatch> {
    let (kind, lease) = (offered.kind >= requested.kind, within(offered.lease, requested.lease));
    let remedy = if kind { shorter } else { other };
    mismatch(PolicyName::Liveliness, kind && lease, offered.to_string(), requested.to_string(), remedy)
}

fn mismatch(
    policy: PolicyName,
    fits: bool,
    offered: String,
    requested: String,
    remedy: fn(&str, &str) -> String,
) -> Option<Mismatch> {
    (!fits).then(|| Mismatch { policy, remedy: remedy(&offered, &requested), offered, requested })
}

fn other(offered: &str, requested: &str) -> String {
    format!("offer {requested} at the publisher, or request {offered} at the subscriber")
}

fn shorter(offered: &str, requested: &str) -> String {
    let longer = if offered == NONE { "" } else { " or longer" };
    format!("offer {requested} or shorter at the publisher, or request {offered}{longer} at the subscriber")
}

/// Most partitions of a port, and longest name in bytes: a peer's further ones are ignored.
pub(super) const MOST: usize = 64;
pub(super) const LONGEST: usize = 255;

/// `true` if two ports have a partition in common: a name that divides a realm's topics (DDS PARTITION, §2.2.3.13). No name
/// is the same as the empty one. A name with wildcards matches names without; two with wildcards match only if they are
/// equal.
pub fn partitions_meet(one: &[String], other: &[String]) -> bool {
    named(one).any(|a| named(other).any(|b| meets(a, b)))
}

fn named(partitions: &[String]) -> impl Iterator<Item = &str> {
    let none = partitions.is_empty().then_some("");
    partitions.iter().take(MOST).map(String::as_str).filter(|name| name.len() <= LONGEST).chain(none)
}

fn meets(a: &str, b: &str) -> bool {
    let pattern = |name: &str| name.contains(['*', '?', '[']);
    match (pattern(a), pattern(b)) {
        (true, false) => fnmatch(a, b),
        (false, true) => fnmatch(b, a),
        _ => a == b,
    }
}

/// `true` if a pattern matches a name, by the rules of POSIX `fnmatch`: `*` any characters, `?` one, `[a-z]` one of these,
/// `[!a-z]` one but these, `\\` the next as it is. At most (characters of one) × (characters of the other) steps.
pub fn fnmatch(pattern: &str, name: &str) -> bool {
    let (mut rest, mut left) = (pattern.chars(), name.chars());
    // Position to return to when a later character does not fit: after the last `*`, with one more character
    // swallowed by it.
    let mut retry = None;
    loop {
        let (mut after, mut remaining) = (rest.clone(), left.clone());
        match (after.next(), remaining.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                retry = Some((after.clone(), left.clone()));
                rest = after;
                continue;
            }
            (Some(first), Some(character)) if fits(first, &mut after, character) => {
                (rest, left) = (after, remaining);
                continue;
            }
            _ => {}
        }
        let Some((pattern_after, name_after)) = &mut retry else { return false };
        if name_after.next().is_none() {
            return false;
        }
        (rest, left) = (pattern_after.clone(), name_after.clone());
    }
}

/// `true` if the pattern that starts with `first` matches one character; moves behind it.
fn fits(first: char, rest: &mut std::str::Chars<'_>, character: char) -> bool {
    match first {
        '?' => true,
        '\\' => rest.next() == Some(character),
        '[' => {
            let (set, after) = rest.as_str().split_at(set_length(rest.as_str()));
            // An unclosed bracket is a plain character.
            let Some(after) = after.strip_prefix(']') else { return character == '[' };
            *rest = after.chars();
            let (not, set) = set.strip_prefix('!').map_or((false, set), |set| (true, set));
            not != holds(set, character)
        }
        _ => first == character,
    }
}

/// Bytes up to the bracket that closes: one right at the start belongs to the set.
fn set_length(text: &str) -> usize {
    let start = text.len() - text.strip_prefix('!').unwrap_or(text).len();
    let start = start + usize::from(text[start..].starts_with(']'));
    text[start..].find(']').map_or(text.len(), |end| start + end)
}

fn holds(set: &str, character: char) -> bool {
    let mut left = set.chars();
    while let Some(first) = left.next() {
        let mut range = left.clone();
        let last = if range.next() == Some('-') { range.next() } else { None };
        match last {
            Some(last) if (first..=last).contains(&character) => return true,
            Some(_) => left = range,
            None if first == character => return true,
            None => {}
        }
    }
    false
}

#[cfg(test)]
mod tests;
