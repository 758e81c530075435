//! Offers for sessions that are suspended, looked for while nobody waits for it: for one after the other, the most important first. Requests get their
//! turn between two of them.

use super::Broker;
use super::sessions::clock;
use crate::degradation::AT_ONCE;
use crate::hosts::Kept;
use crate::links::Rates;
use crate::offers::{Found, find};
use crate::planning::{Present, Reduction};
use qos::contract::session::Session;
use qos::plan::Offer;
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
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
            found: all.into_iter().map(hurried).collect(),
        };
    }
}

impl Broker {
    fn offered_so_far(&self) -> MutexGuard<'_, Offered> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for offers as long as the broker runs.
    pub(crate) async fn follow_offers(&self) {
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

    async fn look_for_offers(&self, name: String) {
        let turn = self.turn().await;
        let kept = self.hosts().kept().clone();
        if !self.offered_so_far().basis.is_of(&kept) {
            return;
        }
        let sold = self.sold(&kept);
        let searched = name.clone();
        let search = move || {
            let _turn = turn;
            let Kept { contract, sessions, links, reduction, .. } = &kept;
            let contract = contract.as_deref()?;
            let present = Present { contract, links, reduction, sessions, sold: &sold };
            Some(find(present, &searched, AT_ONCE, &mut clock()))
        };
        let found = tokio::task::spawn_blocking(search).await.ok().flatten().unwrap_or_default();
        let mut offered = self.offered_so_far();
        // What has changed meanwhile is looked at anew.
        if offered.left.last() == Some(&name) {
            offered.left.pop();
            offered.found.insert(name, found);
        }
    }

    /// What a suspended session (name) could have at once, and what there is to say about that.
    pub(super) fn offers_for(&self, name: &str) -> (Vec<Offer>, Option<String>) {
        let offered = self.offered_so_far();
        let Some(Found { offers, hurried }) = offered.found.get(name) else { return (Vec::new(), None) };
        let said = match (offers.is_empty(), hurried) {
            (true, true) => Some("there was no time to look for what it could have now"),
            (true, false) => Some("nothing less was found that it could have now"),
            (false, _) => None,
        };
        (offers.clone(), said.map(str::to_owned))
    }
}
