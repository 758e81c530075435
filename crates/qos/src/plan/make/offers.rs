//! Offers: changes of a contract with which it fits, each tried by a new plan.
//!
//! | module | contents |
//! |---|---|
//! | `edit` | a change of a contract, and how it is made in the file |
//! | `requests` | offers by kind: classes, paces, sharing, scale, size, deadlines, leaving out |
//! | `shares` | another kind: shares of classes |
//! | `settings` | what hosts can mend: settings instead of an offer, and another kind: devices with queues |

mod edit;
mod requests;
mod settings;
mod shares;

use super::parties::Parties;
use super::trials::Trials;
use super::{Computed, Work};
use crate::analysis::chain::Unsteady;
use crate::contract::joined::Part;
use crate::placement::Watch;
use crate::plan::{Model, Offer, Setting};
use crate::system::System;
use edit::Edit;
pub(super) use settings::smallest;
use std::time::Duration;

/// Most plans that are tried.
const TRIALS: u32 = 200;
/// Most rounds in which jitter is stated again.
const JITTERS: u32 = 8;
/// Most subscribers that are asked to give way, the least important first.
const GIVING: usize = 6;
/// Most offers.
const MOST: usize = 6;

/// A way out of a refusal.
pub(super) enum WayOut {
    /// With these settings of its hosts, the contract fits as it is.
    Settings(Vec<Setting>),
    /// Changes of the contract with which it fits.
    Offers(Vec<Offer>),
}

/// Settings with which the contract fits, or else changes, the nearest to the request first. Classes and sharing cost nothing. Then follow
/// reductions of rate, size or deadline, weighed by importance; leaving a subscriber out comes last.
/// With a `part`, nothing but that is changed.
pub(super) fn way_out(
    system: &System,
    part: Option<&Part>,
    computed: &Computed,
    work: Work,
    watch: &mut dyn Watch,
) -> WayOut {
    let mut search = Search::new(system, part, computed, work, watch);
    if let Some(settings) = search.settings(computed) {
        return WayOut::Settings(settings);
    }
    WayOut::Offers(search.offers(computed))
}

/// Settings alone.
pub(super) fn settings(
    system: &System,
    computed: &Computed,
    work: Work,
    watch: &mut dyn Watch,
) -> Option<Vec<Setting>> {
    Search::new(system, None, computed, work, watch).settings(computed)
}

impl Search<'_> {
    fn offers(mut self, computed: &Computed) -> Vec<Offer> {
        let steady = self.jitters(&computed.unsteady);
        if !self.found.is_empty() {
            return self.found.into_iter().map(|(_, offer)| offer).collect();
        }
        // All offers would state the jitter of topics of others.
        if self.base.iter().any(|edit| matches!(edit, Edit::Jitter(topic, _) if !self.may_change_topic(*topic))) {
            return Vec::new();
        }
        let computed = steady.as_ref().unwrap_or(computed);
        let mut parties = Parties::of(self.system, &computed.plan);
        parties.giving.retain(|index| self.may_change_subscriber(*index));
        self.classes(&parties);
        self.paces();
        self.unreserved();
        if self.part.is_none() {
            self.shares(&parties, computed);
            self.sharing();
            self.devices(&parties, computed);
        }
        for index in parties.giving.iter().take(GIVING) {
            self.scale(*index);
            self.size(*index);
        }
        self.deadlines(&parties);
        self.leaving_out(&parties);
        self.found.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.found.into_iter().take(MOST).map(|(_, offer)| offer).collect()
    }
}

/// The clock of one trial.
struct Since<'a> {
    watch: &'a mut dyn Watch,
    began: Duration,
}

impl Watch for Since<'_> {
    fn elapsed(&mut self) -> Duration {
        self.watch.elapsed().saturating_sub(self.began)
    }
}

struct Search<'a> {
    system: &'a System,
    /// All that may be changed; `None`: everything.
    part: Option<&'a Part>,
    model: Model,
    watch: &'a mut dyn Watch,
    trials: Trials,
    /// The time after which nothing is tried any more.
    until: Duration,
    /// Changes that each offer needs besides its own.
    base: Vec<Edit>,
    /// The offers with their costs to those concerned.
    found: Vec<(f64, Offer)>,
}

