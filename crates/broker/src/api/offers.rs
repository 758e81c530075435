//! Offers for sessions that are suspended, looked for while nobody waits for it: for one after the other, the most important first. Requests get their
//! turn between two of them.

use super::Broker;
use super::links::Meanwhile;
use crate::degradation::AT_ONCE;
use crate::hosts::Kept;
use crate::links::Rates;
use crate::offers::{Found, find};
use crate::planning::{Present, Reduction};
use qos::contract::session::Session;
use qos::plan::Offer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// Pause between two searches: at most a part of one processor is theirs.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Most sessions that are looked at before something changes; the others are told that there was no time.
const MOST: usize = 50;

/// What the offers are for: links, what is taken back, and the sessions with the revisions for which they were asked for.
#[derive(Debug, Default)]
struct Basis {
    links: Rates,
    reduction: Reduction,
    sessions: Vec<(String, u64)>,
}

impl Basis {
    fn of(kept: &Kept) -> Self {
        let sessions = kept.sessions.iter().map(|one| (one.name.clone(), one.asked)).collect();
        Self { links: kept.links.clone(), reduction: kept.reduction.clone(), sessions }
    }

    fn is_of(&self, kept: &Kept) -> bool {
        let sessions = kept.sessions.iter().map(|one| (one.name.as_str(), one.asked));
        (&self.links, &self.reduction) == (&kept.links, &kept.reduction)
            && self.sessions.iter().map(|(name, asked)| (name.as_str(), *asked)).eq(sessions)
    }
}

/// Offers by session.
#[derive(Debug, Default)]
pub(super) struct Offered {
    basis: Basis,
    /// Sessions that are still to be looked at, the most important last.
    left: Vec<String>,
    /// Those for which there was no time, and that were put back.
    again: BTreeSet<String>,
    found: BTreeMap<String, Found>,
}

impl Offered {
    /// For what is kept now, nothing was found yet.
    fn begin(&mut self, kept: &Kept) {
        // Of equally important ones the oldest is looked at first, as it is the last to be suspended.
        let suspended = kept.sessions.iter().rev().filter(|one| kept.reduction.suspended.contains_key(&one.name));
        let importance = |text: &str| Session::read(text).map_or(i64::MIN, |read| read.importance);
        let mut all: Vec<(i64, String)> = suspended.map(|one| (importance(&one.text), one.name.clone())).collect();
        all.sort_by_key(|(importance, _)| *importance);
        let late = all.len().saturating_sub(MOST);
        let hurried = |(_, name): (i64, String)| (name, Found { hurried: true, ..Found::default() });
        let left = all.split_off(late);
        *self = Self {
            basis: Basis::of(kept),
            left: left.into_iter().map(|(_, name)| name).collect(),
            again: BTreeSet::new(),
            found: all.into_iter().map(hurried).collect(),
        };
    }

    /// Notes what was found for a session. One for which there was no time is looked at once more, after all others.
    fn note(&mut self, name: String, found: Found) {
        if found.hurried && found.offers.is_empty() && self.again.insert(name.clone()) {
            self.left.insert(0, name.clone());
        }
        self.found.insert(name, found);
    }
}

impl Broker {
    fn offered_so_far(&self) -> MutexGuard<'_, Offered> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for offers as long as the broker runs.
    pub(crate) async fn follow_offers(self: &Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Some(name) = self.next_without_offers() {
                self.look_for_offers(name).await;
            }
        }
    }

    /// The next session to look at. While there is no plan for the links, nothing is admitted.
    fn next_without_offers(&self) -> Option<String> {
        if self.without_plan().is_some() {
            *self.offered_so_far() = Offered::default();
            return None;
        }
        let hosts = self.hosts();
        let mut offered = self.offered_so_far();
        if !offered.basis.is_of(hosts.kept()) {
            offered.begin(hosts.kept());
        }
        offered.left.last().cloned()
    }

    async fn look_for_offers(self: &Arc<Self>, name: String) {
        let turn = self.turn().await;
        let kept = self.hosts().kept().clone();
        if !self.offered_so_far().basis.is_of(&kept) {
            return;
        }
        let sold = self.sold(&kept);
        let searched = name.clone();
        // Links that change wait for the turn: the search ends.
        let mut watch = Meanwhile::new(self.clone(), kept.links.clone());
        let search = move || {
            let _turn = turn;
            let Kept { contract, sessions, links, reduction, .. } = &kept;
            let contract = contract.as_deref()?;
            let present = Present { contract, links, reduction, sessions, sold: &sold };
            Some(find(present, &searched, AT_ONCE, &mut watch))
        };
        let found = tokio::task::spawn_blocking(search).await.ok().flatten().unwrap_or_default();
        let mut offered = self.offered_so_far();
        // What has changed meanwhile is looked at anew.
        if offered.left.last() == Some(&name) {
            offered.left.pop();
            offered.note(name, found);
        }
    }

    /// What a suspended session (name) could have at once, and what there is to say about that.
    pub(super) fn offers_for(&self, name: &str) -> (Vec<Offer>, Option<String>) {
        let offered = self.offered_so_far();
        let Some(found) = offered.found.get(name) else { return (Vec::new(), None) };
        let said = match found {
            Found { offers, .. } if !offers.is_empty() => None,
            Found { fits: true, .. } => Some("it fits as it is beside what is left now, and waits for the next plan"),
            Found { hurried: true, .. } => Some("there was no time to look for what it could have now"),
            Found { .. } => Some("nothing less was found that it could have now"),
        };
        (found.offers.clone(), said.map(str::to_owned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_had_no_time_is_looked_at_once_more() {
        let mut offered = Offered { left: vec!["low".into(), "high".into()], ..Offered::default() };
        for name in ["high", "low", "high", "low"] {
            assert_eq!(offered.left.pop().as_deref(), Some(name));
            offered.note(name.to_owned(), Found { hurried: true, ..Found::default() });
        }
        assert!(offered.left.is_empty() && offered.found["low"].hurried);
    }
}
