//! Offers: changes of a contract with which it fits, each tried by a new plan.

use super::{Work, compute};
use crate::Class;
use crate::analysis::chain::Unsteady;
use crate::analysis::{Steps, channels};
use crate::network::Network;
use crate::placement::{self, Candidate, Effort, Watch};
use crate::plan::{Chain, Channel, FileChange, Model, Offer, Plan};
use crate::quantity::{show_bytes, show_time};
use crate::system::{self, ChainPart, PlacementDelay, Proxies, Sched, System, Transport};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Most plans that are tried.
const TRIALS: u32 = 200;
/// Most rounds in which jitter is stated again.
const JITTERS: u32 = 8;
/// Steps for one place of one channel's proxy.
const PLACE: u64 = 100;
/// Most subscribers that are asked to give way, the least important first.
const GIVING: usize = 6;
/// Most offers.
const MOST: usize = 6;
/// The largest factor on a subscriber's scale that is tried.
const SCALE: u32 = 64;

/// Changes with which the contract fits, the nearest to the request first. Classes and sharing cost nothing. Then follow reductions of
/// rate, size or deadline, weighed by importance; leaving a subscriber out comes last.
pub(super) fn offers(
    system: &System,
    plan: &Plan,
    unsteady: &[Unsteady],
    work: Work,
    watch: &mut dyn Watch,
) -> Vec<Offer> {
    let steps = Steps::new(work.offers);
    let (model, trials, most) = (plan.model, TRIALS, work.plan);
    let (base, found) = (Vec::new(), Vec::new());
    let mut search = Search { system, model, watch, trials, most, steps, base, found };
    let steady = search.jitters(unsteady);
    if !search.found.is_empty() {
        return search.found.into_iter().map(|(_, offer)| offer).collect();
    }
    let parties = Parties::of(system, steady.as_ref().unwrap_or(plan));
    search.classes(&parties);
    search.unreserved();
    search.sharing();
    for index in parties.giving.iter().take(GIVING) {
        search.scale(*index);
        search.size(*index);
    }
    search.deadlines(&parties);
    search.leaving_out(&parties);
    search.found.sort_by(|a, b| a.0.total_cmp(&b.0));
    search.found.into_iter().take(MOST).map(|(_, offer)| offer).collect()
}

/// Subscribers that are late, and those that can give way.
struct Parties {
    /// Late subscribers with their delay in ns, if there is one.
    late: Vec<(usize, Option<f64>)>,
    /// Subscribers that share a full link or a link with a late one, the least important first, then the greediest.
    giving: Vec<usize>,
    /// Late chains with their bounds in ns, if there are any.
    chains: Vec<(usize, Option<f64>)>,
}

impl Parties {
    fn of(system: &System, plan: &Plan) -> Self {
        let network = Network::new(system);
        let index: HashMap<&str, usize> =
            system.subscribers.iter().enumerate().map(|(i, s)| (s.name.as_str(), i)).collect();
        let paper = by_paper(system, &network);
        let late = |channel: &Channel| {
            let (index, deadline) = (*index.get(channel.subscriber.as_str())?, channel.deadline_us?);
            let delay = channel.mean_us.or(channel.bound_us).map(|us| paper[index].max(us * 1e3));
            delay.is_none_or(|ns| ns > deadline * 1e3).then_some((index, delay))
        };
        let late: Vec<_> = plan.channels.iter().filter_map(late).collect();
        let crossed = |index: usize| {
            let subscriber = &system.subscribers[index];
            let from = &system.topics[subscriber.topic].publishers;
            let routes = from.iter().flat_map(|from| network.route(*from, subscriber.node).unwrap_or_default());
            routes.map(|direction| direction.index()).collect::<HashSet<usize>>()
        };
        let full = plan.links.iter().enumerate().filter(|(_, link)| link.utilisation > 1.0).map(|(index, _)| index);
        let mut narrow: HashSet<usize> = full.collect();
        late.iter().for_each(|(index, _)| narrow.extend(crossed(*index)));
        let chains = late_chains(plan);
        let parts = chains.iter().flat_map(|(chain, _)| &system.chains[*chain].parts);
        parts.for_each(|part| narrow.extend(crossed(part.subscriber)));
        let mut giving: Vec<usize> =
            (0..system.subscribers.len()).filter(|index| !narrow.is_disjoint(&crossed(*index))).collect();
        giving.sort_by(|a, b| {
            let importance = |index: usize| system.subscribers[index].importance;
            importance(*a).cmp(&importance(*b)).then(load(system, *b).total_cmp(&load(system, *a)))
        });
        Self { late, giving, chains }
    }
}

