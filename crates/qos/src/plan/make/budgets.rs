//! Latency budgets that the plan computes (V-03): the largest with which everything still fits, each tried by a plan of its own.

use super::trials::Trials;
use super::{Computed, Work};
use crate::Place;
use crate::gathering;
use crate::placement::Watch;
use crate::plan::{Model, Plan, Setting, settle};
use crate::system::{LatencyBudget, System, Topic};

/// Most plans that are tried.
const TRIALS: u32 = 64;

/// The plan with the largest latency budgets where the contract asks for them. If it does not fit without, it stays as it is.
///
/// Samples that leave together are doubled for all of these topics at once as long as everything fits, then for one after the other, in
/// the order of the file.
pub(super) fn widest(system: &System, computed: Computed, work: Work, watch: &mut dyn Watch) -> Computed {
    let topics = asking(system, &computed.plan);
    if !computed.plan.feasible || topics.is_empty() {
        return computed;
    }
    let settings = computed.plan.settings.clone();
    let (trials, samples) = (Trials::new(TRIALS, work), vec![1; topics.len()]);
    let system = settle(system, &settings);
    let mut search = Search { system, topics, samples, settings, found: computed, trials, watch };
    while search.double(|_| true) {}
    for one in 0..search.topics.len() {
        while search.double(|topic| topic == one) {}
    }
    search.found
}

/// Topics (indices) whose budget the plan computes. None of those are among them that gather nothing as the plan is applied: sent by a thread of their
/// own, or forwarded by a relay.
fn asking(system: &System, plan: &Plan) -> Vec<usize> {
    // Means are no promise, and the papers' models know no gathering.
    if !matches!(plan.model, Model::Bound | Model::Nc | Model::Rta) {
        return Vec::new();
    }
    let relayed = |topic: &Topic| {
        let places = plan.channels.iter().filter(|channel| channel.topic == topic.name).filter_map(|one| one.place());
        places.into_iter().any(|place| matches!(place, Place::Relay(_)))
    };
    let asks = |topic: &Topic| {
        topic.latency_budget == Some(LatencyBudget::Auto)
            && topic.size <= gathering::LARGEST
            && topic.cpu_send == 0
            && !relayed(topic)
    };
    system.topics.iter().enumerate().filter(|(_, topic)| asks(topic)).map(|(index, _)| index).collect()
}

struct Search<'a> {
    system: System,
    /// Topics (indices), and the samples of each that may leave together.
    topics: Vec<usize>,
    samples: Vec<u64>,
    settings: Vec<Setting>,
    /// The plan with these.
    found: Computed,
    trials: Trials,
    watch: &'a mut dyn Watch,
}

impl Search<'_> {
    /// Doubles the samples of those topics, as far as they come in time. `false`: nothing more is possible, or it does not fit.
    fn double(&mut self, which: impl Fn(usize) -> bool) -> bool {
        let doubled = |(at, samples): (usize, &u64)| {
            let more = samples * 2;
            if which(at) && self.is_useful(self.topics[at], more) { more } else { *samples }
        };
        let wanted: Vec<u64> = self.samples.iter().enumerate().map(doubled).collect();
        let Some(computed) = (wanted != self.samples).then(|| self.planned(&wanted)).flatten() else { return false };
        (self.samples, self.found) = (wanted, computed);
        true
    }

    /// So many samples come in the longest time, and are no more bytes than a batch holds.
    fn is_useful(&self, topic: usize, samples: u64) -> bool {
        let Topic { period, size, .. } = self.system.topics[topic];
        let is_full = samples / 2 * size >= gathering::BYTES as u64;
        gathering::budget_for(samples, period).is_some() && !is_full
    }

    /// The plan with so many samples, if it fits.
    fn planned(&mut self, samples: &[u64]) -> Option<Computed> {
        let mut system = self.system.clone();
        for (topic, samples) in self.topics.iter().zip(samples) {
            let topic = &mut system.topics[*topic];
            topic.latency_budget = gathering::budget_for(*samples, topic.period).map(LatencyBudget::Stated);
        }
        let mut computed = self.trials.plan(&system, self.found.plan.model, &mut *self.watch)?;
        computed.plan.settings.clone_from(&self.settings);
        computed.plan.feasible.then_some(computed)
    }
}