impl<'a> Search<'a> {
    fn new(
        system: &'a System,
        part: Option<&'a Part>,
        computed: &Computed,
        work: Work,
        watch: &'a mut dyn Watch,
    ) -> Self {
        let (model, trials) = (computed.plan.model, Trials::new(TRIALS, work));
        Self { system, part, model, watch, trials, until: work.time, base: Vec::new(), found: Vec::new() }
    }
}

impl Search<'_> {
    /// `true` if the topic (index) may be changed.
    fn may_change_topic(&self, index: usize) -> bool {
        !self.system.topics[index].pipe && self.part.is_none_or(|part| part.topics.binary_search(&index).is_ok())
    }

    /// `true` if the subscriber (index) may be changed.
    fn may_change_subscriber(&self, index: usize) -> bool {
        let pipe = self.system.topics[self.system.subscribers[index].topic].pipe;
        !pipe && self.part.is_none_or(|part| part.subscribers.binary_search(&index).is_ok())
    }

    /// `true` if the chain (index) may be changed.
    fn may_change_chain(&self, index: usize) -> bool {
        self.part.is_none_or(|part| part.chains.binary_search(&index).is_ok())
    }

    fn fits(&mut self, edits: &[Edit]) -> bool {
        self.tried(edits).is_some_and(|computed| computed.plan.feasible)
    }

    /// The plan with these changes; `None`: no more are tried.
    fn tried(&mut self, edits: &[Edit]) -> Option<Computed> {
        let edits: Vec<Edit> = self.base.iter().chain(edits).cloned().collect();
        self.planned(&Edit::all(&edits, self.system))
    }

    /// The plan of a changed system; `None`: no more are tried.
    fn planned(&mut self, tried: &System) -> Option<Computed> {
        let began = self.watch.elapsed();
        if began > self.until {
            return None;
        }
        // It has as much time as it will have when it is planned for itself.
        self.trials.plan(tried, self.model, &mut Since { watch: &mut *self.watch, began })
    }

    /// States as much jitter as the topics of callbacks have, again until nothing changes, because it makes others later. Gives the plan with
    /// that, if it ends.
    fn jitters(&mut self, unsteady: &[Unsteady]) -> Option<Computed> {
        let mut missing = unsteady.to_vec();
        let mut base: Vec<Edit> = Vec::new();
        for _ in 0..JITTERS {
            if missing.is_empty() {
                return None;
            }
            for Unsteady { topic, needs, .. } in &missing {
                base.retain(|edit| !matches!(edit, Edit::Jitter(known, _) if known == topic));
                base.push(Edit::Jitter(*topic, rounded_up((*needs)? as f64)));
            }
            let computed = self.tried(&base)?;
            if computed.unsteady.is_empty() {
                let is_own = |edit: &Edit| matches!(edit, Edit::Jitter(topic, _) if self.may_change_topic(*topic));
                if computed.plan.feasible && base.iter().all(is_own) {
                    let words: Vec<String> = base.iter().map(|edit| edit.words(self.system)).collect();
                    self.offer(0.0, words.join(", "), &base);
                }
                self.base = base;
                return Some(computed);
            }
            missing = computed.unsteady;
        }
        None
    }

    fn offer(&mut self, cost: f64, what: String, edits: &[Edit]) {
        let besides = self.base.iter().map(|edit| format!(", {}", edit.words(self.system)));
        let what = std::iter::once(what).chain(besides).collect();
        let changes = edits.iter().chain(&self.base).map(|edit| edit.change(self.system)).collect();
        self.found.push((cost, Offer { what, changes }));
    }

    /// The cost to a subscriber of giving up a part (0…1) of its request, above 1.
    fn cost(&self, index: usize, part: f64) -> f64 {
        let least = self.system.subscribers.iter().map(|subscriber| subscriber.importance).min().unwrap_or(0);
        1.0 + part * (self.system.subscribers[index].importance - least + 1) as f64
    }
}

/// To two digits, upwards: a deadline for people.
fn rounded_up(ns: f64) -> u64 {
    let unit = 10f64.powf((ns.max(10.0).log10() - 1.0).floor());
    ((ns / unit).ceil() * unit) as u64
}