/// Chains that end later than they may, with their bounds in ns.
fn late_chains(plan: &Plan) -> Vec<(usize, Option<f64>)> {
    let late = |(index, chain): (usize, &Chain)| {
        let (deadline, bound) = (chain.deadline_us?, chain.bound_us);
        bound.is_none_or(|us| us > deadline).then_some((index, bound.map(|us| us * 1e3)))
    };
    plan.chains.iter().enumerate().filter(|_| !plan.model.is_mean()).filter_map(late).collect()
}

/// Payload bit/s that a subscriber gets.
fn load(system: &System, index: usize) -> f64 {
    let (subscriber, topic) = (&system.subscribers[index], &system.topics[system.subscribers[index].topic]);
    topic.rate / f64::from(subscriber.scale) * 8.0 * subscriber.scaled_size.unwrap_or(topic.size) as f64
}

/// For each subscriber the δ of P-21 at the best place for the latest of its group, ns; 0 if some place keeps all
/// deadlines, and if another delay counts.
fn by_paper(system: &System, network: &Network) -> Vec<f64> {
    let mut delays = vec![0.0; system.subscribers.len()];
    if system.placement.delay != PlacementDelay::Paper {
        return delays;
    }
    for (group, candidates) in placement::table(system, network) {
        let latest = |candidate: &&Candidate| candidate.delays.iter().copied().fold(0.0, f64::max);
        let allowed = candidates.iter().filter(|one| system.nodes[one.node].proxy || one.node == group.publisher);
        let best = allowed.min_by(|a, b| latest(a).total_cmp(&latest(b)));
        if let Some(best) = best.filter(|_| !candidates.iter().any(|candidate| candidate.fits)) {
            for (index, delay) in group.subscribers.iter().zip(&best.delays) {
                delays[*index] = delays[*index].max(*delay);
            }
        }
    }
    delays
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
    model: Model,
    watch: &'a mut dyn Watch,
    trials: u32,
    /// Most steps of one trial.
    most: u64,
    steps: Steps,
    /// Changes that each offer needs besides its own.
    base: Vec<Edit>,
    /// The offers with their costs to those concerned.
    found: Vec<(f64, Offer)>,
}

