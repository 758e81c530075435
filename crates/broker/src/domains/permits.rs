//! What the contract's rules permit of sessions over several domains, and what counts for them.

use super::{Crossing, Domains, LONGEST_REASON, Neighbour, Phase};
use crate::rules::{self, Ask, Party, Usage};
use agent::peer::{Flow, Key, Refused};
use qos::plan::Refusal;
use std::collections::BTreeMap;

impl Domains {
    /// Permits a session from another domain, if a rule does.
    pub(super) fn permit(&self, key: &Key, passed: &[String], flows: &[Flow]) -> Result<(), Refused> {
        let (party, first) = (Party::Domain(&key.first), &key.first);
        if party.is_free(&self.rules) {
            return Ok(());
        }
        // A rule is for the domain that it names, so nobody speaks for one that is not behind it.
        let through = |one: &&Neighbour| Some(&one.domain) == passed.last();
        if !self.neighbours.iter().find(through).is_some_and(|one| one.reach.contains(first)) {
            let because =
                format!("it comes from domain {first}, and by the contract that is not reached through its sender");
            return Err(self.refusal(format!("session {key}"), because));
        }
        let others = |one: &&Crossing| one.key.first == *first && one.key.session != key.session;
        let usage = usage(self.crossings.values().filter(others));
        rules::permit(&self.rules, party, &Ask::of_flows(flows), usage).map_err(|against| {
            let whats: Vec<&str> = against.iter().map(|one| one.what.as_str()).collect();
            let whats: String = whats.join(", ").chars().take(LONGEST_REASON).collect();
            let what = format!("{whats} in domain {}", self.name);
            let Refusal { needs, has, because, .. } = against.into_iter().next().unwrap_or_default();
            Refused { domain: self.name.clone(), what, needs, has, because, forbidden: true }
        })
    }

    /// What a user has over several domains, but for versions of the session of this name.
    pub fn usage(&self, owner: &str, but: Option<&str>) -> Usage {
        let is_other = |one: &Crossing| but.is_none_or(|but| one.key.session != but);
        let its = |one: &&Crossing| one.asker.as_ref().is_some_and(|by| by.owner == owner) && is_other(one);
        usage(self.crossings.values().filter(its))
    }
}

/// What these sessions have together. Versions of one share what the largest has.
fn usage<'a>(sessions: impl Iterator<Item = &'a Crossing>) -> Usage {
    // A neighbour that asks for menus may only look; its hold counts.
    let is_asking = |one: &Crossing| one.is_question() || one.phase == Phase::Quoting && !one.passed.is_empty();
    let has = |one: &&Crossing| !matches!(one.phase, Phase::Stopping | Phase::Lost) && !is_asking(one);
    let mut largest: BTreeMap<&str, u64> = BTreeMap::new();
    for one in sessions.filter(has) {
        let known = largest.entry(&one.key.session).or_default();
        *known = rules::rate_of(&one.flows).max(*known);
    }
    largest.values().fold(Usage::default(), |usage, rate| usage.with(*rate))
}