impl Search<'_> {
    fn fits(&mut self, edits: &[Edit]) -> bool {
        self.tried(edits).is_some_and(|(plan, _)| plan.feasible)
    }

    /// The plan with these changes; `None`: no more are tried.
    fn tried(&mut self, edits: &[Edit]) -> Option<(Plan, Vec<Unsteady>)> {
        let edits: Vec<Edit> = self.base.iter().chain(edits).cloned().collect();
        let tried = Edit::all(&edits, self.system);
        if self.trials == 0 || !self.steps.take(PLACE * tried.nodes.len() as u64 * channels(&tried)) {
            return None;
        }
        self.trials -= 1;
        // It has as many steps, and as much time, as it will have when it is planned for itself.
        let steps = Steps::new(Steps::of(&tried).left().min(self.most));
        let had = steps.left();
        let began = self.watch.elapsed();
        let effort = Effort { explain: false, ..Effort::default() };
        let watch = &mut Since { watch: &mut *self.watch, began };
        let plan = compute(&tried, self.model, &steps, effort, watch);
        self.steps.take(had - steps.left());
        Some(plan)
    }

    /// States as much jitter as the topics of callbacks have, again until nothing changes, because it makes others later. Gives the plan with
    /// that, if it ends.
    fn jitters(&mut self, unsteady: &[Unsteady]) -> Option<Plan> {
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
            let (plan, more) = self.tried(&base)?;
            if more.is_empty() {
                if plan.feasible {
                    let words: Vec<String> = base.iter().map(|edit| edit.words(self.system)).collect();
                    self.offer(0.0, words.join(", "), &base);
                }
                self.base = base;
                return Some(plan);
            }
            missing = more;
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

    /// A class higher for the late topics.
    fn classes(&mut self, parties: &Parties) {
        let mut topics: Vec<usize> =
            parties.late.iter().map(|(index, _)| self.system.subscribers[*index].topic).collect();
        let parts = parties.chains.iter().flat_map(|(chain, _)| &self.system.chains[*chain].parts);
        topics.extend(parts.map(|part| self.system.subscribers[part.subscriber].topic));
        topics.dedup();
        for topic in topics.into_iter().take(GIVING) {
            let name = &self.system.topics[topic].name;
            let now = self.system.topics[topic].class.unwrap_or_default();
            for class in Class::ALL.into_iter().filter(|class| *class > now) {
                let edit = Edit::Class(topic, class);
                if self.fits(std::slice::from_ref(&edit)) {
                    self.offer(0.0, format!("class {class} instead of {now} for topic {name:?}"), &[edit]);
                    break;
                }
            }
        }
    }

    /// Fixed priorities for the threads of a topic that reserves more than a node has. They promise less to the others.
    fn unreserved(&mut self) {
        let reserves = |(index, topic): &(usize, &system::Topic)| {
            topic.publishers.iter().any(|node| self.system.sched(*node, *index, None) == Sched::Reserved)
        };
        let topics: Vec<_> = self.system.topics.iter().enumerate().filter(reserves).take(GIVING).collect();
        for (index, topic) in topics {
            if self.fits(&[Edit::Priority(index)]) {
                let what = format!("fixed priorities instead of reservations for topic {:?}", topic.name);
                self.offer(0.4, what, &[Edit::Priority(index)]);
            }
        }
    }

    /// Proxies and links that subscribers share.
    fn sharing(&mut self) {
        let placement = &self.system.placement;
        if placement.proxies != Proxies::Merged && self.fits(&[Edit::Merged]) {
            self.offer(0.1, "one proxy for all equal requests".to_owned(), &[Edit::Merged]);
        }
        if placement.transport != Transport::Multicast && self.fits(&[Edit::Multicast]) {
            self.offer(0.2, "multicast instead of a copy for each subscriber".to_owned(), &[Edit::Multicast]);
        }
        let system = self.system;
        for (index, node) in system.nodes.iter().enumerate().filter(|(_, node)| !node.proxy).take(GIVING) {
            if self.fits(&[Edit::Proxy(index)]) {
                self.offer(0.3, format!("proxies at node {:?}", node.name), &[Edit::Proxy(index)]);
            }
        }
    }

    /// The smallest scale that makes room.
    fn scale(&mut self, index: usize) {
        // What its callback publishes would come at another rate.
        let causes = |parts: &[ChainPart]| parts[0].subscriber == index && !parts[1].sampled;
        if self.system.chains.iter().any(|chain| chain.parts.windows(2).any(causes)) {
            return;
        }
        let subscriber = &self.system.subscribers[index];
        let (now, name) = (subscriber.scale, subscriber.name.clone());
        let factors =
            std::iter::successors(Some(2_u32), |factor| Some(factor * 2)).take_while(|factor| *factor <= SCALE);
        let scales: Vec<u32> = factors.map(|factor| now.saturating_mul(factor)).collect();
        let Some(mut enough) = scales.into_iter().find(|scale| self.fits(&[Edit::Scale(index, *scale)])) else {
            return;
        };
        let mut little = (enough / 2).max(now);
        while enough - little > 1 {
            let middle = little + (enough - little) / 2;
            if self.fits(&[Edit::Scale(index, middle)]) { enough = middle } else { little = middle }
        }
        let cost = self.cost(index, 1.0 - f64::from(now) / f64::from(enough));
        let what = format!("scale {enough} instead of {now} for {name}");
        self.offer(cost, what, &[Edit::Scale(index, enough)]);
    }

    /// The largest picture (in bytes) that leaves room, to a sixteenth.
    fn size(&mut self, index: usize) {
        let subscriber = &self.system.subscribers[index];
        let now = subscriber.scaled_size.unwrap_or(self.system.topics[subscriber.topic].size);
        let name = subscriber.name.clone();
        let halves = std::iter::successors(Some(now / 2), |size| Some(size / 2)).take_while(|size| *size >= 256);
        let Some(mut fits) = halves.into_iter().find(|size| self.fits(&[Edit::Size(index, *size)])) else { return };
        let mut large = fits.saturating_mul(2).min(now);
        while large - fits > now / 16 {
            let middle = fits + (large - fits) / 2;
            if self.fits(&[Edit::Size(index, middle)]) { fits = middle } else { large = middle }
        }
        let what = format!("samples of {} instead of {} for {name}", show_bytes(fits), show_bytes(now));
        let cost = self.cost(index, 1.0 - fits as f64 / now as f64);
        self.offer(cost, what, &[Edit::Size(index, fits)]);
    }

    /// Deadlines as late as samples come.
    fn deadlines(&mut self, parties: &Parties) {
        let mut edits = Vec::new();
        let mut cost = 0.0_f64;
        for (index, delay) in &parties.late {
            let Some(deadline) = self.system.subscribers[*index].deadline else { continue };
            let Some(longer) = delay.map(rounded_up) else { return };
            cost = cost.max(self.cost(*index, longer as f64 / deadline as f64 - 1.0));
            edits.push(Edit::Deadline(*index, longer));
        }
        for (index, bound) in &parties.chains {
            let Some(deadline) = self.system.chains[*index].deadline else { continue };
            let Some(longer) = bound.map(rounded_up) else { return };
            cost = cost.max(longer as f64 / deadline as f64);
            edits.push(Edit::ChainDeadline(*index, longer));
        }
        if !edits.is_empty() && self.fits(&edits) {
            let words: Vec<String> = edits.iter().map(|edit| edit.words(self.system)).collect();
            self.offer(cost, words.join(", "), &edits);
        }
    }

    /// The least important ones left out, as few as it takes.
    fn leaving_out(&mut self, parties: &Parties) {
        let mut out = Vec::new();
        for index in parties.giving.iter().take(4 * GIVING) {
            out.push(*index);
            let cut = |chain: &system::Chain| chain.parts.iter().any(|part| out.contains(&part.subscriber));
            let chains = self.system.chains.iter().enumerate().filter(|(_, chain)| cut(chain));
            let (chains, mut names): (Vec<Edit>, Vec<String>) =
                chains.map(|(index, chain)| (Edit::WithoutChain(index), format!("chain {:?}", chain.name))).unzip();
            let edits: Vec<Edit> = out.iter().map(|index| Edit::Without(*index)).chain(chains).collect();
            if self.fits(&edits) {
                names.splice(0..0, out.iter().map(|index| self.system.subscribers[*index].name.clone()));
                let cost = 1e9 + out.len() as f64;
                self.offer(cost, format!("without {}", names.join(", ")), &edits);
                return;
            }
        }
    }
}

/// To two digits, upwards: a deadline for people.
fn rounded_up(ns: f64) -> u64 {
    let unit = 10f64.powf((ns.max(10.0).log10() - 1.0).floor());
    ((ns / unit).ceil() * unit) as u64
}

/// A change of a contract; parts by their index.
#[derive(Clone, Debug, PartialEq)]
enum Edit {
    /// The ratio of published samples to a subscriber's.
    Scale(usize, u32),
    /// The size of a subscriber's samples, bytes.
    Size(usize, u64),
    /// A subscriber's samples may come so late, ns.
    Deadline(usize, u64),
    /// A chain may end so late, ns.
    ChainDeadline(usize, u64),
    /// A topic's jitter, ns.
    Jitter(usize, u64),
    /// A subscriber goes, with its chains.
    Without(usize),
    /// A chain goes.
    WithoutChain(usize),
    /// A topic's class.
    Class(usize, Class),
    /// The threads of a topic have fixed priorities.
    Priority(usize),
    /// A node may host proxies.
    Proxy(usize),
    /// Equal requests share a proxy.
    Merged,
    /// Links carry each stream once.
    Multicast,
}

impl Edit {
    /// Makes all of them.
    fn all(edits: &[Self], system: &System) -> System {
        let mut changed = system.clone();
        edits.iter().for_each(|edit| edit.apply(&mut changed));
        let gone = |index: usize| edits.contains(&Edit::Without(index));
        let mut index = 0..;
        changed.subscribers.retain(|_| !index.next().is_some_and(gone));
        let mut index = 0..;
        changed.chains.retain(|_| !index.next().is_some_and(|index| edits.contains(&Edit::WithoutChain(index))));
        let before = |index: usize| (0..index).filter(|other| gone(*other)).count();
        let parts = changed.chains.iter_mut().flat_map(|chain| &mut chain.parts);
        parts.for_each(|part| part.subscriber -= before(part.subscriber));
        changed
    }

    fn apply(&self, system: &mut System) {
        match self {
            Edit::Scale(index, scale) => system.subscribers[*index].scale = *scale,
            Edit::Size(index, size) => system.subscribers[*index].scaled_size = Some(*size),
            Edit::Deadline(index, ns) => system.subscribers[*index].deadline = Some(*ns),
            Edit::ChainDeadline(index, ns) => system.chains[*index].deadline = Some(*ns),
            Edit::Jitter(topic, ns) => system.topics[*topic].jitter = *ns,
            Edit::Class(topic, class) => system.topics[*topic].class = Some(*class),
            Edit::Priority(topic) => system.topics[*topic].sched = Some(Sched::Priority),
            Edit::Proxy(node) => system.nodes[*node].proxy = true,
            Edit::Merged => system.placement.proxies = Proxies::Merged,
            Edit::Multicast => system.placement.transport = Transport::Multicast,
            // Removals change indices, so they go last.
            Edit::Without(_) | Edit::WithoutChain(_) => {}
        }
    }

    /// As it is made in the file.
    fn change(&self, system: &System) -> FileChange {
        let of = |table: &str, name: &str, key: &str, value: String| FileChange {
            table: table.to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
            value,
        };
        let subscriber = |index: &usize| system.subscribers[*index].name.as_str();
        match self {
            Edit::Scale(index, scale) => of("subscriber", subscriber(index), "scale", scale.to_string()),
            Edit::Size(index, size) => {
                of("subscriber", subscriber(index), "scaled_size", format!("{:?}", show_bytes(*size)))
            }
            Edit::Deadline(index, ns) => of("subscriber", subscriber(index), "deadline", quoted_time(*ns)),
            Edit::ChainDeadline(index, ns) => of("chain", &system.chains[*index].name, "deadline", quoted_time(*ns)),
            Edit::Jitter(topic, ns) => of("topic", &system.topics[*topic].name, "jitter", quoted_time(*ns)),
            Edit::Without(index) => of("subscriber", subscriber(index), "", String::new()),
            Edit::WithoutChain(index) => of("chain", &system.chains[*index].name, "", String::new()),
            Edit::Class(topic, class) => of("topic", &system.topics[*topic].name, "class", format!("\"{class}\"")),
            Edit::Priority(topic) => of("topic", &system.topics[*topic].name, "sched", "\"priority\"".to_owned()),
            Edit::Proxy(node) => of("node", &system.nodes[*node].name, "proxy", "true".to_owned()),
            Edit::Merged => of("placement", "", "proxies", "\"merged\"".to_owned()),
            Edit::Multicast => of("placement", "", "transport", "\"multicast\"".to_owned()),
        }
    }

    /// For people.
    fn words(&self, system: &System) -> String {
        let FileChange { name, key, value, .. } = self.change(system);
        format!("{key} {} for {name}", value.trim_matches('"'))
    }
}

fn quoted_time(ns: u64) -> String {
    format!("\"{}\"", show_time(ns as f64 / 1e3))
}
